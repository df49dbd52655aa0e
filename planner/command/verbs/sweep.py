"""The verb ``sweep``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from planner.command import manners
from planner.command.verbs.options import Json, Workers


def sweep(
    sweep_file: Annotated[Path, typer.Argument(metavar="SWEEP", help="Sweep file, YAML or JSON.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FOLDER", help="Keep finished cells and write the tables here.")
    ],
    ray: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Use this Ray cluster in place of local processes.")
    ] = None,
    workers: Workers = 2,
    as_json: Json = False,
) -> int:
    """Answer a grid of what-ifs; run it again to go on where it was stopped."""
    from planner.answers import whatif
    from planner.command.console import interruptible
    from planner.command.sweep_progress import SweepLine

    manners.prepare_folder(output)
    line = SweepLine()
    with interruptible() as stop, line.shown():
        made = whatif.sweep(sweep_file, output, workers=workers, ray=ray, watch=line.watch, stop=stop)

    def view() -> object:
        from planner.show.sweep import sweep_view

        return sweep_view(made)

    manners.show(made.record, view, as_json)
    if made.changed:
        manners.say(f"the sweep has changed since it last ran here; {made.counts.known} of its cells were known")
    if not made.complete:
        manners.say(f"truenorth: interrupted; {made.counts.cells - made.counts.left} finished cells are kept")
        return manners.INTERRUPTED
    return manners.NOT_ACHIEVED if made.counts.failed else manners.DONE
