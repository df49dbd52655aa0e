"""Times in a line: when it was written, and how long something took or will take."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from models.cluster import MICROSECONDS_PER_SECOND

_WITHIN = 80
"""A time stamp stands near the start of a line."""
_TIME = r"(\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(?!\d)"
_DATE = re.compile(r"(?<!\d)(\d{4})[-/](\d\d)[-/](\d\d)[T ]" + _TIME + r"(?: ?(Z|[+-]\d\d:?\d\d)(?![\d:]))?")
_AMERICAN = re.compile(r"(?<!\d)(\d\d)/(\d\d)/(\d{4}) " + _TIME)
_TIME_ALONE = re.compile(r"[\s\[(<]{0,4}(?:(?:DEBUG|INFO|WARN|WARNING|ERROR)\b[\s:|\[(-]{0,4})?" + _TIME + r"(?!:)")
_SPAN = re.compile(r"(?:(\d{1,4}) days?, )?(?:(\d{1,5}):)?(\d{1,3}):(\d\d)")
_HOUR_US = 3_600 * MICROSECONDS_PER_SECOND
_DAY_US = 24 * _HOUR_US
_SUNDAY = 6
_LATEST_CHANGE = 5
"""Clocks change in the night to a Sunday, before this hour."""
_UNUSUAL = 4
"""A step is a change of clocks if without the hour it is at most so many times the longest before it, and a minute."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """When a line was written.

    Parameters
    ----------
    us
        Microseconds since 1970, by the clock that the line was written by, or since midnight.
    dated
        Whether it has a date.
    zoned
        Whether it says its zone, and counts in UTC.
    """

    us: int
    dated: bool
    zoned: bool


def read_stamp(text: str) -> Stamp | None:
    """Return the time at the start of a line; None if there is none.

    >>> read_stamp("2026-03-29T03:00:01,5+02:00 step 3").us - read_stamp("2026-03-29 00:59:59Z start").us
    2500000
    >>> read_stamp("[00:00:07] step 4")
    Stamp(us=7000000, dated=False, zoned=False)
    """
    head = text[:_WITHIN]
    if ":" not in head:
        return None
    zone = None
    if found := _DATE.search(head):
        (year, month, day), time, zone = found.group(1, 2, 3), found.group(4, 5, 6, 7), found[8]
    elif found := _AMERICAN.search(head):
        (month, day, year), time = found.group(1, 2, 3), found.group(4, 5, 6, 7)
    elif found := _TIME_ALONE.match(head):
        year, month, day, time = "1970", "01", "01", found.group(1, 2, 3, 4)
    else:
        return None
    hour, minute, second, part = time
    try:
        moment = datetime.fromisoformat(f"{year}-{month}-{day}T{hour}:{minute}:{second}{zone or '+00:00'}")
    except ValueError:
        return None
    us = int(moment.timestamp()) * MICROSECONDS_PER_SECOND + int((part or "").ljust(6, "0")[:6])
    return Stamp(us, found.re is not _TIME_ALONE, zone is not None)


class LogClock:
    """The time that passes from line to line: midnights and changes of clocks are no progress, and no standstill.

    The first stamp says what sort the log's are; others are ignored.
    """

    def __init__(self) -> None:
        self._sort: tuple[bool, bool] | None = None
        self._last_us: int | None = None
        self._longest_us = self._shift_us = 0

    def read_us(self, text: str) -> int | None:
        """Return when a line was written, in microseconds since any one moment; None if it does not say."""
        stamp = read_stamp(text)
        if stamp is None or (stamp.dated, stamp.zoned) != (self._sort or (stamp.dated, stamp.zoned)):
            return None
        self._sort = stamp.dated, stamp.zoned
        if self._last_us is not None:
            step_us = stamp.us + self._shift_us - self._last_us
            if not stamp.dated and step_us < -_DAY_US // 2:
                self._shift_us += _DAY_US
            elif stamp.dated and not stamp.zoned and self._changed(stamp, step_us):
                self._shift_us -= _HOUR_US if step_us > 0 else -_HOUR_US
            self._longest_us = max(self._longest_us, stamp.us + self._shift_us - self._last_us)
        self._last_us = stamp.us + self._shift_us
        return self._last_us

    def _changed(self, stamp: Stamp, step_us: int) -> bool:
        """Say whether clocks were put forward or back by an hour between the line before and this one."""
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=stamp.us)
        if moment.weekday() != _SUNDAY or moment.hour >= _LATEST_CHANGE:
            return False
        without_us = step_us - _HOUR_US if step_us > 0 else step_us + _HOUR_US
        return abs(step_us) > _HOUR_US // 2 and 0 <= without_us <= self._usual_us

    @property
    def _usual_us(self) -> int:
        return _UNUSUAL * min(self._longest_us, _HOUR_US // 8) + 60 * MICROSECONDS_PER_SECOND


def span_us(text: str) -> int | None:
    """Return a duration such as ``01:30``, ``6:28:43`` or ``1 day, 0:00:01`` in microseconds; None if it is none.

    >>> span_us("01:30"), span_us("6:28:43"), span_us("?")
    (90000000, 23323000000, None)
    """
    found = _SPAN.fullmatch(text)
    if found is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * MICROSECONDS_PER_SECOND
