"""The engine against one iteration after the other, and the checker on what both say."""

import random
from dataclasses import replace

import numpy as np
import pytest

from tests.night import by_day
from tests.streams.one_by_one import serve
from tests.streams.worlds import (
    POLICIES,
    as_served,
    plain_nodes,
    plain_requests,
    queues,
    random_chats,
    random_steps,
    recorded_chats,
)
from truenorth.executor import parse_policy, replay, simulate
from truenorth.models import Instance, Timeline, check


def shifted(timeline: Timeline, row: str, task: int, by: int) -> Timeline:
    """Return a timeline with one start, first token or end moved."""
    if row == "first_us":
        assert timeline.served is not None
        first_us = timeline.served.first_us.copy()
        first_us[task] += by
        return replace(timeline, served=replace(timeline.served, first_us=first_us))
    times = getattr(timeline, row).copy()
    times[task] += by
    return replace(timeline, **{row: times})


def random_instance(rng: random.Random, most: int) -> Instance:
    """Return single requests, at most so many, or a third as many jobs of several steps; half as they are measured."""
    measured = rng.random() < 0.5
    if rng.random() < 0.6:
        return random_chats(rng, rng.randint(1, most), measured=measured)
    return random_steps(rng, rng.randint(1, most // 3), measured)


def assert_equals_one_by_one(instance: Instance, timeline: Timeline) -> None:
    """Assert that one iteration after the other, with these queues, gives these times, and that the checker agrees."""
    requests = plain_requests(instance, timeline.place)
    assert serve(plain_nodes(instance), requests, queues(instance, timeline)) == as_served(timeline)
    assert check(instance, timeline) == []


def agrees(instance: Instance, timeline: Timeline) -> bool:
    """Say whether one iteration after the other serves as a timeline has it, nobody before its planned start."""
    requests = plain_requests(instance, timeline.place, timeline.start_us.tolist())
    return serve(plain_nodes(instance), requests, queues(instance, timeline)) == as_served(timeline)


@pytest.mark.parametrize("seed", by_day(range(20), 4))
def test_engine_equals_one_iteration_after_the_other(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(20):
        instance = random_instance(rng, 25)
        timeline = simulate(instance, parse_policy(rng.choice(POLICIES)), seed)
        assert_equals_one_by_one(instance, timeline)


@pytest.mark.nightly
@pytest.mark.parametrize("servers", [1, 2, 4, 8, 32])
def test_engine_equals_it_on_a_recorded_trace_from_overloaded_to_idle(servers: int) -> None:
    instance = recorded_chats(servers, 400)
    timeline = simulate(instance, parse_policy("least_tokens"))
    assert_equals_one_by_one(instance, timeline)
    # One GPU has work until long after the last release; of 32 none ever has to make a request wait for a seat.
    late_us = timeline.end_us.max() - instance.job_release_us.max()
    assert late_us > 60_000_000 if servers == 1 else late_us < 60_000_000
    waits_us = int((timeline.start_us - instance.job_release_us).max())
    assert waits_us < 1_000_000 if servers == 32 else waits_us > 0


@pytest.mark.parametrize("seed", by_day(range(20), 2))
def test_checker_refuses_every_changed_time(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(20):
        instance = random_instance(rng, 12)
        timeline = simulate(instance, parse_policy(rng.choice(POLICIES)), seed)
        for task in range(instance.n_tasks):
            for row in ("start_us", "first_us", "end_us"):
                by = rng.choice((-3, -1, 1, 2, 5))
                changed = shifted(timeline, row, task, by)
                # A later start, by an iteration that did not help, may be a plan of the same first token and end.
                same = row == "start_us" and agrees(instance, changed)
                assert (check(instance, changed) == []) == same, (task, row, by)


@pytest.mark.parametrize("seed", by_day(range(20), 2))
def test_checker_refuses_a_changed_gpu_where_iterations_disagree(seed: int) -> None:
    rng = random.Random(seed)
    refused = kept = 0
    for _ in range(20):
        instance = random_chats(rng, rng.randint(2, 12))
        timeline = simulate(instance, parse_policy(rng.choice(POLICIES)), seed)
        for task in range(instance.n_tasks):
            for gpu in range(instance.n_gpus):
                gpus = timeline.place.copy()
                gpus[task] = gpu
                changed = replace(timeline, place=gpus)
                eligible = gpu in instance.eligible_gpus(task)
                same = eligible and agrees(instance, changed)
                assert (check(instance, changed) == []) == same, (task, gpu)
                refused, kept = refused + (not same), kept + same
    assert refused > 20
    assert kept > 20


@pytest.mark.parametrize("seed", range(6))
def test_replay_keeps_every_time(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(10):
        instance = random_chats(rng, rng.randint(1, 20)) if rng.random() < 0.5 else random_steps(rng, rng.randint(1, 9))
        timeline = simulate(instance, parse_policy(rng.choice(POLICIES)), seed)
        again = simulate(instance, replay(instance, timeline))
        assert as_served(again) == as_served(timeline)
        assert np.array_equal(again.place, timeline.place)


@pytest.mark.parametrize("seed", range(6))
def test_replay_of_a_plan_that_holds_requests_back(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(10):
        instance = random_chats(rng, rng.randint(2, 15))
        timeline = simulate(instance, parse_policy("least_requests"), seed)
        assert timeline.served is not None
        limits = {gpu: rng.randint(1, 3) for gpu in range(instance.n_gpus)}
        held = [rng.choice((0, 0, rng.randint(0, 400))) for _ in range(instance.n_tasks)]
        slow = serve(
            plain_nodes(instance, limits), plain_requests(instance, timeline.place, held), queues(instance, timeline)
        )
        start, first, end = (np.array([getattr(s, name) for s in slow]) for name in ("start", "first", "end"))
        served = replace(timeline.served, first_us=first, not_before_us=np.array(held), limits=limits)
        plan = replace(timeline, start_us=start, end_us=end, served=served)
        over = [v for v in check(instance, plan) if v.problem != "limit on requests"]
        assert over == []
        if check(instance, plan) == over:
            assert as_served(simulate(instance, replay(instance, plan))) == slow
