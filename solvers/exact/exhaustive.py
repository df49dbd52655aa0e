"""The oracle: the optimum of tiny instances by trying everything that can matter; no code of a formulation in it."""

from __future__ import annotations

from models.instance import Instance
from models.objective import Objective
from solvers.exact.enumeration import Enumeration
from solvers.exact.enumeration_serving import ServingEnumeration
from solvers.result import Result, Search

METHOD = "exhaustive"
"""Name of the bounds that this solver proves."""


def solve(instance: Instance, objective: Objective) -> Result:
    """Return an optimal plan, or the proof that there is none; for up to about six tasks."""
    search = Search(instance, objective, float("inf"))
    enumeration = Enumeration if instance.one_at_a_time else ServingEnumeration
    best = enumeration(instance, objective).best()
    if best is None:
        search.infeasible = True
    else:
        search.offer(best)
        if search.value is not None:
            search.offer_bound(search.value, METHOD)
    return search.result(METHOD, {})
