"""``python -m experiments psplib FILE ...``: projects of PSPLIB as one GPU that tasks share, beside CP-SAT alone.

Files as ScheduleOpt/benchmarks and Patterson have them (``.rcp``): activities and resources, capacities, then of each
activity its time, its demands and who comes after it. Of the resources the first one counts.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from ortools.sat.python import cp_model

import truenorth as tn
from experiments.bench import ask, bench
from truenorth.models.scenario import Scenario, scenario_from

_SHARES = 10_000
"""A demand counts in so many parts of the capacity, rounded down."""


class Activity(NamedTuple):
    """An activity that takes time: its seconds, its part of the resource, and which activities come before it."""

    seconds: int
    share: int
    before: tuple[int, ...]


def read(text: str) -> dict[int, Activity]:
    """Return the activities of a file that take time, by number.

    >>> read("3 1 2  4 1 1 3  0 0 1 3  2 2 0")
    {0: Activity(seconds=4, share=5000, before=()), 2: Activity(seconds=2, share=10000, before=(0,))}
    """
    numbers = iter(map(int, text.split()))
    n_activities, n_resources = next(numbers), next(numbers)
    capacity, *_ = [next(numbers) for _ in range(n_resources)]
    found, before = dict[int, Activity](), dict[int, list[int]]()
    for activity in range(n_activities):
        seconds, (demand, *_) = next(numbers), [next(numbers) for _ in range(n_resources)]
        if seconds:
            found[activity] = Activity(seconds, max(1, _SHARES * demand // capacity), ())
        for _ in range(next(numbers)):
            before.setdefault(next(numbers) - 1, []).append(activity)
    # What takes no time only ever begins or ends a project.
    return {
        activity: each._replace(before=tuple(other for other in before.get(activity, ()) if other in found))
        for activity, each in found.items()
    }


def scenario_of(activities: dict[int, Activity]) -> Scenario:
    """Return a project as one job on one GPU, the makespan as its objective."""
    tasks = {
        f"t{activity}": {
            "runtime": f"{each.seconds} s",
            "share": each.share / _SHARES,
            "after": [f"t{other}" for other in each.before],
        }
        for activity, each in activities.items()
    }
    document: dict[str, Any] = {
        "cluster": {"servers": 1, "gpu": {"kind": "any", "memory": "1 GB", "load_bandwidth": "1 GB/s"}},
        "workflows": {"project": {"tasks": tasks}},
        "workload": {"jobs": [{"release": "0 s", "workflow": "project"}]},
        "objective": "makespan",
    }
    return scenario_from(document)


def by_cp_sat_alone(activities: dict[int, Activity], time_limit: float) -> tuple[float, float]:
    """Return the makespan and the bound of the usual model: one interval each, one cumulative constraint."""
    model, horizon = cp_model.CpModel(), sum(each.seconds for each in activities.values())
    starts = {activity: model.new_int_var(0, horizon, "") for activity in activities}
    makespan = model.new_int_var(0, horizon, "")
    for activity, each in activities.items():
        model.add(makespan >= starts[activity] + each.seconds)
        for other in each.before:
            model.add(starts[activity] >= starts[other] + activities[other].seconds)
    intervals = [model.new_fixed_size_interval_var(starts[at], each.seconds, "") for at, each in activities.items()]
    model.add_cumulative(intervals, [each.share for each in activities.values()], _SHARES)
    model.minimize(makespan)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds, solver.parameters.num_workers = time_limit, 2
    solver.solve(model)
    return solver.objective_value, solver.best_objective_bound


def plan_projects(
    files: Annotated[tuple[Path, ...], "projects"], time_limit: Annotated[float, "seconds each"] = 10.0
) -> None:
    """Print makespan and bound in seconds, by `truenorth plan` and by CP-SAT alone."""

    def question(activities: dict[int, Activity]) -> dict[str, float]:
        result = tn.plan(scenario_of(activities), time_limit=time_limit).result
        makespan, bound = (float(value or 0) / 1e6 for value in (result.value, result.lower_bound))
        alone, alone_bound = by_cp_sat_alone(activities, time_limit)
        return {"plan": makespan, "bound": bound, "alone": alone, "alone_bound": alone_bound}

    projects = ((file.stem, read(file.read_text())) for file in files)
    bench(projects, question, "{name:<12s}  {plan:6.0f}  {bound:6.0f}  {alone:6.0f}  {alone_bound:6.0f}")


main = partial(ask, plan_projects)
