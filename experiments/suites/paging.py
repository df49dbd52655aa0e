"""Paging on one GPU, and Belady's fewest loads: oracles that share no solver's code.

The order is fixed by precedence: one job whose tasks form a chain. With overlap off the GPU either runs or loads, so a
plan that waits for nothing ends at (sum of run times) + (loads) x (load time), and no plan with as many loads ends
sooner. Least makespan and fewest loads are thus the same, and the value reported is

    loads = (makespan - sum of run times) / load time.

*Keep tool needed soonest* (Tang, Denardo, Operations Research 36, 1988) loads what the next job needs and evicts
what is needed last; with one tool per job it is Belady's rule (IBM Systems Journal 5, 1966). It is optimal for tools
of equal size and loads of equal time.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import combinations, permutations

from experiments.suites.case import SIZE_BYTES, Bracket, Case, Suite, alike, least_makespan, machine
from truenorth.models.scenario import Scenario

Tools = frozenset[int]


def fewest_loads(order: Sequence[Tools], capacity: int) -> int:
    """Return the fewest loads that serve jobs in this order, from an empty magazine.

    >>> fewest_loads([frozenset({page}) for page in (1, 2, 3, 1, 2)], 2)  # 3 replaces 2
    4
    """
    held, loads = set[int](), 0
    for position, needed in enumerate(order):
        later = order[position + 1 :]
        loads += len(needed - held)
        idle = sorted(held - needed, key=lambda tool: _next_use(later, tool))
        held = set(needed) | set(idle[: capacity - len(needed)])
    return loads


def _next_use(later: Sequence[Tools], tool: int) -> float:
    return next((position for position, needed in enumerate(later) if tool in needed), math.inf)


def free_loads(jobs: Sequence[Tools], capacity: int) -> int:
    """Return how many loads of an optimal plan for one machine a free first filling saves.

    From an empty magazine the first loads, until it is full, replace nothing, so their tools could have been there
    from the start; a machine whose jobs need fewer tools than fit has no more to save than those.
    """
    return min(capacity, len(frozenset[int]().union(*jobs)))


def makespan(
    orders: Sequence[Sequence[int]],
    times: Sequence[int],
    needs: Sequence[Tools],
    capacity: int,
    load: int,
    free_filling: bool,
) -> int:
    """Return when the last machine ends if each does its jobs in the given order, with as few loads as possible.

    Loads and processing follow one another and nothing is waited for, so a machine ends after both.
    """
    ends = []
    for order in orders:
        tools = [needs[job] for job in order]
        loads = fewest_loads(tools, capacity) - (free_loads(tools, capacity) if free_filling else 0)
        ends.append(sum(times[job] for job in order) + load * loads)
    return max(ends)


def shortest_makespan(
    times: Sequence[int], needs: Sequence[Tools], machines: int, capacity: int, load: int, free_filling: bool
) -> int:
    """Return the optimal makespan of a tool-switching problem by enumeration: eight jobs take seconds.

    Every set of jobs is tried in every order on one machine, then sets are dealt to machines.
    """
    alone = {frozenset[int](): 0}
    for order in _best_orders(tuple(needs), capacity):
        alone[frozenset(order)] = makespan([order], times, needs, capacity, load, free_filling)
    return _dealt(alone, frozenset(range(len(times))), machines)


@cache
def _best_orders(needs: tuple[Tools, ...], capacity: int) -> list[tuple[int, ...]]:
    """Return, for every set of jobs, an order of fewest loads; an order and its reverse need as many."""
    return [
        min(
            (order for order in permutations(chosen) if order[0] <= order[-1]),
            key=lambda order: fewest_loads([needs[job] for job in order], capacity),
        )
        for size in range(1, len(needs) + 1)
        for chosen in combinations(range(len(needs)), size)
    ]


def _dealt(alone: Mapping[frozenset[int], int], jobs: frozenset[int], machines: int) -> int:
    """Return the least maximum over all ways to deal jobs to machines, by dynamic programming over sets."""
    best = dict(alone)
    for _ in range(machines - 1):
        best = {rest: min(max(alone[part], best[rest - part]) for part in alone if part <= rest) for rest in alone}
    return best[jobs]


RUN_US, LOAD_US = 3, 10

_SHAPES = ((20, 6, 3), (30, 8, 3), (50, 10, 4), (100, 15, 5), (200, 20, 6), (390, 30, 8))
"""Requests, pages, pages that fit."""


def requests(count: int, pages: int, seed: int) -> list[int]:
    """Return a seeded draw in which page k is asked for in proportion to 1 / (k + 1)."""
    rng = random.Random(seed)  # noqa: S311
    return rng.choices(range(pages), [1 / (page + 1) for page in range(pages)], k=count)


def scenario(order: Sequence[int], capacity: int) -> Scenario:
    """Return the requests as a chain of tasks on one GPU that holds `capacity` pages and cannot load while it runs."""
    tasks = {
        f"r{position}": {
            "models": [f"page{page}"],
            "runtime": f"{RUN_US} us",
            "after": [f"r{position - 1}"] if position else [],
        }
        for position, page in enumerate(order)
    }
    return least_makespan(
        {
            "name": f"{len(order)} requests",
            "cluster": alike(1, machine(memory_bytes=capacity * SIZE_BYTES, load_us=LOAD_US)),
            "models": {f"page{page}": {"weights": f"{SIZE_BYTES} B"} for page in sorted(set(order))},
            "workflows": {"requests": {"tasks": tasks}},
            "workload": {"jobs": [{"release": "0 us", "workflow": "requests"}]},
            "options": {"overlap_loads": False},
        }
    )


def case(order: Sequence[int], capacity: int, name: str) -> Case:
    """Return the case of these requests, counted in loads."""
    belady = fewest_loads([frozenset({page}) for page in order], capacity)
    return Case(Suite.PAGING, name, scenario(order, capacity), Bracket.optimum(belady), LOAD_US, RUN_US * len(order))


def cases() -> Iterator[Case]:
    """Yield seeded draws of growing length."""
    for count, pages, capacity in _SHAPES:
        for seed in (1, 2):
            name = f"{count} requests, {pages} pages, {capacity} fit, seed {seed}"
            yield case(requests(count, pages, seed), capacity, name)
