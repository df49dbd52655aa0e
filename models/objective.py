"""The objectives of a plan: one table says what each charges a job, and every solver reads it.

An objective is the sum, or the largest, of weight x term over the jobs; a term is the time by which a job completes
beyond its due time, or whether it does. A new objective is a name, a row of the table, and what
`solvers.bounds.verify`, which takes nothing from here, says of it. Last stands when a bound proves a value best.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from truenorth.models.cluster import MICROSECONDS_PER_SECOND
from truenorth.models.instance import Instance, Ints
from truenorth.models.timeline import Timeline


class Objective(StrEnum):
    """What a plan minimises; F = latency, r = release, C = completion, w = weight of a job.

    P is what a job's slowdown divides by: its critical path, or the ideal time that its workflow names.

    Attributes
    ----------
    MEAN_LATENCY
        sum F / n, in time.
    MEAN_SLOWDOWN
        sum (F / P) / n, a ratio.
    WEIGHTED_LATENCY
        sum w F / sum w, in time.
    MAKESPAN
        max C from time 0, in time.
    WEIGHTED_TARDINESS
        sum w max(0, F - deadline), in time.
    LATE_JOBS
        sum w over the jobs with F > deadline: their number where all weigh 1.
    MAX_SLOWDOWN
        max F / P, a ratio.
    """

    MEAN_LATENCY = "mean_latency"
    MEAN_SLOWDOWN = "mean_slowdown"
    WEIGHTED_LATENCY = "weighted_latency"
    MAKESPAN = "makespan"
    WEIGHTED_TARDINESS = "weighted_tardiness"
    LATE_JOBS = "late_jobs"
    MAX_SLOWDOWN = "max_slowdown"

    @property
    def unit(self) -> str:
        """Unit in which values are reported: ``s``, ``jobs``, or empty for a ratio."""
        return _TABLE[self].unit

    @property
    def is_sum(self) -> bool:
        """Whether the objective adds up over the jobs (otherwise it is a maximum)."""
        return _TABLE[self].is_sum


class Term(Enum):
    """What of a job is weighted: C, C - r, max(0, C - r - deadline), or whether that is positive."""

    COMPLETION = "completion"
    LATENCY = "latency"
    TARDINESS = "tardiness"
    LATE = "late"


class Weights(NamedTuple):
    """The weights of the jobs: the distinct ones, exact, and for every job which of them is its own. Shape [jobs]."""

    distinct: tuple[Fraction, ...]
    of_job: Ints


@dataclass(frozen=True, slots=True)
class Charges:
    """What an objective charges the jobs of an instance.

    Parameters
    ----------
    term, is_sum
        What is weighted, and whether it adds up over the jobs or the largest counts.
    weights
        The factor of each job's term; 0 for a job that never counts.
    due_us
        The instant up to which a job costs nothing; its release where it has no deadline to be measured by.
        Shape [jobs].
    alike
        Whether every job that counts has the same weight, whatever the instance.
    """

    term: Term
    is_sum: bool
    weights: Weights
    due_us: Ints
    alike: bool

    @property
    def job_weights(self) -> list[Fraction]:
        """The weight of every job."""
        return [self.weights.distinct[index] for index in self.weights.of_job.tolist()]

    def terms(self, completion: Ints) -> Ints:
        """Return the term of every job for completion times in microseconds. Shape [jobs]."""
        beyond = np.maximum(completion - self.due_us, 0)
        return np.asarray(beyond > 0, np.int64) if self.term is Term.LATE else beyond

    def value(self, completion: Ints) -> Fraction:
        """Return the exact value for completion times in microseconds. Shape [jobs]."""
        by_weight = np.argsort(self.weights.of_job, kind="stable")
        present, first = np.unique(self.weights.of_job[by_weight], return_index=True)
        weights: list[Fraction] = [self.weights.distinct[w] for w in present.tolist()]
        terms = self.terms(completion)[by_weight]
        if not self.is_sum:
            largest: list[int] = np.maximum.reduceat(terms, first).tolist()
            return max(weight * term for weight, term in zip(weights, largest, strict=True))
        # A sum of times may outgrow 64 bits, the sums of their upper and lower halves do not.
        upper: list[int] = np.add.reduceat(terms >> 32, first).tolist()
        lower: list[int] = np.add.reduceat(terms & 0xFFFFFFFF, first).tolist()
        totals = [(high << 32) + low for high, low in zip(upper, lower, strict=True)]
        return _sum([weight * total for weight, total in zip(weights, totals, strict=True)])


def charges(objective: Objective, instance: Instance) -> Charges:
    """Return what an objective charges the jobs of an instance."""
    row = _TABLE[objective]
    weights, deadline = row.weights(instance), _deadlines_us(instance)
    due_us = instance.job_release_us + np.maximum(deadline, 0)
    if row.term is Term.COMPLETION:
        due_us = np.zeros_like(deadline)
    elif row.term is Term.LATENCY:
        due_us = instance.job_release_us
    else:  # a job without a deadline is never late: it gets a weight of 0, after all the others
        of_job = np.where(deadline < 0, len(weights.distinct), weights.of_job)
        weights = Weights((*weights.distinct, Fraction(0)), of_job)
    return Charges(row.term, row.is_sum, weights, due_us, row.weights in (_shared_evenly, _one_each))


def _deadlines_us(instance: Instance) -> Ints:
    """Return the deadline of each job relative to its release, -1 where there is none. Shape [jobs]."""
    return np.array([-1 if job.deadline_us is None else job.deadline_us for job in instance.jobs], np.int64)


def completion_us(instance: Instance, timeline: Timeline) -> Ints:
    """Return C_j, the end of each job's last task, in microseconds. Shape [jobs]."""
    return np.maximum.reduceat(timeline.end_us, instance.job_first_task[:-1])


def objective_value(objective: Objective, instance: Instance, completion: Ints) -> Fraction:
    """Return the exact value of an objective for completion times.

    Parameters
    ----------
    completion
        C_j in microseconds. Shape [jobs].

    Returns
    -------
    Fraction
        Microseconds for objectives in time, plain otherwise.
    """
    return charges(objective, instance).value(completion)


def timeline_value(objective: Objective, instance: Instance, timeline: Timeline) -> Fraction:
    """Return the exact value of an objective for a timeline, in the units of `objective_value`."""
    return objective_value(objective, instance, completion_us(instance, timeline))


def mean_ratio(numerators: Sequence[int], denominators: Sequence[int]) -> Fraction:
    """Return the exact mean of ratios of whole numbers, such as slowdowns.

    >>> mean_ratio([3, 2, 2], [2, 1, 2])
    Fraction(3, 2)
    """
    by_denominator: dict[int, int] = {}
    for numerator, denominator in zip(numerators, denominators, strict=True):
        by_denominator[denominator] = by_denominator.get(denominator, 0) + numerator
    return _sum([Fraction(numerator, d) for d, numerator in by_denominator.items()]) / len(numerators)


def _sum(terms: list[Fraction]) -> Fraction:
    while len(terms) > 1:  # adding neighbours keeps the common denominators short for as long as possible
        last = terms[-1:] if len(terms) % 2 else []
        terms = [a + b for a, b in zip(terms[::2], terms[1::2], strict=False)] + last
    return terms[0]


def _shared_evenly(instance: Instance) -> Weights:
    return Weights((Fraction(1, len(instance.jobs)),), np.zeros(len(instance.jobs), np.int64))


def _one_each(instance: Instance) -> Weights:
    return Weights((Fraction(1),), np.zeros(len(instance.jobs), np.int64))


def _per_path(instance: Instance) -> Weights:
    """Return 1 / P_j, which turns latencies into slowdowns."""
    paths, of_job = np.unique(instance.job_ideal_us, return_inverse=True)
    return Weights(tuple(Fraction(1, path) for path in paths.tolist()), of_job)


def _shared_per_path(instance: Instance) -> Weights:
    slowdowns = _per_path(instance)
    return Weights(tuple(weight / len(instance.jobs) for weight in slowdowns.distinct), slowdowns.of_job)


def _given(instance: Instance) -> Weights:
    """Return the weights that the jobs were given."""
    number: dict[Fraction, int] = {}
    of_job = [number.setdefault(job.weight, len(number)) for job in instance.jobs]
    return Weights(tuple(number), np.array(of_job, np.int64))


def _shared_as_given(instance: Instance) -> Weights:
    """Return the given weights as shares of their sum; all 0 if that is 0."""
    given = _given(instance)
    total = sum((job.weight for job in instance.jobs), Fraction(0))
    return Weights(tuple(weight / total if total else Fraction(0) for weight in given.distinct), given.of_job)


class _Definition(NamedTuple):
    """What makes an objective: weight and term of a job, whether they add up, and the unit of values."""

    weights: Callable[[Instance], Weights]
    term: Term
    is_sum: bool
    unit: str


_TABLE = {
    Objective.MEAN_LATENCY: _Definition(_shared_evenly, Term.LATENCY, True, "s"),
    Objective.MEAN_SLOWDOWN: _Definition(_shared_per_path, Term.LATENCY, True, ""),
    Objective.WEIGHTED_LATENCY: _Definition(_shared_as_given, Term.LATENCY, True, "s"),
    Objective.MAKESPAN: _Definition(_one_each, Term.COMPLETION, False, "s"),
    Objective.WEIGHTED_TARDINESS: _Definition(_given, Term.TARDINESS, True, "s"),
    Objective.LATE_JOBS: _Definition(_given, Term.LATE, True, "jobs"),
    Objective.MAX_SLOWDOWN: _Definition(_per_path, Term.LATENCY, False, ""),
}


@dataclass(frozen=True, slots=True)
class ObjectiveValue:
    """An objective and its value in the unit in which it is reported; None where there is none."""

    name: Objective
    value: float | None


def reported_value(objective: Objective, value: Fraction) -> float:
    """Return an exact value in the unit in which it is reported (seconds for objectives in time)."""
    return float(value / MICROSECONDS_PER_SECOND if objective.unit == "s" else value)


def reported_bound(objective: Objective, bound: Fraction) -> float:
    """Return an exact lower bound in its reported unit, rounded down to a float."""
    exact = bound / MICROSECONDS_PER_SECOND if objective.unit == "s" else bound
    nearest = float(exact)
    return nearest if Fraction(nearest) <= exact else math.nextafter(nearest, -math.inf)


def gap(value: Fraction, bound: Fraction | None) -> float | None:
    """Return (value - bound) / value; 0 if both are 0, None without a bound. A negative bound counts as 0."""
    if bound is None:
        return None
    least = max(bound, Fraction(0))  # no objective is ever negative
    return 0.0 if value == least else float((value - least) / value)


class Status(StrEnum):
    """What is known at the end of a search.

    Attributes
    ----------
    OPTIMAL
        The plan's value equals its lower bound (relative 1e-6).
    FEASIBLE
        There is a plan; a better one may exist.
    INFEASIBLE
        It is proved that there is no plan.
    NO_SOLUTION
        The search ended without a plan; a bound may be known all the same.
    """

    OPTIMAL = "OPTIMAL"
    FEASIBLE = "FEASIBLE"
    INFEASIBLE = "INFEASIBLE"
    NO_SOLUTION = "NO_SOLUTION"


OPTIMALITY_TOLERANCE = Fraction(1, 1_000_000)
"""Relative difference of value and bound up to which a plan counts as proved optimal."""


def proves(value: Fraction | None, bound: Fraction | None) -> bool:
    """Say whether a bound shows that a plan of this value is optimal."""
    return value is not None and bound is not None and value - bound <= OPTIMALITY_TOLERANCE * value
