"""The oracles against slower ones: every magazine after every job, and every order on every machine."""

from __future__ import annotations

import random
from itertools import combinations, permutations, product

import pytest

from experiments.suites.paging import Tools, fewest_loads, free_loads, shortest_makespan


def jobs(*needs: str) -> list[Tools]:
    """Return needs from words of digits: "01" needs the tools 0 and 1."""
    return [frozenset(int(tool) for tool in word) for word in needs]


def loads_over_magazines(order: list[Tools], capacity: int, first_free: bool = False) -> int:
    """Return the fewest loads by dynamic programming over all magazines that may be held after each job.

    A first filling that is free is any magazine, at no cost.
    """
    tools = sorted(frozenset().union(*order))
    magazines = [
        frozenset(chosen) for size in range(min(capacity, len(tools)) + 1) for chosen in combinations(tools, size)
    ]
    cost = dict.fromkeys(magazines if first_free else [frozenset[int]()], 0)
    for needed in order:
        cost = {
            after: min(paid + len(after - before) for before, paid in cost.items())
            for after in magazines
            if needed <= after
        }
    return min(cost.values())


def random_jobs(rng: random.Random, count: int, tools: int, capacity: int) -> list[Tools]:
    return [frozenset(rng.sample(range(tools), rng.randint(0, capacity))) for _ in range(count)]


def test_belady_by_hand() -> None:
    # Two pages fit. 1 and 2 come in; 3 replaces 2, which is asked for later than 1; 1 is there; 2 comes again.
    assert fewest_loads(jobs("1", "2", "3", "1", "2"), 2) == 4
    # One page fits: every change of page is a load.
    assert fewest_loads(jobs("1", "1", "2", "1"), 1) == 3
    # All fit: one load each.
    assert fewest_loads(jobs("1", "2", "3", "1", "2"), 3) == 3


def test_two_tools_at_once_by_hand() -> None:
    # 0, 1; then 2 replaces 0 (not needed again before 1); {1, 2} is there; 0 replaces 2: four loads in all.
    assert fewest_loads(jobs("01", "12", "12", "01"), 2) == 4


@pytest.mark.parametrize("seed", range(25))
def test_keep_tool_needed_soonest_is_optimal_for_an_order(seed: int) -> None:
    rng = random.Random(seed)
    capacity = rng.randint(1, 3)
    order = random_jobs(rng, 7, 5, capacity)
    assert fewest_loads(order, capacity) == loads_over_magazines(order, capacity)


@pytest.mark.parametrize("seed", range(25))
def test_a_free_filling_saves_one_load_per_tool_that_fits_and_is_used(seed: int) -> None:
    rng = random.Random(seed)
    capacity = rng.randint(1, 4)
    order = random_jobs(rng, 6, 5, capacity)
    free = fewest_loads(order, capacity) - free_loads(order, capacity)
    assert free == loads_over_magazines(order, capacity, first_free=True)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("free_filling", [False, True])
def test_enumeration_is_what_trying_every_order_on_every_machine_gives(seed: int, free_filling: bool) -> None:
    rng = random.Random(seed)
    capacity, machines, load = rng.randint(1, 3), 2, rng.randint(1, 9)
    times, needs = [rng.randint(1, 9) for _ in range(4)], random_jobs(rng, 4, 4, capacity)

    def ends(order: list[int]) -> int:
        loads = loads_over_magazines([needs[job] for job in order], capacity, free_filling) if order else 0
        return sum(times[job] for job in order) + load * loads

    tried = min(
        max(ends([job for job in order if on[job] == machine]) for machine in range(machines))
        for on in product(range(machines), repeat=4)
        for order in permutations(range(4))
    )
    assert shortest_makespan(times, needs, machines, capacity, load, free_filling) == tried
