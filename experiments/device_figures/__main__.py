"""Profile, replay what SRPT does in simulation and run Compass, synthetic and with real architectures; write JSON."""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor, nn

from executor.devices.physical import physical_devices
from executor.devices.run import LiveSettings
from executor.runners.parse import parse_runner
from executor.runners.runner import Runner, RunnerCall
from experiments.device_figures.figures import figures, reached
from experiments.device_figures.parts import Part, parts
from models import MLModel
from models.scenario import load_scenario, write_atomically
from planner.answers.profile import profile
from planner.answers.replay import replay_on_devices
from planner.answers.simulate import simulate, write_simulation


def main() -> None:
    """Measure part after part, writing the figures so far after each run."""
    options = argparse.ArgumentParser(prog="python -m experiments.device_figures", description=__doc__)
    options.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    options.add_argument("--jobs", type=int, default=12, help="jobs per GPU")
    options.add_argument("--rounds", type=int, default=5, help="rounds of the profile")
    options.add_argument("-o", "--output", type=Path, default=Path("device_figures"), metavar="FOLDER")
    given = options.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)
    begin = time.perf_counter()
    found: dict[str, Any] = {**_machine(given.device), "parts": {}}
    for part in parts(given.device, given.jobs):
        runs: list[dict[str, Any]] = []
        found["parts"][part.name] = {"runner": part.runner, "runs": runs}
        for run in _runs(part, given.device, given.rounds, given.output / part.name):
            runs.append(run)
            found["parts"][part.name]["targets"] = reached(runs)
            found["elapsed_s"] = round(time.perf_counter() - begin, 1)
            write_atomically(given.output / "figures.json", json.dumps(found, indent=2))
            print(f"{found['elapsed_s']:7.1f} s  {part.name} {run['policy']}: {_line(run)}", flush=True)


class _Remembered:
    """A runner whose weights are drawn once for all runs of a part."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._weights: dict[str, Mapping[str, Tensor]] = {}

    def weights(self, model: MLModel) -> Mapping[str, Tensor]:
        if model.name not in self._weights:
            self._weights[model.name] = self._runner.weights(model)
        return self._weights[model.name]

    def module(self, model: MLModel) -> nn.Module:
        return self._runner.module(model)

    def run(self, call: RunnerCall) -> Tensor:
        return self._runner.run(call)

    def run_batch(self, calls: Sequence[RunnerCall]) -> Sequence[Tensor]:
        return self._runner.run_batch(calls)


def _runs(part: Part, device: str, rounds: int, folder: Path) -> Iterator[dict[str, Any]]:
    """Profile a part, then yield the figures of the simulated SRPT timeline carried out, and of Compass live."""
    folder.mkdir(exist_ok=True)
    given, profiled, simulated = folder / "scenario.yaml", folder / "profiled.yaml", folder / "srpt.json"
    write_atomically(given, yaml.safe_dump(part.document, sort_keys=False))
    runner = _Remembered(parse_runner(part.runner))
    profile(load_scenario(given), runner, device=device, runner_name=part.runner, rounds=rounds).save(profiled)
    scenario = load_scenario(profiled)
    write_simulation(simulate(scenario, "srpt"), simulated)
    for name, policy in (("srpt", str(simulated)), ("compass", "compass")):
        made = replay_on_devices(
            scenario, policy, runner, LiveSettings(device), runner_name=part.runner, check_outputs=name == "compass"
        )
        write_atomically(folder / f"{name}_report.json", json.dumps(made.as_dict(), indent=1))
        yield {"policy": name, **figures(made, part.large_bytes)}


def _machine(device: str) -> dict[str, Any]:
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "devices": [physical.name for physical in physical_devices(device)],
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
    }


def _line(run: Mapping[str, Any]) -> str:
    """Return a run's figures that have a target, in one line."""
    share = "-" if run["load_share_of_peak"] is None else f"{run['load_share_of_peak']:.1%}"
    errors = ["-" if run[name] is None else f"{run[name]:.1%}" for name in ("makespan_error", "mean_latency_error")]
    return (
        f"loads {share} of peak, dispatch {run['dispatch_us']:.0f} us, makespan off by {errors[0]}, mean latency by "
        f"{errors[1]}, {run['overlap_s']:.2f} of {run['load_s']:.2f} s of loads overlapped, "
        f"{run['different_outputs']} outputs different, {run['failures']} failures"
    )


if __name__ == "__main__":
    main()
