"""Floors of streams: by hand, and never above what a simulation of the nodes reached."""

import random
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest

from tests.night import by_day
from tests.streams.draws import plainly, random_speed
from tests.streams.one_by_one import Node, Request, Served, serve
from truenorth.models import GPU, Cluster, Edge, Instance, Job, Link, Network, Task, Workflow
from truenorth.models.instance import Ints
from truenorth.models.streams import StreamClass, StreamSpeed, Tokens
from truenorth.solvers.bounds import stream_costs
from truenorth.solvers.bounds.stream_costs import ChargedRequests
from truenorth.solvers.bounds.stream_floor import NO_DUE, Cut, Limit, StreamFloor

SPEED = StreamSpeed(Fraction(1_000_000), 10, 4, {1: 2, 2: 2, 4: 6})  # a microsecond per prompt token; tau 2, 2, 4, 6
NETWORK = Network(Link(), Link())


def gpu_of(kind: str, room: int = 10**9, number: int = 0) -> GPU:
    return GPU(f"s{number}/g0", number, kind, room, Fraction(10**9))


def instance_of(stream: StreamClass, jobs: Sequence[tuple[int, Sequence[Tokens]]], gpus: Sequence[GPU]) -> Instance:
    """Return jobs that are chains of requests."""
    made = []
    for release, chain in jobs:
        tasks = [
            Task.of_stream(f"t{at}", stream, tokens, (Edge(f"t{at - 1}", 0),) if at else ())
            for at, tokens in enumerate(chain)
        ]
        made.append(Job(Workflow("chat", tuple(tasks)), release))
    return Instance(Cluster(tuple(gpus), NETWORK), (), tuple(made))


def asked(uncached: int, output: int, within_us: int = 10**9) -> ChargedRequests:
    figures = (uncached, output - 1, uncached + output, within_us)
    return ChargedRequests(*(np.array([figure]) for figure in figures))


def one(values: stream_costs.Floats) -> float:
    return float(values[0])


def test_costs_by_hand() -> None:
    """rho = tau[2] / 2 = 1; 10 prompt tokens and 8 decodes are 10 us and 8 x 1 us, in seats 10 + 8 x 2 of 4."""
    assert one(stream_costs.energy_us(SPEED, asked(10, 9))) == pytest.approx(18)
    assert one(stream_costs.seat_us(SPEED, asked(10, 9))) == pytest.approx(26 / 4)
    assert one(stream_costs.kv_us(SPEED, asked(10, 9), 38)) == pytest.approx(26 / 2)  # it holds half of the room
    assert stream_costs.alone_us(SPEED, np.array([10]), np.array([8])).tolist() == [26]


def test_hull_by_hand() -> None:
    """tau 2 and 5 with 1 and 5 at once: 2 and 1 us each. A mean step of 3 lets each pay 2 - 1/3 at the least."""
    speed = StreamSpeed(Fraction(1_000_000), 10, 5, {1: 2, 4: 5, 5: 5})  # tau 2, 3, 4, 5, 5
    # The corners are (2, 2), (3, 1.5), (4, 4/3), (5, 1); the lower hull goes from (2, 2) by (3, 1.5) to (5, 1).
    assert one(stream_costs.energy_us(speed, asked(10, 5, 10 + 4 * 2))) == pytest.approx(10 + 4 * 2)
    assert one(stream_costs.energy_us(speed, asked(10, 5, 10 + 4 * 4))) == pytest.approx(10 + 4 * 1.25)
    assert one(stream_costs.energy_us(speed, asked(10, 5, 10 + 4 * 9))) == pytest.approx(10 + 4 * 1)


def test_scarce_kv_by_hand() -> None:
    """tau = 10 + k for k = 1..10: room for two requests makes each decode 1 + 10 / 2 us, where rho is 2."""
    speed = StreamSpeed(Fraction(1_000_000), 10, 10, {1: 11, 10: 20})
    assert one(stream_costs.energy_us(speed, asked(1, 10))) == pytest.approx(1 + 9 * 2)
    assert one(stream_costs.energy_with_kv_us(speed, asked(1, 10), 22)) == pytest.approx(1 + 9 * 6)


def least(cuts: Sequence[Cut] | None, way: str) -> Fraction:
    assert cuts is not None
    return next(cut.least for cut in cuts if cut.way == way)


def floor_of(
    jobs: Sequence[tuple[int, Sequence[Tokens]]], limit_us: int, late: int, surely_us: int = NO_DUE
) -> Fraction:
    instance = instance_of(StreamClass("chat", {"*": SPEED}), jobs, [gpu_of("H100")])
    release = instance.job_release_us
    surely = np.full(len(jobs), NO_DUE) if surely_us == NO_DUE else release + surely_us
    cuts = StreamFloor(instance, [gpu_of("H100")]).cuts(Limit(release + limit_us, surely, late), [[Fraction(1)]])
    return least(cuts, "energy")


def test_windows_by_hand() -> None:
    """Six requests of 18 us each (10 + 8 x rho) within 36 us are 3 GPUs; without the two dearest of them 2."""
    jobs = [(0, [Tokens(10, 10, 9)])] * 6
    assert float(floor_of(jobs, 36, 0)) == pytest.approx(3, abs=1e-2)
    assert float(floor_of(jobs, 36, 2)) == pytest.approx(2, abs=1e-2)
    # With 54 us for all, those two come back in a longer window: 6 x 18 / 54.
    assert float(floor_of(jobs, 36, 2, 54)) == pytest.approx(2, abs=1e-2)
    assert float(floor_of(jobs, 36, 4, 54)) == pytest.approx(2, abs=1e-2)
    assert float(floor_of(jobs, 36, 4)) == pytest.approx(1, abs=1e-2)


def test_no_number_is_enough() -> None:
    """Alone a request takes 10 + 8 x 2 us."""
    instance = instance_of(StreamClass("chat", {"*": SPEED}), [(5, [Tokens(10, 10, 9)])] * 4, [gpu_of("H100")])
    floor, none = StreamFloor(instance, [gpu_of("H100")]), np.full(4, NO_DUE)
    assert floor.shortest_us(first_token=False).tolist() == [26] * 4
    assert floor.shortest_us(first_token=True).tolist() == [10] * 4
    assert floor.cuts(Limit(instance.job_release_us + 25, none, 3), [[Fraction(1)]]) is None
    assert floor.cuts(Limit(instance.job_release_us + 25, none, 4), [[Fraction(1)]]) is not None
    assert floor.cuts(Limit(instance.job_release_us + 26, none, 0), [[Fraction(1)]]) is not None


def random_jobs(rng: random.Random) -> list[tuple[int, list[Tokens]]]:
    jobs, release = [], 0
    for _ in range(rng.randint(1, 14)):
        release += rng.choice((0, 0, rng.randint(0, 30)))
        chain = []
        for _ in range(rng.choice((1, 1, 2))):
            prompt = rng.choice((rng.randint(1, 8), rng.randint(1, 60)))
            uncached = rng.choice((prompt, prompt, rng.randint(1, prompt)))
            chain.append(Tokens(prompt, uncached, rng.choice((1, rng.randint(1, 9), rng.randint(1, 40)))))
        jobs.append((release, chain))
    return jobs


def serve_at_random(
    rng: random.Random, jobs: Sequence[tuple[int, Sequence[Tokens]]], nodes: Sequence[Node]
) -> list[list[Served]]:
    """Serve chains on nodes drawn for each request, each node in the order of releases and steps."""
    requests: list[Request] = []
    for release, chain in jobs:
        for at, tokens in enumerate(chain):
            after = [(len(requests) - 1, 0)] if at else []
            requests.append(Request("a", *tokens, release, release, after))
    queues: list[list[int]] = [[] for _ in nodes]
    at_random = rng.random() < 0.5
    for number in range(len(requests)):
        queues[rng.randrange(len(nodes)) if at_random else number % len(nodes)].append(number)
    served = iter(serve(list(nodes), requests, queues))
    return [[next(served) for _ in chain] for _, chain in jobs]


def smallest_within(times: Sequence[int], late: int) -> int:
    return sorted(times)[len(times) - 1 - late]


@pytest.mark.parametrize("measured", [False, True])
@pytest.mark.parametrize("seed", by_day(range(12), 1))
def test_no_floor_above_a_simulation(seed: int, measured: bool) -> None:
    """The limits are exactly what a simulation of nodes reached; so no cut may say that these nodes are too few.

    Nor where contexts and mixed iterations cost time, decodes share the budget, and KV grows.
    """
    rng = random.Random(seed)
    refuted_one_less = 0
    for _ in range(25):
        jobs = random_jobs(rng)
        kinds = {kind: random_speed(rng, 1, measured) for kind in "AB"}
        biggest = max(tokens.held for _, chain in jobs for tokens in chain) + 15 * measured  # whole blocks
        room = rng.choice((biggest, 2 * biggest, 10**6))
        counts = [rng.randint(1, 3), rng.randint(0, 2)]
        gpus = [gpu_of("A", room), gpu_of("B", room, 1)]
        nodes = [
            Node({"a": plainly(kinds[gpu.kind])}, room)
            for gpu, count in zip(gpus, counts, strict=True)
            for _ in range(count)
        ]
        served = serve_at_random(rng, jobs, nodes)
        instance = instance_of(StreamClass("chat", kinds), jobs, gpus)
        floor = StreamFloor(instance, gpus)
        weights = [[Fraction(1), Fraction(1)], [Fraction(3), Fraction(2)], [Fraction(1), Fraction(10)]]
        for first_token in (False, True):
            latency = [
                ((chain[-1].first if first_token else chain[-1].end) or 0) - release
                for chain, (release, _) in zip(served, jobs, strict=True)
            ]
            assert (floor.shortest_us(first_token) <= np.array(latency)).all()
            late = rng.randint(0, len(jobs) - 1)
            due: Ints = instance.job_release_us + smallest_within(latency, late)
            for surely in (np.full(len(jobs), NO_DUE), instance.job_release_us + max(latency)):
                cuts = floor.cuts(Limit(due, surely, late, first_token), weights)
                assert cuts is not None
                assert not any(cut.refutes(counts) for cut in cuts)
                fewer = [max(0, counts[0] - 1), counts[1]]
                refuted_one_less += sum(fewer) > 0 and any(cut.refutes(fewer) for cut in cuts)
    assert refuted_one_less or measured  # the floors say something; of what measured engines take besides nothing
