"""Medians of past tasks with the same key: the exact one if its runs are steady, then with fields dropped."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.estimate.answers import Answers
from planner.estimate.known import Known
from planner.estimate.tasks import Tasks


@dataclass(frozen=True, slots=True)
class SteadyKey:
    """Quantiles of the exact key's latest runs, if it has repeats enough and they scatter little.

    On GenTD26 (its earlier part) the median of five and more runs whose p90 is within 1.5 times p10 is as good as the
    fit, and can be looked up; of fewer or wider runs it is worse.

    Parameters
    ----------
    least_runs
        Fewest repeats.
    widest
        Largest ratio of their 90 % to their 10 % quantile.
    """

    least_runs: int = 5
    widest: float = 1.5
    name: str = "exact key"

    def answer(self, tasks: Tasks, known: Known) -> Answers:
        """Return the quantiles of steady keys."""
        answers, runs = Answers.silent(len(tasks)), known.runs(known.key)
        latest = known.latest(known.key, tasks)
        quantiles = runs.quantiles[latest]
        spread = quantiles[:, 2] - quantiles[:, 0]
        steady = (latest >= 0) & (runs.count[latest] >= self.least_runs) & (spread <= np.log(self.widest))
        answers.set(steady, quantiles[steady], tasks.take(steady).keys(known.key))
        return answers


@dataclass(frozen=True, slots=True)
class BackOff:
    """Quantiles of the latest runs of the longest key with repeats enough, from the exact key down to its first column.

    Parameters
    ----------
    least_runs
        Fewest repeats.
    """

    least_runs: int = 3
    name: str = "back-off key"

    def answer(self, tasks: Tasks, known: Known) -> Answers:
        """Return the quantiles of the longest key known."""
        answers = Answers.silent(len(tasks))
        for names in known.levels:
            runs, latest = known.runs(names), known.latest(names, tasks)
            found = ~answers.given & (latest >= 0) & (runs.count[latest] >= self.least_runs)
            answers.set(found, runs.quantiles[latest[found]], tasks.take(found).keys(names))
        return answers
