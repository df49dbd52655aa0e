"""Medians of past tasks with the same key: the exact one if its runs are steady, then with fields dropped."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.inputs.estimate.answers import Answers
from planner.inputs.estimate.known import KnownTimes, shorter
from planner.inputs.estimate.tasks import Tasks

BACK_OFF = "back-off key"


@dataclass(frozen=True, slots=True)
class SteadyKey:
    """Quantiles that the exact key's latest runs predict, if it has repeats enough and they scatter little.

    Few runs may lie close by chance, so that what they predict is wider than they are. On GenTD26 (its earlier part)
    the median of five and more runs whose p90 is within 1.5 times p10 is as good as the fit, and can be looked up; of
    fewer or wider runs it is worse.

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

    def answer(self, tasks: Tasks, known: KnownTimes) -> Answers:
        """Return the quantiles of steady keys."""
        answers, runs = Answers.silent(len(tasks)), known.runs(known.key)
        latest = known.latest(known.key, tasks)
        quantiles = runs.quantiles[latest]
        spread = quantiles[:, 2] - quantiles[:, 0]
        steady = (latest >= 0) & (runs.count[latest] >= self.least_runs) & (spread <= np.log(self.widest))
        asked = tasks.take(steady)
        answers.set(steady, runs.predict(latest[steady], asked.asked_us), asked.keys(known.key))
        return answers


@dataclass(frozen=True, slots=True)
class BackOff:
    """Quantiles of the latest runs of a key, the exact one or one with columns dropped, if it has repeats enough.

    Parameters
    ----------
    columns
        What is left of the key.
    of
        How many columns the exact key has.
    least_runs
        Fewest repeats.
    """

    columns: tuple[str, ...]
    of: int
    least_runs: int = 3

    @property
    def name(self) -> str:
        """What estimates call their source, such as ``back-off key 2/3``."""
        return f"{BACK_OFF} {len(self.columns)}/{self.of}"

    def answer(self, tasks: Tasks, known: KnownTimes) -> Answers:
        """Return the quantiles of keys with enough runs."""
        answers = Answers.silent(len(tasks))
        runs, latest = known.runs(self.columns), known.latest(self.columns, tasks)
        found = (latest >= 0) & (runs.count[latest] >= self.least_runs)
        asked = tasks.take(found)
        answers.set(found, runs.predict(latest[found], asked.asked_us), asked.keys(self.columns))
        return answers


def back_offs(key: tuple[str, ...]) -> list[BackOff]:
    """Return a rung for the exact key and for each shorter one: columns are dropped from the end, never the first."""
    return [BackOff(names, len(key)) for names in shorter(key)]
