"""Bounds and plans of requests against the best of all plans, and what moves change against a run of everything."""

from __future__ import annotations

import copy
import json
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from math import inf
from typing import Any

import numpy as np
import pytest

from tests.night import by_day
from tests.streams.one_by_one import serve
from tests.streams.oracle import Oracle
from tests.streams.worlds import (
    LATENCY_US,
    POLICIES,
    chats,
    cluster,
    plain_nodes,
    plain_requests,
    random_chats,
    random_steps,
)
from truenorth.executor import parse_policy, simulate
from truenorth.models import Edge, Instance, Job, MLModel, Objective, StreamClass, Task, Tokens, Workflow, scenario_hash
from truenorth.models.feasibility import assert_feasible
from truenorth.models.features import Feature
from truenorth.models.objective import charges, objective_value, timeline_value
from truenorth.models.streams import StreamSpeed
from truenorth.solvers.bounds import closed_form, stream_prices
from truenorth.solvers.bounds.certificate import closed_form_document
from truenorth.solvers.bounds.stream_payments import pay
from truenorth.solvers.bounds.stream_recomputed import counts_pairs, stream_value
from truenorth.solvers.bounds.verify import verify
from truenorth.solvers.compiled import random_state
from truenorth.solvers.result import Search
from truenorth.solvers.rounding import round_up
from truenorth.solvers.search import queues
from truenorth.solvers.search.queues_kernel import Queues, anneal

DRAWS = int(os.environ.get("DRAWS", "16"))
"""Tiny instances whose optimum is searched for; DRAWS=300 takes minutes, and is for the night."""
MEASURED_DRAWS = int(os.environ.get("DRAWS", "400"))
"""The same with the keys for engines as they are measured, which are a little smaller."""
HORIZON_US = 40
OBJECTIVES = (Objective.MEAN_LATENCY, Objective.MEAN_SLOWDOWN, Objective.WEIGHTED_TARDINESS, Objective.LATE_JOBS)


def tiny_speed(rng: random.Random, kv: int, measured: bool = False) -> StreamSpeed:
    """Return a speed of at most three seats, and steps and chunks of a few microseconds, with any keys of engines."""
    seats = rng.randint(1, 3)
    first = rng.randint(1, 2)
    steps = {1: first, seats: first + rng.randint(0, 2)} if seats > 1 else {1: first}
    speed = StreamSpeed(Fraction(rng.choice((1_000_000, 2_000_000, 700_000))), rng.randint(1, 4), seats, steps, kv)
    if not measured:
        return speed
    shared, context_ps = rng.random() < 0.5, rng.choice((0, 30_001, 150_000))
    chunk, block = speed.chunk + seats * shared, rng.choice((0, 1, 1, 2))
    return replace(speed, chunk=chunk, context_ps=context_ps, mixed_us=rng.choice((0, 1)), shared=shared, block=block)


def tiny(rng: random.Random, measured: bool = False) -> Instance:
    """Return two to four requests: two kinds, little KV memory, a model to load, or two calls of an agent.

    Measured: on engines with any of the keys for what was measured, with prefill apart from decode, and no loads.
    """
    kv = 1 if measured else rng.choice((0, 1))
    speeds = {kind: tiny_speed(rng, kv, measured) for kind in ("A", "B")}
    on = cluster(rng.randint(1, 2), rng.choice((9, 12, 100)) + 3, ("A", "B"))
    models = (MLModel("llm", 3),) if rng.random() < 0.3 and not measured else ()
    jobs, release = [], 0
    calls = StreamClass("chat", speeds, tuple(model.name for model in models))
    one = Workflow("one", (Task.of_stream("call", calls),))
    tied = rng.choice((None, "call"))
    again = Task.of_stream("again", calls, None, (Edge("call", 0),), tied_to=tied)
    two = Workflow("two", (Task.of_stream("call", calls), again))
    decode = Task.of_stream("decode", calls, None, (Edge("prefill", 0, kv=True),), first_token=True)
    apart = Workflow("apart", (Task.of_stream("prefill", calls), decode))
    left = rng.randint(2, 3)
    while left:
        workflow = two if left > 1 and rng.random() < 0.3 else one
        if measured and workflow is two and rng.random() < 0.5:
            workflow = apart
        tokens = {}
        for task in workflow.tasks:
            prompt = rng.randint(1, 5)
            uncached = 0 if task.name == "decode" else rng.randint(1, prompt)
            tokens[task.name] = Tokens(prompt, uncached, 1 if task.name == "prefill" else rng.randint(1, 3))
            left -= 1
        deadline = rng.choice((None, rng.randint(0, 12)))
        jobs.append(Job(workflow, release, weight=Fraction(rng.randint(1, 3)), deadline_us=deadline, tokens=tokens))
        release += rng.choice((0, 0, rng.randint(0, 3)))
    return Instance(on, models, tuple(jobs))


def optimum(instance: Instance, objective: Objective) -> Fraction | float:
    """Return the least value of a sum over jobs."""
    charged = charges(objective, instance)
    weights = charged.job_weights

    def cost(job: int, end_us: int) -> Fraction:
        late_us = max(0, end_us - int(charged.due_us[job]))
        return weights[job] * (min(1, late_us) if objective is Objective.LATE_JOBS else late_us)

    return Oracle(instance, LATENCY_US, cost).best(HORIZON_US)


@pytest.mark.parametrize("seed", by_day(range(DRAWS), 4))
def test_bounds_lie_below_all_plans_and_policies_above(seed: int) -> None:
    rng = random.Random(seed)
    instance = tiny(rng)
    objective = OBJECTIVES[seed % len(OBJECTIVES)]
    least = optimum(instance, objective)
    for policy in ("least_tokens", "round_robin"):
        assert least <= timeline_value(objective, instance, simulate(instance, parse_policy(policy)))
    search = Search(instance, objective, 60.0)
    search.offer(simulate(instance, parse_policy("least_tokens")))
    queues.improve(search, seed, iterations=300)
    assert search.value is not None
    assert least <= search.value
    for method in ("critical_path", "stream_prices"):
        proved = closed_form.METHODS[method](instance, objective)
        assert proved is None or proved <= least, method


def random_values(rng: random.Random, instance: Instance, objective: Objective, count: int) -> Iterator[Fraction]:
    """Yield the values of plans with any GPUs, orders, holds and limits, served one iteration after the other."""
    able = [instance.eligible_gpus(task) for task in range(instance.n_tasks)]
    for _ in range(count):
        place = [rng.choice(gpus) for gpus in able]
        for task, job in enumerate(instance.task_job.tolist()):
            tied_to = instance.jobs[job].workflow.tasks[task - int(instance.job_first_task[job])].tied_to
            place[task] = place[task] if tied_to is None else place[task - 1]
        order = rng.sample(range(instance.n_tasks), instance.n_tasks)
        queues = [[task for task in order if place[task] == gpu] for gpu in range(instance.n_gpus)]
        hold = [rng.choice((0, 0, rng.randint(1, 12))) for _ in place]
        nodes = plain_nodes(instance, {gpu: rng.randint(1, 3) for gpu in range(instance.n_gpus)})
        ends = [served.end for served in serve(nodes, plain_requests(instance, place, hold), queues)]
        end_us = np.array([-1 if end is None else end for end in ends])  # who waits for somebody behind is not served
        if end_us.min() >= 0:
            yield objective_value(objective, instance, np.maximum.reduceat(end_us, instance.job_first_task[:-1]))


@pytest.mark.parametrize("seed", by_day(range(MEASURED_DRAWS), 4))
def test_so_they_do_on_engines_as_they_are_measured(seed: int) -> None:
    """Contexts, mixed iterations, shared budgets and KV that grows: the bounds, the policies, and any other plans."""
    rng = random.Random(1_000 + seed)
    instance = tiny(rng, measured=True)
    objective = OBJECTIVES[seed % len(OBJECTIVES)]
    least = optimum(instance, objective)
    for policy in POLICIES:
        timeline = simulate(instance, parse_policy(policy))
        assert_feasible(instance, timeline)
        assert least <= timeline_value(objective, instance, timeline), policy
    assert least <= min(random_values(rng, instance, objective, 60), default=inf)
    for method in ("critical_path", "stream_prices"):
        proved = closed_form.METHODS[method](instance, objective)
        if proved is not None:
            verdict = verify(instance, closed_form_document(instance, objective, method, proved))
            assert verdict.valid
            assert verdict.lower_bound is not None
            assert proved <= verdict.lower_bound <= least, method


def test_where_nothing_is_searched_it_is_said_why(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = random_chats(random.Random(1), 5)
    monkeypatch.setattr(queues, "SUPPORTS", queues.SUPPORTS - {Feature.STREAMS})
    search = Search(instance, Objective.MEAN_LATENCY, 60.0)
    search.offer(simulate(instance, parse_policy("least_tokens")))
    queues.improve(search, 0, iterations=10)
    said = "the plan that is known stands: search has no support for continuous batching"
    assert search.left_out["search"] == said


def _anneal(instance: Instance, objective: Objective, moves: int, temperature: float) -> Queues:
    """Return what some random moves make of a policy's plan."""
    made = queues.new_queues(instance, objective)
    assert made is not None
    assert queues.enqueue(made, instance, simulate(instance, parse_policy("round_robin")))
    hot = temperature * made.plan.total[0] / len(instance.jobs)
    anneal(made, random_state(moves), moves, hot, queues.CHANCES)
    return made


@pytest.mark.parametrize("seed", range(12))
def test_what_moves_run_again_is_what_a_run_of_everything_gives(seed: int) -> None:
    rng = random.Random(seed)
    instance = (random_chats(rng, 60), random_steps(rng, 12), tiny(rng))[seed % 3]
    objective = list(Objective)[seed % 7]
    for moves in (1, 10, 400):
        made = _anneal(instance, objective, moves, 0.5)
        again = queues.new_queues(instance, objective)
        assert again is not None
        for name in ("queue", "length", "limit", "gpu", "place", "not_before", "users"):
            getattr(again.plan, name)[:] = getattr(made.plan, name)
        assert queues.run_all(again)
        for name in ("start", "first", "end", "cost", "late", "room", "open_us"):
            assert (getattr(again.plan, name) == getattr(made.plan, name)).all(), name
        assert made.plan.total == pytest.approx(again.plan.total, rel=1e-9)
        plan = queues.timeline_of(made, instance)
        assert_feasible(instance, plan)
        # A plan that is begun with keeps who is held back in it, and how many are served at once.
        begun = queues.new_queues(instance, objective)
        assert begun is not None
        assert queues.enqueue(begun, instance, plan)
        assert (begun.plan.not_before == made.plan.not_before).all()
        assert queues.timeline_of(begun, instance).served.limits == plan.served.limits  # type: ignore[union-attr]


@pytest.mark.parametrize("seed", range(5))
def test_bounds_are_computed_again_to_the_last_digit(seed: int) -> None:
    rng = random.Random(seed)
    for instance in (random_chats(rng, 12), random_steps(rng, 5), tiny(rng)):
        for objective in Objective:
            for method in ("critical_path", "stream_prices"):
                proved = closed_form.METHODS[method](instance, objective)
                if proved is not None:
                    document = json.loads(json.dumps(closed_form_document(instance, objective, method, proved)))
                    verdict = verify(instance, document)
                    assert verdict.valid, (method, objective, verdict)
                    assert verdict.lower_bound == round_up(instance, objective, proved)


def overloaded() -> Instance:
    """Return twenty requests at once for one GPU: prices say more than what each takes alone."""
    speed = StreamSpeed(Fraction(1_000_000), 4, 4, {1: 4, 4: 10})
    return chats(cluster(1), {"A": speed}, [(0, Tokens(4, 4, 5))] * 20)


def test_prices_count_queues_that_no_path_alone_does() -> None:
    # Alone each takes 4 + 4 x 4 = 20 us. Of the GPU it takes at least 4 + 4 x 10/4 = 14 us, so that by time t no more
    # than t / 14 have ended: the mean of their ends is at least 14 x 10.5 = 147 us, which prices come near.
    instance = overloaded()
    assert closed_form.METHODS["critical_path"](instance, Objective.MEAN_LATENCY) == 20
    proved = closed_form.METHODS["stream_prices"](instance, Objective.MEAN_LATENCY)
    assert proved is not None
    assert 120 < proved <= 147


def _forged(**changes: object) -> tuple[Instance, dict[str, Any]]:
    instance = overloaded()
    proved = closed_form.METHODS["stream_prices"](instance, Objective.MEAN_LATENCY)
    assert proved is not None
    document = closed_form_document(instance, Objective.MEAN_LATENCY, "stream_prices", proved)
    parameters = {**document["parameters"], **changes.pop("parameters", {})}  # type: ignore[dict-item]
    return instance, {**document, "parameters": parameters, **changes}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"lower_bound": 148e-6}, "is proved"),
        ({"parameters": {"levels": [[[[1, 4, 4096], [4, 10, 2561]]]]}}, "levels lie above"),
        ({"parameters": {"levels": [[[[1, 4, 4096], [4, 11, 2560]]]]}}, "levels lie above"),
        ({"parameters": {"levels": [[[[1, 4, 4096], [4, 10, 2560]]]]}}, "levels lie above"),  # the line, at two decodes
        ({"parameters": {"levels": [[[[1, 4, 2560], [3, 8, 2560]]]]}}, "levels must rise"),
        ({"parameters": {"shares": [1024] * 19 + [1025]}}, "shares must be"),
        ({"parameters": {"debts": [{"at": [5, 5], "heights": []}]}}, "debts must stand"),
        ({"parameters": {"debts": [{"at": [5], "heights": [[[1]]]}]}}, "debts must be"),
        ({"parameters": {"corners": [[[[4, 5000], [10, 2560]]]]}}, "corners lie above"),
        ({"parameters": {"corners": [[[[4, 4000], [5, 3900], [9, 100]]]]}}, "corners lie above"),
        ({"parameters": {"corners": [[[[5, 100]]]]}}, "corners lie above"),
        ({"parameters": {"edges_us": [0, 5, 5]}}, "edges_us must rise"),
        ({"parameters": {"prices": [[-1]]}}, "prices must be"),
        ({"method": "mean_busy_time"}, "has no support for continuous batching"),
        ({"method": "lagrangian"}, "has no support for continuous batching"),
    ],
)
def test_forged_certificates_are_refused(changes: dict[str, Any], reason: str) -> None:
    verdict = verify(*_forged(**changes))
    assert not verdict.valid
    assert reason in str(verdict.reason)


def alike(rng: random.Random) -> Instance:
    """Return two to four jobs of a request each, on one or two GPUs of unlike kinds."""
    jobs, release = [], 0
    for _ in range(rng.randint(2, 4)):
        prompt = rng.randint(1, 5)
        jobs.append((release, Tokens(prompt, rng.randint(1, prompt), rng.randint(1, 4))))
        release += rng.choice((0, 0, rng.randint(0, 3)))
    return chats(cluster(rng.randint(1, 2)), {kind: tiny_speed(rng, 0) for kind in ("A", "B")}, jobs)


@pytest.mark.parametrize("seed", by_day(range(DRAWS), 4))
def test_no_prices_shares_or_debts_prove_more_than_the_optimum(seed: int) -> None:
    """A certificate may hold any of them: what is computed from it is proved."""
    rng = random.Random(seed)
    instance, objective = alike(rng), OBJECTIVES[seed % 2]
    least, charged = optimum(instance, objective), charges(objective, instance)
    due = [(weight, 0) for weight in charged.job_weights]
    proof = stream_prices.prove(instance, objective)
    assert proof is not None
    assert proof.value <= least
    for _ in range(40):
        found = copy.deepcopy(proof.witness)
        found["prices"] = [[int(price * rng.choice((0, 0.5, 1, 1.5))) for price in row] for row in found["prices"]]
        found["shares"] = [rng.choice((0, 100, 512, 900, 1024)) for _ in found["shares"]]
        factor = rng.choice((0.3, 1, 2))
        for row in found["debts"][0]["heights"]:
            row[:] = [[int(y * factor * rng.choice((0.5, 1, 1.5))) for y in window] for window in row]
        assert stream_value(instance, due, found) <= least


def test_neighbours_owe_each_other_their_prompts() -> None:
    """Twenty requests alike, of 40 prompt tokens and 4 decodes, wait for each other's prompts while they decode."""
    speed = StreamSpeed(Fraction(1_000_000), 4, 4, {1: 4, 4: 10})
    instance = chats(cluster(1), {"A": speed}, [(0, Tokens(40, 40, 5))] * 20)
    proof = stream_prices.prove(instance, Objective.MEAN_LATENCY)
    assert proof is not None
    due = [(Fraction(1, 20), 0)] * 20
    unowed = stream_value(instance, due, {**proof.witness, "shares": [0] * 20, "debts": [None]})
    assert (
        unowed + 3
        < proof.value
        <= timeline_value(Objective.MEAN_LATENCY, instance, simulate(instance, parse_policy("least_tokens")))
    )


@pytest.mark.parametrize("seed", range(4))
def test_what_is_searched_in_floats_is_what_is_proved(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The search and the verifier share no code: their values are the same, but for what is rounded down."""
    values: list[float] = []

    def noted(*given: Any) -> float:
        values.append(pay(*given))
        return values[-1]

    monkeypatch.setattr(stream_prices, "pay", noted)
    rng = random.Random(seed)
    for instance in (random_chats(rng, 12), random_steps(rng, 5)):
        for objective in (Objective.MEAN_SLOWDOWN, Objective.WEIGHTED_TARDINESS):
            values.clear()
            proof = stream_prices.prove(instance, objective)
            assert proof is not None
            assert float(proof.value) == pytest.approx(max(values), rel=5e-3, abs=1e-9)


def test_certificates_of_before_are_still_read() -> None:
    """They hold corners in place of levels, shares and debts."""
    instance = overloaded()
    prices = [576460752303423616, 468374361246531584, 168134386088498496, 0]
    parameters = {
        "edges_us": [0, 70, 140, 210, 280],
        "prices": [prices],
        "corners": [[[[4, 4096], [6, 3072], [8, 2730], [10, 2560]]]],
    }
    proved = Fraction(1930918340235099915, 18014398509481984)
    document = closed_form_document(instance, Objective.MEAN_LATENCY, "stream_prices", proved)
    verdict = verify(instance, {**document, "parameters": parameters})
    assert verdict.valid
    assert verdict.lower_bound == round_up(instance, Objective.MEAN_LATENCY, proved)
    assert not verify(instance, {**document, "parameters": parameters, "lower_bound": 108e-6}).valid


@dataclass(frozen=True, slots=True)
class NewSpeed(StreamSpeed):
    """A speed with a key that bounds do not know."""

    grows: bool = False


def test_debts_are_counted_only_where_they_are_known_to_hold() -> None:
    """One request per job, and no key but those whose rules the argument knows."""
    of_two = random_steps(random.Random(0), 5)
    assert counts_pairs(of_two) == [False] * len(counts_pairs(of_two))
    for grows in (False, True):
        speed = NewSpeed(Fraction(1_000_000), 4, 4, {1: 4, 4: 10}, grows=grows)
        instance = chats(cluster(1), {"A": speed}, [(0, Tokens(4, 4, 5))] * 20)
        assert counts_pairs(instance) == [not grows]
        proof = stream_prices.prove(instance, Objective.MEAN_LATENCY)
        assert proof is not None
        assert any(proof.witness["shares"]) is not grows
    _, forged = _forged(parameters={})
    assert verify(instance, {**forged, "scenario_hash": scenario_hash(instance)}).reason == (
        "debts of a stream class whose requests owe each other nothing"
    )
