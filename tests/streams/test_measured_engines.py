"""Engines as they are measured: contexts, mixed iterations, shared budgets and KV that grows, by hand and by draw."""

from __future__ import annotations

import json
import os
import random
from dataclasses import replace
from fractions import Fraction

import numpy as np

from tests.streams.draws import plainly, random_speed
from tests.streams.one_by_one import Node, Request, Served, serve
from tests.streams.worlds import POLICIES, as_served, chats, cluster, plain_nodes, plain_requests, queues
from truenorth.executor import parse_policy, replay, simulate
from truenorth.executor.noise import parse_noise
from truenorth.models import Instance, Job, MLModel, Task, Tokens, Workflow, check, measure
from truenorth.models.metrics import StreamMetrics
from truenorth.models.objective import Objective, timeline_value
from truenorth.models.streams import StreamClass, StreamSpeed
from truenorth.solvers.bounds import closed_form
from truenorth.solvers.bounds.certificate import closed_form_document
from truenorth.solvers.bounds.verify import verify
from truenorth.solvers.search import queues as queues_of

DRAWS = int(os.environ.get("DRAWS", "60"))
"""DRAWS=1000 is for the night."""
MILLION = Fraction(1_000_000)


def scarce(rng: random.Random, count: int) -> Instance:
    """Return requests that come fast, on GPUs with little more KV, which grows, than the longest of them needs."""
    block = rng.choice((1, 2, 5, 16))
    tokens = []
    for _ in range(count):
        prompt = rng.choice((rng.randint(1, 8), rng.randint(1, 60)))
        uncached = rng.choice((prompt, prompt, rng.randint(1, prompt)))
        tokens.append(Tokens(prompt, uncached, rng.choice((1, rng.randint(1, 9), rng.randint(1, 40)))))
    speeds = {}
    for kind in ("A", "B"):
        speed = random_speed(rng, 1, measured=True)
        seats = rng.choice((2, 3, 5, 8))
        steps = {1: rng.randint(1, 9), seats: rng.randint(9, 20)}
        speeds[kind] = replace(speed, seats=seats, step_us=steps, chunk=rng.choice((9, 16, 64)), block=block)
    longest = max(-(-(each.held - 1) // block) * block for each in tokens)
    on = cluster(rng.randint(1, 2), longest + rng.choice((0, block, 30)), rng.choice((("A",), ("A", "B"))))
    releases = sorted(rng.randint(0, 30 * count) for _ in tokens)
    return chats(on, speeds, list(zip(releases, tokens, strict=True)))


def beside_loads(rng: random.Random) -> Instance:
    """Return requests of two classes with models of their own, of which a GPU can hold both, with less room for KV."""
    classes = []
    for name in "ab":
        speed = replace(random_speed(rng, 1, True), seats=4, step_us={1: 2, 4: 9}, chunk=rng.choice((9, 30)))
        classes.append(StreamClass(name, {"*": replace(speed, block=rng.choice((0, 1, 4)))}, (f"model {name}",)))
    workflows = [Workflow(of.name, (Task.of_stream("answer", of),)) for of in classes]
    jobs, release = [], 0
    for _ in range(rng.randint(2, 14)):
        release += rng.choice((0, rng.randint(0, 60)))
        prompt = rng.randint(1, 20)
        tokens = Tokens(prompt, prompt, rng.randint(1, 20))
        jobs.append(Job(rng.choice(workflows), release, tokens={"answer": tokens}))
    models = tuple(MLModel(f"model {name}", rng.randint(20, 50)) for name in "ab")
    return Instance(cluster(rng.randint(1, 2), rng.choice((110, 140))), models, tuple(jobs))


def test_draws_equal_one_iteration_after_the_other() -> None:
    """Strides, the checker and the metrics say what one iteration after the other does; many draws preempt somebody."""
    preempting = 0
    for seed in range(DRAWS):
        rng = random.Random(seed)
        instance = scarce(rng, rng.randint(2, 20))
        timeline = simulate(instance, parse_policy(rng.choice(POLICIES)), seed)
        slow = serve(plain_nodes(instance), plain_requests(instance, timeline.place), queues(instance, timeline))
        assert slow == as_served(timeline), seed
        assert check(instance, timeline) == [], seed
        found = measure(instance, timeline)
        assert found.preemptions == sum(served.preempted for served in slow), seed  # type: ignore[attr-defined]
        preempting += any(served.preempted for served in slow)
        assert as_served(simulate(instance, replay(instance, timeline))) == slow, seed
    assert preempting > DRAWS // 4


def test_no_bound_above_a_simulation() -> None:
    """Formulas and their certificates; a plan is what a policy makes of it, for no plans are searched."""
    for seed in range(20):
        instance = scarce(random.Random(seed), 8)
        assert queues_of.new_queues(instance, Objective.MEAN_LATENCY) is None
        timeline = simulate(instance, parse_policy("least_requests"), seed)
        for objective in (Objective.MEAN_LATENCY, Objective.MEAN_SLOWDOWN, Objective.MAX_SLOWDOWN):
            value = timeline_value(objective, instance, timeline)
            for method in ("critical_path", "stream_prices"):
                bound = closed_form.METHODS[method](instance, objective)
                if bound is None:
                    continue
                assert bound <= value, (seed, objective, method)
                document = json.loads(json.dumps(closed_form_document(instance, objective, method, bound)))
                assert verify(instance, document).valid, (seed, objective, method)


def test_an_iteration_by_hand() -> None:
    # 1 us per prompt token, 10 tokens per iteration, of which decodes take one each; steps of 5 and 7 us, 0.4 us per
    # token of context, 3 us more with prompts. [0, 11): 8 tokens of the first, and 2 of the second: 10 + 3 = 13 us.
    # [13, 28.6): one decode with context 9 and 2 tokens of the second, its last: 5 + 2 + 3 + 3.6 = 13.6, ends 26.6.
    # [26.6, 41.6): decodes with contexts 10 and 5: 7 + 6 = 13, ends 39.6: both end, one after 3 tokens, one after 2.
    speed = StreamSpeed(MILLION, 10, 2, {1: 5, 2: 7}, 0, 400_000, 3, True)
    instance = chats(cluster(1), {"A": speed}, [(0, Tokens(8, 8, 3)), (0, Tokens(4, 4, 2))])
    timeline = simulate(instance, parse_policy("round_robin"))
    assert as_served(timeline) == [Served(0, 13, 40), Served(0, 27, 40)]
    assert check(instance, timeline) == []
    # Alone: 8 + 3, then 2 steps of 5 with contexts 9 and 10: 21 + 7.6, rounded up.
    assert instance.jobs[0].ideal_us == 29


def test_preemption_by_hand() -> None:
    # Three blocks of 4 tokens; 1 us per prompt token, steps of 1 us. [0, 7): both prompts, a block each. At 7 the first
    # takes a block for its 5th token. At 8 the second needs one for its 5th, none is free, and it leaves with 2 tokens
    # of its answer. At 9 the block of its 4 tokens is free: [9, 14) it computes them beside a step of the first. At 14
    # it lacks a block again, and at 15 the first takes all three, until it ends at 18. Then 4 tokens and two steps.
    speed = StreamSpeed(MILLION, 10, 2, {1: 1, 2: 1}, 1, 0, 0, False, 4)
    requests = [Request("chat", 4, 4, 8), Request("chat", 3, 3, 4)]
    served = [Served(0, 7, 18), Served(0, 7, 24)]
    assert serve([Node({"chat": plainly(speed)}, 12)], requests, [[0, 1]]) == served
    instance = chats(cluster(1, 12), {"A": speed}, [(0, Tokens(4, 4, 8)), (0, Tokens(3, 3, 4))])
    timeline = simulate(instance, parse_policy("round_robin"))
    assert as_served(timeline) == served
    assert check(instance, timeline) == []
    found = measure(instance, timeline)
    assert isinstance(found, StreamMetrics)
    assert (found.preemptions, found.recomputed_tokens, found.kv_peak_bytes) == (2, 8, 12)


def test_models_that_come_and_leave_change_the_room() -> None:
    """A load under way leaves fewer blocks, and whoever joined last leaves; once its model is evicted, it is back."""
    rng = random.Random(4)
    for seed in range(100):
        instance = beside_loads(rng)
        timeline = simulate(instance, parse_policy(rng.choice(POLICIES)), seed)
        assert check(instance, timeline) == [], seed


def test_the_checker_refuses_what_kv_has_no_room_for() -> None:
    speed = StreamSpeed(MILLION, 10, 2, {1: 1, 2: 1}, 1, 0, 0, False, 4)
    instance = chats(cluster(1, 8), {"A": speed}, [(0, Tokens(4, 4, 5)), (0, Tokens(5, 5, 1))])
    timeline = simulate(instance, parse_policy("round_robin"))
    assert as_served(timeline) == [Served(0, 4, 8), Served(8, 13, 13)]
    # At 4 the first takes its second block, the second would need two.
    assert timeline.served is not None
    early = replace(
        timeline,
        start_us=np.array([0, 4]),
        end_us=np.array([8, 10]),
        served=replace(timeline.served, first_us=np.array([4, 10])),
    )
    assert [(v.rule, v.found) for v in check(instance, early) if v.rule == "E2"] == [("E2", 2)]


def test_noise_on_answers_keeps_the_rules() -> None:
    instance = scarce(random.Random(11), 15)
    noisy = simulate(instance, parse_policy("least_tokens"), 3, parse_noise("run=lognormal:0.5"))
    assert noisy.realised
    assert check(instance, noisy) == []
