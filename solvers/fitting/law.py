"""The step law of an engine, fitted to when a log's first and last tokens came.

The whole log's arrivals and tokens drive a simulation of its engines; the numbers of the law are searched for that
bring first tokens and ends nearest to those of the log, relative to each request's latency. Requests that the loss
leaves out are served all the same: who is cut off would not compete for seats.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truenorth.models.instance import Ints
from truenorth.solvers.bounds.stream_costs import Floats
from truenorth.solvers.fitting.engine_kernel import EngineLimits, LoggedRequests, StepLaw, serve

_STARTS = 6
"""Searches begin at what the log suggests, and at random factors of that."""
_MOVES = 150
_SIDES = (0.5, 0.2, 0.5, 0.1, 0.3, 0.05)
"""Sides of the first simplex, as logarithms, of the searches from the best that was found; at each start the first."""
_SPREAD = 0.7
_LONG = 2_000
"""Requests from which on fewer searches are made."""
_NEAR = 0.02
"""Distances from the log, relative to latency, up to which the loss is that of squares."""
_SAME = 1.005
"""A number is left out if the loss without it is no more than so many times as high."""
_ROOM_STEPS, _ROOM_MOVES, _ROOM_SPAN = (0.02, 0.01, 0.005, 0.0025), 100, 0.1
"""How far the room for KV moves at a time, by parts; moves of a simplex at each; how far from the start it may come."""
_WAITING, _FREE = 1, 0.9
"""More requests than so many wait for more than an iteration; below this part of the seats some are free."""
_DEAF = 1.1
"""A log says little of a number that may be doubled or halved while the loss stays below so many times its least."""


@dataclass(frozen=True, slots=True, eq=False)
class ServedLog:
    """What engines have served: requests in the order of arrival, and when their tokens came.

    Parameters
    ----------
    requests
        Arrivals and tokens.
    first_us, end_us
        When the first and the last token came, on the clock of the arrivals. Shape [requests].
    engine
        Which engine served each, from 0. Shape [requests].
    """

    requests: LoggedRequests
    first_us: Floats
    end_us: Floats
    engine: Ints

    @property
    def longest(self) -> int:
        """Tokens of KV that the longest request holds at its end."""
        return int((self.requests.prompt + self.requests.output - 1).max())

    def held_in_want(self, seats: int, block: int) -> int:
        """Return the tokens of KV that an engine holds as a rule while requests wait that no lack of seats keeps out.

        Output tokens count as they come, evenly between first and last, and half a block more for each request. 0:
        there are no such times to speak of.
        """
        held, running = list[float](), list[int]()
        for engine in np.unique(self.engine).tolist():
            of = np.flatnonzero(self.engine == engine)
            arrival_us, prompt, output = (column[of] for column in self.requests)
            first_us, end_us = self.first_us[of], self.end_us[of]
            for now in first_us[:: 1 + len(of) // _LONG].tolist():
                runs = (first_us <= now) & (end_us > now)
                if ((arrival_us < now) & (first_us > now)).sum() > _WAITING:
                    part = (now - first_us[runs]) / np.maximum(1.0, (end_us - first_us)[runs])
                    held.append(float((prompt[runs] + 1 + (output[runs] - 1) * part + block / 2).sum()))
                    running.append(int(runs.sum()))
        return int(np.median(held)) if held and np.median(running) < _FREE * seats else 0

    @property
    def concurrency(self) -> int:
        """Most requests that one engine had taken in and not ended, first tokens counting as when they were taken."""
        most = 0
        for engine in np.unique(self.engine).tolist():
            of = self.engine == engine
            instants = np.concatenate((self.end_us[of], self.first_us[of]))
            change = np.repeat([-1, 1], int(of.sum()))
            most = max(most, int(np.cumsum(change[np.lexsort((change, instants))]).max()))
        return most


class LawNumbers(NamedTuple):
    """A step law in microseconds: a step of one, each decode more, a prompt token, a token of context, with prompts."""

    first_us: float
    each_us: float
    prompt_us: float
    context_us: float
    mixed_us: float

    def law(self, seats: int) -> StepLaw:
        """Return it as a table of steps."""
        steps = self.first_us + self.each_us * np.arange(seats, dtype=np.float64)
        return StepLaw(np.concatenate(([0.0], steps)), self.prompt_us, self.context_us, self.mixed_us)


@dataclass(frozen=True, slots=True, eq=False)
class Fitted:
    """What was found.

    Parameters
    ----------
    numbers
        Of the law.
    loss
        Mean of what the loss makes of distances from the log's first tokens and ends, relative to latency.
    room
        Blocks of KV that there are by it.
    unclear
        Numbers of which the log says little, by name.
    """

    numbers: LawNumbers
    loss: float
    room: int
    unclear: tuple[str, ...]


def predict(log: ServedLog, limits: EngineLimits, law: StepLaw) -> tuple[Floats, Floats, int]:
    """Return when first and last tokens come by a law, and how often a request is preempted."""
    first_us, end_us = np.zeros((2, len(log.engine)))
    preempted = 0
    for engine in np.unique(log.engine).tolist():
        of = np.flatnonzero(log.engine == engine)
        arrival_us, prompt, output = log.requests
        requests = LoggedRequests(arrival_us[of], prompt[of], output[of])
        first, end = np.zeros((2, len(of)))
        preempted += serve(requests, limits, law, first, end)
        first_us[of], end_us[of] = first, end
    return first_us, end_us, preempted


def fit_law(log: ServedLog, limits: EngineLimits, counted: NDArray[np.bool_], seed: int, near: bool = False) -> Fitted:
    """Return the law that comes nearest to a log.

    Parameters
    ----------
    counted
        Whose tokens the loss counts. Shape [requests].
    seed
        Of the starts of the search; equal seeds give equal laws.
    near
        Whether there may be a little more or less room for KV than the limits say.
    """
    loss = partial(_loss, log, limits, counted)
    random, begin = np.random.default_rng(seed), np.log(_guess(log))
    # Long logs leave less to chance, and take longer.
    n_starts, sides = (_STARTS, _SIDES) if len(counted) <= _LONG else (2, _SIDES[:2])
    starts = [begin, *(begin + random.normal(0, _SPREAD, len(begin)) for _ in range(n_starts - 1))]
    best, least = min((_descend(loss, start, _SIDES[0], _MOVES) for start in starts), key=lambda each: each[1])
    for side in sides:
        # A simplex that has shrunk to a valley of the loss goes on when it is spread anew.
        best, least = _descend(loss, best, side, _MOVES)
    if near:
        limits, best, least = _fit_room(log, limits, counted, best, least)
        loss = partial(_loss, log, limits, counted)
    best, least = _leave_out(loss, best, least)
    unclear = tuple(
        name
        for at, name in enumerate(LawNumbers._fields)
        if np.isfinite(best[at]) and all(loss(_moved(best, at, by)) < _DEAF * least for by in (0.5, 2.0))
    )
    return Fitted(LawNumbers(*np.exp(best).tolist()), least, limits.room, unclear)


def is_nearer(log: ServedLog, limits: EngineLimits, than: Fitted) -> bool:
    """Say whether one short search by other limits already ends nearer to all of a log than a law."""
    everybody = np.ones(len(log.engine), np.bool_)
    return _descend(partial(_loss, log, limits, everybody), np.log(_guess(log)), _SIDES[0], _MOVES)[1] < than.loss


def _loss(log: ServedLog, limits: EngineLimits, counted: NDArray[np.bool_], logarithms: Floats) -> float:
    """Return how far a law's tokens are from the log's, relative to latency."""
    first_us, end_us, _ = predict(log, limits, LawNumbers(*np.exp(logarithms)).law(limits.seats))
    latency_us = np.maximum(log.end_us - log.requests.arrival_us, 1)[counted]
    away = [(us[counted] / latency_us) for us in (first_us - log.first_us, end_us - log.end_us)]
    # As squares near the log, as distances far from it: a few that are far off do not lead.
    return float(sum((np.sqrt(each * each + _NEAR * _NEAR) - _NEAR).mean() for each in away))


def _fit_room(
    log: ServedLog, limits: EngineLimits, counted: NDArray[np.bool_], best: Floats, least: float
) -> tuple[EngineLimits, Floats, float]:
    """Move the room for KV as long as the loss falls, by ever smaller steps.

    Which requests get in with a wave depends on a few blocks: those that an engine keeps to itself, or finds again.
    """
    given, least_room, tried = limits.room, -(-log.longest // limits.block), {limits.room}
    for step in _ROOM_STEPS if len(counted) <= _LONG else _ROOM_STEPS[1:3]:
        moved = True
        while moved:
            moved = False
            for part in (1 + step, 1 - step):
                room = round(limits.room * part)
                if room in tried or room < least_room or abs(room - given) > _ROOM_SPAN * given:
                    continue
                tried.add(room)
                there = limits._replace(room=room)
                found, value = _descend(partial(_loss, log, there, counted), best, _SIDES[3], _ROOM_MOVES)
                if value < least:
                    limits, best, least, moved = there, found, value, True
    return limits, *_descend(partial(_loss, log, limits, counted), best, _SIDES[-1], _MOVES)


def _guess(log: ServedLog) -> LawNumbers:
    """Return numbers to start from: steps of half the usual time per token, prompts as the quickest were read."""
    several = log.requests.output > 1
    spans_us = (log.end_us - log.first_us)[several] / (log.requests.output[several] - 1)
    step_us = max(1.0, 0.5 * float(np.median(spans_us))) if len(spans_us) else 1e4
    waits_us = (log.first_us - log.requests.arrival_us) / log.requests.prompt
    prompt_us = max(1e-3, float(np.quantile(waits_us, 0.1)))
    return LawNumbers(step_us, 0.3 * step_us / max(1, log.concurrency), prompt_us, 5e-6 * step_us, 0.03 * step_us)


def _leave_out(loss: Callable[[Floats], float], best: Floats, least: float) -> tuple[Floats, float]:
    """Set numbers to 0 without which the loss is as low."""
    for name in ("mixed_us", "context_us", "each_us"):
        without = best.copy()
        without[LawNumbers._fields.index(name)] = -np.inf
        found = loss(without)
        if found <= _SAME * least:
            best, least = without, found
    return best, least


def _moved(logarithms: Floats, at: int, by: float) -> Floats:
    changed = logarithms.copy()
    changed[at] += np.log(by)
    return changed


def _descend(loss: Callable[[Floats], float], start: Floats, side: float, moves: int) -> tuple[Floats, float]:
    """Return the lowest point that a simplex of Nelder and Mead comes to in so many moves, and the loss there."""
    points = [start, *(start + side * axis for axis in np.eye(len(start)))]
    values = [loss(point) for point in points]
    for _ in range(moves):
        order = np.argsort(values, kind="stable").tolist()
        points, values = [points[at] for at in order], [values[at] for at in order]
        centre = np.mean(points[:-1], axis=0)
        reflected = 2 * centre - points[-1]
        value = loss(reflected)
        if value < values[0]:
            further = 3 * centre - 2 * points[-1]
            value_further = loss(further)
            points[-1], values[-1] = (further, value_further) if value_further < value else (reflected, value)
        elif value < values[-2]:
            points[-1], values[-1] = reflected, value
        else:
            nearer = (centre + (reflected if value < values[-1] else points[-1])) / 2
            value_nearer = loss(nearer)
            if value_nearer < min(value, values[-1]):
                points[-1], values[-1] = nearer, value_nearer
            else:
                points = [points[0], *((points[0] + point) / 2 for point in points[1:])]
                values = [values[0], *(loss(point) for point in points[1:])]
    at = int(np.argmin(values))
    return points[at], values[at]
