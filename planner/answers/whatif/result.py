"""What a sweep found: tidy rows, how far it has come, and its tidy tables: a column per axis with its unit."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from pydantic import TypeAdapter

from truenorth.models.cluster import MICROSECONDS_PER_SECOND
from truenorth.models.errors import QuestionError
from truenorth.models.record import guard, spread, take
from truenorth.models.scenario import write_atomically
from truenorth.models.scenario.changes import factor
from truenorth.models.units import (
    QuantityError,
    parse_bandwidth,
    parse_number,
    parse_rate,
    parse_size,
    parse_time,
    say_bandwidth,
    say_size,
)
from truenorth.planner.answers.intervals import NO_INTERVAL, interval_of
from truenorth.planner.answers.shown import WHAT_COUNTS, WithRows
from truenorth.planner.answers.whatif.cell import CellAnswer, Store
from truenorth.planner.answers.whatif.grid import Axis, Grid
from truenorth.planner.answers.whatif.verbs import Row

Kind = TypeVar("Kind")
ASKED = ("value", "servers", "price_per_hour", "lower_bound")
"""What a verb is asked for, as columns: the first that there is."""

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
            self.cells, self.known + cells * known, self.finished + cells * (not known), self.failed + cells * failed
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
    answers
        The answers behind the cells, by their numbers, if no folder keeps their figures.
    interrupted
        Whether somebody interrupted it before every cell was finished.
    replicated
        The column of the replications; None without any.
    """

    name: str
    verb: str
    rows: tuple[Row, ...]
    columns: tuple[str, ...]
    seconds: Mapping[int, float]
    counts: Counts
    changed: bool
    folder: Path | None
    answers: Mapping[int, Any] = field(default_factory=dict, repr=False)
    interrupted: bool = False
    replicated: str | None = None

    def __repr__(self) -> str:
        axes = ", ".join(self.columns)
        return f"<Sweep of {self.name!r}: {self.verb} in {self.counts.cells} cells over {axes}>"

    def answer(self, cell: int) -> Any:
        """Return the answer behind a cell: a plan, a simulation, a comparison, with its timeline, jobs and chart.

        Raises
        ------
        QuestionError
            If it is not kept.
        """
        if cell not in self.answers:
            known = ", ".join(map(str, self.answers)) or "none, since a folder keeps figures alone"
            raise QuestionError(f"{cell} has no answer here; allowed are {known}", "cell")
        return self.answers[cell]

    def by_policy(self, kind: type[Kind]) -> dict[int, dict[str, Kind]]:
        """Return of every finished cell without an error its rows by policy, as records of the verb's kind."""
        cells: dict[int, dict[str, Kind]] = {}
        read, place = TypeAdapter(kind), {"cell", *self.columns, "ideal_times", "error"}
        for row in self.rows:
            if row["error"] is None:
                figures = {name: value for name, value in row.items() if name not in place}
                cells.setdefault(int(str(row["cell"])), {})[str(row["policy"])] = read.validate_python(figures)
        return cells

    def place(self, cell: int) -> str:
        """Say where a finished cell stands on every axis."""
        row = next(row for row in self.rows if row["cell"] == cell)
        return ", ".join(str(row[column]) for column in self.columns)

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
    def note(self) -> str:
        """What has to be known to read the figures; empty if nothing."""
        whose = {row.get("ideal_times") for row in self.rows} - {None}
        said = "Slowdowns divide by the ideal times of the scenario as it was, before changes."
        own = " Cells whose workflows are new, branch or stream divide by their own (`ideal_times`)."
        ended = ["Interrupted: the cells that were finished by then."] if self.interrupted else []
        return " ".join([*([said + own * ("own" in whose)] if whose else []), *ended])

    def against(self, baseline: Mapping[str, object]) -> pd.DataFrame:
        """Return means over replications beside those of a baseline, a row per cell and policy.

        Differences are paired: in the same replication, and with all else as in the row. Intervals are those of
        `interval_of`; without replications there are none.

        Parameters
        ----------
        baseline
            What the baseline has in some columns, such as ``{"cluster.servers": 5}`` or ``{"policy": "jit"}``.

        Raises
        ------
        QuestionError
            If no finished cell is like that.
        """
        import pandas as pd

        frame, keys, figure = self.frame(), self.keys, self.figure()
        for name, value in baseline.items():
            known = list(frame[name].unique()) if name in keys else keys
            if name not in keys or value not in known:
                said = ", ".join(map(str, known))
                raise QuestionError(f"{name} {value!r} is in no row; allowed are {said}", "baseline")
        frame = frame[frame["error"].isna()]
        found = {  # values by replication, by what else the row says
            _place(name): dict(
                zip(rows[self.replicated] if self.replicated else rows["error"], rows[figure], strict=True)
            )
            for name, rows in frame.groupby(keys, sort=False, dropna=False)
        }
        made = []
        for place, values in found.items():
            beside = found.get(tuple(baseline.get(key, at) for key, at in zip(keys, place, strict=True)), {})
            made.append(dict(zip(keys, place, strict=True)) | _against(values, beside))
        return pd.DataFrame(made)

    @property
    def keys(self) -> list[str]:
        """The columns that tell rows apart, replications left out."""
        policies = ["policy"] if any(row.get("policy") for row in self.rows) else []
        return [name for name in dict.fromkeys((*self.columns, *policies)) if name != self.replicated]

    def figure(self, of: str | None = None) -> str:
        """Return a column of numbers: that of a name, or what the verb was asked for.

        Raises
        ------
        QuestionError
            If there is none.
        """
        known = {name for row in self.rows for name, value in row.items() if _is_number(value)}
        found = next((name for name in ASKED if name in known), "") if of is None else of
        if found not in known:
            said = ", ".join(sorted(known)) or "those of cells without an error, and there is none"
            raise QuestionError(f"{found!r} is no column of numbers; allowed are {said}", "of")
        return found

    def importance(self, of: str | None = None) -> pd.Series[float]:
        """Return which share of the variance each axis explains by itself, and the rest, which they explain together.

        On a full grid this is exact: the variance of the means by that axis over the variance of all rows.
        """
        frame, figure = self.frame(), self.figure(of)
        frame, spread = frame[frame[figure].notna()], frame[figure].var(ddof=0)
        varied = [name for name in (*self.keys, self.replicated) if name and frame[name].nunique(dropna=False) > 1]
        alone = {
            name: (frame.groupby(name, dropna=False)[figure].transform("mean").var(ddof=0) / spread if spread else 0.0)
            for name in varied
        }
        import pandas as pd

        shares = pd.Series(alone, dtype=float).sort_values(ascending=False)
        shares["together"] = max(0.0, 1 - shares.sum()) if spread else 0.0
        return shares

    @property
    def complete(self) -> bool:
        """Whether every cell is finished."""
        return self.counts.left == 0

    @property
    def errors(self) -> list[CellError]:
        """Why cells failed."""
        return [CellError(int(str(row["cell"])), str(row["error"])) for row in self.rows if row["error"] is not None]

    def save(self, path: Path) -> list[Path]:
        """Write the rows as CSV or Parquet, whichever the name says; return the path.

        Raises
        ------
        QuestionError
            If it says neither.
        """
        as_bytes = {".csv": csv_bytes, ".parquet": parquet_bytes}.get(path.suffix)
        if as_bytes is None:
            raise QuestionError(f"{path} ends in {path.suffix!r}; allowed are .csv, .parquet", "path")
        write_atomically(path, as_bytes(table_of(self.rows, ("cell", *self.columns))))
        return [path]

    @property
    def tables(self) -> dict[str, str]:
        """The tables of a finished sweep that are kept, by their kind."""
        if self.folder is None or not self.complete:
            return {}
        return {kind: str(self.folder / f"results.{kind}") for kind in ("csv", "parquet")}

    @property
    def record(self) -> SweepRecord:
        """The summary with the keys of ``sweep --json``."""
        return take(SweepRecord, self)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _place(name: Any) -> tuple[Any, ...]:
    return name if isinstance(name, tuple) else (name,)


def _against(values: Mapping[Any, float], beside: Mapping[Any, float]) -> dict[str, float | int | None]:
    """Return the mean of values by replication, and of their differences to others, with intervals."""
    pairs = [values[window] - beside[window] for window in values if window in beside]
    mean, apart = interval_of(list(values.values())), interval_of(pairs) if pairs else NO_INTERVAL
    return {
        "replications": len(values),
        "value": mean.mean,
        "value_low": mean.low,
        "value_high": mean.high,
        "difference": apart.mean,
        "difference_low": apart.low,
        "difference_high": apart.high,
    }


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
    answers: Sequence[CellAnswer | None],
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
    made = {index: known.made for index, known in enumerate(answers) if known and known.made is not None}
    replicated = names[-1] if grid.replicated else None
    folder = None if store is None else store.folder
    return Sweep(name, verb, rows, names, seconds, counts, changed, folder, made, replicated=replicated)


def _rows(
    grid: Grid, columns: Sequence[tuple[str, Sequence[Value]]], answers: Sequence[CellAnswer | None]
) -> Iterator[Row]:
    """Yield the rows of every finished cell: its number, its place on every axis, its figures and its error."""
    for index, (cell, known) in enumerate(zip(grid.cells, answers, strict=True)):
        if known is None:
            continue
        axes = {name: values[position] for (name, values), position in zip(columns, cell.at, strict=True)}
        asked = {name: value for name, value in asdict(cell.call.question).items() if name == "policy"}
        for row in known.rows or (asked,):
            yield {"cell": index, **axes, **row, "error": known.error}


def write_tables(made: Sweep, store: Store) -> None:
    """Write the tables of a complete sweep; how long cells took, which is never the same twice, has its own."""
    table = table_of(made.rows, ("cell", *made.columns))
    store.write_table("results.csv", csv_bytes(table))
    store.write_table("results.parquet", parquet_bytes(table))
    times: list[Row] = [{"cell": index, "seconds": seconds} for index, seconds in made.seconds.items()]
    store.write_table("times.csv", csv_bytes(table_of(times, ("cell", "seconds"))))


Value = str | int | float | bool | None


class Unit(NamedTuple):
    """A unit of columns: how text is read in it, how a value is said, and what an axis adds to its name."""

    read: Callable[[str], Fraction | int]
    say: Callable[[float], str]
    axis: str


UNITS: Mapping[str, Unit] = {
    "_bytes_per_s": Unit(parse_bandwidth, say_bandwidth, " in bytes/s"),
    "_bytes": Unit(parse_size, say_size, " in bytes"),
    "_per_s": Unit(parse_rate, "{:g} /s".format, " per s"),
    "_s": Unit(lambda text: Fraction(parse_time(text), MICROSECONDS_PER_SECOND), "{:g} s".format, " in s"),
}
"""By how the names of columns end; the longest first."""
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
    readers = {"": parse_number} | {ending: unit.read for ending, unit in UNITS.items()}
    for suffix, read in readers.items():
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
