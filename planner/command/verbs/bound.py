"""The verb ``bound``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from planner.answers.questions import BoundQuestion
from planner.command import manners
from planner.command.asking import Before, ask_shown, asks
from planner.command.faults import name_untested
from planner.command.verbs.options import Json, ScenarioPath


@asks(BoundQuestion)
def bound(
    ask: BoundQuestion,
    scenario: ScenarioPath,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="CERTIFICATE", help="Write the certificate to this file."),
        Before("schedule"),
    ] = None,
    as_json: Json = False,
) -> int:
    """Find a value that no plan lies below, with a certificate that anyone can check."""
    from models.scenario import load_scenario, promise
    from planner.command.console import ProgressLine
    from planner.show.saving import save

    if output is not None:
        promise(output)
    loaded = load_scenario(scenario)
    made, interrupted = ask_shown(ask, loaded, ProgressLine(loaded.objective, "bounding"))
    written = [] if output is None else save(made, output)

    def view() -> object:
        from planner.show.tables import bound_view

        return bound_view(made)

    manners.show(name_untested(made.as_dict(output)), view, as_json, written[1:])
    if interrupted:
        manners.say("truenorth: interrupted; the best bound found is kept")
        return manners.INTERRUPTED
    return manners.DONE
