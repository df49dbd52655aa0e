"""The last rung: what is known of a task of which nothing is known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.inputs.estimate.answers import Answers
from planner.inputs.estimate.known import LEVELS, KnownTimes
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
                answers.quantiles[rows] = weighted_quantiles(np.concatenate(windows), weights)
        return answers


def weighted_quantiles(values: Floats, weights: Floats) -> Floats:
    """Return the three quantiles of weighted values: the smallest value with at least the level's share up to it.

    >>> [float(value) for value in weighted_quantiles(np.array([3.0, 1.0, 2.0]), np.array([1.0, 1.0, 1.0]))]
    [1.0, 2.0, 3.0]
    """
    order = np.argsort(values, kind="stable")
    share = np.cumsum(weights[order])
    at = np.searchsorted(share, np.array(LEVELS) * share[-1] * (1 - 1e-12))
    return np.asarray(values[order][at], np.float64)
