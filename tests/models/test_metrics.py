"""Metrics of a timeline worked out by hand, and the residency that serves a task."""

from __future__ import annotations

import random
from dataclasses import asdict, replace
from fractions import Fraction

import numpy as np
import pytest

from tests import instances as make
from tests.models.random_timelines import simple_timeline
from truenorth.models import (
    BatchClass,
    InitialResidency,
    Instance,
    Job,
    Objective,
    Placement,
    Residency,
    ServiceLevels,
    Task,
    Timeline,
    check,
    measure,
    timeline_value,
)
from truenorth.models.metrics import hit_rate, model_uses, serving_residency
from truenorth.models.objective import reported_value
from truenorth.models.slo import quantile_rank

# Two GPUs of 10 bytes, one byte loads in 1 us. Models a (4), b (5), c (6). Each job is one task of 10 us:
#   job  release  model  GPU  run       F   F / P
#     0        0      a    0  [4, 14)   14  1.4   a loaded over [0, 4): first use, a miss
#     1        0      a    0  [14, 24)  24  2.4   a is there: a hit
#     2        5      b    1  [5, 15)   10  1.0   b prefetched over [0, 5): first use, a miss all the same
#     3       10      c    0  [30, 40)  30  3.0   a evicted at 24 for c, loaded over [24, 30): a miss
#     4       10      -    1  [15, 25)  15  1.5   needs no model: not counted
NEEDS = [["a"], ["a"], ["b"], ["c"], []]
RELEASES = [0, 0, 5, 10, 10]
RUNS = [(0, 4), (0, 14), (1, 5), (0, 30), (1, 15)]
STAYS = [Residency(0, 0, 0, 4, 24), Residency(1, 1, 0, 5), Residency(2, 0, 24, 30)]


@pytest.fixture
def world() -> Instance:
    jobs = [
        Job(make.chain(make.task("t", 10, needs), name=f"w{index}"), release, deadline_us=15)
        for index, (needs, release) in enumerate(zip(NEEDS, RELEASES, strict=True))
    ]
    return make.instance(jobs, {"a": 4, "b": 5, "c": 6}, make.cluster(2))


@pytest.fixture
def timeline() -> Timeline:
    return Timeline.build(5, [Placement(t, gpu, start, start + 10) for t, (gpu, start) in enumerate(RUNS)], STAYS)


def test_every_figure_of_one_timeline(world: Instance, timeline: Timeline) -> None:
    assert check(world, timeline) == []
    metrics = measure(world, timeline, ServiceLevels.parse("95 % within deadline"))
    assert asdict(metrics) == {
        "jobs": 5,
        "tasks": 5,
        "mean_latency_s": 18.6e-6,  # (14 + 24 + 10 + 30 + 15) / 5
        "p50_latency_s": 15e-6,  # the 3rd smallest of 10, 14, 15, 24, 30
        "p95_latency_s": 30e-6,
        "p99_latency_s": 30e-6,
        "max_latency_s": 30e-6,
        "mean_slowdown": 1.86,
        "p50_slowdown": 1.5,
        "p95_slowdown": 3.0,
        "p99_slowdown": 3.0,
        "max_slowdown": 3.0,
        "makespan_s": 40e-6,
        "loads": 3,
        "load_bytes": 15,
        "evictions": 1,
        "hit_rate": 1 - 3 / 4,
        "compute_busy": 50 / 80,
        "copy_busy": (4 + 5 + 6) / 80,
        "gpus_used": 2,
        "slo_attainment": 3 / 5,  # 14, 10 and 15 are within 15
        "batches": 0,
        "mean_batch_size": None,
    }
    assert measure(world, timeline).slo_attainment is None


def test_a_warm_up_leaves_the_earliest_jobs_out(world: Instance, timeline: Timeline) -> None:
    # floor(0.5 x 5) = 2 jobs left out: F of 10, 30, 15; starts with a model of jobs 2 and 3, both misses.
    metrics = measure(world, timeline, ServiceLevels.parse("no late jobs"), Fraction(1, 2))
    assert (metrics.jobs, metrics.tasks) == (3, 3)
    assert metrics.mean_latency_s == pytest.approx(55e-6 / 3, rel=1e-15)
    assert (metrics.p50_latency_s, metrics.max_latency_s) == (15e-6, 30e-6)
    assert metrics.hit_rate == 0
    assert metrics.slo_attainment == pytest.approx(2 / 3)
    # What belongs to devices stays whole.
    assert (metrics.loads, metrics.evictions, metrics.makespan_s, metrics.compute_busy) == (3, 1, 40e-6, 50 / 80)
    # floor(0.39 x 5) = 1; the hit of job 1 follows the miss of job 0, which is left out.
    assert measure(world, timeline, warmup=Fraction("0.39")).hit_rate == pytest.approx(1 / 3)
    assert measure(world, timeline, warmup=Fraction("0.19")) == measure(world, timeline)


@pytest.mark.parametrize("warmup", [Fraction(-1, 10), Fraction(1)])
def test_a_warm_up_leaves_some_job_in(world: Instance, timeline: Timeline, warmup: Fraction) -> None:
    with pytest.raises(ValueError, match="warm-up"):
        measure(world, timeline, warmup=warmup)


@pytest.mark.parametrize(
    ("share", "count", "rank"),
    [
        (Fraction(99, 100), 100, 98),
        (Fraction(99, 100), 101, 99),  # ceil(99.99) = 100th
        (Fraction(95, 100), 20, 18),
        (Fraction(1, 2), 4, 1),
        (Fraction(1, 2), 5, 2),
        (Fraction(1), 7, 6),
        (Fraction(1, 1000), 3, 0),
    ],
)
def test_quantile_ranks(share: Fraction, count: int, rank: int) -> None:
    assert quantile_rank(share, count) == rank


def test_means_are_the_objectives_to_the_last_digit() -> None:
    rng = random.Random(5)
    for _ in range(100):
        instance = make.random_instance(rng, 8)
        timeline = simple_timeline(rng, instance)
        metrics = measure(instance, timeline)
        for objective, figure in (
            (Objective.MEAN_LATENCY, metrics.mean_latency_s),
            (Objective.MEAN_SLOWDOWN, metrics.mean_slowdown),
            (Objective.MAX_SLOWDOWN, metrics.max_slowdown),
            (Objective.MAKESPAN, metrics.makespan_s),
        ):
            assert figure == reported_value(objective, timeline_value(objective, instance, timeline))


class TestHitRate:
    @staticmethod
    def rate(
        needs: list[list[str]], runs: list[tuple[int, int]], stays: list[Residency], warm: bool = False
    ) -> float | None:
        jobs = [Job(make.chain(make.task("t", 10, models), name=f"w{i}"), 0) for i, models in enumerate(needs)]
        initial = (InitialResidency(0, 0),) if warm else ()
        instance = make.instance(jobs, {"a": 4, "b": 5}, make.cluster(2), initial=initial)
        timeline = Timeline.build(len(runs), [Placement(t, g, s, s + 10) for t, (g, s) in enumerate(runs)], stays)
        assert check(instance, timeline) == []
        return hit_rate(instance, timeline)

    def test_none_without_models(self) -> None:
        assert self.rate([[], []], [(0, 0), (0, 10)], []) is None
        assert self.rate([[]], [(0, 0)], [Residency(0, 0, 0, 4)]) is None

    def test_an_initial_residency_is_no_miss(self) -> None:
        stays = [Residency(0, 0, 0, 0, initial=True)]
        assert self.rate([["a"], ["a"]], [(0, 0), (0, 10)], stays, warm=True) == 1

    def test_a_reload_is_a_second_miss(self) -> None:
        stays = [Residency(0, 0, 0, 4, 14), Residency(0, 0, 14, 18)]
        assert self.rate([["a"], ["a"], ["a"]], [(0, 4), (0, 18), (0, 28)], stays) == pytest.approx(1 / 3)

    def test_a_start_that_misses_two_models_misses_once(self) -> None:
        stays = [Residency(0, 0, 0, 4), Residency(1, 0, 4, 9)]
        assert self.rate([["a", "b"], ["a", "b"]], [(0, 9), (0, 19)], stays) == 0.5

    def test_missing_one_of_two_models_is_a_miss(self) -> None:
        stays = [Residency(0, 0, 0, 4), Residency(1, 0, 4, 9)]
        assert self.rate([["a"], ["a", "b"], ["b"]], [(0, 4), (0, 14), (0, 24)], stays) == pytest.approx(1 / 3)

    def test_the_first_use_is_the_earliest_start_not_the_first_task(self) -> None:
        # Warm-up takes job 0, which is the *second* user of a: the miss of job 1 remains.
        jobs = [Job(make.chain(make.task("t", 10, ["a"])), 0)] * 2
        instance = make.instance(jobs, {"a": 4})
        timeline = Timeline.build(2, [Placement(0, 0, 14, 24), Placement(1, 0, 4, 14)], [Residency(0, 0, 0, 4)])
        assert hit_rate(instance, timeline, first_task=1) == 0
        assert hit_rate(instance, timeline) == 0.5

    def test_an_unused_load_is_no_miss(self) -> None:
        stays = [Residency(0, 0, 0, 4), Residency(1, 0, 4, 9)]
        assert self.rate([["a"]], [(0, 4)], stays) == 0


def test_loads_beyond_the_makespan_do_not_count_as_busy(world: Instance, timeline: Timeline) -> None:
    # GPU 1 loads a over [38, 42); the makespan is 40: 2 us more of 80.
    longer = replace(timeline, residencies=(*STAYS, Residency(0, 1, 38, 42)))
    metrics = measure(world, longer)
    assert metrics.copy_busy == pytest.approx((15 + 2) / 80)
    assert (metrics.loads, metrics.load_bytes) == (4, 19)


def test_an_initial_residency_loads_nothing_but_may_be_evicted() -> None:
    one = make.instance([Job(make.chain(make.task("t", 10, ["a"])), 0)], {"a": 4}, initial=(InitialResidency(0, 0),))
    stay = Residency(0, 0, 0, 0, 10, initial=True)
    metrics = measure(one, Timeline.build(1, [Placement(0, 0, 0, 10)], [stay]))
    assert (metrics.loads, metrics.load_bytes, metrics.evictions, metrics.hit_rate) == (0, 0, 1, 1.0)
    assert (metrics.compute_busy, metrics.copy_busy, metrics.gpus_used) == (1.0, 0.0, 1)


def test_a_realised_timeline_of_empty_runs_has_figures() -> None:
    one = make.instance([Job(make.chain(make.task("t", 10)), 0)])
    metrics = measure(one, Timeline.build(1, [Placement(0, 0, 0, 0)], [], realised=True))
    assert (metrics.makespan_s, metrics.compute_busy, metrics.mean_slowdown) == (0.0, 0.0, 0.0)


def test_a_batch_counts_once_and_by_its_share() -> None:
    # Batches of share 0.5: {0, 1} over [4, 10), {2} over [10, 14); job 3 alone over [10, 15), share 0.4; until 15 us.
    half = BatchClass("half", {"*": {1: 4, 2: 6}}, ("a",), share=5_000)
    tasks = [*(Task.of_class("t", half) for _ in range(3)), Task("t", {"*": 5}, share=4_000)]
    jobs = [Job(make.chain(task, name=f"w{index}"), 0) for index, task in enumerate(tasks)]
    instance = make.instance(jobs, {"a": 4})
    runs = [Placement(0, 0, 4, 10), Placement(1, 0, 4, 10), Placement(2, 0, 10, 14), Placement(3, 0, 10, 15)]
    timeline = Timeline.build(4, runs, [Residency(0, 0, 0, 4)])
    assert check(instance, timeline) == []
    metrics = measure(instance, timeline)
    assert (metrics.batches, metrics.mean_batch_size) == (2, 1.5)
    assert metrics.compute_busy == (0.5 * 6 + 0.5 * 4 + 0.4 * 5) / 15
    # Of the simultaneous first uses of a the lowest task is the miss: 2 of 3 starts hit, and without it all do.
    assert metrics.hit_rate == pytest.approx(2 / 3)
    after = [measure(instance, timeline, warmup=Fraction(part, 4)) for part in (1, 2, 3)]
    assert [m.hit_rate for m in after] == [1.0, 1.0, None]
    assert [(m.batches, m.mean_batch_size) for m in after] == [(2, 1.5), (1, 1.0), (0, None)]


class TestServingResidency:
    def test_the_latest_ready_one_on_the_right_gpu(self) -> None:
        jobs = [Job(make.chain(make.task("t", 1, ["a", "b"])), 0)] * 2
        instance = make.instance(jobs, {"a": 4, "b": 5}, make.cluster(2))
        stays = (Residency(0, 0, 0, 4, 9), Residency(0, 0, 9, 13), Residency(1, 0, 4, 9), Residency(0, 1, 0, 4))
        task, model = instance.model_uses()
        assert (task.tolist(), model.tolist()) == ([0, 0, 1, 1], [0, 1, 0, 1])
        for starts, expected in (((9, 13), [0, 2, 1, 2]), ((12, 3), [0, 2, -1, -1]), ((4, 10**6), [0, -1, 1, 2])):
            runs = [Placement(t, 0, start, start + 1) for t, start in enumerate(starts)]
            timeline = replace(Timeline.build(2, runs, []), residencies=stays)
            assert serving_residency(instance, timeline, task, model, timeline.place[task]).tolist() == expected

    def test_times_near_the_end_of_64_bits_do_not_wrap(self) -> None:
        # Times of 2^62 on GPU 3 of a packed (place, time) key would leave 64 bits.
        late = 2**62
        instance = make.instance([Job(make.chain(make.task("t", 1, ["a"])), 0)], {"a": 4}, make.cluster(4))
        stays = tuple(Residency(0, gpu, late - 4 * gpu - 4, late - 4 * gpu) for gpu in range(4))
        timeline = replace(Timeline.build(1, [Placement(0, 3, late - 12, late - 11)], []), residencies=stays)
        assert serving_residency(instance, timeline, *model_uses(instance, timeline)).tolist() == [3]
        early = replace(timeline, start_us=np.array([late - 13]))
        assert serving_residency(instance, early, *model_uses(instance, early)).tolist() == [-1]
