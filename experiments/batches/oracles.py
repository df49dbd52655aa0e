"""Windows whose optimum is known otherwise: one class on one GPU, and shares that are as good as GPUs."""

from __future__ import annotations

import random
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from experiments.bench import plan_window
from truenorth.models import GPU, BatchClass, Cluster, Edge, Instance, Job, Link, Network, Objective, Task, Workflow


class OracleRow(NamedTuple):
    """A draw: what was found, what it is compared with, and whether it was proved."""

    objective: Objective
    found: Fraction
    known: Fraction
    proved: bool


def one_class(releases_us: Sequence[int], batch: BatchClass) -> Instance:
    """Return jobs of one task each, all of one class, on one GPU."""
    workflow = Workflow("w", (Task.of_class("t", batch),))
    gpus = (GPU("s0/g0", 0, "A", 1, Fraction(1)),)
    return Instance(Cluster(gpus, Network(Link(), Link())), (), tuple(Job(workflow, at) for at in releases_us))


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


def draw_one_class(seed: int, tasks: int = 40) -> Instance:
    """Return random releases of tasks of one class with a random table, on one GPU; from hardly to overloaded."""
    rng = random.Random(seed)  # noqa: S311
    sizes = rng.choice((2, 4, 8, 16))
    times = [rng.randint(5_000, 60_000)]
    while len(times) < sizes:
        times.append(times[-1] + rng.randint(0, times[0]))
    listed = sorted({1, sizes, *rng.sample(range(1, sizes + 1), rng.randint(1, sizes))})
    span_us = int(times[0] * tasks * rng.choice((0.1, 0.5, 1.0, 2.0)))
    releases = sorted(rng.randint(0, span_us) for _ in range(tasks))
    return one_class(releases, BatchClass("c", {"*": {size: times[size - 1] for size in listed}}))


def compare_one_class(seed: int, time_limit_s: float) -> list[OracleRow]:
    """Return mean latency and makespan of one class on one GPU beside those of the dynamic programme."""
    built = draw_one_class(seed)
    makespan, completions = least_ends(built)
    latency = Fraction(completions - int(built.job_release_us.sum()), len(built.jobs))
    known = {Objective.MEAN_LATENCY: latency, Objective.MAKESPAN: Fraction(makespan)}
    return [_row(built, objective, value, time_limit_s) for objective, value in known.items()]


def draw_shares(seed: int, lanes: int, tasks: int) -> tuple[Instance, Instance]:
    """Return tasks of share 1 / `lanes` on one GPU, and the same tasks on as many GPUs; jobs are chains and forks."""
    rng = random.Random(seed)  # noqa: S311
    drawn, count, release = [], 0, 0.0
    while count < tasks:
        run_us = [rng.randint(1_000, 40_000) for _ in range(rng.choice((1, 1, 2, 3)))]
        fork = rng.random() < 0.5
        release += rng.expovariate(1 / (sum(run_us) / lanes / rng.choice((0.8, 1.0))))
        drawn.append((int(release), run_us, fork))
        count += len(run_us)
    return tuple(_on_lanes(drawn, share, gpus) for share, gpus in ((10_000 // lanes, 1), (10_000, lanes)))  # type: ignore[return-value]


def _on_lanes(drawn: list[tuple[int, list[int], bool]], share: int, gpus: int) -> Instance:
    listed = tuple(GPU(f"s{i}/g0", i, "A", 1, Fraction(1)) for i in range(gpus))
    jobs = []
    for index, (release, run_us, fork) in enumerate(drawn):
        after = [()] + [(Edge("t0" if fork else f"t{at}", 0),) for at in range(len(run_us) - 1)]
        tasks = [
            Task(f"t{at}", {"*": run}, (), inputs, share)
            for at, (run, inputs) in enumerate(zip(run_us, after, strict=True))
        ]
        jobs.append(Job(Workflow(f"w{index}", tuple(tasks)), release))
    return Instance(Cluster(listed, Network(Link(), Link())), (), tuple(jobs))


def compare_shares(seed: int, time_limit_s: float) -> list[OracleRow]:
    """Return the mean latency of tasks that share one GPU beside that of the same tasks on GPUs of their own."""
    side_by_side, apart = draw_shares(seed, (2, 4, 7, 16)[seed % 4], (30, 80, 200)[seed % 3])
    other = _row(apart, Objective.MEAN_LATENCY, Fraction(0), time_limit_s).found
    return [_row(side_by_side, Objective.MEAN_LATENCY, other, time_limit_s)]


def _row(built: Instance, objective: Objective, known: Fraction, time_limit_s: float) -> OracleRow:
    result = plan_window(built, objective, time_limit_s)["result"]
    if result.value is None:
        raise RuntimeError(f"{objective}: no plan in {time_limit_s} s")
    return OracleRow(objective, result.value, known, result.status == "OPTIMAL")
