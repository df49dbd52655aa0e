"""Floors on the price of nodes: by hand where models are pinned or kinds differ, and never above what is served."""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import product
from typing import Any

import pytest

import truenorth as tn
from tests.night import by_day
from truenorth.models import InstanceError
from truenorth.models.scenario import Scenario, scenario_from
from truenorth.planner.answers.servers import ServersAnswer
from truenorth.planner.answers.servers.decide import meets
from truenorth.planner.answers.servers.record import CoarseStamps
from truenorth.planner.answers.servers.sizes import Sizes
from truenorth.planner.answers.servers.streams import cut_in_words
from truenorth.planner.answers.simulate import simulate
from truenorth.planner.show.servers_words import answer_in_words
from truenorth.solvers.bounds.stream_floor import Cut

GPU = {"memory": "80 GB", "load_bandwidth": "50 GB/s"}


def nodes(*groups: tuple[int, str, float], **parts: Any) -> Scenario:
    """Return a scenario on groups (count, kind, price)."""
    listed = [{"count": count, "gpu": GPU | {"kind": kind}, "price_per_hour": price} for count, kind, price in groups]
    return scenario_from({"cluster": {"groups": listed, "network": {"bandwidth": "1 GB/s", "latency": "1 ms"}}} | parts)


def pinned(kinds: tuple[str, str], slo: str | list[str], jobs: int = 16) -> Scenario:
    """Return prompts of 500 ms every 250 ms whose KV goes to another group; where each may run is pinned, or its kind.

    As it goes to the group of its kind alone if the two kinds differ.
    """
    own = kinds[0] != kinds[1]

    def on(kind: str, value: Any) -> Any:
        return {kind: value} if own else value

    def stream(model: str, kind: str) -> dict[str, Any]:
        step = {1: "20 ms", 8: "20 ms"}
        speed = {"prefill": on(kind, "2000 /s"), "step": {kind: step} if own else step}
        return {"models": [model], "chunk": 4096, "concurrency": 8, "kv_per_token": "100 KB"} | speed

    tasks = {
        "prefill": {"stream": "pre", "prompt": 1000, "output_tokens": 1},
        "decode": {"stream": "dec", "prompt": 1000, "uncached": 0, "output_tokens": 10, "after": {"prefill": "kv"}}
        | {"first_token": True},
    }
    return nodes(
        (4, "P", 4.0),
        (4, "D", 2.0),
        models={"p": {"weights": "1 MB"}, "d": {"weights": "1 MB"}},
        streams={"pre": stream("p", kinds[0]), "dec": stream("d", kinds[1])},
        workflows={"chat": {"tasks": tasks}},
        restrictions={"pin": [{"model": "p", "on": ["group 1"]}, {"model": "d", "on": ["group 2"]}]},
        workload={"jobs": [{"release": f"{1000 + 250 * job} ms", "workflow": "chat"} for job in range(jobs)]},
        slo=slo,
    )


@pytest.mark.parametrize("kinds", [("P", "D"), ("*", "*")])
def test_a_pin_counts_as_a_kind_does(kinds: tuple[str, str]) -> None:
    """Sixteen prompts come in [1 s, 4.75 s]; their first tokens are due in a second, the last one at 5.75 s.

    Prompts run on P alone, for 16 x 0.5 = 8 s, and 4.75 s of one P are not enough: two P, and one D for what follows,
    at 2 x 4 + 2 = 10. Were prompts allowed on D, as without the pin, one of each at 6 would not be refuted.
    """
    answer = tn.servers(pinned(kinds, ["p100 first token <= 1 s", "p100 latency <= 1500 ms"]), policies=["round_robin"])
    assert (answer.mix, answer.lower_bound_price, answer.proved) == ((2, 1), Fraction(10), True)
    # Why not the dearest fleet below: one P and two D at 8, which lack a P. Not four P at 16, which lack every D.
    done = answer.refutation
    assert done is not None
    assert (done.mix, done.method) == ((1, 2), "energy")


def unlike(count: int) -> Scenario:
    """Return so many prompts that take 100 ms on A and 300 ms on B, and so many answers that take 300 and 100 ms.

    All come at 0 and are due in a second; nodes serve one request at a time.
    """
    stream = {
        "prefill": {"A": "3000 /s", "B": "1000 /s"},
        "chunk": 3000,
        "concurrency": 1,
        "step": {"A": {1: "30 ms"}, "B": {1: "10 ms"}},
        "kv_per_token": "1 KB",
    }
    asked = [[300, 300, 1], [1, 1, 11]]
    jobs = [{"release": "0 s", "workflow": "w", "tokens": {"r": each}} for each in asked for _ in range(count)]
    return nodes(
        (9, "A", 1.0),
        (5, "B", 2.0),
        streams={"s": stream},
        workflows={"w": {"tasks": {"r": {"stream": "s"}}}},
        workload={"jobs": jobs},
        slo="p100 latency <= 1 s",
    )


def test_weights_that_suit_a_fleet_refute_it() -> None:
    """26 of each ask for 2.6 A and 2.6 B at the least.

    By price an A weighs 1 and a B 2: 2.6 + 2 x 2.6 = 7.8, so that fleets at 8 are left, as 2 A + 3 B and 4 A + 2 B.
    With a B weighing 3 a prompt counts 0.1 and an answer 0.3, wherever they run: 10.4 <= A + 3 B, where 4 A + 2 B
    are 10. With an A weighing 3: 10.4 <= 3 A + B, where 2 A + 3 B are 9. So no fleet costs less than 9.
    """
    answer = tn.servers(unlike(26), policies=["least_requests"], time_limit=30)
    assert answer.lower_bound_price == Fraction(9)
    done = answer.refutation
    assert done is not None
    assert answer.cost(done.mix) == 8
    said = next(done.forces for done in answer.refutations if done.mix == (5, 1))
    assert said.endswith("need 7.852 A all the time, each B counting 2; there are 7")


def test_a_refutation_has_digits_that_say_that_more_is_needed_than_there_is() -> None:
    """5.0003 GPUs that are needed beside 5 that are there are not 5 beside 5."""
    scenario = unlike(26)
    cut = Cut((Fraction(1), Fraction(1)), Fraction(50_003, 10_000), "energy", 0, 10**6)
    assert cut.refutes([0, 5])
    assert cut_in_words(Sizes(scenario), cut, [0, 5]).endswith("need 5.0003 GPUs all the time; there are 5")


def test_few_requests_have_their_floor_however_little_time_is_left() -> None:
    """What is charged at any rate is so many requests, not so many seconds of a machine that may be busy."""
    answer = tn.servers(unlike(26), policies=["least_requests"], time_limit=1e-6)
    assert answer.lower_bound_price == Fraction(9)


def drawn(rng: random.Random) -> Scenario:
    """Return requests of two models on two kinds, one of the models or workflows maybe kept to a group."""
    speeds = {kind: rng.choice((1, 2, 4)) for kind in "AB"}
    stream = {
        "prefill": {kind: f"{1000 * speed} /s" for kind, speed in speeds.items()},
        "chunk": 100,
        "concurrency": 4,
        "step": {kind: {1: f"{rng.choice((5, 10, 20))} ms", 4: f"{rng.choice((20, 40))} ms"} for kind in "AB"},
        "kv_per_token": "1 MB",
    }
    release, jobs = 0, []
    for _ in range(rng.randint(2, 20)):
        release += rng.choice((0, rng.randint(0, 200)))
        prompt = rng.randint(1, 400)
        tokens = {"r": [prompt, prompt, rng.choice((1, rng.randint(1, 60)))]}
        jobs.append({"release": f"{release} ms", "workflow": rng.choice("xy"), "tokens": tokens})
    place = {"on": [f"group {rng.randint(1, 2)}"]}
    restrictions = rng.choice(({"pin": [{"model": "x"} | place]}, {"forbid": [{"workflow": "x"} | place]}, {}))
    limit, share = rng.randint(300, 3000), rng.choice((100, 90, 75))
    return nodes(
        (3, "A", 1.0),
        (3, "B", rng.choice((1.5, 2.0, 3.0))),
        models={"x": {"weights": "1 GB"}, "y": {"weights": "1 GB"}},
        streams={name: stream | {"models": [name]} for name in "xy"},
        workflows={name: {"tasks": {"r": {"stream": name}}} for name in "xy"},
        restrictions=restrictions,
        workload={"jobs": jobs},
        slo=rng.choice(([f"p{share} latency <= {limit} ms"], [f"p{share} first token <= {limit // 2} ms"])),
    )


def served(asked: Scenario, answer: ServersAnswer) -> list[tuple[int, ...]]:
    """Return every mix on which some gateway meets the levels."""
    sizes, found = Sizes(asked), []
    for mix in product(range(4), repeat=2):
        try:
            ran = [simulate(sizes.at(mix), policy) for policy in ("least_tokens", "round_robin")]
        except InstanceError:  # a model is pinned to what is not there
            continue
        if any(meets(each.truth, each.timeline, answer.levels) for each in ran):
            found.append(mix)
    return found


@pytest.mark.parametrize("seed", by_day(range(20), 4))
def test_no_floor_above_what_is_served_where_places_are_restricted(seed: int) -> None:
    asked = drawn(random.Random(seed))
    answer = tn.servers(asked, policies=["least_tokens"])
    refuted = [done.mix for done in answer.refutations]
    for mix in served(asked, answer):
        assert answer.lower_bound_price is not None
        assert answer.lower_bound_price <= answer.cost(mix)
        assert not any(all(a <= b for a, b in zip(mix, done, strict=True)) for done in refuted)


@pytest.mark.parametrize(
    ("offsets", "most", "said"), [((0, 0, 0), 2, True), ((0, 0, 0), 3, False), ((0, 300, 600), 2, False)]
)
def test_coarse_stamps_are_said_where_a_level_fails(offsets: tuple[int, ...], most: int, said: bool) -> None:
    """Three jobs of 900 ms at every second, due in one: all at once they take three servers."""
    jobs = [{"release": f"{1000 * second + at} ms", "workflow": "w"} for second in range(4) for at in offsets]
    data: dict[str, Any] = {
        "cluster": {"servers": 1, "gpu": GPU | {"kind": "A"}, "network": {"bandwidth": "1 GB/s"}},
        "workflows": {"w": {"tasks": {"r": {"runtime": "900 ms"}}}},
        "workload": {"jobs": jobs},
        "slo": "p100 latency <= 1 s",
    }
    found = tn.servers(scenario_from(data), policies=["jit:period=0us"], max=most, time_limit=10).record()
    assert found.coarse_stamps == (CoarseStamps(1, 1.0) if not any(offsets) else None)
    words = "Arrivals are stamped in whole seconds, and 100% of them coincide"
    assert (words in answer_in_words(found)) == said
    assert ("truenorth import --spread" in answer_in_words(found)) == said
