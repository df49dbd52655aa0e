"""Bounds and floors where nodes cache prefixes or hold KV: none above what a simulation serves; all computed again."""

import random
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from tests.night import by_day
from tests.streams.test_prefix_caches import chats
from tests.streams.worlds import POLICIES, random_cached_chats, random_growing_chats, random_holds
from truenorth.executor import parse_policy, simulate
from truenorth.models import Instance, Objective, Timeline
from truenorth.models.identity import scenario_hash
from truenorth.models.objective import completion_us, timeline_value
from truenorth.solvers.bounds import closed_form
from truenorth.solvers.bounds.floor_recomputed import asked_and_offered
from truenorth.solvers.bounds.least_computed import least_computed
from truenorth.solvers.bounds.recomputed import RECOMPUTED
from truenorth.solvers.bounds.stream_floor import NO_DUE, WAYS, Limit, StreamFloor

DRAWS = 4
"""Instances of a test; 125 of them are 500."""
SIMULATED = (*POLICIES, "prefix_affinity:precise=on", "least_tokens:limit=1")


Draw = Callable[[random.Random, int], Instance]
WORLDS = pytest.mark.parametrize(
    "world", [random_cached_chats, random_holds, random_growing_chats], ids=["caches", "holds", "growing"]
)


def drawn(world: Draw, rng: random.Random) -> Instance:
    """Return requests, some with deadlines, most of whose prompts go on with others'."""
    instance = world(rng, rng.randint(2, 25))
    jobs = (replace(job, deadline_us=rng.choice((None, rng.randint(1, 200)))) for job in instance.jobs)
    return replace(instance, jobs=tuple(jobs))


def served(instance: Instance, seed: int) -> list[Timeline]:
    return [simulate(instance, parse_policy(policy), seed) for policy in SIMULATED]


@WORLDS
@pytest.mark.parametrize("seed", by_day(range(125), 1))
def test_no_bound_lies_above_what_is_served(seed: int, world: Draw) -> None:
    rng = random.Random(seed)
    for number in range(DRAWS):
        instance = drawn(world, rng)
        timelines = served(instance, seed)
        for timeline in timelines:
            latency = completion_us(instance, timeline) - instance.job_release_us
            assert (latency >= instance.job_ideal_us).all(), number
        for objective in Objective:
            least = min(timeline_value(objective, instance, timeline) for timeline in timelines)
            for method, bound in closed_form.METHODS.items():
                if method not in ("critical_path", "stream_prices"):
                    continue
                value = bound(instance, objective)
                assert value is None or value <= least, (number, objective, method)
                if value is not None:
                    again = RECOMPUTED[method](instance, objective, closed_form.witness(instance, objective, method))
                    assert again is not None
                    assert again <= least, (number, objective, method)


@WORLDS
@pytest.mark.parametrize("seed", by_day(range(125), 1))
def test_no_floor_lies_above_what_is_served(seed: int, world: Draw) -> None:
    """The limits are what a simulation reached, exactly: neither cuts nor windows at random refute its nodes."""
    rng = random.Random(seed)
    for number in range(DRAWS):
        instance = drawn(world, rng)
        kinds = list(dict.fromkeys(gpu.kind for gpu in instance.cluster.gpus))
        gpus = [next(gpu for gpu in instance.cluster.gpus if gpu.kind == kind) for kind in kinds]
        counts = [sum(gpu.kind == kind for gpu in instance.cluster.gpus) for kind in kinds]
        floor, release = StreamFloor(instance, gpus), instance.job_release_us
        timeline = simulate(instance, parse_policy(rng.choice(SIMULATED)), seed)
        assert timeline.served is not None
        for first_token in (False, True):
            first = timeline.served.first_us[instance.streams.first_token]  # type: ignore[union-attr]
            ends = first if first_token else completion_us(instance, timeline)
            latency, late = np.sort(ends - release), rng.randint(0, len(release) - 1)
            assert (floor.shortest_us(first_token) <= ends - release).all(), number
            due = release + latency[len(release) - 1 - late]
            for surely in (np.full(len(release), NO_DUE), release + latency[-1]):
                limit = Limit(due, surely, late, first_token)
                weights = [[Fraction(rng.choice((1, 3))) for _ in gpus], [Fraction(1)] * len(gpus)]
                cuts = floor.cuts(limit, weights)
                assert cuts is not None
                assert not any(cut.refutes(counts) for cut in cuts), number
                for _ in range(5):
                    begin_us = rng.choice((0, rng.randint(0, 100)))
                    window = {"begin_us": begin_us, "end_us": begin_us + rng.randint(1, 400), "way": rng.choice(WAYS)}
                    ones = {"weights": [1] * instance.n_gpus}
                    asked, offered = asked_and_offered(instance, limit, window | ones)
                    assert asked <= offered, (number, window)


@pytest.mark.parametrize(("blocks", "refuted"), [((1, 2, 3, 4), [1, 2]), ((1, 1, 1, 1), [])])
def test_floors_count_what_others_do_not_list(blocks: tuple[int, ...], refuted: list[int]) -> None:
    """Four prompts of 10 us with a block of 4 each, due by 15: 40 us of work refute two nodes.

    Where they list the same block a cache might spare each its 4 us, so that by 24 a single node is not refuted.
    """
    instance = chats(1_000, [(0, 10, 1, (block,)) for block in blocks])
    gpus, none = list(instance.cluster.gpus), np.full(4, NO_DUE)
    due = instance.job_release_us + (15 if refuted else 24)
    cuts = StreamFloor(instance, gpus).cuts(Limit(due, none, 0, False), [[Fraction(1)]])
    assert cuts is not None
    assert [count for count in (1, 2, 3) if any(cut.refutes([count]) for cut in cuts)] == refuted


def test_what_no_cache_can_spare_by_hand() -> None:
    """Blocks of 4 tokens: 0 and 1 are listed twice, 9 once. All of the third prompt may be cached but one token.

    Of KV it holds alone its answer, and the first request its answer, a block and two tokens more.
    """
    asked = [(0, 14, 3, (0, 1, 9)), (5, 10, 3, (0, 1)), (7, 8, 3, (0, 1))]
    instance = chats(1_000, asked)
    relaxed = least_computed(instance).streams
    assert relaxed is not None
    assert relaxed.uncached.tolist() == [6, 2, 1]
    assert relaxed.held.tolist() == [6 + 3, 2 + 3, 3]
    # 1 us per prompt token, and steps of 5 us.
    assert instance.job_ideal_us.tolist() == [16, 12, 11]
    assert scenario_hash(least_computed(instance)) == scenario_hash(instance)
