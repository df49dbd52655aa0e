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
    """Check a plan or timeline against every rule."""
    from models.feasibility import check as violations_of
    from models.scenario import load_scenario
    from planner.answers.check import read, verdict

    loaded = load_scenario(scenario)
    instance, timeline = read(loaded.instance, plan)
    violations = violations_of(instance, timeline)

    def view() -> object:
        return "valid: every rule holds" if not violations else "\n".join(str(violation) for violation in violations)

    manners.show(verdict(loaded.objective, instance, timeline, violations), view, as_json)
    return manners.NOT_ACHIEVED if violations else manners.DONE
