"""Any log of CSV or JSON Lines with a release, a model and a run time per row, and which clock its releases are of."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from truenorth.executor.policies.options import one_of, option
from truenorth.models.instance import Ints
from truenorth.models.scenario.quantities import MAX_BATCH, MAX_NUMBER, MAX_SIZE_BYTES, MAX_TIME_US
from truenorth.models.units import microseconds
from truenorth.models.workload import WHOLE
from truenorth.planner.inputs.importers.json_files import table_rows
from truenorth.planner.inputs.importers.rows import LATEST_US, MAX_GPUS_PER_REQUEST, Rows, Tally
from truenorth.planner.inputs.importers.tables import Requests

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


MOST_TOKENS = 10_000_000


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


@dataclass(frozen=True, slots=True)
class TableReader:
    """Reads the columns that its options name.

    Releases are plain numbers of the log's own clock, numbers since 1970 (Unix times), or dates with a time of day; the
    first that can be read tells. Fields are separated by commas, semicolons or tabs; the header tells. Or a line is an
    object of JSON, whose keys are the columns.

    Parameters
    ----------
    release, model
        Columns of every row.
    runtime
        Column of every row, or columns by kind of GPU as ``L4:slow+H100:quick``, which take a catalogue. Empty: the log
        has no run times, and a catalogue knows them.
    deadline
        Column of the deadlines, relative to the release; a request without one has none. Empty: no such column.
    unit
        Of all times: ``s``, ``ms`` or ``us``.
    release_unit, runtime_unit, deadline_unit
        Of these times alone; empty: as `unit`.
    gpus, weight
        Columns of the GPUs that run a request side by side, and of its weight; empty: 1.
    user
        Column of who asks: the notes then say for how much. Empty: no such column.
    tokens_in, tokens_out
        Columns of the tokens that go in and come out, for models of a catalogue that have rates.
    share, memory
        Columns of the share of a GPU that a request takes, and of the bytes that it holds while it runs; empty: none.
    batch
        Columns of the run times of batches by size, as ``2:pair+4:four``; empty: requests run alone.
    """

    release: str = option("release", str)
    model: str = option("model", str)
    runtime: tuple[tuple[str, str], ...] = option((("", "runtime"),), _columns_by_kind)
    deadline: str = option("", str)
    unit: str = option("s", one_of("s", "ms", "us"))
    release_unit: str = option("", one_of("s", "ms", "us"))
    runtime_unit: str = option("", one_of("s", "ms", "us"))
    deadline_unit: str = option("", one_of("s", "ms", "us"))
    gpus: str = option("", str)
    weight: str = option("", str)
    user: str = option("", str)
    tokens_in: str = option("", str)
    tokens_out: str = option("", str)
    share: str = option("", str)
    memory: str = option("", str)
    batch: tuple[tuple[int, str], ...] = option((), _columns_by_size)

    def read(self, files: Sequence[Path], tally: Tally) -> Iterator[Requests]:
        """Yield the requests of the files, none of which may be named twice."""
        clock = self.clock(files)
        tally.notes += [f"releases are {clock}"] if clock else []
        if self.share:
            tally.notes.append("run times are taken to hold beside as many other requests as their shares let run")
        for path in files:
            for rows in table_rows(path, self._columns, tally, self._sparse):
                yield self._requests(rows, clock)

    @property
    def _columns(self) -> list[str]:
        optional = [self.deadline, self.share, self.memory, self.gpus, self.weight, self.user]
        optional += [self.tokens_in, self.tokens_out]
        named = [*optional, *(name for _, name in (*self.runtime, *self.batch))]
        return list(dict.fromkeys([self.release, self.model, *filter(None, named)]))

    @property
    def _sparse(self) -> list[str]:
        return [self.deadline] if self.deadline else []

    def clock(self, files: Sequence[Path]) -> str:
        """Return which clock releases are of; InputError if the file cannot be read."""
        return tell_clock(files[0], self.release, self._release_unit)

    @property
    def _release_unit(self) -> str:
        return self.release_unit or self.unit

    def _requests(self, rows: Rows, clock: str) -> Requests:
        release_us = read_releases(rows, self.release, self._release_unit, clock)
        model, unit = rows.names(self.model), self.runtime_unit or self.unit
        times = {kind: rows.times(name, unit, least_us=1) for kind, name in self.runtime}
        runtime_us = next(iter(times.values()), np.ones(len(release_us), np.int64))
        columns: dict[str, Any] = {
            "by_kind": {kind: column for kind, column in times.items() if kind},
            "timed": bool(times),
        }
        if self.tokens_in and self.tokens_out:
            columns["tokens_in"] = rows.wholes(self.tokens_in, 0, MOST_TOKENS)
            columns["tokens_out"] = rows.wholes(self.tokens_out, 0, MOST_TOKENS)
        if self.deadline:
            columns["deadline_us"] = rows.optional_times(self.deadline, self.deadline_unit or self.unit)
        if self.gpus:
            columns["gpus"] = rows.wholes(self.gpus, 1, MAX_GPUS_PER_REQUEST)
        if self.share or self.memory or self.batch:
            columns |= self._serving(rows, runtime_us)
        if self.weight:
            columns["weight"] = rows.numbers(self.weight, 0, MAX_NUMBER)
        if self.user:
            columns["user"] = rows.names(self.user)
        return rows.requests(release_us, model, runtime_us, **columns)

    def _serving(self, rows: Rows, runtime_us: Ints) -> dict[str, Any]:
        """Return shares, memory and times of batches, which may not fall with the size."""
        count, before_us, batch_us = len(runtime_us), runtime_us, {}
        for size, name in self.batch:
            batch_us[size] = rows.times(name, self.runtime_unit or self.unit, least_us=1)
            falls = batch_us[size] < before_us
            rows.refuse(falls, name, "is less than a smaller batch takes", "a time that does not fall")
            before_us = batch_us[size]
        share = rows.shares(self.share) if self.share else np.full(count, WHOLE, np.int64)
        memory = rows.wholes(self.memory, 0, MAX_SIZE_BYTES) if self.memory else np.zeros(count, np.int64)
        return {"share": share, "memory_bytes": memory, "batch_us": batch_us}
