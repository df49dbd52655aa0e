"""Which values an objective can take: a bound between two of them proves the upper one."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

from truenorth.models import Instance, Objective
from truenorth.models.objective import charges


def round_up(instance: Instance, objective: Objective, bound: Fraction) -> Fraction:
    """Return the least value at or above a bound that whole completion times can give.

    Times are whole. Where all jobs weigh the same, so are values in units of that weight: late jobs and the makespan
    are whole, a mean latency is a whole number of microseconds over the number of jobs. Other bounds stay as they are.
    """
    charged = charges(objective, instance)
    each = charged.weights.distinct[0]
    return ceil(bound / each) * each if charged.alike else bound
