"""The stages of a search: online policies, local search beside the Lagrangian bound, CP-SAT where it pays."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from typing import TYPE_CHECKING

from models.instance import Instance
from models.objective import Objective
from models.timeline import Timeline
from planner.answers.starts import policy_timelines
from solvers.bounds import closed_form
from solvers.result import Progress, Result, Search

if TYPE_CHECKING:
    from solvers.bounds.lagrangian.improve import Priced


class Method(StrEnum):
    """How to search.

    Attributes
    ----------
    AUTO
        CP_SAT where the window is small enough for it and no iterations are counted, otherwise SEARCH.
    CP_SAT
        Online policies and a short local search beside the Lagrangian bound, then CP-SAT for the rest of the time.
    MILP
        The same with the MILP twin (HiGHS through PuLP) in place of CP-SAT: for small windows and cross-checks.
    SEARCH
        Online policies, then local search beside the Lagrangian bound.
    """

    AUTO = "auto"
    CP_SAT = "cp-sat"
    MILP = "milp"
    SEARCH = "search"


EXACT_TASKS = 150
"""Windows of up to so many tasks are worth CP-SAT's time where the objective adds up over jobs."""
EXACT_TASKS_OF_MAXIMA = 400
"""The same where it is a maximum over jobs: nothing else proves those, and CP-SAT is strong there."""

_WARM_UP_S_PER_TASK = 0.025
_WARM_UP_SHARE = 0.15
_BOUND_SHARE = 0.3


def solve(
    instance: Instance,
    objective: Objective,
    *,
    time_limit_s: float = 60.0,
    method: Method = Method.AUTO,
    workers: int = 2,
    seed: int = 0,
    iterations: int | None = None,
    hint: Timeline | None = None,
    starts: Sequence[Timeline] | None = None,
    watch: Callable[[Progress], None] | None = None,
    stop: threading.Event | None = None,
) -> Result:
    """Return the best plan and bound that the time allows; the parameters are those of `planner.answers.plan.plan`."""
    search = Search(instance, objective, time_limit_s, watch, stop)
    if hint is not None:
        search.offer(hint)
    for timeline in policy_timelines(instance, seed) if starts is None else starts:
        search.offer(timeline)
    search.offer_bound(*closed_form.best(instance, objective))
    exact = method in (Method.CP_SAT, Method.MILP)
    if method is Method.AUTO and iterations is None:  # where CP-SAT gets to depends on the clock
        exact = worth_cp_sat(instance, objective)
    priced = None
    if not search.proved:
        limit_s = _warm_up_s(search) if exact else search.remaining_s
        bound_s = limit_s if exact or iterations is not None else _BOUND_SHARE * limit_s
        priced = _search_and_bound(search, seed, iterations, workers, limit_s, bound_s)
    if exact and not search.proved and search.remaining_s > 0:
        _solve_exactly(search, method, workers, seed, priced)
    options: dict[str, str | int | float | None] = {
        "method": str(method),
        "workers": workers,
        "seed": seed,
        "iterations": iterations,
        "time_limit_s": time_limit_s,
    }
    return search.result("truenorth", options)


def _solve_exactly(search: Search, method: Method, workers: int, seed: int, priced: Priced | None) -> None:
    if method is Method.MILP:
        from solvers.exact import milp

        milp.improve(search, workers, seed)
        return
    from solvers.exact import arc_flow, cp_sat

    if arc_flow.applies(search.instance, search.objective):
        arc_flow.improve(search, workers, seed)
    if not search.proved and search.remaining_s > 0:
        cp_sat.improve(search, workers, seed, priced)


def worth_cp_sat(instance: Instance, objective: Objective) -> bool:
    """Say whether a window is small enough for CP-SAT to be the best use of the time."""
    return instance.n_tasks <= (EXACT_TASKS if objective.is_sum else EXACT_TASKS_OF_MAXIMA)


def _search_and_bound(
    search: Search, seed: int, iterations: int | None, workers: int, limit_s: float, bound_s: float
) -> Priced | None:
    """Anneal and raise the lower bound, in parallel if there are workers for both (kernels hold no interpreter lock).

    A long bound gains little after its first steps, so its worker then anneals with another seed; not so before CP-SAT,
    which wants good prices. Further workers anneal with seeds of their own. Where iterations are counted there is one
    annealing only, since searches that share a plan depend on the clock.

    Returns
    -------
    Priced or None
        The bound with its prices, which narrow the windows of CP-SAT.
    """
    from solvers.bounds.lagrangian.improve import improve as raise_bound
    from solvers.search import annealing

    def bound_first() -> Priced | None:
        priced = raise_bound(search, bound_s)
        if bound_s < limit_s:
            annealing.improve(search, seed + 1, None, limit_s - bound_s)
        return priced

    if workers == 1:
        annealing.improve(search, seed, iterations, (1 - _BOUND_SHARE) * limit_s)
        return raise_bound(search, _BOUND_SHARE * limit_s)
    with ThreadPoolExecutor(workers - 1) as pool:
        bounding = pool.submit(bound_first)
        others = range(2, workers) if iterations is None else ()
        annealings = [pool.submit(annealing.improve, search, seed + index, None, limit_s) for index in others]
        annealing.improve(search, seed, iterations, limit_s)
        for done in annealings:
            done.result()
        return bounding.result()


def _warm_up_s(search: Search) -> float:
    """Return how long local search prepares the ground for CP-SAT, whose windows shrink with a good plan."""
    return min(_WARM_UP_SHARE * search.remaining_s, _WARM_UP_S_PER_TASK * search.instance.n_tasks)
