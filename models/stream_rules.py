"""The rules of streams (S1 to S5), for the checker: it takes every GPU's iterations again from who joins it when.

First tokens and ends follow from (GPU, start, order) alone; what a plan says of them has to equal that. Nothing is
asked of the earliest start. Of what happened (`realised`) only seats, memory, inputs and residencies are held to them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from truenorth.models.instance import NONE, Instance, Ints
from truenorth.models.stream_tables import StreamTables
from truenorth.models.strides import StreamRun, Stride
from truenorth.models.timeline import Timeline, Violation, file_order, name_task


def check_streams(instance: Instance, timeline: Timeline) -> Iterator[Violation]:
    """S1 to S5, and that requests are served where they are tied to; nothing without streams."""
    if instance.streams is None:
        return
    yield from _ties(instance, instance.streams, timeline)
    yield from _seats(instance, instance.streams, timeline)
    yield from _decisions(instance, instance.streams, timeline)
    if timeline.realised:
        yield from _tokens_in_order(instance, timeline)
    else:
        yield from _one_class_at_a_time(instance, instance.streams, timeline)
        yield from _iterations(instance, instance.streams, timeline)


def kv_bytes(instance: Instance, timeline: Timeline) -> Ints:
    """Return the bytes of KV that each task holds from its start to its end; 0 for what is no request. Shape [tasks].

    Of what happened the output tokens that there were count.
    """
    streams = instance.streams
    if streams is None:
        return np.zeros(instance.n_tasks, np.int64)
    per_token = np.array(
        [[0 if speed is None else speed.kv_bytes for speed in row] for row in streams.speeds], np.int64
    )
    output = timeline.served.output if timeline.served is not None and timeline.realised else streams.output
    stream = streams.template[instance.task_template]
    held: Ints = (streams.prompt + output) * per_token[stream, instance.gpu_class[timeline.gpu]]
    return np.where(stream == NONE, 0, held)


def _requests(streams: StreamTables, instance: Instance) -> Ints:
    """Return the tasks that are requests."""
    return np.flatnonzero(streams.template[instance.task_template] != NONE)


def _ties(instance: Instance, streams: StreamTables, timeline: Timeline) -> Iterator[Violation]:
    """T1: a request is served on the GPU of the one that it is tied to."""
    for template, offsets in enumerate(streams.together):
        if len(offsets) == 1 or max(offsets) > 0:  # the last one of those that are tied speaks for all
            continue
        for task in np.flatnonzero(instance.task_template == template).tolist():
            for offset in offsets:
                if timeline.gpu[task + offset] != timeline.gpu[task]:
                    subject = f"{name_task(instance, task)} with {name_task(instance, task + offset)}"
                    here, there = (instance.cluster.gpus[timeline.gpu[at]].id for at in (task, task + offset))
                    yield Violation("T1", subject, "is tied to another GPU", here, there)


def _one_class_at_a_time(instance: Instance, streams: StreamTables, timeline: Timeline) -> Iterator[Violation]:
    """S1: from its first join until it is empty a GPU is one run of one class: nothing else starts, or still runs."""
    stream = streams.template[instance.task_template]
    order = np.lexsort((timeline.end_us, timeline.start_us, timeline.gpu))
    order = order[timeline.end_us[order] > timeline.start_us[order]]
    last: dict[int, dict[int, int]] = {}  # per GPU and class the run that ends last so far, plain tasks as one class
    for task in order.tolist():
        ends = last.setdefault(int(timeline.gpu[task]), {})
        for other_class, other in ends.items():
            if other_class != stream[task] and timeline.start_us[task] < timeline.end_us[other]:
                subject = f"{name_task(instance, task)} after {name_task(instance, other)}"
                found, least = int(timeline.start_us[task]), int(timeline.end_us[other])
                yield Violation("S1", subject, "starts before a run of another class has ended", found, least)
        before = ends.get(int(stream[task]))
        if before is None or timeline.end_us[before] < timeline.end_us[task]:
            ends[int(stream[task])] = task


def _seats(instance: Instance, streams: StreamTables, timeline: Timeline) -> Iterator[Violation]:
    """S1, S5: at every instant a GPU serves at most K requests of a class, and no more than the plan's limit for it."""
    limits = {} if timeline.served is None else timeline.served.limits
    by_place: dict[tuple[int, int], list[int]] = {}
    for task in _requests(streams, instance).tolist():
        place = int(timeline.gpu[task]), int(streams.template[instance.task_template[task]])
        by_place.setdefault(place, []).append(task)
    for (gpu, stream), tasks in sorted(by_place.items()):
        speed = streams.speeds[stream][instance.gpu_class[gpu]]
        if speed is None:
            continue  # the GPU is not eligible, which T1 says
        most = min(speed.seats, limits.get(gpu, speed.seats))
        here = np.array(tasks)
        instants = np.concatenate((timeline.end_us[here], timeline.start_us[here]))
        change = np.repeat([-1, 1], len(here))
        order = np.lexsort((change, instants))  # ends come before starts
        taken = np.cumsum(change[order])
        for at in np.flatnonzero((taken > most) & (change[order] > 0)).tolist():
            task = int(here[order[at] - len(here)])
            subject = f"{name_task(instance, task)} on {instance.cluster.gpus[gpu].id}"
            yield Violation("S5" if most < speed.seats else "S1", subject, "no seat is free", int(taken[at]), most)


def _decisions(instance: Instance, streams: StreamTables, timeline: Timeline) -> Iterator[Violation]:
    """S5: no request joins before its `not_before`; a limit on requests is at least 1 and at most K."""
    if timeline.served is None:
        return
    for task in np.flatnonzero(timeline.start_us < timeline.served.not_before_us).tolist():
        least = int(timeline.served.not_before_us[task])
        yield Violation("S5", name_task(instance, task), "joins too early", int(timeline.start_us[task]), least)
    for gpu, limit in timeline.served.limits.items():
        speeds = [row[instance.gpu_class[gpu]] for row in streams.speeds]
        most = max((speed.seats for speed in speeds if speed is not None), default=0)
        if not 1 <= limit <= most:
            yield Violation("S5", instance.cluster.gpus[gpu].id, "limit on requests", limit, f"1 to {most}")


def _tokens_in_order(instance: Instance, timeline: Timeline) -> Iterator[Violation]:
    """S4, of what happened: the first token comes between start and end."""
    if timeline.served is None or instance.streams is None:
        return
    requests = _requests(instance.streams, instance)
    first = timeline.served.first_us[requests]
    wrong = (first < timeline.start_us[requests]) | (first > timeline.end_us[requests])
    for task, at in zip(requests[wrong].tolist(), first[wrong].tolist(), strict=True):
        span = f"{timeline.start_us[task]} to {timeline.end_us[task]}"
        yield Violation("S4", name_task(instance, task), "first token outside its run", at, span)


class _Joined(NamedTuple):
    """A request as it is served by the rules: at which boundary it joins, with what budget left, and what follows."""

    boundary_us: int
    budget: int
    first_us: int
    end_us: int


def _iterations(instance: Instance, streams: StreamTables, timeline: Timeline) -> Iterator[Violation]:
    """S2 to S4: requests join at boundaries, with budget left; first tokens and ends are those of the iterations."""
    said = timeline.served
    by_place: dict[tuple[int, int], list[int]] = {}
    for task in file_order(instance, timeline).tolist():
        stream = int(streams.template[instance.task_template[task]])
        if stream != NONE:
            by_place.setdefault((int(timeline.gpu[task]), stream), []).append(task)
    for (gpu, stream), tasks in sorted(by_place.items()):
        speed = streams.speeds[stream][instance.gpu_class[gpu]]
        if speed is None:
            continue
        run = _Serving(StreamRun(speed, 0), streams)
        joined = run.serve(tasks, timeline.start_us[tasks].tolist())
        for task in tasks:
            name, start, by_rule = name_task(instance, task), int(timeline.start_us[task]), joined[task]
            first = NONE if said is None else int(said.first_us[task])
            if by_rule.boundary_us != start:
                yield Violation("S2", name, "joins between two boundaries", start, by_rule.boundary_us)
            elif by_rule.budget < 1:
                yield Violation("S2", name, "joins an iteration whose prompt budget is spent", 0, "at least 1 token")
            if first != by_rule.first_us:
                yield Violation("S3", name, "first token at another time", first, by_rule.first_us)
            if timeline.end_us[task] != by_rule.end_us:
                yield Violation("S4", name, "ends at another time", int(timeline.end_us[task]), by_rule.end_us)


class _Serving:
    """Serves requests on one GPU as a plan has them join."""

    def __init__(self, run: StreamRun, streams: StreamTables) -> None:
        self._run, self._streams = run, streams
        self._first: dict[int, int] = {}
        self._end: dict[int, int] = {}

    def serve(self, tasks: list[int], starts: list[int]) -> dict[int, _Joined]:
        """Return what follows from these joins, given in the plan's order."""
        place: dict[int, tuple[int, int]] = {}
        for task, start in zip(tasks, starts, strict=True):
            self._go_to(start)
            tokens = self._streams.tokens(task)
            # One that may not join does so nevertheless, where it should have at the earliest: the rest is checked on.
            place[task] = self._run.boundary_us, self._run.budget
            if self._run.budget < 1:
                self._advance(self._run.stride())
            self._run.join(task, tokens.uncached, tokens.output)
        while self._run.requests:
            self._advance(self._run.stride())
        return {task: _Joined(*place[task], self._first[task], self._end[task]) for task in tasks}

    def _go_to(self, start: int) -> None:
        """Take iterations up to the first boundary at a time or after it; an empty GPU waits for it."""
        run = self._run
        while run.requests and run.boundary_us < start:
            most, length_us = run.stride()
            self._advance(Stride(min(most, -(-(start - run.boundary_us) // length_us)), length_us))
        if not run.requests and run.boundary_us < start:
            self._run = StreamRun(run.speed, start)

    def _advance(self, stride: Stride) -> None:
        first, ended = self._run.advance(stride)
        self._first.update(dict.fromkeys(first, self._run.boundary_us))
        self._end.update(dict.fromkeys(ended, self._run.boundary_us))
