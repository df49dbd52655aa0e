"""One engine that serves a log in the order of arrival, by sections 11 and 13 of the rules, fast enough to be fitted.

Floats in place of whole picoseconds, and an engine that is empty for an instant keeps its fraction; else what
`models.strides` says, which the tests hold it to.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from truenorth.models.instance import Ints
from truenorth.solvers.bounds.stream_costs import Floats
from truenorth.solvers.compiled import kernel


class LoggedRequests(NamedTuple):
    """Requests in the order of arrival, in microseconds and tokens. Shape [requests] each."""

    arrival_us: Floats
    prompt: Ints
    output: Ints


class EngineLimits(NamedTuple):
    """What an engine was started with: requests at once, its budget, and blocks of KV.

    Parameters
    ----------
    seats, chunk
        Most requests at once, and tokens of an iteration, of which decodes take one each.
    block, room
        Tokens of a block of KV, and how many blocks there are.
    """

    seats: int
    chunk: int
    block: int
    room: int


class StepLaw(NamedTuple):
    """How long iterations last, in microseconds: by decodes, prompt token, token of context, and with any prompt."""

    step_us: Floats
    prompt_us: float
    context_us: float
    mixed_us: float


_ROUNDING = 1e-4
"""Of a microsecond: what floats may have added to a whole number of them."""
INSIDE, WAITING, ARRIVED, ENDED, PREEMPTED, COUNTERS = range(6)
"""Places in the state: who runs, waits to join again, has come, has ended; and how often somebody was preempted."""


class Running(NamedTuple):
    """Requests that run, in the order in which they joined, and those that were preempted.

    Parameters
    ----------
    who, left, of
        Of each seat: who, prompt tokens that are left, and of how many.
    had, again
        Of each request: output tokens so far; and who is to join again, the first of that queue last.
    state
        Counters, in the order of the constants.
    """

    who: Ints
    left: Ints
    of: Ints
    had: Ints
    again: Ints
    state: Ints


class _Stride(NamedTuple):
    """Iterations that do alike: how many, tokens of each for prompts, how long the first, how much longer each next."""

    many: int
    prompts: int
    length_us: float
    rise_us: float


def serve(requests: LoggedRequests, limits: EngineLimits, law: StepLaw, first_us: Floats, end_us: Floats) -> int:
    """Serve all requests; write when their first and last tokens come, and return how often one was preempted."""
    (who, left, of), (had, again) = np.zeros((3, limits.seats), np.int64), np.zeros((2, len(first_us)), np.int64)
    running = Running(who, left, of, had, again, np.zeros(COUNTERS, np.int64))
    _serve(requests, limits, law, running, first_us, end_us)
    return int(running.state[PREEMPTED])


@kernel
def _serve(
    requests: LoggedRequests, limits: EngineLimits, law: StepLaw, running: Running, first_us: Floats, end_us: Floats
) -> None:
    """Serve all requests from an empty engine on."""
    state, now = running.state, 0.0
    while state[ENDED] < len(requests.prompt):
        if state[INSIDE] == 0 and state[WAITING] == 0:
            now = max(now, requests.arrival_us[state[ARRIVED]])
        full = _preempt(requests, limits, running)
        if not full:
            _admit(requests, limits, running, now)
        stride = _next_stride(requests, limits, law, running, full, now)
        now += stride.many * stride.length_us + stride.rise_us * stride.many * (stride.many - 1) / 2
        _take(requests, running, stride, now, first_us, end_us)


@kernel
def _preempt(requests: LoggedRequests, limits: EngineLimits, running: Running) -> bool:
    """Have the last that joined leave until all others have blocks of KV; say whether somebody did."""
    state, full = running.state, False
    while state[INSIDE] > 1 and _blocks(requests, limits, running, 0) > limits.room:
        state[INSIDE] -= 1
        # Ahead of the queue: whoever is preempted later joined before.
        running.again[state[WAITING]] = running.who[state[INSIDE]]
        state[WAITING] += 1
        state[PREEMPTED] += 1
        full = True
    return full


@kernel
def _admit(requests: LoggedRequests, limits: EngineLimits, running: Running, now: float) -> None:
    """Let requests join at a boundary, those that were preempted first, while budget, seats and blocks allow."""
    state, budget = running.state, limits.chunk - _taken(limits, running)
    while state[INSIDE] < limits.seats and budget > 0:
        if state[WAITING] > 0:
            who = int(running.again[state[WAITING] - 1])
        elif state[ARRIVED] < len(requests.prompt) and requests.arrival_us[state[ARRIVED]] <= np.ceil(now - _ROUNDING):
            who = int(state[ARRIVED])
        else:
            return
        tokens = requests.prompt[who] + max(0, running.had[who] - 1)
        held = _blocks(requests, limits, running, 0)
        # Whoever is alone always fits.
        if state[INSIDE] > 0 and held + -(-tokens // limits.block) > limits.room:
            return
        state[WAITING if state[WAITING] > 0 else ARRIVED] += -1 if state[WAITING] > 0 else 1
        at = state[INSIDE]
        running.who[at], running.left[at], running.of[at] = who, tokens, tokens
        state[INSIDE] += 1
        budget -= min(tokens, budget)


@kernel
def _next_stride(
    requests: LoggedRequests, limits: EngineLimits, law: StepLaw, running: Running, full: bool, now: float
) -> _Stride:
    """Return how many iterations do alike: until somebody ends, a prompt is read, or somebody could join."""
    inside = running.state[INSIDE]
    decodes = prompts = context = 0
    many = 1 << 60
    for at in range(inside):
        if running.left[at] == 0:
            who = running.who[at]
            decodes += 1
            context += requests.prompt[who] + running.had[who]
            many = min(many, requests.output[who] - running.had[who])
        else:
            prompts += 1
    chunk = limits.chunk - decodes
    if prompts > 1 or full:
        many = 1
    elif prompts == 1:
        many = min(many, max(1, running.left[inside - 1] // chunk))
    many = _fitting(requests, limits, running, many)
    taken = _taken(limits, running) - decodes
    mixed_us = np.ceil(law.prompt_us * taken - _ROUNDING) + law.mixed_us if prompts > 0 else 0.0
    length_us = law.step_us[decodes] + mixed_us + law.context_us * context
    rise_us = law.context_us * decodes
    if prompts == 0 and running.state[WAITING] == 0 and inside < limits.seats:
        many = min(many, _until_next(requests, running, now, length_us, rise_us))
    return _Stride(many, chunk, length_us, rise_us)


@kernel
def _until_next(requests: LoggedRequests, running: Running, now: float, length_us: float, rise_us: float) -> int:
    """Return after how many iterations the next arrival finds a boundary; many if it has come, and finds no room."""
    arrived = running.state[ARRIVED]
    if arrived == len(requests.prompt) or requests.arrival_us[arrived] <= np.ceil(now - _ROUNDING):
        return 1 << 60
    left_us = requests.arrival_us[arrived] - 1 + _ROUNDING - now
    if left_us <= 0:
        return 1
    if rise_us > 0:
        linear = length_us - rise_us / 2
        return max(1, int(np.ceil((np.sqrt(linear * linear + 2 * rise_us * left_us) - linear) / rise_us)))
    return max(1, int(np.ceil(left_us / length_us)))


@kernel
def _take(
    requests: LoggedRequests, running: Running, stride: _Stride, now: float, first_us: Floats, end_us: Floats
) -> None:
    """Take iterations that end now; note whose first and last token comes, and who stays."""
    kept, budget = 0, stride.prompts * stride.many
    for at in range(running.state[INSIDE]):
        who, left = running.who[at], running.left[at]
        if left == 0:
            running.had[who] += stride.many
        else:
            share = min(left, budget)
            budget -= share
            left -= share
            if left == 0 and running.had[who] == 0:
                running.had[who] = 1
                first_us[who] = now
        if left == 0 and running.had[who] == requests.output[who]:
            end_us[who] = now
            running.state[ENDED] += 1
        else:
            running.who[kept], running.left[kept], running.of[kept] = who, left, running.of[at]
            kept += 1
    running.state[INSIDE] = kept


@kernel
def _taken(limits: EngineLimits, running: Running) -> int:
    """Return the tokens of the budget that those take who run."""
    inside, taken = running.state[INSIDE], 0
    for at in range(inside):
        taken += 1 if running.left[at] == 0 else 0
    for at in range(inside):
        if running.left[at] > 0:
            taken += min(running.left[at], limits.chunk - taken)
    return taken


@kernel
def _blocks(requests: LoggedRequests, limits: EngineLimits, running: Running, ahead: int) -> int:
    """Return how many blocks of KV the iteration needs that comes after so many others that do alike."""
    inside = running.state[INSIDE]
    decodes = needed = 0
    for at in range(inside):
        if running.left[at] == 0:
            decodes += 1
            who = running.who[at]
            needed += -(-(requests.prompt[who] + running.had[who] + ahead) // limits.block)
    budget = (limits.chunk - decodes) * (ahead + 1)
    for at in range(inside):
        if running.left[at] > 0:
            share = min(running.left[at], budget)
            budget -= share
            needed += -(-(running.of[at] - running.left[at] + share) // limits.block)
    return needed


@kernel
def _fitting(requests: LoggedRequests, limits: EngineLimits, running: Running, many: int) -> int:
    """Return how many of so many iterations there are blocks of KV for, at least one."""
    if _blocks(requests, limits, running, many - 1) <= limits.room:
        return many
    enough, short = 1, many
    while short - enough > 1:
        middle = (enough + short) // 2
        if _blocks(requests, limits, running, middle - 1) <= limits.room:
            enough = middle
        else:
            short = middle
    return enough
