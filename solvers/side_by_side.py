"""Plans and the Lagrangian bound side by side: who anneals, looks by beams or raises the bound, and for how long.

Kernels hold no interpreter lock, so a thread each is enough.

Searches limited by work in place of time find the same plan and bound for the same seed and number of moves. Plans and
the bound are looked for in strands of their own, each with a clock that counts its work. A strand knows what was known
when it began, and no more; what strands found is put together in a fixed order. So it matters neither how fast they
are, nor whether they run side by side or one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from truenorth.models.instance import Instance
from truenorth.models.objective import Objective
from truenorth.solvers.budget import Budget
from truenorth.solvers.clock import MOVE_S
from truenorth.solvers.result import Search

if TYPE_CHECKING:
    from truenorth.solvers.bounds.lagrangian.improve import Priced
    from truenorth.solvers.farm import Farm
    from truenorth.solvers.tuning import Tuning


def raise_bound(
    search: Search, limit_s: float | None = None, known: Priced | None = None, farm: Farm | None = None
) -> Priced | None:
    """Raise a search's Lagrangian bound until this limit, or its own; return the best with its prices.

    None if there is no such bound, or too little time for a window of this size.

    Parameters
    ----------
    known
        Such a bound, if there is one already.
    farm
        Workers that help where the trace is long enough to be priced section by section.
    """
    from truenorth.solvers.bounds.lagrangian.improve import METHOD, improve
    from truenorth.solvers.bounds.lagrangian.sections import has_sections, raise_in_sections

    at_most_s = search.clock.left_s if limit_s is None else min(limit_s, search.clock.left_s)
    # It cannot be interrupted before it first looks at the clock: rather not begun.
    begin_s = search.tuning.ascent_s_per_task * search.instance.n_tasks
    if search.lacks_time(METHOD, begin_s, search.tuning.ascent_share * at_most_s):
        return known
    if has_sections(search.instance, search.objective, at_most_s, farm):
        return raise_in_sections(search, at_most_s, known, farm)
    found = improve(search, at_most_s)
    return known if known is not None and (found is None or found.bound < known.bound) else found


def anneal(search: Search, budget: Budget, limit_s: float | None = None) -> None:
    """Improve a search's plan by local search alone, with as many seeds as there are workers.

    Parameters
    ----------
    limit_s
        Seconds from now; None: what remains of the search.
    """
    from truenorth.solvers.search import annealing
    from truenorth.solvers.search.teams import Exchange

    plans, limit_s = search.on_twin(), search.clock.left_s if limit_s is None else limit_s
    # Those that lag behind go on from the plans of the better half.
    exchange = Exchange(search.clock.child(limit_s), budget.workers)
    with ThreadPoolExecutor(budget.workers) as pool:
        running = [
            pool.submit(annealing.improve, plans, budget.seed + index, None, limit_s, exchange=exchange)
            for index in range(budget.workers)
        ]
        for done in running:
            done.result()


def dispatch(search: Search) -> None:
    """Offer the plan of the first dispatch rule that finds one."""
    from truenorth.solvers.search import annealing

    annealing.improve(search, time_limit_s=0)


def anneal_and_bound(
    search: Search,
    plans: Search,
    budget: Budget,
    limit_s: float,
    bound_s: float,
    begin: Callable[[float], None] = lambda limit_s: None,
) -> Priced | None:
    """Anneal and raise the lower bound, in parallel if there are workers for both.

    A long bound gains little after its first steps, so its worker then anneals with another seed; not so before CP-SAT,
    which wants good prices. Further workers anneal with seeds of their own, and go on from each other's plans.

    Parameters
    ----------
    plans
        Where plans are looked for: the search itself, or that on its twin.
    begin
        Looks for a plan to begin with, in so many seconds.

    Returns
    -------
    Priced or None
        The bound with its prices, which narrow the windows of CP-SAT.
    """
    from truenorth.solvers.search import annealing
    from truenorth.solvers.search.teams import Exchange

    seed, workers, clock = budget.seed, budget.workers, search.clock.child(limit_s)
    # Plans first: a bound closes no gap without one.
    if workers == 1:
        bound_s = min(bound_s, search.tuning.lone_bound_share * limit_s)
        begin(search.tuning.begin_share * (limit_s - bound_s))
        annealing.improve(plans, seed, None, clock.left_s - bound_s)
        return raise_bound(search, bound_s)
    exchange = Exchange(clock, workers - 1)

    def bound_first() -> Priced | None:
        """Raise the bound, then search until the time is up."""
        priced = raise_bound(search, bound_s)
        if (bound_s < limit_s or priced is None) and not clock.is_set():
            annealing.improve(plans, seed + 1, None, clock.left_s, exchange=exchange)
        return priced

    with ThreadPoolExecutor(workers - 1) as pool:
        bounding = pool.submit(bound_first)
        annealings = [
            pool.submit(annealing.improve, plans, seed + index, None, limit_s, exchange=exchange)
            for index in range(2, workers)
        ]
        # In this thread, while others anneal and bound already.
        begin(search.tuning.begin_share * limit_s)
        annealing.improve(plans, seed, None, clock.left_s, exchange=exchange)
        for done in annealings:
            done.result()
        return bounding.result()


def suits_beams(instance: Instance, objective: Objective) -> bool:
    """Say whether beams can look for plans with the prices of the bound."""
    from truenorth.solvers.search import beam

    return beam.applies(instance, objective)


def run_beams(search: Search, budget: Budget, priced: Priced, limit_s: float, together: bool = False) -> None:
    """Look for plans by beams that prices of the bound guide, on a window that suits them.

    Parameters
    ----------
    together
        Whether all threads share one beam. In a small window, where beams are soon as wide as they ever are, each had
        better have one of its own.
    """
    from truenorth.solvers.search import beam

    guide = beam.guide_of(search, priced)
    if guide is not None:
        if together:
            beam.improve(search, guide, limit_s, budget.seed, budget.workers)
            return
        with ThreadPoolExecutor(budget.workers) as pool:
            seeds = range(budget.seed, budget.seed + budget.workers)
            for searching in [pool.submit(beam.improve, search, guide, limit_s, seed) for seed in seeds]:
                searching.result()


def bound_and_beam(search: Search, budget: Budget, limit_s: float) -> Priced | None:
    """Look for plans with prices of the bound, made while others anneal; the bound is raised on meanwhile.

    A longer ascent begins anew: it goes by other slots and steps than the short one that made the first prices. Once
    beams gain nothing their workers anneal again.

    The farm's workers anneal, or where the trace is long enough price sections of it, until there are prices, and then
    look for plans by beams as well.
    """
    farm, clock, planners = budget.farm, search.clock.child(limit_s), max(1, budget.workers - 1)
    # A lone worker raises the bound no further later on, and gives it its whole share now.
    share = search.tuning.bound_share if budget.workers == 1 else search.tuning.guide_share
    guide_s = max(share * limit_s, min(search.tuning.short_guide_s, search.tuning.short_guide_share * limit_s))
    # Beams and annealing both start from a plan, and the limit may be short.
    if search.timeline is None:
        dispatch(search)
    from truenorth.solvers.bounds.lagrangian.sections import has_sections
    from truenorth.solvers.farm import halve
    from truenorth.solvers.remote import PriceRows, search_remotely

    in_sections = has_sections(search.instance, search.objective, guide_s, farm)
    # Workers elsewhere do one thing at a time: sections of prices where there are some, else plans.
    pricers, lookers = (farm, None) if in_sections else (None, farm)
    with ThreadPoolExecutor(budget.workers) as pool:
        with search_remotely(search, lookers, budget, guide_s):
            pricing = pool.submit(raise_bound, search, guide_s, None, pricers)
            if budget.workers > 1:
                anneal(search, replace(budget, workers=planners), guide_s)
            priced = pricing.result()
        # A lone thread has none to join what sections prove.
        pricers, lookers = halve(farm) if in_sections and budget.workers > 1 else (None, farm)
        left_s = clock.left_s
        bounding = pool.submit(_bound_by_parts, search, left_s, priced, pricers) if budget.workers > 1 else pricing
        with search_remotely(search, lookers, budget, left_s, None if priced is None else PriceRows.of(priced)):
            if priced is not None:
                run_beams(search, replace(budget, workers=planners), priced, left_s, together=True)
            # Beams gain nothing any more: annealing may, until the end.
            if not clock.is_set():
                anneal(search, replace(budget, workers=planners), clock.left_s)
            return bounding.result()


def _bound_by_parts(search: Search, limit_s: float, priced: Priced | None, farm: Farm | None) -> Priced | None:
    """Raise the bound; where GPUs idle now and then, for part of the time only, and then prove part by part."""
    from truenorth.solvers.exact import parts

    if priced is None or not parts.suits(search, priced, (1 - search.tuning.before_parts_share) * limit_s):
        return raise_bound(search, limit_s, priced, farm)
    clock = search.clock.child(limit_s)
    # Cuts lie where GPUs idle, that is where prices are 0: better prices give better cuts.
    better = raise_bound(search, search.tuning.before_parts_share * limit_s, priced, farm) or priced
    parts.improve(search, better, clock.left_s)
    return better


def share_of_bound_s(tuning: Tuning, limit_s: float) -> float:
    """Return for how long the bound is raised beside plans where nothing comes after it."""
    return max(tuning.bound_share * limit_s, min(tuning.short_bound_s, limit_s))


def count_out(search: Search, budget: Budget, moves: int) -> Priced | None:
    """Look for plans with so many moves, and raise the bound with as much work; return it with its prices."""
    if not suits_beams(search.instance, search.objective):
        return _run_strands(search, budget, moves, None)
    first = max(1, int(search.tuning.guide_share * moves))
    priced = _run_strands(search, budget, first, None)
    # No prices, no beams: the first part was all there is to do.
    if priced is None or search.proved or moves == first:
        return priced
    better = _run_strands(search, budget, moves - first, priced)
    return priced if better is None or better.bound < priced.bound else better


def _run_strands(search: Search, budget: Budget, moves: int, priced: Priced | None) -> Priced | None:
    """Run a strand for plans, by beams if there are prices, and one for the bound; keep what they find."""
    from truenorth.solvers.bounds.lagrangian.improve import improve

    plans = search.on_twin()
    planning, bounding = plans.apart(moves), search.apart(moves)
    # As many as there are strands: further workers could change nothing that is counted.
    with ThreadPoolExecutor(min(2, budget.workers)) as pool:
        looking, raising = pool.submit(_look, planning, budget.seed, priced), pool.submit(improve, bounding)
        looking.result()
        found = raising.result()
    # In a fixed order, whichever strand was done first: so the result does not depend on it.
    if planning.timeline is not None:
        plans.offer(planning.timeline, planning.origin)
    if bounding.bound is not None and bounding.bound_method is not None:
        search.offer_bound(bounding.bound, bounding.bound_method)
    return found


def _look(strand: Search, seed: int, priced: Priced | None) -> None:
    """Look for plans, by beams if there are prices, then by annealing with the moves that are left."""
    from truenorth.solvers.search import annealing, beam

    guide = None if priced is None else beam.guide_of(strand, priced)
    if guide is not None:
        beam.improve(strand, guide, strand.clock.left_s, seed)
    left = round(strand.clock.left_s / MOVE_S)
    if strand.timeline is None or (left > 0 and not strand.proved):  # a first plan is made however late it is
        annealing.improve(strand, seed, max(1, left))
