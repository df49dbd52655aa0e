"""Any log of CSV or JSON with a release and a run time per row, and which clock its releases are of."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from truenorth.executor.policies.options import one_of, option, positive_duration, switch
from truenorth.models.cluster import MICROSECONDS_PER_SECOND
from truenorth.models.errors import QuestionError
from truenorth.models.instance import Ints
from truenorth.models.scenario import InputError
from truenorth.models.scenario.errors import quote
from truenorth.models.scenario.quantities import MAX_BATCH, MAX_NUMBER, MAX_SIZE_BYTES, MAX_TIME_US
from truenorth.models.units import microseconds
from truenorth.models.workload import WHOLE
from truenorth.planner.inputs.importers.failures import (
    BY_CHANCE,
    ENDED_OTHERWISE,
    FOR_GOOD,
    outcomes,
    refuse_retries,
    until,
)
from truenorth.planner.inputs.importers.formats.cluster_jobs import retry_key
from truenorth.planner.inputs.importers.formats.shapes import (
    TABLES,
    Shape,
    names_of,
    no_column,
    shape_of,
    unit_in,
    unread_status,
)
from truenorth.planner.inputs.importers.log_files import columns_of, table_rows
from truenorth.planner.inputs.importers.rows import LATEST_US, SUCCESS, Rows, Tally
from truenorth.planner.inputs.importers.tables import Requests

DATES, UNIX = "dates with a time of day", "times since 1970"
UNITS = ("s", "ms", "us", "ns")
_MOST_PER_SECOND = 10_000
"""No log is taken to have more requests in the mean unless it says what its unit is."""

_LONG_US = 60 * MICROSECONDS_PER_SECOND
_READ_IN_S = "run times are read in s, and each is a minute or more; unit=ms (us, ns) if that is not what they are in"


@dataclass(slots=True)
class Clock:
    """What the releases of a log are of.

    Parameters
    ----------
    column
        Where they stand; empty: the log has none, and all requests are released at time zero.
    unit
        Of plain numbers.
    told
        Whether a person has said so; otherwise a unit that does not fit is refused.
    option
        How a person would say it.

    Attributes
    ----------
    sort
        Dates, times since 1970, or empty: the log's own clock.
    """

    column: str
    unit: str
    told: bool
    option: str
    sort: str = ""
    _rows: int = field(init=False, default=0)
    _edges: list[int] = field(init=False, default_factory=list)

    def look(self, path: Path) -> Clock:
        """Find out which clock the first release of a file is of that can be read, and return this clock.

        Raises
        ------
        InputError
            If the file cannot be read, or the release is one since 1970 in another unit.
        """
        if not self.column:
            return self
        for rows in table_rows(path, [self.column], Tally(True), [self.column]):
            for line, text in zip(rows.line.tolist(), rows.text(self.column), strict=True):
                sort = _clock_of(text, self.unit)
                if sort is not None:
                    self.sort = sort
                    return self
                other = next((unit for unit in UNITS if _clock_of(text, unit) == UNIX), None)
                if other is not None:
                    problem = f"{quote(text)} is no time in {self.unit}, but in {other} since 1970"
                    raise InputError(str(path), line, self.column, f"{problem}; write {self.option}{other}")
        return self

    def read(self, rows: Rows) -> Ints:
        """Return releases of this clock in microseconds; those of no such clock are refused. Shape [rows].

        Raises
        ------
        InputError
            At fractions of a unit that was only guessed.
        """
        if not self.column:
            return np.zeros(len(rows.line), np.int64)
        release_us = self.times(rows, self.column)
        guessed = not (self.told or self.sort)
        if guessed and self.unit == "ms" and (parts := (release_us % 1000 > 0) & rows.kept).any():
            row = int(np.argmax(parts))
            problem = f"{quote(rows.text(self.column)[row])} is a fraction of a ms, so that the unit is in doubt"
            raise InputError(rows.file, int(rows.line[row]), self.column, f"{problem}; {self._remedy}")
        kept = release_us[rows.kept]
        if guessed and len(kept):
            self._rows += len(kept)
            self._edges += [int(kept.min()), int(kept.max())]
        return release_us

    def times(self, rows: Rows, column: str) -> Ints:
        """Return a column of times of this clock in microseconds; others are refused. Shape [rows]."""
        if self.sort == DATES:
            return rows.moments(column)
        return (rows.unix_times if self.sort else rows.times)(column, self.unit)

    def settle(self, path: Path) -> None:
        """Refuse more requests per second than there are, if their unit was only guessed; InputError."""
        length_us = max(self._edges, default=0) - min(self._edges, default=0)
        if length_us and self._rows - 1 > _MOST_PER_SECOND * length_us / MICROSECONDS_PER_SECOND:
            rate = (self._rows - 1) / length_us * MICROSECONDS_PER_SECOND
            problem = f"{rate:,.0f} requests per second in {self.unit}, so that the unit is in doubt"
            raise InputError(str(path), None, self.column, f"{problem}; {self._remedy}")

    @property
    def _remedy(self) -> str:
        return f"write {self.option}s (or {', '.join(self.option + unit for unit in UNITS[1:])}) for what it is"

    @property
    def words(self) -> list[str]:
        """What a person should know of it."""
        if not self.column:
            return ["the log has no arrivals: all requests are released at time zero"]
        return [f"releases are {self.sort}"] if self.sort else []


def _clock_of(text: str, unit: str) -> str | None:
    """Return which clock a release is of; None if it is none."""
    try:
        release_us = microseconds(text.strip(), unit)
        return None if not 0 <= release_us <= LATEST_US else UNIX if release_us > MAX_TIME_US else ""
    except ValueError:
        return DATES if re.match(r"\d{4}([-/])\d\d\1\d\d", text.strip()) else None


MOST_TOKENS = 10_000_000
_RUNS = ("runtime", "start", "end", "runtime_unit")
"""Options that say how long requests ran; who gives one need not be told the others."""


def _columns_by_size(text: str) -> tuple[tuple[int, str], ...]:
    """Read columns by batch size.

    >>> _columns_by_size("4:four+2:pair")
    ((2, 'pair'), (4, 'four'))
    """
    found: dict[int, str] = {}
    for item in text.split("+"):
        size, _, column = item.partition(":")
        if not (size.isascii() and size.isdigit() and 2 <= int(size[:5]) <= MAX_BATCH and column) or int(size) in found:
            raise ValueError(f"{item!r} is no size with its column; allowed is such as 2:pair+4:four, each size once")
        found[int(size)] = column
    return tuple(sorted(found.items()))


def _columns_by_kind(text: str) -> tuple[tuple[str, str], ...]:
    """Read a column, or columns by kind of GPU.

    >>> _columns_by_kind("took"), _columns_by_kind("L4:slow+H100:quick")
    ((('', 'took'),), (('L4', 'slow'), ('H100', 'quick')))
    """
    if not text:
        return ()
    found = dict[str, str]()
    for item in text.split("+") if ":" in text else [f":{text}"]:
        kind, _, column = item.partition(":")
        if not column or kind in found or (not kind and ":" in text):
            raise ValueError(
                f"{item!r} is no kind with its column; allowed is such as L4:slow+H100:quick, each kind once"
            )
        found[kind] = column
    return tuple(found.items())


def words_in(text: str) -> tuple[str, ...]:
    """Read words between plus signs, in lower case.

    >>> words_in("COMPLETED+200")
    ('completed', '200')
    """
    return tuple(text.lower().split("+"))


_TELLING = {
    "gpus": ("gpus", "num_gpus", "num_gpu", "gpu_num", "n_gpus"),
    "deadline": ("deadline", "deadline_s", "deadline_ms"),
    "weight": ("weight",),
    "share": ("share",),
}
"""Columns that say by their names what option they are for: not read unless named, which is said."""


@dataclass(frozen=True, slots=True)
class TableReader:
    """Reads the columns that its options name; where they say nothing, those of a known sort of log.

    Releases are plain numbers of the log's own clock, numbers since 1970 (Unix times), or dates with a time of day; the
    first that can be read tells. Fields are separated by commas, semicolons, tabs or vertical bars; the header tells.
    Or objects of JSON are rows, whose keys are the columns.

    Parameters
    ----------
    release
        Column of the releases; empty: the log has none, and all requests are released at time zero.
    model
        Column of the models; empty: requests need none.
    runtime
        Column of every row, or columns by kind of GPU as ``L4:slow+H100:quick``, which take a catalogue. Empty: the log
        has no run times, and a catalogue knows them.
    start, end
        Columns of the moments between which a request ran, on the clock of the releases; without a start from its
        release on. They stand for `runtime`; beside it, requests without an end are left out.
    status, success
        Column that says whether a request succeeded, and the words that say so; others are left out. Empty: all count.
    failed
        Rows that failed, by `status`, count as well but weigh 0: they ``run`` as long as in the log, or ``stop:TIME``,
        that long at most, where a retry would not help; see `failures`. Unset: they are left out.
    retries
        How long after the `end` of a failed row the next one of the same `user`, `model` and `gpus`, as far as there
        are such columns, is its retry; see `retries`. Unset: each row is a job by itself.
    deadline
        Column of the deadlines, relative to the release; a request without one has none. Empty: no such column.
    unit
        Of all times: ``s``, ``ms``, ``us`` or ``ns``; empty: what the name of a column ends in, else s.
    release_unit, runtime_unit, deadline_unit
        Of these times alone; empty: as `unit`.
    gpus, weight
        Columns of the GPUs that run a request together, and of its weight; empty: 1.
    split
        Whether requests on several GPUs become as many tasks on one each, which need not run together.
    user
        Column of who asks: the notes then say for how much. Empty: no such column.
    tokens_in, tokens_out
        Columns of the tokens that go in and come out, for models of a catalogue that have rates.
    share, memory
        Columns of the share of a GPU that a request takes, and of the bytes that it holds while it runs; empty: none.
    batch
        Columns of the run times of batches by size, as ``2:pair+4:four``; empty: requests run alone.
    """

    release: str | None = option(None, str)
    model: str | None = option(None, str)
    runtime: tuple[tuple[str, str], ...] | None = option(None, _columns_by_kind)
    start: str | None = option(None, str)
    end: str | None = option(None, str)
    status: str | None = option(None, str)
    success: tuple[str, ...] | None = option(None, words_in)
    failed: int | None = option(None, until)
    retries: int | None = option(None, positive_duration)
    deadline: str = option("", str)
    unit: str | None = option(None, one_of(*UNITS))
    release_unit: str | None = option(None, one_of(*UNITS))
    runtime_unit: str | None = option(None, one_of(*UNITS))
    deadline_unit: str = option("", one_of(*UNITS))
    gpus: str | None = option(None, str)
    weight: str = option("", str)
    split: bool = option(False, switch)
    user: str = option("", str)
    tokens_in: str = option("", str)
    tokens_out: str = option("", str)
    share: str = option("", str)
    memory: str = option("", str)
    batch: tuple[tuple[int, str], ...] = option((), _columns_by_size)
    shape: Shape | None = None
    steps: str = ""

    def __post_init__(self) -> None:
        refuse_retries(self.retries, self.failed, self.split)

    def read(self, files: Sequence[Path], tally: Tally) -> Iterator[Requests]:
        """Yield the requests of the files, none of which may be named twice."""
        named = self._named(files[0], tally)
        clock = named._clock(told=bool(self.release_unit or self.unit)).look(files[0])
        tally.notes += clock.words
        if self.share:
            tally.notes.append("run times are taken to hold beside as many other requests as their shares let run")
        told = self.runtime_unit or self.unit or named.shape or any(unit_in(name) for _, name in named.runtime or ())
        long = bool(named.runtime) and not told
        for path in files:
            for rows in table_rows(path, named._columns, tally, named._sparse):
                requests = named._requests(rows, clock)
                long = long and bool((requests.runtime_us >= _LONG_US).all())
                yield requests
        tally.notes += [_READ_IN_S] if long and tally.read else []
        clock.settle(files[0])

    def clock(self, files: Sequence[Path]) -> str:
        """Return which clock releases are of; InputError if the file cannot be read."""
        return self._named(files[0], Tally())._clock(told=True).look(files[0]).sort

    def _named(self, path: Path, tally: Tally) -> TableReader:
        """Return this reader with what its options leave open: the columns of the log's shape, or the usual ones.

        Raises
        ------
        InputError
            If the file cannot be read, or lacks a column.
        """
        given = [name for each in fields(self) if (name := getattr(self, each.name)) and isinstance(name, str)]
        found = columns_of(path, [*given, *names_of(TABLES), "release", "model", "runtime"])
        shape = shape_of(TABLES, found)
        known = {} if shape is None else shape.options(found)
        if self.runtime is not None or self.end is not None:
            known = {name: of for name, of in known.items() if name not in _RUNS}
        elif "runtime" in known:
            known["runtime"] = (("", known["runtime"]),)
        runs = () if self.end or "end" in known else (("", "runtime"),)
        usual = {"release": "release", "model": "model" if "model" in found else "", "runtime": runs}
        filled = {name: of for name, of in (usual | known).items() if getattr(self, name) is None}
        steps = next((name for name in (() if shape is None else shape.steps) if name in found), "")
        made = replace(self, shape=shape, steps=steps, **filled)
        tally.notes += [] if shape is None else [f"{path.name} has the shape of {shape.title}"]
        tally.notes += self._said_of_status(made, found)
        for option_name, telling in _TELLING.items():
            unread = [] if getattr(made, option_name) else [name for name in telling if name in found]
            tally.notes += [f"column {name} is not read; {option_name}={name} reads it" for name in unread[:1]]
        tally.notes += [shape.note] if shape is not None and shape.note else []
        if shape is not None and "gpus" in shape.columns and made.gpus is None:
            listed = shape.columns["gpus"]
            names = listed if isinstance(listed, str) else listed[0]
            tally.notes.append(f"the log does not say how many GPUs a job has, so that each has one; {names} would")
        if made.failed is not None and not made.status:
            raise QuestionError("failed= is about rows that a status says failed; allowed is beside status=COLUMN")
        if self.retries is not None and not (made.user and made.end):
            raise QuestionError("retries= asks who submits and when rows ended; allowed is beside user= and end=COLUMN")
        for name in made._required:
            if name not in found:
                raise no_column(path, name, found, "table", ("release", "runtime", "start", "end", "model", "gpus"))
        return made

    @staticmethod
    def _said_of_status(made: TableReader, found: Sequence[str]) -> list[str]:
        """Return which rows count, where a column says what became of them."""
        unread = unread_status(found, made._columns)
        if unread and made.status is None:
            return [
                f"column {unread} is not read, so that rows count whatever it says; status={unread} leaves some out"
            ]
        words = "its words of success" if made.success is None else "+".join(made.success) or "an empty field"
        return [f"column {made.status}: only rows with {words} count"] if made.status else []

    def _clock(self, told: bool) -> Clock:
        column = self.release or ""
        return Clock(column, self._unit(self.release_unit, column), told, "unit=")

    def _unit(self, own: str | None, column: str) -> str:
        return own or self.unit or unit_in(column) or "s"

    @property
    def _required(self) -> list[str]:
        """Columns that every row has."""
        named = [self.release, self.model, self.share, self.memory, self.weight, self.user]
        named += [self.tokens_in, self.tokens_out, *(name for _, name in (*(self.runtime or ()), *self.batch))]
        return list(dict.fromkeys(filter(None, named)))

    @property
    def _sparse(self) -> list[str]:
        """Columns that an object of JSON may lack."""
        named = [self.deadline, self.start, self.end, self.status, self.gpus, self.steps]
        return [name for name in dict.fromkeys(filter(None, named)) if name not in self._required]

    @property
    def _columns(self) -> list[str]:
        return [*self._required, *self._sparse]

    def _requests(self, rows: Rows, clock: Clock) -> Requests:
        self._leave_out(rows)
        release_us = clock.read(rows)
        model = rows.names(self.model) if self.model else np.full(len(rows.line), "", np.object_)
        times = {kind: self._times(rows, name) for kind, name in self.runtime or ()}
        if not times and self.end:
            times = {"": self._ran(rows, clock, release_us)}
        runtime_us = next(iter(times.values()), np.ones(len(release_us), np.int64))
        columns: dict[str, Any] = {
            "by_kind": {kind: column for kind, column in times.items() if kind},
            "timed": bool(times),
            "split": self.split,
        }
        if self.status and self.failed is not None:
            runtime_us, failures = outcomes(rows.text(self.status), runtime_us, self.failed)
            columns |= failures
        if self.tokens_in and self.tokens_out:
            columns["tokens_in"] = rows.wholes(self.tokens_in, 0, MOST_TOKENS)
            columns["tokens_out"] = rows.wholes(self.tokens_out, 0, MOST_TOKENS)
        if self.deadline:
            unit = self._unit(self.deadline_unit, self.deadline)
            columns["deadline_us"] = rows.optional_times(self.deadline, unit)
        if self.gpus:
            columns["gpus"] = rows.gpus(self.gpus)
            rows.leave_out(columns["gpus"] == 0, "no GPU")
        if self.share or self.memory or self.batch:
            columns |= self._serving(rows, runtime_us)
        if self.weight:
            columns["weight"] = rows.numbers(self.weight, 0, MAX_NUMBER)
        if self.user:
            columns["user"] = rows.names(self.user)
        if self.retries is not None:
            key = [columns["user"], model, *([columns["gpus"]] if self.gpus else [])]
            columns |= {"tries_us": self.retries, "key": retry_key(*key), "end_us": clock.times(rows, self.end or "")}
            rows.refuse(
                columns["end_us"] < release_us,
                self.end or "",
                f"is before {self.release}",
                f"a time from {self.release} on",
            )
        return rows.requests(release_us, model, runtime_us, **columns)

    def _leave_out(self, rows: Rows) -> None:
        """Set aside rows that are no requests, that failed, or that have not ended."""
        absent = () if self.shape is None else self.shape.absent
        if self.steps:
            rows.leave_out(np.array(["." in text for text in rows.text(self.steps)], np.bool_), "step of a job")
        if self.status:
            held = () if self.failed is None else (*FOR_GOOD, *BY_CHANCE, *ENDED_OTHERWISE)
            rows.leave_out_failed(self.status, SUCCESS if self.success is None else self.success, held)
        for column in filter(None, (self.start, self.end)):
            rows.leave_out_absent(column, *absent)
        for column in (
            filter(None, (self.release, self.gpus, *(name for _, name in self.runtime or ()))) if absent else ()
        ):
            rows.leave_out_absent(column, *absent)

    def _times(self, rows: Rows, column: str) -> Ints:
        """Return a column of run times; known sorts of logs have jobs that ended before they began. Shape [rows]."""
        unit = self._unit(self.runtime_unit, column)
        if self.shape is None:
            return rows.times(column, unit, least_us=1)
        times = rows.times(column, unit)
        rows.leave_out(times == 0, "ran for 0 s")
        return times

    def _ran(self, rows: Rows, clock: Clock, release_us: Ints) -> Ints:
        """Return how long requests ran, from their start or release to their end. Shape [rows]."""
        start_us = clock.times(rows, self.start) if self.start else release_us
        end_us = clock.times(rows, self.end or "")
        begin = self.start or self.release
        rows.refuse(end_us < start_us, self.end or "", f"is before {begin}", f"a time from {begin} on")
        rows.leave_out(end_us == start_us, "ran for 0 s")
        return end_us - start_us

    def _serving(self, rows: Rows, runtime_us: Ints) -> dict[str, Any]:
        """Return shares, memory and times of batches, which may not fall with the size."""
        count, before_us, batch_us = len(runtime_us), runtime_us, {}
        for size, name in self.batch:
            batch_us[size] = rows.times(name, self._unit(self.runtime_unit, name), least_us=1)
            falls = batch_us[size] < before_us
            rows.refuse(falls, name, "is less than a smaller batch takes", "a time that does not fall")
            before_us = batch_us[size]
        share = rows.shares(self.share) if self.share else np.full(count, WHOLE, np.int64)
        memory = rows.wholes(self.memory, 0, MAX_SIZE_BYTES) if self.memory else np.zeros(count, np.int64)
        return {"share": share, "memory_bytes": memory, "batch_us": batch_us}
