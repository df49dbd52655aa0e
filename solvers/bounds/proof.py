"""A bound with what proves it."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any


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
