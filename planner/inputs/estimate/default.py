"""The last rung: what is known of a task of which nothing is known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.inputs.estimate.answers import Answers
from planner.inputs.estimate.known import KnownTimes
from planner.inputs.estimate.predictive import around, predictive_quantiles
from planner.inputs.estimate.tasks import UNKNOWN, Floats, Tasks


@dataclass(frozen=True, slots=True)
class Default:
    """Quantiles of latest runs, every first value of the key (as a rule, every model) counting alike.

    A task that reaches this rung is mostly of an unseen model, and that is a draw among models, not among runs.

    Parameters
    ----------
    others_only
        Leave out past tasks of the same first key value, as if it were unseen: for calibration.
    """

    others_only: bool = False
    name: str = "default"

    def answer(self, tasks: Tasks, known: KnownTimes) -> Answers:
        """Return quantiles, the same for all tasks that are asked about at the same time (unless `others_only`)."""
        answers, runs = Answers.silent(len(tasks)), known.runs(known.key[:1])
        own = tasks.keys(known.key[:1]) if self.others_only else np.full(len(tasks), UNKNOWN, np.object_)
        alike: dict[tuple[int, str], list[int]] = {}
        for row, when in enumerate(zip(tasks.asked_us.tolist(), own, strict=True)):
            alike.setdefault(when, []).append(row)
        for (asked_us, left_out), rows in alike.items():
            latest = runs.latest(runs.names, np.full(len(runs.names), asked_us))
            windows = [runs.window(at) for at in latest[(latest >= 0) & (runs.names != left_out)]]
            if windows:
                weights = np.concatenate([np.full(len(window), 1 / len(window)) for window in windows])
                scatter = runs.overall_scatter(asked_us)
                answers.quantiles[rows] = pooled_quantiles(np.concatenate(windows), weights, scatter)
        return answers


def pooled_quantiles(values: Floats, weights: Floats, scatter: Floats) -> Floats:
    """Return the three quantiles that weighted values predict; the median is one of them.

    Shapes [values] and, of the scatter, [1].

    >>> np.exp(pooled_quantiles(np.log([2.0, 1.0, 3.0, *range(4, 10)]), np.ones(9), np.ones(1))).round(3).tolist()
    [1.0, 5.0, 9.0]
    """
    order = np.argsort(values, kind="stable")
    values, weights = values[order], weights[order]
    low, _, high = predictive_quantiles(values[None], weights[None], scatter).T
    share = np.cumsum(weights)
    middle = values[np.searchsorted(share, share[-1] / 2 * (1 - 1e-12))]
    return np.asarray(around(np.array([middle]), low, high)[0], np.float64)
