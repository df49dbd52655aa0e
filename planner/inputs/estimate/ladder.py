"""The ladder of rungs behind one question: the first that has an answer gives it, moved as calibration says.

Order: measured profile; median of the exact key if its runs are steady, fit, back-off medians, retrieval, one before
another if it was better on later tasks of the history that both could answer; whoever else is asked; default.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from truenorth.planner.inputs.estimate.boosted import fit_boosted
from truenorth.planner.inputs.estimate.calibration import Calibrations, calibrate, climb, move_ends, order_rungs
from truenorth.planner.inputs.estimate.known import KnownTimes, Novelty
from truenorth.planner.inputs.estimate.retrieval import Retrieval, SentenceEncoder, tf_idf, unit
from truenorth.planner.inputs.estimate.rungs import Default, Estimate, Rung, back_offs, steady_key
from truenorth.planner.inputs.estimate.tasks import Features, History, TaskColumns, Tasks

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
        By name of the rung, and what is new about the task; None: whatever the task.
    known
        The history.
    """

    columns: TaskColumns
    rungs: tuple[Rung, ...]
    calibrations: Calibrations
    known: KnownTimes

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

        Raises
        ------
        ValueError
            If nothing was known yet when a task was asked about.
        """
        known = self.known if past is None else KnownTimes(past, self.columns.key)
        answers, by = climb(self.rungs, tasks, known)
        if early := int((by < 0).sum()):
            raise ValueError(f"{early} tasks are asked about before any run time is known; allowed are later ones")
        names, new = [self.rungs[place].name for place in by], known.novelty(tasks)
        quantiles = move_ends(answers.quantiles, names, new, self.calibrations)
        whole = np.maximum(1, np.rint(np.exp(quantiles))).astype(np.int64).tolist()
        confidence = [self._confidence(*of_task) for of_task in zip(names, new, strict=True)]
        return [
            Estimate(low, middle, high, source, share, neighbours)
            for (low, middle, high), source, share, neighbours in zip(
                whole, names, confidence, answers.neighbours, strict=True
            )
        ]

    def _confidence(self, name: str, new: Novelty) -> float:
        found = self.calibrations.get((name, new))
        return 0.0 if found is None or found.cases == 0 else round(found.within_factor_two, 3)


@dataclass(frozen=True, slots=True)
class Recipe:
    """How the rungs of a ladder are made.

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
    seed
        Equal seeds fit equally.
    """

    columns: TaskColumns
    first: tuple[Rung, ...] = ()
    asked: tuple[Rung, ...] = ()
    encoder: SentenceEncoder | None = None
    seed: int = 0

    def fit(self, known: KnownTimes) -> tuple[Rung, ...]:
        """Return the rungs between the first and the last, fitted on what is known."""
        boosted = fit_boosted(known, self.columns, self.seed)
        encode = tf_idf(known.history, self.columns) if self.encoder is None else unit(self.encoder)
        key, fitted = self.columns.key, [] if boosted is None else [boosted]
        return (steady_key(key), *fitted, *back_offs(key), Retrieval(self.columns, encode))


@dataclass(frozen=True, slots=True, eq=False)
class Fitted:
    """Rungs fitted on a whole history, and on the part of it that was known when its latest fifth began.

    Parameters
    ----------
    known, rungs
        The whole history, and the rungs fitted on it.
    known_then, rungs_then
        The earlier part, and the rungs fitted on that; none if nothing was known by then.
    later
        Tasks of the latest fifth, which calibrate.
    """

    recipe: Recipe
    known: KnownTimes
    rungs: tuple[Rung, ...]
    known_then: KnownTimes | None
    rungs_then: tuple[Rung, ...]
    later: History

    def ladder(self, *, online: bool = False, without: frozenset[str] = frozenset()) -> Ladder:
        """Return the calibrated ladder.

        Parameters
        ----------
        online
            Whether later run times will be handed to `Ladder.predict_all` as they become known; calibration then
            knows them too. Otherwise every estimate rests on the history alone, and calibration on its earlier part.
        without
            Names of rungs to leave out.
        """
        recipe, last = self.recipe, (*self.recipe.asked, Default())
        if self.known_then is None:
            rungs = [rung for rung in self.rungs if rung.name not in without]
            return Ladder(recipe.columns, (*recipe.first, *rungs, *last), {}, self.known)
        past = self.known if online else self.known_then
        tasks, truth = self.later.tasks, self.later.log_runtime
        then = order_rungs([rung for rung in self.rungs_then if rung.name not in without], tasks, truth, past)
        calibrations = calibrate([*recipe.first, *then, Default()], tasks, truth, past)
        now = {rung.name: rung for rung in self.rungs}
        return Ladder(
            recipe.columns, (*recipe.first, *(now[rung.name] for rung in then), *last), calibrations, self.known
        )


def fit_rungs(history: History, recipe: Recipe) -> Fitted:
    """Fit rungs on past tasks: on what was known before the latest fifth, and on all."""
    known = KnownTimes(history, recipe.columns.key)
    cut = len(history) - max(1, round(len(history) * CALIBRATION_SHARE))
    earlier = np.flatnonzero(history.known_us[:cut] <= history.tasks.asked_us[cut])
    then = KnownTimes(history.take(earlier), recipe.columns.key) if len(earlier) else None
    later = np.unique(np.linspace(cut, len(history) - 1, min(_MOST_CASES, len(history) - cut)).astype(np.int64))
    rungs_then = () if then is None else recipe.fit(then)
    return Fitted(recipe, known, recipe.fit(known), then, rungs_then, history.take(later))


def fit_ladder(history: History, recipe: Recipe, *, online: bool = False) -> Ladder:
    """Fit and calibrate a ladder on past tasks; `online` as in `Fitted.ladder`."""
    return fit_rungs(history, recipe).ladder(online=online)
