"""What an estimate of a run time says, and who says it: rungs, which answer what they can of many tasks at once.

Here are those that look run times up: a measured profile, medians of past tasks, whoever else is asked, the default.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from truenorth.models.errors import UserError
from truenorth.models.scenario import load_scenario
from truenorth.models.scenario.work import build_workflows
from truenorth.planner.inputs.estimate.known import KnownTimes, around, predictive_quantiles, shorter
from truenorth.planner.inputs.estimate.tasks import UNKNOWN, Floats, Tasks, Texts
from truenorth.planner.inputs.samples import Runs, outer_quantiles_us, read_samples, samples_path


@dataclass(frozen=True, slots=True)
class Estimate:
    """A run time that is not known exactly.

    Parameters
    ----------
    p10_us, p50_us, p90_us
        Quantiles in microseconds, at least 1 and in this order: 80 % of run times are meant to lie between the
        outer two, and half of them below the middle one.
    source
        Name of the rung of the ladder that answered.
    confidence
        Share, 0 to 1, of the latest past tasks answered from this source whose run time lay within a factor of two of
        p50; None where too few were to say.
    neighbours
        Keys of the past tasks that the estimate rests on, nearest first; empty where it rests on a fit.

    Raises
    ------
    ValueError
        If the quantiles are out of order or below 1 us, or the confidence is no share.
    """

    p10_us: int
    p50_us: int
    p90_us: int
    source: str
    confidence: float | None = None
    neighbours: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= self.p10_us <= self.p50_us <= self.p90_us:
            raise ValueError(
                f"quantiles {self.p10_us}, {self.p50_us}, {self.p90_us} us must be at least 1 and in ascending order"
            )
        if self.confidence is not None and not 0 <= self.confidence <= 1:
            raise ValueError(f"confidence {self.confidence} must lie between 0 and 1")


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """Quantiles per task, or silence.

    Parameters
    ----------
    quantiles
        10 %, 50 % and 90 % of the log run time in microseconds; NaN where the rung is silent. Shape [tasks, 3].
    neighbours
        Keys of the past tasks behind each answer, a tuple of text each. Shape [tasks].
    """

    quantiles: Floats
    neighbours: Texts

    @classmethod
    def silent(cls, tasks: int) -> Answers:
        """Return no answer to any task."""
        neighbours = np.empty(tasks, np.object_)
        neighbours[:] = [()] * tasks
        return cls(np.full((tasks, 3), np.nan), neighbours)

    @property
    def given(self) -> NDArray[np.bool_]:
        """Which tasks are answered. Shape [tasks]."""
        return ~np.isnan(self.quantiles[:, 1])

    def set(self, rows: NDArray[np.bool_], quantiles: Floats, keys: Texts | None = None) -> None:
        """Answer some tasks; each rests on the past tasks of one key if keys are given. Shape [rows, 3], [rows]."""
        self.quantiles[rows] = np.sort(quantiles, axis=1)
        if keys is not None:
            for row, key in zip(np.flatnonzero(rows), keys, strict=True):
                self.neighbours[row] = (key,)


class Rung(Protocol):
    """A way to estimate: answers what it can, and passes the rest on."""

    @property
    def name(self) -> str:
        """What estimates call their source."""
        ...

    def answer(self, tasks: Tasks, known: KnownTimes) -> Answers:
        """Return quantiles of the tasks, from nothing but what was known when each was asked about."""
        ...


BACK_OFF = "back-off key"
WORKFLOW, TASK = "workflow", "task"
"""Columns by which a task is found in a profile."""
Given = TypeVar("Given")
Answered = TypeVar("Answered")
Answerer: TypeAlias = Callable[[Mapping[str, str]], tuple[float, float, float] | None]
"""From the columns of a task to its 10 %, 50 % and 90 % quantiles in seconds, or None to pass it on."""


@dataclass(frozen=True, slots=True)
class KeyRuns:
    """Quantiles that a key's latest runs predict, if it has repeats enough and they scatter little enough.

    Parameters
    ----------
    columns
        The exact key, or what is left of it.
    least_runs
        Fewest repeats.
    widest
        Largest ratio of their 90 % to their 10 % quantile.
    """

    columns: tuple[str, ...]
    name: str
    least_runs: int = 3
    widest: float = math.inf

    def answer(self, tasks: Tasks, known: KnownTimes) -> Answers:
        """Return the quantiles of keys with enough runs."""
        answers = Answers.silent(len(tasks))
        runs, latest = known.runs(self.columns), known.latest(self.columns, tasks)
        spread = runs.quantiles[latest, 2] - runs.quantiles[latest, 0]
        found = (latest >= 0) & (runs.count[latest] >= self.least_runs) & (spread <= np.log(self.widest))
        asked = tasks.take(found)
        answers.set(found, runs.predict(latest[found], asked.asked_us), asked.keys(self.columns))
        return answers


def steady_key(key: tuple[str, ...]) -> KeyRuns:
    """Return the rung of exact keys whose runs scatter little.

    Few runs may lie close by chance, so that what they predict is wider than they are. On GenTD26 (its earlier part)
    the median of five and more runs whose p90 is within 1.5 times p10 is as good as the fit, and can be looked up; of
    fewer or wider runs it is worse.
    """
    return KeyRuns(key, "exact key", least_runs=5, widest=1.5)


def back_offs(key: tuple[str, ...]) -> list[KeyRuns]:
    """Return a rung for the exact key and for each shorter one: columns are dropped from the end, never the first."""
    return [KeyRuns(names, f"{BACK_OFF} {len(names)}/{len(key)}") for names in shorter(key)]


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


@dataclass(frozen=True, slots=True)
class MeasuredProfile:
    """Measured quantiles.

    Parameters
    ----------
    tasks
        By workflow and task: 10 %, 50 % and 90 % in microseconds.
    """

    tasks: Mapping[tuple[str, str], tuple[float, float, float]]
    name: str = "profile"

    def answer(self, tasks: Tasks, known: KnownTimes) -> Answers:
        """Return the quantiles of tasks whose workflow and name were measured."""
        answers = Answers.silent(len(tasks))
        for row, at in enumerate(zip(tasks.text(WORKFLOW), tasks.text(TASK), strict=True)):
            found = self.tasks.get(at)
            if found is not None:
                answers.quantiles[row] = np.log(found)
        return answers


def read_profile(path: Path) -> MeasuredProfile:
    """Read the scenario that ``truenorth profile -o`` wrote, and the samples beside it.

    Without samples of a task its run time stands for all three quantiles, unless calibration widens them.

    Raises
    ------
    InputError
        If it is no scenario, or the file beside it is none of samples.
    """
    scenario, samples = load_scenario(path), samples_path(path)
    runs: Runs = read_samples(samples).runs if samples.is_file() else {}
    measured: dict[tuple[str, str], tuple[float, float, float]] = {}
    kind = scenario.instance.cluster.gpus[0].kind
    for workflow in build_workflows(scenario.document).values():
        for task in workflow.tasks:
            at = workflow.name, task.name
            given_us = float(task.runtime_on(kind) or task.fastest_us)
            measured[at] = outer_quantiles_us(runs[at]) if at in runs else (given_us, given_us, given_us)
    return MeasuredProfile(measured)


class AnswerError(UserError, ValueError):
    """What was asked gave no run times; the message says what is allowed."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Quantiles that someone else gives, task by task.

    Parameters
    ----------
    answerer
        Is called once per task that reaches it.
    """

    answerer: Answerer
    name: str = "asked"

    def answer(self, tasks: Tasks, known: KnownTimes) -> Answers:
        """Return what the callable says.

        Raises
        ------
        AnswerError
            If it raises, or gives anything but three ascending positive numbers or None.
        """
        answers = Answers.silent(len(tasks))
        for row in range(len(tasks)):
            features = {name: str(values[row]) for name, values in tasks.columns.items()}
            given = ask_own("ask", self.answerer, features)
            if given is not None:
                answers.quantiles[row] = np.log(_check(given)) + math.log(1e6)
        return answers


def ask_own(option: str, function: Callable[[Given], Answered], given: Given) -> Answered:
    """Return what a function of the user's says.

    Raises
    ------
    AnswerError
        If it raises, whatever it raises.
    """
    try:
        return function(given)
    except Exception as error:  # a function of the user's may raise anything
        said = " ".join(str(error).split())[:200]
        raise AnswerError(
            f"--{option}: raised {type(error).__name__}: {said}; allowed is a function that does not"
        ) from error


def _check(given: tuple[float, float, float]) -> tuple[float, float, float]:
    try:
        low, middle, high = (float(value) for value in given)
    except (TypeError, ValueError):
        low = middle = high = math.nan
    if not 0 < low <= middle <= high < math.inf:
        raise AnswerError(f"asked: {given!r} are no quantiles; allowed are None or three ascending positive seconds")
    return low, middle, high
