"""Servers that are away for a time, drain before, or fail at a rate: by hand, and no floor above what is served."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest

import truenorth as tn
from tests.command import app, run
from tests.night import by_day
from tests.planner.answers.servers.test_streams import document
from truenorth.models.cluster import FOREVER, Availability
from truenorth.models.errors import QuestionError
from truenorth.models.scenario import InputError, Scenario, load_scenario, scenario_from
from truenorth.planner.answers.servers import ServersAnswer
from truenorth.planner.answers.servers.answer import write
from truenorth.planner.answers.servers.decide import meets
from truenorth.planner.answers.servers.deployable import with_traffic
from truenorth.planner.answers.servers.outages import FailureRate
from truenorth.planner.answers.servers.sizes import Sizes
from truenorth.planner.answers.simulate import simulate
from truenorth.planner.show.servers_words import absences_in_words

SECOND = 1_000_000
HOUR = 3600 * SECOND


def restarted(
    requests: Sequence[tuple[int, int, int]], slo: str, away: dict[str, list[list[str]]], **group: str
) -> Scenario:
    """Return requests as of `document`, s0 first, on two servers that are away at these times."""
    data = document(requests, slo, [(2, "A", 1.0)])
    data["workload"]["jobs"] = [job | {"ingress": "s0"} for job in data["workload"]["jobs"]]
    data["cluster"]["away"] = away
    data["cluster"]["groups"][0] |= group
    return scenario_from(data)


def gone(asked: Scenario, *mix: int) -> list[list[tuple[int, int]]]:
    """Return when the servers of a mix are away, in seconds."""
    gpus = Sizes(asked).at(mix).instance.cluster.gpus
    return [[(a // SECOND, b // SECOND) for a, b in gpu.available.absences(FOREVER)] for gpu in gpus]


def test_fleets_of_other_sizes_repeat_the_pattern_of_each_group() -> None:
    data = document([(0, 100, 1)], "p100 latency <= 1 s", [(2, "A", 1.0), (3, "B", 1.0)])
    data["cluster"]["away"] = {"s1": [["1 s", "2 s"]], "s2": [["3 s", "4 s"]], "s4": [["5 s", "6 s"]]}
    asked = scenario_from(data)
    assert gone(asked, 1, 1) == [[], [(3, 4)]]
    assert gone(asked, 4, 2) == [[], [(1, 2)], [], [(1, 2)], [(3, 4)], []]
    assert gone(asked, 0, 5) == [[(3, 4)], [], [(5, 6)], [(3, 4)], []]


def test_a_node_that_leaves_cuts_its_request_unless_it_drains() -> None:
    """A prompt of 100 ms on s0, which leaves after 50 ms, takes 150 ms with s1 and 200 ms alone (s0 is back at 100).

    A node that drains for 60 ms takes none of the requests: with s1 100 ms, and without it 200 ms as before.
    """
    away = {"s0": [["50 ms", "100 ms"]]}
    cut = tn.servers(restarted([(0, 100, 1)], "p100 latency <= 149 ms", away), policies=["least_tokens"], max=2)
    assert cut.policies[0].mix is None
    assert list(cut.policies[0].reached.values()) == [(Fraction(200_000),), (Fraction(150_000),)]
    again = tn.servers(restarted([(0, 100, 1)], "p100 latency <= 150 ms", away), policies=["least_tokens"], max=2)
    assert (again.policies[0].mix, again.lower_bound_price) == ((2,), Fraction(1))
    drained = restarted([(0, 100, 1)], "p100 latency <= 100 ms", away, drain="60 ms")
    answer = tn.servers(drained, policies=["least_tokens"], max=2)
    assert (answer.policies[0].mix, answer.mix, answer.proved) == ((2,), (2,), False)
    assert not any(done.mix == (1,) for done in answer.refutations)  # the floor knows of no absence


def test_a_timeline_that_cuts_is_no_plan_but_one_of_longer_drains_is() -> None:
    """What is cut is served as ordered; the plan sends the request to s1 at once."""
    away = {"s0": [["50 ms", "100 ms"]]}
    answer = tn.servers(restarted([(0, 100, 1)], "p100 latency <= 150 ms", away), policies=["least_tokens"], max=2)
    assert answer.recommended is not None
    assert [run.cut_us for run in answer.recommended.ran.timeline.cuts] == [50_000]
    assert answer.timeline is not None
    assert answer.timeline.cuts == ()
    assert answer.timeline.end_us.tolist() == [100_000]


def test_a_request_whose_kv_came_in_may_be_cut_to_its_advantage() -> None:
    """Of a prompt of 1 ms and two tokens whose KV came in, 10 ms each, 21 ms: unless s0 leaves at 2 ms.

    Then KV comes to s1 in 1 ms, which computes the prompt again all the same. That gives the first token, after 1 ms;
    the second one comes 10 ms later.
    """
    away = {"s0": [["2 ms", "1 s"]]}
    data = document([(0, 1, 1)], "p100 latency <= 20 ms", [(2, "A", 1.0)])
    tasks = {"first": {"stream": "chat", "prompt": 1, "output_tokens": 1}}
    tasks["rest"] = {"stream": "chat", "prompt": 1, "uncached": 0, "output_tokens": 2, "after": {"first": "kv"}}
    data["workflows"] = {"chat": {"tasks": tasks}}
    data["workload"]["jobs"] = [{"release": "0 s", "workflow": "chat", "ingress": "s0"}]
    assert tn.servers(scenario_from(data), policies=["least_tokens"]).impossible
    data["cluster"]["away"] = away
    answer = tn.servers(scenario_from(data), policies=["least_tokens"])
    assert (answer.policies[0].mix, answer.impossible) == ((2,), False)
    assert answer.recommended is not None
    assert answer.recommended.ran.timeline.end_us.tolist() == [1000, 14_000]


def test_more_traffic_takes_the_absences_along() -> None:
    asked = restarted(
        [(0, 100, 1), (1000, 100, 1)], "p100 latency <= 1 s", {"s0": [["500 ms", "600 ms"], ["1 s", "end"]]}
    )
    faster = with_traffic(asked, Fraction(2))
    assert faster.instance.job_release_us.tolist() == [0, 500_000]
    there = [gpu.available for gpu in faster.instance.cluster.gpus]
    assert there == [Availability(((0, 250_000), (350_000, 500_000))), Availability(((0, FOREVER),))]


def test_servers_that_have_gone_for_good_are_no_fault_of_the_policy() -> None:
    """Two requests of 100 ms, one after the other, on nodes that then go for good: one node does not do, two do."""
    data = document([(100, 100, 1), (100, 100, 1)], "p100 latency <= 1 s", [(2, "A", 1.0)])
    data["cluster"]["groups"][0]["available"] = [["50 ms", "200 ms"]]
    answer = tn.servers(scenario_from(data), policies=["least_tokens"])
    assert list(answer.policies[0].reached.items()) == [((1,), None), ((2,), (Fraction(100_000),))]
    with pytest.raises(QuestionError, match="leaves a server no time"):
        tn.servers(scenario_from(data), policies=["least_tokens"], rate=9)


def random_question(rng: random.Random) -> Scenario:
    """Return requests, or plain tasks with a model, on up to 3 A and 3 B some of which are away, draining or not."""
    release, requests = 0, []
    for _ in range(rng.randint(2, 14)):
        release += rng.choice((0, rng.randint(0, 200)))
        requests.append((release, rng.randint(1, 300), rng.choice((1, rng.randint(1, 40)))))
    share, limit = rng.choice((100, 90, 75)), rng.randint(200, 2500)
    slo = rng.choice((f"p{share} latency <= {limit} ms", f"p{share} first token <= {limit // 2} ms"))
    data = document(requests, slo, [(3, "A", 1.0), (3, "B", rng.choice((1.5, 2.0)))])
    if rng.random() < 0.3:
        data["models"] = {"m": {"weights": "1 MB"}}
        data["workflows"] = {"chat": {"tasks": {"run": {"models": ["m"], "runtime": {"A": "200 ms", "B": "100 ms"}}}}}
        data["workload"] = {"jobs": [{"release": f"{at} ms", "workflow": "chat"} for at, _, _ in requests]}
        data["slo"], data["streams"] = f"p{share} latency <= {limit} ms", {}
    away = {}
    for server in rng.sample(range(6), rng.randint(1, 5)):
        begin = rng.randint(0, 1500)
        away[f"s{server}"] = [[f"{begin} ms", f"{begin + rng.randint(1, 1500)} ms"]]
    data["cluster"]["away"] = away
    for group in data["cluster"]["groups"]:
        group["drain"] = rng.choice(("0 s", "100 ms", "500 ms"))
        if rng.random() < 0.3:  # spot
            group["available"] = rng.choice(([["0 s", "1 s"], ["2 s", "end"]], [["0 s", "20 s"]], [["500 ms", "end"]]))
    return scenario_from({key: value for key, value in data.items() if value != {}})


@pytest.mark.parametrize("seed", by_day(range(60), 5))
def test_no_floor_above_what_is_served_with_servers_away(seed: int) -> None:
    """Every mix is simulated: none that meets the level is refuted, and the cheapest one is found."""
    asked = random_question(random.Random(seed))
    policy = "least_tokens" if asked.instance.streams is not None else "jit"
    answer = tn.servers(asked, policies=[policy], time_limit=20)
    sizes, cheapest = Sizes(asked), None
    for mix in product(range(4), repeat=2):
        if sum(mix):
            ran = simulate(sizes.at(mix), policy)
            if meets(ran.truth, ran.timeline, answer.levels):
                assert not any(all(a <= b for a, b in zip(mix, done.mix, strict=True)) for done in answer.refutations)
                cheapest = mix if cheapest is None else min(cheapest, mix, key=sizes.order)
    assert answer.policies[0].mix == cheapest


def test_outages_come_at_their_rate_and_are_those_of_the_server_in_every_fleet() -> None:
    """At 2 an hour for 15 min a server is there 30 min in the mean, then away 15: 1,000 h have 1,333 outages."""
    rate = FailureRate.parse("2 per node per hour, 15 min")
    found = rate.outages(7, 0, 0, 1, 1000 * HOUR)
    assert abs(len(found) - 1333) < 80
    assert all(end - begin == HOUR // 4 for begin, end in found)
    assert all(before[1] < after[0] for before, after in pairwise(found))
    assert found == rate.outages(7, 0, 0, 1, 1000 * HOUR)
    assert (
        len({rate.outages(7, draw, group, place, HOUR * 9)[0] for draw, group, place in product(range(3), repeat=3)})
        == 27
    )


def chatty(**more: Any) -> Scenario:
    """Return a request of 100 + 39 x 10 ms every 250 ms for 8 s, on servers of kind A."""
    data = document([(250 * at, 100, 40) for at in range(32)], "p100 latency <= 900 ms")
    return scenario_from(data | more)


RATE = "300 per node per hour, 1 s"


def struck(asked: Scenario, servers: int, draw: int) -> float:
    """Return the longest latency on a fleet whose outages are written into the file, in seconds."""
    rate, last_us = FailureRate.parse(RATE), int(asked.instance.job_release_us[-1])
    away = {f"s{place}": rate.outages(0, draw, 0, place, last_us) for place in range(servers)}
    listed = {name: [[f"{a} us", f"{b} us"] for a, b in each] for name, each in away.items() if each}
    changed = asked.changed({"cluster.servers": servers, "cluster.away": listed})
    return tn.simulate(changed, "least_tokens").metrics.max_latency_s


def answered(asked: Scenario, **more: Any) -> ServersAnswer:
    return tn.servers(asked, policies=["least_tokens"], failures=f"{RATE}, 6 draws", max=6, **more)


def test_a_size_meets_the_level_in_every_draw_of_failures(tmp_path: Path) -> None:
    """The least size is the first whose draws, each written as a scenario of its own, all meet the level."""
    asked = chatty()
    worst = {size: max(struck(asked, size, draw) for draw in range(6)) for size in range(1, 7)}
    least = min(size for size, value in worst.items() if value <= 0.9)
    answer = answered(asked)
    assert answer.policies[0].mix == (least,)
    without = tn.servers(asked, policies=["least_tokens"], max=6)
    assert without.policies[0].mix is not None
    assert without.policies[0].mix[0] < least
    found = answer.record()
    assert found.alternatives[0].value == worst[least]
    rate = FailureRate.parse(RATE)
    counts = [sum(len(rate.outages(0, draw, 0, place, 7_750_000)) for place in range(least)) for draw in range(6)]
    assert found.failures.outages == counts
    assert absences_in_words(found)[0] == (
        f"The target is met in each of 6 draws of failures of {RATE} (seed 0); lower bound and plan are without them. "
        f"{sum(counts)} outages fall into the window, {min(counts)} to {max(counts)} a draw; other draws may differ"
    )
    # What is recommended is written with the outages of its worst draw, and reads and runs as simulated.
    write(answer, tmp_path)
    again = load_scenario(tmp_path / "recommended.json")
    assert tn.simulate(again, "least_tokens").metrics.max_latency_s == worst[least]
    assert (
        "--failures '300 per node per hour, 1 s, 6 draws'"
        in json.loads((tmp_path / "answer.json").read_text())["command"]
    )


def test_draws_without_an_outage_are_said_to_say_nothing() -> None:
    found = tn.servers(chatty(), policies=["least_tokens"], failures="1 per node per week, 10 min").record()
    assert found.failures.outages == [0] * 10
    (said,) = absences_in_words(found)
    assert said.startswith("No outage falls into the window in 10 draws of failures of 1 per node per week, 10 min")
    assert said.endswith("This says nothing of failures; a longer window or a higher rate would")


def test_failures_and_absences_are_refused_where_nothing_true_is_known() -> None:
    plain = chatty(
        workflows={"chat": {"tasks": {"answer": {"runtime": "1 s"}}}},
        workload={"jobs": [{"release": "0 s", "workflow": "chat"}]},
    )
    with pytest.raises(QuestionError, match="cut requests of continuous batching"):
        tn.servers(plain, failures=RATE)
    with pytest.raises(QuestionError, match="spare servers, which are gone all the time"):
        tn.servers(chatty(), failures=RATE, spare=1)
    with pytest.raises(QuestionError, match="for fleets that stay"):
        tn.servers_by(chatty(), "2 s", failures=RATE)
    away = {"s0": [["1 s", "2 s"]]}
    with pytest.raises(InputError, match="a failure gives no notice; leave drain out"):
        tn.servers(restarted([(0, 100, 1)], "p100 latency <= 1 s", away, drain="1 s"), failures=RATE)
    with pytest.raises(InputError, match="away at times of their own, and any server may be gone"):
        tn.servers(restarted([(0, 100, 1)], "p100 latency <= 1 s", away), spare=1)
    for text in (
        "1 per week, 10 min",
        "1 per node per fortnight, 10 min",
        "1 per node per week",
        "0 per node per day, 1 s",
    ):
        with pytest.raises(QuestionError, match="write"):
            tn.servers(chatty(), failures=text)


def test_the_command_ends_well_where_a_policy_meets_the_level_and_no_plan_is_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Under noise no timeline is a plan of the scenario: what can be ordered is an answer all the same."""
    file = tmp_path / "chat.json"
    file.write_text(json.dumps(document([(0, 100, 11)] * 2, "p100 latency <= 2 s")))
    asked = ["servers", str(file), "--policies", "least_tokens", "--noise", "run=lognormal:0.1", "--json"]
    assert run(app, asked) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["minimum"]["servers"], found["alternatives"][0]["servers"]) == (None, 1)
