"""``python -m experiments exact BENCHMARK``: how far exact proofs reach; known answers that solvers must give."""

from __future__ import annotations

import math
import random
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Annotated, Any

from ortools.sat.python import cp_model

import truenorth as tn
from experiments import authors
from experiments.bench import ask, bench, plan_window
from truenorth.models import Instance, Objective, UnsupportedInstanceError
from truenorth.models.formulations.cp_sat import formulate
from truenorth.models.scenario import Scenario, load_scenario, scenario_from
from truenorth.solvers.budget import Method
from truenorth.solvers.exact import cp_sat, milp
from truenorth.solvers.result import Result
from truenorth.solvers.trust import SolverFaultWarning

_DETERMINISTIC_S = 0.2
"""What a subsolver may take of a window by CP-SAT's own clock: those that cannot prove it give up."""

RATE_PER_S = 3.76
"""75 % of the 5.02 jobs/s at which five GPUs saturate."""
Seconds = Annotated[float, "seconds per instance"]


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


def fork(seed: int) -> Scenario:
    """Return the window of `fork_data`."""
    return scenario_from(fork_data(seed))


def fork_data(seed: int) -> dict[str, Any]:
    """Return a window of two jobs of a task and two successors each; every task has other run times on the two GPUs.

    One GPU of each of two kinds: OR-Tools 9.15 is wrong on one in twenty, 9.14 on one in a hundred if intervals end
    apart (`not_last`).
    """
    rng = random.Random(seed)  # noqa: S311
    models = {f"m{index}": {"weights": f"{rng.randint(2, 4)} GB"} for index in range(3)}

    def task(**more: object) -> dict[str, Any]:
        runtime = {kind: f"{rng.randint(100, 900)} ms" for kind in "AB"}
        return {"runtime": runtime, "models": [rng.choice(list(models))], "output": "40 MB", **more}

    workflows = {
        f"w{index}": {"tasks": {"t0": task(), "t1": task(after=["t0"]), "t2": task(after=["t0"])}} for index in range(2)
    }
    jobs = [{"release": f"{rng.randint(0, 1500)} ms", "workflow": name} for name in workflows]
    memory = {"memory": "7 GB", "load_bandwidth": "16 GB/s"}
    return {
        "cluster": {
            "groups": [{"count": 1, "gpu": {"kind": kind, **memory}} for kind in "AB"],
            "network": {"bandwidth": "5 GB/s", "latency": "1 ms"},
        },
        "models": models,
        "workflows": workflows,
        "workload": {"jobs": jobs},
        "objective": "mean_latency",
    }


FORKS = {43: 1_263_000, 78: 1_406_500, 103: 1_041_750, 110: 1_076_500, 153: 1_281_500, 197: 751_000}
"""Optima in microseconds of windows that fork, by seed: two solvers agree on them."""

THREE_IN_BATCHES, TWO_CLASSES = (
    Path(__file__).parent / "data" / f"{name}.yaml" for name in ("three_in_batches", "two_classes")
)

KNOWN: dict[str, tuple[Callable[[], Scenario], int]] = {
    **{f"fork {seed}": (partial(fork, seed), optimum) for seed, optimum in FORKS.items()},
    "three in batches": (partial(load_scenario, THREE_IN_BATCHES), 2_000_000_000),
    "two classes": (partial(load_scenario, TWO_CLASSES), 8_000_000_000),
}
"""Windows by name, and their optima in microseconds."""


def ten_constraints(solved: bool) -> cp_model.CpModel:
    """Return a feasible model of five tasks, two of them after another; or the same with a solution written in."""
    model = cp_model.CpModel()
    here = {task: model.new_bool_var(f"here[{task}]") for task in (0, 1, 2, 4, 5)}
    windows = {0: (366, 713), 1: (560.6, 949.6), 2: (560.6, 907.6), 4: (991, 1338), 5: (1335.2, 1703)}
    start = {
        task: model.new_int_var(int(1000 * first), int(1000 * last), f"start[{task}]")
        for task, (first, last) in windows.items()
    }
    end = {0: model.new_int_var(552_000, 907_600, "end[0]"), 4: model.new_int_var(1_514_000, 1_861_000, "end[4]")}
    lasts = {0: 458_000, 1: 133_000, 2: 175_000, 4: 579_000, 5: 158_000}
    runs = [
        model.new_optional_interval_var(start[task], lasts[task], end.get(task, start[task] + lasts[task]), own, "run")
        for task, own in here.items()
    ]
    model.add_no_overlap(runs)
    for task in (1, 2):
        model.add(here[task] == 1)
        model.add(start[task] >= end[0])
    if solved:
        starts = {0: 366_000, 1: 560_600, 2: 693_600, 4: 991_000, 5: 1_570_000}
        ends = {0: 552_000, 4: 1_570_000}
        for variables, values in ((start, starts), (end, ends), (here, {0: 0, 4: 1, 5: 1})):
            for task, value in values.items():
                model.add(variables[task] == value)
    return model


def not_last(apart: bool) -> cp_model.CpModel:
    """Return a feasible model of three tasks, the first of which need not run; or the same with its end apart.

    It ends at 17 if it runs, and the others follow it: too late for both, so it does not. If the end of its interval is
    a variable of its own, OR-Tools 9.12 to 9.14 call that infeasible, at the root, with presolve and without, whatever
    the parameters: their rule *not last* reports a conflict where it should say that the task is absent.
    """
    model = cp_model.CpModel()
    runs, end = model.new_bool_var("runs"), model.new_int_var(0, 120, "end")
    second, third = model.new_int_var(15, 17, "second"), model.new_int_var(6, 19, "third")
    first = model.new_optional_interval_var(10, 7, end if apart else 17, runs, "first")
    if not apart:
        model.add(end == 17).only_enforce_if(runs)
    followers = [
        model.new_fixed_size_interval_var(second, 4, "run"),
        model.new_fixed_size_interval_var(third, 6, "run"),
    ]
    model.add_no_overlap([first, *followers])
    for start in (second, third):
        model.add(start >= end)
    return model


MODELS: dict[str, cp_model.CpModel] = {
    "ten constraints": ten_constraints(solved=False),
    "ten constraints, solution given": ten_constraints(solved=True),
    "not last": not_last(apart=False),
}
"""Feasible models by name."""


@dataclass(frozen=True, slots=True)
class PlainAnswer:
    """What CP-SAT says of the plain model of a window: the value of its plan, and its bound; infinite: infeasible."""

    value: Fraction | None
    bound: Fraction | float


def ask_plainly(scenario: Scenario, subsolver: str | None, seed: int, time_limit_s: float = 2.0) -> PlainAnswer:
    """Ask one subsolver of CP-SAT, or what it runs by itself, about the model of a window without any addition."""
    formulation = formulate(scenario.instance, scenario.objective)
    solver = cp_sat.new_solver(1, seed, time_limit_s)
    solver.parameters.max_deterministic_time = _DETERMINISTIC_S
    solver.parameters.subsolvers.extend([] if subsolver is None else [subsolver])
    status = solver.status_name(solver.solve(formulation.model))
    if status == "INFEASIBLE":
        return PlainAnswer(None, math.inf)
    found = status in ("OPTIMAL", "FEASIBLE")
    scaled = formulation.objective
    value = scaled.true_bound(round(solver.objective_value)) if found else None
    return PlainAnswer(value, scaled.true_bound(math.floor(solver.best_objective_bound)) if found else Fraction(0))


def subsolvers(objective: Objective) -> tuple[str | None, ...]:
    """Return what runs here of CP-SAT's subsolvers for an objective; None: what it runs by itself."""
    return None, *(cp_sat.FOR_SUMS if objective.is_sum else cp_sat.FOR_MAXIMA)


def wrong_answers(time_limit_s: float = 1.0, seeds: int = 20) -> Iterator[str]:
    """Yield what the solvers that are installed get wrong of what is known, in words.

    Parameters
    ----------
    time_limit_s
        Of each answer.
    seeds
        With which each subsolver of CP-SAT is asked.
    """
    for name, model in MODELS.items():
        solver = cp_sat.new_solver(1, 0, time_limit_s)
        status = solver.status_name(solver.solve(model))
        if status not in ("OPTIMAL", "FEASIBLE"):
            yield f"{name}: {status}"
    for name, (build, optimum) in KNOWN.items():
        scenario = build()
        for method, workers in ((cp_sat, 1), (cp_sat, 2), (milp, 1)):
            try:
                result = method.solve(scenario.instance, scenario.objective, time_limit_s, workers=workers)
            except UnsupportedInstanceError:
                continue
            if _contradicts(result, Fraction(optimum)):
                yield f"{name}: {method.METHOD} with {workers} workers: {result}, optimum {optimum}"
        for subsolver, seed in product(subsolvers(scenario.objective), range(seeds)):
            answer = ask_plainly(scenario, subsolver, seed, time_limit_s)
            if answer.bound > optimum:
                yield f"{name}: CP-SAT by {subsolver}, seed {seed}: bound {answer.bound}, optimum {optimum}"


def _contradicts(result: Result, optimum: Fraction) -> bool:
    """Say whether a result denies that a value can be reached."""
    return bool(result.faults) or result.infeasible or (result.lower_bound or 0) > optimum


def versions(seconds: Annotated[float, "for windows that fork"] = 60.0) -> None:
    """Solvers against known answers, then against plans of local search on windows that fork."""
    warnings.simplefilter("ignore", SolverFaultWarning)  # they are counted
    print(", ".join(f"{name} {version(name)}" for name in ("ortools", "highspy", "protobuf")))
    solver = cp_sat.new_solver(1, 0, 1.0)
    print(f"not last, its end apart (no model here has that): {solver.status_name(solver.solve(not_last(apart=True)))}")
    wrong, tried = list(wrong_answers()), 0
    print(*wrong, sep="\n")
    until_s, false = time.monotonic() + seconds, 0
    while time.monotonic() < until_s:
        scenario = fork(tried)
        best = tn.plan(scenario, time_limit=0.1, method=Method.SEARCH).result.value
        found = cp_sat.solve(scenario.instance, scenario.objective, 1.0)
        if best is not None and _contradicts(found, best):
            print(f"fork {tried}: {found}, but a plan of {float(best)} is known")
            false += 1
        tried += 1
    print(f"{len(wrong)} known answers wrong; {false} of {tried} windows that fork wrong")
    if wrong or false:
        raise SystemExit(1)


main = partial(ask, {"authors": prove_windows, "versions": versions})
