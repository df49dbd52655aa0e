"""What a log says, in words."""

from __future__ import annotations

from models.cluster import MICROSECONDS_PER_SECOND
from planner.inputs.estimate.logs.progress import Remaining
from planner.inputs.estimate.logs.reading import LogReading


def describe_log(reading: LogReading) -> str:
    """Return what a log says, a line each for progress, speed, remaining time and failure."""
    share = "" if reading.fraction is None else f", {reading.fraction:.1%} done"
    parts = [f"{reading.state}{share}"]
    for count in reading.counts:
        of = "" if count.total is None else f" of {count.total:g}"
        parts.append(f"{count.done:g}{of} {count.unit}s, line {count.line}")
    if reading.rates:
        parts.append(", ".join(f"{rate.per_second:.4g} {rate.unit}s/s" for rate in reading.rates))
    if reading.state == "unfinished":
        parts.append(f"remaining: {_left(reading.remaining)}")
    failure = reading.failure
    if failure is not None:
        again = "may succeed if started again" if failure.retry else "fails again unless something is changed"
        where = ", ".join(map(str, failure.lines))
        parts += [f"{failure.failure}: {failure.reason}", f"line {where}; {again}"]
    return "\n".join(parts)


def _left(remaining: Remaining | None) -> str:
    if remaining is None:
        return "cannot be known from this log"
    if remaining.low_us is None or remaining.high_us is None:
        return f"{_duration(remaining.expected_us)}; too little is logged for an interval"
    low, high = _duration(remaining.low_us), _duration(remaining.high_us)
    return f"{_duration(remaining.expected_us)}, from {low} to {high} at the recent window's fast and slow pace"


def _duration(microseconds: int) -> str:
    """Return a time as a person says it.

    >>> _duration(1_500_000), _duration(3_725_000_000)
    ('1.5 s', '62 min')
    """
    seconds = microseconds / MICROSECONDS_PER_SECOND
    if seconds < 120:
        return f"{seconds:.3g} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02d} min"
