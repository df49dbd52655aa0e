"""Policies for tasks that choose their number of GPUs: what each does of one window by hand, and properties of all."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.gangs import draw_moldable, job, moldable, servers, window
from truenorth.executor import parse_policy, simulate
from truenorth.executor.policies.replay import replay
from truenorth.executor.simulation import change_future, first_difference, past
from truenorth.models import Instance, Timeline, check

POLICIES = (
    "fifo", "easy", "conservative", "sjf", "qssf", "sjf:blocking=on", "qssf:reserve_after=2us", "compass", "srpt",
    "dally", "rltune", "hadar", "ahead",
)  # fmt: skip


def _simulated(instance: Instance, policy: str) -> Timeline:
    timeline = simulate(instance, parse_policy(policy))
    assert check(instance, timeline) == []
    return timeline


def _starts_and_sizes(instance: Instance, policy: str) -> list[tuple[int, int]]:
    timeline = _simulated(instance, policy)
    sizes = [len(instance.places.gpus[place]) for place in timeline.place.tolist()]
    return list(zip(timeline.start_us.tolist(), sizes, strict=True))


@pytest.mark.parametrize(
    ("policy", "runs"),
    [
        # One GPU is free at 1, and nobody waits for more.
        ("fifo", [(0, 3), (1, 1), (10, 1), (10, 1)]),
        ("sjf", [(0, 3), (1, 1), (10, 1), (10, 1)]),
        ("qssf", [(0, 3), (1, 1), (10, 1), (10, 1)]),
        ("srpt", [(0, 3), (1, 1), (10, 1), (10, 1)]),
        # On all four from 10 it ends at 15, before 21; short ends by then, late would delay it.
        ("easy", [(0, 3), (10, 4), (2, 1), (15, 1)]),
        ("conservative", [(0, 3), (10, 4), (2, 1), (15, 1)]),
        ("compass", [(0, 3), (10, 4), (15, 1), (15, 1)]),
        # Short is listed first.
        ("ahead", [(0, 3), (10, 4), (2, 1), (15, 1)]),
        # One GPU costs 20 + .3 x (20 - 9), all four 14 + .3 x 0.
        ("rltune", [(0, 3), (10, 4), (15, 1), (15, 1)]),
        # Windows of 5 us cost .5 at least: 21 + 4 x .5 on one GPU, 15 + 4 x .5 on four. Late finds four in a row at 15.
        ("hadar", [(0, 3), (10, 4), (2, 1), (15, 1)]),
        # The most that is free.
        ("dally", [(0, 3), (1, 1), (10, 1), (10, 1)]),
    ],
)
def test_the_window_by_hand(policy: str, runs: list[tuple[int, int]]) -> None:
    # One server of 4: long takes 3 GPUs until 10; the second takes 20 us on one or 5 us on all four.
    made = window(job(3, 10), moldable({1: 20, 4: 5}, 1), job(1, 4, 2), job(1, 20, 3), on=servers(1, 4, "any"))
    assert _starts_and_sizes(made, policy) == runs


def test_of_equal_ends_the_fewest_gpus_are_taken() -> None:
    made = window(moldable({1: 5, 2: 5, 4: 5}), on=servers(1, 4))
    for policy in ("dally", "rltune"):  # one knows no ends, and the other one balances waits
        assert _starts_and_sizes(made, policy) == [(0, 4)]
    for policy in set(POLICIES) - {"dally", "rltune"}:
        assert _starts_and_sizes(made, policy) == [(0, 1)], policy


def test_who_may_delay_nobody_takes_the_number_that_does_not() -> None:
    # Of 4 GPUs two run until 10, when three are reserved: two more until 11 would delay that, one until 22 does not.
    made = window(job(2, 10), job(3, 5, 1), moldable({1: 20, 2: 9}, 2), on=servers(1, 4, "any"))
    assert _starts_and_sizes(made, "easy") == [(0, 2), (10, 3), (2, 1)]


def test_who_waits_for_more_leaves_room_for_others_of_its_kind() -> None:
    # The second waits for both GPUs, [10, 15); the third, of the same places, ends at 9 on the one that is free.
    made = window(job(1, 10), moldable({1: 20, 2: 5}, 1), moldable({1: 7, 2: 6}, 2), on=servers(1, 2))
    assert _starts_and_sizes(made, "easy") == [(0, 1), (10, 2), (2, 1)]


def test_least_gpu_time_is_that_of_the_mode_of_least() -> None:
    # The first of them takes 6 us of GPU-time on one, 8 on two; the second 7. Both are told at 0, while one GPU runs.
    made = window(job(1, 3), moldable({1: 7}), moldable({1: 6, 2: 4}), on=servers(1, 1))
    assert _starts_and_sizes(made, "qssf") == [(0, 1), (9, 1), (3, 1)]


@pytest.mark.parametrize("seed", range(25))
def test_every_policy_keeps_the_rules_and_its_plan_replays(seed: int) -> None:
    made = draw_moldable(random.Random(seed))
    for policy in POLICIES:
        timeline = _simulated(made, policy)
        again = simulate(made, replay(made, timeline))
        assert check(made, again) == [], policy
        assert (again.start_us <= timeline.start_us).all(), policy
        assert np.array_equal(again.place, timeline.place), policy


@pytest.mark.parametrize("policy", POLICIES)
def test_the_future_changes_no_past_action(policy: str) -> None:
    for seed in range(20):
        rng = random.Random(seed)
        made = draw_moldable(rng)
        changed = change_future(made, rng)
        pasts = [
            past(each, simulate(each, parse_policy(policy)), changed.before_us) for each in (made, changed.instance)
        ]
        assert first_difference(*pasts) is None
