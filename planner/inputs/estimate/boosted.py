"""Gradient-boosted quantiles of the log run time: three fits on the features and on what ran lately.

Beside a task's own features, the fit sees, for the exact key and each back-off, the last run and the median of the
latest ones that were known when the task was asked about. A trace drifts, and its latest runs say where to.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truenorth.planner.inputs.estimate.known import LEVELS, KnownTimes
from truenorth.planner.inputs.estimate.rungs import Answers
from truenorth.planner.inputs.estimate.tasks import UNKNOWN, Floats, TaskColumns, Tasks

LEAST_TASKS = 500
"""Fewest past tasks worth a fit."""
MOST_TASKS = 200_000
"""Most past tasks that are fitted: the latest."""
_FORGOTTEN, _FEWEST_FORGOTTEN = 0.1, 250
"""Share of the tasks, and at least so many, whose longest keys are taken for new in the fit."""
_MOST_VALUES = 254
"""Most values of a column taken as a category, which is what scikit-learn allows; longer ones count through the key."""


@dataclass(frozen=True, slots=True)
class Boosted:
    """Three fitted quantiles.

    Parameters
    ----------
    encoder
        Turns tasks into numbers.
    told
        Which columns of the matrix say anything of any past task: the fits know only those. Shape [columns].
    fits
        A fitted `HistGradientBoostingRegressor` per level.
    new_key
        Take every exact key for new, and what ran of it for unknown: for calibration.
    """

    encoder: Encoder
    told: NDArray[np.bool_]
    fits: Sequence[Any]
    new_key: bool = False
    name: str = "boosted"

    def answer(self, tasks: Tasks, known: KnownTimes) -> Answers:
        """Return the fitted quantiles of tasks whose first key value is known."""
        answers, seen = Answers.silent(len(tasks)), known.seen(tasks)
        if seen.any():
            matrix = self.encoder.matrix(tasks.take(seen), known)
            if self.new_key:
                _hide(matrix, len(known.levels), level=0)
            with _one_thread():
                answers.set(seen, np.column_stack([fit.predict(matrix[:, self.told]) for fit in self.fits]))
        return answers


@dataclass(frozen=True, slots=True)
class Encoder:
    """How tasks become numbers: plain ones, categories, and what ran lately.

    Parameters
    ----------
    numbers
        Columns that are numbers.
    categories
        The values of each other column, by column; their position is their code.
    """

    numbers: tuple[str, ...]
    categories: dict[str, dict[str, int]]

    @classmethod
    def of(cls, tasks: Tasks, columns: TaskColumns) -> Encoder:
        """Return the encoder of past tasks: a column whose values are all numbers is a number."""
        numbers, categories = [], {}
        for name in dict.fromkeys((*columns.key, *columns.features)):
            values = sorted({str(value) for value in tasks.text(name)} - {UNKNOWN})
            if not values:
                continue
            if not np.isnan(tasks.numbers(name)[tasks.text(name) != UNKNOWN]).any():
                numbers.append(name)
            elif len(values) <= _MOST_VALUES:
                categories[name] = {value: code for code, value in enumerate(values)}
        return cls(tuple(numbers), categories)

    @property
    def categorical(self) -> list[int]:
        """Positions of the categories in the matrix."""
        return list(range(len(self.numbers), len(self.numbers) + len(self.categories)))

    def matrix(self, tasks: Tasks, known: KnownTimes) -> Floats:
        """Return the numbers of some tasks, NaN where unknown. Shape [tasks, numbers + categories + 2 x levels]."""
        parts = [tasks.numbers(name) for name in self.numbers]
        for name, codes in self.categories.items():
            parts.append(np.array([codes.get(value, np.nan) for value in tasks.text(name)], np.float64))
        for names in known.levels:
            runs, latest = known.runs(names), known.latest(names, tasks)
            parts += [np.where(latest >= 0, values[latest], np.nan) for values in (runs.log_us, runs.quantiles[:, 1])]
        return np.column_stack(parts)


def fit_boosted(known: KnownTimes, columns: TaskColumns, seed: int) -> Boosted | None:
    """Fit the quantiles of past tasks, each seen with what was known when it was asked about.

    Returns
    -------
    Boosted | None
        None for fewer than `LEAST_TASKS` tasks.
    """
    from sklearn.ensemble import HistGradientBoostingRegressor

    history = known.history
    if len(history) < LEAST_TASKS:
        return None
    latest = np.arange(max(0, len(history) - MOST_TASKS), len(history))
    tasks = history.tasks.take(latest)
    encoder = Encoder.of(tasks, columns)
    matrix, target = encoder.matrix(tasks, known), history.log_runtime[latest]
    _forget(matrix, len(known.levels), np.random.default_rng(seed))
    told = np.asarray(~np.isnan(matrix).all(axis=0))
    with _one_thread():
        fits = [
            HistGradientBoostingRegressor(
                loss="quantile",
                quantile=level,
                learning_rate=0.05,
                max_iter=200,
                min_samples_leaf=50,
                categorical_features=encoder.categorical,
                early_stopping=False,
                random_state=seed,
            ).fit(matrix[:, told], target)
            for level in LEVELS
        ]
    return Boosted(encoder, told, fits)


def _one_thread() -> AbstractContextManager[object]:
    """Keep scikit-learn to one thread: sums then repeat on any machine, and no threads spin on a busy one."""
    limits: AbstractContextManager[object] = import_module("threadpoolctl").threadpool_limits(1)
    return limits


def _forget(matrix: Floats, levels: int, draws: np.random.Generator) -> None:
    """Hide, for some tasks, what ran lately of their longest keys, so that the fit learns what to make of a new one."""
    share = max(_FORGOTTEN, _FEWEST_FORGOTTEN / len(matrix))
    hidden = np.where(draws.random(len(matrix)) < share, draws.integers(0, levels, len(matrix)), 0)
    for level in range(levels - 1):
        _hide(matrix, levels, level, hidden > level)


def _hide(matrix: Floats, levels: int, level: int, rows: NDArray[np.bool_] | slice = slice(None)) -> None:
    """Hide what ran lately of a key: of the exact one at level 0, of shorter ones at the next."""
    at = matrix.shape[1] - 2 * (levels - level)
    matrix[rows, at : at + 2] = np.nan
