"""One batch class on one GPU, whose optimum a dynamic programme knows (PROBLEM.md, section 7)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from fractions import Fraction

from models import GPU, BatchClass, Cluster, Instance, Job, Link, Network, Task, Workflow

TASKS = 40
RUN_US = 10_000
"""Run time of a task alone."""


def one_class(releases_us: Sequence[int], batch: BatchClass) -> Instance:
    """Return jobs of one task each, all of one class, on one GPU."""
    workflow = Workflow("w", (Task.of_class("t", batch),))
    gpus = (GPU("s0/g0", 0, "A", 1, Fraction(1)),)
    return Instance(Cluster(gpus, Network(Link(), Link())), (), tuple(Job(workflow, at) for at in releases_us))


def draw(gap_us: int, seed: int) -> Instance:
    """Return 40 tasks with exponential times between them; a batch of b runs for 10 ms x (1 + b) / 2, b up to 8."""
    rng = random.Random(seed)  # noqa: S311
    at, releases = 0.0, []
    for _ in range(TASKS):
        at += rng.expovariate(1 / gap_us)
        releases.append(int(at))
    return one_class(releases, BatchClass("c", {"*": {b: RUN_US * (1 + b) // 2 for b in (1, 2, 4, 8)}}))


def least_ends(instance: Instance) -> tuple[int, int]:
    """Return the least makespan and the least sum of completions of one class on one GPU.

    Batches are runs of consecutive releases; the state is how many tasks are done, and when the GPU is free.
    """
    releases = instance.job_release_us.tolist()
    times = [instance.batch_time(0, 0, size) for size in range(1, int(instance.batch_largest[0, 0]) + 1)]
    known: list[dict[int, int]] = [{0: 0}, *({} for _ in releases)]
    for done, by_end in enumerate(known):
        for free, total in by_end.items():
            for size, run_us in enumerate(times[: len(releases) - done], 1):
                end = max(free, releases[done + size - 1]) + run_us
                later = known[done + size]
                later[end] = min(later.get(end, total + size * end), total + size * end)
    return min(known[-1]), min(known[-1].values())
