"""Workflows that go first, or have nodes of their own, where levels of service name them."""

from __future__ import annotations

from typing import Any

import pytest

import truenorth as tn
from truenorth.models import ServiceLevels
from truenorth.models.scenario import scenario_from
from truenorth.planner.answers.ask import ask
from truenorth.planner.answers.servers.urgency import most_urgent
from truenorth.planner.questions.sizes import ServersQuestion
from truenorth.planner.show.servers_words import answer_in_words, engines_in_words

TALK, FILES = "p100 latency of talk <= 50 us", "p100 latency of files <= 10 ms"


def beside(*levels: str, **of_talk: object) -> dict[str, Any]:
    """Return four files of 1,000 us that come at once, and talks of 10 us every 100 us; a node serves one request."""
    talks = [{"release": f"{5 + 100 * at} us", "workflow": "talk"} for at in range(12)]
    stream = {"models": ["m"], "prefill": "1000000 /s", "chunk": 10, "concurrency": 1, "step": {1: "10 us"}}
    return {
        "cluster": {
            "groups": [{"count": 6, "gpu": {"kind": "A", "memory": "1 KB", "load_bandwidth": "1 GB/s"}}],
            "network": {"bandwidth": "10 GB/s"},
        },
        "models": {"m": {"weights": "1 B"}},
        "options": {"initial_residency": [{"gpu": f"s{at}/g0", "model": "m"} for at in range(6)]},
        "streams": {"chat": {**stream, "kv_per_token": "0 B"}},
        "workflows": {
            "talk": {"tasks": {"answer": {"stream": "chat", "prompt": 10, "output_tokens": 1}}, **of_talk},
            "files": {"tasks": {"summary": {"stream": "chat", "prompt": 1000, "output_tokens": 1}}},
        },
        "workload": {"jobs": [{"release": "0 us", "workflow": "files"}] * 4 + talks},
        "slo": list(levels),
    }


def order(*levels: str, **of_talk: object) -> tuple[str, ...]:
    """Return who is most urgent by these levels."""
    return most_urgent(scenario_from(beside(*levels, **of_talk)).instance, ServiceLevels.parse(*levels))


def test_the_tightest_level_is_the_most_urgent() -> None:
    """Of two the tighter one is named, the other comes after it; slowdowns are taken of 10 us and 1,000 us."""
    assert order(TALK, FILES) == ("talk",)
    assert order("p95 slowdown of talk <= 200", "p95 slowdown of files <= 1.5") == ("files",)
    assert order("p95 first token of files <= 40 us", TALK) == ("files",)
    assert order("p95 latency of tal* <= 1 s") == ("tal*",)


EQUAL = ["p95 latency of talk <= 1 s", "p99 latency of files <= 1 s"]


@pytest.mark.parametrize("levels", [["p95 latency <= 1 s"], ["p95 latency of * <= 1 s"], EQUAL])
def test_nobody_is_urgent_where_levels_do_not_differ(levels: list[str]) -> None:
    assert order(*levels) == ()


def test_priorities_of_the_scenario_stand() -> None:
    assert order(TALK, FILES, priority=1) == ()


def test_nodes_apart_are_ordered_where_they_cost_less() -> None:
    """A talk that meets a file on its node waits for hundreds of us: four files beside it need five nodes.

    With a node of their own the talks never wait, and four files one after the other take 4 ms of 10 on another.
    """
    answer = tn.servers(scenario_from(beside(TALK, FILES)), time_limit=60)
    assert answer.recommended is answer.alternatives[0]
    assert answer.not_tried == ()
    assert repr(answer).startswith("<ServersAnswer of 'scenario': order 2 for least_tokens:urgent=talk,apart=1; ")
    assert answer.frame()["value"]["least_tokens:urgent=talk,apart=1"] == [10e-6, 4e-3]
    sizes = {row.policy: row.mix for row in answer.policies}
    assert sizes["least_tokens"] == (5,)
    assert sizes["least_tokens:urgent=talk"] == (5,)
    assert sizes["least_tokens:urgent=talk,apart=1"] == (2,)
    best = answer.alternatives[0]
    assert (best.policy, best.mix) == ("least_tokens:urgent=talk,apart=1", (2,))
    assert best.reached is not None
    assert [int(value or 0) for value in best.reached] == [10, 4_000]
    assert engines_in_words(answer.record()) == "1 of the nodes serves talk alone; the others share the rest"


def test_the_command_that_repeats_an_answer_names_policies_only_if_it_was_asked_about_them() -> None:
    """Whoever names policies is asked for no others, so that naming the default ones would leave out nodes apart."""
    scenario = scenario_from(beside(TALK, FILES))
    asked = tn.servers(scenario, time_limit=60).asked
    assert isinstance(asked, ServersQuestion)
    assert (asked.policies, "--policies" in asked.typed()) == (None, False)
    again = ask(asked, scenario)
    assert again.recommended is not None
    assert (again.recommended.policy, again.recommended.mix) == ("least_tokens:urgent=talk,apart=1", (2,))
    named = tn.servers(scenario, policies=["round_robin"], time_limit=60).asked
    assert named.typed()[4:6] == ["--policies", "round_robin"]


def test_what_there_was_no_time_for_is_said() -> None:
    """Without any time nothing is tried; of what policies that are named leave out nothing is said."""
    data = beside(TALK, FILES)
    data["streams"]["chat"] |= {"concurrency": 2, "step": {1: "10 us", 2: "10 us"}}
    scenario = scenario_from(data)
    answer = tn.servers(scenario, time_limit=1e-6)
    assert answer.not_tried == ("fewer requests at once than seats", "nodes for urgent workflows alone")
    said = "For lack of time fewer requests at once than seats and nodes for urgent workflows alone were not tried; "
    assert said in answer_in_words(answer.record())
    assert tn.servers(scenario, policies=["least_tokens"], time_limit=1e-6).not_tried == ()


def test_nodes_apart_are_tried_on_fleets_of_several_kinds() -> None:
    """Of A at 2 per hour and B at 1, which are as fast, two B are enough; one of them serves the talks.

    A talk waits 1 us for the load of the model before it, at the most.
    """
    data = beside(TALK, FILES)
    del data["options"]
    groups = data["cluster"]["groups"]
    groups[0] |= {"count": 3, "price_per_hour": 2}
    groups.append({**groups[0], "gpu": {**groups[0]["gpu"], "kind": "B"}, "price_per_hour": 1})
    answer = tn.servers(scenario_from(data), time_limit=60)
    assert answer.recommended is not None
    assert (answer.recommended.policy, answer.recommended.mix) == ("least_tokens:urgent=talk,apart=1", (0, 2))
    assert engines_in_words(answer.record()) == "1 of the nodes (B) serves talk alone; the others share the rest"
