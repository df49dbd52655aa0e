"""What a sweep found: tidy rows, how far it has come, and its tidy tables: a column per axis with its unit."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from truenorth.models.cells import guard
from truenorth.models.cluster import MICROSECONDS_PER_SECOND
from truenorth.models.record import spread
from truenorth.models.scenario.changes import factor
from truenorth.models.units import QuantityError, parse_bandwidth, parse_number, parse_rate, parse_size, parse_time
from truenorth.planner.answers.convergence import WHAT_COUNTS
from truenorth.planner.answers.shown import WithRows
from truenorth.planner.answers.whatif.grid import Axis, Grid
from truenorth.planner.answers.whatif.store import Store, StoredCell
from truenorth.planner.answers.whatif.verbs import Row

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Counts:
    """How far a sweep has come.

    Parameters
    ----------
    cells
        All of them.
    known
        Those that an earlier run had finished.
    finished
        Those that this run has finished.
    failed
        Cells, of whichever run, that have an error in place of figures.
    """

    cells: int
    known: int
    finished: int
    failed: int

    @property
    def left(self) -> int:
        """Cells that are not finished yet."""
        return self.cells - self.known - self.finished

    def after(self, cells: int, failed: bool, known: bool = False) -> Counts:
        """Return the counts once so many more cells, which ask the same, are finished or found to be known."""
        return Counts(
            self.cells,
            self.known + cells * known,
            self.finished + cells * (not known),
            self.failed + cells * failed,
        )


@dataclass(frozen=True, slots=True)
class Sweep(WithRows):
    """What a sweep found.

    Parameters
    ----------
    name
        The sweep's own, or the scenario's.
    rows
        A row per finished cell, or per policy of one, in the order of the cells.
    columns
        The columns of the axes.
    seconds
        How long each finished cell took on its worker, by its number.
    counts
        How many cells there are, and what became of them.
    changed
        Whether the folder held a sweep of other cells before.
    folder
        Where files are, or None.
    """

    name: str
    verb: str
    rows: tuple[Row, ...]
    columns: tuple[str, ...]
    seconds: Mapping[int, float]
    counts: Counts
    changed: bool
    folder: Path | None

    @property
    def warning(self) -> str | None:
        """In how many cells a plan is unconverged, so that figures beside it say less than they seem to; else None."""
        counted = {row["cell"] for row in self.rows if "converged" in row}
        unconverged = {row["cell"] for row in self.rows if row.get("converged") is False}
        if not unconverged:
            return None
        return (
            f"In {len(unconverged)} of {len(counted)} cells the plan is unconverged ({WHAT_COUNTS}): cells differ by "
            "what search left undone, too, and ratios to such a plan understate."
        )

    def frame(self) -> pd.DataFrame:
        """Return one row per answer of a cell."""
        made: pd.DataFrame = table_of(self.rows, ("cell", *self.columns)).to_pandas()
        return made

    @property
    def complete(self) -> bool:
        """Whether every cell is finished."""
        return self.counts.left == 0

    @property
    def errors(self) -> list[CellError]:
        """Why cells failed."""
        return [CellError(int(str(row["cell"])), str(row["error"])) for row in self.rows if row["error"] is not None]

    @property
    def tables(self) -> dict[str, str]:
        """The tables of a finished sweep that are kept, by their kind."""
        if self.folder is None or not self.complete:
            return {}
        return {kind: str(self.folder / f"results.{kind}") for kind in ("csv", "parquet")}

    @property
    def record(self) -> SweepRecord:
        """The summary with the keys of ``sweep --json``."""
        return SweepRecord(
            self.name, self.verb, self.counts, self.complete, self.changed, self.warning, self.errors, self.tables
        )


@dataclass(frozen=True, slots=True)
class CellError:
    """Why a cell has no figures."""

    cell: int
    error: str


@dataclass(frozen=True, slots=True)
class SweepRecord:
    """What became of a sweep, and where its tables are."""

    name: str
    verb: str
    counts: Counts = field(metadata=spread(Counts))
    complete: bool
    changed: bool
    warning: str | None
    errors: list[CellError]
    tables: Mapping[str, str]


def sweep_of(
    name: str,
    verb: str,
    grid: Grid,
    answers: Sequence[StoredCell | None],
    counts: Counts,
    changed: bool,
    store: Store | None,
) -> Sweep:
    """Return what was found.

    Parameters
    ----------
    answers
        One per cell; None for a cell that is not finished.
    """
    columns = [axis_column(axis) for axis in grid.axes]
    rows = tuple(_rows(grid, columns, answers))
    seconds = {index: known.seconds for index, known in enumerate(answers) if known is not None}
    names = tuple(column for column, _ in columns)
    return Sweep(name, verb, rows, names, seconds, counts, changed, None if store is None else store.folder)


def _rows(
    grid: Grid, columns: Sequence[tuple[str, Sequence[Value]]], answers: Sequence[StoredCell | None]
) -> Iterator[Row]:
    """Yield the rows of every finished cell: its number, its place on every axis, its figures and its error."""
    for index, (cell, known) in enumerate(zip(grid.cells, answers, strict=True)):
        if known is None:
            continue
        axes = {name: values[position] for (name, values), position in zip(columns, cell.at, strict=True)}
        asked = {name: value for name, value in asdict(cell.call.question).items() if name == "policy"}
        for row in known.answer.rows or (asked,):
            yield {"cell": index, **axes, **row, "error": known.answer.error}


def write_tables(made: Sweep, store: Store) -> None:
    """Write the tables of a complete sweep; how long cells took, which is never the same twice, has its own."""
    table = table_of(made.rows, ("cell", *made.columns))
    store.write_table("results.csv", csv_bytes(table))
    store.write_table("results.parquet", parquet_bytes(table))
    times: list[Row] = [{"cell": index, "seconds": seconds} for index, seconds in made.seconds.items()]
    store.write_table("times.csv", csv_bytes(table_of(times, ("cell", "seconds"))))


Value = str | int | float | bool | None

_READERS: Mapping[str, Callable[[str], Fraction | int]] = {
    "": parse_number,
    "_s": lambda text: Fraction(parse_time(text), MICROSECONDS_PER_SECOND),
    "_bytes": parse_size,
    "_bytes_per_s": parse_bandwidth,
    "_per_s": parse_rate,
}
"""How a quantity is read, by what its unit adds to the name of its column."""
_FLAGS = {"true": True, "false": False}
_WHOLE = ("", "_bytes")
"""What is counted: whole numbers where all of them are."""


def axis_column(axis: Axis) -> tuple[str, list[Value]]:
    """Return the name of an axis's column and its points' values.

    Plain numbers stay what they are; quantities of one sort become numbers in seconds, bytes, bytes/s or 1/s and name
    that unit; factors such as ``x2`` become numbers; anything else stays as it is written.
    """
    labels = [point.label for point in axis.points]
    if all(str(label).lower() in _FLAGS for label in labels):
        return axis.name, [_FLAGS[str(label).lower()] for label in labels]
    factors = [factor(label) for label in labels]
    if None not in factors:
        return f"{axis.name}_factor", [float(times) for times in factors if times is not None]
    for suffix, read in _READERS.items():
        values = _numbers(labels, read)
        if values is not None:
            whole = suffix in _WHOLE and all(value == int(value) for value in values)
            return f"{axis.name}{suffix}", [int(value) if whole else float(value) for value in values]
    return axis.name, [label if label is None or isinstance(label, str) else json.dumps(label) for label in labels]


def _numbers(labels: Sequence[object], read: Callable[[str], Fraction | int]) -> list[Fraction | int] | None:
    """Return what the labels say as quantities of one sort, or None if one of them is none."""
    if not all(isinstance(label, (str, int, float)) and not isinstance(label, bool) for label in labels):
        return None
    try:
        return [read(str(label)) for label in labels]
    except QuantityError:
        return None


def table_of(rows: Sequence[Row], first: Sequence[str]) -> pa.Table:
    """Return rows as an Arrow table; columns come in the order in which they first occur, errors last.

    Parameters
    ----------
    first
        Columns that are there even without rows.
    """
    import pyarrow as pa

    names = dict.fromkeys(first)
    for row in rows:
        names |= dict.fromkeys(row)
    ordered = sorted(names, key="error".__eq__)
    return pa.table({name: pa.array([row.get(name) for row in rows]) for name in ordered})


def csv_bytes(table: pa.Table) -> bytes:
    """Return a table as CSV; text that a spreadsheet would compute is guarded."""
    import pyarrow as pa
    from pyarrow import csv

    names = [guard(name) for name in table.column_names]
    columns = [
        pa.array([cell if cell is None else guard(cell) for cell in column.to_pylist()])
        if pa.types.is_string(column.type)
        else column
        for column in table.columns
    ]
    sink = pa.BufferOutputStream()
    csv.write_csv(pa.table(columns, names=names), sink)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def parquet_bytes(table: pa.Table) -> bytes:
    """Return a table as Parquet."""
    import pyarrow as pa
    from pyarrow import parquet

    sink = pa.BufferOutputStream()
    parquet.write_table(table, sink)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]
