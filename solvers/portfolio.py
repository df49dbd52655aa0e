"""Which solvers run, in what order and for how long: decided here alone, for plans, bounds and servers alike.

What cannot be interrupted (a formula, the set-up of the Lagrangian bound) is begun only if a window of its size leaves
time for it. The first plan is made all the same: a limit that is too short for it is missed, and the result says so.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from fractions import Fraction
from typing import TYPE_CHECKING

from models.formulations.windows import cannot_end
from models.instance import Instance
from models.objective import Objective
from models.timeline import Timeline
from solvers.bounds import closed_form
from solvers.exact import consecutive
from solvers.lanes import lanes_of
from solvers.result import Progress, Result, Search
from solvers.visits import on_twin

if TYPE_CHECKING:
    from solvers.bounds.lagrangian.improve import Priced


class Method(StrEnum):
    """How to search.

    Attributes
    ----------
    AUTO
        CP_SAT where the window is small enough for it and no iterations are counted, otherwise SEARCH.
    CP_SAT
        Online policies and a short local search beside the Lagrangian bound, then the programme over start orders where
        it applies, and CP-SAT for the rest of the time; for a maximum over jobs local search goes on beside it for most
        of the time, if there are workers for both.
    MILP
        The same with the MILP twin (HiGHS through PuLP) in place of CP-SAT: for small windows and cross-checks.
    SEARCH
        Online policies, then local search beside the Lagrangian bound, and where costs are linear beams guided by it.
    """

    AUTO = "auto"
    CP_SAT = "cp-sat"
    MILP = "milp"
    SEARCH = "search"


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """How to search, and for how long.

    Parameters
    ----------
    time_limit_s
        Wall-clock seconds for plan and bound together.
    method
        How to search.
    workers
        Threads to search with: annealing, the lower bound, then annealing with other seeds, or CP-SAT's threads.
    seed, iterations
        The same seed and number of iterations of the local search give the same plan, if the time suffices for them.

    Raises
    ------
    ValueError
        If a limit is none.
    """

    time_limit_s: float = 60.0
    method: Method = Method.AUTO
    workers: int = 2
    seed: int = 0
    iterations: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.time_limit_s < math.inf:
            raise ValueError(f"a time limit of {self.time_limit_s} s; allowed is a finite number above 0")
        if self.workers < 1:
            raise ValueError(f"{self.workers} workers; allowed is at least 1")

    def as_dict(self) -> dict[str, str | int | float | None]:
        """Return the options by name, as a result keeps them."""
        return asdict(self) | {"method": str(self.method)}


Starts = Callable[[Callable[[], float]], Iterable[Timeline]]
"""Yields plans to start from, one by one; told how many seconds are left, and to end early once there are none."""


def no_starts(left_s: Callable[[], float]) -> Iterable[Timeline]:
    """Yield nothing: local search starts from its own dispatch rules."""
    return ()


EXACT_TASKS = 150
"""Windows of up to so many tasks are worth CP-SAT's time where the objective adds up over jobs."""
EXACT_TASKS_OF_MAXIMA = 400
"""The same where it is a maximum over jobs: nothing else proves those, and CP-SAT is strong there."""

_DISPATCHED_TASKS = 20_000
"""Above so many tasks a dispatch rule gives the first plan: simulating a policy takes ten times as long."""
_STARTS_SHARE = 0.3
"""At most this share of the time goes to making plans where the search starts."""
_FORMULAS_SHARE = 0.5
"""Bounds that need no ascent are begun if they take at most this share of the time that is left."""
_WARM_UP_S_PER_TASK, _WARM_UP_SHARE = 0.06, 0.15
_SHORT_WARM_UP_S, _SHORT_WARM_UP_SHARE = 3.0, 0.5
"""Before CP-SAT up to so many seconds, and this share of a short limit: until then the Lagrangian bound gains most."""
_BOUND_SHARE, _SHORT_BOUND_S = 0.3, 10.0
"""The bound gets a share of the time, and of a short limit the first so many seconds, in which it gains most."""
_GUIDE_SHARE, _SHORT_GUIDE_S, _SHORT_GUIDE_SHARE = 0.15, 8.0, 0.4
"""Beams wait for prices of the bound for a share of the time, and of a short limit for so many seconds or this share:
soon prices are nearly as good a guide as they will ever be. With one worker the bound gets its usual share."""
_ASCENT_S_PER_TASK, _ASCENT_SHARE = 1e-4, 0.5
"""What an ascent takes before it first looks at the clock, as measured, and the share of its time that it may take."""
_CONSECUTIVE_SHARE = 0.5
"""The programme of consecutive batches proves small windows at once, and may take this share of the time for others."""
_BEAM_SHARE = 0.1
"""Before the programme over start orders beams may take so much of the time: a poor plan costs it states."""
_START_ORDERS_SHARE, _BETTER_PLAN_SHARE = 0.5, 0.3
"""The programme over start orders proves most windows that it suits in seconds, and may take the first of these shares
of what is left for others; the second goes to a better plan if it fails."""
_WARM_UP_SHARE_OF_MAXIMA = 0.05
"""No prices are made for a maximum over jobs, so its plans and proofs soon go on side by side."""
_SIDE_BY_SIDE_SHARE = 0.75
"""So long is a maximum annealed beside CP-SAT; then CP-SAT goes on from the best plan with all workers."""
_CP_SAT_SHARE = 0.2
"""CP-SAT is asked unbidden if building its model takes at most this share of the time."""


def solve(
    instance: Instance,
    objective: Objective,
    options: SearchOptions,
    *,
    hint: Timeline | None = None,
    starts: Starts = no_starts,
    watch: Callable[[Progress], None] | None = None,
    stop: threading.Event | None = None,
) -> Result:
    """Return the best plan and bound that the time allows.

    Parameters
    ----------
    hint
        A feasible timeline; the plan is never worse.
    starts
        Further plans to begin with, as far as there is time to make and check them.
    watch
        Called whenever plan or bound improve.
    stop
        Set it to end early with the best plan so far.
    """
    lanes = lanes_of(instance)
    if lanes is not None:
        spread = None if hint is None else lanes.spread(hint)
        found = solve(
            lanes.twin,
            objective,
            options,
            hint=spread,
            starts=lambda left_s: map(lanes.spread, starts(left_s)),
            watch=watch,
            stop=stop,
        )
        return replace(found, timeline=None if found.timeline is None else lanes.gather(found.timeline))
    search = Search(instance, objective, options.time_limit_s, watch, stop)
    if cannot_end(on_twin(search).instance):
        search.infeasible = True
        return search.result("truenorth", options.as_dict())
    if hint is not None:
        search.offer(hint)
    if search.timeline is None and instance.n_tasks > _DISPATCHED_TASKS:
        _dispatch(on_twin(search))
    _offer_starts(search, starts, options.time_limit_s)
    offer_formulas(search)
    if consecutive.applies(instance, objective) and not search.proved:
        consecutive.improve(search, _CONSECUTIVE_SHARE * search.remaining_s)
    exact, priced, plans = options.method in (Method.CP_SAT, Method.MILP), None, on_twin(search)
    if not search.proved:
        if options.method is Method.AUTO and options.iterations is None:  # where CP-SAT gets to depends on the clock
            exact = _worth_cp_sat(plans)
        limit_s = _warm_up_s(plans, options) if exact else search.remaining_s
        if not exact and options.iterations is None and plans is search and _suits_beams(instance, objective):
            _bound_and_beam(search, options, limit_s)
        else:
            bound_s = limit_s if exact else _bound_s(options, limit_s)
            priced = _search_and_bound(search, plans, options, limit_s, bound_s)
    if exact and not search.proved and search.remaining_s > 0:
        _solve_exactly(plans, options, priced if plans is search else None)  # prices are of the window's own GPUs
    return search.result("truenorth", options.as_dict())


@dataclass(frozen=True, slots=True)
class Bounds:
    """What is proved of a window without regard to any plan.

    Parameters
    ----------
    formula
        The best bound that needs no ascent, and its method.
    priced
        The Lagrangian bound with its prices, or None.
    uncertified
        A bound that cannot be computed again without the solver that found it, and its method; or None.
    runtime_s
        Wall-clock time.
    """

    formula: tuple[Fraction, str]
    priced: Priced | None
    uncertified: tuple[Fraction, str] | None
    runtime_s: float


def bound(
    instance: Instance,
    objective: Objective,
    options: SearchOptions,
    *,
    starts: Starts = no_starts,
    watch: Callable[[Progress], None] | None = None,
    stop: threading.Event | None = None,
) -> Bounds:
    """Return the best bounds that the time allows.

    On small windows half of the time goes to CP-SAT: its bound is often higher, but comes without a certificate.
    """
    search = Search(instance, objective, options.time_limit_s, watch, stop)
    formula = offer_formulas(search)
    exact = _worth_cp_sat(search)
    priced = raise_bound(search, search.remaining_s / 2 if exact else None)
    uncertified, left_s = None, search.remaining_s
    if exact and left_s > 0:
        rest = replace(options, time_limit_s=left_s, method=Method.CP_SAT)
        proved = solve(instance, objective, rest, starts=starts, watch=watch, stop=search.stop)
        if proved.lower_bound is not None and proved.bound_method is not None:
            uncertified = proved.lower_bound, proved.bound_method
    return Bounds(formula, priced, uncertified, search.elapsed_s)


def _worth_cp_sat(search: Search) -> bool:
    """Say whether a window is small enough for CP-SAT to be the best use of the time."""
    instance, most = search.instance, EXACT_TASKS if search.objective.is_sum else EXACT_TASKS_OF_MAXIMA
    if instance.n_tasks > most:
        return False
    from solvers.exact.cp_sat import build_s

    return build_s(instance) <= _CP_SAT_SHARE * search.remaining_s


def offer_formulas(search: Search) -> tuple[Fraction, str]:
    """Offer the highest bound that needs no ascent, of those that time allows; return it with its method."""
    best, method = closed_form.best(search.instance, search.objective, lambda: _FORMULAS_SHARE * search.remaining_s)
    search.offer_bound(best, method)
    return best, method


def raise_bound(search: Search, limit_s: float | None = None) -> Priced | None:
    """Raise a search's Lagrangian bound until this limit, or its own; return the best with its prices.

    None if there is no such bound, or too little time for a window of this size.
    """
    from solvers.bounds.lagrangian.improve import improve

    at_most_s = search.remaining_s if limit_s is None else min(limit_s, search.remaining_s)
    if _ASCENT_S_PER_TASK * search.instance.n_tasks > _ASCENT_SHARE * at_most_s:
        return None
    return improve(search, at_most_s)


def anneal(search: Search, options: SearchOptions, limit_s: float | None = None) -> None:
    """Improve a search's plan by local search alone, with as many seeds as there are workers.

    Parameters
    ----------
    limit_s
        Seconds from now; None: what remains of the search.
    """
    from solvers.search import annealing
    from solvers.search.exchange import Exchange

    plans, limit_s = on_twin(search), search.remaining_s if limit_s is None else limit_s
    exchange = Exchange(limit_s, options.workers)
    with ThreadPoolExecutor(options.workers) as pool:
        running = [
            pool.submit(annealing.improve, plans, options.seed + index, None, limit_s, exchange=exchange)
            for index in range(options.workers)
        ]
        for done in running:
            done.result()


def _dispatch(search: Search) -> None:
    """Offer the plan of the first dispatch rule that finds one."""
    from solvers.search import annealing

    annealing.improve(search, time_limit_s=0)


def _offer_starts(search: Search, starts: Starts, time_limit_s: float) -> None:
    """Offer plans to start from; the first is taken whatever it costs, further ones while their share lasts."""

    def left_s() -> float:
        return min(search.remaining_s, _STARTS_SHARE * time_limit_s - search.elapsed_s)

    for timeline in starts(left_s):
        if search.timeline is not None and search.remaining_s <= 0:
            return
        search.offer(timeline)


def _solve_exactly(search: Search, options: SearchOptions, priced: Priced | None) -> None:
    if options.method is Method.MILP:
        from solvers.exact import milp

        milp.improve(search, options.workers, options.seed)
        return
    from solvers.exact import arc_flow, cp_sat

    if arc_flow.applies(search.instance, search.objective):
        arc_flow.improve(search, options.workers, options.seed)
    if priced is not None:
        _prove_by_start_orders(search, options, priced)
    if not search.proved and _side_by_side(search, options):
        _anneal_and_prove(search, options)
    if not search.proved and search.remaining_s > 0:
        cp_sat.improve(search, options.workers, options.seed, priced)


def _prove_by_start_orders(search: Search, options: SearchOptions, priced: Priced) -> None:
    """Run the programme over start orders, and once more from a better plan if the first left it too many states."""
    from solvers.exact import start_orders

    if not start_orders.applies(search.instance, search.objective):
        return
    _beam(search, options, priced, _BEAM_SHARE * search.remaining_s)
    before = search.value
    start_orders.improve(search, priced, _START_ORDERS_SHARE * search.remaining_s)
    if not search.proved:
        anneal(search, options, _BETTER_PLAN_SHARE * search.remaining_s)
    if not search.proved and search.value != before:
        start_orders.improve(search, priced, _START_ORDERS_SHARE * search.remaining_s)


def _side_by_side(search: Search, options: SearchOptions) -> bool:
    """Say whether annealing and CP-SAT go on at the same time: for a maximum, if there are workers for both."""
    return not search.objective.is_sum and options.workers > 1 and options.method is not Method.MILP


def _anneal_and_prove(search: Search, options: SearchOptions) -> None:
    """Anneal a maximum while CP-SAT raises its bound.

    Where tasks have many GPUs to choose from annealing finds by far the better plans, where they have few only CP-SAT
    proves anything; nothing tells beforehand which it is.
    """
    from solvers.exact import cp_sat

    limit_s, provers = _SIDE_BY_SIDE_SHARE * search.remaining_s, options.workers // 2
    with ThreadPoolExecutor(1) as pool:
        proving = pool.submit(cp_sat.prove_maximum, search, provers, options.seed, limit_s)
        anneal(search, replace(options, workers=options.workers - provers), limit_s)
        proving.result()


def _search_and_bound(
    search: Search, plans: Search, options: SearchOptions, limit_s: float, bound_s: float
) -> Priced | None:
    """Anneal and raise the lower bound, in parallel if there are workers for both (kernels hold no interpreter lock).

    A long bound gains little after its first steps, so its worker then anneals with another seed; not so before CP-SAT,
    which wants good prices. Further workers anneal with seeds of their own, and go on from each other's plans. Where
    iterations are counted there is one annealing only, since searches that share a plan depend on the clock.

    Parameters
    ----------
    plans
        Where plans are looked for: the search itself, or that on its twin.

    Returns
    -------
    Priced or None
        The bound with its prices, which narrow the windows of CP-SAT.
    """
    from solvers.search import annealing
    from solvers.search.exchange import Exchange

    seed, iterations, workers = options.seed, options.iterations, options.workers
    end_s = search.elapsed_s + limit_s
    exchange = Exchange(limit_s, workers - 1) if workers > 1 and iterations is None else None

    def bound_first() -> Priced | None:
        """Raise the bound, then search until the time is up."""
        priced = raise_bound(search, bound_s)
        left_s = end_s - search.elapsed_s
        if iterations is None and (bound_s < limit_s or priced is None) and left_s > 0:
            annealing.improve(plans, seed + 1, None, left_s, exchange=exchange)
        return priced

    if workers == 1:
        bound_s = min(bound_s, _SHORT_WARM_UP_SHARE * limit_s)
        annealing.improve(plans, seed, iterations, limit_s - bound_s)
        return raise_bound(search, bound_s)
    with ThreadPoolExecutor(workers - 1) as pool:
        bounding = pool.submit(bound_first)
        others = range(2, workers) if iterations is None else ()
        annealings = [
            pool.submit(annealing.improve, plans, seed + index, None, limit_s, exchange=exchange) for index in others
        ]
        annealing.improve(plans, seed, iterations, limit_s, exchange=exchange)
        for done in annealings:
            done.result()
        return bounding.result()


def _suits_beams(instance: Instance, objective: Objective) -> bool:
    """Say whether beams can look for plans with the prices of the bound."""
    from solvers.search import beam

    return beam.applies(instance, objective)


def _beam(search: Search, options: SearchOptions, priced: Priced, limit_s: float) -> None:
    """Look for plans by beams, if they suit, that prices of the bound guide."""
    from solvers.search import beam

    guide = beam.guide_of(search, priced) if beam.applies(search.instance, search.objective) else None
    if guide is not None:
        with ThreadPoolExecutor(options.workers) as pool:
            seeds = range(options.seed, options.seed + options.workers)
            for searching in [pool.submit(beam.improve, search, guide, limit_s, seed) for seed in seeds]:
                searching.result()


def _bound_and_beam(search: Search, options: SearchOptions, limit_s: float) -> None:
    """Look for plans with prices of the bound, made while others anneal; the bound is raised on meanwhile.

    A longer ascent begins anew: it goes by other slots and steps than the short one that made the first prices. Once
    beams gain nothing their workers anneal again.
    """
    end_s, planners = search.elapsed_s + limit_s, max(1, options.workers - 1)
    share = _BOUND_SHARE if options.workers == 1 else _GUIDE_SHARE
    guide_s = max(share * limit_s, min(_SHORT_GUIDE_S, _SHORT_GUIDE_SHARE * limit_s))
    if search.timeline is None:
        _dispatch(search)
    with ThreadPoolExecutor(options.workers) as pool:
        pricing = pool.submit(raise_bound, search, guide_s)
        if options.workers > 1:
            anneal(search, replace(options, workers=planners), guide_s)
        priced = pricing.result()
        bounding = pool.submit(raise_bound, search, end_s - search.elapsed_s) if options.workers > 1 else pricing
        if priced is not None:
            _beam(search, replace(options, workers=planners), priced, end_s - search.elapsed_s)
        left_s = end_s - search.elapsed_s
        if left_s > 0 and not search.stop.is_set():
            anneal(search, replace(options, workers=planners), left_s)
        bounding.result()


def _warm_up_s(search: Search, options: SearchOptions) -> float:
    """Return how long local search and bound prepare the ground for CP-SAT, whose windows shrink with them."""
    enough_s = _WARM_UP_S_PER_TASK * search.instance.n_tasks
    if _side_by_side(search, options):
        return min(_WARM_UP_SHARE_OF_MAXIMA * search.remaining_s, enough_s)
    short_s = min(_SHORT_WARM_UP_S, _SHORT_WARM_UP_SHARE * search.remaining_s)
    return min(max(short_s, _WARM_UP_SHARE * search.remaining_s), enough_s)


def _bound_s(options: SearchOptions, limit_s: float) -> float:
    """Return for how long the bound is raised where nothing comes after it; all along if iterations are counted."""
    if options.iterations is not None:
        return limit_s
    return max(_BOUND_SHARE * limit_s, min(_SHORT_BOUND_S, limit_s))
