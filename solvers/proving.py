"""How a window is proved that is small enough for it: the exact methods, in what order and for how long."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from truenorth.solvers.budget import Budget, Method
from truenorth.solvers.result import Search
from truenorth.solvers.side_by_side import anneal, run_beams, suits_beams

if TYPE_CHECKING:
    from truenorth.solvers.bounds.lagrangian.improve import Priced

EXACT_TASKS = 150
"""Windows of up to so many tasks are worth CP-SAT's time where the objective adds up over jobs."""
EXACT_TASKS_OF_MAXIMA = 400
"""The same where it is a maximum over jobs: nothing else proves those, and CP-SAT is strong there."""

_CP_SAT_SHARE = 0.2
"""CP-SAT is asked unbidden if building its model takes at most this share of the time."""
_WARM_UP_S_PER_TASK, _WARM_UP_SHARE = 0.06, 0.15
_SHORT_WARM_UP_S, _SHORT_WARM_UP_SHARE = 3.0, 0.5
"""Before CP-SAT up to so many seconds, and this share of a short limit: until then the Lagrangian bound gains most."""
_WARM_UP_SHARE_OF_MAXIMA = 0.05
"""No prices are made for a maximum over jobs, so its plans and proofs soon go on side by side."""
_BEAM_SHARE = 0.1
"""Before the programme over start orders beams may take so much of the time: a poor plan costs it states."""
_START_ORDERS_SHARE, _BETTER_PLAN_SHARE = 0.5, 0.3
"""The programme over start orders proves most windows that it suits in seconds, and may take the first of these shares
of what is left for others; the second goes to a better plan if it fails."""
_REFUTATION_SHARE = 0.4
"""Most maxima of some twenty tasks are proved by refutation in a second; others may take this share of the time."""
_SIDE_BY_SIDE_SHARE = 0.75
"""So long is a maximum annealed beside CP-SAT; then CP-SAT goes on from the best plan with all workers."""


def suits_cp_sat(search: Search) -> bool:
    """Say whether a window is small enough for CP-SAT to be the best use of the time."""
    instance, most = search.instance, EXACT_TASKS if search.objective.is_sum else EXACT_TASKS_OF_MAXIMA
    if instance.n_tasks > most:
        return False
    # Late: OR-Tools is slow to import, and windows that are too large do not need it.
    from truenorth.solvers.exact.cp_sat import build_s

    return build_s(instance) <= _CP_SAT_SHARE * search.remaining_s


def warm_up_s(search: Search, budget: Budget) -> float:
    """Return how long local search and bound prepare the ground for CP-SAT, whose windows shrink with them."""
    enough_s = _WARM_UP_S_PER_TASK * search.instance.n_tasks
    if _side_by_side(search, budget):
        return min(_WARM_UP_SHARE_OF_MAXIMA * search.remaining_s, enough_s)
    short_s = min(_SHORT_WARM_UP_S, _SHORT_WARM_UP_SHARE * search.remaining_s)
    return min(max(short_s, _WARM_UP_SHARE * search.remaining_s), enough_s)


def prove(search: Search, budget: Budget, priced: Priced | None) -> None:
    """Close the gap of a search, as far as time allows.

    Parameters
    ----------
    priced
        A bound with its prices, if there is one: it narrows the windows of CP-SAT.
    """
    if budget.method is Method.MILP:
        from truenorth.solvers.exact import milp

        milp.improve(search, budget.workers, budget.seed)
        _anneal_instead(search, budget, milp.METHOD)
        return
    from truenorth.solvers.exact import arc_flow, cp_sat, refute

    if arc_flow.applies(search.instance, search.objective):
        arc_flow.improve(search, budget.workers, budget.seed)
    if priced is not None:
        _prove_by_start_orders(search, budget, priced)
    if not search.proved:
        refute.improve(search, _REFUTATION_SHARE * search.remaining_s)
    if not search.proved and _side_by_side(search, budget):
        _anneal_and_prove(search, budget)
    if not search.proved and search.remaining_s > 0:
        cp_sat.improve(search, budget.workers, budget.seed, priced)
        _anneal_instead(search, budget, cp_sat.METHOD)


def _anneal_instead(search: Search, budget: Budget, method: str) -> None:
    """Use the time of a method that gave way."""
    if method in search.left_out and not search.proved and search.remaining_s > 0:
        anneal(search, budget)


def _prove_by_start_orders(search: Search, budget: Budget, priced: Priced) -> None:
    """Run the programme over start orders, and once more from a better plan if the first left it too many states."""
    from truenorth.solvers.exact import parts, start_orders

    if not start_orders.applies(search.instance, search.objective):
        return
    if suits_beams(search.instance, search.objective):
        run_beams(search, budget, priced, _BEAM_SHARE * search.remaining_s)
    before = search.value
    parts.improve(search, priced, _START_ORDERS_SHARE * search.remaining_s, budget.workers)
    if not search.proved:
        anneal(search, budget, _BETTER_PLAN_SHARE * search.remaining_s)
    # Only a better plan leaves fewer states within the limit.
    if not search.proved and search.value != before:
        parts.improve(search, priced, _START_ORDERS_SHARE * search.remaining_s, budget.workers)


def _side_by_side(search: Search, budget: Budget) -> bool:
    """Say whether annealing and CP-SAT go on at the same time: for a maximum, if there are workers for both."""
    return not search.objective.is_sum and budget.workers > 1 and budget.method is not Method.MILP


def _anneal_and_prove(search: Search, budget: Budget) -> None:
    """Anneal a maximum while CP-SAT raises its bound.

    Where tasks have many GPUs to choose from annealing finds by far the better plans, where they have few only CP-SAT
    proves anything; nothing tells beforehand which it is.
    """
    from truenorth.solvers.exact import cp_sat

    # Half of the workers each; of an odd number annealing gets one more.
    limit_s, provers = _SIDE_BY_SIDE_SHARE * search.remaining_s, budget.workers // 2
    with ThreadPoolExecutor(1) as pool:
        proving = pool.submit(cp_sat.prove_maximum, search, provers, budget.seed, limit_s)
        anneal(search, replace(budget, workers=budget.workers - provers), limit_s)
        proving.result()
