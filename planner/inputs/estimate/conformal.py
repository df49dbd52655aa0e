"""Split-conformal calibration of quantiles, so that intervals hold as often as they say.

Conformalised quantile regression (Romano, Patterson and Candès, NeurIPS 2019), each end for itself: how far the truth
fell below the lower quantile, and above the upper, on tasks that the estimate did not rest on, says how far they move.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from planner.inputs.estimate.tasks import Floats

TAIL = 0.1
"""Share of run times that may lie below p10, and above p90."""
NOMINAL = 1 - 2 * TAIL
"""Share that is to lie between them."""
LEAST_CASES = 100
"""Fewest cases that move the ends on their own."""


@dataclass(frozen=True, slots=True)
class Shift:
    """How far the ends of an interval move, in logarithms; positive is outwards.

    Parameters
    ----------
    cases
        Tasks that it rests on.
    """

    below: float = 0.0
    above: float = 0.0
    cases: int = 0

    def apply(self, quantiles: Floats) -> Floats:
        """Return quantiles with their ends moved, the median still between them. Shape [tasks, 3]."""
        low, middle, high = quantiles.T
        return np.column_stack([np.minimum(low - self.below, middle), middle, np.maximum(high + self.above, middle)])


UNMOVED = Shift()


def shift(quantiles: Floats, truth: Floats) -> Shift:
    """Return how far the ends must move to hold the truth as often as they say, of new cases like these.

    Parameters
    ----------
    quantiles
        Shape [cases, 3].
    truth
        Log run times. Shape [cases].

    Returns
    -------
    Shift
        With few cases (fewer than 9) the ends go as far as the farthest case, which is as far as they can tell, and
        never inwards.
    """
    if len(truth) == 0:
        return UNMOVED
    return Shift(_quantile(quantiles[:, 0] - truth), _quantile(truth - quantiles[:, 2]), len(truth))


def coverage(quantiles: Floats, truth: Floats) -> float:
    """Return the share of cases whose truth lies in the interval, both ends included; NaN without cases."""
    if len(truth) == 0:
        return math.nan
    inside = (quantiles[:, 0] <= truth) & (truth <= quantiles[:, 2])
    return float(inside.mean())


def _quantile(scores: Floats) -> float:
    """Return the conformal quantile of scores: the smallest that a new one stays within with probability 1 - `TAIL`."""
    n = len(scores)
    place = math.ceil((n + 1) * (1 - TAIL))
    return float(np.sort(scores)[place - 1]) if place <= n else max(0.0, float(scores.max()))
