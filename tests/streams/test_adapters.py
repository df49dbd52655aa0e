"""Adapters of a language model: requests of all of them run together, and each is a model of its own in memory."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from tests.streams.worlds import cluster
from truenorth.executor import parse_policy, simulate
from truenorth.models import (
    Instance,
    Job,
    MLModel,
    Objective,
    StreamClass,
    Task,
    Timeline,
    Tokens,
    Workflow,
    check,
    scenario_hash,
)
from truenorth.models.errors import UserError
from truenorth.models.objective import completion_us
from truenorth.models.scenario import scenario_from
from truenorth.models.scenario.writing import document_of
from truenorth.models.streams import StreamSpeed
from truenorth.solvers.result import Search
from truenorth.solvers.search import queues

NAMES = ("a", "b", "c")


def served(requests: list[tuple[int, str]], memory: int, seats: int = 2, output: int = 2) -> Instance:
    """Return requests of a class of 100 bytes (100 us to load) with adapters of 20 (20 us); no name, no adapter.

    A prompt takes 10 us, and every token behind the first 10 us, however many decode.
    """
    speed = StreamSpeed(Fraction(1_000_000), 10, seats, {1: 10, seats: 10})
    chat = StreamClass("chat", {"A": speed}, ("base",), adapters=tuple(f"chat/{name}" for name in NAMES))
    flows = {
        name: Workflow(name or "plain", (Task.of_stream("t", chat, adapter=f"chat/{name}" if name else None),))
        for name in ("", *NAMES)
    }
    jobs = tuple(Job(flows[name], release, tokens={"t": Tokens(10, 10, output)}) for release, name in requests)
    return Instance(cluster(1, memory), (MLModel("base", 100), *(MLModel(f"chat/{n}", 20) for n in NAMES)), jobs)


def run(instance: Instance, policy: str = "least_tokens") -> tuple[list[int], Timeline]:
    timeline = simulate(instance, parse_policy(policy))
    assert not check(instance, timeline)
    return [int(end) for end in completion_us(instance, timeline)], timeline


def test_requests_of_several_adapters_run_together() -> None:
    """Base and `a` are ready at 120, when the first joins; `b` is ready at 140, when the first ends: 130, and 140.

    The second: prompt from 140 to 150, its other token at 160. With longer answers (10 tokens) both run together: the
    first until 130 + 9 x 10 and, as the second's prompt delays it once, 230; the second's first token comes at 160, its
    last 90 later.
    """
    instance = served([(0, "a"), (0, "b")], 1_000)
    assert run(instance)[0] == [140, 160]
    assert run(served([(0, "a"), (0, "b")], 1_000, output=10))[0] == [230, 250]


def test_an_adapter_in_use_stays_and_an_idle_one_makes_room() -> None:
    """With room for one adapter `b` waits until the last request of `a` has ended, though the first ended before.

    Base and `a` are there at 120. The first has its tokens at 130 and 150, as the second's prompt is in that iteration;
    the second at 150 and 160. `b` is loaded until 180, and ends at 200.
    """
    ends, timeline = run(served([(0, "a"), (0, "a"), (0, "b")], 130))
    assert ends == [150, 160, 200]
    stay = next(each for each in timeline.residencies if each.model == 1)
    assert stay.end_us == 160


def test_a_request_without_an_adapter_needs_the_class_alone() -> None:
    """The base is ready at 100, and no adapter is loaded."""
    ends, timeline = run(served([(0, "")], 1_000))
    assert (ends, len(timeline.residencies)) == ([120], 1)


def test_the_checker_wants_the_adapter_while_its_request_is_served() -> None:
    instance = served([(0, "a"), (0, "b")], 1_000, output=10)
    timeline = run(instance)[1]
    short = tuple(replace(each, end_us=150) if each.model == 2 else each for each in timeline.residencies)
    assert [each.rule for each in check(instance, replace(timeline, residencies=short))] == ["R3"]


@pytest.mark.parametrize("seed", range(60))
def test_draws_keep_every_rule(seed: int) -> None:
    rng = random.Random(seed)
    requests = sorted((rng.randint(0, 300), rng.choice(("", *NAMES))) for _ in range(20))
    instance = served(requests, rng.choice((125, 145, 170)), rng.randint(1, 4), rng.randint(1, 6))
    ends, _ = run(instance, rng.choice(("least_tokens", "least_work", "round_robin", "turns")))
    assert all(end > release for end, (release, _) in zip(ends, requests, strict=True))


def data() -> dict[str, Any]:
    """Return a scenario of two requests with adapters of one class."""
    stream = {"models": ["base"], "prefill": "1000 /s", "chunk": 10, "concurrency": 2, "step": {1: "1 ms", 2: "1 ms"}}
    resident = ("base", "chat/law", "chat/tax")
    return {
        "cluster": {"servers": 1, "gpu": {"kind": "A", "memory": "1 GB", "load_bandwidth": "1 GB/s"}},
        "models": {"base": {"weights": "100 MB"}},
        "streams": {"chat": {**stream, "adapters": {"law": {"weights": "20 MB"}, "tax": {"weights": "20 MB"}}}},
        "workflows": {
            name: {"tasks": {"t": {"stream": "chat", "adapter": name, "prompt": 10, "output_tokens": 2}}}
            for name in ("law", "tax")
        },
        "workload": {"jobs": [{"release": "0 s", "workflow": name} for name in ("law", "tax")]},
        "options": {"initial_residency": [{"gpu": "s0/g0", "model": name} for name in resident]},
    }


def test_a_scenario_lists_adapters_and_is_written_back() -> None:
    """All is resident: tokens come at 10 and 21 ms, with the other's prompt in that iteration, and at 21 and 22 ms."""
    scenario = scenario_from(data())
    assert [model.name for model in scenario.instance.models] == ["base", "chat/law", "chat/tax"]
    assert run(scenario.instance)[0] == [21_000, 22_000]
    again = scenario_from(document_of(scenario.instance)).instance
    assert scenario_hash(again) == scenario_hash(scenario.instance)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda d: d["workflows"]["law"]["tasks"]["t"].update(adapter="lw"),
            "adapter 'lw'; allowed are law, tax",
        ),
        (lambda d: d["models"].update({"chat/law": {"weights": "1 MB"}}), "'chat/law' is a model, too"),
        (
            lambda d: d["workflows"]["law"]["tasks"].update(t={"runtime": "1 s", "adapter": "law"}),
            "has adapter without stream",
        ),
        (lambda d: d["streams"]["chat"]["adapters"]["law"].update(weights="0 B"), "'0 B' is out of range"),
    ],
)
def test_bad_adapters_are_refused(change: Any, said: str) -> None:
    document = data()
    change(document)
    with pytest.raises(UserError) as refused:
        scenario_from(document)
    assert said in str(refused.value)


def test_search_lets_requests_of_one_adapter_join_together() -> None:
    """With room for one adapter each change takes 20 us: `a b a b a b` in turn loads six times, a plan twice."""
    instance = served([(0, name) for name in "ababab"], 130, seats=1)
    search = Search(instance, Objective.MEAN_LATENCY, 60.0)
    search.offer(run(instance)[1])
    assert search.value is not None
    before = search.value
    queues.improve(search, 0, iterations=20_000)
    assert search.timeline is not None
    assert len(search.timeline.residencies) == 3
    # Three of 20 us each from 120 on, then `b` from 180 to 200, and three more.
    assert search.value == Fraction(140 + 160 + 180 + 220 + 240 + 260, 6)
    assert search.value < before
