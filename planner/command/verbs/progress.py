"""The verb ``progress``."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.command import manners
from planner.command.verbs.options import Json

if TYPE_CHECKING:
    from planner.inputs.estimate.logs import LogReading


def progress(
    log: Annotated[Path, typer.Argument(metavar="LOG", help="What the job printed, plain or gzip.")],
    steps: Annotated[
        float | None, typer.Option(min=1, help="Steps of the whole job, where the log does not say it.")
    ] = None,
    epochs: Annotated[
        float | None, typer.Option(min=1, help="Epochs of the whole job, where the log does not say it.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Read a job's log: progress, remaining time, why it failed and whether to start it again."""
    from planner.command.log_progress import LogLine
    from planner.inputs.estimate.logs import read_log
    from planner.show.job_log import describe_log

    totals = {"step": steps, "epoch": epochs}
    for unit, total in totals.items():
        if total is not None and not math.isfinite(total):
            raise manners.UsageError(f"--{unit}s: {total} is no number of {unit}s; allowed is a number of at least 1")
    line = LogLine(log.stat().st_size if log.is_file() else 0)
    with line.shown():
        reading = read_log(log, steps, epochs, line.watch)
    manners.show(reading.as_dict(), lambda: _plain(describe_log(reading)), as_json)
    for unit, total in totals.items():
        if total is not None:
            _say_unless_used(reading, unit, total)
    silent = not reading.counts and not reading.finished and reading.failure is None
    return manners.NOT_ACHIEVED if silent else manners.DONE


def _say_unless_used(reading: LogReading, unit: str, total: float) -> None:
    """Say that a total from outside is ignored where the log states another, or counts no such unit."""
    count = next((count for count in reading.counts if count.unit == unit), None)
    if count is None:
        manners.say(f"--{unit}s {total:g} is ignored: the log counts no {unit}s")
    elif count.total is not None and count.total != total:
        manners.say(f"--{unit}s {total:g} is ignored: the log states {count.total:g} {unit}s")


def _plain(text: str) -> object:
    """Return text as it stands: brackets in a log are no mark-up."""
    from rich.text import Text

    return Text(text)
