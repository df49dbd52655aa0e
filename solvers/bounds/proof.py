"""A bound with what proves it, and the value that it proves: objectives take some values only."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from truenorth.models.objective import Charges
from truenorth.solvers.rounding import counting

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


def layers(charged: Charges) -> list[tuple[Fraction, Flags]]:
    """Return weights as layers: what each is worth, and which jobs lie in it; the first holds every job that counts.

    A job weighs at least what the layers are worth in which it lies. So what late jobs weigh is no less than, summed
    over the layers, the worth of each times the number of its jobs that are late.
    """
    distinct, of_job = charged.weights
    return [
        (level - below, np.array([weight >= level for weight in distinct])[of_job])
        for below, level in pairwise([Fraction(0), *thinned(counting(charged), MOST_LAYERS)])
    ]


def thinned(values: list[Value], most: int) -> list[Value]:
    """Return at most so many of ascending values, evenly picked, the outermost included."""
    if len(values) <= most:
        return values
    return [values[i * (len(values) - 1) // (most - 1)] for i in range(most)]
