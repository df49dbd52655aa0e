"""What is known of past run times at a moment, and quantiles of the next run of a key.

One definition of the past for every rung: a run time counts from the moment it is known, so that an estimate of a task
of a trace rests on nothing that came after it. Of every key its latest runs count that had ended by then.

Quantiles from few runs are wide enough for a run that is none of them. Of nine runs or more, order statistics: the next
run is as likely to lie between any two neighbours, so that it lies below the k-th smallest of n with probability
k / (n + 1). Of fewer, Student's predictive interval of log run times (Gelman and others, Bayesian Data Analysis,
section 3.2): their own scatter and the usual one of other keys together, since a few runs may lie close by chance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from truenorth.models.instance import Ints
from truenorth.planner.inputs.estimate.tasks import Floats, History, Tasks, Texts

Made = TypeVar("Made")
WINDOW = 20
"""How many of a key's latest runs count: enough for quantiles, few enough to follow a drift."""
TAIL = 0.1
"""Share of run times that may lie below p10, and above p90."""
LEVELS = (TAIL, 0.5, 1 - TAIL)
"""Levels of the three quantiles of an estimate."""
ENOUGH = 9
"""From so many runs on their order alone tells p10 and p90: 1 / (9 + 1) = 0.1."""
ASSUMED = math.log(2)
"""Scatter of log run times where nothing has been repeated yet: a factor of two. It weighs as much as one repeat."""
_PRIOR = 4
"""The usual scatter weighs as much as so many repeats of a key's own."""


class Novelty(IntEnum):
    """What is new about a task: nothing, its exact key, or even the first value of the key, as a rule the model."""

    NOTHING = 0
    KEY = 1
    MODEL = 2


class PastRuns:
    """Past run times by key.

    Parameters
    ----------
    keys
        Of each past task. Shape [tasks].

    Attributes
    ----------
    names
        Every key once. Shape [keys].
    log_us
        Log run times, by key and then by when they were known. Shape [tasks].
    quantiles
        Of the latest `WINDOW` runs of the same key up to and with each. Shape [tasks, 3].
    count
        How many runs of the same key there are up to and with each. Shape [tasks].
    """

    def __init__(self, history: History, keys: Texts) -> None:
        n = len(history)
        by_time = np.argsort(history.known_us, kind="stable")
        self._known_us = history.known_us[by_time]
        codes, names = pd.factorize(keys)
        self.names: Texts = np.asarray(names, np.object_)
        self._code = {name: code for code, name in enumerate(names)}
        rank = np.empty(n, np.int64)
        rank[by_time] = np.arange(n)
        place = codes * np.int64(n + 1) + rank
        order = np.argsort(place)
        self._place = place[order]
        self._stride = np.int64(n + 1)
        self.log_us = history.log_runtime[order]
        self._squares, self._repeats = self._sum_repeats(codes[order], rank[order])
        self._variance = _variances(history.log_runtime[by_time])
        grouped = pd.Series(self.log_us).groupby(codes[order])
        self.count: Ints = np.asarray(grouped.cumcount().to_numpy() + 1, np.int64)
        rolling = grouped.rolling(WINDOW, min_periods=1)
        self.quantiles: Floats = np.column_stack([rolling.quantile(level).to_numpy() for level in LEVELS])

    def latest(self, keys: Texts, asked_us: Ints) -> Ints:
        """Return where the latest run of each key stands that was known at its time, or -1. Shape [keys]."""
        texts, names = pd.factorize(keys)
        code = np.array([self._code.get(name, -1) for name in names], np.int64)[texts]
        known = np.searchsorted(self._known_us, asked_us, side="right")
        start = np.searchsorted(self._place, code * self._stride)
        end = np.searchsorted(self._place, code * self._stride + known)
        return np.where((code >= 0) & (end > start), end - 1, -1)

    def predict(self, latest: Ints, asked_us: Ints) -> Floats:
        """Return quantiles of the next run of keys, from their latest runs. Shape [keys, 3].

        Parameters
        ----------
        latest, asked_us
            Where the latest run of each stands, and when it is asked about. Shape [keys].
        """
        back = np.arange(WINDOW)
        there = back < np.minimum(self.count[latest], WINDOW)[:, None]
        values = np.where(there, self.log_us[np.maximum(latest[:, None] - back, 0)], np.inf)
        values = np.sort(values, axis=1)
        known = np.searchsorted(self._known_us, asked_us, side="right")
        scatter = usual_scatter(self._squares[known], self._repeats[known])
        weights = np.isfinite(values).astype(np.float64)
        return predictive_quantiles(np.where(weights > 0, values, 0.0), weights, scatter)

    def overall_scatter(self, asked_us: int) -> Floats:
        """Return how all runs known at a moment scatter, whatever their key. Shape [1]."""
        known = int(np.searchsorted(self._known_us, asked_us, side="right"))
        return usual_scatter(self._variance[[known]] * known, np.array([max(0.0, known - 1.0)]))

    def _sum_repeats(self, codes: Ints, rank: Ints) -> tuple[Floats, Floats]:
        """Return, for the earliest so many runs, half the squared steps from run to run of a key, and how many."""
        steps = np.flatnonzero(codes[1:] == codes[:-1]) + 1
        squares, repeats = np.zeros(len(codes) + 1), np.zeros(len(codes) + 1)
        squares[rank[steps] + 1] = (self.log_us[steps] - self.log_us[steps - 1]) ** 2 / 2
        repeats[rank[steps] + 1] = 1
        return np.cumsum(squares), np.cumsum(repeats)

    def window(self, latest: int) -> Floats:
        """Return the latest runs of a key up to a place: their log run times, at most `WINDOW`."""
        return self.log_us[latest + 1 - min(WINDOW, int(self.count[latest])) : latest + 1]


def _variances(values: Floats) -> Floats:
    """Return the variance of the first so many values, none at first. Shape [values + 1]."""
    count = np.arange(1, len(values) + 1)
    centred = values - values[0]
    squares = np.cumsum(centred**2) / count - (np.cumsum(centred) / count) ** 2
    return np.concatenate([[0.0], np.maximum(squares, 0)])


class KnownTimes:
    """A history, and its runs by any key.

    Parameters
    ----------
    key
        Columns of the exact key.
    """

    def __init__(self, history: History, key: Sequence[str]) -> None:
        self.history = history
        self.key = tuple(key)
        self._made: dict[object, Any] = {}

    @property
    def levels(self) -> tuple[tuple[str, ...], ...]:
        """The exact key and its back-offs: one column less each, dropped from the end."""
        return shorter(self.key)

    def runs(self, names: tuple[str, ...]) -> PastRuns:
        """Return the runs by the values of some columns."""
        return self.once(names, lambda: PastRuns(self.history, self.history.tasks.keys(names)))

    def once(self, name: object, make: Callable[[], Made]) -> Made:
        """Return what was made of this history under a name, making it the first time."""
        if name not in self._made:
            self._made[name] = make()
        made: Made = self._made[name]
        return made

    def latest(self, names: tuple[str, ...], tasks: Tasks) -> Ints:
        """Return, per task, where the latest known run of the same values stands in `runs`, or -1. Shape [tasks]."""
        return self.runs(names).latest(tasks.keys(names), tasks.asked_us)

    def seen(self, tasks: Tasks) -> NDArray[np.bool_]:
        """Say of each task whether a past one has the first value of its key. Shape [tasks]."""
        return np.asarray(self.latest(self.key[:1], tasks) >= 0)

    def novelty(self, tasks: Tasks) -> list[Novelty]:
        """Say of each task what is new about it."""
        repeated = self.latest(self.key, tasks) >= 0
        found = np.where(repeated, Novelty.NOTHING, np.where(self.seen(tasks), Novelty.KEY, Novelty.MODEL))
        return [Novelty(value) for value in found.tolist()]


def shorter(key: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """Return a key and what is left of it as columns are dropped from its end.

    >>> shorter(("model", "steps"))
    (('model', 'steps'), ('model',))
    """
    return tuple(key[:end] for end in range(len(key), 0, -1))


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
    # Late: SciPy comes with the extra `estimates`, and imports and logs of jobs show themselves without it.
    from scipy.stats import t as student

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
