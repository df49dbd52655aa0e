"""Servers for requests of streams: by hand, no floor above what a simulation attains, and levels on tokens."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from math import ceil
from pathlib import Path
from typing import Any

import pytest

import truenorth as tn
from tests.night import by_day
from tests.planner.answers.servers.scenarios import scenario
from tests.streams.one_by_one import serve
from tests.streams.worlds import plain_nodes, plain_requests, queues, recorded_chats
from truenorth.executor import PolicyError
from truenorth.models import InstanceError, ServiceLevels, check
from truenorth.models.errors import QuestionError
from truenorth.models.record import encode
from truenorth.models.scenario import Scenario, load_scenario, read_timeline, scenario_from
from truenorth.planner.answers.servers.answer import write
from truenorth.planner.answers.servers.decide import meets
from truenorth.planner.answers.servers.sizes import Mix, Sizes
from truenorth.planner.answers.servers.streams import AFFINITY, GATEWAYS, KNOWING, stream_policies
from truenorth.planner.answers.simulate import simulate
from truenorth.planner.show.servers_words import engines_in_words

STEPS = {1: "10 ms", 2: "10 ms", 4: "20 ms"}
"""A decode costs a GPU 5 ms at the least, whatever the concurrency."""


def chats(
    requests: Sequence[tuple[int, int, int]], slo: str | list[str], groups: Sequence[tuple[int, str, float]] = ()
) -> Scenario:
    """Return the scenario of `document`."""
    return scenario_from(document(requests, slo, groups))


def document(
    requests: Sequence[tuple[int, int, int]], slo: str | list[str], groups: Sequence[tuple[int, str, float]] = ()
) -> dict[str, Any]:
    """Return requests (release in ms, prompt, answer) of 1,000 prompt tokens a second, on GPUs of kind A or on groups.

    Kind B does everything in half the time.
    """
    stream = {
        "prefill": {"A": "1000 /s", "B": "2000 /s"},
        "chunk": 100,
        "concurrency": 4,
        "step": {"A": STEPS, "B": {1: "5 ms", 2: "5 ms", 4: "10 ms"}},
        "kv_per_token": "1 MB",
    }
    gpu = {"memory": "10 GB", "load_bandwidth": "1 GB/s"}
    listed = [{"count": count, "gpu": gpu | {"kind": kind}, "price_per_hour": price} for count, kind, price in groups]
    size: dict[str, Any] = {"groups": listed} if groups else {"servers": 1, "gpu": gpu | {"kind": "A"}}
    return {
        "cluster": size | {"network": {"bandwidth": "1 GB/s"}},
        "streams": {"chat": stream},
        "workflows": {"chat": {"tasks": {"answer": {"stream": "chat"}}}},
        "workload": {
            "jobs": [
                {"release": f"{release} ms", "workflow": "chat", "tokens": {"answer": [prompt, prompt, answer]}}
                for release, prompt, answer in requests
            ]
        },
        "slo": slo,
    }


def test_energy_and_gateway_agree_by_hand() -> None:
    """Four requests of 100 prompt tokens and one of the answer, 100 ms each, within 200 ms: two GPUs, and no fewer."""
    answer = tn.servers(chats([(0, 100, 1)] * 4, "p100 latency <= 200 ms"))
    assert (answer.servers, answer.proved, answer.lower_bound) == (2, True, 2)
    assert [row.mix for row in answer.policies] == [(2,)] * 4
    assert answer.refutation is not None
    assert answer.refutation.forces == (
        "Between 0 s and 0.2 s the prompts and steps of requests that keep to the level need 2 GPUs all the time; "
        "there is 1"
    )


def test_who_is_too_slow_alone_and_the_best_limit() -> None:
    """Alone 100 prompt tokens and 11 of the answer take 100 + 10 x 10 ms; of four one has 21, and 300 ms."""
    requests = [(0, 100, 11), (0, 100, 11), (0, 100, 11), (0, 100, 21)]
    answer = tn.servers(chats(requests, "p100 latency <= 299 ms"))
    assert answer.impossible
    assert answer.mix is None
    done = answer.refutation
    assert done is not None
    assert done.forces == (
        "Prompts and steps alone: even with every GPU idle, 1 of 4 jobs (25 %, all of chat) take too long; "
        "no plan brings p100 latency below 0.3 s"
    )
    assert not tn.servers(chats(requests, "p75 latency <= 299 ms")).impossible


@pytest.mark.parametrize(("slo", "best"), [("p100 first token <= 99 ms", 0.1), ("p50 time per token <= 9 ms", 0.01)])
def test_levels_on_tokens_have_a_best_limit(slo: str, best: float) -> None:
    """A first token takes 100 ms of prompt, every further one a step of 10 ms."""
    answer = tn.servers(chats([(0, 100, 11)] * 4, slo))
    record = answer.record().refutation
    assert record is not None
    assert record.too_long_alone is not None
    assert (record.too_long_alone.too_long, record.too_long_alone.best_value) == (4, best)


def test_levels_on_tokens_are_met_where_said() -> None:
    """Four prompts of 100 ms with first tokens within 250 ms take two GPUs; the second waits for 100 + 10 ms."""
    answer = tn.servers(chats([(0, 100, 3)] * 4, ["p100 first token <= 250 ms", "p100 latency <= 1 s"]))
    assert (answer.servers, answer.lower_bound) == (2, 2)


def test_a_kind_that_takes_no_request_is_named() -> None:
    """A request of 11 GB of KV fits no kind; one of 9 GB both."""
    fits = chats([(0, 8_999, 1)], "p100 latency <= 100 s", [(2, "A", 1.0)])
    assert tn.servers(fits).servers == 1


def pair(slo: str, of_two: str = "30 ms") -> Scenario:
    """Return two requests at once whose steps take 10 ms alone; prompts take 1 ms.

    On one node both end after 2 + 10 x 30 = 302 ms; one at a time after 101 and 202 ms; on two nodes after 101 ms.
    """
    asked = document([(0, 1, 11)] * 2, slo)
    asked["streams"]["chat"] |= {"concurrency": 2, "step": {1: "10 ms", 2: of_two}}
    return scenario_from(asked)


def test_fewer_requests_at_once_are_tried_and_go_with_the_purchase(tmp_path: Path) -> None:
    """One node does for 250 ms if it serves one request at a time; files, JSON and words say so."""
    answer = tn.servers(pair("p100 latency <= 250 ms"))
    found = answer.record()
    assert {row.policy: row.mix for row in answer.policies} == {
        "least_tokens": (2,),
        "least_requests": (2,),
        "round_robin": (2,),
        "least_tokens:known=yes": (2,),
        "least_tokens:limit=1": (1,),
    }
    assert found.alternatives[0].requests_at_once == 1
    assert encode(found.requests_at_once) == {
        "policy": "least_tokens",
        "size": {"servers": 1},
        "seats": 2,
        "value": 0.302,
        "limits": [{"requests_at_once": 1, "value": 0.202, "met": True}],
    }
    assert engines_in_words(found) == (
        "Set its engines to serve at most 1 request at once (vLLM: --max-num-seqs 1): with all 2 seats least_tokens "
        "needs 2 servers"
    )
    write(answer, tmp_path)
    assert json.loads((tmp_path / "served.json").read_text())["limits"] == {"s0/g0": 1}
    size = load_scenario(tmp_path / "recommended.json")
    assert check(size.instance, read_timeline(tmp_path / "served.json", size.instance).timeline) == []


def test_limits_that_do_not_help_are_said_and_named_policies_stand_alone() -> None:
    """With steps of 12 ms the mean is 122 ms together, and (101 + 202) / 2 in turn; who names policies gets these."""
    answer = tn.servers(pair("mean latency <= 110 ms", "12 ms"))
    assert answer.servers == 2
    assert engines_in_words(answer.record()) == (
        "With fewer requests at once on a node than its 2 seats (mean latency 0.122 s), least_tokens misses the level "
        "on 1 server, too: 1 (mean latency 0.1515 s)"
    )
    named = tn.servers(pair("p100 latency <= 250 ms"), policies=("least_tokens",))
    assert (named.servers, named.limited, len(named.policies)) == (2, None, 1)


def random_question(rng: random.Random) -> Scenario:
    requests, release = [], 0
    for _ in range(rng.randint(2, 25)):
        release += rng.choice((0, rng.randint(0, 200)))
        requests.append((release, rng.randint(1, 400), rng.choice((1, rng.randint(1, 60)))))
    limit = rng.randint(300, 3000)
    share = rng.choice((100, 90, 75, 50))
    level = rng.choice(
        (
            [f"p{share} latency <= {limit} ms"],
            [f"p{share} first token <= {limit // 2} ms"],
            [f"p{share} latency <= {limit} ms", f"p100 latency <= {3 * limit} ms"],
            [f"p{share} latency <= {limit} ms", f"p{share} time per token <= {rng.randint(10, 60)} ms"],
            [f"mean latency <= {limit} ms", f"p{share} first token <= {limit} ms"],
            [f"p{share} slowdown <= {1 + limit / 1000}"],
        )
    )
    return chats(requests, level, [(3, "A", 1.0), (3, "B", rng.choice((1.5, 2.0, 3.0)))])


@pytest.mark.parametrize("seed", by_day(range(12), 3))
def test_no_floor_above_what_attains_the_level_and_the_cheapest_mix_of_all(seed: int) -> None:
    """Every mix is simulated with every policy: none that meets the level is refuted, and the cheapest is found."""
    asked = random_question(random.Random(seed))
    answer = tn.servers(asked, policies=GATEWAYS)
    sizes, cheapest = Sizes(asked), dict[str, Mix]()
    for mix in product(range(4), repeat=2):
        if not sum(mix):
            continue
        for policy in GATEWAYS:
            ran = simulate(sizes.at(mix), policy)
            if meets(ran.truth, ran.timeline, answer.levels):
                assert not any(all(a <= b for a, b in zip(mix, done.mix, strict=True)) for done in answer.refutations)
                cheapest[policy] = min(cheapest.get(policy, mix), mix, key=sizes.order)
    assert {row.policy: row.mix for row in answer.policies if row.mix is not None} == cheapest
    best = min(cheapest.values(), key=sizes.order, default=None)
    assert answer.mix == best or (answer.mix and best and answer.cost(answer.mix) == answer.cost(best))


def recorded(slo: list[str]) -> Scenario:
    """Return the first requests of a recorded conversation service, on up to 8 A and 4 B."""
    tokens = [(job.release_us, list((job.tokens or {})["answer"])) for job in recorded_chats(1, 400).jobs]
    data = document([], slo, [(8, "A", 1.0), (4, "B", 2.1)])
    data["streams"]["chat"] |= {"kv_per_token": "131072 B"}
    data["workload"]["jobs"] = [
        {"release": f"{release} us", "workflow": "chat", "tokens": {"answer": counts}} for release, counts in tokens
    ]
    return scenario_from(data)


@pytest.mark.nightly
def test_an_order_for_a_recorded_trace_is_met_by_other_code_and_the_cheapest_of_all() -> None:
    """Its requests, by one iteration after the other, keep the levels; every mix is simulated with the same policy."""
    asked = recorded(["p95 latency <= 20 s", "p100 latency <= 40 s"])
    answer = tn.servers(asked, policies=["least_requests"])
    assert (answer.mix, answer.planned, answer.timeline is None) == ((7, 2), (7, 2), False)
    assert (answer.cost((7, 2)), answer.lower_bound_price) == (Fraction("11.2"), Fraction(8))
    instance, timeline = answer.sizes.at((7, 2)).instance, answer.timeline
    assert timeline is not None
    served = serve(plain_nodes(instance), plain_requests(instance, timeline.place), queues(instance, timeline))
    took_us = sorted(
        (one.end or 0) - release for one, release in zip(served, instance.job_release_us.tolist(), strict=True)
    )
    assert took_us[ceil(0.95 * len(took_us)) - 1] <= 20_000_000
    assert took_us[-1] <= 40_000_000
    sizes, enough = Sizes(asked), list[Mix]()
    for mix in product(range(9), range(5)):
        ran = simulate(sizes.at(mix), "least_requests") if sum(mix) else None
        if ran is not None and meets(ran.truth, ran.timeline, answer.levels):
            enough.append(mix)
    assert min(enough, key=sizes.order) == (7, 2)


def test_floors_say_something_of_mixes() -> None:
    """Eight prompts of 100 ms within 400 ms: two A, or one B of half the time at 1.5; below 1.5 nothing will do."""
    answer = tn.servers(chats([(0, 100, 1)] * 8, "p100 latency <= 400 ms", [(3, "A", 1.0), (3, "B", 1.5)]))
    assert (answer.mix, answer.lower_bound_price, answer.proved) == ((0, 1), Fraction(3, 2), True)


def test_a_level_that_no_floor_is_about_is_asked_of_mixes() -> None:
    """A step takes 10 ms on A and 5 ms on B: no number of A gives a token in 8 ms."""
    asked = chats([(0, 100, 5)], "p100 time per token <= 8 ms", [(2, "A", 1.0), (2, "B", 3.0)])
    assert tn.servers(asked, policies=["least_tokens"]).policies[0].mix == (0, 1)


def test_noise_is_on_the_lengths_of_answers() -> None:
    """At a tenth of a per cent more, a limit that is met to the microsecond is missed by somebody."""
    asked = chats([(0, 100, 11)] * 8, "p100 latency <= 200 ms")
    assert tn.servers(asked, policies=["least_tokens"]).policies[0].mix == (8,)
    noisy = tn.servers(asked, policies=["least_tokens"], noise="run=lognormal:0.5")
    assert noisy.policies[0].mix is None
    assert noisy.mix is None  # what was noisy is no plan of the scenario


def test_one_may_be_gone() -> None:
    answer = tn.servers(chats([(0, 100, 1)] * 4, "p100 latency <= 200 ms", [(4, "A", 1.0)]), spare=1)
    assert (answer.mix, answer.lower_bound) == ((3,), 3)


def test_what_is_written_can_be_checked(tmp_path: Path) -> None:
    path = tmp_path / "chats.json"
    path.write_text(json.dumps(document([(0, 100, 11), (3, 70, 5)], "p100 latency <= 300 ms"), default=dict))
    write(tn.servers(load_scenario(path)), tmp_path / "answer")
    enough = load_scenario(tmp_path / "answer" / "enough.json").instance
    assert check(enough, read_timeline(tmp_path / "answer" / "plan.json", enough).timeline) == []


def test_what_is_written_of_a_mix_can_be_checked(tmp_path: Path) -> None:
    """The workflow leaves the numbers of tokens to its jobs, and one of the groups is not bought."""
    path = tmp_path / "chats.json"
    groups = [(3, "A", 1.0), (3, "B", 1.5)]
    path.write_text(json.dumps(document([(0, 100, 1)] * 8, "p100 latency <= 400 ms", groups), default=dict))
    answer = tn.servers(load_scenario(path))
    write(answer, tmp_path / "answer")
    enough = load_scenario(tmp_path / "answer" / "enough.json").instance
    assert (answer.mix, [gpu.kind for gpu in enough.cluster.gpus]) == ((0, 1), ["B"])
    assert check(enough, read_timeline(tmp_path / "answer" / "plan.json", enough).timeline) == []


def test_policies_by_what_jobs_ask() -> None:
    """Where no job sends two requests of one class, there is no prefix to go back to; with noise, no length."""
    data = document([(0, 100, 1)], "p100 latency <= 1 s")
    assert stream_policies(scenario_from(data).instance, None) == (*GATEWAYS, KNOWING)
    call = {"stream": "chat", "prompt": 10, "output_tokens": 1}
    data["workflows"] = {"agent": {"tasks": {"call": call, "again": call | {"after": ["call"]}}}}
    data["workload"] = {"jobs": [{"release": "0 s", "workflow": "agent"}]}
    agents = scenario_from(data).instance
    assert stream_policies(agents, None) == (*GATEWAYS, AFFINITY, KNOWING)
    assert stream_policies(agents, "run=lognormal:0.3") == (*GATEWAYS, AFFINITY)


def test_by_the_interval_by_hand() -> None:
    """Four prompts of 100 ms within 200 ms in the first second and the third, one in the second: 2, 1 and 2 GPUs."""
    requests = [(0, 100, 1)] * 4 + [(1000, 100, 1)] + [(2000, 100, 1)] * 4
    found = tn.servers_by(chats(requests, "p100 latency <= 200 ms", [(3, "A", 1.0)]), by="1 s")
    least = found.policies["least_tokens"]
    assert (least.fixed, least.schedule) == ((2,), ((2,), (1,), (2,)))
    assert [floor.gpus for floor in found.floors] == [2, 1, 2]
    assert found.lower_bound == Fraction(5, 3600)
    assert [None if each is None else each.met for each in least.attained or ()] == [True] * 3


@pytest.mark.parametrize("seed", range(8))
def test_no_floor_by_the_interval_above_a_schedule_that_meets_the_level(seed: int) -> None:
    """Every schedule over three intervals is simulated: none within the levels has fewer GPUs, or costs less."""
    rng = random.Random(seed)
    requests = sorted(
        (rng.randint(0, 2999), rng.randint(1, 300), rng.choice((1, rng.randint(1, 40)))) for _ in range(20)
    )
    slo = rng.choice((["p100 latency <= 900 ms"], ["p80 latency <= 600 ms"], ["p90 first token <= 300 ms"]))
    asked = chats(requests, slo, [(2, "A", 1.0)])
    found = tn.servers_by(asked, by="1 s", policies=["least_tokens"])
    day, levels = found.day, found.fixed.levels
    for schedule in product([(count,) for count in range(3)], repeat=day.count):
        try:
            ran = simulate(day.at(schedule), "least_tokens")
        except (InstanceError, PolicyError):
            continue
        if meets(ran.truth, ran.timeline, levels):
            assert all(mix[0] >= floor.gpus for mix, floor in zip(schedule, found.floors, strict=True))
            assert day.cost(schedule) >= found.lower_bound


def test_levels_on_tokens_need_requests() -> None:
    asked = scenario({"plain": {"runtime": "1 s"}}, [(0, "plain", 100)])
    with pytest.raises(QuestionError, match="no job has a request of a stream"):
        tn.servers(asked, ServiceLevels.parse("p95 first token <= 2 s"))
