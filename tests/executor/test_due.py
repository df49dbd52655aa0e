"""Clockwork and deferred batching: decisions derived by hand. GPUs have 10 bytes and load one byte per microsecond."""

from __future__ import annotations

import pytest

from tests.executor.scripted import loads, runs
from tests.instances import chain, cluster, instance, task
from truenorth.executor import parse_policy, simulate
from truenorth.models import BatchClass, InitialResidency, Instance, Job, Task, Workflow, check

THREES = BatchClass("threes", {"*": {1: 4, 2: 6, 3: 9}})


def of(batch: BatchClass, release: int, deadline: int | None = None) -> Job:
    """Return a job of one task of a class."""
    return Job(chain(Task.of_class("t", batch), name=batch.name), release, deadline_us=deadline)


def plain(run: int, release: int, deadline: int | None = None, models: tuple[str, ...] = ()) -> Job:
    """Return a job of one task without a class."""
    return Job(chain(task("t", run, models), name=f"plain{run}"), release, deadline_us=deadline)


def happens(policy: str, on: Instance) -> list[tuple[int, int, int]]:
    """Return what a policy makes of an instance."""
    timeline = simulate(on, parse_policy(policy))
    assert check(on, timeline) == []
    return runs(timeline)


@pytest.mark.parametrize(
    ("deadline", "expected"),
    [
        (11, [(0, 5, 11), (0, 5, 11), (0, 11, 15)]),  # at 5 three end at 14, two at 11: due at 12
        (13, [(0, 5, 14), (0, 5, 14), (0, 5, 14)]),  # due at 14
        (8, [(0, 5, 9), (0, 9, 15), (0, 9, 15)]),  # due at 9: alone
    ],
)
def test_clockwork_batches_as_many_as_are_all_on_time(deadline: int, expected: list[tuple[int, int, int]]) -> None:
    on = instance([plain(5, 0), of(THREES, 1, deadline), of(THREES, 1, 30), of(THREES, 1, 30)])
    assert happens("clockwork", on) == [(0, 0, 5), *expected]


def test_clockwork_takes_the_earliest_due_first_and_what_is_late_last() -> None:
    # At 5 the first of the class, due at 8, cannot end before 9 any more: the plain one, due at 31, and the second of
    # the class, due at 12, go before it, the latter first. A late task takes nobody along who could be on time.
    on = instance([plain(5, 0), of(THREES, 1, 7), plain(2, 1, 30), of(THREES, 2, 10)])
    assert happens("clockwork", on) == [(0, 0, 5), (0, 11, 15), (0, 9, 11), (0, 5, 9)]


def test_a_due_time_leaves_room_for_what_is_behind_a_task() -> None:
    # Both jobs are due at 30, but behind x lie 20 us: x, due at 10, goes before the other one although it came later.
    long = Workflow("long", (task("x", 4), task("y", 20, after={"x": 0})))
    on = instance([plain(5, 0), plain(3, 1, 29), Job(long, 2, deadline_us=28)])
    assert [start for _, start, _ in happens("clockwork", on)] == [0, 9, 5, 12]
    # Without deadlines due are five times P_j: 1 + 15 and 2 + 5 x 24 - 20.
    on = instance([plain(5, 0), plain(3, 1), Job(long, 2)])
    assert [start for _, start, _ in happens("clockwork", on)] == [0, 5, 8, 12]


def test_the_model_that_most_work_waits_for_is_loaded_first() -> None:
    # Two tasks of a (4 us each) outweigh one of b (6 us), both models take 6 us to load and 6 of 10 bytes. b comes in
    # once a is used no more.
    pairs = BatchClass("pairs", {"*": {1: 4, 2: 6}}, ("a",))
    on = instance([plain(6, 0, None, ("b",)), of(pairs, 0), of(pairs, 0)], {"a": 6, "b": 6})
    timeline = simulate(on, parse_policy("clockwork"))
    assert loads(on, timeline) == [("a", 0, 0, 6, 12), ("b", 0, 12, 18, None)]
    assert runs(timeline) == [(0, 18, 24), (0, 6, 12), (0, 6, 12)]


def test_a_copy_takes_its_part_of_the_work_that_waits() -> None:
    # a is on GPU 0, where a task of 20 us runs. Of two tasks of a (5 us) that wait a second copy would take one half:
    # 5 us of work for 5 us of load; b's one task of 6 us counts more, so b is loaded on GPU 0. A second copy of b would
    # take 3 us: GPU 1 loads a first.
    jobs = [plain(20, 0, None, ("a",)), *(plain(5, 1, 500, ("a",)) for _ in range(2)), plain(6, 1, 500, ("b",))]
    on = instance(jobs, {"a": 5, "b": 5}, on=cluster(2), initial=(InitialResidency(0, 0),))
    timeline = simulate(on, parse_policy("clockwork"))
    assert [load[:3] for load in loads(on, timeline)] == [("b", 0, 1), ("a", 1, 1), ("b", 1, 6)]


@pytest.mark.parametrize(
    ("jobs", "expected"),
    [
        ([of(THREES, 0, 10)], [(0, 6, 10)]),  # alone until 10 - 4
        ([of(THREES, 0)], [(0, 16, 20)]),  # without a deadline due at 5 x 4
        ([of(THREES, 0, 10), of(THREES, 3, 30)], [(0, 4, 10), (0, 4, 10)]),  # two have to start at 10 - 6
        ([of(THREES, 0, 10), of(THREES, 5, 30)], [(0, 5, 11), (0, 5, 11)]),  # which has passed: at once
        ([of(THREES, 0, 90), of(THREES, 1, 90), of(THREES, 2, 90)], [(0, 2, 11)] * 3),  # full
        ([of(THREES, 0, 3)], [(0, 0, 4)]),  # late in any case
        ([plain(7, 0, 90)], [(0, 0, 7)]),  # nobody to wait for
    ],
)
def test_deferred_waits_until_a_batch_is_full_or_has_to_start(
    jobs: list[Job], expected: list[tuple[int, int, int]]
) -> None:
    assert happens("deferred", instance(jobs)) == expected


def test_deferred_serves_what_is_on_time_before_what_is_late() -> None:
    # At 20 three of the class wait, two of them late; the largest batch is two. The one on time goes along first.
    pairs = BatchClass("pairs", {"*": {1: 4, 2: 6}})
    on = instance([plain(20, 0), of(pairs, 1, 5), of(pairs, 2, 5), of(pairs, 3, 60)])
    assert happens("deferred", on) == [(0, 0, 20), (0, 20, 26), (0, 26, 30), (0, 20, 26)]
