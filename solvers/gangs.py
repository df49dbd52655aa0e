"""Windows with runs on several GPUs: which methods run, in what order and for how long.

Plans come from annealing over orders, small windows from CP-SAT, too; bounds are those of the torn twin, and CP-SAT's.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import TYPE_CHECKING

from truenorth.models.errors import QuestionError
from truenorth.models.features import require
from truenorth.models.formulations import gangs as formulations
from truenorth.models.formulations.scale import ScaledObjective
from truenorth.models.instance import Instance
from truenorth.models.torn import torn
from truenorth.solvers.bounds import closed_form
from truenorth.solvers.budget import Budget, Method
from truenorth.solvers.faults import CP_SAT
from truenorth.solvers.result import Search
from truenorth.solvers.search import gangs as orders
from truenorth.solvers.side_by_side import raise_bound

if TYPE_CHECKING:
    from truenorth.solvers.bounds.lagrangian.improve import Priced

_EXACT_TASKS = 150
"""Windows of up to so many tasks are put to CP-SAT."""
_FORMULAS_SHARE, _PRICES_SHARE, _EXACT_SHARE = 0.2, 0.5, 0.5


SUPPORTS = orders.SUPPORTS


def refuse(instance: Instance, method: Method) -> None:
    """Refuse a window that has what no method for runs on several GPUs supports, and a method that has none of them.

    Raises
    ------
    UnsupportedInstanceError, QuestionError
        Naming the features, or the method.
    """
    require(instance, "the planner, for runs on several GPUs,", SUPPORTS)
    if method is Method.MILP:
        raise QuestionError("milp has no support for runs on several GPUs; allowed are auto, cp-sat, search", "method")


def improve(search: Search, budget: Budget) -> tuple[tuple[Fraction, str], Priced | None]:
    """Look for plans and proofs; return the best bounds of a formula and of prices: those of the torn twin."""
    instance = search.instance
    twin = torn(instance)
    if budget.method is not Method.CP_SAT:
        orders.begin(search)
    formula = closed_form.best(twin, search.objective, lambda: _FORMULAS_SHARE * search.remaining_s)
    search.offer_bound(*formula)
    if budget.iterations is not None:
        orders.improve(search, budget.seed, budget.workers, iterations=budget.iterations)
        return formula, None
    if budget.method is Method.CP_SAT:
        _prove(search, budget, search.remaining_s)
        return formula, None
    exact = budget.method is Method.AUTO and instance.n_tasks <= _EXACT_TASKS
    if exact:
        _prove(search, budget, _EXACT_SHARE * search.remaining_s)
    if search.proved:
        return formula, None
    priced = _anneal_and_bound(search, twin, budget, search.remaining_s * (_EXACT_SHARE if exact else 1.0))
    if exact and not search.proved:
        _prove(search, budget, search.remaining_s)
    return formula, priced


def _anneal_and_bound(search: Search, twin: Instance, budget: Budget, limit_s: float) -> Priced | None:
    """Anneal with all workers but one, which raises the bound of the torn twin first and then anneals, too."""
    end_s, bound_s = search.elapsed_s + limit_s, _PRICES_SHARE * limit_s
    alone = Search(twin, search.objective, bound_s, stop=search.stop)
    with ThreadPoolExecutor(1) as pool:
        bounding = pool.submit(raise_bound, alone)
        if budget.workers > 1:
            orders.improve(search, budget.seed, budget.workers - 1, limit_s=bound_s)
        priced = bounding.result()
    if priced is not None:
        from truenorth.solvers.bounds.lagrangian.improve import METHOD

        search.offer_bound(priced.bound, METHOD)
    if not search.proved:
        orders.improve(search, budget.seed + budget.workers, budget.workers, limit_s=end_s - search.elapsed_s)
    return priced


def _prove(search: Search, budget: Budget, limit_s: float) -> None:
    """Put the window to CP-SAT, from the best plan so far."""
    from truenorth.solvers.exact.cp_sat import SolverRun

    instance, known = search.instance, search.timeline
    horizon_us = _horizon_us(instance) if known is None else max(_horizon_us(instance), int(known.end_us.max()))
    scaled = ScaledObjective.of(search.objective, instance, horizon_us)
    least = 0 if search.bound is None else max(0, scaled.least(instance, search.bound, horizon_us))
    formulation = formulations.formulate(instance, scaled, horizon_us, least)
    if known is not None:
        formulations.add_hint(formulation, instance, known)

    def offer_bound(bound: int) -> None:
        search.offer_bound(scaled.true_bound(bound), CP_SAT)

    SolverRun(search, formulation, offer_bound, budget.workers, budget.seed, limit_s).follow()


def _horizon_us(instance: Instance) -> int:
    """Return a time by which some optimal plan of every objective here has ended: one run after the other."""
    longest = instance.run_us.max(axis=1)[instance.task_template]
    return int(instance.job_release_us.max()) + int(longest.sum())
