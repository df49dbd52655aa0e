"""Windows whose optimum is known otherwise: one class on one GPU, and shares that are as good as GPUs."""

from __future__ import annotations

import random
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

from experiments.bounds.batches import least_ends, one_class
from models import GPU, BatchClass, Cluster, Edge, Instance, Job, Link, Network, Objective, Task, Workflow
from planner.answers.plan import solve
from solvers.budget import Budget


class Row(NamedTuple):
    """A draw: what was found, what it is compared with, and whether it was proved."""

    objective: Objective
    found: Fraction
    known: Fraction
    proved: bool


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


def compare_one_class(seed: int, time_limit_s: float) -> list[Row]:
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


def compare_shares(seed: int, time_limit_s: float) -> list[Row]:
    """Return the mean latency of tasks that share one GPU beside that of the same tasks on GPUs of their own."""
    side_by_side, apart = draw_shares(seed, (2, 4, 7, 16)[seed % 4], (30, 80, 200)[seed % 3])
    other = solve(apart, Objective.MEAN_LATENCY, Budget(time_limit_s)).value
    if other is None:
        raise RuntimeError(f"seed {seed}: no plan in {time_limit_s} s")
    return [_row(side_by_side, Objective.MEAN_LATENCY, other, time_limit_s)]


def _row(built: Instance, objective: Objective, known: Fraction, time_limit_s: float) -> Row:
    result = solve(built, objective, Budget(time_limit_s))
    if result.value is None:
        raise RuntimeError(f"{objective}: no plan in {time_limit_s} s")
    return Row(objective, result.value, known, result.status == "OPTIMAL")


def print_rows(compare: Callable[[int, float], list[Row]], count: int, time_limit_s: float, within: float) -> None:
    """Print how many draws come as close to what is known as they should, and the widest distance, by objective."""
    rows = [row for seed in range(count) for row in compare(seed, time_limit_s)]
    print(f"{'objective':<14}{'draws':>7}{'within':>8}{'proved':>8}{'mean':>10}{'worst':>10}")
    for objective in dict.fromkeys(row.objective for row in rows):
        here = [row for row in rows if row.objective is objective]
        above = [float(row.found / row.known - 1) for row in here]
        close, proved = sum(value <= within for value in above), sum(row.proved for row in here)
        print(f"{objective:<14}{len(here):7}{close:8}{proved:8}{sum(above) / len(above):10.3%}{max(above):10.3%}")
