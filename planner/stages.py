"""The stages of a plan: local search beside the Lagrangian bound, then CP-SAT where the window is small enough."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from solvers import annealing
from solvers.bounds.lagrangian.improve import improve as raise_bound
from solvers.result import Search

EXACT_TASKS = 150
"""Windows of up to so many tasks are worth CP-SAT's time."""

_WARM_UP_S_PER_TASK = 0.02
_WARM_UP_SHARE = 0.15
_SEARCH_SHARE = 0.6


def search_and_bound(
    search: Search, seed: int, iterations: int | None, workers: int, time_limit_s: float | None = None
) -> None:
    """Anneal and raise the lower bound, at the same time if there are two workers (compiled code runs in parallel)."""
    limit = search.remaining_s if time_limit_s is None else min(time_limit_s, search.remaining_s)
    if workers == 1:
        annealing.improve(search, seed, iterations, _SEARCH_SHARE * limit)
        raise_bound(search, (1 - _SEARCH_SHARE) * limit)
        return
    with ThreadPoolExecutor(1) as pool:
        bound = pool.submit(raise_bound, search, limit)
        annealing.improve(search, seed, iterations, limit)
        bound.result()


def warm_up_s(search: Search) -> float:
    """Return how long local search prepares the ground for CP-SAT: its windows shrink with a good plan."""
    return min(_WARM_UP_SHARE * search.remaining_s, _WARM_UP_S_PER_TASK * search.instance.n_tasks)
