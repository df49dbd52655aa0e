"""Prefill apart from decode, or not, and in which ratio: against the simulation of every fleet, written out by hand."""

from __future__ import annotations

import json
import random
from fractions import Fraction
from itertools import product
from math import ceil
from pathlib import Path
from typing import Any

import pytest

import truenorth as tn
from tests.night import by_day
from tests.planner.answers.servers.test_manifests import documents, validate
from truenorth.models import InstanceError, ServiceLevels
from truenorth.models.record import encode
from truenorth.models.scenario import InputError, scenario_from
from truenorth.planner.answers.servers.answer import write
from truenorth.planner.answers.servers.engines import NoEnginesError
from truenorth.planner.show.servers_words import answer_in_words

POLICY = "least_tokens"
Requests = list[tuple[int, int, int]]


def law(kinds: list[str], rates: dict[str, int]) -> dict[str, Any]:
    """Return how a class is served on some kinds; the last word of one says what of a request it does."""
    return {
        "prefill": {kind: f"{rates[kind.split()[0]]} /s" for kind in kinds},
        "chunk": 100,
        "concurrency": 4,
        "step": {1: "10 ms", 4: "25 ms"},
        "kv_per_token": "10 KB",
    }


def cluster(kinds: list[str], prices: dict[str, float], counts: list[int]) -> dict[str, Any]:
    groups = [
        {
            "count": count,
            "gpu": {"kind": kind, "memory": "1 GB", "load_bandwidth": "1 GB/s"},
            **({"price_per_hour": prices[kind.split()[0]]} if prices else {}),
        }
        for kind, count in zip(kinds, counts, strict=True)
        if count
    ]
    return {"groups": groups, "network": {"bandwidth": "100 MB/s"}}


def together(requests: Requests, rates: dict[str, int], prices: dict[str, float], counts: list[int]) -> dict[str, Any]:
    jobs = [
        {"release": f"{release} ms", "workflow": "chat", "tokens": {"answer": [prompt, prompt, output]}}
        for release, prompt, output in requests
    ]
    return {
        "cluster": cluster(list(rates), prices, counts),
        "streams": {"chat": law(list(rates), rates)},
        "workflows": {"chat": {"tasks": {"answer": {"stream": "chat"}}}},
        "workload": {"jobs": jobs},
    }


def apart(requests: Requests, rates: dict[str, int], prices: dict[str, float], counts: list[int]) -> dict[str, Any]:
    """Return the same with prefill apart from decode, counts of both for each kind in turn; answers have two tokens."""
    kinds = [f"{kind} {role}" for kind in rates for role in ("prefill", "decode")]
    jobs = [
        {
            "release": f"{release} ms",
            "workflow": "chat",
            "tokens": {"prefill": [prompt, prompt, 1], "decode": [prompt + 1, 0, output - 1]},
        }
        for release, prompt, output in requests
    ]
    tasks = {
        "prefill": {"stream": "chat prefill", "first_token": True},
        "decode": {"stream": "chat decode", "after": {"prefill": "kv"}},
    }
    return {
        "cluster": cluster(kinds, prices, counts),
        "streams": {
            "chat prefill": law(kinds[::2], rates),
            "chat decode": law(kinds[1::2], rates),
        },
        "workflows": {"chat": {"tasks": tasks}},
        "workload": {"jobs": jobs},
    }


def reached(data: dict[str, Any], levels: ServiceLevels, rates: dict[str, int]) -> float | None:
    """Return the mean latency on a fleet that meets the levels, as a user measures them; None on one that does not."""
    try:
        scenario = scenario_from(data)
        ran = tn.simulate(scenario, POLICY)
    except (InputError, InstanceError):
        return None
    instance, served = scenario.instance, ran.timeline.served
    assert served is not None
    figures: dict[str, list[Fraction]] = {"latency": [], "first token": [], "time per token": [], "slowdown": []}
    for job, given in enumerate(instance.jobs):
        tasks, said = instance.tasks_of(job), list((given.tokens or {}).values())
        prompt, output = said[0].prompt, sum(tokens.output for tokens in said)
        first, end = int(served.first_us[tasks.start]), int(ran.timeline.end_us[tasks.stop - 1])
        alone_us = min(10**6 * prompt // rate for rate in rates.values()) + (output - 1) * 10_000
        figures["latency"].append(Fraction(end - given.release_us))
        figures["first token"].append(Fraction(first - given.release_us))
        figures["time per token"].append(Fraction(end - first, output - 1))
        figures["slowdown"].append(Fraction(end - given.release_us, alone_us))
    for level in levels:
        values = sorted(figures[level.measure])
        mean = sum(values) / len(values)
        value = mean if level.share is None else values[ceil(level.share * len(values)) - 1]
        if value > level.limit:
            return None
    return ran.metrics.mean_latency_s


def draw(seed: int) -> tuple[Requests, dict[str, int], dict[str, float], ServiceLevels]:
    rng = random.Random(seed)
    requests, release = list[tuple[int, int, int]](), 0
    for _ in range(rng.randint(10, 30)):
        release += rng.choice((0, 40, 90, 200))
        requests.append((release, rng.randint(50, rng.choice((150, 500))), rng.randint(2, rng.choice((8, 40)))))
    rates = {"A": 1000, "B": 2500} if seed % 3 == 2 else {"A": 1000}
    prices = {"A": 2.0, "B": 3.0} if seed % 3 else {}
    levels = rng.choice(
        (
            [f"p90 latency <= {rng.choice((500, 800, 1200))} ms", "p100 latency <= 5 s"],
            [f"p90 first token <= {rng.choice((400, 700, 1200))} ms", f"p90 latency <= {rng.choice((1, 2))} s"],
            [f"mean latency <= {rng.choice((600, 900, 1500))} ms"],
        )
    )
    # What is measured alike in both forms, though not by the parts of one of them.
    if seed >= 20:
        levels = rng.choice(
            (
                [f"p90 time per token <= {rng.choice((20, 40, 80))} ms", f"p100 latency <= {rng.choice((2, 5))} s"],
                [f"p90 time per token <= {rng.choice((20, 40))} ms", f"p90 first token <= {rng.choice((400, 900))} ms"],
                [f"mean time per token <= {rng.choice((15, 25, 40))} ms"],
                [f"p90 slowdown <= {rng.choice((2, 3, 5))}"],
                [f"mean slowdown <= {rng.choice((1.5, 2, 3))}"],
            )
        )
    return requests, rates, prices, ServiceLevels.parse(*levels)


@pytest.mark.parametrize("seed", by_day([*range(3), *range(20, 24), *range(3, 20), *range(24, 60)], 7))
def test_the_cheapest_fleet_of_both_forms(seed: int) -> None:
    requests, rates, prices, levels = draw(seed)
    most = 4 if len(rates) == 1 else 2
    found = list[tuple[Any, ...]]()
    for form, sorts in ((together, len(rates)), (apart, 2 * len(rates))):
        for counts in map(list, product(range(most + 1), repeat=sorts)):
            width = sorts // len(rates)
            sums = [sum(counts[at : at + width]) for at in range(0, sorts, width)]
            if not 0 < max(sums) <= most:
                continue
            latency_s = reached(form(requests, rates, prices, counts), levels, rates)
            cost = (
                sum(count * price for count, price in zip(sums, prices.values(), strict=False)) if prices else sum(sums)
            )
            if latency_s is not None:
                found.append((cost, sum(sums), form is apart, latency_s, counts))
    given = scenario_from(together(requests, rates, prices, [most] * len(rates)))
    answer = tn.servers(given, levels, policies=[POLICY], split=True, time_limit=60)
    best = answer.recommended
    assert (best is None) == (not found)
    if best is not None:
        *_, form_apart, latency_s, counts = min(found)
        assert (answer.sizes.split, list(best.mix)) == (form_apart, counts)
        assert best.metrics.mean_latency_s == latency_s
    # No floor above what any fleet of either form serves.
    record = answer.record()
    least = min(found)[0] if found else None
    floor = record.minimum.lower_bound_price_per_hour if prices else record.minimum.lower_bound
    assert least is None or floor is None or floor <= least + 1e-9
    if record.minimum.proved:
        assert answer.mix is not None
        assert float(answer.cost(answer.mix)) <= (least if least is not None else float("inf"))


STEADY = [(200 * at, 300, 20) for at in range(30)]
"""Five requests a second: 0.3 s of prefill each, which makes steps of 10 ms into some of 110 ms beside it."""
SLO = ServiceLevels.parse("p95 latency <= 600 ms", "p95 first token <= 2 s")


def test_what_is_ordered_is_said_and_written(tmp_path: Path) -> None:
    given = scenario_from(together(STEADY, {"A": 1000}, {"A": 2.0}, [4]))
    answer = tn.servers(given, SLO, policies=[POLICY], split=True, time_limit=20)
    best = answer.recommended
    assert best is not None
    assert answer.sizes.split
    assert best.mix == (2, 1)  # 5 x 0.3 s of prefill a second
    said = answer_in_words(answer.record())
    fleet = "2 A prefill + 1 A decode at 6 per hour"
    assert f"needs {fleet}" in said
    forms = f"Prefill and decode on the same nodes: 4 A at 8 per hour; on nodes apart: {fleet}; apart is recommended."
    assert forms in said
    write(answer, tmp_path)
    document = json.loads((tmp_path / "answer.json").read_text())
    assert document["split"] == {
        "chosen": True,
        "together": {"servers": 4, "price_per_hour": 8.0, "kinds": {"A": 4}, "policy": POLICY},
        "apart": {"servers": 3, "price_per_hour": 6.0, "kinds": {"A prefill": 2, "A decode": 1}, "policy": POLICY},
    }
    assert document["command"].endswith("--split")
    read = tn.load(tmp_path / "recommended.json")
    assert tn.simulate(read, POLICY).metrics == best.metrics
    assert [(each["stream"], each["role"], each["gpu"], each["replicas"]) for each in document["engines"]] == [
        ("chat", "prefill", "A", 2),
        ("chat", "decode", "A", 1),
    ]
    # Both ends of the connector say the same, and are found at the addresses of their pods; Ray's own app is another.
    texts = documents(tmp_path)
    validate(texts)
    assert [each["metadata"]["name"] for each in texts] == [
        *("chat-prefill", "chat-decode", "chat-prefill-a", "chat-decode-a"),
    ]
    for each in texts[2:]:
        container = each["spec"]["template"]["spec"]["containers"][0]
        assert '--kv-transfer-config={"kv_connector":"NixlConnector","kv_role":"kv_both"}' in container["args"]
        assert "--served-model-name=chat" in container["args"]
        (address,) = container["env"]
        assert address["name"] == "VLLM_NIXL_SIDE_CHANNEL_HOST"
    assert not (tmp_path / "ray_serve.yaml").exists()
    assert "apart is recommended" in str(tn.report([tmp_path]).sections)


def test_a_refutation_is_of_a_fleet_of_both_roles_if_there_is_one() -> None:
    """Of B at 5 and A at 2 one B alone is dearer than two A, and says nothing but that it lacks a role."""
    given = scenario_from(together(STEADY, {"A": 1000, "B": 1000}, {"A": 2.0, "B": 5.0}, [4, 1]))
    answer = tn.servers(given, SLO, policies=[POLICY], split=True, time_limit=20)
    sizes = (answer if answer.sizes.split else answer.beside or answer).sizes
    assert [sizes.lacks_a_role(mix) for mix in ((0, 0, 1, 0), (2, 0, 1, 0), (1, 1, 0, 0), (1, 0, 0, 1))] == [
        *(True, True, False, False),
    ]
    assert max([(1, 1, 0, 0), (0, 0, 1, 0)], key=sizes.explains) == (1, 1, 0, 0)
    apart = answer if answer.sizes.split else answer.beside
    assert apart is not None
    alone = [done for done in apart.refutations if sizes.lacks_a_role(done.mix)]
    assert {done.forces for done in alone} == {"Every fleet needs nodes of both roles, prefill and decode"}


def test_mere_servers_are_as_many_as_are_needed() -> None:
    data = together(STEADY, {"A": 1000}, {}, [1])
    (group,) = data["cluster"].pop("groups")
    data["cluster"] |= {"servers": 1, "gpu": group["gpu"]}
    answer = tn.servers(scenario_from(data), SLO, policies=[POLICY], split=True, time_limit=20)
    assert answer.recommended is not None
    assert answer.recommended.mix == (2, 1)


def test_each_role_with_a_server_to_spare() -> None:
    given = scenario_from(together(STEADY, {"A": 1000}, {"A": 2.0}, [7]))
    answer = tn.servers(given, SLO, policies=[POLICY], split=True, spare=1, time_limit=40)
    assert answer.beside is not None
    found = [each.recommended for each in (answer, answer.beside)]
    # Of one price nodes that do both come first.
    assert [each and each.mix for each in found] == [(5,), (3, 2)]


def test_a_request_too_long_alone_is_so_in_both_forms() -> None:
    given = scenario_from(together([(0, 300, 20)], {"A": 1000}, {}, [2]))
    answer = tn.servers(given, ServiceLevels.parse("p100 first token <= 200 ms"), split=True)
    assert answer.impossible
    assert answer.beside is None


def test_what_no_kind_does_alone_two_may_do_apart() -> None:
    """A is quick with prompts, B with answers: on either alone the request takes 9.91 s, on both together 0.11 s."""
    given = together([(0, 1000, 100)], {"A": 100_000, "B": 100}, {"A": 2.0, "B": 2.0}, [2, 2])
    given["streams"]["chat"]["step"] = {"A": {1: "100 ms", 4: "100 ms"}, "B": {1: "1 ms", 4: "1 ms"}}
    for kind, count in (("chunk", 100), ("concurrency", 4), ("kv_per_token", "10 KB")):
        given["streams"]["chat"][kind] = {"A": count, "B": count}
    levels = ServiceLevels.parse("p100 latency <= 3 s")
    assert tn.servers(scenario_from(given), levels, policies=[POLICY], time_limit=10).impossible
    answer = tn.servers(scenario_from(given), levels, policies=[POLICY], split=True, time_limit=10)
    assert not answer.impossible
    assert answer.mix == (1, 0, 0, 1)
    assert answer.proved
    # KV takes 0.1 s besides: 0.209 s of the 9.91 s that it takes alone on A.
    for level in ("p100 slowdown <= 0.0211", "p100 time per token <= 20 ms"):
        answer = tn.servers(
            scenario_from(given), ServiceLevels.parse(level), policies=[POLICY], split=True, time_limit=10
        )
        assert answer.mix == ((1, 0, 0, 1) if "slowdown" in level else (0, 1))


def test_a_role_with_too_few_nodes_is_named() -> None:
    """Until 1.9 s come 20 prompts of 300 tokens, at 1000 a second 6 s of work, or 60 steps of 4 in 25 ms, 0.375 s.

    With few tokens of prompt and many of answers it is the other way round: 20 prompts of 10 take 0.2 s, and 900 tokens
    in steps of 4 take 5.625 s. Of nodes that do both, two have as much to do.
    """
    levels = ServiceLevels.parse("p95 latency <= 2 s")
    for tokens, role, share in (((300, 4), "prefill", 6 / 1.9), ((10, 46), "decode", 5.625 / 1.9)):
        given = together([(100 * job, *tokens) for job in range(20)], {"A": 1000}, {"A": 2.0}, [2])
        answer = tn.servers(scenario_from(given), levels, policies=[POLICY], split=True, time_limit=10)
        form = encode(answer.record())["split"]["apart"]
        assert form["closest"] == {"A prefill": 1, "A decode": 1}
        assert form["loads"][role] == pytest.approx(share, rel=1e-4)
        assert [name for name, load in form["loads"].items() if load > 1] == [role]
        said = f"overloaded: {role} has {share:.0%} of the work that its nodes can do until the last arrival)"
        assert said in answer_in_words(answer.record())


def test_agents_are_refused() -> None:
    with pytest.raises(InputError, match="is no single request of a stream; prefill apart from decode is for jobs"):
        tn.servers("experiments/scenarios/agents.yaml", "p95 latency <= 1 min", split=True)


def test_engines_of_other_classes_that_send_kv_are_not_written_down() -> None:
    data = apart(STEADY[:4], {"A": 1000}, {"A": 2.0}, [1, 1])
    for old, new in (("chat prefill", "first"), ("chat decode", "rest")):
        data["streams"][new] = data["streams"].pop(old)
    data["workflows"]["chat"]["tasks"]["prefill"]["stream"] = "first"
    data["workflows"]["chat"]["tasks"]["decode"]["stream"] = "rest"
    answer = tn.servers(scenario_from(data), ServiceLevels.parse("p100 latency <= 9 s"), policies=[POLICY])
    with pytest.raises(NoEnginesError, match="and first is no class of prefill or decode by --split"):
        assert answer.engines
