"""What a sweep found: tidy rows, how far it has come, and its tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from models.record import spread
from planner.answers.convergence import WHAT_COUNTS
from planner.answers.whatif.grid import Grid
from planner.answers.whatif.store import Store, StoredCell
from planner.answers.whatif.table import Value, axis_column, csv_bytes, parquet_bytes, table_of
from planner.answers.whatif.verbs import Row


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
class Sweep:
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
