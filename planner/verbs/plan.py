"""The verb ``plan``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from planner import command
from planner.verbs.options import Json, Output, ScenarioPath, Seed, TimeLimit, Workers


class MethodChoice(StrEnum):
    """The values of ``--method``."""

    AUTO = "auto"
    CP_SAT = "cp-sat"
    MILP = "milp"
    SEARCH = "search"


def plan(
    scenario: ScenarioPath,
    output: Output = None,
    time_limit: TimeLimit = 60.0,
    method: Annotated[MethodChoice, typer.Option(help="How to search.")] = MethodChoice.AUTO,
    workers: Workers = 2,
    seed: Seed = 0,
    iterations: Annotated[int | None, typer.Option(min=1, help="Steps of local search, for repeatable runs.")] = None,
    hint: Annotated[Path | None, typer.Option(metavar="PLAN", help="A plan or timeline file to start from.")] = None,
    as_json: Json = False,
) -> int:
    """Plan a window: task placement and model residency together, with a lower bound."""
    from models.scenario import assert_writable, load_scenario
    from planner import plan as planning
    from planner.check import feasible_timeline
    from planner.console import ProgressLine, interruptible
    from planner.stages import Method

    loaded = load_scenario(scenario)
    if output is not None:
        assert_writable(output)
    given = None if hint is None else feasible_timeline(loaded.instance, hint)
    line = ProgressLine(loaded.objective, "planning")
    with interruptible() as stop, line.shown():
        made = planning.plan(
            loaded,
            time_limit_s=time_limit,
            method=Method(method.value),
            workers=workers,
            seed=seed,
            iterations=iterations,
            hint=given,
            watch=line.watch,
            stop=stop,
        )
    found = made.timeline is not None
    if output is not None and found:
        made.save(output)

    def view() -> object:
        from planner.tables import plan_table

        return plan_table(made)

    command.show(made.as_dict(output if found else None), view, as_json)
    if stop.is_set():
        command.say(f"truenorth: interrupted; {'the best plan found is kept' if found else 'no plan was found yet'}")
        return command.INTERRUPTED
    return command.DONE if found else command.NOT_ACHIEVED
