"""The verb ``report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from planner.command import manners
from planner.command.verbs.options import Json


def report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="FOLDER...", help="What compare, servers, sweep, replay, trial -o wrote.")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="Write the page to this file.")],
    as_json: Json = False,
) -> int:
    """Make one HTML page, for a browser without a network, of what other verbs wrote into folders."""
    from models.scenario import promise
    from planner.show import report as reporting

    promise(output)
    made = reporting.report(folders)
    made.save(output)

    def view() -> object:
        return "\n\n".join(f"{section.question}\n{section.answer}" for section in made.sections)

    manners.show(made.record(output), view, as_json, [output])
    return manners.DONE
