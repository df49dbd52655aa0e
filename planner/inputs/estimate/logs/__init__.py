"""From a job's log, line by line, to its progress, the time it still needs, and why it failed.

Lines are of bounded length, however large the file; carriage returns, ANSI codes and any bytes are no obstacle. Words
are looked for of progress, of failures, and of the end. A log repeats itself: most of its lines differ from others in
their digits alone, and no word here has any. So what a line holds is looked up by the line with all digits alike, and
lines are searched once per sort.

What lines say about failures is a table from patterns to classes (`causes.toml`), root causes before consequences. A
failure of one rank makes the others fail as well, in other words. So patterns have a weight, and the heaviest decides;
among equals the first line, since what follows it is mostly its consequence:

1. the definite: out of memory, on a GPU or on the host, and what a cluster manager says that it did to the job;
2. errors of CUDA and of the data, and Python exceptions of the job's own code;
3. symptoms that something else often causes: NCCL errors and time-outs, signals;
4. consequences: what a launcher says about processes that have failed, and errors of no known kind.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from enum import IntEnum, StrEnum
from importlib.resources import files
from io import BufferedIOBase
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, TypeAdapter

from truenorth.models.cluster import MICROSECONDS_PER_SECOND
from truenorth.models.scenario import InputError
from truenorth.planner.inputs.estimate.logs.marks import LogClock, SpeedSaid, said
from truenorth.planner.inputs.estimate.logs.progress import Count, Remaining, Tracker
from truenorth.planner.inputs.importers.csv_files import open_bytes

MOST_LINES = 5
"""Lines of evidence that a failure names."""
WENT_ON = 3
"""A job that gets further so often after an error has survived it; other ranks may still report a step or two."""
_TRACEBACK_LINES = 300
_LONGEST_QUOTE = 160
_EXCEPTION = re.compile(
    r"^(?:\[[\w:., -]{1,40}\]:?\s?|\d{1,4}: ?){0,2}(?:[A-Za-z_]\w{0,60}\.){0,8}"
    r"([A-Z]\w{0,60}(?:Error|Exception|Exit|Exhausted|NotFound|StopIteration|Failure))(?::|$)"
)
_CONSEQUENCES = frozenset(
    (
        "OSError", "TimeoutError", "BrokenPipeError", "ConnectionResetError", "ConnectionAbortedError", "EOFError",
        "ConnectionRefusedError", "SystemExit", "ProcessRaisedException", "ProcessExitedException", "CancelledError",
    )
)  # fmt: skip
_PATTERN = re.compile("")


class FailureClass(StrEnum):
    """What made a job fail."""

    OUT_OF_MEMORY = "out of memory"
    NCCL = "nccl"
    CUDA = "cuda"
    DATA = "data"
    KILLED = "killed"
    USER_ERROR = "user error"
    UNKNOWN = "unknown"


class Weight(IntEnum):
    """How close to the root a pattern is; lower ones decide."""

    DEFINITE = 1
    ERROR = 2
    SYMPTOM = 3
    CONSEQUENCE = 4


@dataclass(frozen=True, slots=True)
class Cause:
    """A pattern and what it means.

    Parameters
    ----------
    pattern
        Bounded, so that no line takes long.
    words
        In lower case; what matches holds one of them, and other lines are not matched at all.
    retry
        Whether the same job may succeed if it is started again, unchanged.
    reason
        What happened, in a few words.
    """

    pattern: Annotated[re.Pattern[str], BeforeValidator("".join)]
    words: tuple[str, ...]
    failure: FailureClass
    weight: Weight
    retry: bool
    reason: str


CAUSES = TypeAdapter(tuple[Cause, ...]).validate_python(
    tomllib.loads(files("truenorth.planner.inputs.estimate.logs").joinpath("causes.toml").read_text())["cause"]
)
"""In the order in which they are tried; the first that fits a line counts."""
HINTS = (
    "error", "memory", "kill", "oom", "nccl", "xid", "exception", "sig", "preempt", "limit", "cancelled", "fail",
    "assert", "timeout", "timed out", "interrupt", "bad_alloc", "fault", "closed by", "stuck", "exhausted", "no space",
    "quota", "stale", "endpoint", "corrupt", "truncated", "ran out", "exit", "walltime", "terminated", "kernel image",
    "insufficient", "found no", "no cuda", "ordinal", "not compiled", "the bus", "ecc", "busy", "is lost", "gloo",
    "badzip", "arrowinvalid", "not found", "can't open", "core dumped", "cache blocks", "traceback", "errno", "spot ",
    "_status",
)  # fmt: skip
"""In lower case; a line with none of them holds no word of any cause, so most lines are not looked at twice."""


_USER = Cause(_PATTERN, (), FailureClass.USER_ERROR, Weight.ERROR, False, "the job's own code raised an exception")
_OTHER = Cause(
    _PATTERN, (), FailureClass.UNKNOWN, Weight.CONSEQUENCE, False, "an exception that may follow from another"
)


@dataclass(frozen=True, slots=True)
class LogFailure:
    """Why a job failed.

    Parameters
    ----------
    failure
        The class.
    retry
        Whether the same job may succeed if it is started again, unchanged.
    reason
        One line: what happened, and the line of the log that says so.
    lines
        Where the log says so, at most `MOST_LINES`, the first one first.
    """

    failure: FailureClass
    retry: bool
    reason: str
    lines: tuple[int, ...]


@dataclass(slots=True)
class _Symptoms:
    """Lines that one cause explains, and how far the job had got at the last of them."""

    cause: Cause
    text: str
    advances: int
    lines: list[int] = field(default_factory=list)


class Judge:
    """Gathers evidence line by line, in bounded memory."""

    def __init__(self) -> None:
        self._found: dict[Cause, _Symptoms] = {}
        self._traceback_until = 0

    def note(self, number: int, text: str, lowered: str, advances: int) -> None:
        """Take note of a line that holds one of the `HINTS`, given how often the job has got further so far."""
        if "Traceback (most recent call last)" in text:
            self._traceback_until = number + _TRACEBACK_LINES
            return
        cause = self._cause(number, text, lowered)
        if cause is None:
            return
        evidence = self._found.get(cause)
        if evidence is None or advances - evidence.advances >= WENT_ON:
            self._found.pop(cause, None)
            evidence = self._found[cause] = _Symptoms(cause, text, advances)
        evidence.advances = advances
        if len(evidence.lines) < MOST_LINES and number not in evidence.lines:
            evidence.lines.append(number)

    def _cause(self, number: int, text: str, lowered: str) -> Cause | None:
        for cause in CAUSES:
            if any(word in lowered for word in cause.words) and cause.pattern.search(text):
                return cause
        exception = _EXCEPTION.match(text) if number <= self._traceback_until else None
        if exception is None:
            return None
        return _OTHER if exception[1] in _CONSEQUENCES else _USER

    def verdict(self, advances: int) -> LogFailure | None:
        """Return the failure closest to the root, of those that the job did not survive; None if there is none."""
        left = [each for each in self._found.values() if advances - each.advances < WENT_ON]
        if not left:
            return None
        root = min(left, key=lambda each: (each.cause.weight, each.lines[0]))
        said = " ".join(root.text.split())
        quote = said if len(said) <= _LONGEST_QUOTE else said[:_LONGEST_QUOTE] + "..."
        return LogFailure(root.cause.failure, root.cause.retry, f"{root.cause.reason}: {quote}", tuple(root.lines))


MAX_LINE = 4_000
"""What stands further right in a line is not read."""
LONGEST_LINE = 64 << 20
"""A line of more bytes is no line of a log; without a limit a device of zeros would be read for ever."""
_CHUNK = 1 << 20
_ANSI = re.compile(
    r"\x1b(?:\[[0-?]{0,32}[ -/]{0,4}[@-~]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|[PX^_][^\x1b]{0,200}\x1b\\|[@-OQ-WYZ\\])"
)
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_CONTROL_BYTES = bytes({*range(0x20), 0x7F} - set(b"\t\n\r"))
_CUES = ("%|", "step", "iter", "epoch", "batch", "update", "it/s", "/s", "per second", "per_second", "s/it", "[=", "━")
_FINISHED = ("train_runtime", "training completed", "training complete", "training finished", "training done")
_ALIKE = bytes.maketrans(b"123456789", b"000000000")
CUE, HINT, END = 1, 2, 4
"""What a line holds, as flags: a word of progress, one of failures, one that says that the job is through."""
_MOST_SORTS = 20_000
_LONGEST = 400
"""Longer lines are hardly of a sort."""


@dataclass(frozen=True, slots=True)
class LogReading:
    """What a log says.

    Parameters
    ----------
    lines
        Lines of the log.
    counts
        Steps and epochs, each as the log states it last.
    fraction
        Share of the whole job that is done; None if the log leaves it open.
    remaining
        Time until the end, for the moment of the log's last count; None if it cannot be known, or if
        the job failed.
    rates
        How fast the job goes, in units per second; steps by its own clock where there is one.
    finished
        Whether the log says that the job is through.
    failure
        Why it failed; None if nothing says that it did.
    """

    lines: int
    counts: tuple[Count, ...]
    fraction: float | None
    remaining: Remaining | None
    rates: tuple[SpeedSaid, ...]
    finished: bool
    failure: LogFailure | None

    @property
    def state(self) -> str:
        """``failed``, ``finished`` or ``unfinished``: running, or stopped without a word."""
        return "failed" if self.failure is not None else "finished" if self.finished else "unfinished"

    def as_dict(self) -> dict[str, Any]:
        """Return the reading as ``truenorth progress --json`` prints it."""
        remaining, failure = self.remaining, self.failure
        return {
            "state": self.state,
            "lines": self.lines,
            "counts": [asdict(count) for count in self.counts],
            "fraction": self.fraction,
            "remaining": None
            if remaining is None
            else {
                "low_s": _seconds(remaining.low_us),
                "expected_s": _seconds(remaining.expected_us),
                "high_s": _seconds(remaining.high_us),
            },
            "rates": {rate.unit: rate.per_second for rate in self.rates},
            "failure": None
            if failure is None
            else {
                "class": str(failure.failure),
                "retry": failure.retry,
                "reason": failure.reason,
                "lines": list(failure.lines),
            },
        }


def read_log(
    path: str | Path,
    steps: float | None = None,
    epochs: float | None = None,
    watch: Callable[[int], None] = lambda read_bytes: None,
) -> LogReading:
    """Read a log of any size, line by line, in bounded memory.

    Understood are progress bars of tqdm and Keras, ``step 120/1000``, ``Epoch 3/10``, ``Epoch: [3][450/1000]``, what
    the Hugging Face Trainer, Lightning and Megatron print, stated speeds, and time stamps at the start of lines.
    Bars of evaluations, downloads and preparations are left out. What fails, and which of several
    messages is the root cause, stands in `planner.inputs.estimate.logs`; an error after which the
    job got further at least three times counts as survived.

    Parameters
    ----------
    path
        Of the log: text in UTF-8, plain or gzip, with any other bytes replaced.
    steps, epochs
        Totals for a log that does not state them, for instance from a `JobDescription`; what it states counts.
    watch
        Is told how many bytes of the file have been read.

    Raises
    ------
    InputError
        If the file cannot be read, or is a damaged gzip file.
    """
    follower = LogFollower(steps, epochs)
    with open_bytes(Path(path)) as (file, raw):
        for number, text in read_lines(file, str(path), lambda read: watch(raw.tell() if raw.seekable() else read)):
            follower.note(number, text)
    return follower.reading()


class LogFollower:
    """Follows a log line by line, in bounded memory; what it says so far can be asked after every line.

    Parameters
    ----------
    steps, epochs
        As of `read_log`.

    Attributes
    ----------
    clock
        Of the log's time stamps.
    counts
        Lines that say how far the job is.
    """

    def __init__(self, steps: float | None = None, epochs: float | None = None) -> None:
        self.clock = LogClock()
        self._tracker, self._judge, self._words = Tracker(steps, epochs), Judge(), Words()
        self.counts = 0
        self._finished, self._lines = False, 0

    def note(self, number: int, text: str) -> int:
        """Take note of a line; return as flags whether it may say something of progress, a failure, or the end."""
        self._lines, lowered = number, text.lower()
        held = self._words.held_by(lowered)
        if held & CUE:
            heard = said(lowered)
            if heard.marks or heard.rate is not None or heard.total is not None:
                self._tracker.note(number, heard, self.clock.read_us(text))
            self.counts += bool(heard.marks)
        if held & HINT:
            self._judge.note(number, text, lowered, self._tracker.advances)
        self._finished = self._finished or bool(held & END)
        return held

    @property
    def fraction(self) -> float | None:
        """Share of the whole job that is done; None if the log leaves it open."""
        overall = self._tracker.overall()
        return None if overall is None else min(1.0, overall[1] / overall[2])

    @property
    def failure(self) -> LogFailure | None:
        """Why the job failed; None if nothing says that it did."""
        return self._judge.verdict(self._tracker.advances)

    @property
    def finished(self) -> bool:
        """Whether the log says that the job is through."""
        return self.failure is None and (self._finished or self.fraction == 1)

    @property
    def remaining(self) -> Remaining | None:
        """Time until the end, for the moment of the last count; None if it cannot be known, or if the job failed."""
        return Remaining(0, 0, 0) if self.finished else None if self.failure else self._tracker.remaining()

    def reading(self) -> LogReading:
        """Return all that the lines so far say."""
        counts, rates = self._tracker.counts(), self._tracker.rates()
        return LogReading(self._lines, counts, self.fraction, self.remaining, rates, self.finished, self.failure)


def _seconds(microseconds: int | None) -> float | None:
    return None if microseconds is None else microseconds / MICROSECONDS_PER_SECOND


def read_lines(
    file: BufferedIOBase, name: str, watch: Callable[[int], None] | None = None
) -> Iterator[tuple[int, str]]:
    """Yield the number and the text of each line; what a carriage return overwrote counts as a text of its own.

    Lines are counted as editors count them, by line feeds. Bytes that are no UTF-8 are replaced.

    Parameters
    ----------
    file
        Open for reading bytes; never more than about a megabyte of it is held.
    name
        As errors name it.
    watch
        Is told how many bytes have been read from it.

    Raises
    ------
    InputError
        If a line has more than `LONGEST_LINE` bytes.
    """
    number, rest, read, unended, plain = 1, b"", 0, 0, True
    while chunk := file.read(_CHUNK):
        read += len(chunk)
        if watch is not None:
            watch(read)
        plain = plain and len(chunk.translate(None, _CONTROL_BYTES)) == len(chunk)
        pieces = (rest + chunk).splitlines(keepends=True)
        unended = unended + len(chunk) if len(pieces) == 1 else 0
        if unended > LONGEST_LINE:
            raise InputError(name, number, "line", f"is longer than {LONGEST_LINE} bytes; allowed are logs of lines")
        rest = b"" if pieces[-1].endswith((b"\n", b"\r")) else pieces.pop()[:MAX_LINE]
        for piece in pieces:
            text = piece[:MAX_LINE].decode("utf-8", "replace").rstrip() if plain else _clean(piece)
            if text:
                yield number, text
            number += piece.endswith(b"\n")
    text = _clean(rest)
    if text:
        yield number, text


def _clean(piece: bytes) -> str:
    text = piece[:MAX_LINE].decode("utf-8", "replace")
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    return _CONTROL.sub("", text).rstrip()


class Words:
    """Finds words in lines, in bounded memory."""

    def __init__(self) -> None:
        self._known: dict[bytes, int] = {}

    def held_by(self, lowered: str) -> int:
        """Return what a line in lower case holds, as flags."""
        if len(lowered) > _LONGEST:
            return _search(lowered)
        sort = lowered.encode().translate(_ALIKE)
        held = self._known.get(sort)
        if held is None:
            if len(self._known) >= _MOST_SORTS:
                self._known.clear()
            held = self._known[sort] = _search(lowered)
        return held


def _search(lowered: str) -> int:
    held = 0
    for flag, words in ((CUE, _CUES), (HINT, HINTS), (END, _FINISHED)):
        held |= flag if any(word in lowered for word in words) else 0
    return held


__all__ = ["Count", "FailureClass", "LogFailure", "LogFollower", "LogReading", "Rate", "Remaining", "read_log"]
