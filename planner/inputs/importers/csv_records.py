"""Lines of CSV taken apart one by one: what is no row, and how far a row with line breaks inside quotes goes.

Such a row is not read, but its further lines are no rows either. A quote that opens such a row and one that stands in
a field by mistake look alike; the lines up to the next quote tell, if they are one row together.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator

from models.scenario.files import LONGEST_LINE

_OPEN = "unexpected end of data"
"""What Python's reader says where a quote is not closed."""


def take_apart(lines: list[str], more: Iterator[str], width: int, separator: str) -> list[list[str] | str]:
    """Return the fields of each line, none for one that is blank or goes on with a broken row, or what is wrong.

    Parameters
    ----------
    lines
        Grows by lines of `more` where a row that begins in it does not end in it.
    width
        How many fields a row has.
    """
    try:
        rows: list[list[str] | str] = list(csv.reader(lines, strict=True, delimiter=separator))
        if len(rows) == len(lines):
            return rows
    except csv.Error:
        pass
    found: list[list[str] | str] = []
    while len(found) < len(lines):
        at = len(found)
        row = _fields(lines[at], separator)
        found.append(row)
        if isinstance(row, str) and _OPEN in row:
            found += [[] for _ in range(_lines_within(lines, at, more, width, separator))]
    return found


def say_error(error: csv.Error, line: str) -> str:
    """Return what Python's reader has to say of a line, and what it cannot know."""
    return f"{error} (line breaks inside quotes are not read)" if line.count('"') % 2 else str(error)


def _fields(line: str, separator: str) -> list[str] | str:
    try:
        return next(csv.reader([line], strict=True, delimiter=separator), [])
    except csv.Error as error:
        return f"is not CSV: {say_error(error, line)}"


def _lines_within(lines: list[str], start: int, more: Iterator[str], width: int, separator: str) -> int:
    """Return how many lines after one with an open quote end its row; 0: it is no row of several lines."""
    end, length = start + 1, len(lines[start])
    while length <= LONGEST_LINE:
        if end == len(lines):
            lines.extend(line for line in [next(more, None)] if line is not None)
        if end == len(lines):
            return 0
        length += len(lines[end])
        end += 1
        if lines[end - 1].count('"') % 2:
            return end - 1 - start if _is_row(lines[start:end], width, separator) else 0
    return 0


def _is_row(lines: list[str], width: int, separator: str) -> bool:
    try:
        rows = list(csv.reader(lines, strict=True, delimiter=separator))
    except csv.Error:
        return False
    return len(rows) == 1 and len(rows[0]) == width
