"""The verbs ``sweep``, ``report`` and ``schema``: folders of cells, pages of folders, and what a scenario may say."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Annotated

import typer

from truenorth.planner.command import manners
from truenorth.planner.command.options import Json, Workers


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
    from truenorth.planner.answers import whatif
    from truenorth.planner.command.console import cells_line
    from truenorth.solvers.budget import interruptible

    manners.prepare_folder(output)
    line = cells_line()
    with interruptible(signal.SIGINT, signal.SIGTERM) as stop, line.shown():
        made = whatif.sweep(sweep_file, output, workers=workers, ray=ray, watch=line.watch, stop=stop)

    def view() -> object:
        from truenorth.planner.show.sweep import sweep_view

        return sweep_view(made)

    manners.show(made.record, view, as_json)
    if made.changed:
        manners.say(f"the sweep has changed since it last ran here; {made.counts.known} of its cells were known")
    if not made.complete:
        manners.say(f"truenorth: interrupted; {made.counts.cells - made.counts.left} finished cells are kept")
        return manners.INTERRUPTED
    return manners.NOT_ACHIEVED if made.counts.failed else manners.DONE


def report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="FOLDER...", help="What compare, servers, sweep, replay, trial -o wrote.")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="Write the page to this file.")],
    as_json: Json = False,
) -> int:
    """Make one HTML page, for a browser without a network, of what other verbs wrote into folders."""
    from truenorth.models.scenario import promise
    from truenorth.planner.show import report as reporting

    promise(output)
    made = reporting.report(folders)
    made.save(output)

    def view() -> object:
        return "\n\n".join(f"{section.question}\n{section.answer}" for section in made.sections)

    manners.show(made.record(output), view, as_json, [output])
    return manners.DONE


def schema(
    catalogue: Annotated[bool, typer.Option("--catalogue", help="Of the catalogues of import instead.")] = False,
    as_json: Json = False,
) -> int:
    """Print the JSON Schema of scenario files, for editors."""
    if catalogue:
        from truenorth.planner.inputs.importers.catalogue import json_schema
    else:
        from truenorth.models.scenario import json_schema

    print(json.dumps(json_schema(), indent=None if as_json else 2))
    return manners.DONE
