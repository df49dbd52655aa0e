"""Units of the MILPs: times and costs are divided by powers of two.

Every number so keeps its value in floating point and the largest are around a thousand: a solver's absolute
tolerances then mean something.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from models.formulations.choices import Choices
from models.formulations.scale import ScaledObjective
from models.objective import Term

_LARGEST_BITS = 10


@dataclass(frozen=True, slots=True)
class Units:
    """Exponents of the powers of two by which microseconds, job weights and terms are divided."""

    time_bits: int
    weight_bits: int
    term_bits: int

    @classmethod
    def of(cls, choices: Choices, scaled: ScaledObjective) -> Units:
        """Return units in which the latest end is below 1024 and the largest weight at most 1."""
        time_bits = max(0, int(choices.windows.completion_upper_us.max()).bit_length() - _LARGEST_BITS)
        return cls(time_bits, max(scaled.weights).bit_length(), 0 if scaled.term is Term.LATE else time_bits)

    def time(self, us: int) -> float:
        """Return a time in units."""
        return math.ldexp(us, -self.time_bits)

    def term(self, value: int) -> float:
        """Return a job's term in units."""
        return math.ldexp(value, -self.term_bits)

    def weight(self, weight: int) -> float:
        """Return a job's weight in units."""
        return math.ldexp(weight, -self.weight_bits)

    def cost(self, scaled: int) -> float:
        """Return a scaled objective value, a weight times a term, in units."""
        return math.ldexp(scaled, -self.weight_bits - self.term_bits)

    def scaled(self, cost: float) -> Fraction:
        """Return a cost in units as the exact scaled objective value."""
        return Fraction(cost) * (1 << self.weight_bits + self.term_bits)
