"""What ``trial -o FOLDER`` leaves: a report of every run, one of all, and timelines of the first repeat."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from models.cluster import MICROSECONDS_PER_SECOND
from models.identity import scenario_hash
from models.objective import completion_us
from models.scenario import write_atomically
from models.timeline import Timeline
from planner.answers.replay import Replayed
from planner.answers.shown import Shown
from planner.answers.trial import Trial
from planner.answers.versions import provenance
from planner.show import timelines

NAME = "trial.json"
_RUNS = "runs"


def forget_runs(folder: Path) -> None:
    """Remove the runs that an earlier trial left in a folder."""
    for path in (folder / _RUNS).glob("[0-9]*.json"):
        path.unlink()


def keep_run(folder: Path, number: int, run: Replayed) -> None:
    """Write the report of one run as soon as it has ended, so that nothing that happens later takes it away."""
    (folder / _RUNS).mkdir(parents=True, exist_ok=True)
    write_atomically(folder / _RUNS / f"{number:04}.json", json.dumps(run.as_dict(), indent=1) + "\n")


def write(made: Trial, folder: Path) -> list[Path]:
    """Write every file of a trial; return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / NAME, json.dumps(_document(made), indent=1) + "\n")
    return [folder / NAME, timelines.write(folder, list(_shown(made)))]


def _document(made: Trial) -> dict[str, Any]:
    """Return the report, latencies job by job, and where it comes from."""
    scenario, settings = made.scenario, made.settings
    options = ["--policies", ",".join(contender.name for contender in made.contenders)]
    options += ["--repeats", str(len(made.order)), "--device", settings.device, "--runner", made.runner]
    options += [] if settings.sharing is None else ["--virtual", settings.sharing]
    options += ["--count-faults"] if made.count_faults else []
    return {
        **made.as_dict(),
        "jobs": {
            contender.name: {
                "predicted_s": _latency_s(made, contender.predicted),
                "measured_s": [_latency_s(made, run.timeline) for run in made.counted(contender.name)],
            }
            for contender in made.contenders
        },
        "scenario": {"name": scenario.name, "hash": scenario_hash(scenario.instance), "file": scenario.source.file},
        "command": shlex.join(["truenorth", "trial", scenario.source.file, *options]),
        "versions": provenance() | {"torch": version("torch")},
    }


def _latency_s(made: Trial, timeline: Timeline) -> list[float]:
    instance = made.scenario.instance
    latency: list[float] = (
        (completion_us(instance, timeline) - instance.job_release_us) / MICROSECONDS_PER_SECOND
    ).tolist()
    return latency


def _shown(made: Trial) -> Iterator[Shown]:
    for contender in made.contenders:
        clairvoyant, instance = contender.plan is not None, made.scenario.instance
        for first in made.runs[contender.name][:1]:
            yield Shown(f"{contender.name}, measured", clairvoyant, instance, first.timeline)
        yield Shown(f"{contender.name}, predicted", clairvoyant, instance, contender.predicted)
