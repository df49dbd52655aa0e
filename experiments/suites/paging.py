"""Paging on one GPU: requests in a fixed order, pages of equal size, and Belady's fewest loads to compare with.

The order is fixed by precedence: one job whose tasks form a chain. With overlap off the GPU either runs or loads, so a
plan that waits for nothing ends at (sum of run times) + (loads) x (load time), and no plan with as many loads ends
sooner. Least makespan and fewest loads are thus the same, and the value reported is

    loads = (makespan - sum of run times) / load time.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from experiments.suites.case import SIZE_BYTES, Case, Known, Suite, alike, least_makespan, machine
from experiments.suites.keep_tool import fewest_loads
from truenorth.models.scenario import Scenario

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
    return Case(Suite.PAGING, name, scenario(order, capacity), Known.optimum(belady), LOAD_US, RUN_US * len(order))


def cases() -> Iterator[Case]:
    """Yield seeded draws of growing length."""
    for count, pages, capacity in _SHAPES:
        for seed in (1, 2):
            name = f"{count} requests, {pages} pages, {capacity} fit, seed {seed}"
            yield case(requests(count, pages, seed), capacity, name)
