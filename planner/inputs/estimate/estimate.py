"""What an estimate of a run time says, and who says it: a rung answers what it can of many tasks at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from truenorth.planner.inputs.estimate.known import KnownTimes
from truenorth.planner.inputs.estimate.tasks import Floats, Tasks, Texts


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


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """Quantiles per task, or silence.

    Parameters
    ----------
    quantiles
        10 %, 50 % and 90 % of the log run time in microseconds; NaN where the rung is silent. Shape [tasks, 3].
    neighbours
        Keys of the past tasks behind each answer, a tuple of text each. Shape [tasks].
    """

    quantiles: Floats
    neighbours: Texts

    @classmethod
    def silent(cls, tasks: int) -> Answers:
        """Return no answer to any task."""
        neighbours = np.empty(tasks, np.object_)
        neighbours[:] = [()] * tasks
        return cls(np.full((tasks, 3), np.nan), neighbours)

    @property
    def given(self) -> NDArray[np.bool_]:
        """Which tasks are answered. Shape [tasks]."""
        return ~np.isnan(self.quantiles[:, 1])

    def set(self, rows: NDArray[np.bool_], quantiles: Floats, keys: Texts | None = None) -> None:
        """Answer some tasks; each rests on the past tasks of one key if keys are given. Shape [rows, 3], [rows]."""
        self.quantiles[rows] = np.sort(quantiles, axis=1)
        if keys is not None:
            for row, key in zip(np.flatnonzero(rows), keys, strict=True):
                self.neighbours[row] = (key,)


class Rung(Protocol):
    """A way to estimate: answers what it can, and passes the rest on."""

    @property
    def name(self) -> str:
        """What estimates call their source."""
        ...

    def answer(self, tasks: Tasks, known: KnownTimes) -> Answers:
        """Return quantiles of the tasks, from nothing but what was known when each was asked about."""
        ...
