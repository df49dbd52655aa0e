"""The verb ``compare``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.answers.questions import CompareQuestion
from planner.command import manners
from planner.command.asking import Before, ask_shown, asks
from planner.command.faults import name_untested
from planner.command.verbs.options import Json, ScenarioPath

if TYPE_CHECKING:
    from models.scenario import Scenario


@asks(CompareQuestion)
def compare(
    ask: CompareQuestion,
    scenario: ScenarioPath,
    replications: Annotated[
        int,
        typer.Option(min=1, max=10_000, help="Compare on so many seeds, or windows of the trace, with intervals."),
        Before("ray"),
    ] = 1,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FOLDER", help="Write table, pictures and trace here."),
        Before("workers"),
    ] = None,
    as_json: Json = False,
) -> int:
    """Set a plan, which knows the future, beside online policies, which do not."""
    from models.scenario import load_scenario
    from planner.command.console import ProgressLine
    from planner.show.saving import save

    if output is not None:
        manners.prepare_folder(output)
    loaded = load_scenario(scenario)
    if replications > 1:
        return _replicate(ask, loaded, replications, output, as_json)
    made, interrupted = ask_shown(ask, loaded, ProgressLine(loaded.objective, "comparing"))
    written = [] if output is None else save(made, output)

    def view() -> object:
        from planner.show.tables import comparison_view

        return comparison_view(made)

    manners.show(name_untested(made.as_dict()), view, as_json, written)
    if interrupted:
        manners.say("truenorth: interrupted; the best plan found is kept")
        return manners.INTERRUPTED
    manners.say_if_late(made.plan.result)
    return manners.DONE if made.plan.timeline is not None else manners.NOT_ACHIEVED


def _replicate(ask: CompareQuestion, loaded: Scenario, count: int, output: Path | None, as_json: bool) -> int:
    """Compare over replications."""
    from planner.answers.replications import replicate_comparison
    from planner.command.console import interruptible
    from planner.command.sweep_progress import SweepLine
    from planner.show import replicated

    line = SweepLine()
    with interruptible() as stop, line.shown():
        made = replicate_comparison(replace(ask, stop=stop), loaded, count, output, line.watch)
    written = [] if output is None or not made.replications else replicated.write(made, output)
    manners.show(name_untested(made.as_dict()), lambda: replicated.replicated_view(made), as_json, written)
    for error in made.sweep.as_dict()["errors"]:
        manners.say(f"replication {error['cell']}: {error['error']}")
    if not made.sweep.complete:
        manners.say(f"truenorth: interrupted; {len(made.replications)} finished replications are kept")
        return manners.INTERRUPTED
    return manners.NOT_ACHIEVED if made.sweep.counts.failed else manners.DONE
