"""A log of whatever sort, as rows: CSV of any separator, JSON in lines, lists and documents, and SWF."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from pathlib import Path

from truenorth.models.scenario.files import read_bounded_lines
from truenorth.planner.inputs.importers.csv_files import (
    LONGEST_ROW,
    SEPARATORS,
    csv_rows,
    header_of,
    open_text,
    separator_of,
)
from truenorth.planner.inputs.importers.json_files import json_keys, json_rows, json_sort
from truenorth.planner.inputs.importers.rows import Rows, Tally

SWF_COLUMNS = (
    "job", "submit", "wait", "run", "processors", "cpu", "memory", "requested_processors", "requested_time",
    "requested_memory", "status", "user", "group", "executable", "queue", "partition", "preceding", "think",
)  # fmt: skip
"""Columns of the standard workload format (cs.huji.ac.il/labs/parallel/workload/swf.html), which has no header."""


def table_rows(
    path: Path, columns: Sequence[str], tally: Tally, sparse: Sequence[str] = (), lists: Collection[str] = ()
) -> Iterator[Rows]:
    """Return the rows of a log; of what sort it is is a note of the tally, unless it is CSV with commas.

    Parameters
    ----------
    columns
        Which are read.
    sparse
        Those of them that an object of JSON may leave out; they are empty then.
    lists
        Those that are lists in an object of JSON; what `Rows.lists` reads.

    Raises
    ------
    InputError
        If the file cannot be read or, unless the tally skips malformed rows, for the first row that is malformed.
    """
    sort = json_sort(path)
    if sort is not None:
        tally.notes.append(f"{path.name} {sort.value}")
        return json_rows(path, [name for name in columns if name not in sparse], tally, sparse, lists, sort)
    if is_swf(path):
        tally.notes.append(f"{path.name} is in the standard workload format")
        return csv_rows(path, columns, tally, SWF_COLUMNS, as_csv=_swf_as_csv)
    separator = separator_of(path, columns)
    if separator != ",":
        tally.notes.append(f"fields of {path.name} are separated by {SEPARATORS[separator]}")
    return csv_rows(path, columns, tally, separator=separator)


def columns_of(path: Path, known: Sequence[str]) -> list[str]:
    """Return the columns of a log, of whatever sort it is; of JSON the keys of its first objects.

    Parameters
    ----------
    known
        Names by which what separates the fields of CSV is told.

    Raises
    ------
    InputError
        If the file cannot be read, is empty, or its first line is malformed.
    """
    sort = json_sort(path)
    if sort is not None:
        return json_keys(path, sort)
    return list(SWF_COLUMNS) if is_swf(path) else header_of(path, separator_of(path, known))


def is_swf(path: Path) -> bool:
    """Say whether the first lines of a file are comments behind semicolons, and then numbers of 18 columns.

    Raises
    ------
    InputError
        If it cannot be read.
    """
    with open_text(path) as file:
        lines = read_bounded_lines(file, str(path), LONGEST_ROW)
        rows = (line.split() for line in islice(lines, 10_000) if line.strip() and not line.startswith(";"))
        first = next(rows, [])
    return len(first) == len(SWF_COLUMNS) and all(field.lstrip("-").replace(".", "", 1).isdecimal() for field in first)


def _swf_as_csv(line: str) -> str:
    fields = [] if line.startswith(";") else line.split()
    if len(fields) == len(SWF_COLUMNS) and fields[4] == "-1":
        # What it was given is not known, so that it counts with what it asked for.
        fields[4] = fields[7]
    return ",".join(fields) + "\n"
