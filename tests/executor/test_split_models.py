"""Policies and replay where runs on several GPUs need models (rules G2 and G3)."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.split_models import broken_rules, draw, job, window
from truenorth.executor import PolicyError, parse_policy, replay, simulate
from truenorth.executor.noise import parse_noise
from truenorth.models import Instance, Placement, Residency, Timeline, check
from truenorth.models.restrictions import InitialResidency

POLICIES = ("fifo", "easy", "sjf", "qssf", "srpt", "compass")


def _run(instance: Instance, policy: str) -> Timeline:
    timeline = simulate(instance, parse_policy(policy))
    assert check(instance, timeline) == []
    return timeline


def _stays(timeline: Timeline) -> list[tuple[int, int, int, int | None]]:
    return [(stay.model, stay.gpu, stay.load_start_us, stay.end_us) for stay in timeline.residencies]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_run_loads_its_part_on_every_gpu_and_starts_when_the_last_has_it(policy: str) -> None:
    # 12 bytes are 6 on each of two GPUs; the second run finds them there.
    made = window(job(2, 5, "m"), job(2, 4, "m", release_us=1), models={"m": 12})
    timeline = _run(made, policy)
    assert (timeline.start_us.tolist(), timeline.end_us.tolist()) == ([6, 11], [11, 15])
    assert _stays(timeline) == [(0, 2, 0, None)]


@pytest.mark.parametrize("policy", POLICIES)
def test_copies_are_loaded_side_by_side_and_parts_make_way_for_the_whole(policy: str) -> None:
    made = window(job(2, 5, "m", "n", copies=True), models={"m": 3, "n": 2})
    assert _run(made, policy).start_us.tolist() == [5]
    # The single run needs the whole model where a part of it is: it leaves from both GPUs when its run has ended.
    mixed = window(job(2, 5, "m"), job(1, 2, "m", release_us=1), models={"m": 8}, memory=8)
    timeline = _run(mixed, policy)
    assert timeline.start_us.tolist() == [4, 17]
    assert _stays(timeline) == [(0, 0, 9, None), (0, 2, 0, 9)]


@pytest.mark.parametrize("policy", POLICIES)
def test_what_nothing_uses_leaves_for_models_and_for_memory_of_tasks(policy: str) -> None:
    # 5 of 8 bytes on each GPU are the first model's; the second needs 4, the third run 4 of memory.
    jobs = job(2, 5, "m"), job(2, 5, "n", release_us=1), job(2, 5, release_us=2, memory=5)
    made = window(*jobs, models={"m": 10, "n": 8}, memory=8)
    timeline = _run(made, policy)
    assert sorted(_stays(timeline))[0][2:] in ((0, 10), (9, 14), (5, 10))
    assert timeline.residencies[0].end_us is not None


def test_a_place_that_has_the_model_is_taken_before_one_that_does_not() -> None:
    made = window(job(2, 5, "m"), job(2, 5, "m", release_us=20), job(2, 5, release_us=0), models={"m": 8}, held=4)
    for policy in POLICIES:
        timeline = _run(made, policy)
        assert len(timeline.residencies) == 1
        assert timeline.start_us[2] == 20


def test_an_initial_model_serves_a_copy_and_leaves_for_parts() -> None:
    made = window(job(2, 5, "m", copies=True), models={"m": 4})
    made = replace(made, initial=(InitialResidency(0, 0),))
    assert _run(made, "fifo").start_us.tolist() == [4]  # the other GPU loads its copy
    parts = replace(window(job(2, 5, "m"), models={"m": 4}), initial=(InitialResidency(0, 0),))
    assert _stays(_run(parts, "fifo")) == [(0, 0, 0, 0), (0, 2, 0, None)]


def test_others_refuse_models_beside_runs_on_several_gpus() -> None:
    made = window(job(2, 5, "m"), models={"m": 4})
    for policy in ("conservative", "dally", "hadar", "rltune", "ahead"):
        with pytest.raises(PolicyError, match="models beside runs on several GPUs"):
            simulate(made, parse_policy(policy))


@pytest.mark.parametrize("seed", range(25))
def test_all_rules_hold_and_plans_are_carried_out_again(seed: int) -> None:
    made = draw(random.Random(seed))
    for policy in POLICIES:
        timeline = _run(made, policy)
        assert broken_rules(made, timeline) == set()
        again = simulate(made, replay(made, timeline))
        assert check(made, again) == []
        assert (again.end_us <= timeline.end_us).all()
    noisy = simulate(made, replay(made, timeline), seed, parse_noise("run=lognormal:0.5,load=lognormal:0.5"))
    assert check(made, noisy) == []


def test_a_replay_keeps_a_model_that_another_gpu_of_the_place_can_keep() -> None:
    # Both GPUs hold n; only that of GPU 0 leaves for the parts of m.
    made = window(job(1, 1, "n"), job(1, 1, "n"), job(2, 5, "m"), job(1, 3, "n"), models={"m": 8, "n": 4}, memory=8)
    stays = [Residency(1, 0, 0, 4, 5), Residency(1, 1, 0, 4), Residency(0, 2, 5, 9)]
    runs = [Placement(0, 0, 4, 5), Placement(1, 1, 4, 5), Placement(2, 2, 9, 14), Placement(3, 1, 14, 17)]
    plan = Timeline.build(4, runs, stays)
    assert check(made, plan) == []
    assert _stays(simulate(made, replay(made, plan))) == [(1, 0, 0, 5), (1, 1, 0, None), (0, 2, 5, None)]
