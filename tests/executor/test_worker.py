"""The common worker: FIFO with skipping, loads on the critical path, eviction orders, prefetch without eviction.

GPUs have 10 bytes and load one byte per microsecond; a transfer takes 1 us plus 1 us per byte.
"""

from __future__ import annotations

import pytest

from tests.executor.scripted import Listed, loads, runs
from tests.instances import chain, cluster, instance, task
from truenorth.executor import simulate
from truenorth.models import InitialResidency, Instance, Job, check


@pytest.mark.parametrize(
    ("enqueue", "join", "last"),
    [("first", (0, 27, 30), (0, 30, 31)), ("last", (0, 28, 31), (0, 27, 28))],
)
def test_fifo_skips_tasks_without_inputs_and_keeps_their_place(
    enqueue: str, join: tuple[int, int, int], last: tuple[int, int, int]
) -> None:
    # g0: a runs [0, 2); the join queues at 2 (first input) but b on g1 ends at 10, so its input is there at 11.
    # c (released 3) overtakes it: [3, 7); d (released 5): [7, 27). e, released 8, is behind the join if that queued
    # with its first input, before it if the join queued with its last one at 11.
    joined = chain(task("a", 2), task("b", 10), task("j", 3, after={"a": 0, "b": 0}))
    others = [Job(chain(task("t", run), name=f"w{run}"), release) for release, run in ((3, 4), (5, 20), (8, 1))]
    on = instance([Job(joined, 0), *others], on=cluster(2))
    timeline = simulate(on, lambda: Listed([0, 1, 0, 0, 0, 0], enqueue=enqueue))
    assert runs(timeline) == [(0, 0, 2), (1, 0, 10), join, (0, 3, 7), (0, 7, 27), last]
    assert check(on, timeline) == []


def one_gpu(needs: list[tuple[str, int]], sizes: dict[str, int], initial: str, **options: object) -> Instance:
    """Return jobs of one task each, all released at 0: (model, run time); models in `initial` are resident."""
    jobs = [Job(chain(task("t", run, [model]), name=f"w{index}"), 0) for index, (model, run) in enumerate(needs)]
    resident = tuple(InitialResidency(0, list(sizes).index(name)) for name in initial)
    return instance(jobs, sizes, cluster(1), initial=resident, **options)


THREE = {"a": 4, "b": 4, "c": 4}


def test_lookahead_evicts_what_the_queue_does_not_need() -> None:
    # a and b fill 8 of 10 bytes; c needs room; a is needed by the second task, b by none: b leaves, a is a hit.
    on = one_gpu([("c", 1), ("a", 1)], THREE, "ab")
    timeline = simulate(on, lambda: Listed([0, 0]))
    assert runs(timeline) == [(0, 4, 5), (0, 5, 6)]
    assert loads(on, timeline) == [("c", 0, 0, 4, None)]
    assert [(r.model, r.end_us) for r in timeline.residencies if r.initial] == [(0, None), (1, 0)]


def test_lookahead_evicts_what_is_needed_furthest_in_the_future() -> None:
    # Both residents are needed: b second, a third. a leaves at 0; c [0, 4); runs at 4, 5 (b a hit); then a comes back
    # in place of c, whose use is longer ago than that of b: [6, 10). No prefetch before: it would have to evict.
    on = one_gpu([("c", 1), ("b", 1), ("a", 1)], THREE, "ab")
    timeline = simulate(on, lambda: Listed([0, 0, 0]))
    assert runs(timeline) == [(0, 4, 5), (0, 5, 6), (0, 10, 11)]
    assert loads(on, timeline) == [("c", 0, 0, 4, 6), ("a", 0, 6, 10, None)]


@pytest.mark.parametrize(
    ("evict", "left"), [("lookahead", "ac"), ("lookahead-fifo", "bc"), ("lru", "ac"), ("fifo", "bc")]
)
def test_equals_leave_by_least_recent_use_or_by_age(evict: str, left: str) -> None:
    # a (oldest) runs [1, 2) after b [0, 1); then c needs room and the queue is empty: b is the least recently used.
    on = one_gpu([("b", 1), ("a", 1), ("c", 1)], THREE, "ab")
    timeline = simulate(on, lambda: Listed([0, 0, 0], evict=evict))
    assert {on.models[r.model].name for r in timeline.residencies if r.end_us is None} == set(left)


@pytest.mark.parametrize(("evict", "left"), [("lookahead", "ac"), ("lookahead-fifo", "c")])
def test_a_victim_that_a_later_one_makes_superfluous_stays(evict: str, left: str) -> None:
    # c (6 bytes) comes in; a (2) is the older one, b (8) makes room for c alone.
    on = one_gpu([("a", 1), ("b", 1), ("c", 1)], {"a": 2, "b": 8, "c": 6}, "ab")
    timeline = simulate(on, lambda: Listed([0, 0, 0], evict=evict))
    assert {on.models[r.model].name for r in timeline.residencies if r.end_us is None} == set(left)


def test_a_prefetched_join_does_not_block_further_prefetches() -> None:
    # g0: a runs [0, 2) and sends to the join (model x, prefetched [0, 3) once it is queued at 2: [2, 5)), whose other
    # input comes from g1 at 51. b (model y) is released at 3 and runs at once: y [5, 8)... then c (model z, released
    # 9) queues behind d, which runs without a model [9, 19): z comes in at 9, though x is still unused.
    joined = chain(task("a", 2), task("o", 50), task("j", 1, ["x"], {"a": 0, "o": 0}))
    jobs = [Job(joined, 0), Job(chain(task("d", 10), name="d"), 9), Job(chain(task("c", 1, ["z"]), name="c"), 9)]
    on = instance(jobs, {"x": 3, "z": 3}, cluster(2))
    timeline = simulate(on, lambda: Listed([0, 1, 0, 0, 0]))
    assert loads(on, timeline) == [("x", 0, 2, 5, None), ("z", 0, 9, 12, None)]
    assert runs(timeline)[3:] == [(0, 9, 19), (0, 19, 20)]


def test_fifo_evicts_the_oldest() -> None:
    # The oldest is a, though the next task needs it: it comes back at [5, 9) in place of b.
    on = one_gpu([("c", 1), ("a", 1)], THREE, "ab")
    timeline = simulate(on, lambda: Listed([0, 0], evict="fifo"))
    assert runs(timeline) == [(0, 4, 5), (0, 9, 10)]
    assert loads(on, timeline) == [("c", 0, 0, 4, None), ("a", 0, 5, 9, None)]


def test_prefetch_overlaps_the_run_before() -> None:
    # While t1 runs [0, 10) on a, b comes in [0, 4): 6 bytes are free. Without prefetch its load follows: [10, 14).
    on = one_gpu([("a", 10), ("b", 1)], THREE, "a")
    assert runs(simulate(on, lambda: Listed([0, 0]))) == [(0, 0, 10), (0, 10, 11)]
    assert runs(simulate(on, lambda: Listed([0, 0], prefetch=0))) == [(0, 0, 10), (0, 14, 15)]


def test_prefetch_never_evicts() -> None:
    # a and c fill 8 of 10 bytes, so b must wait for its turn, although nobody needs c.
    on = one_gpu([("a", 10), ("b", 1)], THREE, "ac")
    timeline = simulate(on, lambda: Listed([0, 0]))
    assert runs(timeline) == [(0, 0, 10), (0, 14, 15)]
    assert loads(on, timeline) == [("b", 0, 10, 14, None)]


@pytest.mark.parametrize(("prefetch", "lookahead", "third"), [(1, 3, 13), (2, 3, 11), (2, 1, 13), (1, 1, 13)])
def test_prefetched_and_unused_models_are_limited(prefetch: int, lookahead: int, third: int) -> None:
    # a (4 bytes) runs [0, 10); b and c (3 each) both fit beside it. b: [0, 3). c at once after it only if two may be
    # held in advance and the look-ahead reaches the second task of the queue; else when b is used: [10, 13).
    on = one_gpu([("a", 10), ("b", 1), ("c", 1)], {"a": 4, "b": 3, "c": 3}, "a")
    timeline = simulate(on, lambda: Listed([0, 0, 0], prefetch=prefetch, lookahead=lookahead))
    assert timeline.start_us.tolist() == [0, 10, third]


def test_without_overlap_loads_wait_for_the_run() -> None:
    on = one_gpu([("a", 10), ("b", 1)], THREE, "a", overlap_loads=False)
    timeline = simulate(on, lambda: Listed([0, 0]))
    assert runs(timeline) == [(0, 0, 10), (0, 14, 15)]
    assert check(on, timeline) == []


def test_several_models_come_in_one_after_the_other_largest_first() -> None:
    # The task needs a (3) and b (5): b [0, 5), a [5, 8), run at 8.
    jobs = [Job(chain(task("t", 2, ["a", "b"])), 0)]
    on = instance(jobs, {"a": 3, "b": 5})
    timeline = simulate(on, lambda: Listed([0]))
    assert runs(timeline) == [(0, 8, 10)]
    assert loads(on, timeline) == [("b", 0, 0, 5, None), ("a", 0, 5, 8, None)]


def test_models_that_block_each_others_slots_come_in_anew() -> None:
    # Slots of 7 and 3 bytes; a (2 bytes) sits in the large one, and the task needs b (6 bytes) too. a must leave:
    # b [0, 6) into the large slot, a [6, 8) into the small one.
    jobs = [Job(chain(task("t", 1, ["a", "b"])), 0)]
    on = instance(jobs, {"a": 2, "b": 6}, cluster(1, slots=(7, 3)), initial=(InitialResidency(0, 0, 0),))
    timeline = simulate(on, lambda: Listed([0]))
    assert loads(on, timeline) == [("b", 0, 0, 6, None), ("a", 0, 6, 8, None)]
    assert [r.slot for r in timeline.residencies] == [0, 0, 1]
    assert check(on, timeline) == []


def test_a_queued_task_can_be_sent_elsewhere() -> None:
    # b (run 3) queues behind a (run 9) on g0; at 2 the release of c makes the policy move it to g1: inputs none.
    class Moving(Listed):
        def released(self, job: int) -> None:
            super().released(job)
            if job == 2:
                self.place(1, 1)

    jobs = [Job(chain(task("t", run), name=f"w{run}"), release) for release, run in ((0, 9), (0, 3), (2, 1))]
    timeline = simulate(instance(jobs, on=cluster(2)), lambda: Moving([0, 0, 0]))
    assert runs(timeline) == [(0, 0, 9), (1, 2, 5), (0, 9, 10)]
