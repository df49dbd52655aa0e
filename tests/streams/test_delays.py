"""Time between the calls of an agent (rule E5): simulation, search and bounds against naive ones."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from tests.instances import with_delays
from tests.night import by_day
from tests.streams.one_by_one import serve
from tests.streams.test_optimum import DRAWS, OBJECTIVES, optimum, tiny
from tests.streams.worlds import POLICIES, as_served, cluster, plain_nodes, plain_requests, queues, random_steps
from truenorth.executor import parse_policy, replay, simulate
from truenorth.models import Edge, Instance, Job, Objective, StreamClass, Task, Tokens, Workflow
from truenorth.models.feasibility import assert_feasible, check
from truenorth.models.objective import timeline_value
from truenorth.models.streams import StreamSpeed
from truenorth.solvers.bounds import closed_form
from truenorth.solvers.bounds.certificate import closed_form_document
from truenorth.solvers.bounds.verify import verify
from truenorth.solvers.result import Search
from truenorth.solvers.rounding import round_up
from truenorth.solvers.search import queues as searched


def agents(*own_us: int | None) -> Instance:
    """Return jobs at once on one node: 4 us of prompt, a token; a tool of 50 us; the same again on the same node."""
    chat = StreamClass("chat", {"A": StreamSpeed(Fraction(1_000_000), 8, 2, {1: 5, 2: 7}, 1)})
    again = Task.of_stream("again", chat, Tokens(4, 4, 1), (Edge("call", 0, delay_us=50),), tied_to="call")
    agent = Workflow("agent", (Task.of_stream("call", chat, Tokens(4, 4, 1)), again))
    jobs = [Job(agent, 0, delays_us=None if us is None else {"again": us}) for us in own_us]
    return Instance(cluster(1, 10), (), tuple(jobs))


@pytest.mark.parametrize("policy", POLICIES)
def test_seat_and_kv_are_free_while_a_tool_runs(policy: str) -> None:
    # KV of 10 tokens holds two requests of 5: both jobs are served at once, [0, 8) and, 50 us later, [58, 66). A third
    # joins at 8, when both have ended, and has its tool until 12 + 50: its second call joins behind them at 66.
    built = agents(None, None, None)
    timeline = simulate(built, parse_policy(policy))
    assert_feasible(built, timeline)
    assert timeline.start_us.tolist() == [0, 58, 0, 58, 8, 66]
    # P_j counts the tool: 4 + 50 + 4.
    assert built.job_critical_us.tolist() == [58, 58, 58]


def test_a_jobs_own_delay_is_what_passes() -> None:
    built = agents(20, None)
    assert simulate(built, parse_policy("round_robin")).start_us.tolist() == [0, 28, 0, 58]


def test_a_request_that_joins_before_its_tool_is_done_breaks_t2() -> None:
    built = agents(None)
    plan = simulate(built, parse_policy("round_robin"))
    assert plan.served is not None
    earlier = np.array([0, 1])
    early = replace(plan, start_us=plan.start_us - earlier, end_us=plan.end_us - earlier)
    early = replace(early, served=replace(plan.served, first_us=plan.served.first_us - earlier))
    assert [violation.rule for violation in check(built, early)] == ["T2"]


@pytest.mark.parametrize("seed", by_day(range(300), 12))
def test_as_one_iteration_after_the_other(seed: int) -> None:
    rng = random.Random(seed)
    built = with_delays(rng, random_steps(rng, rng.randint(1, 8), seed % 2 == 1), 60)
    timeline = simulate(built, parse_policy(POLICIES[seed % len(POLICIES)]))
    assert_feasible(built, timeline)
    plain = plain_requests(built, timeline.place)
    again = serve(plain_nodes(built), plain, queues(built, timeline))
    assert [(each.start, each.first, each.end) for each in again] == [
        (each.start, each.first, each.end) for each in as_served(timeline)
    ]
    happened = simulate(built, replay(built, timeline))
    assert happened.end_us.tolist() == timeline.end_us.tolist()


@pytest.mark.parametrize("seed", by_day(range(DRAWS), 3))
def test_bounds_lie_below_all_plans_and_policies_above(seed: int) -> None:
    rng = random.Random(seed)
    while True:
        built = with_delays(rng, tiny(rng), 8)
        if built.delay_us.any():
            break
    objective = OBJECTIVES[seed % len(OBJECTIVES)]
    least = optimum(built, objective)
    for policy in ("least_tokens", "round_robin"):
        assert least <= timeline_value(objective, built, simulate(built, parse_policy(policy)))
    search = Search(built, objective, 60.0)
    search.offer(simulate(built, parse_policy("least_tokens")))
    searched.improve(search, seed, iterations=300)
    assert search.value is not None
    assert least <= search.value
    for method in ("critical_path", "stream_prices"):
        proved = closed_form.METHODS[method](built, objective)
        if proved is not None:
            assert proved <= least, method
            verdict = verify(built, json.loads(json.dumps(closed_form_document(built, objective, method, proved))))
            assert verdict.valid, (method, verdict.reason)
            assert verdict.lower_bound == round_up(built, objective, proved)


def test_search_moves_calls_around_their_tools() -> None:
    # At once both jobs end at 66. In iterations of their own the calls end at 4 and 8 and the second ones at 58 and 62:
    # a mean of 60, when each alone takes 58.
    built = agents(None, None)
    search = Search(built, Objective.MEAN_LATENCY, 60.0)
    search.offer(simulate(built, parse_policy("round_robin")))
    searched.improve(search, 0, iterations=200)
    assert search.value == 60
    assert closed_form.METHODS["critical_path"](built, Objective.MEAN_LATENCY) == 58


@pytest.mark.parametrize("seed", [3, 5, 6])
def test_search_runs_again_what_waits_for_a_tool_when_its_gpu_was_empty(seed: int) -> None:
    # Calls are far apart and tools take long: a GPU is often empty, and begins anew as before though a call has moved.
    rng = random.Random(seed)
    chat = StreamClass("chat", {"A": StreamSpeed(Fraction(1_000_000), 8, 2, {1: 5, 2: 7}, 1)})
    again = Task.of_stream("again", chat, Tokens(6, 6, 3), (Edge("call", 0, delay_us=50),), tied_to="call")
    agent = Workflow("agent", (Task.of_stream("call", chat, Tokens(5, 5, 4)), again))
    releases = sorted(rng.randrange(rng.choice((300, 600, 900))) for _ in range(rng.choice((8, 12, 24))))
    jobs = tuple(Job(agent, at, delays_us={"again": rng.choice((10, 50, 200))}) for at in releases)
    search = Search(Instance(cluster(2, 30), (), jobs), Objective.MEAN_LATENCY, 60.0)
    search.offer(simulate(search.instance, parse_policy("round_robin")))
    first = search.value
    searched.improve(search, 0, iterations=1000)  # what is offered is checked
    assert first is not None
    assert search.value is not None
    assert search.value < first
