"""The ladder of rungs behind one question: the first that has an answer gives it, moved as calibration says.

Order: measured profile; median of the exact key if its runs are steady, fit, back-off medians, retrieval, one before
another if it was better on later tasks of the history that both could answer; whoever else is asked; default.

How good each rung is on past tasks that it has not seen says the rungs' order, and their shifts: ends move by
split-conformal calibration, so that intervals hold as often as they say: conformalised quantile regression (Romano,
Patterson and Candès, NeurIPS 2019), each end for itself. How far the truth fell below the lower quantile, and above the
upper, on tasks that the estimate did not rest on, says how far they move.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from truenorth.models.instance import Ints
from truenorth.planner.inputs.estimate.known import TAIL, KnownTimes, Novelty
from truenorth.planner.inputs.estimate.learned import Boosted, Retrieval, SentenceEncoder, fit_boosted, tf_idf, unit
from truenorth.planner.inputs.estimate.rungs import Answers, Default, Estimate, Rung, back_offs, steady_key
from truenorth.planner.inputs.estimate.tasks import Features, Floats, History, TaskColumns, Tasks

_LEAST_COMMON = 30
"""Fewest tasks that two rungs must both have answered before their errors on them say which comes first."""
FEWEST_JUDGED = 10
"""Fewest tasks that a rung's confidence rests on: a share of fewer may lie by chance anywhere."""
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


@dataclass(frozen=True, slots=True)
class RungCalibration:
    """What the calibration part says of one rung.

    Parameters
    ----------
    shift
        How far its ends move.
    cases
        Tasks that it is judged by.
    covered_before, covered_after
        Share of run times within its intervals: of all cases as they come, and of the later half of the cases with the
        ends moved by the earlier half. NaN without cases.
    median_error
        Median of the relative errors of p50. NaN without cases.
    within_factor_two
        Share of run times within a factor of two of p50. NaN without cases.
    """

    shift: Shift = UNMOVED
    cases: int = 0
    covered_before: float = math.nan
    covered_after: float = math.nan
    median_error: float = math.nan
    within_factor_two: float = math.nan


Calibrations: TypeAlias = Mapping[tuple[str, Novelty | None], RungCalibration]
"""By name of the rung, and what is new about the task; None: whatever the task."""


def calibration(quantiles: Floats, truth: Floats) -> RungCalibration:
    """Return what some cases, in order of time, say. Shapes [cases, 3] and [cases]."""
    if len(truth) == 0:
        return RungCalibration()
    half = len(truth) // 2
    later = shift(quantiles[:half], truth[:half]).apply(quantiles[half:])
    off = np.abs(quantiles[:, 1] - truth)
    return RungCalibration(
        shift(quantiles, truth),
        len(truth),
        coverage(quantiles, truth),
        coverage(later, truth[half:]) if half else math.nan,
        float(np.median(np.abs(np.expm1(quantiles[:, 1] - truth)))),
        float((off <= math.log(2)).mean()),
    )


def order_rungs(rungs: Sequence[Rung], tasks: Tasks, truth: Floats, known: KnownTimes) -> list[Rung]:
    """Return rungs so that the better comes first.

    One goes before those that stand above it for as long as its mean absolute log error is less than theirs on the
    tasks that both answer; if those are few, they stay as given.
    """
    answers = [rung.answer(tasks, known).quantiles[:, 1] for rung in rungs]
    places: list[int] = []
    for new in range(len(rungs)):
        at = len(places)
        while at > 0 and _better(answers[new], answers[places[at - 1]], truth):
            at -= 1
        places.insert(at, new)
    return [rungs[place] for place in places]


def _better(one: Floats, other: Floats, truth: Floats) -> bool:
    common = ~(np.isnan(one) | np.isnan(other))
    errors = [np.abs(medians[common] - truth[common]) for medians in (one, other)]
    return bool(common.sum() >= _LEAST_COMMON and errors[0].mean() < errors[1].mean())


def climb(rungs: Sequence[Rung], tasks: Tasks, known: KnownTimes) -> tuple[Answers, Ints]:
    """Return the first answer to each task, and which rung gave it; -1 where all were silent. Shape [tasks]."""
    answers, by = Answers.silent(len(tasks)), np.full(len(tasks), -1)
    for place, rung in enumerate(rungs):
        left = np.flatnonzero(by < 0)
        if len(left) == 0:
            break
        found = rung.answer(tasks.take(left), known)
        rows = left[found.given]
        answers.quantiles[rows] = found.quantiles[found.given]
        answers.neighbours[rows] = found.neighbours[found.given]
        by[rows] = place
    return answers, by


def calibrate(rungs: Sequence[Rung], tasks: Tasks, truth: Floats, known: KnownTimes) -> Calibrations:
    """Return what later tasks say of each rung, by its name and by what is new about a task.

    A rung is judged by the tasks that reach it, those with a new key for themselves; if those are few, by all that it
    can answer. New keys and models are rare in many histories: rungs that lean on past tasks of the same key or model
    are then judged by the same tasks with their keys or models taken for new, if they answer enough.
    """
    answers, by = climb(rungs, tasks, known)
    new_key = np.array(known.novelty(tasks)) == Novelty.KEY
    found: dict[tuple[str, Novelty | None], RungCalibration] = {}
    for place, rung in enumerate(rungs):
        reached, fresh = by == place, (by == place) & new_key
        judged = calibration(answers.quantiles[reached], truth[reached])
        if judged.cases < LEAST_CASES:
            judged = _asked(rung, tasks, truth, known)
        found |= {(rung.name, new): judged for new in (None, *Novelty)}
        if fresh.sum() >= LEAST_CASES:
            found[rung.name, Novelty.KEY] = calibration(answers.quantiles[fresh], truth[fresh])
        elif isinstance(rung, Boosted):
            found[rung.name, Novelty.KEY] = _enough(_asked(replace(rung, new_key=True), tasks, truth, known), judged)
        if isinstance(rung, Retrieval | Default):
            alone = _asked(replace(rung, others_only=True), tasks, truth, known)
            found[rung.name, Novelty.MODEL] = _enough(alone, judged)
    return found


def _enough(one: RungCalibration, otherwise: RungCalibration) -> RungCalibration:
    return one if one.cases >= _LEAST_COMMON else otherwise


def _asked(rung: Rung, tasks: Tasks, truth: Floats, known: KnownTimes) -> RungCalibration:
    answers = rung.answer(tasks, known)
    return calibration(answers.quantiles[answers.given], truth[answers.given])


def move_ends(quantiles: Floats, names: Sequence[str], new: Sequence[Novelty], found: Calibrations) -> Floats:
    """Return quantiles with their ends moved as the calibration of their rung says. Shape [tasks, 3]."""
    result = quantiles.copy()
    for key in set(zip(names, new, strict=True)) & found.keys():
        rows = np.array([pair == key for pair in zip(names, new, strict=True)])
        result[rows] = found[key].shift.apply(quantiles[rows])
    return result


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

    def _confidence(self, name: str, new: Novelty) -> float | None:
        found = self.calibrations.get((name, new))
        return None if found is None or found.cases < FEWEST_JUDGED else round(found.within_factor_two, 3)


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
