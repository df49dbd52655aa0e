"""The seven objectives in whole numbers, never above the true value, so that what they bound stays bounded.

Every objective is a sum or a maximum over the jobs of weight x term, where the term is a time in microseconds or, for
late jobs, 0 or 1. Weights become integers exactly if small ones do; otherwise they are rounded down, which lowers
the objective by less than one part in ten million.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from fractions import Fraction

import numpy as np

from models.instance import Instance, Ints
from models.objective import Objective

_EXACT_UP_TO = 10**7
_ROUNDED_FROM = 10**7
_LARGEST_SUM = 2**60


class Term(Enum):
    """What of a job is weighted: completion, latency, tardiness, or whether it is late."""

    COMPLETION = "completion"
    LATENCY = "latency"
    TARDINESS = "tardiness"
    LATE = "late"


_TERM = {
    Objective.MEAN_LATENCY: Term.LATENCY,
    Objective.MEAN_SLOWDOWN: Term.LATENCY,
    Objective.WEIGHTED_LATENCY: Term.LATENCY,
    Objective.MAKESPAN: Term.COMPLETION,
    Objective.WEIGHTED_TARDINESS: Term.TARDINESS,
    Objective.LATE_JOBS: Term.LATE,
    Objective.MAX_SLOWDOWN: Term.LATENCY,
}


@dataclass(frozen=True, slots=True)
class ScaledObjective:
    """An objective as a sum or maximum of integer weights x terms; divided by `factor` it never exceeds the true value.

    Parameters
    ----------
    objective
        The one that is scaled.
    term
        What is weighted.
    weights
        Per job; 0 for a job that never counts.
    factor
        Scaled value over true value, up to rounding.
    """

    objective: Objective
    term: Term
    weights: tuple[int, ...]
    factor: Fraction

    @classmethod
    def of(cls, objective: Objective, instance: Instance, horizon_us: int) -> ScaledObjective:
        """Return the scaled objective; no scaled value up to the horizon exceeds 2**60."""
        true = _true_weights(objective, instance)
        positive = [weight for weight in true if weight > 0]
        if not positive:
            return cls(objective, _TERM[objective], (0,) * len(true), Fraction(1))
        factor = Fraction(
            math.lcm(*(weight.denominator for weight in positive)),
            math.gcd(*(weight.numerator for weight in positive)),
        )
        if max(positive) * factor > _EXACT_UP_TO:
            factor = _ROUNDED_FROM / min(positive)
        largest = sum(positive, Fraction(0)) * max(1, horizon_us)
        factor = min(factor, _LARGEST_SUM / largest)
        return cls(objective, _TERM[objective], tuple(int(weight * factor) for weight in true), factor)

    def floor(self, value: Fraction) -> int:
        """Return the largest scaled value of a plan whose true value is at most `value`."""
        return math.floor(value * self.factor)

    def true_bound(self, scaled: int) -> Fraction:
        """Return what a lower bound on the scaled objective proves of the true one."""
        return Fraction(scaled) / self.factor

    def terms(self, instance: Instance, completion_us: Ints) -> list[int]:
        """Return the term of every job for these completions."""
        return [self._term(instance, job, int(done)) for job, done in enumerate(completion_us)]

    def combine(self, terms: Sequence[int]) -> int:
        """Return the scaled value of these terms."""
        weighted = [weight * term for weight, term in zip(self.weights, terms, strict=True)]
        return sum(weighted) if self.objective.is_sum else max(weighted)

    def shortfall(self, instance: Instance, completion_upper_us: Ints) -> int:
        """Return by how much a scaled sum may lie below `factor` x the true one, for rounding of the weights."""
        exact = [weight * self.factor for weight in _true_weights(self.objective, instance)]
        lost = [weight - whole for weight, whole in zip(exact, self.weights, strict=True)]
        terms = self.terms(instance, completion_upper_us)
        return math.ceil(sum((part * term for part, term in zip(lost, terms, strict=True) if part), Fraction(0)))

    def first_jobs(self, count: int) -> ScaledObjective:
        """Return the part of a sum that the first jobs contribute, in the same scale."""
        return replace(self, weights=self.weights[:count])

    def least_sums(self, instance: Instance, completion_lower_us: Ints, floors: Sequence[int] = ()) -> list[int]:
        """Return what the first 0, 1, 2, ... jobs of a sum cost at least together.

        Parameters
        ----------
        completion_lower_us
            Times before which the jobs cannot complete. Shape [jobs].
        floors
            The same figures for the first of these counts, as far as more is known.
        """
        sums = [0]
        for weight, term in zip(self.weights, self.terms(instance, completion_lower_us), strict=True):
            known = floors[len(sums)] if len(sums) < len(floors) else 0
            sums.append(max(sums[-1] + weight * term, known))
        return sums

    def latest_completion_us(
        self, instance: Instance, completion_lower_us: Ints, limit: int, floors: Sequence[int] = ()
    ) -> Ints:
        """Return the time by which each job completes in every plan whose scaled value is at most `limit`.

        Parameters
        ----------
        completion_lower_us
            Times before which the jobs cannot complete; in a sum every other job costs at least that. Shape [jobs].
        floors
            What the first 0, 1, 2, ... jobs of a sum cost at least together, as far as it is known.
        """
        if not self.objective.is_sum:
            return np.array([self._latest(instance, job, limit) for job in range(len(self.weights))], np.int64)
        alone = [w * t for w, t in zip(self.weights, self.terms(instance, completion_lower_us), strict=True)]
        before, after = self.least_sums(instance, completion_lower_us, floors), sum(alone)
        latest = []
        for job, least in enumerate(alone):
            after -= least
            latest.append(self._latest(instance, job, limit - before[job] - after))
        return np.array(latest, np.int64)

    def _term(self, instance: Instance, job: int, completion: int) -> int:
        latency, deadline = completion - int(instance.job_release_us[job]), instance.jobs[job].deadline_us
        if self.term is Term.COMPLETION:
            return completion
        if self.term is Term.LATENCY:
            return latency
        if deadline is None:
            return 0
        return max(0, latency - deadline) if self.term is Term.TARDINESS else int(latency > deadline)

    def _latest(self, instance: Instance, job: int, budget: int) -> int:
        """Return the latest completion of a job that may cost `budget`."""
        release, deadline, weight = int(instance.job_release_us[job]), instance.jobs[job].deadline_us, self.weights[job]
        most = budget // weight if weight else None
        if most is None or (self.term is Term.LATE and most >= 1):
            return _LARGEST_SUM
        if self.term is Term.COMPLETION:
            return most
        if self.term is Term.LATENCY:
            return release + most
        return release + (deadline or 0) + (most if self.term is Term.TARDINESS else 0)


def _true_weights(objective: Objective, instance: Instance) -> list[Fraction]:
    """Return the exact factor of each job's term."""
    n = len(instance.jobs)
    if objective is Objective.MEAN_LATENCY:
        return [Fraction(1, n)] * n
    if objective is Objective.MEAN_SLOWDOWN:
        return [Fraction(1, n * job.critical_path_us) for job in instance.jobs]
    if objective is Objective.MAX_SLOWDOWN:
        return [Fraction(1, job.critical_path_us) for job in instance.jobs]
    if objective is Objective.WEIGHTED_LATENCY:
        total = sum((job.weight for job in instance.jobs), Fraction(0))
        return [job.weight / total if total else Fraction(0) for job in instance.jobs]
    if objective is Objective.MAKESPAN:
        return [Fraction(1)] * n
    weights = [job.weight if objective is Objective.WEIGHTED_TARDINESS else Fraction(1) for job in instance.jobs]
    return [
        weight if job.deadline_us is not None else Fraction(0)
        for weight, job in zip(weights, instance.jobs, strict=True)
    ]
