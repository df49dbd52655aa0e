"""The verb ``progress``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from planner import command
from planner.verbs.options import Json


def progress(
    log: Annotated[Path, typer.Argument(metavar="LOG", help="What the job printed.")],
    steps: Annotated[
        float | None, typer.Option(min=1, help="Steps of the whole job, where the log does not say it.")
    ] = None,
    epochs: Annotated[
        float | None, typer.Option(min=1, help="Epochs of the whole job, where the log does not say it.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Read a job's log: progress, remaining time, why it failed and whether to start it again."""
    from planner.estimate.logs import read_log
    from planner.estimate.logs.view import LogLine, described

    line = LogLine(log.stat().st_size if log.is_file() else 0)
    with line.shown():
        reading = read_log(log, steps, epochs, line.watch)
    command.show(reading.as_dict(), lambda: _plain(described(reading)), as_json)
    silent = not reading.counts and not reading.finished and reading.failure is None
    return command.NOT_ACHIEVED if silent else command.DONE


def _plain(text: str) -> object:
    """Return text as it stands: brackets in a log are no mark-up."""
    from rich.text import Text

    return Text(text)
