"""Tables of tasks, CSV or Parquet, as columns of text with lines; what the columns mean, and those that sources make.

Read by the importers' reader, so that a malformed row is refused, or counted, in the same words. What the user leaves
open of the columns' meaning has defaults. Sources and configurations of tasks are read and never run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from math import isfinite
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow
import pyarrow.parquet

from truenorth.models.instance import Ints
from truenorth.models.scenario import InputError, admit, open_now
from truenorth.models.scenario.errors import allowed, quote
from truenorth.planner.inputs.estimate.rungs import TASK, WORKFLOW
from truenorth.planner.inputs.estimate.sources import FIELDS, DescriptionCache, describe
from truenorth.planner.inputs.estimate.tasks import ALWAYS_US, UNKNOWN, TaskColumns, Tasks, Texts, plain
from truenorth.planner.inputs.importers.csv_files import csv_rows, header_of
from truenorth.planner.inputs.importers.rows import Rows, Tally

UNITS = {"_s": "s", "_seconds": "s", "_ms": "ms", "_us": "us"}
"""The unit that the end of a column's name says; seconds for any other."""
MICROSECONDS = {"s": 1e6, "ms": 1e3, "us": 1.0}
MODEL = "model"
"""Column of the models that a scenario's task needs, joined by ``+``."""
SCENARIO_COLUMNS = (MODEL, WORKFLOW, TASK)
"""What is known of a scenario's task; in this order its key."""
JOB, GPUS = "job", "gpus"
JOB_COLUMNS = (MODEL, GPUS)
"""What is known of an imported job before it runs: what its import takes for the model (perhaps a user), and GPUs.

Its workflow, which is named by its run time, is not.
"""
RUNTIMES = ("runtime_s", "runtime_ms", "runtime_us")


LINE = "line"
"""Column of an estimate that says where the request stands."""
ESTIMATE_COLUMNS = ("p10_s", "p50_s", "p90_s", "source", "confidence", "neighbours", "profile")
"""What follows it and the key."""
SOURCE_TEXT = "source_text"
"""The words of the sources."""
SOURCE_FIELDS = tuple(f"source_{name}" for name in FIELDS)
"""What the sources say of model, batch size, steps and so on."""
SOURCE_MODEL = "source_model"
_BETWEEN = ";"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is read of a table.

    Parameters
    ----------
    columns
        Taken as text.
    runtime
        Column of run times; None: they are not read.
    time
        Column that says when each task was asked about: dates, or seconds; None: not read.
    only
        Columns with the value that rows must have; others are left out.
    """

    columns: tuple[str, ...]
    runtime: str | None = None
    time: str | None = None
    only: tuple[tuple[str, str], ...] = ()

    @property
    def all(self) -> tuple[str, ...]:
        """Every column that is read, each once."""
        more = [name for name in (self.runtime, self.time) if name is not None]
        return tuple(dict.fromkeys((*self.columns, *more, *(name for name, _ in self.only))))


@dataclass(frozen=True, slots=True, eq=False)
class HistoryTable:
    """What was read of a table.

    Parameters
    ----------
    line
        Of each task in the file; in Parquet the one that it has in a CSV file of the same table. Shape [tasks].
    runtime_us
        None if no run times were read. Shape [tasks].
    """

    tasks: Tasks
    line: Ints
    runtime_us: Ints | None
    tally: Tally


def columns_of(path: Path) -> list[str]:
    """Return the names of a table's columns.

    Raises
    ------
    InputError
        If it cannot be read.
    """
    if _is_parquet(path):
        return [str(name) for name in _parquet(path).column_names]
    return header_of(path, (MODEL, *RUNTIMES))


def read_table(path: Path, wanted: Wanted, *, skip_malformed: bool = False) -> HistoryTable:
    """Read tasks.

    Parameters
    ----------
    skip_malformed
        Count rows whose run time or time cannot be read and go on; otherwise the first is an error.

    Raises
    ------
    InputError
        With the line, if the table cannot be read or nothing is left of it.
    """
    tally = Tally(skip_malformed)
    read = list(_chunks(_rows(path, wanted, tally), wanted))
    lines, times, runtimes = (np.concatenate([part[place] for part in read]) for place in range(3))
    columns = {name: np.concatenate([part[3][name] for part in read]) for name in wanted.columns}
    if len(lines) == 0:
        left_out = ", ".join(f"{count} {reason}" for reason, count in (tally.left_out + tally.refused).items())
        raise InputError(str(path), 1, "file", f"no row is left ({left_out}); allowed is a table with at least one")
    return HistoryTable(Tasks(columns, times), lines, None if wanted.runtime is None else runtimes, tally)


def _rows(path: Path, wanted: Wanted, tally: Tally) -> Iterator[Rows]:
    if not _is_parquet(path):
        yield from csv_rows(path, wanted.all, tally)
        return
    frame = _parquet(path).select(list(wanted.all)).to_pandas()
    if len(frame) == 0:
        raise InputError(str(path), 1, "file", "has no rows; allowed is at least one row")
    columns = {name: _texts(frame[name]) for name in wanted.all}
    rows = Rows(str(path), np.arange(2, len(frame) + 2), columns, tally)
    yield rows
    rows.settle()


def _chunks(chunks: Iterator[Rows], wanted: Wanted) -> Iterator[tuple[Ints, Ints, Ints, dict[str, Texts]]]:
    """Yield what is kept of each chunk; whether times are dates is decided once, by the first that can be read."""
    dated: bool | None = None
    for rows in chunks:
        if wanted.time is not None and dated is None:
            dated = _are_dates(rows.text(wanted.time)[rows.kept])
        yield _chunk(rows, wanted, dated=dated is not False)


def _are_dates(texts: Texts) -> bool | None:
    """Say whether times are dates rather than numbers; None if no text is either."""
    for text in texts:
        try:
            number = float(text)
        except ValueError:
            with suppress(ValueError):
                datetime.fromisoformat(text.strip())
                return True
        else:
            if isfinite(number):
                return False
    return None


def _chunk(rows: Rows, wanted: Wanted, *, dated: bool) -> tuple[Ints, Ints, Ints, dict[str, Texts]]:
    """Return lines, times, run times and columns of the rows that are kept."""
    for name, value in wanted.only:
        rows.leave_out(np.asarray(rows.text(name) != value), f"{name} is not {value[:30]}")
    none = np.zeros(len(rows.line), np.int64)
    runtimes = none if wanted.runtime is None else rows.times(wanted.runtime, unit_of(wanted.runtime), least_us=1)
    times = none + ALWAYS_US if wanted.time is None else _times(rows, wanted.time, dated=dated)
    kept = rows.kept
    columns = {name: _plain(rows.text(name)[kept]) for name in wanted.columns}
    return rows.line[kept], times[kept], runtimes[kept], columns


def unit_of(column: str) -> str:
    """Return the unit of a column of run times by its name.

    >>> unit_of("runtime_ms"), unit_of("exec_time_seconds"), unit_of("duration")
    ('ms', 's', 's')
    """
    return next((unit for end, unit in UNITS.items() if column.endswith(end)), "s")


def _times(rows: Rows, column: str, *, dated: bool) -> Ints:
    """Return times in microseconds: of dates since 1970, of numbers as they count."""
    return rows.moments(column) if dated else rows.times(column, unit_of(column))


def _plain(values: Texts) -> Texts:
    codes, texts = pd.factorize(values)
    return np.array([plain(text) for text in texts], np.object_)[codes] if len(values) else values


def _texts(column: pd.Series) -> Texts:
    """Return a column of Parquet as a CSV file would have it."""
    return np.array([UNKNOWN if value is None or value != value else str(value) for value in column], np.object_)


def _is_parquet(path: Path) -> bool:
    return path.suffix.lower() == ".parquet"


def _parquet(path: Path) -> pyarrow.Table:
    admit(path)
    try:
        with open(path, "rb", opener=open_now) as file:
            return pyarrow.parquet.read_table(file)
    except OSError as error:
        raise InputError(str(path), None, "file", f"cannot be read: {error}; allowed is a Parquet file") from None
    except pyarrow.ArrowException as error:
        raise InputError(str(path), None, "file", f"is no Parquet: {error}; allowed is Parquet or CSV") from None


@dataclass(frozen=True, slots=True)
class Naming:
    """What the user says of the columns.

    Parameters
    ----------
    runtime
        Run time; None: ``runtime_s``, ``runtime_ms`` or ``runtime_us``.
    time
        When each task was asked about; None: rows stand in order, oldest first.
    key
        What makes tasks the same, the most telling first; none: model, workflow and task where the history has them,
        then the other shared columns in its order; of sources, what they say, too.
    text
        Whose words are compared.
    source
        Column of the paths of a task's sources and configurations, relative to the table.
    only
        Columns of the history and the value that its rows must have.
    """

    runtime: str | None = None
    time: str | None = None
    key: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    source: str | None = None
    only: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Roles:
    """What every column is.

    Parameters
    ----------
    columns
        For the ladder, columns made from sources included.
    shared
        Columns that are read from both tables.
    compared
        Whether the requests have the run time, too: estimates are compared with it, and do not use it.
    """

    runtime: str
    columns: TaskColumns
    shared: tuple[str, ...]
    compared: bool


def roles(history: Path, header: Sequence[str], requests: Path, asked: Sequence[str], naming: Naming) -> Roles:
    """Return what every column is.

    Parameters
    ----------
    header, asked
        Columns of the history and of the requests.

    Raises
    ------
    InputError
        If a named column is missing, or nothing is left to tell tasks by.
    """
    runtime = _runtime(history, header, naming)
    named = dict.fromkeys(naming.key, "key") | dict.fromkeys(naming.text, "text")
    named |= {naming.source: "source column"} if naming.source else {}
    made = () if naming.source is None else (SOURCE_TEXT, *SOURCE_FIELDS)
    named = {name: option for name, option in named.items() if name not in made}
    _all_there(history, header, named | {name: "only" for name, _ in naming.only})
    _all_there(requests, asked, named)
    if naming.time is not None:
        _all_there(history, header, {naming.time: "time"})
    other = {runtime, naming.time, naming.source, *naming.text, *(name for name, _ in naming.only)}
    features = tuple(name for name in header if name in asked and name not in other)
    read = tuple(name for name in dict.fromkeys((*naming.key, *naming.text, *features)) if name not in made)
    known = (*features, *made[1:])
    telling = [name for name in (MODEL, SOURCE_MODEL, WORKFLOW, TASK) if name in known]
    key = naming.key or tuple(dict.fromkeys((*telling, *known)))
    if not key:
        problem = f"shares no column with {requests}; allowed is a history with a column of the requests"
        raise InputError(str(history), 1, "header", problem + f": {', '.join(asked)[:200]}")
    for name in key:
        if name in (LINE, JOB, *ESTIMATE_COLUMNS):
            problem = f"column {name!r} would stand twice in the estimates; allowed is a key without it"
            raise InputError(str(requests), 1, "header", problem)
    columns = TaskColumns(key, (*naming.text, *made[:1]), known)
    return Roles(runtime, columns, read, runtime in asked)


def _runtime(history: Path, header: Sequence[str], naming: Naming) -> str:
    if naming.runtime is not None:
        _all_there(history, header, {naming.runtime: "runtime"})
        return naming.runtime
    found = [name for name in RUNTIMES if name in header]
    if len(found) != 1:
        problem = f"has {' and '.join(found) or 'no column'} of {', '.join(RUNTIMES)}; name the run time"
        columns = f"; its columns: {', '.join(header)[:200]}" if len(header) > 1 else ""  # else it is no table to quote
        raise InputError(str(history), 1, "header", problem + columns)
    return found[0]


def _all_there(file: Path, header: Sequence[str], named: Mapping[str, str]) -> None:
    for name, option in named.items():
        if name not in header:
            problem = f"has no column {quote(name)} ({option}); {allowed(name, header)}"
            raise InputError(str(file), 1, "header", problem)


def describe_columns(
    table: Path, line: Ints, paths: Texts, cache: DescriptionCache | None = None
) -> Mapping[str, Texts]:
    """Return the columns that the sources of some tasks make.

    Parameters
    ----------
    table
        Whose folder the paths are relative to.
    line
        Of each task. Shape [tasks].
    paths
        Of each task, several joined by ``;``; unknown where it has none. Shape [tasks].

    Raises
    ------
    InputError
        With the table's line, if a source cannot be read.
    """
    codes, distinct = pd.factorize(paths)
    rows: list[dict[str, str]] = []
    for code, text in enumerate(distinct):
        try:
            rows.append(_row(table.parent, text, cache))
        except InputError as error:
            first = int(line[np.argmax(codes == code)])
            raise InputError(str(table), first, "source", f"{error.file}: {error.problem}") from None
    return {name: np.array([row[name] for row in rows], np.object_)[codes] for name in (SOURCE_TEXT, *SOURCE_FIELDS)}


def _row(folder: Path, text: str, cache: DescriptionCache | None) -> dict[str, str]:
    files = [folder / part.strip() for part in text.split(_BETWEEN) if part.strip()]
    if not files:
        return dict.fromkeys((SOURCE_TEXT, *SOURCE_FIELDS), UNKNOWN)
    found = describe(files, cache=cache)
    values = (getattr(found, name) for name in FIELDS)
    fields = {
        f"source_{name}": UNKNOWN if value is None else str(value) for name, value in zip(FIELDS, values, strict=True)
    }
    return {SOURCE_TEXT: found.text, **fields}
