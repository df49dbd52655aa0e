"""Take every step of the executor on a CUDA device, then profile it and try two policies; write JSON.

The policies are the timeline that SRPT makes in simulation, and Compass. What has been measured is kept: the same
command goes on behind it.
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch
import yaml

from experiments.bench import ask
from experiments.benchmarks.devices.figures import figures, reached
from experiments.benchmarks.devices.parts import Part, parts
from experiments.benchmarks.devices.steps import STEPS, Step, take_steps
from truenorth.executor.devices.cuda import settle
from truenorth.executor.devices.machine import describe_machine
from truenorth.executor.devices.physical import physical_devices
from truenorth.executor.runners.factory import runner_named
from truenorth.models.record import encode
from truenorth.models.scenario import load_scenario, write_atomically
from truenorth.planner.answers.kept import KeptRuns, keeping
from truenorth.planner.answers.profile import profile
from truenorth.planner.answers.replay import replay_on_devices
from truenorth.planner.answers.simulate import simulate, write_simulation
from truenorth.planner.answers.trial import trial
from truenorth.planner.questions.devices import ProfileQuestion, ReplayQuestion, TrialQuestion

Stage = tuple[str, Callable[[], dict[str, Any]]]
"""Its name, and what measures it."""


def device_figures(
    dry_run: Annotated[bool, "go through all of it on cores, with small models"] = False,
    jobs: Annotated[int, "jobs per GPU"] = 12,
    rounds: Annotated[int, "rounds of the profile"] = 5,
    repeats: Annotated[int, "runs of SRPT's timeline, and of Compass"] = 2,
    output: Path = Path("device_figures"),
) -> None:
    """Take the steps, then measure part after part, writing the figures so far after each; go on where they ended."""
    device = "cpu" if dry_run else "cuda"
    determinism, begin = settle(), time.perf_counter()
    *before, last = STEPS
    stages = [_of_step(step, device) for step in before]
    for part in parts(device, jobs):
        stages += _of_part(part, device, rounds, repeats, output / part.name.replace(" ", "_"))
    stages.append(_of_step(last, device))  # no device answers to anything after it
    question = {"device": device, "jobs": jobs, "rounds": rounds, "repeats": repeats, **_machine(device)}
    with keeping(output / "stages", question) as kept:
        found: dict[str, Any] = {**question, "determinism": determinism, "stages": {}}
        for number, (name, measured) in enumerate(_all(stages, kept), 1):
            found["stages"][name] = measured
            found["targets"] = reached([run for stage in found["stages"].values() for run in stage.get("runs", [])])
            write_atomically(output / "figures.json", json.dumps(found, indent=2))
            for said in _lines(measured):
                print(f"{time.perf_counter() - begin:7.1f} s  {number}/{len(stages)} {name}: {said}", flush=True)


def _all(stages: Sequence[Stage], kept: KeptRuns | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what every stage shows: as it was kept, or measured now."""
    for number, (name, measure) in enumerate(stages, 1):
        measured = None if kept is None else kept.read(number)
        if measured is None:
            measured = {"at": f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC", **measure()}
            if kept is not None:
                kept.keep(number, measured)
        yield name, measured


def _of_step(step: Step, device: str) -> Stage:
    def measure() -> dict[str, Any]:
        """Take the step; what it shows is its figures."""
        shown = list(take_steps([step], device))
        return {"figures": [figure.as_dict() for figure in shown], "lines": [str(figure) for figure in shown]}

    return step[0], measure


def _of_part(part: Part, device: str, rounds: int, repeats: int, folder: Path) -> list[Stage]:
    """Return the stages of a part: its profile, the trial, and outputs beside those of models alone."""
    given, profiled, simulated = folder / "scenario.yaml", folder / "profiled.yaml", folder / "srpt.json"
    make = runner_named(part.runner)
    on: dict[str, Any] = {"device": device, "runner": part.runner, "virtual": part.sharing}

    def take_profile() -> dict[str, Any]:
        """Profile the part, and note what SRPT makes of that."""
        folder.mkdir(exist_ok=True)
        write_atomically(given, yaml.safe_dump(part.document, sort_keys=False))
        rounds_kept = folder / "profiled.rounds"
        asked = ProfileQuestion(device, runner=part.runner, rounds=rounds, beside=part.beside, folder=rounds_kept)
        made = profile(asked, load_scenario(given), make)
        made.save(profiled)
        write_simulation(simulate(load_scenario(profiled), "srpt"), simulated)
        return {"profile": encode(made.record(profiled)), "lines": [f"{made.rounds} rounds"]}

    def try_both() -> dict[str, Any]:
        """Run SRPT's timeline and Compass, in random order, again and again."""
        made = trial(
            TrialQuestion((str(simulated), "compass"), repeats=repeats, folder=folder / "runs", **on),
            load_scenario(profiled),
            make,
        )
        ran = [{"policy": run.policy, **figures(run, part.large_bytes)} for runs in made.runs.values() for run in runs]
        return {
            "runs": ran,
            "trial": encode(made.record),
            "lines": [f"{Path(run['policy']).stem}: {_line(run)}" for run in ran],
        }

    def compare_outputs() -> dict[str, Any]:
        """Run Compass once more, and every task alone."""
        scenario = load_scenario(profiled)
        made = replay_on_devices(ReplayQuestion("compass", check_outputs=True, **on), scenario, make)
        write_atomically(folder / "compass_report.json", json.dumps(encode(made.record), indent=1))
        run = {"policy": "compass", **figures(made, part.large_bytes)}
        return {"runs": [run], "lines": [_line(run)]}

    named = (("profile", take_profile), ("plan and Compass", try_both), ("outputs", compare_outputs))
    return [(f"{part.name}, {name}", measure) for name, measure in named]


def _lines(measured: Mapping[str, Any]) -> Sequence[str]:
    return measured["lines"]  # type: ignore[no-any-return]


def _machine(device: str) -> dict[str, Any]:
    told = describe_machine(physical_devices(device))
    return {
        "devices": [physical.name for physical in physical_devices(device)],
        "driver": [card["driver"] for card in told["cuda"]],
        "processor": told["processor"],
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


main = partial(ask, device_figures)
