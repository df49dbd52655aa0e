"""What is known at the end of a search, and when a bound proves a plan."""

from __future__ import annotations

from enum import StrEnum
from fractions import Fraction


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
