"""Which clock the releases of a log are of: its own, numbers since 1970, or dates; the first release tells."""

from __future__ import annotations

import re
from pathlib import Path

from truenorth.models.instance import Ints
from truenorth.models.scenario.quantities import MAX_TIME_US
from truenorth.models.units import microseconds
from truenorth.planner.inputs.importers.json_files import table_rows
from truenorth.planner.inputs.importers.rows import LATEST_US, Rows, Tally

DATES, UNIX = "dates with a time of day", "times since 1970"


def tell_clock(path: Path, column: str, unit: str) -> str:
    """Return which clock the first release of a file that can be read is of: empty for the log's own.

    Raises
    ------
    InputError
        If the file cannot be read.
    """
    chunks = table_rows(path, [column], Tally(True))
    told = (_clock_of(text, unit) for rows in chunks for text in rows.text(column))
    return next((clock for clock in told if clock is not None), "")


def _clock_of(text: str, unit: str) -> str | None:
    """Return which clock a release is of; None if it is none."""
    try:
        release_us = microseconds(text.strip(), unit)
        return None if not 0 <= release_us <= LATEST_US else UNIX if release_us > MAX_TIME_US else ""
    except ValueError:
        return DATES if re.match(r"\d{4}-\d\d-\d\d", text.strip()) else None


def read_releases(rows: Rows, column: str, unit: str, clock: str) -> Ints:
    """Return releases of a clock in microseconds; those of no such clock are refused. Shape [rows]."""
    if clock == DATES:
        return rows.moments(column)
    return (rows.unix_times if clock else rows.times)(column, unit)
