"""Continuous batching by one iteration after the other, from the text of the definition; shares no code with the rest.

Slow and plain: what the strides of the engine and of the checker must equal bit for bit. Times are whole microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil


@dataclass
class Speed:
    """How a class runs on a node: prompt tokens per second, tokens per iteration, seats, tau[0..K], bytes per token."""

    rate: Fraction
    chunk: int
    seats: int
    tau: list[int]
    kv: int = 0

    def worst(self) -> int:
        """Return the longest iteration that there can be."""
        return self.tau[self.seats] + ceil(1_000_000 * self.chunk / self.rate)


@dataclass
class Node:
    """A node with models that stay: speeds by class, bytes for KV, at most so many requests, gone after `until`."""

    speeds: dict[str, Speed]
    room: int = 0
    limit: int = 10**9
    until: float = float("inf")


@dataclass
class Request:
    """A request: class, prompt tokens, uncached ones, output tokens; when its job is released; what it comes after.

    `after` has pairs of another request's number and the microseconds that its output takes to get here.
    """

    kind: str
    n: int
    u: int
    m: int
    release: int = 0
    not_before: int = 0
    after: list[tuple[int, int]] = field(default_factory=list)


@dataclass
class Served:
    """When a request joined, had its first token, and ended; None as long as it has not."""

    start: int | None = None
    first: int | None = None
    end: int | None = None


class _Running:
    def __init__(self, number: int, request: Request) -> None:
        self.number = number
        self.rest = request.u
        self.tokens = 0
        self.takes = 0


def serve(nodes: list[Node], requests: list[Request], queues: list[list[int]]) -> list[Served]:
    """Return when every request is served, if every node takes its queue in this order and each as early as it fits."""
    served = [Served() for _ in requests]
    waiting = [list(queue) for queue in queues]
    inside: list[list[_Running]] = [[] for _ in nodes]
    ends_at: list[int | None] = [None] * len(nodes)
    now = 0
    while True:
        for g in range(len(nodes)):
            if ends_at[g] == now:
                ends_at[g] = None
                inside[g] = _end_iteration(inside[g], requests, served, now)
        for g, node in enumerate(nodes):
            if ends_at[g] is None:
                _join(node, inside[g], waiting[g], requests, served, now)
                if inside[g]:
                    ends_at[g] = now + _length(node, inside[g], requests)
        later = [t for t in ends_at if t is not None]
        for g in range(len(nodes)):
            if not inside[g] and waiting[g]:
                ready = _ready(requests, served, waiting[g][0])
                if ready is not None and ready > now:
                    later.append(ready)
        if not later:
            return served
        now = min(later)


def _ready(requests: list[Request], served: list[Served], number: int) -> int | None:
    """Return from when on a request could join; None while a predecessor has not ended."""
    request = requests[number]
    ready = max(request.release, request.not_before)
    for other, travels in request.after:
        end = served[other].end
        if end is None:
            return None
        ready = max(ready, end + travels)
    return ready


def _join(
    node: Node, inside: list[_Running], waiting: list[int], requests: list[Request], served: list[Served], now: int
) -> None:
    """Share out the prompt budget of the iteration that begins now, and let requests join while some is left."""
    budget = None
    if inside:
        budget = node.speeds[requests[inside[0].number].kind].chunk
        for running in inside:  # in order of start
            running.takes = min(running.rest, budget)
            budget -= running.takes
    while waiting:
        number = waiting[0]
        request = requests[number]
        speed = node.speeds[request.kind]
        if not inside:
            budget = speed.chunk
        ready = _ready(requests, served, number)
        if ready is None or ready > now or not budget:
            return
        if inside and requests[inside[0].number].kind != request.kind:
            return
        if len(inside) >= min(speed.seats, node.limit):
            return
        held = sum((requests[other.number].n + requests[other.number].m) * speed.kv for other in inside)
        if held + (request.n + request.m) * speed.kv > node.room:
            return
        iterations = ceil(Fraction(max(0, request.u - 1), speed.chunk)) + request.m
        if now + iterations * speed.worst() > node.until:
            return
        waiting.pop(0)
        running = _Running(number, request)
        running.takes = min(running.rest, budget)
        budget -= running.takes
        inside.append(running)
        served[number].start = now


def _length(node: Node, inside: list[_Running], requests: list[Request]) -> int:
    speed = node.speeds[requests[inside[0].number].kind]
    k = sum(1 for running in inside if running.rest == 0)
    p = sum(running.takes for running in inside)
    return speed.tau[k] + ceil(1_000_000 * p / speed.rate)


def _end_iteration(inside: list[_Running], requests: list[Request], served: list[Served], now: int) -> list[_Running]:
    stays = []
    for running in inside:
        had_prompt = running.rest > 0
        running.rest -= running.takes
        running.takes = 0
        if running.rest == 0:  # a decode, or a prompt that is finished with this iteration
            running.tokens += 1
            if running.tokens == 1:
                served[running.number].first = now
        assert not (had_prompt and running.tokens > 1)
        if running.tokens == requests[running.number].m:
            served[running.number].end = now
        else:
            stays.append(running)
    return stays
