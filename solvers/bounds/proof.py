"""A bound with what proves it, and the value that it proves: objectives take some values only."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import Any

from truenorth.models import Instance, Objective
from truenorth.models.objective import charges


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

    Times are whole. Where all jobs weigh the same, so are values in units of that weight: late jobs and the makespan
    are whole, a mean latency is a whole number of microseconds over the number of jobs. Other bounds stay as they are.
    """
    charged = charges(objective, instance)
    each = charged.weights.distinct[0]
    return ceil(bound / each) * each if charged.alike else bound
