"""Strides equal one iteration after the other, bit for bit."""

import random
from dataclasses import replace
from fractions import Fraction
from math import ceil

import pytest

from tests.streams.draws import plainly, random_requests, random_speed
from tests.streams.one_by_one import Node, Request, Served, serve
from truenorth.models.streams import PICOSECONDS, StreamSpeed, Tokens
from truenorth.models.strides import StreamRun, Stride


def by_strides(rng: random.Random, speed: StreamSpeed, requests: list[Request], starts: list[int]) -> list[Served]:
    """Serve requests that join at given instants, strides now and then cut short without need."""
    served = [Served(start) for start in starts]
    run = StreamRun(speed, 0)

    def advance(stride: Stride) -> None:
        first, ended = run.advance(stride)
        for number in first:
            served[number].first = run.boundary_us
        for number in ended:
            served[number].end = run.boundary_us

    for number, start in enumerate(starts):
        while run.requests and run.boundary_us < start:
            stride = run.stride()
            fewer = rng.randint(1, stride.iterations) if rng.random() < 0.3 else stride.iterations
            advance(stride._replace(iterations=min(fewer, run.iterations_until(start, stride))))
        if not run.requests and run.boundary_us <= start:
            run = StreamRun(speed, start)
        assert run.boundary_us == start
        assert run.budget > 0
        run.join(number, Tokens(requests[number].n, requests[number].u, requests[number].m))
    while run.requests:
        advance(run.stride())
    return served


@pytest.mark.parametrize("seed", range(20))
def test_equal_one_iteration_after_the_other(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(20):
        speed = replace(random_speed(rng, measured=rng.random() < 0.7), block=0)
        requests = random_requests(rng, rng.randint(1, 30), gap=rng.choice((5, 40, 200)))
        slow = serve([Node({"a": plainly(speed)})], requests, [list(range(len(requests)))])
        starts = [served.start for served in slow if served.start is not None]
        assert by_strides(rng, speed, requests, starts) == slow


def test_a_case_by_hand() -> None:
    # 1 us per prompt token, chunks of 10, steps of 5 us alone and 7 us for two.
    # [0, 10) and [10, 20): 10 tokens of the first each. [20, 30): its last 5, and 5 of the second, which joins: both
    # have their first token at 30, and the second ends. [30, 39): one decode, 4 tokens of the third: 5 + 4.
    # [39, 46): two decodes, and both end.
    speed = StreamSpeed(Fraction(1_000_000), 10, 2, {1: 5, 2: 7})
    requests = [Request("a", 25, 25, 3), Request("a", 5, 5, 1), Request("a", 4, 4, 2)]
    served = [Served(0, 30, 46), Served(20, 30, 30), Served(30, 39, 46)]
    assert serve([Node({"a": plainly(speed)})], requests, [[0, 1, 2]]) == served
    assert by_strides(random.Random(0), speed, requests, [0, 20, 30]) == served


def test_few_strides_for_long_answers() -> None:
    run = StreamRun(StreamSpeed(Fraction(8_000), 2048, 64, {1: 12_500, 64: 40_000}), 0)
    run.join(0, Tokens(20_480, 20_480, 10_000))
    # Ten whole chunks of 256 ms; then 9,999 steps at once.
    assert run.stride() == Stride(10, 256_000 * PICOSECONDS)
    assert run.advance(run.stride()) == ([0], [])
    assert run.stride() == Stride(9_999, 12_500 * PICOSECONDS)
    assert run.advance(run.stride()) == ([], [0])
    assert run.boundary_us == 10 * 256_000 + 9_999 * 12_500
    assert run.boundary_us == run.speed.alone_us(Tokens(20_480, 20_480, 10_000))


def test_few_strides_where_contexts_count_and_kv_grows() -> None:
    speed = StreamSpeed(Fraction(8_000), 2048, 64, {1: 12_500, 64: 40_000}, 1, 30_001, 300, True, 16)
    run = StreamRun(speed, 0, 64)
    run.join(0, Tokens(100, 100, 1_000))
    # 100 / 8,000 s and 0.3 ms; then 999 steps of 12.5 ms and 30.001 ns for each token of context, 101 to 1,099.
    assert run.advance(run.stride()) == ([0], [])
    assert run.boundary_us == 12_800
    # 64 blocks hold 1,024 tokens: those of the steps with contexts 101 to 1,024.
    assert run.stride() == Stride(924, 12_500 * PICOSECONDS + 101 * 30_001, 30_001)
    run.room = 69
    assert run.stride().iterations == 999
    assert run.advance(run.stride()) == ([], [0])
    assert run.boundary_us == 12_800 + ceil(999 * 12_500 + Fraction(30_001, 10**6) * sum(range(101, 1_100)))
    assert run.boundary_us == speed.alone_us(Tokens(100, 100, 1_000))
