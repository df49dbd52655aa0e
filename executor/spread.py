"""How long something took, over and over: all samples, and the quantiles that are asked of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from models.slo import quantile_rank


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
