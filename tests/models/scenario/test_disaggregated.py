"""Prefill apart from decode: what a scenario becomes, derived by hand, and what a request alone takes."""

from __future__ import annotations

import random
from typing import Any

import pytest

import truenorth as tn
from truenorth.models import Tokens
from truenorth.models.metrics import StreamMetrics
from truenorth.models.scenario import InputError, Scenario, scenario_from
from truenorth.models.scenario.disaggregated import disaggregate

LAW: dict[str, Any] = {
    "prefill": "1000 /s",
    "chunk": 500,
    "concurrency": 4,
    "step": {1: "10 ms", 4: "20 ms"},
    "kv_per_token": "1 KB",
}


def chat(jobs: list[dict[str, Any]], law: dict[str, Any] = LAW, **more: Any) -> Scenario:
    gpu = {"kind": "A", "memory": "1 GB", "load_bandwidth": "1 GB/s"}
    return scenario_from(
        {
            "name": "chat",
            "cluster": {"servers": 1, "gpu": gpu, "network": {"bandwidth": "1 MB/s", "latency": "1 ms"}},
            "streams": {"chat": law},
            "workflows": {"chat": {"tasks": {"answer": {"stream": "chat"}}, "deadline": "9 s"}},
            "workload": {"jobs": jobs},
            **more,
        }
    )


def request(prompt: int, output: int, uncached: int | None = None, release: str = "0 s") -> dict[str, Any]:
    tokens = [prompt, prompt if uncached is None else uncached, output]
    return {"release": release, "workflow": "chat", "tokens": {"answer": tokens}}


def served(scenario: Scenario) -> StreamMetrics:
    metrics = tn.simulate(scenario, "least_tokens").metrics
    assert isinstance(metrics, StreamMetrics)
    return metrics


def test_first_token_and_latency_are_those_of_the_request() -> None:
    metrics = served(disaggregate(chat([request(800, 5)])))
    # 500 and 300 prompt tokens at 1,000 /s: 0.8 s. KV of 800 tokens is 800 KB: 1 ms + 0.8 s. Then 4 steps of 10 ms.
    assert (metrics.p50_first_token_s, metrics.p50_latency_s) == (0.8, 1.641)
    assert (metrics.tasks, metrics.output_tokens) == (2, 5)


def test_what_is_cached_is_not_computed_and_sent_all_the_same() -> None:
    metrics = served(disaggregate(chat([request(800, 5, uncached=100)])))
    assert (metrics.p50_first_token_s, metrics.p50_latency_s) == (0.1, 0.941)


def test_groups_classes_places_and_jobs() -> None:
    more: dict[str, Any] = {
        "models": {"llm": {"weights": "1 MB"}},
        "streams": {"chat": LAW | {"models": ["llm"], "fitted": {"log": "a.csv"}}},
        "options": {"initial_residency": [{"gpu": "s0/g0", "model": "llm"}]},
        "restrictions": {"pin": [{"model": "llm", "on": ["group 1"]}]},
        "slo": "p95 latency of chat <= 2 s",
    }
    given = chat([request(800, 5), request(700, 1, release="1 s") | {"weight": 2, "priority": 3}], **more)
    made = disaggregate(given)
    assert [(gpu.id, gpu.kind) for gpu in made.cluster.gpus] == [("s0/g0", "A prefill"), ("s1/g0", "A decode")]
    assert [stream.name for stream in made.instance.streams.classes] == ["chat prefill", "chat decode"]  # type: ignore[union-attr]
    assert [held.gpu for held in made.instance.initial] == [0, 1]
    assert made.instance.restrictions.model_gpus == {"llm": frozenset({0, 1})}
    assert (made.name, made.slo, made.objective) == (given.name, given.slo, given.objective)
    both, short = made.jobs
    assert both.tokens == {"prefill": Tokens(800, 800, 1), "decode": Tokens(801, 0, 4)}
    # An answer of one token is the prefill's: the job takes the branch without decode.
    assert short.tokens == {"prefill": Tokens(700, 700, 1)}
    assert [task.name for task in short.workflow.tasks] == ["prefill"]
    assert (short.release_us, float(short.weight), short.priority, short.deadline_us) == (1_000_000, 2, 3, 9_000_000)
    assert [branch.probability for branch in made.workflows[0].branches] == [0.5, 0.5]


def test_where_every_answer_is_one_token_there_is_no_decode() -> None:
    (workflow,) = disaggregate(chat([request(800, 1)])).workflows
    assert [task.name for task in workflow.tasks] == ["prefill"]


@pytest.mark.parametrize("seed", range(20))
def test_alone_and_without_transfers_a_request_takes_what_it_takes_on_one_node(seed: int) -> None:
    rng = random.Random(seed)
    law = LAW | {"kv_per_token": "0 B", "context": f"{rng.choice((0, 1, 3))} us", "mixed": f"{rng.choice((0, 7))} us"}
    law |= {"budget": rng.choice(("shared", "separate")), "kv": rng.choice(("grows", "reserved"))}
    given = chat([request(rng.randint(1, 1500), rng.randint(1, 60))], law)
    network = {"cluster.network.latency": "0 s"}
    one, two = (served(each) for each in (given, disaggregate(given).changed(network)))
    assert (one.p50_latency_s, one.p50_first_token_s) == (two.p50_latency_s, two.p50_first_token_s)
    assert one.mean_slowdown == two.mean_slowdown == 1


def test_engines_of_several_gpus_keep_their_modes() -> None:
    law = {"modes": [{"gpus": 1, **LAW}, {"gpus": 2, **LAW, "prefill": "3000 /s"}]}
    gpu = {"kind": "A", "memory": "1 GB", "load_bandwidth": "1 GB/s"}
    cluster = {"servers": 1, "gpus_per_server": 2, "engines": [2], "gpu": gpu, "network": {"bandwidth": "1 GB/s"}}
    made = disaggregate(chat([request(600, 2)], law, cluster=cluster))
    assert [gpu.kind for gpu in made.cluster.gpus] == ["2xA prefill", "2xA decode"]
    # 500 and 100 tokens at 3,000 /s: 166.667 and 33.334 ms, rounded up.
    assert served(made).p50_first_token_s == 0.200001


@pytest.mark.parametrize("name", ["agents", "paper_small"])
def test_jobs_that_are_no_single_request_are_refused(name: str) -> None:
    scenario = tn.load(f"experiments/scenarios/{name}.yaml")
    with pytest.raises(InputError, match=r"workflows\.\S+: is no single request of a stream; prefill apart"):
        disaggregate(scenario)
