"""What jobs pay at given prices of GPU time, in floats: the search behind `stream_prices`, which proves nothing itself.

What is paid for, and why it is a lower bound, is said there.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truenorth.models.instance import Ints
from truenorth.solvers.compiled import Floats, inlined, kernel


class Demand(NamedTuple):
    """What jobs ask for, by the request of each with the most decodes, and what its others take. Times in microseconds.

    Parameters
    ----------
    edges, supply
        Of windows, and GPU time of every class in each. Shapes [windows + 1] and [classes, windows].
    weight, slack, lone, release
        Per job: the price of a microsecond of latency beyond its slack, and the least latency.
    come
        The first window in which it can buy.
    start, tail, stream, uncached, decodes
        Of the request: earliest start, what follows it, stream class (NONE: the job has no request), tokens.
    several
        Whether the job has other requests.
    able
        Where the request can run. Shape [jobs, classes].
    others_first, others
        The other requests of each job, and their GPU time. Shapes [jobs + 1] and [others, classes].
    levels, level_count
        Decodes, step, and time of each, by stream class, GPU class and level.
    rate, chunk, longest
        Prompt tokens per microsecond, the time of a chunk and of the longest iteration. Shape [streams, classes].
    """

    edges: Floats
    supply: Floats
    weight: Floats
    slack: Floats
    lone: Floats
    release: Floats
    come: Ints
    start: Floats
    tail: Floats
    stream: Ints
    several: NDArray[np.bool_]
    uncached: Floats
    decodes: Floats
    able: NDArray[np.bool_]
    others_first: Ints
    others: Floats
    levels: Floats
    level_count: Ints
    rate: Floats
    chunk: Floats
    longest: Floats


class Debts(NamedTuple):
    """What decodes owe: the pull y over sizes, by stream class, GPU class and window, and its integrals.

    Shapes [streams, sizes + 1] (from 0 on), [streams, classes, windows + 1, sizes], the same with sizes + 1, and
    without.
    """

    sizes: Floats
    heights: Floats
    below: Floats
    square: Floats

    @classmethod
    def of(cls, sizes: Floats, heights: Floats) -> Debts:
        """Return debts with these pulls."""
        areas = heights * np.diff(sizes)[:, None, None, :]
        below = np.concatenate([np.zeros_like(areas[..., :1]), np.cumsum(areas, axis=-1)], axis=-1)
        return cls(sizes, heights, below, (areas * heights).sum(axis=-1))


class Payments(NamedTuple):
    """What was bought, by GPU class and window; what shares gain; and, of those who decode, the sum of their pulls."""

    bought: Floats
    gain: Floats
    decoded: Floats
    pulled: Floats

    @classmethod
    def none(cls, demand: Demand, sizes: int) -> Payments:
        """Return no payments yet."""
        (streams, classes), ends = demand.rate.shape, len(demand.edges)
        return cls(
            np.zeros((classes, ends)),
            np.zeros(len(demand.weight)),
            np.zeros((streams, classes, ends)),
            np.zeros((streams, classes, ends, sizes)),
        )

    def forget(self, kept: float) -> None:
        """Let what was pulled before count for less."""
        self.decoded[:] *= kept
        self.pulled[:] *= kept

    def debts(self, sizes: Floats, prior: float) -> Debts:
        """Return debts by the mean pull in each window, into which that of all windows is mixed a little."""
        decoded = self.decoded + prior * self.decoded.sum(axis=-1, keepdims=True)
        pulled = self.pulled + prior * self.pulled.sum(axis=-2, keepdims=True)
        return Debts.of(sizes, pulled / np.maximum(decoded, 1e-9)[..., None])


class _Scratch(NamedTuple):
    """Room for one job: by class and window the least price so far, and where; what others pay; what decodes pay.

    Decodes pay `paid` at `level`, by kind (0: the end is that of a window; 1: as late as they make it) and window.
    """

    low: Floats
    low_at: Ints
    besides: Floats
    paid: Floats
    level: Ints


class _Owed(NamedTuple):
    """A job's weight in two parts, the one that counts its end and the one that owes; the size, and its debts' step."""

    kept: float
    owing: float
    root: float
    size: float
    step: int


class _Way(NamedTuple):
    """What a job pays, where: GPU class, windows of its first token, its end and its decodes, their level and kind."""

    cost: float
    gpu_class: int
    first: int
    last: int
    window: int
    level: int
    kind: int


def pay(demand: Demand, prices: Floats, shares: Floats, debts: Debts, payments: Payments) -> float:
    """Return the bound at these prices, and write down who pays for what."""
    classes, ends = len(prices), len(demand.edges)
    priced = np.concatenate([prices, np.zeros((classes, 1))], axis=1)  # behind the last window all is free
    scratch = _Scratch(
        np.zeros((classes, ends)),
        np.zeros((classes, ends), np.int64),
        np.zeros(ends),
        np.zeros((2, ends)),
        np.zeros((2, ends), np.int64),
    )
    payments.bought[:] = 0
    payments.gain[:] = 0
    return float(_pay(demand, priced, shares, debts, scratch, payments)) - float((prices * demand.supply).sum())


@kernel
def _pay(demand: Demand, prices: Floats, shares: Floats, debts: Debts, scratch: _Scratch, payments: Payments) -> float:
    total = 0.0
    for job in range(len(demand.weight)):
        if demand.stream[job] < 0:
            total += demand.weight[job] * (max(demand.lone[job], demand.slack[job]) - demand.slack[job])
            continue
        owed = _owed(demand, shares, debts, job)
        _find_low(demand, prices, scratch, job)
        best = _Way(np.inf, 0, 0, 0, 0, 0, 0)
        for c in range(len(prices)):
            if demand.able[job, c]:
                _decode(demand, prices, debts, scratch, owed, job, c)
                way = _serve(demand, scratch, owed, job, c)
                if way.cost < best.cost:
                    best = way
        total += best.cost
        _write_down(demand, debts, scratch, payments, owed, best, job)
    return total


@inlined
def _owed(demand: Demand, shares: Floats, debts: Debts, job: int) -> _Owed:
    """Return how a job's weight is shared."""
    weight = demand.weight[job]
    owing = weight * shares[job]
    # With no share at all a size would have no end, and its gain none either.
    size = demand.uncached[job] / max(owing, 1e-3 * weight) if weight > 0 else 0.0
    step, s = 0, demand.stream[job]
    while step < debts.heights.shape[3] and debts.sizes[s, step + 1] <= size:
        step += 1
    return _Owed(weight - owing, owing, np.sqrt(max(demand.decodes[job], 1.0)), size, step)


@inlined
def _find_low(demand: Demand, prices: Floats, scratch: _Scratch, job: int) -> None:
    """Find the least prices since a job came, and what its other requests pay at these."""
    low, low_at, first = scratch.low, scratch.low_at, demand.come[job]
    for c in range(len(prices)):
        low[c, first], low_at[c, first] = prices[c, first], first
        for window in range(first + 1, len(demand.edges)):
            low[c, window], low_at[c, window] = low[c, window - 1], low_at[c, window - 1]
            if prices[c, window] < low[c, window]:
                low[c, window], low_at[c, window] = prices[c, window], window
    for window in range(first, len(demand.edges)):
        scratch.besides[window] = 0.0
    for other in range(demand.others_first[job], demand.others_first[job + 1]):
        for window in range(first, len(demand.edges)):
            c = _cheapest(demand, low, other, window)
            scratch.besides[window] += low[c, window] * demand.others[other, c]


@inlined
def _cheapest(demand: Demand, low: Floats, other: int, window: int) -> int:
    """Return the GPU class on which another request pays least."""
    found, least = 0, np.inf
    for c in range(len(low)):
        # Where it cannot run it would take for ever, and pay nothing of that where prices are 0.
        if demand.others[other, c] < np.inf and low[c, window] * demand.others[other, c] < least:
            found, least = c, low[c, window] * demand.others[other, c]
    return found


@inlined
def _pull(debts: Debts, owed: _Owed, s: int, c: int, window: int) -> float:
    """Return the integral of y up to a job's size."""
    below = float(debts.below[s, c, window, owed.step])
    if owed.step == debts.heights.shape[3]:
        return below
    return below + float(debts.heights[s, c, window, owed.step]) * (owed.size - float(debts.sizes[s, owed.step]))


@inlined
def _decode(demand: Demand, prices: Floats, debts: Debts, scratch: _Scratch, owed: _Owed, job: int, c: int) -> None:
    """Find what decodes pay in every window."""
    s, paid, chosen = demand.stream[job], scratch.paid, scratch.level
    for window in range(demand.come[job], len(demand.edges)):
        pulled = owed.owing / owed.root * _pull(debts, owed, s, c, window)
        slope = (pulled - 0.5 * debts.square[s, c, window]) / demand.rate[s, c]
        paid[0, window] = paid[1, window] = np.inf
        for level in range(demand.level_count[s, c]):
            step = demand.levels[s, c, level, 1]
            each = slope * demand.levels[s, c, level, 0] + prices[c, window] * demand.levels[s, c, level, 2]
            each += owed.owing * step
            for kind in range(2):
                if each < paid[kind, window]:
                    paid[kind, window], chosen[kind, window] = each, level
                each += owed.kept * step
        for kind in range(2):
            paid[kind, window] *= demand.decodes[job]


@inlined
def _whole_us(prompt: float) -> float:
    """Return how long a prompt lasts: iterations end at whole microseconds, whatever floats make of a whole one."""
    return float(np.ceil(prompt - 1e-6))


@inlined
def _serve(demand: Demand, scratch: _Scratch, owed: _Owed, job: int, c: int) -> _Way:
    """Return the cheapest way to be served on a GPU class, over the windows of first token and end."""
    s, edges, ends, several = demand.stream[job], demand.edges, len(demand.edges), demand.several[job]
    prompt, low, paid = demand.uncached[job] / demand.rate[s, c], scratch.low, scratch.paid
    lasts = _whole_us(prompt)
    ahead, tail = demand.start[job] - demand.release[job], demand.tail[job]
    own = owed.kept * (ahead + lasts + tail - demand.slack[job])
    fixed = owed.owing * (ahead + tail - demand.slack[job])
    if demand.decodes[job] > 0:
        fixed -= 0.5 * owed.owing * prompt
    first = demand.come[job]
    while not several and first < ends - 1 and edges[first + 1] <= demand.start[job] + lasts:
        first += 1
    best = _Way(np.inf, c, 0, 0, 0, 0, 0)
    for a in range(first, first + 1 if several else ends):
        by_window = by_step = a
        for b in range(a, ends):
            if several:
                begun, until = low[c, b] * prompt + scratch.besides[b], edges[b] - demand.release[job]
            else:
                if b > a and edges[b] - edges[a + 1] >= demand.decodes[job] * demand.longest[s, c]:
                    break
                begun = low[c, a] * prompt + owed.owing * max(lasts, edges[a] - demand.start[job] - demand.chunk[s, c])
                until = edges[b] + tail - demand.release[job]
            by_window = b if paid[0, b] < paid[0, by_window] else by_window
            by_step = b if paid[1, b] < paid[1, by_step] else by_step
            late = owed.kept * (max(until, demand.lone[job], demand.slack[job]) - demand.slack[job])
            one, other = late + paid[0, by_window], own + paid[1, by_step]
            if fixed + begun + max(one, other) < best.cost:
                kind, window = (1, by_step) if other > one else (0, by_window)
                best = _Way(fixed + begun + max(one, other), c, a, b, window, scratch.level[kind, window], kind)
    return best


@inlined
def _write_down(
    demand: Demand, debts: Debts, scratch: _Scratch, payments: Payments, owed: _Owed, way: _Way, job: int
) -> None:
    """Write down what a job buys, who pulls, and what a larger share gains."""
    s, c, count = demand.stream[job], way.gpu_class, demand.decodes[job]
    prompt, step = demand.uncached[job] / demand.rate[s, c], demand.levels[s, c, way.level, 1]
    lasts = _whole_us(prompt)
    payments.bought[c, scratch.low_at[c, way.last if demand.several[job] else way.first]] += prompt
    payments.bought[c, way.window] += count * demand.levels[s, c, way.level, 2]
    for other in range(demand.others_first[job], demand.others_first[job + 1]):
        on = _cheapest(demand, scratch.low, other, way.last)
        payments.bought[on, scratch.low_at[on, way.last]] += demand.others[other, on]
    payments.decoded[s, c, way.window] += count
    if demand.several[job] or count == 0:
        return
    steps, height = debts.heights.shape[3], 0.0
    for i in range(min(owed.step + 1, steps)):
        width = debts.sizes[s, i + 1] - debts.sizes[s, i]
        covered = (min(owed.size, debts.sizes[s, i + 1]) - debts.sizes[s, i]) / width
        payments.pulled[s, c, way.window, i] += count * owed.owing / owed.root * covered
    if owed.step < steps:
        height = debts.heights[s, c, way.window, owed.step]
    # What owes counts its first token, its steps and its debts; what does not, the end.
    ahead = demand.start[job] - demand.release[job] + demand.tail[job]
    pulled = (_pull(debts, owed, s, c, way.window) - owed.size * height) / owed.root
    owes = max(lasts, demand.edges[way.first] - demand.start[job] - demand.chunk[s, c]) - 0.5 * prompt
    owes += ahead + count * (step + demand.levels[s, c, way.level, 0] * pulled / demand.rate[s, c])
    end = ahead + lasts + count * step
    if way.kind == 0:
        until = demand.edges[way.last] + demand.tail[job] - demand.release[job]
        end = max(until, demand.lone[job], demand.slack[job])
    payments.gain[job] = demand.weight[job] * (owes - end)
