"""Measured times: their quantiles, and the line through them that tells what a copy costs before its first byte."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from truenorth.models.slo import quantile_rank


@dataclass(frozen=True, slots=True)
class Spread:
    """Samples of a time in microseconds, ascending; at least one."""

    samples_us: tuple[float, ...]

    @classmethod
    def of(cls, samples_us: Iterable[float]) -> Spread:
        """Return the spread of samples in any order."""
        return cls(tuple(sorted(samples_us)))

    def quantile_us(self, level: Fraction) -> float:
        """Return a quantile; p_q is the ceil(q n)-th smallest.

        >>> Spread.of([4.0, 1.0, 2.0, 3.0]).quantile_us(Fraction(1, 2))
        2.0
        """
        return self.samples_us[quantile_rank(level, len(self.samples_us))]

    @property
    def median_us(self) -> float:
        """The median."""
        return self.quantile_us(Fraction(1, 2))

    @property
    def p95_us(self) -> float:
        """The 95th percentile."""
        return self.quantile_us(Fraction(95, 100))


_US_PER_S = 1_000_000
_REPETITIONS = 20


@dataclass(frozen=True, slots=True)
class FittedLine:
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

        >>> FittedLine(10.0, 1e9).time_us(5000)
        15.0
        """
        return self.overhead_us + size_bytes / self.bandwidth * _US_PER_S


def fit_line(samples: Sequence[tuple[int, float]]) -> FittedLine:
    """Return the line from which samples differ least in proportion, so that small sizes count as much as large ones.

    Least squares, each error divided by the line's own time, which is found by repetition. Samples that do not tell
    overhead from bandwidth, such as those of one size, give a line without overhead.

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
    through_zero = FittedLine(0.0, _US_PER_S * len(samples) / sum(time / size for size, time in samples))
    if len({size for size, _ in samples}) == 1:
        return through_zero
    line = through_zero
    for _ in range(_REPETITIONS):
        overhead, slope = _fit_weighted(samples, [line.time_us(size) ** -2 for size, _ in samples])
        if overhead <= 0 or slope <= 0:
            return through_zero
        line = FittedLine(overhead, _US_PER_S / slope)
    return line


def _fit_weighted(samples: Sequence[tuple[int, float]], weights: Sequence[float]) -> tuple[float, float]:
    """Return overhead and microseconds per byte of the line of least squares."""
    total = sum(weights)
    mean_size = sum(weight * size for weight, (size, _) in zip(weights, samples, strict=True)) / total
    mean_time = sum(weight * time for weight, (_, time) in zip(weights, samples, strict=True)) / total
    pairs = [
        (weight, size - mean_size, time - mean_time) for weight, (size, time) in zip(weights, samples, strict=True)
    ]
    slope = sum(weight * size * time for weight, size, time in pairs) / sum(
        weight * size**2 for weight, size, _ in pairs
    )
    return mean_time - slope * mean_size, slope
