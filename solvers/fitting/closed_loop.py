"""Requests that come as others end: the times of an engine at a fixed number of them, and the law behind such times.

Benchmarks of engines keep so many requests under way and say how long first tokens and tokens took in the mean. Times
per token are steps and, in between, prompts of others; so steps are sought with which a simulation of the same
benchmark has the same times.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import exp, log
from typing import NamedTuple, Protocol

from truenorth.models.streams import PICOSECONDS, StreamSpeed, Tokens
from truenorth.models.strides import StreamRun

_ROUNDS, _CLOSE = 30, 1e-3
"""Rounds of correction, at most, and relative errors that are small enough."""
_MOST, _LEAST_TURNS = 2_000, 10
"""Requests that are simulated, at most; and how many follow each other where no benchmark says how many there were."""


class LoopTimes(NamedTuple):
    """Means of a benchmark, in microseconds: until the first token, and per token behind it."""

    first_us: float
    token_us: float


class LoopPoint(Protocol):
    """What was measured at so many requests at once; times are those of `LoopTimes`."""

    @property
    def at_once(self) -> int:
        """Requests under way at any time."""

    @property
    def token_us(self) -> float:
        """Mean time per token behind the first."""

    @property
    def first_us(self) -> float:
        """Mean time until the first token."""

    @property
    def tokens(self) -> Sequence[Tokens]:
        """Those of the requests, one after the other; there may be more requests than are listed."""

    @property
    def requests(self) -> int:
        """How many were served; 0: as many as make the beginning not count."""


def serve_in_turn(speed: StreamSpeed, at_once: int, tokens: Sequence[Tokens], requests: int) -> LoopTimes:
    """Return the mean times of requests of which so many are under way; the first ones come together.

    Their tokens are those listed, from the first on again after the last. Where the number of requests is 0 those that
    begin together do not count.
    """
    count = requests or at_once * (_LEAST_TURNS + 1)
    run, waiting, sent, first = StreamRun(speed, 0), deque(range(min(at_once, count))), [0] * count, [0] * count
    coming, firsts_us, tokens_us = len(waiting), list[int](), list[float]()
    while waiting or run.requests:
        while waiting and run.requests < speed.seats and run.budget > 0:
            run.join(waiting[0], tokens[waiting.popleft() % len(tokens)])
        began, ended = run.advance(run.stride())
        now = run.boundary_us
        for request in began:
            first[request] = now
        for request in ended:
            if requests or request >= at_once:
                firsts_us.append(first[request] - sent[request])
                more = tokens[request % len(tokens)].output - 1
                tokens_us += [(now - first[request]) / more] if more else []
            if coming < count:
                sent[coming] = now
                waiting.append(coming)
                coming += 1
    return LoopTimes(*(sum(values) / len(values) for values in (firsts_us, tokens_us)))


def law_of_loops(points: Sequence[LoopPoint], chunk: int, seats: int) -> tuple[StreamSpeed, list[LoopTimes]]:
    """Return the law with which simulated benchmarks come closest to measured ones, and their times by it.

    Parameters
    ----------
    points
        In the order of requests at once, two at least.
    chunk, seats
        Tokens of an iteration, decodes counted, and most requests at once.
    """
    decodes = [min(point.at_once, seats) for point in points]
    steps_us = {count: point.token_us for count, point in zip(decodes, points, strict=True)}
    prompt_us = points[0].first_us / max(1, points[0].tokens[0].uncached)
    found: list[tuple[float, StreamSpeed, list[LoopTimes]]] = []
    for _ in range(_ROUNDS):
        speed = speed_by_steps(steps_us, prompt_us, chunk, seats)
        times = [serve_in_turn(speed, each.at_once, each.tokens, min(each.requests, _MOST)) for each in points]
        off = [log(point.token_us / time.token_us) for point, time in zip(points, times, strict=True)]
        first_off = [log(point.first_us / time.first_us) for point, time in zip(points, times, strict=True)]
        found.append((sum(map(abs, off + first_off)), speed, times))
        if max(map(abs, off)) < _CLOSE and abs(sum(first_off)) < _CLOSE * len(points):
            break
        # Each step by its own error; there is one rate of prompts for all.
        steps_us |= {count: steps_us[count] * exp(by) for count, by in zip(decodes, off, strict=True)}
        prompt_us *= exp(sum(first_off) / len(points))
    _, speed, times = min(found, key=lambda each: each[0])
    return speed, times


def speed_by_steps(steps_us: Mapping[int, float], prompt_us: float, chunk: int, seats: int) -> StreamSpeed:
    """Return a law by steps at some numbers of decodes, on the nearest line beyond these; no step is below a smaller.

    >>> speed_by_steps({2: 10.0, 4: 14.0}, 1.0, 64, 8).step_us
    {1: 8, 2: 10, 4: 14, 8: 22}
    """
    known = sorted(steps_us.items())
    if known[0][0] > 1:
        known.insert(0, (1, _on_line(known[0], known[min(1, len(known) - 1)], 1)))
    if known[-1][0] < seats:
        known.append((seats, _on_line(known[-1], known[-2], seats)))
    listed, least = dict[int, int](), 1
    for count, us in known:
        listed[count] = least = max(least, round(us))
    return StreamSpeed(Fraction(f"{PICOSECONDS / prompt_us:.9g}"), chunk, seats, listed, shared=True)


def _on_line(near: tuple[int, float], other: tuple[int, float], count: int) -> float:
    """Return the step of so many decodes on the line through two others."""
    rise = (near[1] - other[1]) / (near[0] - other[0]) if near[0] != other[0] else 0.0
    return near[1] + rise * (count - near[0])
