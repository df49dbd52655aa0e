"""Prefix caches of nodes whose KV grows (rules E2 and E4 together): one iteration after the other, and by hand."""

import random
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import pytest

from tests.night import by_day
from tests.streams.test_going_away import Log, noting, random_absences, served_one_by_one
from tests.streams.test_prefix_caches import served_slowly
from tests.streams.worlds import POLICIES, as_served, cluster, growing_beside_loads, random_growing_chats
from truenorth.executor import parse_policy, replay, simulate
from truenorth.executor.noise import parse_noise
from truenorth.models import Instance, Job, StreamClass, Task, Timeline, Tokens, Workflow, check
from truenorth.models.metrics import CacheMetrics, measure
from truenorth.models.scenario import TimelineHeader, read_timeline, write_timeline
from truenorth.models.streams import StreamSpeed

DRAWS = 10
"""Instances of a test; 50 of them are 500."""


def measured(instance: Instance, timeline: Timeline) -> CacheMetrics:
    found = measure(instance, timeline)
    assert isinstance(found, CacheMetrics)
    return found


@pytest.mark.parametrize("seed", by_day(range(50), 4))
def test_engine_checker_and_replay_equal_one_iteration_after_the_other(seed: int) -> None:
    rng = random.Random(seed)
    hits = preempted = 0
    for number in range(DRAWS):
        instance = random_growing_chats(rng, rng.randint(2, 30))
        timeline = simulate(instance, parse_policy(rng.choice((*POLICIES, "prefix_affinity:precise=on"))), seed)
        slow = served_slowly(instance, timeline)
        assert slow == as_served(timeline), number
        assert check(instance, timeline) == [], number
        assert timeline.served is not None
        if timeline.served.cached is not None:
            assert timeline.served.cached.tolist() == [each.cached for each in slow], number
            hits += sum(each.cached for each in slow)
        found = measure(instance, timeline)
        assert found.preemptions == sum(each.preempted for each in slow), number  # type: ignore[attr-defined]
        preempted += sum(each.preempted for each in slow)
        assert as_served(simulate(instance, replay(instance, timeline))) == as_served(timeline), number
    assert hits > 0
    assert preempted > 0


@pytest.mark.parametrize("seed", by_day(range(50), 1))
def test_the_same_where_nodes_come_and_go(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    cutting = 0
    for number in range(DRAWS):
        instance, log = random_absences(rng, random_growing_chats(rng, rng.randint(2, 30))), Log()
        timeline = simulate(instance, noting(rng.choice(POLICIES), log), seed)
        slow = served_one_by_one(instance, timeline, log)
        assert slow == as_served(timeline), number
        assert check(instance, timeline) == [], number
        write_timeline(tmp_path / "timeline.json", instance, timeline, TimelineHeader())
        again = read_timeline(tmp_path / "timeline.json", instance).timeline
        assert as_served(again) == slow
        assert check(instance, again) == []
        cutting += len(timeline.cuts) > 0
    assert cutting > 0


@pytest.mark.parametrize("seed", by_day(range(50), 2))
def test_checker_and_replay_agree_with_the_engine_beside_loads(seed: int) -> None:
    """Loads and plain tasks take memory from blocks and caches, and preempt; a cache leaves with its model."""
    rng = random.Random(seed)
    hits = preempted = evictions = 0
    noise = parse_noise("run=lognormal:0.5,load=uniform:0.5")
    for number in range(DRAWS):
        instance = growing_beside_loads(rng, rng.randint(2, 25))
        if instance.streams is None or instance.streams.prefixes is None:
            continue
        policy = rng.choice((*POLICIES, "turns:hold=40us"))
        timeline = simulate(instance, parse_policy(policy), seed)
        assert check(instance, timeline) == [], number
        found = measured(instance, timeline)
        hits, evictions = hits + found.cached_tokens, evictions + found.evictions
        preempted += found.preemptions
        assert as_served(simulate(instance, replay(instance, timeline), seed)) == as_served(timeline), number
        assert check(instance, simulate(instance, parse_policy(policy), seed, noise)) == [], number
    assert min(hits, evictions, preempted) > 0


PLAIN = StreamSpeed(Fraction(1_000_000), 10, 4, {1: 5, 4: 5}, 1, block=2)
"""1 us per prompt token, 10 tokens per iteration, steps of 5 us, a byte per token, blocks of two tokens."""


def chats(memory: int, asked: Sequence[tuple[int, int, int, tuple[int, ...]]]) -> Instance:
    """Return requests on a node that caches blocks of four tokens: release, prompt, answer and blocks of each."""
    flow = Workflow("chat", (Task.of_stream("t", StreamClass("chat", {"*": PLAIN}, prefix_block=4)),))
    jobs = (Job(flow, at, tokens={"t": Tokens(n, n, m)}, blocks={"t": blocks}) for at, n, m, blocks in asked)
    return Instance(cluster(1, memory), (), tuple(jobs))


def run(instance: Instance) -> Timeline:
    timeline = simulate(instance, parse_policy("least_tokens"))
    assert check(instance, timeline) == []
    assert as_served(timeline) == served_slowly(instance, timeline)
    return timeline
