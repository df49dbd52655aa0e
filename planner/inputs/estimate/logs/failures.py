"""What lines say about failures: a table from patterns to classes (`causes.toml`), root causes before consequences.

A failure of one rank makes the others fail as well, in other words. So patterns have a weight, and the heaviest
decides; among equals the first line, since what follows it is mostly its consequence:

1. the definite: out of memory, on a GPU or on the host, and what a cluster manager says that it did to the job;
2. errors of CUDA and of the data, and Python exceptions of the job's own code;
3. symptoms that something else often causes: NCCL errors and time-outs, signals;
4. consequences: what a launcher says about processes that have failed, and errors of no known kind.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from importlib.resources import files
from typing import Annotated

from pydantic import BeforeValidator, TypeAdapter

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
