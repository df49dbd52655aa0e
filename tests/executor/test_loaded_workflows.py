"""Policies and replay where runs on several GPUs need models and wait for others (rules G2 to G4)."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from tests.executor.test_split_models import POLICIES
from tests.gangs import servers
from tests.instances import MB, network, task
from tests.night import by_day
from tests.split_models import broken_rules, draw_workflows, on_servers
from truenorth.executor import parse_policy, replay, simulate
from truenorth.executor.noise import parse_noise
from truenorth.executor.simulation import change_future, first_difference, past
from truenorth.models import Instance, Job, Link, Workflow, check


def pipeline(sent: int) -> Instance:
    """Return preprocess (1 GPU, model a), generate (2, b split) and rerank (1, a) on two servers of kinds A and B.

    Each server has two GPUs that load 1 byte per us. Preprocess runs on A for 3, generate on B for 5 and gets `sent`
    bytes, rerank on A for 2 and gets 1 byte. A byte takes 1 us between servers, nothing inside one.
    """
    cluster = replace(servers(2, 2, kinds="AB"), network=network(0, MB, Link(0, None)))
    steps = (
        task("preprocess", {"A": 3}, ["a"]),
        replace(task("generate", {"B": 5}, ["b"], after={"preprocess": sent}), gpus=2),
        task("rerank", {"A": 2}, ["a"], after={"generate": 1}),
    )
    return on_servers(cluster, [Job(Workflow("rag", steps), 0)], {"a": 4, "b": 8}, memory=10)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(("sent", "starts"), [(1, [4, 11, 17]), (4, [4, 11, 17]), (6, [4, 13, 19])])
def test_models_are_loaded_while_inputs_travel(policy: str, sent: int, starts: list[int]) -> None:
    # a is there at 4; generate gets its GPUs at 7, its 4 bytes of b on each at 11 and its input at 7 + sent.
    made = pipeline(sent)
    timeline = simulate(made, parse_policy(policy))
    assert check(made, timeline) == []
    assert timeline.start_us.tolist() == starts
    # Rerank finds a where preprocess had it.
    assert [(stay.model, stay.load_start_us) for stay in timeline.residencies] == [(0, 0), (1, 7)]


def test_gpus_where_something_waits_for_inputs_are_nobody_elses() -> None:
    # Generate has both GPUs of B from 7; a run that comes at 12, when b is there, waits until 18.
    made = pipeline(6)
    other = Job(Workflow("other", (task("run", {"B": 1}, ["a"]),)), 12)
    made = replace(made, jobs=(*made.jobs, other))
    for policy in POLICIES:
        timeline = simulate(made, parse_policy(policy))
        assert check(made, timeline) == []
        assert timeline.start_us.tolist() == [4, 13, 19, 22], policy


@pytest.mark.parametrize("seed", by_day(range(300), 10))
def test_every_policy_keeps_the_rules_and_its_plan_replays(seed: int) -> None:
    made = draw_workflows(random.Random(seed), 6)
    for policy in (*POLICIES, "sjf:reserve_after=2us"):
        timeline = simulate(made, parse_policy(policy))
        assert check(made, timeline) == [], policy
        assert broken_rules(made, timeline) == set(), policy
        again = simulate(made, replay(made, timeline))
        assert check(made, again) == [], policy
        assert (again.end_us <= timeline.end_us).all(), policy
        noise = parse_noise("run=lognormal:0.5,load=lognormal:0.5")
        for noisy in (parse_policy(policy), replay(made, timeline)):
            assert check(made, simulate(made, noisy, seed, noise)) == [], policy


@pytest.mark.parametrize("policy", POLICIES)
def test_the_future_changes_no_past_action(policy: str) -> None:
    for seed in range(8):
        rng = random.Random(seed)
        made = draw_workflows(rng, 6)
        changed = change_future(made, rng)
        pasts = [
            past(each, simulate(each, parse_policy(policy)), changed.before_us) for each in (made, changed.instance)
        ]
        assert first_difference(*pasts) is None


def test_the_second_look_at_the_rules_sees_what_starts_before_its_input() -> None:
    made = pipeline(6)
    timeline = simulate(made, parse_policy("fifo"))
    sooner = np.array([0, 1, 0], np.int64)
    early = replace(timeline, start_us=timeline.start_us - sooner, end_us=timeline.end_us - sooner)
    assert {violation.rule for violation in check(made, early)} == {"T2"}
