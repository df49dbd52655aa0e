"""The ladder of rungs behind one question: the first that has an answer gives it, moved as calibration says.

Order: measured profile; median of the exact key if its runs are steady, fit, back-off medians, retrieval, one before
another if it was better on later tasks of the history that both could answer; whoever else is asked; default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from planner.estimate.answers import Rung
from planner.estimate.boosted import fit_boosted
from planner.estimate.calibration import Calibration, calibrated, climbed, moved, ordered
from planner.estimate.default import Default
from planner.estimate.estimate import Estimate, Features
from planner.estimate.known import Known
from planner.estimate.medians import BackOff, SteadyKey
from planner.estimate.retrieval import Retrieval, SentenceEncoder, tf_idf, unit
from planner.estimate.tasks import Columns, History, Tasks

CALIBRATION_SHARE = 0.2
"""The latest share of the history, which calibrates."""
_MOST_CASES = 5_000


@dataclass(frozen=True, slots=True, eq=False)
class Ladder:
    """A fitted ladder; made by `fit_ladder`.

    Parameters
    ----------
    columns
        What the columns of tasks mean.
    rungs
        In the order in which they are asked.
    calibrations
        By name of the rung, and whether the first value of the task's key was seen before.
    known
        The history.
    """

    columns: Columns
    rungs: tuple[Rung, ...]
    calibrations: Mapping[tuple[str, bool], Calibration]
    known: Known

    def predict(self, task: Features) -> Estimate:
        """Return the estimate of a task, with the whole history known."""
        return self.predict_all(Tasks.of([task], self.columns.all))[0]

    def predict_all(self, tasks: Tasks, past: History | None = None) -> list[Estimate]:
        """Return the estimates of many tasks.

        Parameters
        ----------
        past
            What has become known since the fit, the history itself included: of it, each estimate uses what was known
            when its task was asked about. None: the history alone.
        """
        known = self.known if past is None else Known(past, self.columns.key)
        answers, by = climbed(self.rungs, tasks, known)
        names, seen = [self.rungs[place].name for place in by], known.seen(tasks)
        quantiles = moved(answers.quantiles, names, seen, self.calibrations)
        whole = np.maximum(1, np.rint(np.exp(quantiles))).astype(np.int64).tolist()
        confidence = [self._confidence(name, was) for name, was in zip(names, seen.tolist(), strict=True)]
        return [
            Estimate(low, middle, high, source, share, neighbours)
            for (low, middle, high), source, share, neighbours in zip(
                whole, names, confidence, answers.neighbours, strict=True
            )
        ]

    def _confidence(self, name: str, seen: bool) -> float:
        found = self.calibrations.get((name, seen))
        return 0.0 if found is None or found.cases == 0 else round(found.within_factor_two, 3)


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a ladder is made.

    Parameters
    ----------
    columns
        What the columns of tasks mean.
    first
        Rungs asked before all others, such as a measured profile.
    asked
        Rungs asked before the default, such as a language model; they are not calibrated.
    encoder
        Compares texts for retrieval; None: TF-IDF.
    online
        Whether later run times will be handed to `Ladder.predict_all` as they become known; calibration then knows
        them too. Otherwise every estimate rests on the history alone, and calibration on its earlier part alone.
    without
        Names of rungs to leave out.
    seed
        Equal seeds fit equally.
    """

    columns: Columns
    first: tuple[Rung, ...] = ()
    asked: tuple[Rung, ...] = ()
    encoder: SentenceEncoder | None = None
    online: bool = False
    without: frozenset[str] = frozenset()
    seed: int = 0

    def measured(self, known: Known) -> list[Rung]:
        """Return the rungs, but for the first and the last, whose place is measured."""
        boosted = None if "boosted" in self.without else fit_boosted(known, self.columns, self.seed)
        encode = tf_idf(known.history, self.columns) if self.encoder is None else unit(self.encoder)
        rungs = [SteadyKey(), boosted, BackOff(), Retrieval(self.columns, encode)]
        return [rung for rung in rungs if rung is not None and rung.name not in self.without]


def fit_ladder(history: History, recipe: Recipe) -> Ladder:
    """Fit and calibrate a ladder on past tasks.

    The latest fifth calibrates rungs that were fitted on what was known when it began; then they are fitted on all.
    """
    known = Known(history, recipe.columns.key)
    rungs = recipe.measured(known)
    calibrations: Mapping[tuple[str, bool], Calibration] = {}
    cut = len(history) - max(1, round(len(history) * CALIBRATION_SHARE))
    earlier = np.flatnonzero(history.known_us[:cut] <= history.tasks.asked_us[cut])
    if len(earlier):
        then = Known(history.take(earlier), recipe.columns.key)
        later = np.unique(np.linspace(cut, len(history) - 1, min(_MOST_CASES, len(history) - cut)).astype(np.int64))
        tasks, truth = history.tasks.take(later), history.log_runtime[later]
        past = known if recipe.online else then
        places = ordered(recipe.measured(then), tasks, truth, past)
        calibrations = calibrated([*recipe.first, *places, Default()], tasks, truth, past)
        fitted = {rung.name: rung for rung in rungs}
        rungs = [fitted[rung.name] for rung in places]
    return Ladder(recipe.columns, (*recipe.first, *rungs, *recipe.asked, Default()), calibrations, known)
