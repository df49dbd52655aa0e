"""The objectives in whole numbers, never above the true value, so that what they bound stays bounded.

Weights become integers exactly if small ones do; otherwise they are rounded down, which lowers the objective by less
than one part in ten million.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from truenorth.models.instance import Instance, Ints
from truenorth.models.objective import Objective, Term, charges

_EXACT_UP_TO = 10**7
_ROUNDED_FROM = 10**7
_LARGEST_SUM = 2**60


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
        """Return the scaled objective; no scaled value up to the horizon exceeds 2**60.

        Notes
        -----
        Invariant: scaled value <= factor x true value for every plan, and no scaled value passes 2**60.
        Because: weights are rounded down, terms are whole microseconds or counts, and a maximum or sum keeps the order.
        Cost: O(jobs), in exact fractions.
        If wrong: unsound. A bound on the scaled objective would be divided into one above the true optimum.
        """
        charged = charges(objective, instance)
        true = charged.job_weights
        positive = [weight for weight in true if weight > 0]
        if not positive:
            return cls(objective, charged.term, (0,) * len(true), Fraction(1))
        # Whole weights of no common divisor, if small ones do; else ten million parts of the smallest.
        factor = Fraction(
            math.lcm(*(weight.denominator for weight in positive)),
            math.gcd(*(weight.numerator for weight in positive)),
        )
        if max(positive) * factor > _EXACT_UP_TO:
            factor = _ROUNDED_FROM / min(positive)
        largest = sum(positive, Fraction(0)) * max(1, horizon_us)
        # A sum of all terms at the horizon must fit 64 bits, whatever the weights ask for.
        factor = min(factor, _LARGEST_SUM / largest)
        return cls(objective, charged.term, tuple(int(weight * factor) for weight in true), factor)

    def floor(self, value: Fraction) -> int:
        """Return the largest scaled value of a plan whose true value is at most `value`."""
        return math.floor(value * self.factor)

    def true_bound(self, scaled: int) -> Fraction:
        """Return what a lower bound on the scaled objective proves of the true one."""
        return Fraction(scaled) / self.factor

    def terms(self, instance: Instance, completion_us: Ints) -> list[int]:
        """Return the term of every job for these completions."""
        return [int(term) for term in charges(self.objective, instance).terms(completion_us)]

    def combine(self, terms: Sequence[int]) -> int:
        """Return the scaled value of these terms."""
        weighted = [weight * term for weight, term in zip(self.weights, terms, strict=True)]
        return sum(weighted) if self.objective.is_sum else max(weighted)

    def least(self, instance: Instance, bound: Fraction, horizon_us: int) -> int:
        """Return a scaled value that no plan within the horizon goes below, given a lower bound on the true one."""
        ends = np.full(len(instance.jobs), horizon_us, np.int64)
        return math.ceil(bound * self.factor) - self.shortfall(instance, ends)

    def shortfall(self, instance: Instance, completion_upper_us: Ints) -> int:
        """Return by how much a scaled sum may lie below `factor` x the true one, for rounding of the weights.

        Notes
        -----
        Invariant: factor x true value - scaled value <= what is returned, for plans whose jobs complete by these times.
        Because: terms grow with completions, so that the part that rounding took off each weight costs most at the
            latest.
        If wrong: unsound. `least` subtracts it from a bound of the true objective before it stands in the scaled one.
        """
        exact = [weight * self.factor for weight in charges(self.objective, instance).job_weights]
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

        Notes
        -----
        Invariant: in a plan within the limit no job completes later.
        Because: the jobs before cost at least `least_sums` together, those after at least their own least each, and
            what is left is all that this one may cost. Floors hold for the first jobs only, so the order of the jobs
            matters.
        Cost: O(jobs).
        If wrong: unsound, through the windows that follow.
        """
        due_us = charges(self.objective, instance).due_us.tolist()
        if not self.objective.is_sum:
            return np.array([self._latest(job, due, limit) for job, due in enumerate(due_us)], np.int64)
        alone = [w * t for w, t in zip(self.weights, self.terms(instance, completion_lower_us), strict=True)]
        before, after = self.least_sums(instance, completion_lower_us, floors), sum(alone)
        latest = []
        for job, least in enumerate(alone):
            after -= least
            latest.append(self._latest(job, due_us[job], limit - before[job] - after))
        return np.array(latest, np.int64)

    def _latest(self, job: int, due_us: int, budget: int) -> int:
        """Return the latest completion of a job that may cost `budget`."""
        # It costs nothing, whenever it completes.
        if not self.weights[job]:
            return _LARGEST_SUM
        most = budget // self.weights[job]
        if self.term is Term.LATE:
            return _LARGEST_SUM if most >= 1 else due_us
        return due_us + most
