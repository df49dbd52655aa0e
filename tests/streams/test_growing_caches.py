"""Prefix caches of nodes whose KV grows (rules E2 and E4 together): one iteration after the other, and by hand."""

import random
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from tests.night import by_day
from tests.streams.test_going_away import Log, noting, random_absences, served_one_by_one
from tests.streams.test_prefix_caches import served_slowly
from tests.streams.worlds import POLICIES, as_served, cluster, growing_beside_loads, random_growing_chats
from truenorth.executor import parse_policy, replay, simulate
from truenorth.executor.errors import StalledError
from truenorth.executor.noise import parse_noise
from truenorth.models import Instance, Job, StreamClass, Task, Timeline, Tokens, Workflow, check
from truenorth.models.metrics import CacheMetrics, measure
from truenorth.models.restrictions import InstanceError
from truenorth.models.scenario import TimelineHeader, read_timeline, write_timeline
from truenorth.models.streams import StreamSpeed

DRAWS = 10
"""Instances of a test; 50 of them are 500."""


def measured(instance: Instance, timeline: Timeline) -> CacheMetrics:
    found = measure(instance, timeline)
    assert isinstance(found, CacheMetrics)
    return found


@pytest.mark.parametrize("seed", by_day(range(50), 2))
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
    assert preempted > 0 or seed > 3


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
        try:
            timeline, noisy = (simulate(instance, parse_policy(policy), seed, each) for each in (None, noise))
        except StalledError:  # adapters of requests that wait to join again leave none of them its room
            continue
        assert check(instance, timeline) == [], number
        found = measured(instance, timeline)
        hits, evictions = hits + found.cached_tokens, evictions + found.evictions
        preempted += found.preemptions
        assert as_served(simulate(instance, replay(instance, timeline), seed)) == as_served(timeline), number
        assert check(instance, noisy) == [], number
    assert hits > 0
    assert min(evictions, preempted) > 0 or seed > 1


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


@pytest.mark.parametrize(("answer", "cached"), [(9, 0), (5, 4)])
def test_unused_blocks_give_way_as_requests_grow_and_nobody_is_preempted(answer: int, cached: int) -> None:
    """Eight blocks of KV. The first request leaves blocks 0 and 1, four of them; the second grows from four on.

    With 9 tokens of answer it has all eight in the end, with 5 six: of the others block 0 is left, 1 gives way first.
    """
    timeline = run(chats(16, [(0, 8, 1, (0, 1)), (20, 8, answer, (5, 6)), (100, 8, 1, (0, 1))]))
    assert timeline.served is not None
    assert timeline.served.cached is not None
    assert timeline.served.cached.tolist() == [0, 0, cached]
    assert timeline.end_us.tolist() == [8, 28 + 5 * (answer - 1), 108 - cached]


@pytest.mark.parametrize(("answer", "again", "end"), [(9, 5, 61 + 7 * 5), (12, 9, 80 + 7 * 5)])
def test_who_was_preempted_finds_its_prompt_as_far_as_it_is_still_there(answer: int, again: int, end: int) -> None:
    """Ten blocks of KV. Both prompts are there at 21; at 26 they want 6 + 5, and the second leaves with 2 tokens.

    It has to compute 9 tokens, five blocks. The first has eight blocks when it ends at 56: block 2 of prompts is left,
    so that the second computes 5 tokens. With 12 tokens of answer it ends at 71, has had all ten, and leaves nothing.
    """
    instance = chats(20, [(0, 8, answer, (0, 1)), (0, 8, 9, (2, 3))])
    timeline = run(instance)
    assert timeline.end_us.tolist() == [10 + 11 + 5 * (answer - 2), end]
    found = measured(instance, timeline)
    assert (found.preemptions, found.recomputed_tokens, found.cached_tokens) == (1, again, 0)


def test_what_is_found_is_shared_and_what_is_computed_is_not() -> None:
    """At 8 the second and third find blocks 0 and 1, which the first holds, and compute block 2 each for itself.

    Of KV they hold four blocks together, the first one more, and two each: nine of ten. With eight the third waits.
    """
    asked = [(0, 8, 4, (0, 1)), (1, 12, 4, (0, 1, 2)), (1, 12, 1, (0, 1, 2))]
    instance = chats(20, asked)
    timeline = run(instance)
    assert timeline.start_us.tolist() == [0, 8, 8]
    assert (measured(instance, timeline).kv_peak_bytes, measured(instance, timeline).cached_tokens) == (18, 16)
    assert run(chats(16, asked)).start_us.tolist() == [0, 8, 17]


def test_blocks_of_prompts_are_whole_blocks_of_kv_and_all_classes_grow() -> None:
    of = [StreamClass("chat", {"*": PLAIN}, prefix_block=3), StreamClass("code", {"*": replace(PLAIN, block=0)})]
    with pytest.raises(InstanceError, match="blocks of prompt of 3 tokens, and of KV of 2; allowed is a multiple"):
        Instance(cluster(1), (), (Job(Workflow("w", (Task.of_stream("t", of[0], Tokens(4, 4, 1)),)), 0),))
    tasks = (Task.of_stream(each.name, each, Tokens(4, 4, 1)) for each in (replace(of[0], prefix_block=4), of[1]))
    with pytest.raises(InstanceError, match="KV of chat grows where that of code is reserved; allowed is one of both"):
        Instance(cluster(1), (), tuple(Job(Workflow(task.name, (task,)), 0) for task in tasks))
