"""Times in a line: when it was written, and how long something took or will take."""

from __future__ import annotations

import re
from datetime import datetime

from models.cluster import MICROSECONDS_PER_SECOND

_WITHIN = 80
"""A time stamp stands near the start of a line."""
_DATE = re.compile(r"(?<!\d)(\d{4})[-/](\d\d)[-/](\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,6}))?(?!\d)")
_AMERICAN = re.compile(r"(?<!\d)(\d\d)/(\d\d)/(\d{4}) (\d\d):(\d\d):(\d\d)(?:[.,](\d{1,6}))?(?!\d)")
_SPAN = re.compile(r"(?:(\d{1,4}) days?, )?(?:(\d{1,5}):)?(\d{1,3}):(\d\d)")


def written_us(text: str) -> int | None:
    """Return the date and time at the start of a line, in microseconds since an epoch; None if there is none.

    >>> written_us("2026-11-21 00:00:01,5 step 3") - written_us("[11/21/2026 00:00:00] start")
    1500000
    """
    head = text[:_WITHIN]
    if ":" not in head:
        return None
    if found := _DATE.search(head):
        year, month, day = found[1], found[2], found[3]
    elif found := _AMERICAN.search(head):
        month, day, year = found[1], found[2], found[3]
    else:
        return None
    try:
        moment = datetime.fromisoformat(f"{year}-{month}-{day}T{found[4]}:{found[5]}:{found[6]}+00:00")
    except ValueError:
        return None
    return int(moment.timestamp()) * MICROSECONDS_PER_SECOND + int((found[7] or "").ljust(6, "0"))


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
