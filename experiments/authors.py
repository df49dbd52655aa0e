"""The workload of the Compass authors (arXiv 2402.17652): four workflows, five T4 servers, Poisson arrivals.

Figures from the simulator that one of the authors published (github aliciayuting/mNavigator, commit f3885518).
"""

from __future__ import annotations

import csv
import random
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

from truenorth.models import GPU, BatchClass, Cluster, Edge, Instance, Job, Link, MLModel, Network, Task, Workflow
from truenorth.models.units import parse_time

ARRIVALS = Path(__file__).parents[2] / "shared" / "data" / "compass"
"""Where the arrivals that the authors recorded lie beside a clone; not part of the tree."""

KB, GB = 1_000, 1_000_000_000
MODELS = {
    "opt": 5_720_000,
    "marian": 800_000,
    "mt5": 2_000_000,
    "nli": 2_140_000,
    "vit": 1_700_000,
    "txt2speech": 2_700_000,
    "detr": 1_800_000,
    "depth": 3_900_000,
}
"""Weights in kB."""

WORK_PER_JOB_S = 0.996
"""Mean work of a job at an equal mix of the four workflows."""

_TABLE: dict[str, tuple[tuple[str, str | None, int, int, tuple[str, ...]], ...]] = {
    # task: model, run time in us, output in kB, predecessors
    "translation": (
        ("opt", "opt", 561_000, 2, ()),
        ("marian", "marian", 441_000, 2, ("opt",)),
        ("mt5_a", "mt5", 778_000, 2, ("opt",)),
        ("mt5_b", "mt5", 803_000, 2, ("opt",)),
        ("aggregate", None, 1_000, 2, ("marian", "mt5_a", "mt5_b")),
    ),
    "question_answer": (
        ("opt", "opt", 560_000, 2, ()),
        ("nli", "nli", 27_000, 1, ("opt",)),
    ),
    "img_to_sound": (
        ("vit", "vit", 283_000, 20, ()),
        ("nli", "nli", 26_000, 10, ("vit",)),
        ("txt2speech", "txt2speech", 76_000, 3_000, ("vit",)),
        ("aggregate", None, 200, 3_000, ("nli", "txt2speech")),
    ),
    "object_detection": (
        ("entry", None, 600, 3_000, ()),
        ("detr", "detr", 178_000, 3_000, ("entry",)),
        ("depth", "depth", 147_000, 3_000, ("entry",)),
        ("aggregate", None, 104_000, 3_000, ("detr", "depth")),
    ),
}


def workflows() -> dict[str, Workflow]:
    """Return the four workflows by name."""
    made = {}
    for name, rows in _TABLE.items():
        output = {task: size * KB for task, _, _, size, _ in rows}
        tasks = tuple(
            Task(task, {"*": runtime}, (model,) if model else (), tuple(Edge(p, output[p]) for p in after))
            for task, model, runtime, _, after in rows
        )
        made[name] = Workflow(name, tasks)
    return made


def cluster(gpus: int = 5) -> Cluster:
    """Return servers of one T4 each: 14 GB for weights, transfers staged through the hosts."""
    link = Link(2, Fraction("12.58") * GB)
    listed = tuple(GPU(f"s{i}/g0", i, "T4", 14 * GB, Fraction("10.17") * GB) for i in range(gpus))
    return Cluster(listed, Network(link, link, staged=True))


def instance(arrivals: Sequence[tuple[int, str]], gpus: int = 5) -> Instance:
    """Return the instance of these arrivals: pairs of a release in microseconds and a workflow's name."""
    known = workflows()
    jobs = tuple(Job(known[name], release) for release, name in sorted(arrivals, key=lambda row: row[0]))
    models = tuple(MLModel(name, size * KB) for name, size in MODELS.items())
    return Instance(cluster(gpus), models, jobs, catalogue=tuple(known.values()))


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
    names = list(_TABLE)
    release, arrivals = 0.0, []
    for _ in range(count):
        arrivals.append((round(release * 1e6), rng.choice(names)))
        release += rng.expovariate(rate_per_s)
    return arrivals


def at_load(load: float, gpus: int, jobs: int, seed: int) -> Instance:
    """Return a draw of so many jobs that asks for a share of what the GPUs can compute."""
    return instance(poisson(load * gpus / WORK_PER_JOB_S, jobs, seed), gpus)
