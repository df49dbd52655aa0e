"""What ``--method auto`` makes of instances with known values: plan and bound in one run, as a user gets them."""

from __future__ import annotations

import csv
import random
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

from experiments import authors
from experiments.exact.known import SHARED, flexible_job_shop, machines
from models import Instance, Job, Objective, Task, Workflow
from models.objective import reported_bound, reported_value
from planner.stages import Method, solve
from solvers.result import Result, Status

_PROOF_S = 20.0


def shown(name: str, result: Result, objective: Objective, known: str = "") -> None:
    """Print a line: plan, bound, gap, and what is known from elsewhere."""
    if result.value is None or result.lower_bound is None or result.gap is None:
        raise SystemExit(f"{name}: {result.status}")
    value, bound = reported_value(objective, result.value), reported_bound(objective, result.lower_bound)
    print(
        f"{name}: {result.status}, plan {value:.8g}, bound {bound:.8g}, gap {result.gap:.2%}, {result.runtime_s:.1f} s"
        + (f", known {known}" if known else ""),
        flush=True,
    )


def shops(seconds: float) -> None:
    """Makespan of Brandimarte's flexible job shops beside the best known values (a time unit is a microsecond)."""
    with (SHARED / "fjsp" / "scheduleopt_bks.csv").open(newline="") as file:
        rows = {row["instance"]: row for row in csv.DictReader(file)}
    for number in range(1, 11):
        name = f"mk{number:02d}"
        instance = flexible_job_shop(SHARED / "fjsp" / "brandimarte" / f"{name}.txt")
        result = solve(instance, Objective.MAKESPAN, time_limit_s=seconds)
        row = rows[name]
        known = f"{row['lower_bound']} to {row['upper_bound']} us"
        shown(name, result, Objective.MAKESPAN, known)


def on_parallel_machines(times: Sequence[int], n_machines: int) -> Instance:
    """Return P||Cmax with these processing times, a time unit being a microsecond."""
    jobs = (Job(Workflow(f"j{i}", (Task("t", {"any": time}),)), 0) for i, time in enumerate(times))
    return Instance(machines(["any"] * n_machines), (), tuple(jobs))


def parallel_machines(path: Path) -> Instance:
    """Return a file of P||Cmax: machines, jobs, then one processing time a line."""
    n_machines, _, *times = (int(word) for word in path.read_text().split())
    return on_parallel_machines(times, n_machines)


def parallel(seconds: float) -> None:
    """Makespan on parallel machines beside the computed optima."""
    folder = SHARED / "pcmax"
    with (folder / "optima.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            name = row["instance"]
            result = solve(parallel_machines(folder / name), Objective.MAKESPAN, time_limit_s=seconds)
            known = f"{row['lower_bound']} to {row['upper_bound']} us"
            shown(name, result, Objective.MAKESPAN, known)


def proved(seconds: float, instances: int = 50) -> None:
    """Plans of small windows after a few seconds beside what CP-SAT proves in twenty.

    Windows of 8 to 18 jobs (30 to 70 tasks) of the authors' workload at 1 to 2 jobs/s on three GPUs, until so
    many are proved.
    """
    rng = random.Random(0)  # noqa: S311
    counted, equal, worst = 0, 0, 0.0
    for seed in range(10 * instances):
        jobs, rate = rng.randint(8, 18), rng.choice((1.0, 1.5, 2.0))
        instance = authors.instance(authors.poisson(rate, jobs, seed), gpus=3)
        objective = rng.choice((Objective.MEAN_SLOWDOWN, Objective.MEAN_LATENCY))
        best = solve(instance, objective, time_limit_s=_PROOF_S, method=Method.CP_SAT)
        if best.status is not Status.OPTIMAL or best.value is None:
            continue
        quick = solve(instance, objective, time_limit_s=seconds)
        if quick.value is None:
            raise SystemExit(f"seed {seed}: {quick.status}")
        counted += 1
        equal += abs(quick.value - best.value) <= best.value / 1_000_000
        worst = max(worst, float(quick.value / best.value) - 1)
        print(f"seed {seed}: {instance.n_tasks} tasks, {float(quick.value / best.value) - 1:.3%} above", flush=True)
        if counted == instances:
            break
    print(f"{counted} proved: {equal} equal, worst {worst:.3%} above the optimum")


def machines_apart(gpus: int, jobs: int, seed: int) -> Instance:
    """Return jobs of one task with run times of 1 to 30 ms, uniform per machine, and weights of 1 to 100."""
    rng = random.Random(seed)  # noqa: S311
    kinds = [f"K{index}" for index in range(gpus)]
    return Instance(
        machines(kinds),
        (),
        tuple(
            Job(
                Workflow(f"w{job}", (Task("t", {kind: 1000 * rng.randint(1, 30) for kind in kinds}),)),
                0,
                Fraction(rng.randint(1, 100)),
            )
            for job in range(jobs)
        ),
    )


def unrelated(seconds: float) -> None:
    """Weighted completion time on unrelated machines."""
    for gpus, jobs in ((4, 40), (6, 60), (10, 100), (20, 200)):
        result = solve(machines_apart(gpus, jobs, 1), Objective.WEIGHTED_LATENCY, time_limit_s=seconds)
        shown(f"{gpus} x {jobs}", result, Objective.WEIGHTED_LATENCY)


def adverse(seconds: float) -> None:
    """Mean slowdown where there is more work than the GPUs can do, and where memory holds one model only."""
    objective = Objective.MEAN_SLOWDOWN
    overload = authors.instance(authors.poisson(6, 100, 1))
    shown("6 jobs/s, 100 jobs", solve(overload, objective, time_limit_s=seconds), objective)
    largest = int(overload.weight_bytes.max())
    gpus = tuple(replace(gpu, memory_bytes=largest) for gpu in overload.cluster.gpus)
    starved = replace(authors.instance(authors.poisson(2, 100, 1)), cluster=replace(overload.cluster, gpus=gpus))
    shown("2 jobs/s, memory for one model", solve(starved, objective, time_limit_s=seconds), objective)
