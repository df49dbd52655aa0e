"""The MILP against its twin: the same optima on tiny instances, and how far it gets on the authors' workload."""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Iterator
from fractions import Fraction

from experiments.authors import instance as authors_instance
from experiments.authors import poisson
from experiments.random_instances import random_instance, random_serving_instance
from models import Instance, Objective, measure
from models.objective import reported_value
from models.status import Status
from solvers.exact import cp_sat, exhaustive, milp
from solvers.result import Result, Search
from solvers.search import annealing

RATE_PER_S = 3.76
"""75 % of the 5.02 jobs/s at which five GPUs saturate."""

LIMIT_S = 30.0
"""How long CP-SAT and the MILP may take for a tiny instance."""

ANNEALING_S = 0.5
"""How long annealing looks for the plan that the MILP starts from."""


def run_twins(options: argparse.Namespace) -> None:
    """Compare exhaustive search, CP-SAT and the MILP on random tiny instances, every objective in turn."""
    _compare(random_instance, options)


def run_serving(options: argparse.Namespace) -> None:
    """Do the same with batch classes, shares and memory of tasks, and tell how many optima have larger batches."""
    _compare(random_serving_instance, options)


def _compare(draw: Callable[[random.Random, int, bool], Instance], options: argparse.Namespace) -> None:
    began, faults, open_ones, batched = time.monotonic(), list[str](), list[str](), 0
    for seed in range(options.count):
        built = draw(random.Random(seed), 5, seed % 2 == 1)  # noqa: S311
        objective = list(Objective)[seed % len(Objective)]
        oracle = exhaustive.solve(built, objective)
        joint = cp_sat.solve(built, objective, LIMIT_S, workers=1)
        twin = milp.solve(built, objective, LIMIT_S, workers=1, solver=options.solver)
        for result in (joint, twin):
            faults += [f"seed {seed} {fault}" for fault in _faults(oracle, result)]
            open_ones += [f"seed {seed} {result.solver}"] * _is_open(result)
        if oracle.timeline is not None:
            batched += (measure(built, oracle.timeline).mean_batch_size or 0) > 1
    took_s = time.monotonic() - began
    print(f"{options.count} instances, {batched} optima with larger batches, faults: {faults}, {took_s:.1f} s")
    print(f"open after {LIMIT_S:.0f} s: {open_ones}")


def _is_open(result: Result) -> bool:
    """Say whether a solver ended at its limit, with neither an optimum nor a proof that there is no plan."""
    return result.status in (Status.FEASIBLE, Status.NO_SOLUTION)


def _faults(oracle: Result, result: Result) -> list[str]:
    """Return how a solver contradicts the oracle: in status, optimum, any plan or any bound on the way."""
    optimum = Fraction(0) if oracle.value is None else oracle.value
    found = []
    if _is_open(result):
        if result.value is not None and (oracle.value is None or result.value < oracle.value):
            found.append(f"{result.solver}: a plan of {result.value}")
    elif (oracle.status, oracle.value) != (result.status, result.value):
        found.append(f"{result.solver}: optimum")
    return found + [f"{result.solver}: bound {bound}" for bound in _bounds(result) if bound > optimum]


def _bounds(result: Result) -> Iterator[Fraction]:
    yield from (moment.bound for moment in result.incumbents if moment.bound is not None)


def run_milp(options: argparse.Namespace) -> None:
    """Show where the MILP stops: windows of the authors' workload, five GPUs at 75 % load, mean latency."""
    objective = Objective.MEAN_LATENCY
    annealing.improve(Search(authors_instance(poisson(RATE_PER_S, 2, 1)), objective, 1.0))  # loads the kernels
    print("jobs  tasks  seed  status    annealed    value       gap     seconds")
    for jobs in options.jobs:
        for seed in options.seeds:
            search = Search(authors_instance(poisson(RATE_PER_S, jobs, seed)), objective, options.time_limit)
            annealing.improve(search, time_limit_s=ANNEALING_S)
            annealed = search.value
            milp.improve(search, solver=options.solver)
            print(_row(jobs, seed, annealed, search), flush=True)


def _row(jobs: int, seed: int, annealed: Fraction | None, search: Search) -> str:
    result = search.result(milp.METHOD, {})
    values = (
        "-" if exact is None else f"{reported_value(search.objective, exact):.6f}" for exact in (annealed, result.value)
    )
    gap = "-" if result.gap is None else f"{result.gap:.2%}"
    counts = f"{jobs:4d}  {search.instance.n_tasks:5d}  {seed:4d}  {result.status:8s}"
    return f"{counts}  {'  '.join(f'{value:10s}' for value in values)}  {gap:6s}  {result.runtime_s:7.2f}"
