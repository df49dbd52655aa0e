"""Packing decisions and makespans on equal GPUs, beside optima derived by hand and by enumeration."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.instances import chain, cluster, instance, task
from truenorth.models import Instance, Job, Objective
from truenorth.models.formulations import arc_flow as formulation
from truenorth.models.objective import Status
from truenorth.solvers.exact.arc_flow import applies, improve, pack
from truenorth.solvers.result import Search


def single_tasks(sizes: list[int], gpus: int) -> Instance:
    return instance([Job(chain(task("t", size), name=f"w{i}"), 0) for i, size in enumerate(sizes)], on=cluster(gpus))


def makespan(sizes: list[int], gpus: int) -> tuple[Status, int]:
    search = Search(single_tasks(sizes, gpus), Objective.MAKESPAN, 30)
    improve(search)
    assert search.value is not None
    assert search.bound == search.value
    return search.result("arc-flow", {}).status, int(search.value)


def test_items_that_fill_two_bins_exactly_are_packed() -> None:
    # 7 + 3 = 6 + 4 = 10: no other pairing fits.
    decided, packed = pack([7, 6, 4, 3], 2, 10, 10)
    assert decided
    assert packed is not None
    assert sorted(sorted(contents) for contents in packed) == [[3, 7], [4, 6]]


def test_bins_with_room_enough_in_sum_only_are_refuted() -> None:
    # Three items of 4 need three bins of 7, although 12 <= 14.
    assert pack([4, 4, 4], 2, 7, 10) == (True, None)


def test_an_item_above_the_capacity_is_refuted_at_once() -> None:
    assert pack([8], 3, 7, 10) == (True, None)


def test_makespan_where_longest_first_fails() -> None:
    # Longest first gives 5 + 3 + 3 = 11 and 5 + 4 = 9 or worse; 5 + 5 = 10 and 4 + 3 + 3 = 10 is optimal.
    assert makespan([5, 5, 4, 3, 3], 2) == (Status.OPTIMAL, 10)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(1, 3))
def test_makespan_equals_enumeration(sizes: list[int], gpus: int) -> None:
    least = min(
        max(sum(size for size, g in zip(sizes, chosen, strict=True) if g == gpu) for gpu in range(gpus))
        for chosen in product(range(gpus), repeat=len(sizes))
    )
    assert makespan(sizes, gpus) == (Status.OPTIMAL, least)


def test_models_chains_and_other_objectives_are_no_packing() -> None:
    assert applies(single_tasks([3, 2], 2), Objective.MAKESPAN)
    assert not applies(single_tasks([3, 2], 2), Objective.MEAN_LATENCY)
    two = chain(task("a", 1), task("b", 1, after={"a": 0}))
    assert not applies(instance([Job(two, 0)]), Objective.MAKESPAN)
    assert not applies(instance([Job(chain(task("a", 1, ["m"])), 0)], {"m": 1}), Objective.MAKESPAN)
    assert not applies(instance([Job(chain(task("a", 1)), 5)]), Objective.MAKESPAN)


def test_a_network_that_would_be_too_large_is_not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formulation, "MOST_ARCS", 3)
    assert formulation.formulate([5, 4, 3, 2], 2, 10) is None
