"""A bound with what proves it, and the value that it proves: objectives take some values only."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import ceil, gcd, lcm
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from truenorth.models import Instance, Objective
from truenorth.models.objective import Charges, Term, charges

Flags = NDArray[np.bool_]
Value = TypeVar("Value")

MOST_LAYERS = 32
"""Weights of late jobs are cut into at most so many layers; docs/certificate.md names the same number."""


@dataclass(frozen=True, slots=True)
class Proof:
    """A value that no plan lies below, in the units of `models.objective_value`.

    Parameters
    ----------
    witness
        What the prover searched for and found (intervals, a window), as plain JSON data: with it the value is a sum.
    """

    value: Fraction
    witness: dict[str, Any]


def round_up(instance: Instance, objective: Objective, bound: Fraction) -> Fraction:
    """Return the least value at or above a bound that whole completion times can give.

    Times are whole. Where all jobs weigh the same, so are values in units of that weight: the makespan is whole, a mean
    latency is a whole number of microseconds over the number of jobs. Late jobs cost a multiple of the greatest common
    divisor of their weights. Other bounds stay as they are.
    """
    charged = charges(objective, instance)
    each = charged.weights.distinct[0] if charged.alike else Fraction(0)
    if charged.term is Term.LATE:
        weights = _counting(charged)
        each = Fraction(gcd(*(w.numerator for w in weights)), lcm(*(w.denominator for w in weights)))
    return ceil(bound / each) * each if each else bound


def layers(charged: Charges) -> list[tuple[Fraction, Flags]]:
    """Return weights as layers: what each is worth, and which jobs lie in it; the first holds every job that counts.

    A job weighs at least what the layers are worth in which it lies. So what late jobs weigh is no less than, summed
    over the layers, the worth of each times the number of its jobs that are late.
    """
    distinct, of_job = charged.weights
    return [
        (level - below, np.array([weight >= level for weight in distinct])[of_job])
        for below, level in pairwise([Fraction(0), *thinned(_counting(charged), MOST_LAYERS)])
    ]


def _counting(charged: Charges) -> list[Fraction]:
    """Return the weights of the jobs that count, ascending and each once."""
    distinct, of_job = charged.weights
    return sorted({distinct[index] for index in np.unique(of_job).tolist()} - {Fraction(0)})


def thinned(values: list[Value], most: int) -> list[Value]:
    """Return at most so many of ascending values, evenly picked, the outermost included."""
    if len(values) <= most:
        return values
    return [values[i * (len(values) - 1) // (most - 1)] for i in range(most)]
