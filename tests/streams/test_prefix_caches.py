"""Prefix caches of nodes (rule E4) against one iteration after the other, and by hand."""

import random
import re
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from tests.night import by_day
from tests.streams.one_by_one import Served, serve
from tests.streams.test_going_away import Log, noting, random_absences, served_one_by_one
from tests.streams.worlds import (
    POLICIES,
    as_served,
    cached_beside_loads,
    cluster,
    plain_nodes,
    plain_requests,
    queues,
    random_cached_chats,
)
from truenorth.executor import PolicyError, parse_policy, replay, simulate
from truenorth.executor.noise import parse_noise
from truenorth.executor.policies.gateways import LeastTokens
from truenorth.models import Instance, Job, MLModel, StreamClass, Task, Timeline, Tokens, Workflow, check
from truenorth.models.features import SERVING
from truenorth.models.metrics import CacheMetrics, measure
from truenorth.models.objective import Objective, timeline_value
from truenorth.models.scenario import InputError, TimelineHeader, read_timeline, write_timeline
from truenorth.models.streams import StreamSpeed
from truenorth.planner.answers.plan import solve
from truenorth.solvers.budget import Budget

DRAWS = 20
"""Instances of a test; 25 of them are 500."""


def served_slowly(instance: Instance, timeline: Timeline) -> list[Served]:
    return serve(plain_nodes(instance), plain_requests(instance, timeline.place), queues(instance, timeline))


@pytest.mark.parametrize("seed", by_day(range(25), 2))
def test_engine_checker_and_replay_equal_one_iteration_after_the_other(seed: int) -> None:
    rng = random.Random(seed)
    hits = 0
    for _ in range(DRAWS):
        instance = random_cached_chats(rng, rng.randint(2, 30))
        timeline = simulate(instance, parse_policy(rng.choice(POLICIES)), seed)
        slow = served_slowly(instance, timeline)
        assert slow == as_served(timeline)
        assert check(instance, timeline) == []
        found = measure(instance, timeline)
        assert isinstance(found, CacheMetrics)
        assert found.cached_tokens == sum(each.cached for each in slow)
        hits += found.cached_tokens
        assert as_served(simulate(instance, replay(instance, timeline))) == as_served(timeline)
    assert hits > 0


@pytest.mark.parametrize("seed", by_day(range(25), 1))
def test_the_same_where_nodes_come_and_go(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    cutting = 0
    for number in range(DRAWS):
        instance, log = random_absences(rng, random_cached_chats(rng, rng.randint(2, 30))), Log()
        timeline = simulate(instance, noting(rng.choice(POLICIES), log), seed)
        slow = served_one_by_one(instance, timeline, log)
        assert slow == as_served(timeline), number
        assert check(instance, timeline) == []
        found = measure(instance, timeline)
        assert isinstance(found, CacheMetrics)
        assert found.cached_tokens == sum(each.cached for each in slow)
        write_timeline(tmp_path / "timeline.json", instance, timeline, TimelineHeader())
        again = read_timeline(tmp_path / "timeline.json", instance).timeline
        assert as_served(again) == slow
        assert check(instance, again) == []
        cutting += len(timeline.cuts) > 0
    assert cutting > 0


@pytest.mark.parametrize("seed", by_day(range(25), 1))
def test_checker_and_replay_agree_with_the_engine_beside_loads(seed: int) -> None:
    """Loads and plain tasks take memory from caches, a cache leaves with its model, and adapters have their own."""
    rng = random.Random(seed)
    hits = evictions = 0
    noise = parse_noise("run=lognormal:0.5,load=uniform:0.5")
    for number in range(DRAWS):
        instance = cached_beside_loads(rng, rng.randint(2, 25))
        if instance.streams is None or instance.streams.prefixes is None:
            continue
        instance = random_absences(rng, instance) if rng.random() < 0.3 else instance
        policy = rng.choice((*POLICIES, "turns:hold=40us"))
        timeline = simulate(instance, parse_policy(policy), seed)
        assert check(instance, timeline) == [], number
        found = measure(instance, timeline)
        assert isinstance(found, CacheMetrics)
        hits, evictions = hits + found.cached_tokens, evictions + found.evictions
        if not timeline.cuts:
            assert as_served(simulate(instance, replay(instance, timeline), seed)) == as_served(timeline), number
        assert check(instance, simulate(instance, parse_policy(policy), seed, noise)) == [], number
    assert hits > 0
    assert evictions > 0


PLAIN = StreamSpeed(Fraction(1_000_000), 10, 4, {1: 5, 4: 5}, 1)
"""1 us per prompt token, 10 tokens per iteration, steps of 5 us, a byte per token."""


def chats(memory: int, asked: Sequence[tuple[int, int, int, tuple[int, ...]]], nodes: int = 1) -> Instance:
    """Return requests on nodes that cache blocks of four tokens: release, prompt, answer and blocks of each."""
    flow = Workflow("chat", (Task.of_stream("t", StreamClass("chat", {"*": PLAIN}, prefix_block=4)),))
    return Instance(
        cluster(nodes, memory),
        (),
        tuple(
            Job(flow, at, ingress=0, tokens={"t": Tokens(n, n, m)}, blocks={"t": blocks}) for at, n, m, blocks in asked
        ),
    )


def run(instance: Instance, policy: str = "least_tokens") -> tuple[Timeline, int]:
    timeline = simulate(instance, parse_policy(policy))
    assert check(instance, timeline) == []
    found = measure(instance, timeline)
    assert isinstance(found, CacheMetrics)
    assert found.hit_share == found.cached_tokens / found.prompt_tokens
    return timeline, found.cached_tokens


def test_leading_blocks_are_visible_once_an_iteration_has_computed_them() -> None:
    """The first prompt, in blocks of 4 tokens: two of them are there at 10, all five at 20, when it ends.

    The second comes at 12 and joins at 20: it has blocks 0 and 1 in common, then another: 8 of 12 tokens are cached, so
    that it ends at 24. The third, all of whose blocks are there, computes one token: [24, 25).
    """
    first, second, third = (0, 20, 1, (0, 1, 2, 3, 4)), (12, 12, 1, (0, 1, 7)), (23, 12, 1, (0, 1, 7))
    timeline, cached = run(chats(1_000, [first, second, third]))
    assert timeline.end_us.tolist() == [20, 24, 25]
    assert cached == 8 + 11


def test_a_prompt_that_is_under_way_lends_what_it_has_computed() -> None:
    """15 tokens: at 10 two blocks are there, and 5 tokens leave a budget: the second joins and has these 8 of its 12.

    The iteration from 10 on takes 5 + 4 tokens, so that both end at 19.
    """
    timeline, cached = run(chats(1_000, [(0, 15, 1, (0, 1, 2)), (3, 12, 1, (0, 1, 2))]))
    assert timeline.start_us.tolist() == [0, 10]
    assert timeline.end_us.tolist() == [19, 19]
    assert cached == 8


def test_who_joins_at_once_computes_for_itself_and_holds_blocks_once() -> None:
    """Both join at 0, each with 4 tokens, and hold 4 + 2 x 1 of the 6 bytes: a third waits until they end at 8.

    Of 5 bytes the second lacks one, and joins at 4, with 3 of its 4 tokens cached.
    """
    both = [(0, 4, 1, (0,)), (0, 4, 1, (0,)), (0, 4, 1, (0,))]
    timeline, cached = run(chats(6, both))
    assert timeline.start_us.tolist() == [0, 0, 8]
    assert (timeline.end_us.tolist(), cached) == ([8, 8, 9], 3)
    timeline, cached = run(chats(5, both[:2]))
    assert (timeline.end_us.tolist(), cached) == ([4, 5], 3)


def test_what_is_unused_longest_gives_way_the_deepest_first() -> None:
    """12 bytes. The first leaves blocks 0, 1 at 8. The second, of 8 bytes, has the deeper of them give way, not both.

    So the third finds 0 alone: 4 of its 8 tokens. It holds 9 bytes: of 12 none is left for block 5, of 13 all 4.
    """
    asked = [(0, 8, 1, (0, 1)), (20, 7, 1, (5,)), (40, 8, 1, (0, 1))]
    assert run(chats(12, asked))[1] == 4
    assert run(chats(12, [*asked, (60, 7, 1, (5,))]))[1] == 4 + 0
    assert run(chats(13, [*asked, (60, 7, 1, (5,))]))[1] == 4 + 4


def test_equal_blocks_behind_different_ones_are_different() -> None:
    assert run(chats(1_000, [(0, 8, 1, (0, 1)), (20, 8, 1, (2, 1)), (40, 8, 1, (1,))]))[1] == 0


def test_a_cache_leaves_with_its_model() -> None:
    """Models of 100 bytes, of which a node of 150 holds one: what `a` has cached is gone when `a` comes back."""
    flows = []
    for name in "ab":
        stream = StreamClass(name, {"*": PLAIN}, (f"model {name}",), prefix_block=4)
        flows.append(Workflow(name, (Task.of_stream("t", stream),)))
    asked = [(0, 0), (500, 0), (1_000, 1), (2_000, 0)]
    jobs = tuple(Job(flows[at], time, tokens={"t": Tokens(9, 9, 1)}, blocks={"t": (0, 1)}) for time, at in asked)
    instance = Instance(cluster(1, 150), (MLModel("model a", 100), MLModel("model b", 100)), jobs)
    assert run(instance)[1] == 8
    # With room for both the last one finds its blocks, too; those of the other class are none of its.
    roomy = Instance(cluster(1, 300), instance.models, jobs)
    assert run(roomy)[1] == 16


def test_a_plan_is_searched_with_caches_and_never_worse_than_the_policies() -> None:
    instance = random_cached_chats(random.Random(3), 25)
    found = solve(instance, Objective.MEAN_LATENCY, Budget(20, iterations=20_000))
    assert found.timeline is not None
    assert check(instance, found.timeline) == []
    value = timeline_value(Objective.MEAN_LATENCY, instance, found.timeline)
    for policy in ("least_delay", "prefix_affinity:precise=on", "least_tokens"):
        served = simulate(instance, parse_policy(policy))
        assert value < timeline_value(Objective.MEAN_LATENCY, instance, served)
    assert "search" not in found.left_out


def test_a_policy_that_does_not_know_caches_is_refused() -> None:
    class Elsewhere(LeastTokens):
        supports = SERVING

    with pytest.raises(PolicyError, match="has no support for prefix caches of nodes; allowed are round_robin, least"):
        simulate(chats(1_000, [(0, 8, 1, (0, 1))]), Elsewhere)


def test_a_plan_says_how_many_tokens_were_cached(tmp_path: Path) -> None:
    instance = chats(1_000, [(0, 8, 1, (0, 1)), (20, 9, 1, (0, 1))])
    timeline, _ = run(instance)
    assert timeline.served is not None
    assert timeline.served.cached is not None
    assert timeline.served.cached.tolist() == [0, 8]
    wrong = replace(timeline, served=replace(timeline.served, cached=np.array([0, 4])))
    found = [(each.rule, each.found, each.allowed) for each in check(instance, wrong)]
    assert found == [("E4", 4, 8)]
    write_timeline(tmp_path / "plan.json", instance, timeline, TimelineHeader())
    text = (tmp_path / "plan.json").read_text()
    (tmp_path / "plan.json").write_text(re.sub(r',\s*"cached_tokens": 8', "", text))
    with pytest.raises(InputError, match=r"cached_tokens: is missing where nodes cache prefixes; allowed is how many"):
        read_timeline(tmp_path / "plan.json", instance)


def test_affinity_follows_blocks_and_goes_by_tokens_where_nodes_are_equal() -> None:
    """Two heads, one to each node; what goes on with one follows it, and the last goes where the fewest tokens are.

    The third joins at 10, when two blocks of the second are there; the fourth at 8, when both of the first are.
    """
    heads = [(0, 8, 9, (0, 1)), (0, 16, 9, (5, 6, 7, 8))]
    asked = [*heads, (1, 20, 9, (5, 6, 7, 8, 9)), (1, 12, 9, (0, 1, 2)), (2, 4, 9, (3,))]
    timeline, cached = run(chats(1_000, asked, 2), "prefix_affinity")
    assert timeline.place.tolist() == [0, 1, 1, 0, 0]
    assert cached == 8 + 8
    # By tokens alone the third goes to node 0, where 8 are outstanding and not 16.
    assert run(chats(1_000, asked, 2), "least_tokens")[0].place.tolist()[2] == 0


@pytest.mark.parametrize(("policy", "place"), [("prefix_affinity", 1), ("prefix_affinity:precise=on", 0)])
def test_what_was_sent_may_be_gone_and_precise_routing_sees_that(policy: str, place: int) -> None:
    """Blocks 0 and 1 are sent to node 1, whose 21 bytes then serve a request of 20. The last request lists them.

    The router remembers five blocks of each node. By what is there it goes by tokens, of equals to node 0.
    """
    asked = [(0, 8, 1, (8, 9)), (0, 8, 1, (0, 1)), (50, 1, 19, ()), (50, 1, 19, ()), (1_000, 8, 1, (0, 1))]
    timeline, cached = run(chats(21, asked, 2), policy)
    assert timeline.place.tolist() == [0, 1, 0, 1, place]
    assert cached == 0


def test_least_work_counts_what_it_has_sent_as_cached() -> None:
    """Node 0 has computed a prompt of 40 tokens: one that goes on with it is 4 tokens of work there, and 44 elsewhere.

    While it computes the first, another prompt would wait for it, and goes to node 1.
    """
    first = (0, 40, 20, tuple(range(10)))
    timeline, cached = run(chats(1_000, [first, (41, 44, 5, tuple(range(11)))], 2), "least_work")
    assert (timeline.place.tolist(), cached) == ([0, 0], 40)
    other = run(chats(1_000, [first, (5, 44, 5, (77, *range(1, 11)))], 2), "least_work")
    assert (other[0].place.tolist(), other[1]) == ([0, 1], 0)
