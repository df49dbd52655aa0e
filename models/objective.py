"""The seven objectives of a plan, each defined once and computed exactly."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from enum import StrEnum
from fractions import Fraction

import numpy as np

from models.cluster import MICROSECONDS_PER_SECOND
from models.instance import Instance, Ints
from models.timeline import Timeline


class Objective(StrEnum):
    """What a plan minimises; F = latency, r = release, C = completion, P = critical path, w = weight of a job.

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
        Number of jobs with F > deadline.
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
        if self is Objective.LATE_JOBS:
            return "jobs"
        return "" if self in (Objective.MEAN_SLOWDOWN, Objective.MAX_SLOWDOWN) else "s"

    @property
    def is_sum(self) -> bool:
        """Whether the objective adds up over the jobs (otherwise it is a maximum)."""
        return self not in (Objective.MAKESPAN, Objective.MAX_SLOWDOWN)


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
    latency = [int(value) for value in completion - instance.job_release_us]
    return _FORMULA[objective](instance, latency, [int(value) for value in completion])


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
    terms = [Fraction(numerator, denominator) for denominator, numerator in by_denominator.items()]
    while len(terms) > 1:  # adding neighbours keeps the common denominators short for as long as possible
        last = terms[-1:] if len(terms) % 2 else []
        terms = [a + b for a, b in zip(terms[::2], terms[1::2], strict=False)] + last
    return terms[0] / len(numerators)


def _mean_latency(instance: Instance, latency: list[int], completion: list[int]) -> Fraction:
    return Fraction(sum(latency), len(latency))


def _mean_slowdown(instance: Instance, latency: list[int], completion: list[int]) -> Fraction:
    return mean_ratio(latency, instance.job_critical_us.tolist())


def _weighted_latency(instance: Instance, latency: list[int], completion: list[int]) -> Fraction:
    weights = [job.weight for job in instance.jobs]
    total = sum(weights, Fraction(0))
    weighted = sum((w * flow for w, flow in zip(weights, latency, strict=True)), Fraction(0))
    return weighted / total if total else Fraction(0)


def _makespan(instance: Instance, latency: list[int], completion: list[int]) -> Fraction:
    return Fraction(max(completion))


def _weighted_tardiness(instance: Instance, latency: list[int], completion: list[int]) -> Fraction:
    return sum(
        (
            job.weight * max(0, flow - job.deadline_us)
            for job, flow in zip(instance.jobs, latency, strict=True)
            if job.deadline_us is not None
        ),
        Fraction(0),
    )


def _late_jobs(instance: Instance, latency: list[int], completion: list[int]) -> Fraction:
    return Fraction(
        sum(
            job.deadline_us is not None and flow > job.deadline_us
            for job, flow in zip(instance.jobs, latency, strict=True)
        )
    )


def _max_slowdown(instance: Instance, latency: list[int], completion: list[int]) -> Fraction:
    return max(Fraction(flow, path) for flow, path in set(zip(latency, instance.job_critical_us.tolist(), strict=True)))


_FORMULA: dict[Objective, Callable[[Instance, list[int], list[int]], Fraction]] = {
    Objective.MEAN_LATENCY: _mean_latency,
    Objective.MEAN_SLOWDOWN: _mean_slowdown,
    Objective.WEIGHTED_LATENCY: _weighted_latency,
    Objective.MAKESPAN: _makespan,
    Objective.WEIGHTED_TARDINESS: _weighted_tardiness,
    Objective.LATE_JOBS: _late_jobs,
    Objective.MAX_SLOWDOWN: _max_slowdown,
}


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
