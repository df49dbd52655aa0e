"""Rows of a log as columns of text: text becomes numbers for many rows at once, and every row keeps its line.

Values are converted once per distinct text of a chunk, with the exact readers of scenario files.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from truenorth.models.instance import Ints
from truenorth.models.scenario import InputError
from truenorth.models.scenario.errors import quote
from truenorth.models.scenario.quantities import MAX_TIME_US
from truenorth.models.units import microseconds, parse_number
from truenorth.models.workload import WHOLE
from truenorth.planner.inputs.importers.tables import Requests, Texts

LONGEST_NAME = 150
"""Longest name of a model: names of workflows are made from it."""
MAX_GPUS_PER_REQUEST = 10_000

Mask = NDArray[np.bool_]
_WHOLE = re.compile(r"\s*([+-]?\d{1,18})(?:\.0*)?\s*", re.ASCII)
_FIRST_YEAR, _LAST_YEAR = 1970, 2200
LATEST_US = 7_258_118_400_000_000
"""The end of the last year, since 1970."""
_SHORTEST_MOMENT = len("2024-11-15 16:57")
_SIGN = frozenset("+-")
_UTC = re.compile(r"\s*(?:UTC|GMT)\s*$")
_CLOCK = re.compile(r"(?:(\d{1,6})-)?(?:(\d{1,6}):)?(\d{1,6}):(\d{1,2}(?:\.\d+)?)", re.ASCII)
"""Days, hours, minutes and seconds, as Slurm writes how long a job ran."""
_FORMS = (
    (re.compile(r"\s*[\d.,' ]*[,' ][\d.,' ]*"), "as 1234.5: a point before decimals, and nothing between thousands"),
    (re.compile(r"\[?\d+[/.-]\w+[/.-]\d+\b.*"), "as 2024-11-15 16:57:50 if it is a date"),
)
"""What numbers and dates of other places look like, and how they are to be written."""
ABSENT = (
    "",
    "unknown",
    "none",
    "nan",
    "nat",
    "null",
    "n/a",
    "invalid",
    "unlimited",
    "partition_limit",
    "<none>",
    "none assigned",
)
"""Words of logs for a value that is not known, or that does not exist; in any case."""
SUCCESS = frozenset(
    ("true", "1", "ok", "success", "succeeded", "successful", "complete", "completed", "done", "finished", "passed")
)
"""What a status says of rows that succeeded, unless an option says otherwise; so does HTTP's 200 to 299."""


class Refusal(NamedTuple):
    """Malformed rows: the error that the first of them makes, the reason they are counted by, and how many."""

    error: InputError
    reason: str
    rows: int = 1


@dataclass(slots=True)
class Rows:
    """Some rows of a file, as columns of text.

    Parameters
    ----------
    file
        As errors name it.
    line
        Line of each row in the file, from 1. Shape [rows].
    columns
        The text of each row by column. Shape [rows] each.
    tally
        Where what is left out and refused is counted in the end.
    broken
        Rows of the same chunk that could not be taken apart into columns.

    Attributes
    ----------
    kept
        Which rows are neither left out nor refused. Shape [rows].
    """

    file: str
    line: Ints
    columns: dict[str, Texts]
    tally: Tally
    broken: Sequence[Refusal] = ()
    kept: Mask = field(init=False)
    _refused: list[Refusal] = field(init=False, default_factory=list)
    _left_out: list[tuple[str, int]] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.kept = np.ones(len(self.line), np.bool_)

    def text(self, column: str) -> Texts:
        """Return a column as it stands. Shape [rows]."""
        return self.columns[column]

    def leave_out(self, mask: Mask, reason: str) -> None:
        """Set aside well-formed rows that are no part of the workload."""
        mask = mask & self.kept
        if mask.any():
            self.kept = self.kept & ~mask
            self._left_out.append((reason, int(mask.sum())))

    def refuse(self, mask: Mask, column: str, problem: str, allowed: str) -> None:
        """Refuse malformed rows.

        Parameters
        ----------
        mask
            Which rows. Shape [rows].
        problem
            What is wrong with the column's value, such as ``is no time``.
        allowed
            What may stand there.
        """
        mask = mask & self.kept
        if mask.any():
            # The first that is True.
            first = int(np.argmax(mask))
            value = self.columns[column][first] if column in self.columns else ""
            found = f"{quote(value)} " if column in self.columns else ""
            allowed += next(
                (
                    f", written {form}"
                    for pattern, form in _FORMS
                    if pattern.fullmatch(value) and form[:7] not in allowed
                ),
                "",
            )
            error = InputError(self.file, int(self.line[first]), column, f"{found}{problem}; allowed is {allowed}")
            self.kept = self.kept & ~mask
            self._refused.append(Refusal(error, f"{column}: {problem}", int(mask.sum())))

    def leave_out_absent(self, column: str, *more: str) -> None:
        """Set aside rows whose column says that its value is not known, in one of `ABSENT` or of more words."""
        words = pd.Series(self.columns[column], dtype=object).str.strip().str.lower()
        self.leave_out(words.isin((*ABSENT, *more)).to_numpy(np.bool_), f"no {column}")

    def leave_out_failed(self, column: str, success: Collection[str], held: Collection[str] = ()) -> None:
        """Set aside rows whose status is none of these words, in any case, counted by what it says.

        What follows the word is of no account: Slurm says by whom a job was cancelled.
        """
        text = pd.Series(self.columns[column], dtype=object).str.strip()
        said = text.str.lower()
        wanted = (*success, *held)
        good = said.isin(wanted) | said.str.split().str[0].isin(wanted)
        if success is SUCCESS:
            good |= said.str.fullmatch(r"2\d\d")
        for other in text[~good & self.kept].str[:30].unique():
            self.leave_out((text.str[:30] == other).to_numpy(np.bool_), f"{column} {other}")

    def leave_out_unless(self, column: str, *wanted: str) -> None:
        """Set aside rows whose column says something else, counted by what it says."""
        text = pd.Series(self.columns[column], dtype=object)
        mask = self.kept & ~text.isin(wanted).to_numpy(np.bool_)
        self.kept = self.kept & ~mask
        # Cut: a broken log may have anything there, and the reason is one line.
        said = text[mask].str[:30].value_counts()
        self._left_out += [(f"{column} {other}", int(rows)) for other, rows in said.items()]

    def times(self, column: str, unit: str = "s", least_us: int = 0) -> Ints:
        """Return plain numbers of a unit (``s``, ``ms``, ``us``, ``ns``), or clocks, in microseconds, rounded half up.

        Shape [rows].
        """
        return self._each(
            column,
            lambda text: _duration(text.strip(), unit),
            (least_us, MAX_TIME_US),
            "is no time in range",
            f"a plain number of {unit} from {least_us / 1e6:g} s to {MAX_TIME_US / 1e6:g} s",
        )

    def unix_times(self, column: str, unit: str = "s") -> Ints:
        """Return plain numbers of a unit since 1970 in microseconds, rounded half up. Shape [rows]."""
        return self._each(
            column,
            lambda text: microseconds(text.strip(), unit),
            (MAX_TIME_US + 1, LATEST_US),
            "is no time since 1970 in range",
            f"a plain number of {unit} from {MAX_TIME_US / 1e6:g} s (2001) to {LATEST_US / 1e6:g} s",
        )

    def optional_times(self, column: str, unit: str = "s") -> Ints:
        """Return numbers as `times` does, and -1 where there is none. Shape [rows]."""

        def read_time(text: str) -> int:
            """Return one entry in microseconds."""
            if text.strip().lower() in ABSENT:
                return -1
            time_us = _duration(text.strip(), unit)
            if time_us < 0:
                raise ValueError(text)
            return time_us

        allowed = f"nothing, or a plain number of {unit} from 0 s to {MAX_TIME_US / 1e6:g} s"
        return self._each(column, read_time, (-1, MAX_TIME_US), "is no time in range", allowed)

    def wholes(self, column: str, least: int, most: int) -> Ints:
        """Return whole numbers in a range; ``4.0`` counts as one. Shape [rows]."""
        return self._each(
            column, _whole, (least, most), "is no whole number in range", f"a whole number from {least} to {most}"
        )

    def gpus(self, column: str) -> Ints:
        """Return how many GPUs each row has: a number, or what Slurm says of trackable resources. Shape [rows]."""
        most = MAX_GPUS_PER_REQUEST
        return self._each(
            column, _gpus, (0, most), "is no number of GPUs", f"0 to {most}, or such as gres/gpu=4, whole"
        )

    def numbers(self, column: str, least: float, most: float) -> NDArray[np.float64]:
        """Return numbers in a range. Shape [rows]."""
        codes, texts = pd.factorize(self.columns[column])
        values = pd.to_numeric(pd.Series(texts, dtype=object), errors="coerce").to_numpy(np.float64)
        good = (values >= least) & (values <= most)
        self.refuse(~good[codes], column, "is no number in range", f"a number from {least:g} to {most:g}")
        return np.asarray(np.where(good, values, least)[codes], np.float64)

    def shares(self, column: str) -> Ints:
        """Return shares of a GPU in parts of `WHOLE`. Shape [rows]."""

        def read_share(text: str) -> int:
            """Return one entry in parts of WHOLE."""
            parts = parse_number(text.strip()) * WHOLE
            # Finer than the parts of a GPU are: rounding it might let more fit than did.
            if parts.denominator != 1:
                raise ValueError(text)
            return int(parts)

        allowed = "a decimal above 0 and at most 1, of up to four places"
        return self._each(column, read_share, (1, WHOLE), "is no share", allowed)

    def moments(self, column: str) -> Ints:
        """Return dates with a time of day in microseconds since 1970. Shape [rows].

        Either all dates of an import have a zone or none has, which the first one tells; without, they count as UTC.
        """
        texts = self.columns[column]
        dashed = pd.Series(texts, dtype=object).str.replace("/", "-").str.replace(_UTC, "Z", regex=True)
        read = pd.to_datetime(dashed, format="ISO8601", errors="coerce", utc=True)
        # The reader also takes a bare year, and words such as "now".
        short = np.fromiter(map(len, texts), np.int64, len(texts)) < _SHORTEST_MOMENT
        good = ~short & read.dt.year.between(_FIRST_YEAR, _LAST_YEAR).to_numpy(np.bool_)
        self.refuse(
            ~good, column, "is no date and time in range", f"such as 2024-11-15 16:57:50, {_FIRST_YEAR} to {_LAST_YEAR}"
        )
        self._refuse_mixed_zones(column, texts, good)
        nanoseconds = read.where(good, pd.Timestamp(0, tz="UTC")).dt.as_unit("ns").astype("int64").to_numpy()
        # Half a microsecond rounds up, as with plain numbers.
        return np.asarray((nanoseconds + 500) // 1000, np.int64)

    def _refuse_mixed_zones(self, column: str, texts: Texts, good: Mask) -> None:
        """Refuse dates with a zone where the import's first has none, and the other way round."""
        # Behind the date, + and - stand in zones alone.
        zoned = np.fromiter(
            (text.rstrip()[-1:] in "ZzCT" or not _SIGN.isdisjoint(text[10:]) for text in texts), np.bool_
        )
        dates = good & self.kept
        if self.tally.zoned is None and dates.any():
            self.tally.zoned = bool(zoned[np.argmax(dates)])
        if self.tally.zoned is not None:
            problem = f"has {'no' if self.tally.zoned else 'a'} zone, other than dates before it"
            self.refuse(dates & (zoned != self.tally.zoned), column, problem, "a zone in all dates or in none")

    def names(self, column: str) -> Texts:
        """Return names of models: printable, 1 to `LONGEST_NAME` characters. Shape [rows]."""
        codes, texts = pd.factorize(self.columns[column])
        good = np.array([0 < len(text) <= LONGEST_NAME and text.isprintable() for text in texts], np.bool_)
        self.refuse(~good[codes], column, "is no name", f"1 to {LONGEST_NAME} printable characters")
        return np.asarray(np.asarray(texts, dtype=np.object_)[codes], np.object_)

    def lists(self, column: str) -> Texts:
        """Return lists of hashes such as ``[17, 18]``, as text between their brackets; empty text for none.

        Shape [rows].
        """
        texts = [text.strip() for text in self.columns[column]]
        wrong = np.array([bool(text) and not (text[0] == "[" and text[-1] == "]") for text in texts], np.bool_)
        self.refuse(wrong, column, "is no list", "a list of hashes such as [17, 18], or nothing")
        found = np.empty(len(texts), np.object_)
        found[:] = [text[1:-1] for text in texts]
        return found

    def requests(self, release_us: Ints, model: Texts, runtime_us: Ints, **columns: Any) -> Requests:
        """Return the rows that are kept as requests; columns as in `Requests`, each of shape [rows]."""
        return Requests(release_us, model, runtime_us, file=self.file, line=self.line, **columns).at(self.kept)

    def settle(self) -> None:
        """Tell the tally what was left out and refused.

        Raises
        ------
        InputError
            For the earliest refused row, unless the tally skips malformed rows.
        """
        self.tally.read += len(self.line) + len(self.broken)
        for reason, rows in self._left_out:
            self.tally.left_out[reason] += rows
        # In order of lines: the error that is shown is that of the first wrong row.
        for refusal in sorted((*self.broken, *self._refused), key=lambda refusal: refusal.error.line or 0):
            self.tally.refuse(*refusal)

    def _each(
        self, column: str, read: Callable[[str], int], within: tuple[int, int], problem: str, allowed: str
    ) -> Ints:
        """Return the whole number that `read` makes of each distinct text; refuse what is none, or out of range."""
        codes, texts = pd.factorize(self.columns[column])
        least, most = within
        values, good = np.full(len(texts), least, np.int64), np.zeros(len(texts), np.bool_)
        for index, text in enumerate(texts):
            try:
                value = read(text)
            except ValueError:
                continue
            if least <= value <= most:
                values[index], good[index] = value, True
        self.refuse(~good[codes], column, problem, allowed)
        return np.asarray(values[codes], np.int64)


def _duration(text: str, unit: str) -> int:
    """Return a plain number of a unit, or a clock, in microseconds.

    >>> _duration("1.5", "ms"), _duration("1-00:00:10", "ms"), _duration("01:30", "ms")
    (1500, 86410000000, 90000000)
    """
    if ":" not in text:
        return microseconds(text, unit)
    clock = _CLOCK.fullmatch(text)
    if clock is None:
        raise ValueError(text)
    days, hours, minutes = (int(part or 0) for part in clock.groups()[:3])
    return (days * 24 + hours) * 3_600_000_000 + minutes * 60_000_000 + microseconds(clock[4], "s")


def _gpus(text: str) -> int:
    """Return a number of GPUs; what is empty, and resources without GPUs, have none.

    >>> _gpus("4"), _gpus("cpu=8,gres/gpu:a100=2,gres/gpu=2"), _gpus("gpu:a100:2"), _gpus("cpu=8")
    (4, 2, 2, 0)

    What Slurm cut off behind a + is not known to be no GPU.

    >>> _gpus("cpu=8,gres/gpu=2,no+")
    2
    """
    if text.endswith("+"):
        text = text.rpartition(",")[0]
        if "gpu" not in text.lower():
            raise ValueError(text)
    if "gpu" not in text.lower():
        return 0 if not text.strip() or "=" in text else _whole(text)
    counts = {kind: int(count) for kind, count in re.findall(r"gpu(:[^=,:(]+)?[=:](\d{1,9})", text.lower())}
    return counts.get("", sum(counts.values()))


def _whole(text: str) -> int:
    match = _WHOLE.fullmatch(text)
    if match is None:
        raise ValueError(text)
    return int(match[1])


@dataclass(slots=True)
class Tally:
    """Counts over all files of an import.

    Parameters
    ----------
    skip_malformed
        Whether malformed rows are counted by reason; otherwise the first of them is an error.

    Attributes
    ----------
    read
        Rows, without headers and blank lines.
    left_out
        Well-formed rows that are no part of the workload, by reason.
    refused
        Malformed rows, by reason.
    notes
        What a reader found out and a person should know, such as a median it measured.
    warnings
        What may make a scenario another one than the log: rows that were dropped, jobs that were split.
    zoned
        Whether the first date read has a zone; None before there is one.
    """

    skip_malformed: bool = False
    read: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    zoned: bool | None = None

    def refuse(self, error: InputError, reason: str, rows: int = 1) -> None:
        """Count malformed rows of which `error` describes the first.

        Raises
        ------
        InputError
            That error, unless malformed rows are skipped.
        """
        if not self.skip_malformed:
            raise error
        self.refused[reason] += rows


def join_names(rows: Rows, first: str, second: str) -> Texts:
    """Return ``first/second`` for each row, and refuse rows whose name would be longer than `LONGEST_NAME`."""
    joined: Texts = rows.names(first) + "/" + rows.names(second)
    lengths = np.fromiter(map(len, joined), np.int64, len(joined))
    problem = f"makes a name of more than {LONGEST_NAME} characters together with {first}"
    rows.refuse(lengths > LONGEST_NAME, second, problem, "a shorter one")
    return joined
