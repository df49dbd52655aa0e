"""Progress: while a run goes on it shows when it will end, and policies that reserve by ends ask again."""

from __future__ import annotations

import random
from fractions import Fraction
from functools import partial

import numpy as np
import pytest

from tests.executor.test_gangs import POLICIES
from tests.gangs import draw, job, servers, window
from tests.instances import cluster, instance, task
from truenorth.executor import PolicyError, parse_policy, simulate
from truenorth.executor.simulation import change_future, first_difference, past
from truenorth.models import Instance, Job, Timeline, Workflow, check
from truenorth.planner.inputs.told import stretch

TENTH = Fraction(1, 10)


def _starts(policy: str, told_us: int, true_us: int, progress: Fraction | None) -> list[int]:
    """Return when runs start on two GPUs: a long one from 0, a pair from 1 and a single of 20 us from 2."""
    told, truth = (
        window(job(1, run_us), job(2, 5, 1), job(1, 20, 2), on=servers(1, 2)) for run_us in (told_us, true_us)
    )
    timeline = simulate(told, parse_policy(policy), truth=truth, progress=progress)
    assert check(truth, timeline) == []
    return [int(start_us) for start_us in timeline.start_us]


@pytest.mark.parametrize("policy", ["easy", "conservative", "sjf:reserve_after=0us", "ahead"])
def test_a_run_that_shows_that_it_goes_on_lets_others_pass(policy: str) -> None:
    # Told 10, it ends at 100. The pair reserves at 10, so that the single waits: behind the pair, from 105 on.
    assert _starts(policy, 10, 100, None) == [0, 100, 105]
    # At 10 a tenth is done: the single ends at 30, long before the pair can start.
    assert _starts(policy, 10, 100, TENTH) == [0, 100, 10]
    assert _starts(policy, 10, 100, Fraction(1, 100)) == [0, 100, 2]
    assert _starts(policy, 10, 100, Fraction(0)) == [0, 100, 2]


@pytest.mark.parametrize("policy", ["easy", "conservative"])
def test_a_run_that_shows_its_early_end_keeps_others_from_passing(policy: str) -> None:
    # Told 100, it ends at 10. The single passes until 22; known at once, the pair starts at 10.
    assert _starts(policy, 100, 10, None) == [0, 22, 2]
    assert _starts(policy, 100, 10, Fraction(1, 2)) == [0, 22, 2]
    assert _starts(policy, 100, 10, Fraction(0)) == [0, 10, 15]


def test_who_has_no_use_for_ends_acts_as_before() -> None:
    for policy in ("fifo", "sjf", "qssf", "dally"):
        assert _starts(policy, 10, 100, TENTH) == _starts(policy, 10, 100, None), policy


@pytest.mark.parametrize(("progress", "start_us"), [(None, 100), (TENTH, 20)])
def test_compass_binds_by_the_ends_that_show(progress: Fraction | None, start_us: int) -> None:
    # At 15 the first GPU is late by what is told, 10, and shows 100; the other one is free at 20.
    told, truth = (
        window(job(1, run_us), job(1, 20), job(1, 5, 15), job(2, 1, 200), on=servers(1, 2)) for run_us in (10, 100)
    )
    timeline = simulate(told, parse_policy("compass"), truth=truth, progress=progress)
    assert timeline.start_us.tolist() == [0, 0, start_us, 200]


def _draw(rng: random.Random) -> Instance:
    """Return a random window in which some run takes several GPUs."""
    return next(made for made in iter(partial(draw, rng), None) if made.gangs)


def _ran(policy: str, seed: int, progress: Fraction | None, exact: bool) -> Timeline:
    truth = _draw(random.Random(seed))
    factors = np.random.default_rng(seed).choice([0.1, 0.5, 1.0, 3.0, 20.0], truth.n_tasks)
    told = truth if exact else stretch(truth, factors)
    timeline = simulate(told, parse_policy(policy), truth=truth, progress=progress)
    assert check(truth, timeline) == [], (policy, seed)
    return timeline


@pytest.mark.parametrize("policy", POLICIES)
def test_progress_keeps_the_rules_and_changes_nothing_of_what_was_told_exactly(policy: str) -> None:
    for seed in range(12):
        for progress in (Fraction(0), Fraction(1, 3)):
            _ran(policy, seed, progress, exact=False)
            shown, told = (_ran(policy, seed, each, exact=True) for each in (progress, None))
            assert shown.start_us.tolist() == told.start_us.tolist(), seed
            assert shown.place.tolist() == told.place.tolist(), seed


@pytest.mark.parametrize("policy", POLICIES)
def test_logs_that_show_one_end_after_another_keep_the_rules(policy: str) -> None:
    for seed in range(12):
        rng = random.Random(seed)
        truth = _draw(rng)
        told = stretch(truth, np.random.default_rng(seed).choice([0.1, 1.0, 20.0], truth.n_tasks))
        logs = {
            task: [(done, max(done, Fraction(rng.randint(0, 30), 10))) for done in _shares(rng)]
            for task in range(truth.n_tasks)
            if rng.random() < 0.7
        }
        timeline = simulate(told, parse_policy(policy), truth=truth, progress=logs)
        assert check(truth, timeline) == [], (policy, seed)


def _shares(rng: random.Random) -> list[Fraction]:
    return sorted(Fraction(rng.randint(0, 12), 10) for _ in range(rng.randint(0, 4)))


def test_what_a_log_shows_moves_a_reservation_again_and_again() -> None:
    # Told 10, at 20 its log says 200, at 40 that it ends at 50, at 60 the truth. The pair waits for it, and the single
    # of 20 us, released at 45, must end before: not by 50, nor by what is late after that; by 100 it does.
    tenth = [(Fraction(1, 5), Fraction(2)), (Fraction(2, 5), Fraction(1, 2)), (Fraction(3, 5), Fraction(1))]
    for policy, progress, start_us in (
        ("easy", {0: tenth}, 60), ("conservative", {0: tenth}, 60), ("easy", {0: tenth[:1]}, 45),
        ("easy", {0: tenth[:2]}, 105), ("easy", {1: tenth}, 105),
    ):  # fmt: skip
        told, truth = (window(job(1, run_us), job(2, 5, 1), job(1, 20, 45), on=servers(1, 2)) for run_us in (10, 100))
        timeline = simulate(told, parse_policy(policy), truth=truth, progress=progress)
        assert timeline.start_us.tolist() == [0, 100, start_us], (policy, progress)


@pytest.mark.parametrize("policy", ["easy", "conservative", "ahead", "compass", "hadar", "rltune"])
def test_the_future_changes_no_past_action(policy: str) -> None:
    # Run times shown depend on the task alone: those of jobs to come show nothing before.
    for seed in range(20):
        rng = random.Random(seed)
        made = _draw(rng)
        changed = change_future(made, rng)
        if not changed.instance.gangs:
            continue
        pasts = []
        for truth in (made, changed.instance):
            told = stretch(truth, np.where(np.arange(truth.n_tasks) % 2, 3.0, 0.5))
            ran = simulate(told, parse_policy(policy), truth=truth, progress=TENTH)
            pasts.append(past(truth, ran, changed.before_us))
        assert first_difference(*pasts) is None


def test_policies_that_do_not_ask_again_are_refused() -> None:
    singles = instance([Job(Workflow("w", (task("run", 5),)), 0)], on=cluster(1))
    allowed = "allowed are policies such as fifo, easy, conservative, sjf, qssf$"
    with pytest.raises(PolicyError, match=f"policy srpt does not ask again while jobs run; {allowed}"):
        simulate(singles, parse_policy("srpt"), progress=TENTH)
    simulate(window(job(2, 5), on=servers(1, 2)), parse_policy("srpt"), progress=TENTH)  # by its rule on places
