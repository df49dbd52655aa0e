"""What an estimate of a run time says, and the one question that every estimator answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

Features = Mapping[str, object]
"""What is known of a task before it runs: a value per column of the history; None or no entry where it is unknown."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A run time that is not known exactly.

    Parameters
    ----------
    p10_us, p50_us, p90_us
        Quantiles in microseconds, at least 1 and in this order: 80 % of run times are meant to lie between the
        outer two, and half of them below the middle one.
    source
        Name of the rung of the ladder that answered.
    confidence
        Share, 0 to 1, of past tasks answered from this source whose run time lay within a factor of two of p50;
        1 for a measured profile, 0 where nothing is known.
    neighbours
        Keys of the past tasks that the estimate rests on, nearest first; empty where it rests on a fit.

    Raises
    ------
    ValueError
        If the quantiles are out of order or below 1 us, or the confidence is no share.
    """

    p10_us: int
    p50_us: int
    p90_us: int
    source: str
    confidence: float = 0.0
    neighbours: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= self.p10_us <= self.p50_us <= self.p90_us:
            raise ValueError(
                f"quantiles {self.p10_us}, {self.p50_us}, {self.p90_us} us must be at least 1 and in ascending order"
            )
        if not 0 <= self.confidence <= 1:
            raise ValueError(f"confidence {self.confidence} must lie between 0 and 1")


class Estimator(Protocol):
    """Whoever can say how long a task will run."""

    def predict(self, task: Features) -> Estimate:
        """Return the estimate of a task of which only its features are known."""
        ...
