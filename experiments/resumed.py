"""Studies that take hours: results.csv is filled cell by cell, and an interrupted run goes on where it was.

A row is a flat dataclass whose property `cell` says what was asked; cells that the file holds are not computed again.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pydantic import TypeAdapter

from models.scenario import write_atomically

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    class CellRow(DataclassInstance, Protocol):
        """A row of results."""

        @property
        def cell(self) -> Any:
            """What was asked."""


Row = TypeVar("Row", bound="CellRow")
Cell = TypeVar("Cell")


def fill(
    path: Path,
    row: type[Row],
    cells: Sequence[Cell],
    measure: Callable[[Cell], Iterable[Row]],
    tell: Callable[[Cell, Sequence[Row]], None] = lambda cell, rows: None,
) -> list[Row]:
    """Return the rows of some cells, in the order of the file, after computing those that the file lacks.

    Parameters
    ----------
    path
        The results; written anew, whole or not at all, after every cell.
    row
        Class of the rows.
    measure
        Computes a cell.
    tell
        Called with every cell that was computed, and its rows.
    """
    rows = read(path, row) if path.exists() else []
    known = {row.cell for row in rows}
    for cell in cells:
        if cell not in known:
            found = list(measure(cell))
            rows += found
            write(path, rows)
            tell(cell, found)
    wanted = set(cells)
    return [row for row in rows if row.cell in wanted]


def read(path: Path, row: type[Row]) -> list[Row]:
    """Return the rows of a results file; a field that is empty is None."""
    with path.open(newline="") as file:
        given = [{name: text or None for name, text in entry.items()} for entry in csv.DictReader(file)]
    return TypeAdapter(list[row]).validate_python(given)  # type: ignore[valid-type]


def write(path: Path, rows: Sequence[Row]) -> None:
    """Write a results file, whole or not at all."""
    text = io.StringIO()
    table = csv.DictWriter(text, [field.name for field in fields(rows[0])], lineterminator="\n")
    table.writeheader()
    table.writerows(map(asdict, rows))
    write_atomically(path, text.getvalue())
