"""The workload of the Compass authors (arXiv 2402.17652): four workflows, five T4 servers, Poisson arrivals.

Figures from the simulator that one of the authors published (github aliciayuting/mNavigator, commit f3885518); they
stand in `scenarios/compass_edge.yaml`.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from truenorth.models import BatchClass, Cluster, Instance, Job, Task, Workflow
from truenorth.models.scenario import load_scenario
from truenorth.models.units import parse_time

SCENARIO = Path(__file__).parent / "scenarios" / "compass_edge.yaml"
ARRIVALS = Path(__file__).parents[2] / "shared" / "data" / "compass"
"""Where the arrivals that the authors recorded lie beside a clone; not part of the tree."""

WORK_PER_JOB_S = 0.996
"""Mean work of a job at an equal mix of the four workflows."""


@cache
def _window() -> Instance:
    return load_scenario(SCENARIO).instance


def workflows() -> dict[str, Workflow]:
    """Return the four workflows by name."""
    return {workflow.name: workflow for workflow in _window().catalogue}


def cluster(gpus: int = 5) -> Cluster:
    """Return servers of one T4 each: 14 GB for weights, transfers staged through the hosts."""
    one, network = _window().cluster.gpus[0], _window().cluster.network
    return Cluster(tuple(replace(one, id=f"s{i}/g0", server=i) for i in range(gpus)), network)


def instance(arrivals: Sequence[tuple[int, str]], gpus: int = 5) -> Instance:
    """Return the instance of these arrivals: pairs of a release in microseconds and a workflow's name."""
    known = workflows()
    jobs = tuple(Job(known[name], release) for release, name in sorted(arrivals, key=lambda row: row[0]))
    return Instance(cluster(gpus), _window().models, jobs, catalogue=tuple(known.values()))


def with_slower(plain: Instance, count: int) -> Instance:
    """Return an instance of the authors' workflows whose last GPUs, so many, take twice as long for every task."""

    def slowed(task: Task) -> Task:
        runtime_us = task.runtime_us["*"]
        return replace(task, runtime_us={"T4": runtime_us, "slower": 2 * runtime_us})

    gpus, fast = plain.cluster.gpus, plain.n_gpus - count
    listed = gpus[:fast] + tuple(replace(gpu, kind="slower") for gpu in gpus[fast:])
    return plain.with_tasks(slowed, cluster=replace(plain.cluster, gpus=listed))


_FILLS_TO = {"opt": 8, "marian": 8, "mt5": 8, "vit": 4, "detr": 4, "depth": 4, "txt2speech": 4, "nli": 1}
"""Largest batch of each model; an assumption, as are the times: nobody published measured ones of these models."""


def batch_class(model: str, runtime_us: int) -> BatchClass:
    """Return the class of a model's tasks of one run time p.

    Language models of up to 8 take p x (0.5 + 0.5 b) for b tasks, the others p x (0.7 + 0.3 b): an assumption.
    """
    fixed, each = (5, 5) if _FILLS_TO[model] == 8 else (7, 3)
    times = {size: runtime_us * (fixed + each * size) // 10 for size in range(1, _FILLS_TO[model] + 1)}
    return BatchClass(f"{model} of {runtime_us} us", {"*": times}, (model,))


def batched(plain: Instance) -> Instance:
    """Return an instance of the authors' workflows whose tasks run in batches, a class per model and run time."""

    def classed(task: Task) -> Task:
        if not task.models:
            return task
        return Task.of_class(task.name, batch_class(task.models[0], task.runtime_us["*"]), task.inputs)

    return plain.with_tasks(classed)


def recorded_count(rate_per_s: int) -> int:
    """Return how many arrivals the authors recorded at a rate; 0 where the file is missing."""
    path = _recording(rate_per_s)
    return len(path.read_text().splitlines()) - 1 if path.exists() else 0


def recorded(
    rate_per_s: int, count: int | None = None, first: int = 0, from_zero: bool = True
) -> list[tuple[int, str]]:
    """Return `count` arrivals, or all, that the authors recorded at 2, 3 or 4 jobs/s, from the job `first` on.

    Raises
    ------
    ValueError
        If the recording ends before.
    """
    with _recording(rate_per_s).open(newline="") as file:
        rows = [(parse_time(f"{row['time_ms']} ms"), row["workflow"]) for row in csv.DictReader(file)]
    window = rows[first:] if count is None else rows[first : first + count]
    if not window or count not in (None, len(window)):
        raise ValueError(f"{count} jobs from job {first} on: of {rate_per_s} jobs/s only {len(rows)} are recorded")
    start = window[0][0] if from_zero else 0
    return [(release - start, name) for release, name in window]


def _recording(rate_per_s: int) -> Path:
    return ARRIVALS / f"arrivals_{rate_per_s}_per_s.csv"


def poisson(rate_per_s: float, count: int, seed: int) -> list[tuple[int, str]]:
    """Return seeded Poisson arrivals with an equal mix of the four workflows, the first at 0."""
    rng = random.Random(seed)  # noqa: S311
    names = list(workflows())
    release, arrivals = 0.0, []
    for _ in range(count):
        arrivals.append((round(release * 1e6), rng.choice(names)))
        release += rng.expovariate(rate_per_s)
    return arrivals


def at_load(load: float, gpus: int, jobs: int, seed: int) -> Instance:
    """Return a draw of so many jobs that asks for a share of what the GPUs can compute."""
    return instance(poisson(load * gpus / WORK_PER_JOB_S, jobs, seed), gpus)
