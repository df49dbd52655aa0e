"""The axes of a figure: from values to pixels, and where the ticks stand."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 10, 44
_TICKS = 6
_LEADING_DIGITS = (
    (1,),
    (1, 3),
    (1, 2, 5),
    (1, 1.5, 2, 3, 5, 7),
    (1, 1.1, 1.2, 1.3, 1.5, 1.7, 2, 2.5, 3, 4, 5, 6, 7, 8),
)
"""Marks of a decade on a logarithmic axis, ever more of them."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A range of values and the pixels that it covers.

    Parameters
    ----------
    low, high
        The values at its ends; above 0 on a logarithmic axis.
    first, last
        The pixels at its ends.
    """

    low: float
    high: float
    first: float
    last: float
    logarithmic: bool = False

    def at(self, value: float) -> float:
        """Return the pixel of a value, to a tenth; a value beyond an end stands at that end."""
        low, high, here = self.low, self.high, min(max(value, self.low), self.high)
        if self.logarithmic:
            low, high, here = math.log(low), math.log(high), math.log(here)
        return round(self.first + (self.last - self.first) * (here - low) / (high - low), 1)

    def ticks(self, percent: bool = False) -> list[tuple[float, str]]:
        """Return round values of the range with their pixels, as shares in per cent if wanted."""
        marks = _decades(self.low, self.high) if self.logarithmic else _steps(self.low, self.high)
        return [(self.at(mark), f"{100 * mark:g}%" if percent else f"{mark:g}") for mark in marks]


def horizontal(values: Iterable[float], logarithmic: bool = False) -> Axis:
    """Return the axis from left to right that shows all values."""
    return _around(list(values), LEFT, WIDTH - RIGHT, logarithmic)


def vertical(values: Iterable[float], logarithmic: bool = False) -> Axis:
    """Return the axis from bottom to top that shows all values."""
    return _around(list(values), HEIGHT - BOTTOM, TOP, logarithmic)


def _around(values: Sequence[float], first: float, last: float, logarithmic: bool) -> Axis:
    low, high = min(values), max(values)
    if low == high:
        high = low + (abs(low) or 1.0)
    return Axis(low, high, first, last, logarithmic)


def _steps(low: float, high: float) -> list[float]:
    """Return multiples of 1, 2 or 5 times a power of ten, at most `_TICKS` and one."""
    rough = (high - low) / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(index * step, 12) for index in range(first, last + 1)]


def _decades(low: float, high: float) -> list[float]:
    """Return the coarsest marks of the decades of which at least three, but not too many, lie in the range."""
    powers = range(math.floor(math.log10(low)), math.floor(math.log10(high)) + 1)
    marks: list[float] = []
    for digits in _LEADING_DIGITS:
        finer = [digit * 10.0**power for power in powers for digit in digits if low <= digit * 10.0**power <= high]
        if len(finer) > 2 * _TICKS:
            return marks or finer[:: len(finer) // _TICKS]
        marks = finer
        if len(marks) >= _TICKS // 2:
            return marks
    return marks if len(marks) > 1 else [low, high]
