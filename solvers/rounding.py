"""Objectives take some values only: bounds may be raised to the next of them."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, gcd, lcm

import numpy as np

from truenorth.models.instance import Instance
from truenorth.models.objective import Charges, Objective, Term, charges


def round_up(instance: Instance, objective: Objective, bound: Fraction) -> Fraction:
    """Return the least value at or above a bound that whole completion times can give.

    Times are whole. Where all jobs weigh the same, so are values in units of that weight: the makespan is whole, a mean
    latency is a whole number of microseconds over the number of jobs. Late jobs cost a multiple of the greatest common
    divisor of their weights. Other bounds stay as they are.
    """
    charged = charges(objective, instance)
    each = charged.weights.distinct[0] if charged.alike else Fraction(0)
    if charged.term is Term.LATE:
        weights = counting(charged)
        each = Fraction(gcd(*(w.numerator for w in weights)), lcm(*(w.denominator for w in weights)))
    return ceil(bound / each) * each if each else bound


def counting(charged: Charges) -> list[Fraction]:
    """Return the weights of the jobs that count, ascending and each once."""
    distinct, of_job = charged.weights
    return sorted({distinct[index] for index in np.unique(of_job).tolist()} - {Fraction(0)})
