"""Continuous batching by one iteration after the other, from the text of the definition; shares no code with the rest.

Slow and plain: what the strides of the engine and of the checker must equal bit for bit. Times are whole microseconds.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import takewhile
from math import ceil


@dataclass
class Speed:
    """How a class runs on a node: prompt tokens per second, tokens per iteration, seats, tau[0..K], bytes per token.

    Then: microseconds per token of context, of an iteration with prompts, whether decodes take part of the budget, and
    tokens per block where KV grows (0: it is reserved), and tokens per block of prompts that nodes cache (0: none).
    """

    rate: Fraction
    chunk: int
    seats: int
    tau: list[int]
    kv: int = 0
    context: Fraction = Fraction(0)
    mixed: int = 0
    shared: bool = False
    block: int = 0
    cached: int = 0


@dataclass
class Node:
    """A node with models that stay: speeds by class, bytes for KV, at most so many requests.

    Then: from when until when it is there, for how long before it goes nobody new joins, and whether requests of higher
    priority take seats and KV of others.
    """

    speeds: dict[str, Speed]
    room: int = 0
    limit: int = 10**9
    there: list[tuple[int, float]] = field(default_factory=lambda: [(0, float("inf"))])
    drain: int = 0
    preempts: bool = False

    def takes(self, now: int) -> bool:
        """Say whether somebody new may join."""
        return any(come <= now < go - self.drain for come, go in self.there)

    def sends_back(self, now: int) -> bool:
        """Say whether those that have not joined are sent back at this time."""
        return any(now in (go - self.drain, go) for _, go in self.there)

    def events(self) -> list[float]:
        """Return when it comes, begins to drain, and goes."""
        return [time for come, go in self.there for time in (come, go - self.drain, go)]


@dataclass
class Request:
    """A request: class, prompt tokens, uncached ones, output tokens; when its job is released; what it comes after.

    `after` has pairs of another request's number and the microseconds that its output takes to get here. `blocks` are
    those of its prompt, as far as the log knows them. `finds` is the number of the request whose KV is held for it,
    which is what is cached of its prompt, if it is still there. A higher `priority` goes first, where nodes preempt.
    """

    kind: str
    n: int
    u: int
    m: int
    release: int = 0
    not_before: int = 0
    after: list[tuple[int, int]] = field(default_factory=list)
    blocks: tuple[int, ...] = ()
    finds: int | None = None
    priority: int = 0

    def prefixes(self, size: int) -> list[Prefix]:
        """Return every leading part of its prompt of so many whole blocks, the shortest first."""
        full = min(len(self.blocks), self.n // size) if size else 0
        return [(self.kind, self.blocks[: count + 1]) for count in range(full)]


Prefix = tuple[str, tuple[int, ...]]
"""Class and blocks: which block it is follows from all that come before it."""


@dataclass
class Served:
    """When a request joined, had its first token, and ended; None as long as it has not."""

    start: int | None = None
    first: int | None = None
    end: int | None = None
    preempted: int = field(default=0, compare=False)
    cut: list[tuple[int, int, int]] = field(default_factory=list)  # node, start and end of every run that was cut
    cached: int = field(default=0, compare=False)


class _Running:
    def __init__(self, number: int, request: Request, lost: bool = False) -> None:
        self.number = number
        self.request = request
        # Prompt tokens that are left, and all whose KV there is then. KV that came in is lost with a node.
        self.rest, self.of = (request.u or request.n if lost else request.u), request.n
        self.tokens = 0
        self.takes = 0
        self.blocks = 0
        self.came = 0
        # Where KV grows: of the leading blocks of its prompt that nodes cache, the copies that it found or computed.
        self.copies: list[int] = []

    @property
    def context(self) -> int:
        return self.request.n + self.tokens


Sent = tuple[int, int]
"""When a request has come to a node, to wait there, and its number."""


def serve(nodes: list[Node], requests: list[Request], queues: list[list[int]]) -> list[Served]:
    """Return when every request is served, if every node takes its queue in this order and each as early as it fits."""
    return serve_sent(nodes, requests, [[(0, number) for number in queue] for queue in queues])


def serve_sent(nodes: list[Node], requests: list[Request], queues: list[list[Sent]]) -> list[Served]:
    """Return the same where requests come to their nodes at some time, and once more if they have been sent back.

    They are as a node begins to drain, unless they have joined, and as it goes, unless they have ended.
    """
    served = [Served() for _ in requests]
    caches = [_Cache(node, requests) for node in nodes]
    waiting = [list(queue) for queue in queues]
    inside: list[list[_Running]] = [[] for _ in nodes]
    again: list[list[_Running]] = [[] for _ in nodes]
    clock = [Fraction(0) for _ in nodes]  # at the last boundary, with what is not a whole microsecond
    ends_at: list[int | None] = [None] * len(nodes)
    now = 0
    while True:
        for g, node in enumerate(nodes):
            if ends_at[g] == now:
                ends_at[g] = None
                before = inside[g]
                inside[g] = _end_iteration(inside[g], requests, served, now)
                caches[g].keep(before, inside[g], now)
            if node.sends_back(now):
                waiting[g] = [(came, number) for came, number in waiting[g] if came > now]
            if any(now == go for _, go in node.there):
                _cut([*inside[g], *again[g]], served, g, now)
                inside[g], again[g], ends_at[g] = [], [], None
                caches[g] = _Cache(node, requests)
        for g, node in enumerate(nodes):
            if ends_at[g] is None:
                if not inside[g]:
                    clock[g] = Fraction(now)
                _join(node, inside[g], again[g], waiting[g], requests, served, now, caches[g])
                caches[g].give_way(inside[g])
                if inside[g]:
                    clock[g] += _length(node, inside[g])
                    ends_at[g] = ceil(clock[g])
        later = [t for t in ends_at if t is not None]
        heads = [_ready(requests, served, queue[0]) for g, queue in enumerate(waiting) if queue and not inside[g]]
        later += [ready for ready in heads if ready is not None and ready > now]
        if any(each.end is None for each in served):
            later += [int(t) for node in nodes for t in node.events() if now < t < float("inf")]
        if not later:
            return served
        now = min(later)


class _Cache:
    """The prefixes that a node has, and when each was used last; where KV grows, which copy of each is found."""

    def __init__(self, node: Node, requests: list[Request]) -> None:
        self.node = node
        self.used: dict[Prefix, int] = {}
        self.copy: dict[Prefix, int] = {}
        self.copies = 0
        here = [request for request in requests if request.kind in node.speeds]
        every = [prefix for request in here for prefix in request.prefixes(node.speeds[request.kind].cached)]
        self.number = {prefix: place for place, prefix in reversed([*enumerate(every)])}
        self.requests = requests
        self.kept: dict[int, int] = {}  # since when KV is held for a request

    def size(self, kind: str) -> int:
        return self.node.speeds[kind].cached * self.node.speeds[kind].kv

    def of(self, running: _Running) -> list[Prefix]:
        return running.request.prefixes(self.node.speeds[running.request.kind].cached)

    def leading(self, request: Request) -> list[Prefix]:
        """Return the leading blocks of a prompt that it has."""
        return [*takewhile(self.used.__contains__, request.prefixes(self.node.speeds[request.kind].cached))]

    def tokens(self, request: Request) -> int:
        """Return how many tokens of a prompt it has, all but one at most."""
        return min(len(self.leading(request)) * self.node.speeds[request.kind].cached, request.n - 1)

    def find(self, running: _Running) -> int:
        """Have a request hold what it finds where KV grows; return how many of the tokens it computes that are."""
        running.copies = [self.copy[prefix] for prefix in self.leading(running.request)]
        return min(len(running.copies) * self.node.speeds[running.request.kind].cached, running.of - 1)

    def blocks(self, inside: list[_Running]) -> int:
        """Return the blocks of KV that those who run hold where it grows: every copy counts once."""
        copies = [copy for running in inside for copy in running.copies]
        speed = self.node.speeds[inside[0].request.kind] if inside else None
        twice = 0 if speed is None else (len(copies) - len(set(copies))) * speed.cached // speed.block
        return sum(running.blocks for running in inside) - twice

    def needs(self, running: _Running, inside: list[_Running]) -> int:
        """Return the blocks that one more takes out of the free ones for all that it computes, where KV grows."""
        speed = self.node.speeds[running.request.kind]
        held = {copy for other in inside for copy in other.copies}
        shared = sum(self.copy[prefix] in held for prefix in self.leading(running.request))
        return ceil(Fraction(running.of, speed.block)) - shared * speed.cached // speed.block

    def compute(self, running: _Running) -> None:
        """Have a request hold a copy of every block of its prompt that is there; it is found if there is no other."""
        size, prefixes = self.node.speeds[running.request.kind].cached, self.of(running)
        done = 0 if not size else min(len(prefixes), (running.of - running.rest) // size)
        for prefix in prefixes[len(running.copies) : done]:
            self.copies += 1
            running.copies.append(self.copies)
            if prefix not in self.used:
                self.used[prefix], self.copy[prefix] = 0, self.copies

    def leave(self, running: _Running, others: list[_Running], now: int) -> None:
        """Keep one copy of what a request had that runs no more: somebody's who runs, or else what was used now."""
        own, running.copies = running.copies, []
        for prefix, copy in zip(self.of(running), own, strict=False):
            if any(self.copy[prefix] in other.copies for other in others):
                continue
            self.used[prefix] = now
            if self.copy[prefix] == copy:
                self.hand_over(prefix, others)

    def hand_over(self, prefix: Prefix, inside: list[_Running]) -> bool:
        """Have a running request's own copy of a block be found from now on; say whether there is one."""
        place = len(prefix[1]) - 1
        for running in inside:
            if prefix in self.of(running)[: len(running.copies)]:
                self.copy[prefix] = running.copies[place]
                return True
        return False

    def keep(self, before: list[_Running], stays: list[_Running], now: int) -> None:
        """Have what an iteration has computed; what nobody needs any more was used last at its end."""
        if before and self.node.speeds[before[0].request.kind].block:
            for running in before:
                self.compute(running)
            left = list(before)
            for running in [running for running in before if running not in stays]:
                left.remove(running)
                self.leave(running, left, now)
            return
        for running in before:
            size = self.node.speeds[running.request.kind].cached
            for count, prefix in enumerate(self.of(running), 1):
                if count * size <= running.request.n - running.rest:
                    self.used.setdefault(prefix, now)
        for number, request in enumerate(self.requests):
            if any(request.finds == running.number for running in before if running not in stays):
                self.kept[number] = now
        needed = {prefix for running in stays for prefix in self.of(running)}
        for running in before:
            for prefix in self.of(running) if running not in stays else ():
                if prefix not in needed:
                    self.used[prefix] = now

    def held(self, inside: list[_Running]) -> int:
        """Return the bytes that those who run hold: blocks of prompts once, all other tokens each their own."""
        if inside and (speed := self.node.speeds[inside[0].request.kind]).block:
            return self.blocks(inside) * speed.block * speed.kv
        blocks = {prefix for running in inside for prefix in self.of(running)}
        total = sum(self.size(kind) for kind, _ in blocks)
        for running in inside:
            speed, request = self.node.speeds[running.request.kind], running.request
            total += (request.n + request.m - speed.cached * len(self.of(running))) * speed.kv
        return total

    def give_way(self, inside: list[_Running]) -> None:
        """Forget what there is no room for: the longest unused, then the deepest, then the first of the file."""
        needed = {prefix for running in inside for prefix in self.of(running)}
        if self.copy:
            held = {copy for running in inside for copy in running.copies}
            needed = {prefix for prefix in self.used if self.copy[prefix] in held}
        while True:
            idle = [prefix for prefix in self.used if prefix not in needed and self.size(prefix[0])]
            if self.held(inside) + sum(self.size(kind) for kind, _ in idle) <= self.node.room or not idle:
                break
            gone = min(idle, key=lambda each: (self.used[each], -len(each[1]), self.number[each]))
            if self.copy and self.hand_over(gone, inside):
                needed.add(gone)
            else:
                del self.used[gone]
        while (size := sum(map(self.of_kept, self.kept))) and self.held(inside) + size > self.node.room:
            del self.kept[min(filter(self.of_kept, self.kept), key=lambda each: (self.kept[each], each))]

    def of_kept(self, number: int) -> int:
        """Return the bytes that are held for a request."""
        request = self.requests[number]
        return (request.n - request.u) * self.node.speeds[request.kind].kv

    def found(self, number: int) -> int:
        """Return how many tokens a request finds of those that were held for it, which it takes."""
        request = self.requests[number]
        return 0 if self.kept.pop(number, None) is None else request.n - request.u


def _cut(left: list[_Running], served: list[Served], node: int, now: int) -> None:
    """Note who has not ended on a node that goes: all that was computed is lost."""
    for running in left:
        start = served[running.number].start
        assert start is not None
        served[running.number].cut.append((node, start, now))
        served[running.number].start = None


def _ready(requests: list[Request], served: list[Served], sent: Sent) -> int | None:
    """Return from when on a request could join; None while a predecessor has not ended."""
    came, number = sent
    request = requests[number]
    ready = max(came, request.release, request.not_before)
    for other, travels in request.after:
        end = served[other].end
        if end is None:
            return None
        ready = max(ready, end + travels)
    return ready


def _budget(speed: Speed, inside: list[_Running]) -> int:
    decodes = sum(1 for running in inside if running.rest == 0)
    taken = sum(running.takes for running in inside)
    return speed.chunk - taken - (decodes if speed.shared else 0)


def _free(node: Node, speed: Speed, inside: list[_Running], cache: _Cache) -> float:
    """Return the blocks that are free, those of the cache among them that nobody holds who runs."""
    if not speed.block or not speed.kv:
        return float("inf")
    return node.room // (speed.kv * speed.block) - cache.blocks(inside)


def _grow(
    node: Node, inside: list[_Running], again: list[_Running], served: list[Served], now: int, cache: _Cache
) -> bool:
    """Let the running take their next chunk or token in order of joining; say whether somebody was preempted."""
    preempted: list[_Running] = []
    speed = node.speeds[inside[0].request.kind]
    at = 0
    while at < len(inside):
        running = inside[at]
        wanted = _wanted(speed, inside, running)
        while running in inside and wanted - running.blocks > _free(node, speed, inside, cache):
            last = _least_urgent(inside) if node.preempts else inside[-1]
            at -= inside.index(last) < at
            _preempt(last, inside, served, now, cache)
            preempted.insert(0, last)
            wanted = _wanted(speed, inside, running)
        if running in inside:
            running.blocks = wanted
            at += 1
    again[:0] = preempted
    return bool(preempted)


def _wanted(speed: Speed, inside: list[_Running], running: _Running) -> int:
    """Return the blocks of one that runs with its next chunk or token, and note how much of its prompt it takes."""
    running.takes = 0
    if running.rest:
        running.takes = min(running.rest, _budget(speed, inside))
    tokens = running.of - running.rest + running.takes if running.rest else running.context
    return ceil(Fraction(tokens, speed.block)) if speed.block else 0


def _least_urgent(inside: list[_Running]) -> _Running:
    """Return the last that joined of those of the lowest priority."""
    return min(reversed(inside), key=lambda running: running.request.priority)


def _preempt(last: _Running, inside: list[_Running], served: list[Served], now: int, cache: _Cache) -> None:
    """Have one leave that runs."""
    inside.remove(last)
    cache.leave(last, inside, now)
    last.blocks = last.takes = 0
    served[last.number].preempted += 1
    # All its tokens are computed again: those of the prompt, and of the answer all but the last.
    last.of = last.rest = last.request.n + max(0, last.tokens - 1)


def _fits(node: Node, speed: Speed, inside: list[_Running], running: _Running, cache: _Cache) -> bool:
    """Say whether there is KV for one more: for its whole prompt if KV grows, else for all that it will hold."""
    if speed.block:
        return cache.needs(running, inside) <= _free(node, speed, inside, cache)
    return cache.held([*inside, running]) <= node.room


def _join(
    node: Node,
    inside: list[_Running],
    again: list[_Running],
    waiting: list[Sent],
    requests: list[Request],
    served: list[Served],
    now: int,
    cache: _Cache,
) -> None:
    """Let the running take what they need for the iteration that begins now, and others join while budget is left."""
    if inside and _grow(node, inside, again, served, now, cache):
        return
    if node.preempts:
        _join_by_priority(node, inside, again, waiting, requests, served, now, cache)
        return
    while again or waiting:
        number = again[0].number if again else waiting[0][1]
        running = again[0] if again else _Running(number, requests[number], bool(served[number].cut))
        request = running.request
        speed = node.speeds[request.kind]
        if not again:
            ready = _ready(requests, served, waiting[0])
            if ready is None or ready > now or not node.takes(now):
                return
        if _budget(speed, inside) <= 0 or (inside and inside[0].request.kind != request.kind):
            return
        if len(inside) >= min(speed.seats, node.limit):
            return
        if not _fits(node, speed, inside, running, cache):
            return
        if again:
            again.pop(0)
            running.rest -= cache.find(running)
        else:
            waiting.pop(0)
            served[running.number].start = now
            served[running.number].cached = cache.find(running) if speed.block else cache.tokens(request)
            running.rest -= served[running.number].cached
            if request.finds is not None:
                served[running.number].cached = cache.found(running.number)
                running.rest = request.n - served[running.number].cached
        _take(speed, inside, running)


def _take(speed: Speed, inside: list[_Running], running: _Running) -> None:
    """Have one run from now on, with its part of the budget and the blocks for that."""
    running.takes = min(running.rest, _budget(speed, inside))
    if speed.block:
        running.blocks = ceil(Fraction(running.of - running.rest + running.takes, speed.block))
    inside.append(running)


def _join_by_priority(
    node: Node,
    inside: list[_Running],
    again: list[_Running],
    waiting: list[Sent],
    requests: list[Request],
    served: list[Served],
    now: int,
    cache: _Cache,
) -> None:
    """Let the most urgent join first, in place of less urgent ones where that is what it takes."""
    while True:
        ready = [(came, number) for came, number in waiting if came <= now]
        head = min(ready, key=lambda sent: (-requests[sent[1]].priority, ready.index(sent)), default=None)
        back = min(again, key=lambda each: (-each.request.priority, each.came), default=None)
        runs = inside or again
        if head is not None and (not node.takes(now) or (runs and runs[0].request.kind != requests[head[1]].kind)):
            head = None
        if head is not None and (back is None or back.request.priority < requests[head[1]].priority):
            running = _Running(head[1], requests[head[1]], bool(served[head[1]].cut))
            # Of one priority who comes first joins first, and the fewer are still to join then.
            running.came = -len(waiting)
        elif back is not None:
            running, head = back, None
        else:
            return
        speed = node.speeds[running.request.kind]
        leave = _who_leaves(node, speed, inside, running, cache, now)
        if _budget(speed, inside) <= 0 or leave is None:
            return
        for number in leave:
            last = next(each for each in inside if each.number == number)
            _preempt(last, inside, served, now, cache)
            again.append(last)
        found = cache.find(running)
        running.rest -= found
        if head is None:
            again.remove(running)
        else:
            waiting.remove(head)
            served[running.number].start, served[running.number].cached = now, found
        _take(speed, inside, running)


def _who_leaves(
    node: Node, speed: Speed, inside: list[_Running], running: _Running, cache: _Cache, now: int
) -> list[int] | None:
    """Return the fewest that leave for one to join, least urgent first; None if it cannot join for all of them."""
    inside, cache = deepcopy((inside, cache))
    leave: list[int] = []
    while len(inside) >= min(speed.seats, node.limit) or not _fits(node, speed, inside, running, cache):
        lower = [each for each in inside if each.request.priority < running.request.priority]
        if not speed.block or not lower:
            return None
        last = _least_urgent(lower)
        leave.append(last.number)
        inside.remove(last)
        cache.leave(last, inside, now)
    return leave


def _length(node: Node, inside: list[_Running]) -> Fraction:
    speed = node.speeds[inside[0].request.kind]
    decodes = [running for running in inside if running.rest == 0]
    p = sum(running.takes for running in inside)
    context = sum(running.context for running in decodes)
    mixed = ceil(1_000_000 * p / speed.rate) + speed.mixed if p else 0
    return speed.tau[len(decodes)] + mixed + speed.context * context


def _end_iteration(inside: list[_Running], requests: list[Request], served: list[Served], now: int) -> list[_Running]:
    stays = []
    for running in inside:
        again = running.rest > 0 and running.tokens > 0  # computed a second time: that yields no token
        running.rest -= running.takes
        running.takes = 0
        if running.rest == 0 and not again:  # a decode, or a prompt that is finished with this iteration
            running.tokens += 1
            if running.tokens == 1 and served[running.number].first is None:  # what was sent stays sent
                served[running.number].first = now
        if running.tokens == requests[running.number].m:
            served[running.number].end = now
        else:
            stays.append(running)
    return stays
