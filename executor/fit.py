"""A line through measured times: what a copy costs before its first byte, and how fast the bytes then go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_US_PER_S = 1_000_000


@dataclass(frozen=True, slots=True)
class Line:
    """Time as overhead plus size over bandwidth.

    Parameters
    ----------
    overhead_us
        At size 0, in microseconds; never negative.
    bandwidth
        Bytes per second.
    """

    overhead_us: float
    bandwidth: float

    def time_us(self, size_bytes: int) -> float:
        """Return the time that a size takes in microseconds.

        >>> Line(10.0, 1e9).time_us(5000)
        15.0
        """
        return self.overhead_us + size_bytes / self.bandwidth * _US_PER_S


def fit_line(samples: Sequence[tuple[int, float]]) -> Line:
    """Return the line whose relative errors have the least sum of squares, so that small sizes count as much as large.

    Samples that do not tell overhead from bandwidth, such as those of one size, give a line without overhead.

    Parameters
    ----------
    samples
        Sizes in bytes, above 0, and times in microseconds, above 0.

    Raises
    ------
    ValueError
        If there is no sample.

    >>> line = fit_line([(1_000_000, 120.0), (5_000_000, 520.0)])
    >>> round(line.overhead_us, 6), round(line.bandwidth)
    (20.0, 10000000000)
    """
    if not samples:
        raise ValueError("no sample to fit a line through; allowed is one or more")
    # Weighted normal equations of (overhead + slope x size - time) / time.
    ones = sum(1 / time**2 for _, time in samples)
    sizes = sum(size / time**2 for size, time in samples)
    squares = sum(size**2 / time**2 for size, time in samples)
    times = sum(1 / time for _, time in samples)
    products = sum(size / time for size, time in samples)
    determinant = ones * squares - sizes**2
    if len({size for size, _ in samples}) > 1 and determinant > 0:
        overhead = (squares * times - sizes * products) / determinant
        slope = (ones * products - sizes * times) / determinant
        if overhead > 0 and slope > 0:
            return Line(overhead, _US_PER_S / slope)
    return Line(0.0, _US_PER_S * squares / products)
