"""``python -m experiments textbook``: small windows as textbooks have them; prints what stays open, or is wrong.

Three to ten tasks in whole seconds, many of them equal: one to three GPUs of one or two kinds, with and without models,
chains and forks, every objective in turn.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Annotated, Any

import truenorth as tn
from experiments.bench import ask, bench
from truenorth.models import Objective
from truenorth.models.objective import Status
from truenorth.models.scenario import Scenario, scenario_from
from truenorth.solvers.exact import exhaustive
from truenorth.solvers.result import Result

Document = dict[str, Any]
_SHAPES: tuple[list[list[int]], ...] = ([[]], [[]], [[], [0]], [[], [0], [0]], [[], [], [0, 1]], [[], [0], [1]])
"""The tasks of a workflow by what comes before each: most jobs are single tasks."""
_LEAST_TASKS, _MOST_TASKS = 3, 10


def draw(seed: int) -> Scenario:
    """Return the window of a seed; the objective goes round with it."""
    rng = random.Random(seed)  # noqa: S311
    kinds = rng.choice((["A"], ["A"], ["A", "B"]))
    models = [f"m{index}" for index in range(rng.choice((0, 0, 2, 3)))]
    workflows = {f"w{index}": _workflow(rng, kinds, models) for index in range(rng.choice((1, 2, 3)))}
    gpu = {"memory": f"{rng.choice((2, 4))} GB", "load_bandwidth": "2 GB/s"}
    groups = [{"count": rng.choice((1, 2, 3)) if len(kinds) == 1 else 1, "gpu": {"kind": k, **gpu}} for k in kinds]
    return scenario_from(
        {
            "cluster": {"groups": groups, "network": {"bandwidth": "1 GB/s"}},
            "models": {model: {"weights": "2 GB"} for model in models},
            "workflows": workflows,
            "workload": {"jobs": _jobs(rng, workflows)},
            "objective": list(Objective)[seed % len(Objective)],
        }
    )


def _workflow(rng: random.Random, kinds: list[str], models: list[str]) -> Document:
    output = rng.choice(("0 B", "0 B", "1 GB"))
    tasks: Document = {}
    for index, before in enumerate(rng.choice(_SHAPES)):
        runtime = {kind: f"{rng.randint(1, 6)} s" for kind in kinds}
        needs = [rng.choice(models)] if models else []
        after = [f"t{other}" for other in before]
        tasks[f"t{index}"] = {"runtime": runtime, "models": needs, "output": output, "after": after}
    return {"tasks": tasks}


def _jobs(rng: random.Random, workflows: Document) -> list[Document]:
    """Return jobs of so many tasks together, released at once or within seconds."""
    span_s, most, jobs, tasks = rng.choice((0, 0, 3)), rng.randint(_LEAST_TASKS, _MOST_TASKS), list[Document](), 0
    while tasks < _LEAST_TASKS or (tasks < most and rng.random() < 0.95):
        name = rng.choice(list(workflows))
        if tasks + len(workflows[name]["tasks"]) > _MOST_TASKS:
            break
        tasks += len(workflows[name]["tasks"])
        due, weight = f"{rng.choice((3, 5, 8))} s", rng.choice((1, 1, 1, 2))
        jobs.append({"release": f"{rng.randint(0, span_s)} s", "workflow": name, "deadline": due, "weight": weight})
    return jobs


def judge(scenario: Scenario, result: Result) -> str:
    """Return "right", "open" where nothing is proved, or what contradicts the exhaustive search."""
    if result.status is not Status.OPTIMAL:
        return "open"
    optimum = exhaustive.solve(scenario.instance, scenario.objective).value
    return "right" if result.value == optimum else f"WRONG: the optimum is {optimum}, not {result.value}"


def plan_textbook(
    draws: Annotated[int, "how many windows"] = 200,
    first: Annotated[int, "seed of the first"] = 0,
    time_limit: Annotated[float, "seconds for a window"] = 5.0,
    busy: Annotated[int, "loops that compete for the processors meanwhile"] = 0,
    check: Annotated[bool, "compare with the exhaustive search, which may take a minute for a window"] = False,
) -> None:
    """Plan windows as `truenorth plan` does; print those that are open or wrong, and how many were proved."""
    tn.plan(draw(0), time_limit=60.0)  # compiles or loads the kernels
    proved = 0

    def question(scenario: Scenario) -> Document | None:
        nonlocal proved
        begun_s = time.monotonic()
        result = tn.plan(scenario, time_limit=time_limit).result
        took_s, verdict = time.monotonic() - begun_s, judge(scenario, result) if check else str(result.status)
        proved += result.status is Status.OPTIMAL
        if verdict in ("right", "OPTIMAL"):
            return None
        bound = float(result.lower_bound or 0)
        return {"verdict": verdict, "value": float(result.value or 0), "bound": bound, "s": took_s}

    with _busy_loops(busy):
        windows = ((str(seed), draw(seed)) for seed in range(first, first + draws))
        bench(windows, question, "{name:>5s}  {value:<12.6g}  {bound:<12.6g}  {s:5.1f}  {verdict}")
    print(f"{proved} of {draws} proved within {time_limit:g} s beside {busy} busy loops")


@contextmanager
def _busy_loops(count: int) -> Iterator[None]:
    loops = [subprocess.Popen([sys.executable, "-c", "while 1: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


main = partial(ask, plan_textbook)
