"""The list schedule that looks ahead, on cases derived by hand.

GPUs have 10 bytes and load one byte per microsecond; a transfer takes 1 us plus 1 us per byte.
"""

from __future__ import annotations

import random

import pytest

from tests.executor.scripted import loads, runs
from tests.executor.test_properties import NOISE
from tests.golden.test_decisions import crowded
from tests.instances import chain, cluster, instance, random_instance, task
from tests.night import by_day
from truenorth.executor import parse_policy, simulate
from truenorth.executor.policies.ahead import Ahead
from truenorth.models import InitialResidency, Instance, Job, Timeline

FIRST = (InitialResidency(0, 0),)


class Anew(Ahead):
    """Lists every task anew at every event."""

    def _stands(self, *_: object) -> bool:
        return False


@pytest.mark.parametrize("begin", by_day(range(100, 150, 10), 2))
@pytest.mark.parametrize("noisy", [False, True])
def test_a_list_that_is_kept_is_the_list_that_would_be_made_anew(noisy: bool, begin: int) -> None:
    for seed in range(begin, begin + 10):
        on = crowded(random.Random(seed), random_instance(random.Random(seed), 9))
        noise = NOISE if noisy else None
        kept, anew = (simulate(on, policy, seed, noise) for policy in (Ahead, Anew))
        assert (kept.start_us.tolist(), kept.place.tolist()) == (anew.start_us.tolist(), anew.place.tolist())
        assert kept.residencies == anew.residencies


def ahead(on: Instance, options: str = "") -> Timeline:
    return simulate(on, parse_policy(f"ahead{options}"))


def test_a_model_is_loaded_while_the_predecessor_runs() -> None:
    # a runs in [0, 5), and m (4 bytes) comes in beside it: b in [5, 8). srpt loads at 5 and runs b in [9, 12).
    on = instance([Job(chain(task("a", 5), task("b", 3, ["m"], after={"a": 0})), 0)], {"m": 4})
    timeline = ahead(on)
    assert runs(timeline) == [(0, 0, 5), (0, 5, 8)]
    assert loads(on, timeline) == [("m", 0, 0, 4, None)]
    assert runs(simulate(on, parse_policy("srpt"))) == [(0, 0, 5), (0, 9, 12)]


def test_a_load_that_evicts_begins_when_it_would_be_late_any_later() -> None:
    # x (8 bytes) has to leave for m (4), which b needs at 10: at 6.
    on = instance([Job(chain(task("a", 10), task("b", 3, ["m"], after={"a": 0})), 0)], {"x": 8, "m": 4}, initial=FIRST)
    timeline = ahead(on)
    assert runs(timeline) == [(0, 0, 10), (0, 10, 13)]
    assert loads(on, timeline) == [("m", 0, 6, 10, None)]


def test_who_is_needed_least_often_leaves() -> None:
    # x and y (4 bytes each) are there, m (4) is to come for b at 5. Another job needs x: y leaves, though x was first.
    two = chain(task("a", 5), task("b", 3, ["m"], after={"a": 0}), name="two")
    waits = chain(task("t", 9, ["x"]), name="waits")
    both = (InitialResidency(0, 0), InitialResidency(0, 1))
    on = instance([Job(two, 0), Job(waits, 0)], {"x": 4, "y": 4, "m": 4}, initial=both)
    timeline = ahead(on)
    assert runs(timeline) == [(0, 0, 5), (0, 5, 8), (0, 8, 17)]
    assert [r.end_us for r in timeline.residencies if r.initial] == [None, 1]


def test_no_gpu_waits_for_what_is_still_to_come_while_there_is_work() -> None:
    # b (after a, which runs on g0 until 5) is listed on g1, which has x (8 bytes): it could start at 6. A longer job
    # comes at 1 and starts there at once. So b would end at 11 on g1; on g0 x is there at 9, and b ends at 10.
    first = chain(task("a", 5), task("b", 1, ["x"], after={"a": 0}), name="first")
    later = chain(task("t", 9), name="later")
    on = instance([Job(first, 0, ingress=0), Job(later, 1)], {"x": 8}, cluster(2), initial=(InitialResidency(1, 0),))
    assert runs(ahead(on)) == [(0, 0, 5), (0, 9, 10), (1, 1, 10)]


@pytest.mark.parametrize(("price", "expected"), [("", (1, 10, 13)), (":price=0", (0, 5, 8))])
def test_a_task_waits_rather_than_evict_if_that_counts_less(price: str, expected: tuple[int, int, int]) -> None:
    # m (4 bytes) is on g1 only, busy in [0, 10); x (8) would leave g0 for it. A task of 3 us comes at 1: on g1 it ends
    # at 13, on g0 at 8, and 2 x 4 us count on top.
    on = instance(
        [Job(chain(task("t", 10, ["m"]), name="long"), 0), Job(chain(task("t", 3, ["m"]), name="short"), 1)],
        {"x": 8, "m": 4},
        cluster(2),
        initial=(InitialResidency(0, 0), InitialResidency(1, 1)),
    )
    assert runs(ahead(on, price)) == [(1, 0, 10), expected]
