"""Windows with runs on several GPUs: which methods run, in what order and for how long.

Plans come from annealing over orders, small windows from CP-SAT, too; bounds are of prices, of the torn twin, and of
CP-SAT.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import TYPE_CHECKING

from truenorth.models.features import require
from truenorth.models.formulations import gangs as formulations
from truenorth.models.formulations.gang_loads import pairs_of
from truenorth.models.formulations.scale import ScaledObjective
from truenorth.models.formulations.windows import horizon_us
from truenorth.models.instance import Instance
from truenorth.models.torn import priced_window, torn
from truenorth.solvers.bounds import closed_form
from truenorth.solvers.budget import Budget, Method
from truenorth.solvers.result import Search
from truenorth.solvers.search import gang_loads, gangs
from truenorth.solvers.side_by_side import raise_bound
from truenorth.solvers.trust import CP_SAT

if TYPE_CHECKING:
    from truenorth.solvers.bounds.lagrangian.improve import Priced

SUPPORTS = formulations.SUPPORTS
_MOST_PAIRS, _PAIRS_PER_S = 200_000, 400
"""CP-SAT is asked about windows with no more pairs of uses of a model; beside annealing, per second that is left.

It takes 0.1 to 0.5 ms to formulate one, and plans of windows with more of them than it has time for are annealing's.
"""


def refuse(instance: Instance, method: Method = Method.AUTO) -> None:
    """Refuse a window that has what no method for runs on several GPUs supports, or not the one that was asked for.

    Raises
    ------
    UnsupportedInstanceError
        Naming the features.
    """
    require(instance, "the planner, for runs on several GPUs,", SUPPORTS)
    if method is Method.MILP:
        from truenorth.models.formulations import gangs_milp

        require(instance, "milp, for runs on several GPUs,", gangs_milp.SUPPORTS)


def improve(search: Search, budget: Budget) -> tuple[tuple[Fraction, str], Priced | None]:
    """Look for plans and proofs; return the best bounds of a formula and of prices: those of the torn twin."""
    instance, shares, counted = search.instance, search.tuning, budget.iterations is not None
    twin, loaded = torn(instance), any(instance.needs)
    orders = gang_loads if loaded else gangs
    orders.begin(search)
    formula = closed_form.best(twin, search.objective, lambda: shares.formulas_share * search.clock.left_s)
    search.offer_bound(*formula)
    if counted:
        orders.improve(search, budget.seed, budget.workers, budget.iterations)
        return formula, None
    pairs = pairs_of(instance) if loaded else 0
    if budget.method is Method.CP_SAT:
        if pairs <= _MOST_PAIRS:
            _prove(search.in_ticks(), budget)
        return formula, None
    if budget.method is Method.MILP:
        from truenorth.solvers.exact import milp

        milp.improve(search.in_ticks(), budget.workers, budget.seed)
        return formula, None
    exact = budget.method is Method.AUTO and instance.n_tasks <= shares.exact_tasks
    exact = exact and pairs <= min(_MOST_PAIRS, _PAIRS_PER_S * search.clock.left_s)
    if exact and not search.proved:
        _prove(search.part(shares.gangs_exact_share * search.clock.left_s).in_ticks(), budget)
    if search.proved:
        return formula, None
    left_s = search.clock.left_s * (shares.gangs_exact_share if exact else 1.0)
    priced = _anneal_and_bound(search.part(left_s), priced_window(instance), budget, orders.improve)
    # What was left open by then has another turn, from a better plan.
    if exact and not search.proved:
        _prove(search.in_ticks(), budget)
    return formula, priced


def _anneal_and_bound(
    search: Search, window: Instance, budget: Budget, improve_orders: Callable[[Search, int, int], None]
) -> Priced | None:
    """Anneal with all workers but one, which first raises the bound of a window and then anneals, too."""
    meanwhile = search.part(search.tuning.gangs_prices_share * search.clock.left_s)
    alone = Search(window, search.objective, meanwhile.clock.child(), tuning=search.tuning)
    with ThreadPoolExecutor(1) as pool:
        bounding = pool.submit(raise_bound, alone)
        if budget.workers > 1:
            improve_orders(meanwhile, budget.seed, budget.workers - 1)
        priced = bounding.result()
    if priced is not None:
        from truenorth.solvers.bounds.lagrangian.improve import METHOD

        search.offer_bound(priced.bound, METHOD)
    if not search.proved:
        improve_orders(search, budget.seed + budget.workers, budget.workers)
    return priced


def _prove(search: Search, budget: Budget) -> None:
    """Put the window to CP-SAT, from the best plan so far."""
    from truenorth.solvers.exact.cp_sat import SolverRun

    instance, known = search.instance, search.timeline
    end_us = max(horizon_us(instance), 0 if known is None else int(known.end_us.max()))
    scaled = ScaledObjective.of(search.objective, instance, end_us)
    least = 0 if search.bound is None else max(0, scaled.least(instance, search.bound, end_us))

    def offer_bound(bound: int) -> None:
        search.offer_bound(scaled.true_bound(bound), CP_SAT)

    with search.giving_way(CP_SAT):
        formulation = formulations.formulate(instance, scaled, end_us, least, allowance=search.allowance)
        if known is not None:
            formulations.add_hint(formulation, instance, known)
        SolverRun(search, formulation, offer_bound, budget.workers, budget.seed, search.clock.left_s).follow()
