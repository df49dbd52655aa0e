"""Quantiles of the next run from few past ones, wide enough for a run that is none of them.

Of nine runs or more, order statistics: the next run is as likely to lie between any two neighbours, so that it lies
below the k-th smallest of n with probability k / (n + 1). Of fewer, Student's predictive interval of log run times
(Gelman and others, Bayesian Data Analysis, section 3.2): their own scatter and the usual one of other keys together,
since a few runs may lie close by chance.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.stats import t as student

from planner.inputs.estimate.conformal import TAIL
from planner.inputs.estimate.tasks import Floats

ENOUGH = 9
"""From so many runs on their order alone tells p10 and p90: 1 / (9 + 1) = 0.1."""
ASSUMED = math.log(2)
"""Scatter of log run times where nothing has been repeated yet: a factor of two. It weighs as much as one repeat."""
_PRIOR = 4
"""The usual scatter weighs as much as so many repeats of a key's own."""


def usual_scatter(squares: Floats, repeats: Floats) -> Floats:
    """Return the scatter that keys have as a rule, from sums of squares over so many repeats. Shapes [tasks]."""
    return np.asarray(np.sqrt((ASSUMED**2 + squares) / (1 + repeats)), np.float64)


def predictive_quantiles(values: Floats, weights: Floats, scatter: Floats) -> Floats:
    """Return the 10 %, 50 % and 90 % quantile of a further value.

    Parameters
    ----------
    values, weights
        Log run times, ascending, and how much each counts; 0: there is none. Shape [tasks, values].
    scatter
        Usual standard deviation of such values. Shape [tasks].

    Returns
    -------
    Floats
        Shape [tasks, 3].
    """
    share = weights / weights.sum(axis=1, keepdims=True)
    count = 1 / (share**2).sum(axis=1)
    low, middle, high = (_at(values, share, level, count) for level in (TAIL, 0.5, 1 - TAIL))
    mean = (share * values).sum(axis=1)
    squares = (share * (values - mean[:, None]) ** 2).sum(axis=1) * count
    freedom = _PRIOR + count - 1
    spread = np.sqrt((_PRIOR * scatter**2 + squares) / freedom * (1 + 1 / count)) * student.ppf(1 - TAIL, freedom)
    few = count < ENOUGH - 1e-9
    return around(middle, np.where(few, mean - spread, low), np.where(few, mean + spread, high))


def around(middle: Floats, low: Floats, high: Floats) -> Floats:
    """Return quantiles with the median between them. Shape [tasks, 3]."""
    return np.column_stack([np.minimum(low, middle), middle, np.maximum(high, middle)])


def _at(values: Floats, share: Floats, level: float, count: Floats) -> Floats:
    """Return the value that a further one lies below with this probability, between neighbours in proportion."""
    # The k-th of n stands at k / (n + 1): half of a value's own share before it, and all in the middle n / (n + 1).
    middle = np.cumsum(share, axis=1) - share / 2
    place = ((middle * count[:, None]) + 0.5) / (count[:, None] + 1)
    place[share == 0] = np.inf
    after = np.minimum((place < level).sum(axis=1), (share > 0).sum(axis=1) - 1)
    before = np.maximum(after - 1, 0)
    rows = np.arange(len(values))
    gap = place[rows, after] - place[rows, before]
    part = np.clip(np.where(gap > 0, (level - place[rows, before]) / np.where(gap > 0, gap, 1), 1.0), 0, 1)
    return np.asarray(values[rows, before] * (1 - part) + values[rows, after] * part, np.float64)
