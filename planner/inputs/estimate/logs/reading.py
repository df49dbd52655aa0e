"""From a job's log to its progress, the time it still needs, and why it failed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from models.cluster import MICROSECONDS_PER_SECOND
from planner.inputs.estimate.logs.failures import Judge, LogFailure
from planner.inputs.estimate.logs.lines import CUE, END, HINT, Words, read_lines
from planner.inputs.estimate.logs.marks import LogClock, Rate, said
from planner.inputs.estimate.logs.progress import Count, Remaining, Tracker
from planner.inputs.importers.source import open_bytes


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
    rates: tuple[Rate, ...]
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
    messages is the root cause, stands in `planner.inputs.estimate.logs.failures`; an error after which the
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
    tracker, judge, clock, words, finished, number = Tracker(steps, epochs), Judge(), LogClock(), Words(), False, 0
    with open_bytes(Path(path)) as (file, raw):
        for number, text in read_lines(file, str(path), lambda read: watch(raw.tell() if raw.seekable() else read)):
            lowered = text.lower()
            held = words.held_by(lowered)
            if held & CUE:
                heard = said(lowered)
                if heard.marks or heard.rate is not None or heard.total is not None:
                    tracker.note(number, heard, clock.read_us(text))
            if held & HINT:
                judge.note(number, text, lowered, tracker.advances)
            finished = finished or bool(held & END)
    overall = tracker.overall()
    fraction = None if overall is None else min(1.0, overall[1] / overall[2])
    failure = judge.verdict(tracker.advances)
    finished = failure is None and (finished or fraction == 1)
    remaining = Remaining(0, 0, 0) if finished else None if failure else tracker.remaining()
    return LogReading(number, tracker.counts(), fraction, remaining, tracker.rates(), finished, failure)


def _seconds(microseconds: int | None) -> float | None:
    return None if microseconds is None else microseconds / MICROSECONDS_PER_SECOND
