"""KV that is held between the calls of an agent (rule E5): by hand, and against one iteration after the other."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import truenorth as tn
from tests.night import by_day
from tests.streams.one_by_one import serve
from tests.streams.test_going_away import Log, noting, served_one_by_one
from tests.streams.worlds import (
    as_served,
    cluster,
    holds_beside_loads,
    plain_nodes,
    plain_requests,
    queues,
    random_holds,
)
from truenorth.executor import parse_policy, replay, simulate
from truenorth.models import Edge, Instance, InstanceError, Job, MLModel, StreamClass, Task, Timeline, Tokens, Workflow
from truenorth.models.cluster import FOREVER, Availability
from truenorth.models.feasibility import assert_feasible, check
from truenorth.models.instance import UnsupportedInstanceError
from truenorth.models.metrics import CacheMetrics
from truenorth.models.scenario import InputError, scenario_from
from truenorth.models.streams import StreamSpeed

SPEED = StreamSpeed(Fraction(1_000_000), 100, 4, {1: 1, 4: 1}, 1)
"""A token of prompt takes 1 us, and so does a step; KV of a token takes a byte."""
CHAT = StreamClass("chat", {"A": SPEED})


def agent(stream: StreamClass = CHAT, delay_us: int = 50, hold: bool = True, **more: Any) -> Workflow:
    edge = Edge("call", 0, delay_us=delay_us, hold=hold)
    again = Task.of_stream("again", stream, None, (edge,), tied_to="call", **more)
    return Workflow("agent", (Task.of_stream("call", stream, None, **more), again))


def job(release_us: int = 0, flow: Workflow | None = None) -> Job:
    """Return a job whose call of 10 + 2 tokens is found by the next, of 12 + 4 tokens of prompt."""
    return Job(flow or agent(), release_us, tokens={"call": Tokens(10, 10, 2), "again": Tokens(16, 4, 2)})


def lone(release_us: int, prompt: int, output: int, stream: StreamClass = CHAT) -> Job:
    flow = Workflow(f"lone {stream.name}", (Task.of_stream("only", stream),))
    return Job(flow, release_us, tokens={"only": Tokens(prompt, prompt, output)})


def served(instance: Instance, policy: str = "round_robin") -> Timeline:
    timeline = simulate(instance, parse_policy(policy))
    assert_feasible(instance, timeline)
    return timeline


def cached(timeline: Timeline) -> list[int]:
    assert timeline.served is not None
    assert timeline.served.cached is not None
    found: list[int] = timeline.served.cached.tolist()
    return found


@pytest.mark.parametrize(("other", "found", "end_us"), [(18, 12, 66), (19, 0, 78)])
def test_held_kv_gives_way_to_a_request_that_lacks_room(other: int, found: int, end_us: int) -> None:
    # [0, 11): 10 of prompt, a step. 12 of 30 bytes are held from 11 to 61. A request that holds 18 fits beside them,
    # one of 19 does not. Then all 16 tokens of the second call are computed: from 61 to 65 or to 77, and a step.
    built = Instance(cluster(1, 30), (), (job(), lone(20, other - 1, 1)))
    timeline = served(built)
    assert cached(timeline) == [0, found, 0]
    assert timeline.end_us.tolist() == [11, end_us, 20 + other - 1]
    # Empty is a node that holds nothing else (S1), and P_j is that of a call whose KV is there: 11 + 50 + 5.
    assert built.job_critical_us.tolist() == [66, other - 1]


def test_the_longest_held_gives_way_first() -> None:
    # Calls end at 11 and at 31; 24 of 40 bytes are held. One of 20 takes the first's at 40: 12 are left, and they fit.
    built = Instance(cluster(1, 40), (), (job(), job(20), lone(40, 19, 1)))
    assert cached(served(built)) == [0, 0, 0, 12, 0]


def test_without_hold_what_is_cached_is_the_word_of_the_log() -> None:
    built = Instance(cluster(1, 30), (), (job(flow=agent(hold=False)), lone(20, 18, 1)))
    timeline = served(built)
    assert timeline.served is not None
    assert timeline.served.cached is None
    assert timeline.end_us.tolist() == [11, 66, 38]


def test_a_model_that_is_loaded_takes_the_room_of_what_is_held() -> None:
    # Models of 20 and 15 bytes: 12 are held beside both, and the request of the other takes 6, which 53 bytes have.
    classes = [StreamClass(name, {"A": SPEED}, (name,)) for name in ("one", "two")]
    models = (MLModel("one", 20), MLModel("two", 15))
    jobs = (job(flow=agent(classes[0], delay_us=500)), lone(100, 5, 1, classes[1]))
    timeline = served(Instance(cluster(1, 53), models, jobs), "least_tokens")
    assert cached(timeline) == [0, 12, 0]
    timeline = served(Instance(cluster(1, 52), models, jobs), "least_tokens")
    assert cached(timeline) == [0, 0, 0]


@pytest.mark.parametrize("seed", by_day(range(500), 13))
def test_served_as_by_one_iteration_after_the_other(seed: int) -> None:
    rng = random.Random(seed)
    built = random_holds(rng, rng.randint(4, 14))
    for policy in ("round_robin", "least_tokens", "prefix_affinity"):
        timeline = simulate(built, parse_policy(policy))
        assert check(built, timeline) == []
        by_hand = serve(plain_nodes(built), plain_requests(built, timeline.place), queues(built, timeline))
        assert as_served(timeline) == by_hand
        if timeline.served is not None and timeline.served.cached is not None:
            assert cached(timeline) == [each.cached for each in by_hand]
        again = simulate(built, replay(built, timeline))
        assert as_served(again) == by_hand


def once_away(rng: random.Random, built: Instance) -> Instance:
    """Return the same on nodes each of which is away once: a request that is tied waits until its node is back."""
    gpus = []
    for gpu in built.cluster.gpus:
        gone = rng.randint(20, 200)
        there = Availability(((0, gone), (gone + rng.randint(1, 80), FOREVER)))
        gpus.append(replace(gpu, available=there, drain_us=rng.choice((0, 5, 15))))
    return replace(built, cluster=replace(built.cluster, gpus=tuple(gpus)))


@pytest.mark.parametrize("seed", by_day(range(60), 6))
def test_the_same_where_nodes_come_and_go(seed: int) -> None:
    rng, log = random.Random(seed), Log()
    built = once_away(rng, random_holds(rng, rng.randint(4, 14)))
    timeline = simulate(built, noting("least_tokens", log))
    assert check(built, timeline) == []
    by_hand = served_one_by_one(built, timeline, log)
    assert as_served(timeline) == by_hand
    if timeline.served is not None and timeline.served.cached is not None:
        assert cached(timeline) == [each.cached for each in by_hand]


@pytest.mark.parametrize("seed", by_day(range(60), 12))
def test_checker_and_replay_agree_with_the_engine_beside_loads(seed: int) -> None:
    rng = random.Random(seed)
    built = holds_beside_loads(rng, rng.randint(4, 20))
    for policy in ("least_tokens", "turns:hold=40us"):
        timeline = simulate(built, parse_policy(policy))
        assert check(built, timeline) == []
        if built.streams is not None:
            assert as_served(simulate(built, replay(built, timeline))) == as_served(timeline)


@pytest.mark.parametrize(("what", "rule"), [("cached", "E5"), ("end", "S4")])
def test_a_plan_that_says_otherwise_is_refused(what: str, rule: str) -> None:
    built = Instance(cluster(1, 30), (), (job(), lone(20, 17, 1)))
    timeline = served(built)
    assert timeline.served is not None
    if what == "cached":
        wrong = replace(timeline, served=replace(timeline.served, cached=np.array([0, 0, 0])))
    else:
        wrong = replace(timeline, end_us=timeline.end_us + np.array([0, 12, 0]))
    assert {each.rule for each in check(built, wrong)} == {rule}


AGENT: dict[str, Any] = {
    "cluster": {
        "groups": [
            {
                "count": 2,
                "gpu": {"kind": "A", "memory": "80 MB", "load_bandwidth": "1 GB/s"},
                "price_per_hour": 1,
            }
        ],
        "network": {"bandwidth": "1 GB/s"},
    },
    "streams": {
        "chat": {
            "prefill": "1000 /s",
            "chunk": 100,
            "concurrency": 4,
            "step": {1: "1 ms", 4: "1 ms"},
            "kv_per_token": "1 MB",
        }
    },
    "workflows": {
        "agent": {
            "tasks": {
                "call": {"stream": "chat", "prompt": 10, "output_tokens": 2},
                "again": {
                    "stream": "chat",
                    "prompt": 16,
                    "uncached": 4,
                    "output_tokens": 2,
                    "with": "call",
                    "after": {"call": {"delay": "50 ms", "hold": True}},
                },
            }
        },
    },
    "workload": {"jobs": [{"release": f"{10 * at} ms", "workflow": "agent"} for at in range(6)]},
    "slo": "p100 latency <= 90 ms",
}


def test_a_scenario_is_simulated_checked_and_sized(tmp_path: Path) -> None:
    scenario = scenario_from(AGENT)
    ran = tn.simulate(scenario, "least_tokens")
    assert isinstance(ran.metrics, CacheMetrics)
    assert ran.metrics.cached_tokens == 6 * 12
    assert ran.metrics.p50_latency_s == 0.066
    scenario.save(tmp_path / "agent.yaml")
    ran.save(tmp_path / "served.json")
    assert not tn.check(tmp_path / "agent.yaml", tmp_path / "served.json").violations
    answer = tn.servers(scenario, policies=["least_tokens"], time_limit=10)
    assert answer.recommended is not None
    assert answer.recommended.mix == (1,)
    assert answer.lower_bound == 1


def test_bounds_count_what_is_found() -> None:
    # Alone each agent takes 66 ms, its KV there: that is what the bound says, and P_j.
    found = tn.bound(scenario_from(AGENT | {"objective": "mean_latency"}), time_limit="2 s")
    assert found.lower_bound == pytest.approx(0.066)


def test_plans_are_not_searched_for() -> None:
    with pytest.raises(UnsupportedInstanceError, match="KV that is held between requests; simulate, bound"):
        tn.plan(scenario_from(AGENT), time_limit="1 s")


def test_more_than_is_left_cannot_be_found() -> None:
    tokens = {"call": Tokens(10, 10, 2), "again": Tokens(16, 3, 2)}
    with pytest.raises(InstanceError, match=r"again finds 13 tokens cached, and call leaves KV of 12; allowed are at"):
        Instance(cluster(1, 30), (), (Job(agent(), 0, tokens=tokens),))


@pytest.mark.parametrize("change", [{"kv": "grows"}, {"prefix_cache": "node"}])
def test_kv_that_grows_or_is_cached_is_not_held(change: dict[str, Any]) -> None:
    chat = AGENT["streams"]["chat"] | change
    with pytest.raises(InputError, match="KV is held between requests, and stream class chat has kv: grows or prefix_"):
        scenario_from(AGENT | {"streams": {"chat": chat}})


def test_one_request_alone_takes_what_is_held() -> None:
    tasks = AGENT["workflows"]["agent"]["tasks"]
    third = tasks | {"third": tasks["again"]}
    with pytest.raises(InputError, match="KV of call is held for again and third, and one of them can take it"):
        scenario_from(AGENT | {"workflows": {"agent": {"tasks": third}}})
