"""Time per token of answers, also with prefill apart from decode: by hand, one by one, and no floor above it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from tests.night import by_day
from tests.streams.one_by_one import Request, Served, serve
from tests.streams.test_going_away import Log, noting, served_one_by_one
from tests.streams.test_holds import once_away
from tests.streams.worlds import (
    cluster,
    plain_nodes,
    plain_requests,
    queues,
    random_chats,
    random_holds,
    random_splits,
    random_steps,
)
from truenorth.executor import parse_policy, simulate
from truenorth.models import (
    Edge,
    Instance,
    Job,
    ServiceLevel,
    ServiceLevels,
    StreamClass,
    Task,
    Timeline,
    Tokens,
    Workflow,
)
from truenorth.models.metrics import measure_streams
from truenorth.models.streams import StreamSpeed
from truenorth.models.timeline import TokenTimes
from truenorth.planner.answers.servers.decide import reached_by
from truenorth.planner.answers.servers.forces import broken_at_best
from truenorth.planner.answers.servers.streams import limits
from truenorth.solvers.bounds.floor_recomputed import asked_and_offered
from truenorth.solvers.bounds.stream_floor import WAYS, StreamFloor

ANSWERS = {"both": [["prefill", "decode"]], "split": [["prefill", "decode"]]}
"""The requests of an answer by workflow, where it is of several."""


def by_hand(instance: Instance, requests: list[Request], served: list[Served]) -> list[tuple[int, int, int]]:
    """Return of every answer of several tokens its job, the time from its first to its last, and how many come then."""
    found = []
    for number, job in enumerate(instance.jobs):
        names = [task.name for task in job.workflow.tasks]
        for parts in ANSWERS.get(job.workflow.name, [[name] for name in names]):
            tasks = [int(instance.job_first_task[number]) + names.index(name) for name in parts]
            first, last = served[tasks[0]].first, served[tasks[-1]].end
            assert first is not None
            assert last is not None
            tokens = sum(requests[task].m for task in tasks)
            if tokens > 1:
                found.append((number, last - first, tokens - 1))
    return found


def measured(times: TokenTimes | None) -> list[tuple[int, int, int]]:
    assert times is not None
    return sorted(zip(times.job.tolist(), times.span_us.tolist(), times.steps.tolist(), strict=True))


def test_what_passes_before_the_decode_is_time_between_two_tokens() -> None:
    """A prompt of 10 takes 10 us, KV travels for 3 us, a step takes 2 us; the second decode waits for the only seat.

    The first tokens come at 10 and 20. The first answer goes on at 13 and ends at 17: 7 us for 2 tokens. The second
    goes on at 23, and ends at 29: 9 us for 3. Without a second seat, and 8 tokens in the first: 13 + 16 = 29, and 35.
    """
    pre = StreamClass("prefill", {"A": StreamSpeed(Fraction(1_000_000), 10, 4, {1: 2, 4: 2})})
    dec = StreamClass("decode", {"B": StreamSpeed(Fraction(1_000_000), 10, 1, {1: 2})})
    rest = Task.of_stream("decode", dec, None, (Edge("prefill", 0, kv=True),))
    flow = Workflow("both", (Task.of_stream("prefill", pre, first_token=True), rest))
    for output, spans in ((2, [(0, 7, 2), (1, 9, 3)]), (8, [(0, 19, 8), (1, 15, 3)])):
        tokens = [{"prefill": Tokens(10, 10, 1), "decode": Tokens(11, 0, count)} for count in (output, 3)]
        built = Instance(cluster(2, kinds=("A", "B")), (), tuple(Job(flow, 0, tokens=each) for each in tokens))
        timeline = simulate(built, parse_policy("round_robin"))
        assert measured(TokenTimes.of(built, timeline)) == spans
        figures = measure_streams(built, timeline, np.arange(2))
        mean_s = sum(Fraction(span, steps) for _, span, steps in spans) / 2 / 10**6
        assert figures["mean_time_per_token_s"] == pytest.approx(float(mean_s))
        assert figures["mean_first_token_s"] == pytest.approx(15e-6)
        level = ServiceLevel("time per token", Fraction(spans[1][1], spans[1][2]), Fraction(1))
        assert reached_by(built, timeline, ServiceLevels((level,))) == (max(Fraction(a, b) for _, a, b in spans),)


def test_an_answer_goes_on_from_one_request_alone() -> None:
    """KV of two prompts begins an answer of its own, a prompt that is not all there does, too; a row is one answer."""
    stream = StreamClass("chat", {"*": StreamSpeed(Fraction(1_000_000), 10, 4, {1: 2, 4: 2})})

    def flow(name: str, *inputs: tuple[str, ...]) -> Workflow:
        edges = (tuple(Edge(source, 0, kv=True) for source in sources) for sources in inputs)
        return Workflow(name, tuple(Task.of_stream(f"t{at}", stream, None, each) for at, each in enumerate(edges)))

    asked = [
        (flow("two", (), (), ("t0", "t1")), [(9, 9, 1), (9, 9, 4), (9, 0, 5)]),
        (flow("left", (), ("t0",)), [(9, 9, 1), (12, 3, 6)]),
        (flow("row", (), ("t0",), ("t1",)), [(9, 9, 3), (9, 0, 1), (9, 0, 2)]),
        (flow("fork", (), ("t0",), ("t0",)), [(9, 9, 1), (9, 0, 1), (9, 0, 2)]),
    ]
    jobs = [Job(each, 0, tokens={f"t{at}": Tokens(*tokens) for at, tokens in enumerate(said)}) for each, said in asked]
    built = Instance(cluster(1), (), tuple(jobs))
    assert built.streams is not None
    found = built.streams.answers(built.streams.output)
    rows = zip(found.first.tolist(), found.last.tolist(), found.steps.tolist(), strict=True)
    assert list(rows) == [(1, 1, 3), (2, 2, 4), (4, 4, 5), (5, 7, 5), (8, 9, 1), (8, 10, 2)]


def test_what_an_answer_may_take_makes_its_decodes_dearer() -> None:
    """Four answers of 8 decodes that must run within [10, 60), their prompts done: steps of 2, 3, 4 and 5 us.

    At ease each decode pays 5 / 4 us, so that 40 of 50 us of one node will do. An answer within 8 x 2.5 us (and 1 for
    rounding, which the verifier does without) has a mean step of 2.625 us, at which each pays 2 - 0.625 / 2: 54 us.
    """
    pre = StreamClass("prefill", {"A": StreamSpeed(Fraction(1_000_000), 10, 4, {1: 2, 4: 2})})
    dec = StreamClass("decode", {"B": StreamSpeed(Fraction(1_000_000), 10, 4, {1: 2, 4: 5})})
    rest = Task.of_stream("decode", dec, None, (Edge("prefill", 0, kv=True),))
    flow = Workflow("both", (Task.of_stream("prefill", pre, first_token=True), rest))
    job = Job(flow, 0, tokens={"prefill": Tokens(10, 10, 1), "decode": Tokens(11, 0, 8)})
    built = Instance(cluster(2, kinds=("A", "B")), (), (job,) * 4)
    latency = ServiceLevel("latency", Fraction(60), Fraction(1))
    hurried = ServiceLevel("time per token", Fraction(5, 2), Fraction(1))
    floor = StreamFloor(built, list(built.cluster.gpus))
    for levels, charged, again in (((latency,), 40, 40), ((latency, hurried), 54, 56)):
        (limit,) = limits(built, ServiceLevels(levels))
        (cut,) = floor.cuts(limit, [(Fraction(1, 1000), Fraction(1))], ["energy"]) or []
        assert (cut.begin_us, cut.end_us) == (10, 60)
        assert float(cut.least) == pytest.approx(charged / 50, rel=1e-3)
        window = {"begin_us": 10, "end_us": 60, "way": "energy", "weights": [0.001, 1.0]}
        asked, offered = asked_and_offered(built, limit, window)
        assert (float(asked), float(offered)) == pytest.approx((again, 50.05))
    assert floor.least_times().span_us.tolist() == [16] * 4


Draw = Callable[[random.Random], Instance]
WORLDS: dict[str, Draw] = {
    "split": lambda rng: random_splits(rng, rng.randint(4, 14), rng.random() < 0.5),
    "steps": lambda rng: random_steps(rng, rng.randint(3, 8), rng.random() < 0.5),
    "hold": lambda rng: random_holds(rng, rng.randint(4, 14)),
    "chats": lambda rng: random_chats(rng, 12, 2, rng.random() < 0.5),
}


@pytest.mark.parametrize(("world", "seed"), by_day([(w, s) for s in range(250) for w in ("split", "steps")], 12))
def test_measured_as_by_one_iteration_after_the_other(world: str, seed: int) -> None:
    rng, log = random.Random(seed), Log()
    built = WORLDS[world](rng)
    timeline = simulate(built, parse_policy(rng.choice(("round_robin", "least_tokens"))))
    requests = plain_requests(built, timeline.place)
    found = serve(plain_nodes(built), requests, queues(built, timeline))
    assert measured(TokenTimes.of(built, timeline)) == sorted(by_hand(built, requests, found))
    if world == "split":  # and where nodes come and go
        built = once_away(rng, built)
        timeline = simulate(built, noting("least_tokens", log))
        again = served_one_by_one(built, timeline, log)
        assert measured(TokenTimes.of(built, timeline)) == sorted(by_hand(built, requests, again))


def just_met(rng: random.Random, built: Instance, timeline: Timeline) -> ServiceLevels:
    """Return levels of which a timeline meets each as narrowly as can be: no floor may say that it does not."""
    asked = [("latency", rng.choice((50, 75, 100))), ("first token", rng.choice((50, 75, 100)))]
    asked = [rng.choice(asked), ("latency", 100)] if rng.random() < 0.5 else [rng.choice(asked)]
    asked += rng.choice(([], [("time per token", 100)], [("time per token", rng.choice((60, 80, 100)))]))
    levels = ServiceLevels(tuple(ServiceLevel(what, Fraction(1), Fraction(share, 100)) for what, share in asked))
    figures = reached_by(built, timeline, levels)
    return ServiceLevels(
        tuple(
            replace(level, limit=figure)
            for level, figure in zip(levels, figures, strict=True)
            if figure is not None and figure > 0
        )
    )


@pytest.mark.parametrize(
    ("world", "seed"), by_day([(w, s) for s in range(500) for w in ("split", "hold", "steps", "chats")], 20)
)
def test_no_floor_lies_above_what_is_served(world: str, seed: int) -> None:
    """Whatever levels a policy meets, and no more, no window asks for more than there is, nor does the verifier."""
    rng = random.Random(seed)
    built, away = WORLDS[world](rng), rng.random() < 0.3
    built = once_away(rng, built) if away else built
    gpus = list(built.cluster.gpus)
    # A class may run on one kind of node alone.
    allowed = np.stack([(built.run_us[:, c] < 2**62) for c in built.gpu_class.tolist()], axis=1)
    floor = StreamFloor(built, gpus, allowed, cut=away)
    for policy in rng.sample(("round_robin", "least_requests", "least_tokens", "least_work"), 2):
        timeline = simulate(built, parse_policy(policy))
        levels = just_met(rng, built, timeline)
        latency = np.maximum(floor.shortest_us(first_token=False), 0)
        assert broken_at_best(built, levels, latency, floor.least_times(), "") is None
        for limit in limits(built, levels):
            weights = [tuple(Fraction(rng.choice((1, 1, 2, 5))) for _ in gpus) for _ in range(3)]
            cuts = floor.cuts(limit, weights)
            assert cuts is not None
            assert not any(cut.refutes([1] * len(gpus)) for cut in cuts), (levels, cuts)
            begin_us = rng.choice((0, rng.randint(0, 100)))
            for way in () if away else WAYS:
                window = {"begin_us": begin_us, "end_us": begin_us + rng.randint(1, 400), "way": way}
                each = [rng.choice((1, 2)) for _ in gpus]
                asked, offered = asked_and_offered(built, limit, window | {"weights": each})
                assert asked <= offered, (levels, window)
