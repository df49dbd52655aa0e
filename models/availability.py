"""When a GPU is there: the intervals between its coming and its going (rule A1)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

FOREVER = 1 << 60
"""Stands for an interval without an end: later than any time, and small enough for a run time to be added."""

Interval = tuple[int, int]
"""From when until when, half-open, in microseconds."""


@dataclass(frozen=True, slots=True)
class Availability:
    """Intervals, ascending, with time between each and the next.

    >>> day = Availability.of([(0, 10), (10, 20), (30, FOREVER)])
    >>> day.intervals == ((0, 20), (30, FOREVER))
    True
    >>> day.at(20) is None, day.at(35) == (30, FOREVER), day.available_us(5, 40)
    (True, True, 25)
    """

    intervals: tuple[Interval, ...]

    def __post_init__(self) -> None:
        if not self.intervals or any(begin < 0 or begin >= end for begin, end in self.intervals):
            raise ValueError("availability needs an interval, and each must begin at or after 0 and before its end")
        if any(before[1] >= after[0] for before, after in pairwise(self.intervals)):
            raise ValueError("intervals of availability must ascend, with time between them")

    @classmethod
    def of(cls, intervals: Iterable[Interval]) -> Availability:
        """Return the availability in ascending intervals that do not overlap; those that touch are merged."""
        merged: list[Interval] = []
        for begin, end in intervals:
            if merged and merged[-1][1] == begin:
                merged[-1] = merged[-1][0], end
            else:
                merged.append((begin, end))
        return cls(tuple(merged))

    def without(self, away: Iterable[Interval]) -> Availability:
        """Return what is left outside other intervals.

        >>> Availability.of([(0, 10), (20, 40)]).without([(5, 8), (9, 30)]).intervals
        ((0, 5), (8, 9), (30, 40))

        Raises
        ------
        ValueError
            If nothing is left.
        """
        left = list(self.intervals)
        for gone, back in away:
            cut = [part for begin, end in left for part in ((begin, min(end, gone)), (max(begin, back), end))]
            left = [(begin, end) for begin, end in cut if begin < end]
        return Availability(tuple(left))

    @property
    def always(self) -> bool:
        """Whether the GPU is always there."""
        return self.intervals == ((0, FOREVER),)

    def at(self, instant: int) -> Interval | None:
        """Return the interval that an instant lies in, or None."""
        return next((interval for interval in self.intervals if interval[0] <= instant < interval[1]), None)

    def holds(self, begin: int, end: int) -> bool:
        """Say whether one interval holds all of [begin, end)."""
        return any(first <= begin and end <= last for first, last in self.intervals)

    def absences(self, until: int) -> list[Interval]:
        """Return when the GPU is away before a time.

        >>> Availability.of([(2, 5), (9, FOREVER)]).absences(20)
        [(0, 2), (5, 9)]
        """
        ends = [0, *(end for _, end in self.intervals)]
        begins = [*(begin for begin, _ in self.intervals), until]
        return [(gone, min(back, until)) for gone, back in zip(ends, begins, strict=True) if gone < min(back, until)]

    def available_us(self, begin: int, end: int) -> int:
        """Return for how long of [begin, end) the GPU is there."""
        return sum(max(0, min(last, end) - max(first, begin)) for first, last in self.intervals)


ALWAYS = Availability(((0, FOREVER),))
"""From 0 on, for ever."""
