"""Strides equal one iteration after the other, bit for bit."""

import random
from fractions import Fraction

import pytest

from tests.streams.draws import plainly, random_requests, random_speed
from tests.streams.one_by_one import Node, Request, Served, serve
from truenorth.models.streams import StreamSpeed, Tokens
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
            most, length_us = run.stride()
            fewer = rng.randint(1, most) if rng.random() < 0.3 else most
            advance(Stride(min(fewer, -(-(start - run.boundary_us) // length_us)), length_us))
        if not run.requests and run.boundary_us < start:
            run = StreamRun(speed, start)
        assert run.boundary_us == start
        assert run.budget > 0
        run.join(number, requests[number].u, requests[number].m)
    while run.requests:
        advance(run.stride())
    return served


@pytest.mark.parametrize("seed", range(20))
def test_equal_one_iteration_after_the_other(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(20):
        speed = random_speed(rng)
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
    run.join(0, 20_480, 10_000)
    # Ten whole chunks of 256 ms; then 9,999 steps at once.
    assert run.stride() == Stride(10, 256_000)
    assert run.advance(run.stride()) == ([0], [])
    assert run.stride() == Stride(9_999, 12_500)
    assert run.advance(run.stride()) == ([], [0])
    assert run.boundary_us == 10 * 256_000 + 9_999 * 12_500
    assert run.boundary_us == run.speed.alone_us(Tokens(20_480, 20_480, 10_000))
