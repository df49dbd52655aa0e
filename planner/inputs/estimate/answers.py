"""What a rung of the ladder says of many tasks at once, and what a rung is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from planner.inputs.estimate.known import KnownTimes
from planner.inputs.estimate.tasks import Floats, Tasks, Texts


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
