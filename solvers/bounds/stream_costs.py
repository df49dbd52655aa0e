"""What a request of a stream costs a GPU at the least, on one kind of GPU: time, seats and KV.

Whatever the plan, and whoever is served beside it. Times are microseconds of one GPU; they are floats, of which `SURE`
takes more than rounding could have added, so that what is charged is never above what has to be paid.
More: `docs/how_it_works.md`, requests of streams.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from truenorth.models.instance import Ints
from truenorth.models.streams import StreamSpeed

Floats: TypeAlias = NDArray[np.float64]

SURE = 1 - 1e-9
"""Every charge is made so much less than floats say; some ten roundings err by 1e-15."""
_MICROSECONDS = 1_000_000


@dataclass(frozen=True, slots=True, eq=False)
class ChargedRequests:
    """Requests of one stream class.

    Parameters
    ----------
    uncached, decodes, held
        Prompt tokens to work off, iterations that it decodes, and tokens of KV in each of these: n + m, or their mean
        where KV grows. Shape [requests].
    within_us
        Time from its earliest start to its latest end. Shape [requests].
    """

    uncached: Ints
    decodes: Ints
    held: Ints
    within_us: Ints


def prefill_us(speed: StreamSpeed, uncached: Ints) -> Floats:
    """Return the time of prompts, not rounded: a sum of rounded parts is no less. Shape [requests]."""
    return np.asarray(uncached * (_MICROSECONDS / float(speed.prefill_rate)))


def alone_us(speed: StreamSpeed, uncached: Ints, decodes: Ints) -> Ints:
    """Return how long requests take from start to end at the least. Shape [requests].

    Invariant: no request ends earlier after its start.
    Because: its prompt is taken in iterations that last at least its own tokens' time, whole microseconds each, and
    every decode one that lasts at least tau[1].
    Cost: O(1) each.
    If wrong: requests in time count as late, and a size is refuted that is enough.
    """
    prompt = np.ceil(prefill_us(speed, uncached) * SURE).astype(np.int64)
    return prompt + decodes * speed.tau[1]


def energy_us(speed: StreamSpeed, asked: ChargedRequests) -> Floats:
    """Return the GPU time that requests use up if they are in time, over prefill and decode alike. Shape [requests].

    Invariant: what all requests inside some time are charged is at most that time, on one GPU.
    Because: an iteration with p prompt tokens and k decodes lasts at least p / P + tau[k]; it pays each decode
    tau[k] / k. A request in time has a mean tau of at most (within - u / P) / decodes, and the lower convex hull of
    tau[k] / k over tau[k] is there at most the mean of what its decodes are paid (Jensen); behind its least point it
    stays there, at rho.
    Cost: O(K) for the hull, then O(log K) each.
    If wrong: a floor above what is enough.
    """
    prompt = prefill_us(speed, asked.uncached)
    mean_us = (asked.within_us - prompt * SURE) / np.maximum(asked.decodes, 1) / SURE
    steps_us, each_us = _shared_steps(speed)
    return np.asarray((prompt + asked.decodes * np.interp(mean_us, steps_us, each_us)) * SURE)


def energy_with_kv_us(speed: StreamSpeed, asked: ChargedRequests, room: int) -> Floats:
    """Return the GPU time that requests use up where KV is scarce. Shape [requests].

    Invariant: as of `energy_us`, for a GPU with room for so many tokens of KV.
    Because: where tau[k] >= alpha + beta k for k = 1..K, an iteration pays every decode beta, and alpha by its part of
    the room: the parts of all that decode at once add up to at most 1.
    Cost: O(requests) for every edge of the hull of tau.
    If wrong: a floor above what is enough.
    """
    prompt, part = prefill_us(speed, asked.uncached), asked.held / room
    charged = [prompt + asked.decodes * (beta + alpha * part) for alpha, beta in _lines_below(speed)]
    return max(charged, key=np.sum) * SURE  # any line holds; this one asks the most of these requests


def seat_us(speed: StreamSpeed, asked: ChargedRequests) -> Floats:
    """Return the part of a GPU's time that the seats of requests are: K may be served at once. Shape [requests].

    Invariant: as of `energy_us`.
    Because: a request has a seat from start to end, at least as long as alone, and there are K.
    Cost: O(1) each.
    If wrong: a floor above what is enough.
    """
    return np.asarray(alone_us(speed, asked.uncached, asked.decodes) * (SURE / speed.seats), np.float64)


def kv_us(speed: StreamSpeed, asked: ChargedRequests, room: int) -> Floats:
    """Return the part of a GPU's time that the KV of requests is. Shape [requests].

    Invariant: as of `energy_us`, for a GPU with room for so many tokens of KV.
    Because: a request holds n + m tokens from start to end, at least as long as alone; where KV grows, in each of its
    decodes at least the tokens before it, n + (m - 1) / 2 in the mean, whether or not it is preempted between them.
    Cost: O(1) each.
    If wrong: a floor above what is enough.
    """
    held_us = asked.decodes * speed.tau[1] if speed.block else alone_us(speed, asked.uncached, asked.decodes)
    return np.asarray(held_us * (asked.held / room) * SURE, np.float64)


def _shared_steps(speed: StreamSpeed) -> tuple[Floats, Floats]:
    """Return step times, and what each decode pays of them at the least: the hull's falling corners."""
    step = np.array(speed.tau[1:], np.float64)
    each = step / np.arange(1, len(step) + 1)
    last = np.append(step[1:] > step[:-1], True)  # of equal step times the one with the most decodes is the cheapest
    corners = _lower_hull(step[last], each[last])
    least = int(np.argmin(corners[1]))
    return corners[0][: least + 1], corners[1][: least + 1]


def _lines_below(speed: StreamSpeed) -> list[tuple[float, float]]:
    """Return pairs (alpha, beta), neither negative, with alpha + beta k at most tau[k] for k = 1..K."""
    count, step = np.arange(1, len(speed.tau), dtype=np.float64), np.array(speed.tau[1:], np.float64)
    at, low = _lower_hull(count, step)
    slopes = np.diff(low) / np.diff(at)
    edges = zip((low[:-1] - slopes * at[:-1]).tolist(), slopes.tolist(), strict=True)
    return [(float(step[0]), 0.0), (0.0, float((step / count).min())), *(edge for edge in edges if edge[0] >= 0)]


def _lower_hull(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Return the corners of the lower convex hull of points with rising x."""
    kept: list[int] = []
    for at in range(len(x)):
        # The last corner goes where it lies on or above the line from the one before it to this point.
        while len(kept) > 1 and _turn(x, y, kept[-2], kept[-1], at) <= 0:
            kept.pop()
        kept.append(at)
    return x[kept], y[kept]


def _turn(x: Floats, y: Floats, first: int, middle: int, last: int) -> float:
    return float((x[middle] - x[first]) * (y[last] - y[first]) - (y[middle] - y[first]) * (x[last] - x[first]))
