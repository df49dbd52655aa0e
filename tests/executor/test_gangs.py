"""Policies for runs on several GPUs: what each does of one window by hand, and properties of all."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.gangs import draw, job, servers, window
from truenorth.executor import PolicyError, parse_policy, simulate
from truenorth.executor.policies.replay import replay
from truenorth.executor.simulation import change_future, first_difference, past
from truenorth.models import Instance, check

POLICIES = ("fifo", "easy", "conservative", "sjf", "qssf", "sjf:blocking=on", "qssf:reserve_after=2us")


def _starts(instance: Instance, policy: str) -> list[int]:
    timeline = simulate(instance, parse_policy(policy))
    assert check(instance, timeline) == []
    return [int(start_us) for start_us in timeline.start_us]


def _four() -> Instance:
    # One server of 4: long takes 3 GPUs until 10; wide wants all 4; short (4 us) and late (20 us) want one each.
    return window(job(3, 10, 0), job(4, 5, 1), job(1, 4, 2), job(1, 20, 3), on=servers(1, 4, "any"))


@pytest.mark.parametrize(
    ("policy", "starts"),
    [
        # Nobody passes the wide one, which starts when long ends.
        ("fifo", [0, 10, 15, 15]),
        # Short ends at 6, before long does; late would delay the wide one.
        ("easy", [0, 10, 2, 15]),
        ("conservative", [0, 10, 2, 15]),
        # Whoever fits starts, so that late holds the wide one back until 26.
        ("sjf", [0, 26, 2, 6]),
        ("qssf", [0, 26, 2, 6]),
        ("sjf:blocking=on", [0, 10, 2, 15]),
        # The wide one has waited for 4 us at 5: from then on late may not delay it.
        ("sjf:reserve_after=4us", [0, 10, 2, 15]),
    ],
)
def test_the_window_by_hand(policy: str, starts: list[int]) -> None:
    assert _starts(_four(), policy) == starts


def test_least_gpu_time_goes_first() -> None:
    # Both fit one after the other; 2 GPUs x 3 us are more than 1 GPU x 5 us, though shorter.
    made = window(job(2, 1, 0), job(2, 3, 0), job(1, 5, 0), on=servers(1, 2))
    assert _starts(made, "sjf") == [0, 1, 4]
    assert _starts(made, "qssf") == [0, 6, 1]


def test_conservative_backfill_delays_nobody_before() -> None:
    # Of 2 GPUs one runs until 4. First waits for both, [4, 6); second for both, [6, 8). Third (1 GPU, 4 us) ends at 5
    # at the earliest: easy and conservative have it wait for the first, and conservative also for the second.
    made = window(job(1, 4, 0), job(2, 2, 0), job(2, 2, 0), job(1, 4, 1), on=servers(1, 2))
    assert _starts(made, "conservative") == [0, 4, 6, 8]
    # With one GPU more the third has its own.
    wider = window(job(1, 4, 0), job(2, 2, 0), job(2, 2, 0), job(1, 4, 1), on=servers(1, 3, "any"))
    assert _starts(wider, "conservative") == [0, 0, 2, 4]
    assert _starts(wider, "easy") == [0, 0, 2, 4]


def test_the_fullest_server_with_room_is_taken() -> None:
    made = window(job(1, 9, 0), job(1, 9, 1), job(4, 9, 2), on=servers(2, 4, "any"))
    timeline = simulate(made, parse_policy("fifo"))
    places = [made.places.gpus[place] for place in timeline.place.tolist()]
    assert places == [(0,), (1,), (4, 5, 6, 7)]
    assert timeline.start_us.tolist() == [0, 1, 2]


def test_runs_beyond_a_server_take_whole_aligned_servers() -> None:
    made = window(job(1, 9, 0), job(4, 5, 1), on=servers(4, 2))
    timeline = simulate(made, parse_policy("fifo"))
    # Servers 0 and 1 are no pair while s0/g0 runs.
    assert made.places.gpus[int(timeline.place[1])] == (4, 5, 6, 7)


def test_a_policy_without_such_runs_refuses_them() -> None:
    with pytest.raises(PolicyError, match="policy compass has no support for runs on several GPUs"):
        simulate(_four(), parse_policy("compass"))


def test_policies_for_such_runs_refuse_models() -> None:
    from tests.instances import instance, task
    from truenorth.models import Job, Workflow

    loaded = instance([Job(Workflow("w", (task("run", 5, ["m"]),)), 0)], {"m": 1})
    with pytest.raises(PolicyError, match="policy easy has no support for models"):
        simulate(loaded, parse_policy("easy"))


@pytest.mark.parametrize("seed", range(25))
def test_every_policy_keeps_the_rules_and_its_plan_replays(seed: int) -> None:
    made = draw(random.Random(seed))
    for policy in POLICIES:
        timeline = simulate(made, parse_policy(policy))
        assert check(made, timeline) == [], policy
        again = simulate(made, replay(made, timeline))
        # No sooner than released, no later than planned: fifo leaves GPUs idle that a replay need not.
        assert (again.start_us <= timeline.start_us).all(), policy
        assert np.array_equal(again.place, timeline.place), policy


@pytest.mark.parametrize("policy", POLICIES)
def test_the_future_changes_no_past_action(policy: str) -> None:
    for seed in range(20):
        rng = random.Random(seed)
        made = draw(rng)
        changed = change_future(made, rng)
        pasts = [
            past(each, simulate(each, parse_policy(policy)), changed.before_us) for each in (made, changed.instance)
        ]
        assert first_difference(*pasts) is None
