"""What studies share: cells that are kept as they are computed, the README's tables, and a canvas for pictures.

A study that takes hours fills results.csv cell by cell, and goes on where it was stopped. A row is a flat dataclass
whose first fields say what was asked; cells that the file holds are not computed again.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from truenorth.models.scenario import InputError, write_atomically

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from matplotlib.figure import Figure

Row = TypeVar("Row", bound="DataclassInstance")


@dataclass(frozen=True, slots=True)
class Study(Generic[Row]):
    """A question that is asked of cells once, reproducibly.

    Parameters
    ----------
    row
        Class of the rows.
    asked
        How many of its first fields say what was asked: the cell.
    measure
        Computes the rows of a cell, whose parts are its arguments.
    tables
        From all rows: the tables that the README shows.
    results
        The results file's name.
    """

    row: type[Row]
    asked: int
    measure: Callable[..., Iterable[Row]]
    tables: Sequence[Callable[[Sequence[Row]], str]] = ()
    results: str = "results.csv"

    def run(self, cells: Iterable[tuple[Any, ...]], folder: Path) -> list[Row]:
        """Compute what a folder lacks of some cells; print the tables, and return their rows."""
        folder.mkdir(parents=True, exist_ok=True)
        rows = self.fill(cells, folder)
        for table in self.tables:
            print(table(rows))
        return rows

    def fill(self, cells: Iterable[tuple[Any, ...]], folder: Path) -> list[Row]:
        """Compute what a folder lacks of some cells, and return their rows in the order of the file."""
        path, wanted = folder / self.results, list(cells)
        rows = read(path, self.row) if path.exists() else []
        known = set(map(self.cell, rows))
        for cell in wanted:
            if cell not in known:
                rows += self.measure(*cell)
                write(path, rows)
        chosen = set(wanted)
        return [row for row in rows if self.cell(row) in chosen]

    def cell(self, row: Row) -> tuple[Any, ...]:
        """Return what was asked."""
        return tuple(getattr(row, field.name) for field in fields(row)[: self.asked])


def read(path: Path, row: type[Row]) -> list[Row]:
    """Return the rows of a results file; a field that is empty is None.

    Raises
    ------
    InputError
        If the file is another table, or a row of it is damaged.
    """
    known, found = TypeAdapter(row), list[Row]()
    with path.open(newline="") as file:
        table = csv.DictReader(file)
        if table.fieldnames != [field.name for field in fields(row)]:
            raise InputError(str(path), 1, "header", "is another table's; allowed is a folder without such a file")
        for line, entry in enumerate(table, 2):
            try:
                found.append(known.validate_python({name: text or None for name, text in entry.items()}))
            except ValidationError as error:
                first = error.errors()[0]
                problem = f"{first['msg']}; allowed is a row as this command writes it"
                raise InputError(str(path), line, str(first["loc"][0]), problem) from None
    return found


def write(path: Path, rows: Sequence[Row]) -> None:
    """Write a results file, whole or not at all."""
    text = io.StringIO()
    table = csv.DictWriter(text, [field.name for field in fields(rows[0])], lineterminator="\n")
    table.writeheader()
    table.writerows(map(asdict, rows))
    write_atomically(path, text.getvalue())


def markdown(heads: Sequence[str], rows: Iterable[Sequence[str]], align: str = " --- |") -> str:
    """Return a table as a README shows it; `align` is the rule below every head."""
    rule = f"|{' --- |' if align != ' --- |' else align}{align * (len(heads) - 1)}"
    return "\n".join([f"| {' | '.join(heads)} |", rule, *(f"| {' | '.join(row)} |" for row in rows)])


def shown(value: float | None, form: str) -> str:
    """Return a cell, empty where nothing is known."""
    return "" if value is None else format(value, form)


def canvas(width: float, height: float) -> Figure:
    """Return an empty picture, of so many inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    made = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(made)
    return made


def draw(figure: Figure, path: Path) -> None:
    """Write a picture."""
    from truenorth.planner.show.canvas import png

    write_atomically(path, png(figure))
