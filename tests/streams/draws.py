"""Random speeds, requests and queues, for the simulator that takes one iteration after the other."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate
from math import ceil

from tests.streams.one_by_one import Request, Speed
from truenorth.models.streams import StreamSpeed


def random_speed(rng: random.Random, kv: int = 0, measured: bool = False) -> StreamSpeed:
    """Return a speed of a few seats, small chunks, and steps of a few microseconds that rise unevenly.

    If it is to be like those that are measured: with any of what contexts, mixed iterations and decodes take, and KV
    that is reserved or grows.
    """
    seats = rng.choice((1, 2, 3, 5, 8))
    listed = sorted({1, seats, *rng.sample(range(1, seats + 1), rng.randint(0, min(2, seats)))})
    steps = accumulate(rng.randint(0 if at else 1, 9) for at in range(len(listed)))
    rate = Fraction(rng.choice((1_000_000, 500_000, 300_000, 7_000_000, 123_457)), rng.choice((1, 1, 3)))
    shared = measured and rng.random() < 0.5
    chunk = rng.choice((1, 3, 7, 16)) + (seats if shared else 0)
    plain = StreamSpeed(rate, chunk, seats, dict(zip(listed, steps, strict=True)), kv)
    if not measured:
        return plain
    context_ps, mixed_us = rng.choice((0, 30_001, 250_000, 1_333_333)), rng.choice((0, 1, 7))
    return replace(plain, context_ps=context_ps, mixed_us=mixed_us, shared=shared, block=rng.choice((0, 1, 2, 5, 16)))


def plainly(speed: StreamSpeed, cached: int = 0) -> Speed:
    """Return the same speed for the simulator, its steps interpolated by the text, and blocks of caches."""
    tau = [0]
    for k in range(1, speed.seats + 1):
        low = max(listed for listed in speed.step_us if listed <= k)
        high = min(listed for listed in speed.step_us if listed >= k)
        rise = Fraction(speed.step_us[high] - speed.step_us[low], max(1, high - low))
        tau.append(ceil(speed.step_us[low] + rise * (k - low)))
    amended = Fraction(speed.context_ps, 1_000_000), speed.mixed_us, speed.shared, speed.block
    return Speed(speed.prefill_rate, speed.chunk, speed.seats, tau, speed.kv_bytes, *amended, cached)


def random_requests(rng: random.Random, count: int, kinds: str = "a", gap: int = 40) -> list[Request]:
    """Return requests in order of release; a few are moved to with their KV (u = 0), a few must wait."""
    requests, release = [], 0
    for _ in range(count):
        release += rng.choice((0, 0, rng.randint(0, gap)))
        prompt = rng.choice((rng.randint(1, 8), rng.randint(1, 60)))
        uncached = rng.choice((prompt, prompt, rng.randint(1, prompt), 0))
        answer = rng.choice((1, rng.randint(1, 9), rng.randint(1, 40)))
        wait = rng.choice((0, 0, 0, release + rng.randint(0, 2 * gap)))
        requests.append(Request(rng.choice(kinds), prompt, uncached, answer, release, wait))
    return requests
