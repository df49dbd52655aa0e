"""Take every step on a CUDA device; then profile, replay what SRPT does in simulation, and run Compass; write JSON."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import torch
import yaml

from experiments.bench import ask
from experiments.device_figures.figures import figures, reached
from experiments.device_figures.parts import Part, Remembered, parts
from experiments.device_figures.steps import STEPS, state_determinism, take_steps
from truenorth.executor.devices.physical import physical_devices
from truenorth.executor.devices.run import LiveSettings
from truenorth.executor.runners.factory import parse_runner
from truenorth.models.record import encode
from truenorth.models.scenario import load_scenario, write_atomically
from truenorth.planner.answers.profile import profile
from truenorth.planner.answers.replay import replay_on_devices
from truenorth.planner.answers.simulate import simulate, write_simulation


def device_figures(
    dry_run: Annotated[bool, "go through all of it on cores, with small models"] = False,
    jobs: Annotated[int, "jobs per GPU"] = 12,
    rounds: Annotated[int, "rounds of the profile"] = 5,
    output: Path = Path("device_figures"),
) -> None:
    """Take the steps, then measure part after part, writing the figures so far after each."""
    device = "cpu" if dry_run else "cuda"
    determinism = state_determinism()
    begin = time.perf_counter()
    found: dict[str, Any] = {**_machine(device), "determinism": determinism, "steps": [], "parts": {}}
    output.mkdir(parents=True, exist_ok=True)

    def keep(said: str) -> None:
        found["elapsed_s"] = round(time.perf_counter() - begin, 1)
        write_atomically(output / "figures.json", json.dumps(found, indent=2))
        print(f"{found['elapsed_s']:7.1f} s  {said}", flush=True)

    *before, (last, take_last) = STEPS
    for figure in take_steps(before, device):
        found["steps"].append(figure.as_dict())
        keep(str(figure))
    for part in parts(device, jobs):
        runs: list[dict[str, Any]] = []
        found["parts"][part.name] = {"runner": part.runner, "runs": runs}
        for run in _runs(part, device, rounds, output / part.name):
            runs.append(run)
            found["parts"][part.name]["targets"] = reached(runs)
            keep(f"{part.name} {run['policy']}: {_line(run)}")
    for figure in take_steps([(last, take_last)], device):  # no device answers to anything after it
        found["steps"].append(figure.as_dict())
        keep(str(figure))


def _runs(part: Part, device: str, rounds: int, folder: Path) -> Iterator[dict[str, Any]]:
    """Profile a part, then yield the figures of the simulated SRPT timeline carried out, and of Compass live."""
    folder.mkdir(exist_ok=True)
    given, profiled, simulated = folder / "scenario.yaml", folder / "profiled.yaml", folder / "srpt.json"
    write_atomically(given, yaml.safe_dump(part.document, sort_keys=False))
    runner = Remembered(parse_runner(part.runner))
    profile(load_scenario(given), runner, device=device, runner_name=part.runner, rounds=rounds).save(profiled)
    scenario = load_scenario(profiled)
    write_simulation(simulate(scenario, "srpt"), simulated)
    for name, policy in (("srpt", str(simulated)), ("compass", "compass")):
        made = replay_on_devices(
            scenario, policy, runner, LiveSettings(device), runner_name=part.runner, check_outputs=name == "compass"
        )
        write_atomically(folder / f"{name}_report.json", json.dumps(encode(made.record), indent=1))
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
    ask(device_figures)
