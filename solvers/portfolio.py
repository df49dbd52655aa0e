"""Which solvers run, in what order and for how long: decided from here, for plans, bounds and servers alike.

What cannot be interrupted (a formula, the set-up of the Lagrangian bound) is begun only if a window of its size leaves
time for it. The first plan is made all the same: a limit that is too short for it is missed, and the result says so.
Proofs of small windows are the table in `strategy`, plans and the Lagrangian bound go on in `side_by_side`, and the
shares of the time are data, in `tuning`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from truenorth.models.errors import QuestionError
from truenorth.models.feasibility import check
from truenorth.models.features import CACHED, Feature, Features, missing, require
from truenorth.models.formulations.windows import METHOD as WINDOWS
from truenorth.models.formulations.windows import cannot_end
from truenorth.models.instance import Instance
from truenorth.models.objective import Objective, proves
from truenorth.models.timeline import Timeline
from truenorth.models.torn import torn
from truenorth.solvers import gangs
from truenorth.solvers.bounds import closed_form, refutation
from truenorth.solvers.budget import Budget, Method, tell_nobody
from truenorth.solvers.incumbents import PlanOrigin, Progress
from truenorth.solvers.reductions import lanes_of, singles_of
from truenorth.solvers.result import Result, Search
from truenorth.solvers.side_by_side import (
    anneal_and_bound,
    bound_and_beam,
    count_out,
    dispatch,
    raise_bound,
    share_of_bound_s,
    suits_beams,
)
from truenorth.solvers.strategy import ask_plainly, decide_batches, decide_packing, prove, side_by_side

if TYPE_CHECKING:
    from truenorth.solvers.bounds.lagrangian.improve import Priced


def suits_cp_sat(search: Search) -> bool:
    """Say whether a window is small enough for CP-SAT to be the best use of the time."""
    instance, shares = search.instance, search.tuning
    if instance.n_tasks > (shares.exact_tasks if search.objective.is_sum else shares.exact_tasks_of_maxima):
        return False
    # Late: OR-Tools is slow to import, and windows that are too large do not need it.
    from truenorth.models.formulations.cp_sat import SUPPORTS
    from truenorth.solvers.exact.cp_sat import build_s

    return not missing(instance, SUPPORTS) and build_s(instance) <= shares.building_share * search.clock.left_s


def warm_up_s(search: Search, budget: Budget) -> float:
    """Return how long local search and bound prepare the ground for CP-SAT, whose windows shrink with them."""
    shares = search.tuning
    enough_s = shares.warm_up_s_per_task * search.instance.n_tasks
    if side_by_side(search, budget):
        return min(shares.warm_up_share_of_maxima * search.clock.left_s, enough_s)
    short_s = min(shares.short_warm_up_s, shares.short_warm_up_share * search.clock.left_s)
    return min(max(short_s, shares.warm_up_share * search.clock.left_s), enough_s)


_PLANNED: Features = CACHED | {Feature.DELAYS}
"""What a window may have beside runs on several GPUs."""

Starts = Callable[[Callable[[], float]], Iterable[Timeline]]
"""Yields plans to start from, one by one; told how many seconds are left, and to end early once there are none."""


def no_starts(left_s: Callable[[], float]) -> Iterable[Timeline]:
    """Yield nothing: local search starts from its own dispatch rules."""
    return ()


class Known(TypedDict, total=False):
    """What is known before a search.

    Attributes
    ----------
    hint
        A feasible timeline; the plan is never worse.
    starts
        Further plans to begin with, as far as there is time to make and check them.
    """

    hint: Timeline | None
    starts: Starts


def solve(instance: Instance, objective: Objective, budget: Budget, **known: Unpack[Known]) -> Result:
    """Return the best plan and bound that the time allows."""
    return solve_and_price(instance, objective, budget, **known)[0]


def solve_and_price(
    instance: Instance,
    objective: Objective,
    budget: Budget,
    *,
    hint: Timeline | None = None,
    starts: Starts = no_starts,
) -> tuple[Result, tuple[Fraction, str] | None, Priced | None]:
    """Return what `solve` returns, and the best bound of a formula and of prices, of which certificates are made."""
    # One task at a time on more GPUs: all that is faster and stronger for such windows serves this one.
    lanes = lanes_of(instance)
    if lanes is not None:
        spread = None if hint is None else lanes.to_twin(hint)
        found = solve(
            lanes.twin, objective, budget, hint=spread, starts=lambda left_s: map(lanes.to_twin, starts(left_s))
        )
        return replace(found, timeline=None if found.timeline is None else lanes.back(found.timeline)), None, None
    refuse(instance, budget.method)
    search = Search(instance, objective, budget.clock, budget.watch, tuning=budget.tuning)
    formula, priced = _run(search, budget, hint, starts)
    return search.result("truenorth", budget.as_dict()), formula, priced


def refuse(instance: Instance, method: Method) -> None:
    """Refuse a window with a feature that no method supports, or not the one that was asked for.

    Raises
    ------
    UnsupportedInstanceError, QuestionError
        Naming the features.
    """
    if instance.gangs:
        gangs.refuse(instance, method)
        return
    lanes = lanes_of(instance)
    if lanes is not None:  # what is planned in its place
        instance = lanes.twin
    require(instance, "the planner", _PLANNED)
    lacking = missing(instance, _supported_by(method))
    if lacking:
        others = ", ".join(each for each in Method if not missing(instance, _supported_by(each)))
        raise QuestionError(f"{method} has no support for {', '.join(lacking)}; allowed are {others}", "method")


def _supported_by(method: Method) -> Features:
    """Return what a method supports that is asked for by name; the others try what suits the window."""
    if method is Method.MILP:
        from truenorth.models.formulations.milp import SUPPORTS

        return SUPPORTS
    if method is Method.CP_SAT:
        from truenorth.models.formulations.cp_sat import SUPPORTS

        return SUPPORTS
    return _PLANNED


def _run(
    search: Search, budget: Budget, hint: Timeline | None, starts: Starts, bound_share: float = 0.0
) -> tuple[tuple[Fraction, str] | None, Priced | None]:
    """Look for plans and proofs of a window by all that there is, for plans and bounds alike.

    Parameters
    ----------
    bound_share
        The bound is raised for at least this share of the time that annealing takes.

    Returns
    -------
    tuple
        The best bound of a formula, None if no task can end, and the best bound that has prices, or None.
    """
    if search.instance.streams is not None:
        return serve(search, budget, hint, starts), None
    # Some task ends on no GPU before it goes, even alone: nothing else needs to be asked.
    if cannot_end(search.on_twin().instance):
        search.deny(WINDOWS)
        return None, None
    if search.instance.gangs:
        if hint is not None:
            search.offer(hint, PlanOrigin.HINT)
        _offer_starts(search, starts, budget)
        found = gangs.improve(search, budget)
        _ask_others(search, budget)
        return found
    if hint is not None:
        search.offer(hint, PlanOrigin.HINT)
    # What hands in plans may take longer than the limit: first one that surely comes.
    if search.timeline is None and search.instance.n_tasks > search.tuning.dispatched_tasks:
        dispatch(search.on_twin())
    _offer_starts(search, starts, budget)
    # After the first plans: a bound that meets one ends the search before anything dear begins.
    formula = offer_formulas(search, budget)
    if not bound_share:  # a certificate is of what was proved without that
        round_to_units(search)
    decide_batches(search)
    priced = None if search.proved else _plan_and_prove(search, budget, bound_share)
    _ask_others(search, budget)
    return formula, priced


def _ask_others(search: Search, budget: Budget) -> None:
    """Ask others about a proof: what one solver alone claims is not told before another one has had its say."""
    if search.rests_on is not None:
        from truenorth.solvers.confirming import confirm

        confirm(search, budget)


def round_to_units(search: Search) -> None:
    """Round the plan down and the bound up to the units that all times are multiples of."""
    search.on_twin().in_ticks()  # which begins with both, rounded, and hands them on


def serve(search: Search, budget: Budget, hint: Timeline | None, starts: Starts) -> tuple[Fraction, str]:
    """Look for plans with requests of streams, and bound them by formulas; return the best of these."""
    if hint is not None:
        search.offer(hint, PlanOrigin.HINT)
    _offer_starts(search, starts, budget)
    from truenorth.solvers.search import queues

    # Bounds of long windows take as long as the limit, and nothing can interrupt them: plans do not wait for that.
    with ThreadPoolExecutor(1) as pool:
        bounding = pool.submit(offer_formulas, search, budget)
        if budget.workers == 1 or budget.iterations is not None:
            bounding.result()
        if not search.proved:
            queues.improve(search, budget.seed, budget.iterations)
        return bounding.result()


def _plan_and_prove(search: Search, budget: Budget, bound_share: float) -> Priced | None:
    """Look for plans and raise the bound; prove what is small enough. Return the best bound that has prices."""
    plans, counted = search.on_twin(), budget.iterations is not None
    exact = budget.method in (Method.CP_SAT, Method.MILP)
    if budget.method is Method.AUTO and not counted:  # where CP-SAT gets to depends on the clock
        exact = suits_cp_sat(plans)
    if not exact and not counted and suits_beams(search.instance, search.objective):
        return bound_and_beam(search, budget.on_cores(), search.clock.left_s)
    plan_and_bound = partial(_plan_and_bound, search, plans, budget)
    if not exact:
        if (
            budget.method is Method.AUTO
            and not counted
            and plans.instance.n_tasks <= search.tuning.exact_tasks_of_maxima
        ):
            decide_packing(plans, budget)
        if search.proved:
            return None
        return plan_and_bound(search.clock.left_s, bound_share)
    if budget.method is Method.AUTO and not bound_share and plans.instance.n_tasks <= search.tuning.plain_tasks:
        ask_plainly(plans, budget, min(search.tuning.plain_s, search.tuning.plain_share * search.clock.left_s))
        if search.proved:
            return None
    priced = _warm_up(search, warm_up_s(plans, budget), lambda limit_s: plan_and_bound(limit_s, 1.0))
    if search.proved or search.clock.left_s <= 0:
        return priced
    if budget.method is not Method.AUTO or not search.instance.batches or not search.objective.is_sum:
        prove(plans, budget, priced if plans is search else None)  # prices are of the window's own GPUs
        if not search.faults:
            return priced
    else:  # with batches CP-SAT proves soon or hardly: then prices bound better, and annealing goes on finding plans
        prove(plans.part(search.tuning.cp_sat_share * search.clock.left_s), budget, None)
    if search.proved or search.clock.left_s <= 0:
        return priced
    longer = plan_and_bound(search.clock.left_s, bound_share)
    return priced if longer is None or (priced is not None and longer.bound < priced.bound) else longer


def _warm_up(search: Search, limit_s: float, plan_and_bound: Callable[[float], Priced | None]) -> Priced | None:
    """Anneal and raise the bound for so long, or longer if no time was left for the bound."""
    from truenorth.solvers.bounds.lagrangian.improve import METHOD

    priced = plan_and_bound(limit_s)
    # Other processes, or kernels that were read first, may have taken the time: what was not begun has another turn.
    while (
        METHOD in search.left_out
        and not search.proved
        and 2 * limit_s < search.tuning.again_share * search.clock.left_s
    ):
        limit_s *= 2
        del search.left_out[METHOD]
        priced = plan_and_bound(limit_s)
    return priced


def _plan_and_bound(search: Search, plans: Search, budget: Budget, limit_s: float, bound_share: float) -> Priced | None:
    """Anneal and raise the bound beside it for at least a share of the time; or count both out."""
    from truenorth.solvers.remote import search_remotely

    with search_remotely(search, budget.farm, budget, limit_s):
        if budget.iterations is not None:
            return _count_out(search, budget, budget.iterations)
        bound_s = max(share_of_bound_s(search.tuning, limit_s), bound_share * limit_s)
        begin = partial(plan_singly, search, budget)
        return anneal_and_bound(search, plans, budget.on_cores(), limit_s, bound_s, begin)


def _count_out(search: Search, budget: Budget, moves: int) -> Priced | None:
    """Look for plans and raise the bound by counted work."""
    # A share of the moves, as of the time where time is the limit.
    singly = int(search.tuning.begin_share * moves) if search.instance.batches else 0
    if singly:
        plan_singly(search, replace(budget, iterations=singly), search.clock.left_s)
    return count_out(search, budget, moves - singly)


def plan_singly(search: Search, budget: Budget, limit_s: float) -> None:
    """Offer a plan of a window with batch classes in which every task runs alone, as far as that is worth its time.

    Others than beams find no such plan sooner than they find one with batches. It ends as soon as no such plan is
    better than what is known.
    """
    singles = None if limit_s <= 0 or search.proved else singles_of(search.instance)
    if singles is None:
        return
    over = search.clock.child(limit_s, lambda: search.proved)

    def watch(progress: Progress) -> None:
        # Nothing that runs alone can beat what is known: the time goes to batches.
        if progress.bound is not None and search.value is not None and progress.bound >= search.value:
            over.set()

    # One worker and no farm: the others are busy with the window itself.
    alone = replace(budget, time_limit_s=limit_s, method=Method.SEARCH, workers=1, watch=watch, stop=over, farm=None)
    found = solve(singles.twin, search.objective, alone).timeline
    gathered = None if found is None else singles.back(found)
    # Starts that were moved apart may break a rule: such a plan is dropped without a word.
    if gathered is not None and not check(search.instance, gathered):
        search.offer(gathered)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What is proved of a window, and the plan that was found on the way.

    Parameters
    ----------
    formula
        The best bound that needs no ascent, and its method.
    priced
        The Lagrangian bound with its prices, or None.
    written
        The best sum over parts or refutation with its certificate, or None.
    found
        The best of all bounds, whose certificate only a solver has if it is higher than those; and the best plan.
    """

    formula: tuple[Fraction, str]
    priced: Priced | None
    written: tuple[Fraction, dict[str, Any]] | None
    found: Result


def bound(
    instance: Instance,
    objective: Objective,
    budget: Budget,
    *,
    hint: Timeline | None = None,
    starts: Starts = no_starts,
) -> Bounds:
    """Return the best bounds that the time allows: what `solve` proves, and a certificate nearly as good.

    Parameters
    ----------
    hint
        A feasible timeline: what lies above it need not be proved.
    """
    require(instance, "the lower bound", gangs.SUPPORTS if instance.gangs else _PLANNED | {Feature.HOLDS})
    search = Search(instance, objective, budget.clock, budget.watch, tuning=budget.tuning, writes=True)
    formula, priced = None, None
    if instance.streams is not None:  # formulas alone: plans raise none of them
        formula = offer_formulas(search, budget)
    elif lanes_of(instance) is None:
        formula, priced = _run(search, budget, hint, starts, search.tuning.asked_bound_share)
    else:  # what is proved on the twin has no certificate on the window itself
        rest = replace(budget, time_limit_s=search.tuning.lanes_share * budget.time_limit_s, watch=tell_nobody)
        _keep(search, solve(instance, objective, rest, hint=hint, starts=starts))
    if formula is None:
        formula = offer_formulas(search, budget)
    certified = [formula[0], *([priced.bound] if priced else []), *([search.written[0]] if search.written else [])]
    better = priced if instance.gangs else _certify(search, max(certified), priced)
    return Bounds(formula, better, search.written, search.result("truenorth", budget.as_dict()))


def _certify(search: Search, certified: Fraction, priced: Priced | None) -> Priced | None:
    """Return better prices, or refute what can be, if what is certified lies below what is proved and time is left."""
    left_s = min(search.tuning.certify_share * search.clock.limit_s, search.clock.left_s)
    # What is certified is as good as what is proved, or there is no time for better.
    if search.bound is None or proves(search.bound, certified) or left_s <= 0:
        return priced
    from truenorth.solvers.bounds.lagrangian.improve import METHOD
    from truenorth.solvers.exact import refute

    if refutation.applies(search.instance, search.objective):
        refute.improve(search, left_s)
        return priced
    # With a plan it would end once proved.
    alone = Search(search.instance, search.objective, search.clock.child(left_s))
    found = raise_bound(alone, None, priced)
    if found is not None:
        search.offer_bound(found.bound, METHOD)
    return found


def _keep(search: Search, found: Result) -> None:
    """Offer what was found elsewhere."""
    if found.timeline is not None:
        search.offer(found.timeline, found.origin)
    if found.lower_bound is not None and found.bound_method is not None:
        search.offer_bound(found.lower_bound, found.bound_method)
    if found.denied_by is not None:
        search.deny(found.denied_by)
    search.confirmed_by = found.confirmed_by
    search.left_out.update(found.left_out)
    search.trust.faults += found.faults


def offer_formulas(search: Search, budget: Budget) -> tuple[Fraction, str]:
    """Offer the highest bound that needs no ascent, of those that time allows; return it with its method."""

    def left_s() -> float:
        # What is repeatable does not ask the clock which of them are worth a try.
        return search.tuning.formulas_share * (
            search.clock.left_s if budget.iterations is None else budget.time_limit_s
        )

    best, method = closed_form.best(torn(search.instance), search.objective, left_s)
    search.offer_bound(best, method)
    return best, method


def _offer_starts(search: Search, starts: Starts, budget: Budget) -> None:
    """Offer plans to start from; the first is taken whatever it costs, further ones while their share lasts."""
    share = search.tuning.starts_share if budget.iterations is None else 1.0

    def left_s() -> float:
        # Requests have no other first plan: it is made whatever it takes, unless somebody asked to stop.
        if search.instance.streams is not None and search.timeline is None:
            return 0.0 if search.clock.is_stopped else inf
        return min(search.clock.left_s, share * budget.time_limit_s - search.clock.elapsed_s)

    for timeline in starts(left_s):
        # The first plan is taken even beyond the limit: without one there is no answer.
        if search.timeline is not None and search.clock.left_s <= 0:
            return
        search.offer(timeline, PlanOrigin.POLICY)
