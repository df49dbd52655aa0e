"""Confidence intervals of means over few replications, by the bootstrap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import sqrt
from statistics import NormalDist

import numpy as np

from truenorth.models.record import key

LEVEL = 0.95
"""How often such an interval holds the mean of all replications that could be drawn."""
_RESAMPLES = 10_000
_STUDENT = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131),
    *(2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
"""Quantiles of Student's t at 0.975 for 1 to 30 degrees of freedom."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean, and the ends of its interval; None for the ends where there is a single value, for all without any."""

    mean: float | None = field(metadata=key(""))
    low: float | None = field(metadata=key("_low"))
    high: float | None = field(metadata=key("_high"))

    @property
    def ends(self) -> str | None:
        """The ends in words."""
        return None if self.low is None or self.high is None else f"{self.low:.4g} to {self.high:.4g}"

    def __str__(self) -> str:
        """Say the mean with its interval.

        >>> str(Interval(2.0, 1.51, 2.6))
        '2 [1.51, 2.6]'
        """
        if self.mean is None:
            return "-"
        return f"{self.mean:.4g}" if self.low is None else f"{self.mean:.4g} [{self.low:.4g}, {self.high:.4g}]"


NO_INTERVAL = Interval(None, None, None)


def interval_of(values: Sequence[float]) -> Interval:
    """Return the mean of values and its expanded percentile interval; the same for the same values.

    Means of resamples scatter too little where values are few: the quantiles are those for which the interval of
    normally distributed values is Student's (Hesterberg, What teachers should know about the bootstrap, 2015).

    >>> interval_of([3.0])
    Interval(mean=3.0, low=None, high=None)
    """
    count, mean = len(values), float(np.mean(values))
    if count < 2:
        return Interval(mean, None, None)
    drawn = np.random.default_rng(0).integers(count, size=(_RESAMPLES, count))
    means = np.array(values)[drawn].mean(axis=1)
    student = _STUDENT[count - 2] if count < len(_STUDENT) + 2 else 1.96 + 2.4 / (count - 1)
    tail = NormalDist().cdf(-student * sqrt(count / (count - 1)))
    low, high = np.quantile(means, [tail, 1 - tail]).tolist()
    return Interval(mean, low, high)
