"""Tensor parallelism: which engines the servers of a pool run; by hand, and against the simulation of every fleet."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any

import pytest

import truenorth as tn
from tests.night import by_day
from truenorth.models import scenario_hash
from truenorth.models.errors import QuestionError
from truenorth.models.instance import UnsupportedInstanceError
from truenorth.models.scenario import InputError, Scenario, scenario_from
from truenorth.models.scenario.writing import document_of
from truenorth.planner.answers.servers.answer import write
from truenorth.planner.answers.servers.decide import meets
from truenorth.planner.answers.servers.layouts import Pool, layouts
from truenorth.planner.show.servers_words import answer_in_words, describe_size

GPU = {"kind": "A", "memory": "10 GB", "load_bandwidth": "1 GB/s"}


def mode(gpus: int, rate: int, step_ms: float, seats: int = 4) -> dict[str, Any]:
    """Return a mode whose step takes twice as long with all its seats taken."""
    steps = {1: f"{step_ms} ms", seats: f"{2 * step_ms} ms"}
    return {"gpus": gpus, "prefill": f"{rate} /s", "chunk": 100, "concurrency": seats, "step": steps}


def pool(
    requests: list[tuple[int, int, int]], modes: list[dict[str, Any]], slo: str | list[str], **cluster: Any
) -> dict[str, Any]:
    """Return requests (release in ms, prompt, answer) on three servers of two GPUs each."""
    servers = {"count": 3, "gpus_per_server": 2, "gpu": GPU} | cluster
    jobs = [
        {"release": f"{release} ms", "workflow": "chat", "tokens": {"answer": [prompt, prompt, output]}}
        for release, prompt, output in requests
    ]
    return {
        "cluster": {"groups": [servers], "network": {"bandwidth": "10 GB/s"}},
        "streams": {"chat": {"modes": modes}},
        "workflows": {"chat": {"tasks": {"answer": {"stream": "chat"}}}},
        "workload": {"jobs": jobs},
        "slo": slo,
    }


TWO = [mode(1, 1000, 10), mode(2, 1500, 6)]
"""A prompt of 100 tokens takes 100 ms on one GPU and 66.667 ms on two: faster, and less of them per second."""


@pytest.mark.parametrize(
    ("requests", "limit", "servers", "engines"),
    [
        (1, "70 ms", 1, [2]),  # no engine of one GPU is so fast
        (2, "100 ms", 1, [1, 1]),  # side by side; one after the other on both GPUs they take 133.334 ms
        (3, "200 ms", 1, [1, 1]),  # three after each other on both take 200.001 ms
        (4, "100 ms", 2, [1, 1]),
    ],
)
def test_by_hand(requests: int, limit: str, servers: int, engines: list[int]) -> None:
    answer = tn.servers(scenario_from(pool([(0, 100, 1)] * requests, TWO, f"p100 latency <= {limit}")))
    best = answer.recommended
    assert best is not None
    fleet = [[gpu.gpus for gpu in answer.sizes.at(best.mix).cluster.gpus if gpu.server == s] for s in range(servers)]
    assert (sum(best.mix), answer.lower_bound) == (servers, servers)
    assert engines in fleet
    assert answer.servers == servers


def partitions(gpus: int, sizes: list[int]) -> Iterator[list[int]]:
    """Yield every way to fill a server with engines, whether or not another one still fits."""
    for count in range(1, gpus + 1):
        for engines in combinations_with_replacement(sizes, count):
            if sum(engines) <= gpus:
                yield sorted(engines, reverse=True)


def fleets(document: Mapping[str, Any], most: int) -> Iterator[tuple[int, Scenario]]:
    """Yield scenarios on every fleet of at most so many servers, engine by engine, and its servers."""
    (group,) = document["cluster"]["groups"]
    sizes = [each["gpus"] for each in document["streams"]["chat"]["modes"]]
    seen = set[tuple[int, ...]]()
    for count in range(1, most + 1):
        for servers in combinations_with_replacement(list(partitions(group["gpus_per_server"], sizes)), count):
            every = tuple(sorted(size for engines in servers for size in engines))
            if every not in seen:  # which of them share a server makes no difference to single requests
                seen.add(every)
                listed = [{**group, "count": 1, "engines": engines} for engines in servers]
                yield count, scenario_from({**document, "cluster": {**document["cluster"], "groups": listed}})


def draw(rng: random.Random) -> dict[str, Any]:
    """Return a pool of servers of two to four GPUs, whose engines gain less than they take."""
    gpus = rng.choice((2, 3, 4, 4))
    sizes = sorted(rng.sample(range(1, gpus + 1), rng.randint(2, min(3, gpus))))
    gain = rng.uniform(0.6, 1.0)
    modes = [mode(k, round(1000 * k**gain), round(10 / k**gain, 3), rng.choice((2, 4, 6))) for k in sizes]
    requests = [
        (rng.randrange(400), rng.choice((50, 100, 300)), rng.choice((1, 5, 20))) for _ in range(rng.randint(3, 14))
    ]
    limit = rng.choice((150, 250, 400, 700))
    levels: list[str | list[str]] = [
        f"p100 latency <= {limit} ms",
        [f"p{rng.choice((60, 80))} latency <= {limit} ms", f"p100 latency <= {3 * limit} ms"],
        [f"mean latency <= {limit} ms", f"p90 time per token <= {rng.randint(6, 25)} ms"],
    ]
    price = {"price_per_hour": 8} if rng.random() < 0.5 else {}
    return pool(requests, modes, rng.choice(levels), count=2, gpus_per_server=gpus, **price)


@pytest.mark.parametrize("seed", by_day(range(20), 2))
def test_as_cheap_as_the_cheapest_fleet_of_all_and_no_floor_above_one_that_meets_the_level(seed: int) -> None:
    document = draw(random.Random(seed))
    answer = tn.servers(scenario_from(document), policies=["least_delay", "least_tokens"])
    found = dict[str, int]()
    for servers, each in fleets(document, 2):
        for policy in ("least_delay", "least_tokens"):
            ran = tn.simulate(each, policy)
            if meets(ran.truth, ran.timeline, answer.levels):
                found.setdefault(policy, servers)
                assert answer.lower_bound is not None
                assert servers >= answer.lower_bound
    assert {row.policy: sum(row.mix) for row in answer.policies if row.mix is not None} == found
    for row in answer.policies:
        if row.mix is not None:  # what is ordered does what it says
            ran = tn.simulate(answer.sizes.at(row.mix), row.policy)
            assert meets(ran.truth, ran.timeline, answer.levels)


def test_an_order_is_written_as_a_scenario_that_runs_and_its_refutation_is_computed_again(tmp_path: Path) -> None:
    """Six at once within 200 ms: two servers of [1, 1], of which one serves two each; one server is refuted."""
    asked = tmp_path / "pool.json"
    asked.write_text(json.dumps(pool([(0, 100, 1)] * 6, TWO, "p100 latency <= 200 ms", price_per_hour=8)))
    answer = tn.servers(asked)
    write(answer, tmp_path / "fleet")
    ordered = tn.load(tmp_path / "fleet" / "recommended.json")
    assert answer.recommended is not None
    ran = tn.simulate(ordered, answer.recommended.policy)
    assert scenario_hash(ordered.instance) == scenario_hash(answer.sizes.at(answer.recommended.mix).instance)
    assert ran.metrics == answer.recommended.metrics
    assert tn.verify(tmp_path / "fleet" / "too_few.json", tmp_path / "fleet" / "certificate.json").valid
    assert not tn.check(tmp_path / "fleet" / "enough.json", tmp_path / "fleet" / "plan.json").violations
    said = describe_size(answer.record(), answer.record().alternatives[0].size)
    assert said == "2 2xA (engines of 1 + 1 GPUs) at 16 per hour"
    assert "2 2xA (engines of 1 + 1 GPUs) at 16 per hour" in answer_in_words(answer.record())


def test_engines_are_nodes_of_their_own_kind() -> None:
    """The same requests on servers of one GPU that has the memory and the load bandwidth of four: the same times."""
    asked = pool([(0, 100, 5), (10, 300, 9), (20, 50, 3)], [mode(4, 2500, 4)], "p100 latency <= 1 s", count=1)
    asked["models"] = {"base": {"weights": "24 GB"}}  # more than two GPUs hold
    asked["streams"]["chat"]["models"] = ["base"]
    (group,) = asked["cluster"]["groups"]
    asked["cluster"]["groups"] = [group | {"gpus_per_server": 8, "engines": [4, 4]}]
    whole = json.loads(json.dumps(asked))
    single = {"kind": "4xA", "memory": "40 GB", "load_bandwidth": "4 GB/s"}
    whole["cluster"]["groups"] = [{"count": 2, "gpu": single}]
    engines, nodes = (tn.simulate(scenario_from(each), "least_tokens") for each in (asked, whole))
    assert [gpu.id for gpu in engines.instance.cluster.gpus] == ["s0/g0-3", "s0/g4-7"]
    assert engines.timeline.end_us.tolist() == nodes.timeline.end_us.tolist()
    assert (engines.metrics.gpus_used, nodes.metrics.gpus_used) == (8, 2)
    assert engines.metrics.compute_busy == pytest.approx(nodes.metrics.compute_busy)
    loads = [each for each in engines.timeline.residencies if each.load_start_us == 0]
    assert {each.ready_us for each in loads} == {6_000_000}  # 6 GB a GPU, all four at once


def test_busy_counts_the_gpus_of_an_engine() -> None:
    """A pair computes for 66.667 ms and the single GPU of its server for 100 ms, beside one that idles."""
    asked = pool([(0, 100, 1), (0, 100, 1)], TWO, "p100 latency <= 1 s", count=1, gpus_per_server=4, engines=[2, 1])
    ran = tn.simulate(scenario_from(asked), "round_robin")
    assert ran.metrics.compute_busy == pytest.approx((2 * 66.667 + 100) / (3 * 100), rel=1e-6)


def test_an_instance_is_written_with_its_engines() -> None:
    asked = scenario_from(pool([(0, 100, 5)], TWO, "p100 latency <= 1 s", engines=[2]))
    again = scenario_from(document_of(asked.instance))
    assert scenario_hash(again.instance) == scenario_hash(asked.instance)


def test_layouts_leave_no_room() -> None:
    assert layouts(8, [1, 2, 4, 8])[:3] == [(8,), (4, 4), (4, 2, 2)]
    assert len(layouts(8, [1, 2, 4, 8])) == 10
    assert layouts(8, [3]) == [(3, 3)]
    # 2 a + 4 b = 16: one packing for each number of engines of 4, of the two servers that hold them.
    assert len(Pool(0, tuple(layouts(8, [2, 4])), 2, True).fleets(2, packed_alike=True, limit=99)) == 1 + 3 + 5


def test_any_server_may_be_gone_with_all_its_engines() -> None:
    """Four within 100 ms take two servers of [1, 1]; with one of them gone, three."""
    answer = tn.servers(scenario_from(pool([(0, 100, 1)] * 4, TWO, "p100 latency <= 100 ms")), spare=1)
    assert answer.recommended is not None
    assert (sum(answer.recommended.mix), answer.lower_bound) == (3, 3)


@pytest.mark.parametrize("ask", [tn.plan, tn.bound, tn.compare, lambda each: tn.simulate(each, "least_tokens")])
def test_without_engines_only_servers_answers(ask: Any) -> None:
    asked = scenario_from(pool([(0, 100, 1)], TWO, "p100 latency <= 1 s"))
    with pytest.raises(UnsupportedInstanceError, match=r"streams have modes, .* write engines .* \[4, 4\], or ask"):
        ask(asked)
    assert ask(asked.changed({"cluster.groups[0].engines": [2]})) is not None


@pytest.mark.parametrize(
    ("cluster", "message"),
    [
        ({"engines": [2, 1]}, "cluster.groups[0].engines: take 3 GPUs together; allowed are at most the 2 of a server"),
        (
            {"gpus_per_server": 4, "engines": [3, 1]},
            "cluster.groups[0].engines: has an engine of 3 GPUs, for which no stream has a mode; allowed are 1, 2",
        ),
        ({"engines": []}, "cluster.groups[0].engines: is empty; allowed is at least one engine"),
        (
            {"gpu": {"kind": "A", "slots": ["5 GB"], "load_bandwidth": "1 GB/s"}, "engines": [2]},
            "cluster.groups[0].engines: has slots and engines of 2 GPUs; allowed is memory in place of slots",
        ),
    ],
)
def test_engines_that_no_server_has(cluster: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as refused:
        scenario_from(pool([(0, 100, 1)], TWO, "p100 latency <= 1 s", **cluster))
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("stream", "message"),
    [
        ({"modes": [TWO[0], TWO[0]]}, "streams.chat.modes: has two modes of 1 GPUs; allowed is one for each number"),
        ({"modes": TWO, "chunk": 5}, "streams.chat.chunk: has modes and chunk; allowed is chunk inside the modes"),
        ({}, "streams.chat: has none of prefill, modes; allowed is exactly one of prefill, modes"),
        ({"modes": [{"gpus": 2, "prefill": "1 /s"}]}, "streams.chat.modes[0]: key 'chunk' is missing"),
        (
            {"modes": [TWO[1] | {"weights": "copy"}]},
            "streams.chat.modes[0].weights: 'copy' is unknown; allowed are split",
        ),
        ({"modes": [mode(4, 9000, 3)]}, "cluster.groups[0]: no mode of a stream suits 2 A of a server"),
    ],
)
def test_modes_that_no_engine_has(stream: dict[str, Any], message: str) -> None:
    asked = pool([(0, 100, 1)], TWO, "p100 latency <= 1 s")
    with pytest.raises(InputError) as refused:
        scenario_from(asked | {"streams": {"chat": stream}})
    assert message in str(refused.value)


def test_what_holds_for_every_kind_is_refused_beside_engines_of_several_gpus() -> None:
    """A task that says no kind would run on four GPUs as fast as on one."""
    asked = pool([(0, 100, 1)], TWO, "p100 latency <= 1 s", engines=[2])
    asked["workflows"]["other"] = {"tasks": {"embed": {"runtime": "5 ms"}}}
    with pytest.raises(
        InputError, match=r"holds for every kind of GPU, and engines of 2 GPUs .* '2xA'; name kinds, such"
    ):
        scenario_from(asked)
    asked["workflows"]["other"]["tasks"]["embed"]["runtime"] = {"A": "5 ms"}
    asked["cluster"]["groups"][0] |= {"gpus_per_server": 3, "engines": [2, 1]}
    assert [gpu.kind for gpu in scenario_from(asked).cluster.gpus] == ["2xA", "A"] * 3


def test_what_is_not_known_of_engines_to_be_chosen_is_refused() -> None:
    asked = pool([(0, 100, 1)], TWO, "p100 latency <= 1 s")
    with pytest.raises(QuestionError, match="engines of several GPUs"):
        tn.servers_by(scenario_from(asked), "1 s")
    with pytest.raises(InputError, match="names servers or GPUs, which other engines would number anew"):
        tn.servers(scenario_from(asked | {"restrictions": {"forbid": [{"workflow": "chat", "on": ["s2"]}]}}))


def test_a_catalogue_with_modes_makes_a_pool(tmp_path: Path) -> None:
    """No GPU holds the model alone: engines of two and of four do."""
    catalogue = {
        "kinds": {"A": {"memory": "10 GB", "load_bandwidth": "1 GB/s", "gpus_per_server": 4, "count": 2}},
        "models": {"large": {"weights": "15 GB", "stream": {"modes": [*TWO, mode(4, 2500, 4)]}}},
    }
    (tmp_path / "catalogue.json").write_text(json.dumps(catalogue))
    rows = [{"queued_ts": 0.1 * at, "input_toks": 100, "output_toks": 5} for at in range(4)]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, rows)))
    made = tn.import_trace("tokens", [tmp_path / "log.jsonl"], catalogue=tmp_path / "catalogue.json")
    made.save(tmp_path / "scenario.yaml")
    scenario = tn.load(tmp_path / "scenario.yaml")
    assert {gpu.kind for gpu in scenario.cluster.gpus} == {"2xA", "4xA"}
    assert [mode.gpus for mode in scenario.document.streams["large"].modes or ()] == [1, 2, 4]


def test_replications_and_sweeps_ask_about_pools_too(tmp_path: Path) -> None:
    asked = pool([], TWO, "p100 latency <= 200 ms")
    asked["workload"] = {"poisson": {"rate": "8 /s", "jobs": 6, "seed": 1}}
    asked["workflows"]["chat"]["tasks"]["answer"] |= {"prompt": 100, "output_tokens": 2}
    (tmp_path / "pool.json").write_text(json.dumps(asked))
    made = tn.replicate_servers(tmp_path / "pool.json", 2, policies=["least_delay"], time_limit="20 s")
    assert not made.sweep.errors
    swept = tn.whatif(tmp_path / "pool.json", {"cluster.groups[0].engines": [[2], [1, 1]]}, policy="least_delay")
    assert not swept.errors
