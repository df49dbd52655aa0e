"""``python -m experiments.exact BENCHMARK``: prints a table of figures."""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Sequence

from experiments.authors import instance as authors_instance
from experiments.authors import poisson, workflows
from experiments.exact.twins import run_milp, run_serving, run_twins
from experiments.exact.versions import run_versions
from experiments.random_instances import random_instance
from experiments.suites import async_how, flexible_job_shop, heft
from experiments.suites.case import Known
from experiments.suites.data import KNOWN_OPTIMA
from models import Instance, Objective
from models.objective import reported_bound, reported_value
from planner.answers.plan import solve
from solvers.budget import Budget
from solvers.exact import cp_sat, exhaustive
from solvers.result import Result
from solvers.search.dispatch import greedy

RATE_PER_S = 3.76
"""75 % of the 5.02 jobs/s at which five GPUs saturate."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one benchmark."""
    parser = argparse.ArgumentParser(prog="python -m experiments.exact", description=__doc__)
    commands = parser.add_subparsers(required=True)
    for name, run, options in (
        ("heft", run_heft, {"--time-limit": 60.0}),
        ("asynchow", run_async_how, {}),
        ("fjsp", run_flexible_job_shop, {"--time-limit": 60.0}),
        ("authors", run_authors, {"--time-limit": 60.0}),
        ("oracle", run_oracle, {}),
        ("twins", run_twins, {}),
        ("serving", run_serving, {}),
        ("milp", run_milp, {"--time-limit": 60.0}),
        ("versions", run_versions, {}),
    ):
        command = commands.add_parser(name, help=(run.__doc__ or "").splitlines()[0])
        for option, default in options.items():
            command.add_argument(option, type=float, default=default, help="seconds per instance")
        if name == "fjsp":
            command.add_argument("names", nargs="*", default=["mk01"], help="files of Brandimarte, such as mk01")
        if name == "authors":
            command.add_argument("--tasks", type=int, nargs="*", default=[36, 70, 136, 260])
            command.add_argument("--seeds", type=int, nargs="*", default=[1, 2, 3])
            command.add_argument("--objective", type=Objective, default=Objective.MEAN_LATENCY)
        if name in ("oracle", "serving"):
            command.add_argument("--count", type=int, default=300)
        if name == "twins":
            command.add_argument("--count", type=int, default=200)
        if name == "milp":
            command.add_argument("--jobs", type=int, nargs="*", default=[4, 6, 8, 10])
            command.add_argument("--seeds", type=int, nargs="*", default=[1, 2, 3])
        if name in ("twins", "milp", "serving"):
            command.add_argument("--solver", default="HiGHS", help="a name that PuLP gives")
        if name == "versions":
            command.add_argument("--seconds", type=float, default=60.0, help="for windows that fork")
        command.set_defaults(run=run)
    chosen = parser.parse_args(arguments)
    benchmark: Callable[[argparse.Namespace], None] = chosen.run
    benchmark(chosen)


def run_heft(options: argparse.Namespace) -> None:
    """HEFT's canonical graph: the optimum is 73, HEFT itself gives 80."""
    result = cp_sat.solve(heft.scenario().instance, Objective.MAKESPAN, options.time_limit)
    print(f"{result.status}  makespan {result.value}  bound {result.lower_bound}  {result.runtime_s:.2f} s")


def run_async_how(options: argparse.Namespace) -> None:
    """AsyncHow: with enough GPUs the makespan is the given answer, except for async_829."""
    began, right, wrong, unproved = time.monotonic(), 0, set[str](), 0
    for case in async_how.cases(KNOWN_OPTIMA):
        result = cp_sat.solve(case.scenario.instance, Objective.MAKESPAN, 10, workers=1)
        unproved += result.value != result.lower_bound
        if result.value is not None and case.known == Known.optimum(case.value(result.value)):
            right += 1
        else:
            wrong.add(case.name)
    print(f"{right} answers equal, different: {sorted(wrong)}, unproved: {unproved}, {time.monotonic() - began:.1f} s")


def run_flexible_job_shop(options: argparse.Namespace) -> None:
    """Brandimarte's flexible job shops: mk01 is 40."""
    for name in options.names:
        built = flexible_job_shop.read(KNOWN_OPTIMA / "fjsp" / "brandimarte" / f"{name}.txt").instance
        result = cp_sat.solve(built, Objective.MAKESPAN, options.time_limit, greedy(built, Objective.MAKESPAN))
        print(f"{name}  {result.status}  makespan {result.value}  bound {result.lower_bound}  {result.runtime_s:.2f} s")


def run_authors(options: argparse.Namespace) -> None:
    """Time proofs on the authors' workload, five GPUs at 75 % load, as `truenorth plan` makes them."""
    objective = options.objective
    solve(authors_window(36, 1), objective, Budget(3.0))  # compiles or loads the kernels
    print("tasks  jobs  seed  status    value       bound       gap     seconds  CPU s  bound by")
    for tasks in options.tasks:
        for seed in options.seeds:
            built, began_s = authors_window(tasks, seed), time.process_time()
            result = solve(built, objective, Budget(options.time_limit))
            print(_row(built, seed, result, time.process_time() - began_s), flush=True)


def _row(built: Instance, seed: int, result: Result, cpu_s: float) -> str:
    value = "-" if result.value is None else f"{reported_value(result.objective, result.value):.6f}"
    bound = "-" if result.lower_bound is None else f"{reported_bound(result.objective, result.lower_bound):.6f}"
    gap = "-" if result.gap is None else f"{result.gap:.2%}"
    counts = f"{built.n_tasks:5d}  {len(built.jobs):4d}  {seed:4d}"
    times = f"{result.runtime_s:7.2f}  {cpu_s:5.1f}"
    return f"{counts}  {result.status:8s}  {value:10s}  {bound:10s}  {gap:6s}  {times}  {result.bound_method}"


def authors_window(tasks: int, seed: int) -> Instance:
    """Return the first jobs of a seeded draw that hold about so many tasks."""
    sizes = {name: len(workflow.tasks) for name, workflow in workflows().items()}
    arrivals, total = [], 0
    for release, name in poisson(RATE_PER_S, tasks, seed):
        if total + sizes[name] // 2 > tasks:
            break
        arrivals.append((release, name))
        total += sizes[name]
    return authors_instance(arrivals)


def run_oracle(options: argparse.Namespace) -> None:
    """Compare exhaustive search and CP-SAT on random tiny instances, every objective in turn."""
    began, different = time.monotonic(), []
    for seed in range(options.count):
        built = random_instance(random.Random(seed), restricted=seed % 2 == 1)  # noqa: S311
        objective = list(Objective)[seed % len(Objective)]
        exact, joint = exhaustive.solve(built, objective), cp_sat.solve(built, objective, 30, workers=1)
        if (exact.status, exact.value) != (joint.status, joint.value):
            different.append(seed)
    print(f"{options.count} instances, different: {different}, {time.monotonic() - began:.1f} s")


if __name__ == "__main__":
    main()
