"""Replay: a plan is kept in everything but its times, which become as early as reality allows."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.executor.scripted import loads, runs
from tests.instances import chain, cluster, instance, random_instance, random_serving_instance, task
from tests.models.random_timelines import simple_timeline
from truenorth.executor import PolicyError, parse_noise, parse_policy, replay, simulate
from truenorth.models import (
    InitialResidency,
    Job,
    Objective,
    Placement,
    Residency,
    Restrictions,
    Timeline,
    check,
    timeline_value,
)
from truenorth.models.timeline import batch_leaders
from truenorth.solvers.exact import exhaustive

NOISE = parse_noise("run=lognormal:0.5,load=normal:0.4")


def orders(timeline: Timeline) -> list[tuple[list[int], list[tuple[int, int | None]]]]:
    """Return, per GPU, its tasks and its loaded (model, slot) pairs in order of start."""
    listed = []
    for gpu in range(int(timeline.place.max()) + 1):
        placed = sorted((p.start_us, p.task) for p in timeline.placements if p.gpu == gpu)
        loaded = sorted(
            (r.load_start_us, r.model, r.slot) for r in timeline.residencies if r.gpu == gpu and not r.initial
        )
        listed.append(([t for _, t in placed], [(model, slot) for _, model, slot in loaded]))
    return listed


@pytest.mark.parametrize("seed", range(200))
def test_a_plan_comes_true_no_later_than_planned(seed: int) -> None:
    rng = random.Random(seed)
    on = random_instance(rng, max_tasks=9)
    plan = simple_timeline(rng, on)
    done = simulate(on, replay(on, plan))
    assert check(on, done) == []
    assert not done.realised
    assert (done.end_us <= plan.end_us).all()
    assert orders(done) == orders(plan)
    again = simulate(on, replay(on, done))  # nothing can be earlier than as early as possible
    assert runs(again) == runs(done)
    assert again.residencies == done.residencies


@pytest.mark.parametrize("seed", range(100))
def test_noise_does_not_break_a_plan(seed: int) -> None:
    rng = random.Random(seed)
    on = random_instance(rng, max_tasks=9)
    plan = simple_timeline(rng, on)
    done = simulate(on, replay(on, plan), seed, NOISE)
    assert done.realised
    assert check(on, done) == []
    assert orders(done) == orders(plan)


@pytest.mark.parametrize("seed", range(60))
def test_an_optimal_plan_keeps_its_value_under_restrictions(seed: int) -> None:
    on = random_instance(random.Random(seed), max_tasks=4, restricted=True)
    found = exhaustive.solve(on, Objective.MEAN_LATENCY)
    if found.timeline is None:
        assert found.infeasible
        return
    done = simulate(on, replay(on, found.timeline))
    assert check(on, done) == []
    assert timeline_value(Objective.MEAN_LATENCY, on, done) == found.value
    assert check(on, simulate(on, replay(on, found.timeline), seed, NOISE)) == []


@pytest.mark.parametrize("policy", ["jit", "hash:batch=delay:3us", "compass:batch=off"])
def test_batches_shares_and_memory_come_true_and_noise_does_not_break_them(policy: str) -> None:
    for seed in range(60):
        on = random_serving_instance(random.Random(seed), max_tasks=9)
        plan = simulate(on, parse_policy(policy), seed)
        done = simulate(on, replay(on, plan))
        assert check(on, done) == []
        assert (done.end_us <= plan.end_us).all()
        assert (batch_leaders(on, done) == batch_leaders(on, plan)).all()
        late = simulate(on, replay(on, plan), seed, NOISE)
        assert check(on, late) == []
        assert (batch_leaders(on, late) == batch_leaders(on, plan)).all()


def test_slack_is_taken_out() -> None:
    # The plan dawdles: it loads m at 3 though it could at 0, and runs a and b later than it must.
    on = instance([Job(chain(task("a", 2, ["m"]), task("b", 1, after={"a": 0})), 1)], {"m": 4})
    plan = Timeline.build(2, [Placement(0, 0, 9, 11), Placement(1, 0, 15, 16)], [Residency(0, 0, 3, 7)])
    done = simulate(on, replay(on, plan))
    assert runs(done) == [(0, 4, 6), (0, 6, 7)]
    assert loads(on, done) == [("m", 0, 0, 4, None)]


def test_evictions_move_to_the_load_that_takes_the_room() -> None:
    # The plan evicts m at 5 and loads n (7 bytes) at 8; replayed, both happen at 4, when m's only task has ended.
    jobs = [Job(chain(task("a", 4, ["m"]), name="v"), 0), Job(chain(task("b", 1, ["n"])), 0)]
    on = instance(jobs, {"m": 4, "n": 7}, initial=(InitialResidency(0, 0),))
    plan = Timeline.build(
        2,
        [Placement(0, 0, 0, 4), Placement(1, 0, 15, 16)],
        [Residency(0, 0, 0, 0, 5, initial=True), Residency(1, 0, 8, 15)],
    )
    done = simulate(on, replay(on, plan))
    assert runs(done) == [(0, 0, 4), (0, 11, 12)]
    assert [(r.model, r.load_start_us, r.end_us) for r in done.residencies] == [(0, 0, 4), (1, 4, None)]


def test_an_unused_initial_residency_may_be_left_out_even_without_swaps() -> None:
    # m fills 4 of 10 bytes at 0, but the plan does without it: n (7 bytes) comes in at 0.
    on = instance(
        [Job(chain(task("b", 1, ["n"])), 0)],
        {"m": 4, "n": 7},
        initial=(InitialResidency(0, 0),),
        restrictions=Restrictions(no_swaps=True),
    )
    plan = Timeline.build(1, [Placement(0, 0, 7, 8)], [Residency(1, 0, 0, 7)])
    assert check(on, plan) == []
    done = simulate(on, replay(on, plan))
    assert [(r.model, r.load_start_us, r.initial) for r in done.residencies] == [(1, 0, False)]


def test_a_limited_model_leaves_before_it_comes_in_elsewhere() -> None:
    # At most one copy of m: g0 holds it for a until 3, then g1 loads it for b over [3, 7). m leaves g0 at 3 though
    # nothing takes its room there.
    jobs = [Job(chain(task("a", 3, ["m"]), name="v"), 0), Job(chain(task("b", 1, ["m"])), 0)]
    on = instance(
        jobs, {"m": 4}, cluster(2), initial=(InitialResidency(0, 0),), restrictions=Restrictions(max_replicas={"m": 1})
    )
    plan = Timeline.build(
        2,
        [Placement(0, 0, 0, 3), Placement(1, 1, 9, 10)],
        [Residency(0, 0, 0, 0, 4, initial=True), Residency(0, 1, 5, 9)],
    )
    done = simulate(on, replay(on, plan))
    assert runs(done) == [(0, 0, 3), (1, 7, 8)]
    assert [(r.gpu, r.load_start_us, r.end_us) for r in done.residencies] == [(0, 0, 3), (1, 3, None)]


def test_an_invalid_plan_is_refused() -> None:
    on = instance([Job(chain(task("a", 2)), 5)])
    plan = Timeline.build(1, [Placement(0, 0, 4, 6)], [])
    with pytest.raises(PolicyError, match="violations: 1, first: T1 job 0 task a: starts before its release"):
        replay(on, plan)


def test_what_happened_can_be_replayed_at_the_given_times() -> None:
    # The run took 9 us instead of 2 when it happened; replayed without noise it takes 2 again.
    on = instance([Job(chain(task("a", 2)), 0)])
    happened = replace(Timeline.build(1, [Placement(0, 0, 0, 9)], []), realised=True)
    assert runs(simulate(on, replay(on, happened))) == [(0, 0, 2)]
