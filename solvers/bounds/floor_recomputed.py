"""What requests in time ask of a window of GPUs, computed again for the verifier: fractions, no code of the prover.

Any window, any weights of the GPUs and any way of charging hold. More: `docs/certificate.md`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import groupby, pairwise
from typing import NamedTuple

from truenorth.models import NEVER, NONE, Instance
from truenorth.models.stream_tables import StreamTables
from truenorth.models.streams import StreamSpeed
from truenorth.solvers.bounds.alone import LoneJobs
from truenorth.solvers.bounds.certified import LATEST, RefusedError, as_list, get, whole
from truenorth.solvers.bounds.least_computed import least_computed
from truenorth.solvers.bounds.stream_floor import NO_DUE, WAYS, Limit

Point = tuple[Fraction, Fraction]
_ROUNDED = 1 + Fraction(1, 1 << 50)
"""Limits on the time per token are floats, which may lie a little below what was asked."""


class _Call(NamedTuple):
    """A request that has to be served for a limit: from when on, and how long what follows takes at the least.

    `steps` are the tokens after the first of the answer that it is part of; None: none are limited.
    """

    task: int
    job: int
    uncached: int
    decodes: int
    steps: int | None
    earliest_us: int
    tail_us: int


class _Charged(NamedTuple):
    """What a request in the window costs at the least, and so if its job is late."""

    job: int
    in_time: Fraction
    late: Fraction


def asked_and_offered(instance: Instance, limit: Limit, parameters: object) -> tuple[Fraction, Fraction]:
    """Return what requests in time ask of a window, and what all GPUs offer in it, in weighted microseconds.

    If more is asked than offered, no plan meets the limit. Nothing is offered where a job takes too long even alone.
    """
    way, begin_us = get(parameters, "way"), whole(get(parameters, "begin_us"), 0, LATEST, "begin_us")
    end_us = whole(get(parameters, "end_us"), begin_us + 1, LATEST, "end_us")
    if way not in WAYS:
        raise RefusedError(f"way must be one of {', '.join(WAYS)}")
    weights = [_weight(each) for each in as_list(get(parameters, "weights"), instance.n_gpus, "weights")]
    instance = least_computed(instance)
    if instance.streams is None:
        raise RefusedError("the scenario has no requests of streams")
    calls, through = list[_Call](), dict[int, int]()
    alone = LoneJobs(instance)
    for job in range(len(instance.jobs)):
        for call, ends_us in _calls(instance, instance.streams, alone, job, limit.first_token):
            calls.append(call)
            through[job] = max(through.get(job, 0), ends_us)
    late, due = limit.late, limit.due_us.tolist()
    surely: list[int] = limit.surely_us.tolist()
    for job, least in through.items():
        if least > due[job]:  # late in any case
            late, due[job] = late - 1, NO_DUE
    if late < 0 or any(least > surely[job] for job, least in through.items()):
        return Fraction(1), Fraction(0)
    costs = _Costs(instance, instance.streams, str(way), limit, calls, weights)
    charged = []
    for call in calls:
        soon_us, at_last_us = min(due[call.job], surely[call.job]), surely[call.job]
        if soon_us >= NO_DUE or call.earliest_us < begin_us or soon_us - call.tail_us > end_us:
            continue
        in_time = costs.least(call, soon_us - call.tail_us, hurried=True)
        bound = at_last_us < NO_DUE and at_last_us - call.tail_us <= end_us  # it is served there even if it is late
        stays = costs.least(call, at_last_us - call.tail_us, hurried=False) if bound else Fraction(0)
        charged.append(_Charged(call.job, in_time, min(in_time, stays)))
    saved = [
        sum((each.in_time - each.late for each in those), Fraction(0))
        for _, those in groupby(charged, key=lambda each: each.job)
    ]
    given_up = sum(sorted(saved, reverse=True)[:late], Fraction(0))
    asked = sum((each.in_time for each in charged), Fraction(0)) - given_up
    return asked, (end_us - begin_us) * sum(weights, Fraction(0))


def _weight(value: object) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise RefusedError("weights must be numbers above 0")
    return Fraction(value)


def _calls(
    instance: Instance, streams: StreamTables, alone: LoneJobs, job: int, first_token: bool
) -> Iterator[tuple[_Call, int]]:
    """Yield the requests that lead to the end of a job, or to its first token, and when that comes at the earliest."""
    tasks, target = instance.tasks_of(job), int(streams.first_token[job])
    if first_token and target == NONE:
        return
    target -= tasks.start
    templates = instance.task_template[tasks.start : tasks.stop].tolist()
    tokens = [streams.tokens(task) for task in tasks]
    starts = alone.times(job)[0]
    decodes = [each.decodes for each in tokens]
    runs = [min(alone.runs_of(*each)) for each in zip(templates, tokens, strict=True)]
    if first_token:  # a prompt's iterations lead to its first token; KV that came in takes one decode
        at = tokens[target]
        decodes[target] = 0 if at.uncached else 1
        speeds = streams.speeds[streams.template[templates[target]]]
        runs[target] = min(
            math.ceil(at.uncached * 10**6 / speed.prefill_rate) + decodes[target] * speed.tau[1]
            for speed in speeds
            if speed is not None
        )
    steps = _steps(streams, tasks)
    tails: dict[int, int] = {target: 0} if first_token else {}
    for at_task in instance.workflows[int(instance.job_workflow[job])].topological[::-1]:
        later = [
            (at_task + offset, int(instance.delay_us[edge])) for offset, edge in instance.outputs[templates[at_task]]
        ]
        behind = [delay + runs[other] + tails[other] for other, delay in later if other in tails]
        if behind or not first_token:
            tails[at_task] = max([*behind, tails.get(at_task, 0)])
    for at_task, tail in sorted(tails.items()):
        if streams.template[templates[at_task]] != NONE:
            task, own = tasks.start + at_task, (tokens[at_task].uncached, decodes[at_task])
            yield (
                _Call(task, job, *own, steps[task], starts[at_task], tail),
                starts[at_task] + runs[at_task] + tail,
            )


def _steps(streams: StreamTables, tasks: range) -> dict[int, int | None]:
    """Return how many tokens after the first the answers of a job's requests have that each of them is part of.

    None where KV came in of several, so that a decode comes before the first token.
    """
    found = dict[int, int | None]()
    for task in tasks:
        parts = [task]
        while (before := int(streams.goes_on[parts[-1]])) != parts[-1]:
            parts.append(before)
        steps = sum(streams.tokens(part).output for part in parts) - 1
        found |= {part: max(steps, found.get(part) or 0) for part in parts}
    alone = [task for task in tasks if streams.goes_on[task] == task and not streams.tokens(task).uncached]
    return found | dict.fromkeys(alone)


class _Costs:
    """What requests cost the GPU that is cheapest for each, by weight."""

    def __init__(
        self,
        instance: Instance,
        streams: StreamTables,
        way: str,
        limit: Limit,
        calls: Sequence[_Call],
        weights: Sequence[Fraction],
    ) -> None:
        self._instance, self._streams, self._way, self._limit = instance, streams, way, limit
        self._gpus = sorted(set(zip(instance.gpu_class.tolist(), weights, strict=True)))
        self._calls = calls
        self._shared: dict[tuple[int, int], list[Point]] = {}
        self._line: dict[tuple[int, int], Point] = {}

    def least(self, call: _Call, latest_us: int, hurried: bool) -> Fraction:
        """Return the least that a request costs; nothing if it runs nowhere."""
        instance, streams = self._instance, self._streams
        template = int(instance.task_template[call.task])
        stream, found = int(streams.template[template]), []
        for c, weight in self._gpus:
            speed = streams.speeds[stream][c]
            fits = streams.tokens(call.task).held <= streams.longest[stream, c]
            if speed is not None and fits and instance.run_us[template, c] != NEVER:
                found.append(weight * self._on(call, stream, c, speed, latest_us, hurried))
        return min(found, default=Fraction(0))

    def _on(self, call: _Call, stream: int, c: int, speed: StreamSpeed, latest_us: int, hurried: bool) -> Fraction:
        """Return the least that a request costs a GPU of a class."""
        prompt = _prompt_us(speed, call)
        room = int(self._streams.longest[stream, c])
        if self._way == "energy":
            within = Fraction(latest_us - call.earliest_us)
            step_us = math.inf if self._limit.step_us is None else float(self._limit.step_us[call.job])
            if hurried and call.steps is not None and step_us < math.inf:
                within = min(within, prompt + call.steps * Fraction(step_us) * _ROUNDED)
            if not call.decodes:
                return prompt
            if (stream, c) not in self._shared:
                self._shared[stream, c] = _shared_steps(speed)
            return prompt + call.decodes * _between(self._shared[stream, c], (within - prompt) / call.decodes)
        if self._way == "energy with KV":
            if (stream, c) not in self._line:
                self._line[stream, c] = self._best_line(stream, speed, room)
            alpha, beta = self._line[stream, c]
            return prompt + call.decodes * (beta + alpha * self._held(call, speed) / room)
        decoding = call.decodes * speed.tau[1]
        alone = math.ceil(prompt) + decoding
        if self._way == "seats":
            return Fraction(alone, speed.seats)
        return (decoding if speed.block else alone) * self._held(call, speed) / room

    def _held(self, call: _Call, speed: StreamSpeed) -> Fraction:
        """Return the tokens of KV of a request in each of its decodes, or their mean where KV grows."""
        tokens = self._streams.tokens(call.task)
        return Fraction(tokens.prompt + (tokens.output - 1) // 2 if speed.block else tokens.held)

    def _best_line(self, stream: int, speed: StreamSpeed, room: int) -> Point:
        """Return the line below the step times that asks the most of all requests of a class; any of them holds."""
        decodes, held = 0, Fraction(0)
        for call in self._calls:
            if self._streams.template[self._instance.task_template[call.task]] == stream:
                decodes, held = decodes + call.decodes, held + call.decodes * self._held(call, speed)
        return max(_lines_below(speed), key=lambda line: line[1] * decodes + line[0] * held / room)


def _prompt_us(speed: StreamSpeed, call: _Call) -> Fraction:
    return call.uncached * 10**6 / speed.prefill_rate


def _shared_steps(speed: StreamSpeed) -> list[Point]:
    """Return the falling corners of the lower convex hull of what each decode pays, by the time of the step."""
    cheapest = {step: Fraction(step, k) for k, step in enumerate(speed.tau) if k}  # of equal steps the largest k
    hull = _lower_hull([(Fraction(step), each) for step, each in sorted(cheapest.items())])
    least = min(range(len(hull)), key=lambda at: hull[at][1])
    return hull[: least + 1]


def _lines_below(speed: StreamSpeed) -> list[Point]:
    """Return pairs (alpha, beta), neither negative, with alpha + beta k at most tau[k] for k = 1..K."""
    steps = [(Fraction(k), Fraction(step)) for k, step in enumerate(speed.tau) if k]
    lines = [(steps[0][1], Fraction(0)), (Fraction(0), min(step / k for k, step in steps))]
    for (k, low), (further, high) in pairwise(_lower_hull(steps)):
        slope = (high - low) / (further - k)
        lines += [(low - slope * k, slope)] if low >= slope * k else []
    return lines


def _lower_hull(points: list[Point]) -> list[Point]:
    """Return the corners of the lower convex hull of points with rising first values."""
    kept: list[Point] = []
    for x, y in points:
        while len(kept) > 1:
            (x0, y0), (x1, y1) = kept[-2:]
            if (x1 - x0) * (y - y0) > (y1 - y0) * (x - x0):
                break
            kept.pop()
        kept.append((x, y))
    return kept


def _between(corners: list[Point], x: Fraction) -> Fraction:
    """Return the value of a broken line at a place; the first or last value beside it."""
    for (low, of_low), (high, of_high) in pairwise(corners):
        if x < high:
            return of_low if x <= low else of_low + (of_high - of_low) * (x - low) / (high - low)
    return corners[-1][1]
