"""Policies and replay where runs on several GPUs need models (rules G2 and G3)."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial

import pytest

from tests.night import by_day
from tests.split_models import broken_rules, draw, job, window
from truenorth.executor import parse_policy, replay, simulate
from truenorth.executor.noise import parse_noise
from truenorth.executor.policies.bound_to_places import HadarOnPlaces
from truenorth.executor.policies.hadar import Hadar, HadarOptions
from truenorth.models import Instance, Placement, Residency, Timeline, check
from truenorth.models.restrictions import InitialResidency

POLICIES = (
    "fifo", "easy", "sjf", "qssf", "srpt", "compass", "conservative", "ahead", "dally", "hadar", "rltune",
)  # fmt: skip


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


@pytest.mark.parametrize("policy", ["conservative", "ahead", "easy"])
@pytest.mark.parametrize(("run_us", "start_us"), [(3, 7), (4, 23)])
def test_reservations_count_loads(policy: str, run_us: int, start_us: int) -> None:
    # g0 runs until 10; then the pair loads for 4 and runs until 19, and behind it the single of 9 until 28. The last
    # one loads 4 bytes from 3 on: it ends at 10 in time, at 11 not, and then starts on g1 at 19 + 4.
    jobs = job(1, 10), job(2, 5, "m", release_us=1), job(1, 9, release_us=2), job(1, run_us, "n", release_us=3)
    made = window(*jobs, models={"m": 8, "n": 4})
    if policy == "ahead" and run_us == 4:
        start_us = 7  # shorter than the pair, it is listed first, and the pair at 11
        assert _run(made, policy).start_us.tolist() == [0, 15, 20, start_us]
    else:
        assert _run(made, policy).start_us.tolist() == [0, 14, 19, start_us]


def test_who_finds_its_models_leaves_what_was_reserved_for_loads_to_others() -> None:
    # At 1 the second pair reserves [11, 22), 6 of it for loads, and at 2 the single [22, 30). At 11 m is there.
    made = window(job(2, 5, "m"), job(2, 5, "m", release_us=1), job(1, 8, release_us=2), models={"m": 12})
    assert _run(made, "conservative").start_us.tolist() == [6, 11, 16]


@pytest.mark.parametrize(
    ("policy", "start_us"),
    [
        # From 15 on the first place has m: the run ends at 20. On the free one it would load until 22 and end at 27.
        ("conservative", 15),
        ("ahead", 15),
        ("compass", 15),
        # The free place costs 15 + .3 x 12, the other one 3 + 5 + .3 x 8.
        ("rltune", 15),
        # It has booked the first, where m is, and starts behind.
        ("hadar", 15),
        # Whoever looks at what is free alone starts there.
        ("easy", 22),
        # tau is at first 2 x 10, and who waits for a load alone waits for half: until 22.
        ("dally", 15),
        ("dally:tau=4us", 24),
        ("dally:tau=0us", 22),
        ("dally:tau=inf", 15),
    ],
)
def test_a_busy_place_that_has_the_model(policy: str, start_us: int) -> None:
    made = window(job(2, 5, "m"), job(2, 5, "m", release_us=12), models={"m": 20}, held=4)
    assert _run(made, policy).start_us.tolist() == [10, start_us]


@pytest.mark.parametrize(("reload", "place"), [("1", (2, 3)), ("0", (0, 1))])
def test_rltune_counts_what_leaves_and_the_queue_needs(reload: str, place: tuple[int, int]) -> None:
    # At 20 both places are idle, full of a and b. The run of c comes first, being shorter; a is needed by the other.
    jobs = job(2, 5, "a"), job(2, 5, "b"), job(2, 3, "c", release_us=20), job(2, 9, "a", release_us=20)
    made = window(*jobs, models={"a": 20, "b": 20, "c": 20}, held=4)
    timeline = _run(made, f"rltune:reload={reload},balance=0,room=0")
    assert made.places.gpus[int(timeline.place[2])] == place


@pytest.mark.parametrize(("memory", "place"), [(10, (2, 3)), (1000, (0, 1))])
def test_to_hadar_a_place_costs_what_models_take_of_its_gpus(memory: int, place: tuple[int, int]) -> None:
    # One window of 100 us, of which a whole one costs 10 us at least and 1,000 at most. The first books .1 from 10 on,
    # where its 10 bytes are, the second .2 on the other pair. There the third starts at 20, for 3 more; with the first
    # it starts at 10, for 1.2 more and what 2 bytes take of memory that is full: .4 of 990.
    jobs = job(2, 10, "m"), job(2, 20), job(2, 10, "n")
    made = window(*jobs, models={"m": 20, "n": 4}, held=4, memory=memory)
    timeline = _run(made, "hadar:window=100us")
    assert [made.places.gpus[run] for run in timeline.place.tolist()] == [(0, 1), (2, 3), place]
    assert timeline.start_us.tolist() == [10, 0, 22]


def test_dally_prefers_to_load_where_nothing_leaves() -> None:
    # n is on the first pair; m fits beside nothing there, and is loaded on the other at once, being nowhere.
    made = window(job(2, 5, "n"), job(2, 5, "m", release_us=12), models={"n": 12, "m": 12}, held=4)
    assert [made.places.gpus[run.gpu] for run in _run(made, "dally").placements] == [(0, 1), (2, 3)]


def test_dally_waits_for_no_model_that_has_left() -> None:
    # m is on the first pair until the run of n, which nobody holds, has it leave at 10; at 11 m is nowhere.
    jobs = job(2, 5, "m"), job(2, 20, release_us=1), job(2, 5, "n", release_us=10), job(2, 5, "m", release_us=11)
    made = window(*jobs, models={"n": 12, "m": 10}, held=4)
    assert _run(made, "dally:tau=inf").start_us.tolist() == [5, 1, 16, 26]


def test_on_places_of_one_gpu_hadar_prices_memory_as_hadar() -> None:
    for seed in range(10):
        rng = random.Random(seed)
        models = {name: rng.randint(1, 9) for name in "abc"}
        needs = [rng.sample("abc", rng.choice((0, 1, 1, 2))) for _ in range(rng.randint(2, 40))]
        jobs = [job(1, rng.randint(1, 60), *names) for names in needs]
        made = window(*jobs, models=models, held=rng.randint(1, 4), memory=rng.randint(18, 30))
        readings = HadarOptions(*rng.choice(((), (7, 30))))
        one, other = (simulate(made, partial(policy, readings)) for policy in (Hadar, HadarOnPlaces))
        assert one.place.tolist() == other.place.tolist()


@pytest.mark.parametrize("seed", by_day(range(300), 14))
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
