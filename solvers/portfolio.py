"""Which solvers run, in what order and for how long: decided from here, for plans, bounds and servers alike.

What cannot be interrupted (a formula, the set-up of the Lagrangian bound) is begun only if a window of its size leaves
time for it. The first plan is made all the same: a limit that is too short for it is missed, and the result says so.
Shares of the time stand beside what they govern: here for what comes first, in `side_by_side` for plans and the
Lagrangian bound, in `proving` for what only small windows allow.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from models.formulations.windows import cannot_end
from models.instance import Instance
from models.objective import Objective
from models.timeline import Timeline
from solvers.bounds import closed_form
from solvers.exact import consecutive
from solvers.lanes import lanes_of
from solvers.options import Method, SearchOptions
from solvers.proving import prove, suits_cp_sat, warm_up_s
from solvers.result import Progress, Result, Search
from solvers.side_by_side import (
    anneal_and_bound,
    bound_and_beam,
    dispatch,
    raise_bound,
    share_of_bound_s,
    suits_beams,
)
from solvers.visits import on_twin

if TYPE_CHECKING:
    from solvers.bounds.lagrangian.improve import Priced
    from solvers.farm import Farm


Starts = Callable[[Callable[[], float]], Iterable[Timeline]]
"""Yields plans to start from, one by one; told how many seconds are left, and to end early once there are none."""


def no_starts(left_s: Callable[[], float]) -> Iterable[Timeline]:
    """Yield nothing: local search starts from its own dispatch rules."""
    return ()


_DISPATCHED_TASKS = 20_000
"""Above so many tasks a dispatch rule gives the first plan: simulating a policy takes ten times as long."""
_STARTS_SHARE = 0.3
"""At most this share of the time goes to making plans where the search starts."""
_FORMULAS_SHARE = 0.5
"""Bounds that need no ascent are begun if they take at most this share of the time that is left."""
_CONSECUTIVE_SHARE = 0.5
"""The programme of consecutive batches proves small windows at once, and may take this share of the time for others."""


def solve(
    instance: Instance,
    objective: Objective,
    options: SearchOptions,
    *,
    hint: Timeline | None = None,
    starts: Starts = no_starts,
    watch: Callable[[Progress], None] | None = None,
    stop: threading.Event | None = None,
    farm: Farm | None = None,
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
    farm
        Workers elsewhere that look for plans, and price sections of long traces, beside the threads of this process.
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
            farm=farm,
        )
        return replace(found, timeline=None if found.timeline is None else lanes.gather(found.timeline))
    search = Search(instance, objective, options.time_limit_s, watch, stop)
    if cannot_end(on_twin(search).instance):
        search.infeasible = True
        return search.result("truenorth", options.as_dict())
    if hint is not None:
        search.offer(hint)
    if search.timeline is None and instance.n_tasks > _DISPATCHED_TASKS:
        dispatch(on_twin(search))
    _offer_starts(search, starts, options.time_limit_s)
    offer_formulas(search)
    if consecutive.applies(instance, objective) and not search.proved:
        consecutive.improve(search, _CONSECUTIVE_SHARE * search.remaining_s)
    from solvers.elsewhere import look_elsewhere

    exact, priced, plans = options.method in (Method.CP_SAT, Method.MILP), None, on_twin(search)
    if not search.proved:
        if options.method is Method.AUTO and options.iterations is None:  # where CP-SAT gets to depends on the clock
            exact = suits_cp_sat(plans)
        limit_s = warm_up_s(plans, options) if exact else search.remaining_s
        if not exact and options.iterations is None and plans is search and suits_beams(instance, objective):
            bound_and_beam(search, options.on_cores(), limit_s, farm)
        else:
            bound_s = limit_s if exact else share_of_bound_s(options, limit_s)
            with look_elsewhere(search, farm, options, search.elapsed_s + limit_s):
                priced = anneal_and_bound(search, plans, options.on_cores(), limit_s, bound_s)
    if exact and not search.proved and search.remaining_s > 0:
        prove(plans, options, priced if plans is search else None)  # prices are of the window's own GPUs
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
    left_out
        Methods that gave way because memory or time were too short for them, each with the reason.
    """

    formula: tuple[Fraction, str]
    priced: Priced | None
    uncertified: tuple[Fraction, str] | None
    runtime_s: float
    left_out: Mapping[str, str]


def bound(
    instance: Instance,
    objective: Objective,
    options: SearchOptions,
    *,
    starts: Starts = no_starts,
    watch: Callable[[Progress], None] | None = None,
    stop: threading.Event | None = None,
    farm: Farm | None = None,
) -> Bounds:
    """Return the best bounds that the time allows.

    On small windows half of the time goes to CP-SAT: its bound is often higher, but comes without a certificate.

    Parameters
    ----------
    farm
        Workers elsewhere that price sections of long traces.
    """
    search = Search(instance, objective, options.time_limit_s, watch, stop)
    formula = offer_formulas(search)
    exact = suits_cp_sat(search)
    priced = raise_bound(search, search.remaining_s / 2 if exact else None, farm=farm)
    uncertified, left_s = None, search.remaining_s
    if exact and left_s > 0:
        rest = replace(options, time_limit_s=left_s, method=Method.CP_SAT)
        proved = solve(instance, objective, rest, starts=starts, watch=watch, stop=search.stop)
        if proved.lower_bound is not None and proved.bound_method is not None:
            uncertified = proved.lower_bound, proved.bound_method
        search.left_out.update(proved.left_out)
    return Bounds(formula, priced, uncertified, search.elapsed_s, search.left_out)


def offer_formulas(search: Search) -> tuple[Fraction, str]:
    """Offer the highest bound that needs no ascent, of those that time allows; return it with its method."""
    best, method = closed_form.best(search.instance, search.objective, lambda: _FORMULAS_SHARE * search.remaining_s)
    search.offer_bound(best, method)
    return best, method


def _offer_starts(search: Search, starts: Starts, time_limit_s: float) -> None:
    """Offer plans to start from; the first is taken whatever it costs, further ones while their share lasts."""

    def left_s() -> float:
        return min(search.remaining_s, _STARTS_SHARE * time_limit_s - search.elapsed_s)

    for timeline in starts(left_s):
        if search.timeline is not None and search.remaining_s <= 0:
            return
        search.offer(timeline)
