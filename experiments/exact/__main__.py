"""``python -m experiments.exact BENCHMARK``: prints a table of figures."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from itertools import product
from typing import Annotated, Any

from experiments import authors
from experiments.bench import ask, bench, plan_window
from experiments.exact.versions import versions
from experiments.random_instances import random_instance, random_serving_instance
from truenorth.models import Instance, Objective, measure
from truenorth.models.objective import Status, reported_value
from truenorth.solvers.exact import cp_sat, exhaustive, milp
from truenorth.solvers.result import Result, Search
from truenorth.solvers.search import annealing

RATE_PER_S = 3.76
"""75 % of the 5.02 jobs/s at which five GPUs saturate."""
LIMIT_S = 30.0
"""How long CP-SAT and the MILP may take for a tiny instance."""
ANNEALING_S = 0.5
"""How long annealing looks for the plan that the MILP starts from."""
Seconds = Annotated[float, "seconds per instance"]
Solver = Annotated[str, "a name that PuLP gives"]
Draw = Callable[[random.Random, int, bool], Instance]


def prove_windows(
    tasks: tuple[int, ...] = (36, 70, 136, 260),
    seeds: tuple[int, ...] = (1, 2, 3),
    objective: Objective = Objective.MEAN_LATENCY,
    time_limit: Seconds = 60.0,
) -> None:
    """Time proofs on the authors' workload, five GPUs at 75 % load, as `truenorth plan` makes them."""
    plan_window(authors_window(36, 1), objective, 3.0)  # compiles or loads the kernels
    bench(
        ((str(seed), authors_window(count, seed)) for count, seed in product(tasks, seeds)),
        lambda window: plan_window(window, objective, time_limit),
        "{tasks:5d}  {jobs:4d}  {name:>4s}  {status:8s}  {value:<10.6f}  {bound:<10.6f}  {gap:<6.2%}  {seconds:7.2f}  "
        "{cpu_s:5.1f}  {method}",
        "tasks  jobs  seed  status    value       bound       gap     seconds  CPU s  bound by",
    )


def authors_window(tasks: int, seed: int) -> Instance:
    """Return the first jobs of a seeded draw that hold about so many tasks."""
    sizes = {name: len(workflow.tasks) for name, workflow in authors.workflows().items()}
    arrivals, total = [], 0
    for release, name in authors.poisson(RATE_PER_S, tasks, seed):
        if total + sizes[name] // 2 > tasks:
            break
        arrivals.append((release, name))
        total += sizes[name]
    return authors.instance(arrivals)


def oracle(count: int = 300) -> None:
    """Compare exhaustive search and CP-SAT on random tiny instances, every objective in turn."""
    began, different = time.monotonic(), []
    for seed, built, objective in _draws(random_instance, count):
        exact, joint = exhaustive.solve(built, objective), cp_sat.solve(built, objective, 30, workers=1)
        if (exact.status, exact.value) != (joint.status, joint.value):
            different.append(seed)
    print(f"{count} instances, different: {different}, {time.monotonic() - began:.1f} s")


def _draws(draw: Draw, count: int) -> Iterator[tuple[int, Instance, Objective]]:
    for seed in range(count):
        yield seed, draw(random.Random(seed), 5, seed % 2 == 1), list(Objective)[seed % len(Objective)]  # noqa: S311


def twins(count: int = 200, solver: Solver = "HiGHS") -> None:
    """Compare exhaustive search, CP-SAT and the MILP on random tiny instances, every objective in turn."""
    _compare(random_instance, count, solver)


def serving(count: int = 300, solver: Solver = "HiGHS") -> None:
    """Do the same with batch classes, shares and memory of tasks, and tell how many optima have larger batches."""
    _compare(random_serving_instance, count, solver)


def _compare(draw: Draw, count: int, solver: str) -> None:
    began, faults, open_ones, batched = time.monotonic(), list[str](), list[str](), 0
    for seed, built, objective in _draws(draw, count):
        optimum = exhaustive.solve(built, objective)
        for solve in (cp_sat.solve, partial(milp.solve, solver=solver)):
            result = solve(built, objective, LIMIT_S, workers=1)
            faults += [f"seed {seed} {fault}" for fault in _faults(optimum, result)]
            open_ones += [f"seed {seed} {result.solver}"] * _is_open(result)
        if optimum.timeline is not None:
            batched += (measure(built, optimum.timeline).mean_batch_size or 0) > 1
    took_s = time.monotonic() - began
    print(f"{count} instances, {batched} optima with larger batches, faults: {faults}, {took_s:.1f} s")
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
    bounds = [moment.bound for moment in result.incumbents if moment.bound is not None]
    return found + [f"{result.solver}: bound {bound}" for bound in bounds if bound > optimum]


def stop_milp(
    jobs: tuple[int, ...] = (4, 6, 8, 10),
    seeds: tuple[int, ...] = (1, 2, 3),
    solver: Solver = "HiGHS",
    time_limit: Seconds = 60.0,
) -> None:
    """Show where the MILP stops: windows of the authors' workload, five GPUs at 75 % load, mean latency."""
    objective = Objective.MEAN_LATENCY

    def annealed(window: Instance, seconds: float, improve_s: float | None = None) -> Search:
        search = Search(window, objective, seconds)
        annealing.improve(search, time_limit_s=improve_s)
        return search

    def told(window: Instance) -> dict[str, Any]:
        search = annealed(window, time_limit, ANNEALING_S)
        before = search.value
        milp.improve(search, solver=solver)
        result = search.result(milp.METHOD, {})
        values = (None if value is None else reported_value(objective, value) for value in (before, result.value))
        return dict(zip(("annealed", "value"), values, strict=True)) | {"window": window, "result": result}

    annealed(authors.instance(authors.poisson(RATE_PER_S, 2, 1)), 1.0)  # loads the kernels
    bench(
        (
            (str(seed), authors.instance(authors.poisson(RATE_PER_S, count, seed)))
            for count, seed in product(jobs, seeds)
        ),
        lambda window: told(window) | {"jobs": len(window.jobs), "tasks": window.n_tasks},
        "{jobs:4d}  {tasks:5d}  {name:>4s}  {result.status:8s}  {annealed:<10.6f}  "
        "{value:<10.6f}  {result.gap:<6.2%}  {result.runtime_s:7.2f}",
        "jobs  tasks  seed  status    annealed    value       gap     seconds",
    )


if __name__ == "__main__":
    ask(
        {
            "authors": prove_windows,
            "oracle": oracle,
            "twins": twins,
            "serving": serving,
            "milp": stop_milp,
            "versions": versions,
        }
    )
