"""One engine that serves a log in the order of arrival, by sections 11 and 13 of the rules, fast enough to be fitted.

Floats in place of whole picoseconds; else what `models.strides` says, which the tests hold it to.
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


class Running(NamedTuple):
    """Requests that run, in the order in which they joined, and those that were preempted.

    Parameters
    ----------
    who, left, of
        Of each seat: who, prompt tokens that are left, and of how many.
    had, again
        Of each request: output tokens so far; and who is to join again, the first of that queue last.
    """

    who: Ints
    left: Ints
    of: Ints
    had: Ints
    again: Ints


@kernel
def serve_log(
    requests: LoggedRequests, limits: EngineLimits, law: StepLaw, running: Running, first_us: Floats, end_us: Floats
) -> int:
    """Serve all requests; write when their first and last tokens come, and return how often one was preempted."""
    count = len(requests.prompt)
    running.had.fill(0)
    inside = waiting = preempted = arrived = ended = 0
    now = 0.0
    while ended < count:
        if inside == 0 and waiting == 0:
            now = max(now, requests.arrival_us[arrived])
        full = False
        while inside > 1 and _blocks(requests, limits, running, inside, 0) > limits.room:
            # Whoever joined last leaves, and stands ahead of the queue.
            inside -= 1
            running.again[waiting] = running.who[inside]
            waiting += 1
            preempted += 1
            full = True
        budget = limits.chunk - _taken(limits, running, inside)
        while not full and inside < limits.seats and budget > 0:
            if waiting > 0:
                who = running.again[waiting - 1]
            elif arrived < count and requests.arrival_us[arrived] <= now:
                who = arrived
            else:
                break
            tokens = requests.prompt[who] + max(0, running.had[who] - 1)
            held = _blocks(requests, limits, running, inside, 0)
            if inside > 0 and held + -(-tokens // limits.block) > limits.room:
                break
            if waiting > 0:
                waiting -= 1
            else:
                arrived += 1
            running.who[inside] = who
            running.left[inside] = running.of[inside] = tokens
            inside += 1
            budget -= min(tokens, budget)
        # How many iterations are alike: until somebody ends, a prompt is done, or somebody could join.
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
        taken = limits.chunk - decodes - budget
        if prompts > 1 or full:
            many = 1
        elif prompts == 1:
            many = min(many, max(1, running.left[inside - 1] // (limits.chunk - decodes)))
        many = _fitting(requests, limits, running, inside, many)
        mixed_us = law.prompt_us * taken + law.mixed_us if prompts else 0.0
        length_us = law.step_us[decodes] + mixed_us + law.context_us * context
        rise_us = law.context_us * decodes
        if prompts == 0 and many > 1 and waiting == 0 and inside < limits.seats and arrived < count:
            # A request that arrives meanwhile joins at the next boundary.
            left_us = requests.arrival_us[arrived] - now
            if left_us <= 0:
                many_until = many if requests.arrival_us[arrived] <= now else 1
            elif rise_us > 0:
                linear = length_us - rise_us / 2
                many_until = np.int64(np.ceil((np.sqrt(linear * linear + 2 * rise_us * left_us) - linear) / rise_us))
            else:
                many_until = np.int64(np.ceil(left_us / length_us))
            many = max(1, min(many, many_until))
        now += many * length_us + rise_us * many * (many - 1) / 2
        budget = limits.chunk - decodes
        kept = 0
        for at in range(inside):
            who, left = running.who[at], running.left[at]
            if left == 0:
                running.had[who] += many
            else:
                share = min(left, budget * many)
                budget -= min(left, budget)
                left -= share
                if left == 0 and running.had[who] == 0:
                    running.had[who] = 1
                    first_us[who] = now
            if left == 0 and running.had[who] == requests.output[who]:
                end_us[who] = now
                ended += 1
                continue
            running.who[kept], running.left[kept], running.of[kept] = who, left, running.of[at]
            kept += 1
        inside = kept
    return preempted


@kernel
def _taken(limits: EngineLimits, running: Running, inside: int) -> int:
    """Return the tokens of the budget that those take who run already."""
    taken = 0
    for at in range(inside):
        taken += 1 if running.left[at] == 0 else 0
    for at in range(inside):
        if running.left[at] > 0:
            taken += min(running.left[at], limits.chunk - taken)
    return taken


@kernel
def _blocks(requests: LoggedRequests, limits: EngineLimits, running: Running, inside: int, ahead: int) -> int:
    """Return how many blocks of KV the iteration needs that comes after so many others that do alike."""
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
def _fitting(requests: LoggedRequests, limits: EngineLimits, running: Running, inside: int, many: int) -> int:
    """Return how many of so many iterations there are blocks of KV for, at least one."""
    if _blocks(requests, limits, running, inside, many - 1) <= limits.room:
        return many
    enough, short = 1, many
    while short - enough > 1:
        middle = (enough + short) // 2
        if _blocks(requests, limits, running, inside, middle - 1) <= limits.room:
            enough = middle
        else:
            short = middle
    return enough
