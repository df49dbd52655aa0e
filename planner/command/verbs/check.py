"""The verb ``check``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from planner.command import manners
from planner.command.verbs.options import Json, ScenarioPath


def check(
    scenario: ScenarioPath,
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="Plan or timeline file.")],
    as_json: Json = False,
) -> int:
    """Check a plan or timeline against every rule, and against what its file says of it."""
    from models.scenario import load_scenario
    from planner.answers.check import checked, read

    loaded = load_scenario(scenario)
    outcome = checked(loaded.objective, *read(loaded.instance, plan))

    def view() -> object:
        from planner.show.summaries import check_view

        return check_view(outcome)

    manners.show(outcome.record, view, as_json)
    return manners.NOT_ACHIEVED if outcome.violations else manners.DONE
