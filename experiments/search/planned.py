"""What ``--method auto`` makes of instances with known values: plan and bound in one run, as a user gets them."""

from __future__ import annotations

import random
from dataclasses import replace

from experiments import authors
from experiments.suites import flexible_job_shop, parallel_machines
from experiments.suites.case import Case, unlike
from experiments.suites.data import KNOWN_OPTIMA
from models import Instance, Objective
from models.objective import reported_bound, reported_value
from models.scenario import scenario_from
from models.status import Status
from planner.answers.plan import solve
from solvers.budget import Budget, Method
from solvers.result import Result

_PROOF_S = 20.0
SHOPS = frozenset(f"mk{number:02d}" for number in range(1, 11))


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
    for case in flexible_job_shop.cases(KNOWN_OPTIMA):
        if case.name in SHOPS:
            _beside_known(case, seconds)


def parallel(seconds: float) -> None:
    """Makespan on parallel machines beside the computed optima."""
    for case in parallel_machines.cases(KNOWN_OPTIMA):
        _beside_known(case, seconds)


def _beside_known(case: Case, seconds: float) -> None:
    result = solve(case.scenario.instance, Objective.MAKESPAN, Budget(seconds))
    known = "" if case.known is None else f"{case.known.lower} to {case.known.upper} us"
    shown(case.name, result, Objective.MAKESPAN, known)


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
        best = solve(instance, objective, Budget(_PROOF_S, Method.CP_SAT))
        if best.status is not Status.OPTIMAL or best.value is None:
            continue
        quick = solve(instance, objective, Budget(seconds))
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
    workflows, arrivals = {}, []
    for job in range(jobs):
        runtime = {kind: f"{rng.randint(1, 30)} ms" for kind in kinds}
        workflows[f"w{job}"] = {"tasks": {"t": {"runtime": runtime}}}
        arrivals.append({"release": "0 s", "workflow": f"w{job}", "weight": rng.randint(1, 100)})
    document = {"cluster": unlike(kinds), "workflows": workflows, "workload": {"jobs": arrivals}}
    return scenario_from(document).instance


def unrelated(seconds: float) -> None:
    """Weighted completion time on unrelated machines."""
    for gpus, jobs in ((4, 40), (6, 60), (10, 100), (20, 200)):
        result = solve(machines_apart(gpus, jobs, 1), Objective.WEIGHTED_LATENCY, Budget(seconds))
        shown(f"{gpus} x {jobs}", result, Objective.WEIGHTED_LATENCY)


def adverse(seconds: float) -> None:
    """Mean slowdown where there is more work than the GPUs can do, and where memory holds one model only."""
    objective = Objective.MEAN_SLOWDOWN
    overload = authors.instance(authors.poisson(6, 100, 1))
    shown("6 jobs/s, 100 jobs", solve(overload, objective, Budget(seconds)), objective)
    largest = int(overload.weight_bytes.max())
    gpus = tuple(replace(gpu, memory_bytes=largest) for gpu in overload.cluster.gpus)
    starved = replace(authors.instance(authors.poisson(2, 100, 1)), cluster=replace(overload.cluster, gpus=gpus))
    shown("2 jobs/s, memory for one model", solve(starved, objective, Budget(seconds)), objective)
