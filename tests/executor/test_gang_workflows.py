"""Policies for runs on several GPUs that wait for others: what each does of windows by hand, and properties of all."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from tests.executor.test_gangs import POLICIES
from tests.gangs import draw_workflows, servers
from tests.instances import MB, instance, network, task
from truenorth.executor import parse_policy, simulate
from truenorth.executor.policies.replay import replay
from truenorth.executor.simulation import change_future, first_difference, past
from truenorth.models import Edge, Instance, Job, Link, Workflow, check


def _window(delay_us: int = 0) -> Instance:
    """Return two jobs on one server of four GPUs, 1 us per byte between GPUs: prepare, train and evaluate; a long run.

    Prepare runs until 3 and sends 4 bytes, train (2 GPUs) takes 10 and sends 2, evaluate 2. Long comes at 1 and takes
    all four GPUs for 5.
    """
    cluster = replace(servers(1, 4), network=network(0, MB, Link(0, None)))
    train = replace(task("train", 10), gpus=2, inputs=(Edge("prepare", 4, delay_us=delay_us),))
    steps = (task("prepare", 3), train, task("evaluate", 2, after={"train": 2}))
    long = replace(task("long", 5), gpus=4)
    return instance([Job(Workflow("model", steps), 0), Job(Workflow("long", (long,)), 1)], on=cluster)


def _starts(instance: Instance, policy: str) -> list[int]:
    timeline = simulate(instance, parse_policy(policy))
    assert check(instance, timeline) == []
    return [int(start_us) for start_us in timeline.start_us]


@pytest.mark.parametrize(
    ("policy", "delay_us", "starts"),
    [
        # Train is ready at 3 and stands where its job does, before long, which fits at 3 as well.
        ("fifo", 0, [0, 3, 13, 15]),
        ("easy", 0, [0, 3, 13, 15]),
        # With a delay of 1 long is first to find room.
        ("fifo", 1, [0, 8, 18, 3]),
        ("easy", 1, [0, 8, 18, 3]),
        # Long has reserved [3, 8) on arrival.
        ("conservative", 0, [0, 8, 18, 3]),
        # Long is shorter than train; at 8 evaluate is not ready.
        ("sjf", 0, [0, 8, 18, 3]),
        # 4 x 5 and 2 x 10 are alike: the earlier one.
        ("qssf", 0, [0, 3, 13, 15]),
        # Of the first job 12 are left, of the other one 5.
        ("srpt", 0, [0, 8, 18, 3]),
        # Long was bound to all GPUs at 1.
        ("compass", 0, [0, 8, 18, 3]),
    ],
)
def test_the_window_by_hand(policy: str, delay_us: int, starts: list[int]) -> None:
    assert _starts(_window(delay_us), policy) == starts


def _apart() -> Instance:
    """Return one job on two servers of 2: 4 bytes to another server take 4; prepare on kind A, train on kind B."""
    cluster = replace(servers(2, 2, kinds="AB"), network=network(0, MB, Link(0, None)))
    train = replace(task("train", {"B": 10}, after={"prepare": 4}), gpus=2)
    other = Job(Workflow("other", (task("run", {"B": 3}),)), 4)
    return instance([Job(Workflow("w", (task("prepare", {"A": 3}), train)), 0), other], on=cluster)


@pytest.mark.parametrize("policy", [policy for policy in POLICIES if not policy.startswith("hadar")])
def test_gpus_are_held_while_inputs_travel(policy: str) -> None:
    # Train gets both GPUs of the second server at 3, and its input at 7; the other one, which comes at 4, waits.
    assert _starts(_apart(), policy) == [0, 7, 17]


@pytest.mark.parametrize("policy", ["easy", "conservative"])
@pytest.mark.parametrize(("run_us", "start_us"), [(11, 9), (12, 29)])
def test_a_run_passes_what_is_reserved_if_it_ends_before_with_its_inputs(
    policy: str, run_us: int, start_us: int
) -> None:
    # Of the pair of kind B one runs until 20, when the wide run has both; 4 bytes reach the other one at 5 + 4.
    cluster = replace(servers(2, 2, kinds="AB"), network=network(0, MB, Link(0, None)))
    follow = task("follow", {"B": run_us}, after={"prepare": 4})
    jobs = [
        Job(Workflow("busy", (task("run", {"B": 20}),)), 0),
        Job(Workflow("wide", (replace(task("run", {"B": 5}), gpus=2),)), 1),
        Job(Workflow("w", (task("prepare", {"A": 3}), follow)), 2),
    ]
    assert _starts(instance(jobs, on=cluster), policy) == [0, 20, 2, start_us]


def test_patience_counts_from_when_a_task_became_ready() -> None:
    # One GPU for what runs on one: second is ready at 3, and has waited for 5 at 8, though its job came at 0. From 7 to
    # 9 a short one still runs; then second goes before the last of them.
    chain = Workflow("w", (task("first", {"B": 3}), task("second", {"B": 9}, after={"first": 0})))
    short = [Job(Workflow(f"s{at}", (task("run", {"B": 2}),)), at) for at in (1, 2, 3, 4)]
    pair = Job(Workflow("pair", (replace(task("run", {"A": 1}), gpus=2),)), 0)
    gpus = (*servers(1, 2).gpus, replace(servers(2, 1, kinds="AB").gpus[1], id="s1/g0"))
    made = instance([Job(chain, 0), pair, *short], on=replace(servers(1, 2), gpus=gpus))
    assert _starts(made, "sjf") == [0, 11, 0, 3, 5, 7, 9]
    assert _starts(made, "sjf:reserve_after=5us") == [0, 9, 0, 3, 5, 7, 18]


@pytest.mark.parametrize("seed", range(16))
def test_every_policy_keeps_the_rules_and_its_plan_replays(seed: int) -> None:
    made = draw_workflows(random.Random(seed), moldable=seed % 3 == 0)
    for policy in POLICIES:
        timeline = simulate(made, parse_policy(policy))
        assert check(made, timeline) == [], policy
        again = simulate(made, replay(made, timeline))
        assert (again.start_us <= timeline.start_us).all(), policy
        assert np.array_equal(again.place, timeline.place), policy


@pytest.mark.parametrize("seed", range(10))
def test_runs_that_end_at_other_times_than_told_break_no_rule(seed: int) -> None:
    rng = random.Random(seed)
    told = draw_workflows(rng)
    truth = told.with_tasks(lambda each: each.with_times(lambda us: max(1, us + rng.randint(-3, 3))))
    for policy in POLICIES:
        timeline = simulate(told, parse_policy(policy), truth=truth)
        assert check(truth, timeline) == [], policy


@pytest.mark.parametrize("policy", POLICIES)
def test_the_future_changes_no_past_action(policy: str) -> None:
    for seed in range(8):
        rng = random.Random(seed)
        made = draw_workflows(rng)
        changed = change_future(made, rng)
        pasts = [
            past(each, simulate(each, parse_policy(policy)), changed.before_us) for each in (made, changed.instance)
        ]
        assert first_difference(*pasts) is None
