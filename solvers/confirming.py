"""A second opinion on proofs that rest on one solver's word: another solver is asked, or the same in other words.

A proof that a plan is optimal, or that there is none, says that no plan is worth at most some value. That is what the
others are asked, with the value given: whether there is such a plan, not what the best one is. If one is found the
first solver has contradicted itself and nothing it said is kept; if nobody answers in time, the proof stays as it is.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from math import inf

from truenorth.models.features import missing
from truenorth.models.formulations import gangs_milp
from truenorth.models.formulations.milp import SUPPORTS
from truenorth.models.formulations.windows import METHOD as WINDOWS
from truenorth.models.formulations.windows import leave_room
from truenorth.models.instance import Instance
from truenorth.models.objective import OPTIMALITY_TOLERANCE, Objective
from truenorth.models.timeline import Timeline
from truenorth.solvers.budget import Budget
from truenorth.solvers.clock import Clock
from truenorth.solvers.exact import arc_flow, cp_sat, milp
from truenorth.solvers.result import Search
from truenorth.solvers.trust import ARC_FLOW, CP_SAT, MILP, SOLVER_OF, SolverFaultWarning

_LEAST_S = 2.0
"""So long the others may take in any case, and more only if the search has taken longer."""


@dataclass(frozen=True, slots=True)
class Opinion:
    """What others say of a claim: who confirms it, or the plan that contradicts it, or neither."""

    confirmed_by: str | None
    timeline: Timeline | None


def confirm(search: Search, budget: Budget) -> None:
    """Ask others about a search's proof if it rests on one solver's word, for as long as the search took itself."""
    by = search.rests_on
    if by is None or search.clock.left_s <= 0:
        return
    most = None if search.value is None else search.value * (1 - OPTIMALITY_TOLERANCE)
    limit_s = min(search.clock.left_s, max(_LEAST_S, search.clock.elapsed_s))
    opinion = ask_others(by, search.instance, search.objective, most, budget, search.clock.child(limit_s))
    search.confirmed_by = opinion.confirmed_by
    if opinion.timeline is not None:
        search.forget(SOLVER_OF[by], f"{SOLVER_OF[by]} denies a plan that others have found")
        search.offer(opinion.timeline)


def ask_others(
    by: str, instance: Instance, objective: Objective, most: Fraction | None, budget: Budget, clock: Clock
) -> Opinion:
    """Ask others whether there is a plan of at most some value, which a method denies.

    Parameters
    ----------
    by
        The method.
    most
        The value; None: any.

    Warns
    -----
    SolverFaultWarning
        If there is one.
    """
    window = Search(instance, objective, clock).on_twin().instance
    if most is not None and not instance.gangs and not leave_room(window, objective, most):
        return Opinion(WINDOWS, None)
    others = _others(by, instance, budget.tuning.milp_tasks)
    for left, (name, ask) in zip(range(len(others), 0, -1), others, strict=True):
        part = clock.child(clock.left_s / left)
        limited = Search(instance, objective, part, most=inf if most is None else most)
        asked = limited.on_twin().in_ticks()
        ask(asked, None if most is None else most / asked.value_of_one, budget.workers, budget.seed + 1)
        if limited.timeline is not None:
            said = f"{SOLVER_OF[by]} denies a plan that {name} has found"
            fault = SolverFaultWarning(SOLVER_OF[by], said, instance, objective, limited.timeline)
            warnings.warn(fault, stacklevel=2)
        if limited.proved:
            return Opinion(name if limited.infeasible else None, limited.timeline)
    return Opinion(None, None)


def _others(
    by: str, instance: Instance, milp_tasks: int
) -> list[tuple[str, Callable[[Search, Fraction | None, int, int], None]]]:
    """Return whom to ask about what a method says, by name: whoever shares least with it comes first."""
    if by == ARC_FLOW:
        return [("arc-flow without presolve", arc_flow.look_within)]
    anew = "cp-sat" if by == MILP else "cp-sat without presolve"
    supported = gangs_milp.SUPPORTS if instance.gangs else SUPPORTS
    twin = instance.n_tasks <= milp_tasks and not missing(instance, supported)
    others = [(MILP, milp.look_within)] if by == CP_SAT and twin else []
    return [*others, (anew, partial(cp_sat.look_within, presolve=by == MILP))]
