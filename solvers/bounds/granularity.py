"""Which values an objective can take: a bound between two of them proves the upper one."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

from models import Instance, Objective


def round_up(instance: Instance, objective: Objective, bound: Fraction) -> Fraction:
    """Return the least value at or above a bound that whole completion times can give.

    Late jobs and the makespan are whole, a mean latency is a whole number of microseconds over the number of jobs;
    for the other objectives the bound stays as it is.
    """
    if objective in (Objective.LATE_JOBS, Objective.MAKESPAN):
        return Fraction(ceil(bound))
    if objective is Objective.MEAN_LATENCY:
        return Fraction(ceil(bound * len(instance.jobs)), len(instance.jobs))
    return bound
