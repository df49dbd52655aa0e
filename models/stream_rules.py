"""The rules of streams (S1 to S5, E1 to E5), for the checker: it takes all iterations again from who joins when.

First tokens and ends follow from (GPU, start, order) alone; what a plan says of them has to equal that. Nothing is
asked of the earliest start. Of what happened (`realised`) only seats, memory, inputs and residencies are held to them,
and all of it where KV grows, for which no device but the virtual one exists.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from truenorth.models.caches import cache_on
from truenorth.models.cluster import FOREVER
from truenorth.models.growing_cache import GrowingCache
from truenorth.models.holds import HeldKV, Holds
from truenorth.models.instance import NONE, Instance, Ints
from truenorth.models.prefix_cache import PrefixCache
from truenorth.models.prefixes import Chain
from truenorth.models.stream_tables import StreamTables
from truenorth.models.streams import StreamSpeed, Tokens
from truenorth.models.strides import Back, StreamRun, Stride
from truenorth.models.tables import LARGEST
from truenorth.models.timeline import Timeline, Violation, file_order, name_task


def check_streams(instance: Instance, timeline: Timeline) -> Iterator[Violation]:
    """S1 to S5, E1 to E5, and that requests are served where they are tied to; nothing without streams."""
    if instance.streams is None:
        return
    yield from _ties(instance, instance.streams, timeline)
    yield from _going_away(instance, instance.streams, timeline)
    yield from _seats(instance, instance.streams, timeline)
    yield from _decisions(instance, instance.streams, timeline)
    yield from _preempted_where_served(instance, timeline)
    if timeline.realised:
        yield from _tokens_in_order(instance, timeline)
    else:
        yield from _one_class_at_a_time(instance, instance.streams, timeline)
    yield from _iterations(instance, instance.streams, timeline)


def kv_bytes(instance: Instance, timeline: Timeline) -> Ints:
    """Return the bytes of KV that each run holds from its start to its end; 0 for what is no request. Shape [runs].

    Of what happened the output tokens that there were count. Where KV grows nothing is held from start to end. Blocks
    that nodes cache do not count (see `shared_kv`).
    """
    streams, runs = instance.streams, timeline.runs
    if streams is None:
        return np.zeros(instance.n_tasks, np.int64)
    per_token = np.array(
        [[0 if speed is None or speed.block else speed.kv_bytes for speed in row] for row in streams.speeds], np.int64
    )
    output = timeline.served.output if timeline.served is not None and timeline.realised else streams.output
    stream = streams.template[instance.task_template][runs.task]
    tokens = streams.prompt + output
    if streams.prefixes is not None:
        prefixes = streams.prefixes
        tokens -= np.array([len(chain) * prefixes.size(task) for task, chain in enumerate(prefixes.chains)], np.int64)
    held: Ints = tokens[runs.task] * per_token[stream, instance.gpu_class[runs.gpu]]
    return np.where(stream == NONE, 0, held)


def shared_kv(instance: Instance, timeline: Timeline) -> Iterator[tuple[int, int, int]]:
    """Yield GPU, time and by how many bytes the blocks change there that running requests hold, each once (E4).

    None where KV grows.
    """
    streams, runs = instance.streams, timeline.runs
    if streams is None or streams.prefixes is None or streams.grows.any():
        return
    holders: dict[int, dict[int, int]] = {}
    listing = [run for run, task in enumerate(runs.task.tolist()) if streams.prefixes.chains[task]]
    events = [(int(runs.start_us[run]), 1, run) for run in listing]
    events += [(int(runs.end_us[run]), 0, run) for run in listing]
    for time, starts, run in sorted(events):  # ends come before starts
        task, gpu = int(runs.task[run]), int(runs.gpu[run])
        speed = streams.speeds[streams.template[instance.task_template[task]]][instance.gpu_class[gpu]]
        chain, here = streams.prefixes.chains[task], holders.setdefault(gpu, {})
        if starts:
            changed = sum(block not in here for block in chain)
            for block in chain:
                here[block] = here.get(block, 0) + 1
        else:
            last = [block for block in chain if here[block] == 1]
            for block in chain:
                here[block] -= 1
            for block in last:
                del here[block]
            changed = -len(last)
        if changed and speed is not None:
            yield gpu, time, changed * streams.prefixes.size(task) * speed.kv_bytes


def _requests(streams: StreamTables, instance: Instance) -> Ints:
    """Return the tasks that are requests."""
    return np.flatnonzero(streams.template[instance.task_template] != NONE)


def _going_away(instance: Instance, streams: StreamTables, timeline: Timeline) -> Iterator[Violation]:
    """E3: a request joins while its GPU is there and does not drain, and has ended, or is cut, when it goes."""
    runs = timeline.runs
    of_stream = streams.template[instance.task_template][runs.task] != NONE
    cut = np.arange(len(runs.task)) >= instance.n_tasks
    if instance.always_available and not cut.any():
        return
    for run in np.flatnonzero(of_stream).tolist():
        name, start, end = name_task(instance, int(runs.task[run])), int(runs.start_us[run]), int(runs.end_us[run])
        gpu = instance.cluster.gpus[runs.gpu[run]]
        interval = gpu.available.at(start)
        if interval is None:
            yield Violation("E3", name, f"joins while {gpu.id} is away", start, "while it is there")
            continue
        _, goes = interval
        if start >= goes - gpu.drain_us:
            yield Violation("E3", name, f"joins while {gpu.id} drains", start, f"before {goes - gpu.drain_us}")
        if cut[run] and end != goes:
            allowed = "never" if goes == FOREVER else goes
            yield Violation("E3", name, f"is cut, but not as {gpu.id} goes", end, allowed)
        if not cut[run] and end > goes:
            yield Violation("E3", name, f"has not ended when {gpu.id} goes", end, goes)
    order = np.lexsort((runs.start_us, runs.task))
    again = (runs.task[order][1:] == runs.task[order][:-1]) & (runs.start_us[order][1:] < runs.end_us[order][:-1])
    for at in np.flatnonzero(again).tolist():
        before, after = order[at], order[at + 1]
        name, found, least = name_task(instance, int(runs.task[after])), runs.start_us[after], runs.end_us[before]
        yield Violation("E3", name, "joins again before it is cut", int(found), int(least))


def _ties(instance: Instance, streams: StreamTables, timeline: Timeline) -> Iterator[Violation]:
    """T1: a request is served on the GPU of the one that it is tied to."""
    for template, offsets in enumerate(streams.together):
        if len(offsets) == 1 or max(offsets) > 0:  # the last one of those that are tied speaks for all
            continue
        for task in np.flatnonzero(instance.task_template == template).tolist():
            for offset in offsets:
                if timeline.place[task + offset] != timeline.place[task]:
                    subject = f"{name_task(instance, task)} with {name_task(instance, task + offset)}"
                    here, there = (instance.cluster.gpus[timeline.place[at]].id for at in (task, task + offset))
                    yield Violation("T1", subject, "is tied to another GPU", here, there)


def _one_class_at_a_time(instance: Instance, streams: StreamTables, timeline: Timeline) -> Iterator[Violation]:
    """S1: from its first join until it is empty a GPU is one run of one class: nothing else starts, or still runs."""
    runs = timeline.runs
    stream = streams.template[instance.task_template][runs.task]
    order = np.lexsort((runs.end_us, runs.start_us, runs.gpu))
    order = order[runs.end_us[order] > runs.start_us[order]]
    last: dict[int, dict[int, int]] = {}  # per GPU and class the run that ends last so far, plain tasks as one class
    for run in order.tolist():
        ends = last.setdefault(int(runs.gpu[run]), {})
        for other_class, other in ends.items():
            if other_class != stream[run] and runs.start_us[run] < runs.end_us[other]:
                subject = (
                    f"{name_task(instance, int(runs.task[run]))} after {name_task(instance, int(runs.task[other]))}"
                )
                found, least = int(runs.start_us[run]), int(runs.end_us[other])
                yield Violation("S1", subject, "starts before a run of another class has ended", found, least)
        before = ends.get(int(stream[run]))
        if before is None or runs.end_us[before] < runs.end_us[run]:
            ends[int(stream[run])] = run


def _seats(instance: Instance, streams: StreamTables, timeline: Timeline) -> Iterator[Violation]:
    """S1, S5: at every instant a GPU serves at most K requests of a class, and no more than the plan's limit for it."""
    limits = {} if timeline.served is None else timeline.served.limits
    runs = timeline.runs
    for (gpu, stream), here in _by_place(instance, streams, timeline):
        speed = streams.speeds[stream][instance.gpu_class[gpu]]
        if speed is None or speed.block:
            continue  # the GPU is not eligible, which T1 says; where KV grows who is preempted has no seat
        most = min(speed.seats, limits.get(gpu, speed.seats))
        instants = np.concatenate((runs.end_us[here], runs.start_us[here]))
        change = np.repeat([-1, 1], len(here))
        order = np.lexsort((change, instants))  # ends come before starts
        taken = np.cumsum(change[order])
        for at in np.flatnonzero((taken > most) & (change[order] > 0)).tolist():
            task = int(runs.task[here[order[at] - len(here)]])
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


def _preempted_where_served(instance: Instance, timeline: Timeline) -> Iterator[Violation]:
    """E8: a request is preempted on a GPU that serves it, and joins again later, if ever."""
    served = {*zip(timeline.runs.task.tolist(), timeline.runs.gpu.tolist(), strict=True)} if timeline.preempted else ()
    for each in timeline.preempted:
        name = name_task(instance, each.task)
        if (each.task, each.gpu) not in served:
            gpu = instance.cluster.gpus[each.gpu].id
            yield Violation("E8", name, f"is preempted on {gpu}, which does not serve it", each.from_us, "never")
        if each.to_us is not None and each.to_us < each.from_us:
            yield Violation("E8", name, "joins again before it is preempted", each.to_us, each.from_us)


def _tokens_in_order(instance: Instance, timeline: Timeline) -> Iterator[Violation]:
    """S4, of what happened: the first token comes between start and end."""
    if timeline.served is None or instance.streams is None:
        return
    requests = _requests(instance.streams, instance)
    first = timeline.served.first_us[requests]
    start_us = timeline.start_us.copy()
    np.minimum.at(start_us, timeline.runs.task, timeline.runs.start_us)  # what was cut may have had it
    wrong = (first < start_us[requests]) | (first > timeline.end_us[requests])
    for task, at in zip(requests[wrong].tolist(), first[wrong].tolist(), strict=True):
        span = f"{start_us[task]} to {timeline.end_us[task]}"
        yield Violation("S4", name_task(instance, task), "first token outside its run", at, span)


class _Refused(NamedTuple):
    """A rule that keeps a request from joining where KV grows, in words, and the two values that disagree."""

    rule: str
    problem: str
    found: int
    allowed: int


class _Joined(NamedTuple):
    """A run as it is served by the rules: at which boundary it joins, whether it may there, and what follows.

    A first token or an end that does not come before the GPU goes is at FOREVER. Of its prompt so many are cached.
    """

    boundary_us: int
    budget: int
    refused: _Refused | None
    goes_us: int
    first_us: int
    end_us: int
    cached: int


def _iterations(instance: Instance, streams: StreamTables, timeline: Timeline) -> Iterator[Violation]:
    """S2 to S4: requests join at boundaries, with budget left; first tokens and ends are those of the iterations."""
    said, runs = timeline.served, timeline.runs
    first_us: dict[int, int] = {}
    for gpu, speed, here in _served(instance, streams, timeline):
        # What happened on a device took the time it took; without the order it is not known who was preempted.
        if speed is None or (timeline.realised and not (speed.block and said is not None and said.order is not None)):
            continue
        serving = _Serving(instance, timeline, gpu, speed)
        joined = serving.serve(here)
        yield from serving.violations
        for run in here:
            task, by_rule = int(runs.task[run]), joined[run]
            name, start, end = name_task(instance, task), int(runs.start_us[run]), int(runs.end_us[run])
            if by_rule.boundary_us != start:
                yield Violation("S2", name, "joins between two boundaries", start, by_rule.boundary_us)
            elif by_rule.budget < 1:
                yield Violation("S2", name, "joins an iteration whose prompt budget is spent", 0, "at least 1 token")
            elif by_rule.refused is not None:
                yield Violation(by_rule.refused.rule, name, *by_rule.refused[1:])
            if run < instance.n_tasks and said is not None and said.cached is not None:
                rule = "E5" if isinstance(streams.prefixes, Holds) else "E4"
                yield from _cached(rule, name, int(said.cached[task]), by_rule.cached)
            # Of several runs the first one with a first token has it.
            first_us[task] = min(by_rule.first_us, first_us.get(task, FOREVER))
            if run >= instance.n_tasks and by_rule.end_us != FOREVER:
                yield Violation("E3", name, "is cut after its end", end, by_rule.end_us)
            # Who would be cut breaks E3 by that already.
            elif run < instance.n_tasks and end != by_rule.end_us and not end > by_rule.goes_us < by_rule.end_us:
                yield Violation("S4", name, "ends at another time", end, _or_never(by_rule.end_us))
    for task, by_rules in first_us.items():
        first = NONE if said is None else int(said.first_us[task])
        if first != by_rules:
            yield Violation("S3", name_task(instance, task), "first token at another time", first, _or_never(by_rules))


def _cached(rule: str, name: str, found: int, by_rule: int) -> Iterator[Violation]:
    """E4, E5: as many tokens of a prompt are cached as the GPU has when its request joins."""
    if found != by_rule:
        yield Violation(rule, name, "other prompt tokens are cached", found, by_rule)


def _served(
    instance: Instance, streams: StreamTables, timeline: Timeline
) -> Iterator[tuple[int, StreamSpeed | None, list[int]]]:
    """Yield GPUs with runs that follow from each other, in the order in which they join, and the speed of the first.

    Those of one stream class, or of all where a cache outlives what it was made by.
    """
    if streams.prefixes is None:
        for (gpu, stream), here in _by_place(instance, streams, timeline):
            yield gpu, streams.speeds[stream][instance.gpu_class[gpu]], here
        return
    together: dict[int, list[int]] = {}
    stream_of = streams.template[instance.task_template][timeline.runs.task]
    for run in file_order(instance, timeline).tolist():
        gpu = int(timeline.runs.gpu[run])
        # Where one is not eligible nothing follows, which T1 says.
        if stream_of[run] != NONE and streams.speeds[stream_of[run]][instance.gpu_class[gpu]] is not None:
            together.setdefault(gpu, []).append(run)
    for gpu, here in sorted(together.items()):
        yield gpu, streams.speeds[stream_of[here[0]]][instance.gpu_class[gpu]], here


def _or_never(time_us: int) -> int | str:
    return "never" if time_us == FOREVER else time_us


def _by_place(
    instance: Instance, streams: StreamTables, timeline: Timeline
) -> Iterator[tuple[tuple[int, int], list[int]]]:
    """Yield GPUs with a stream class that they serve, and its runs in the order in which they join."""
    by_place: dict[tuple[int, int], list[int]] = {}
    runs = timeline.runs
    stream = streams.template[instance.task_template][runs.task]
    for run in file_order(instance, timeline).tolist():
        if stream[run] != NONE:
            by_place.setdefault((int(runs.gpu[run]), int(stream[run])), []).append(run)
    yield from sorted(by_place.items())


@dataclass(frozen=True, slots=True)
class GrownKV:
    """What comes of KV that grows: requests that were preempted, tokens computed again, and the most bytes of a GPU."""

    preemptions: int = 0
    recomputed_tokens: int = 0
    peak_bytes: int = 0


def grown_kv(instance: Instance, timeline: Timeline, first_task: int = 0) -> GrownKV:
    """Return what comes of KV that grows; of preemptions those of requests from a task on count."""
    streams = instance.streams
    if streams is None or not streams.grows.any():
        return GrownKV()
    preempted, recomputed, peak = 0, 0, 0
    for gpu, speed, here in _served(instance, streams, timeline):
        if speed is not None and speed.block:
            serving = _Serving(instance, timeline, gpu, speed)
            serving.serve(here)
            preempted += sum(task >= first_task for task in serving.preempted)
            recomputed += sum(each.again for each in serving.again if each.task >= first_task)
            peak = max(peak, serving.peak_bytes)
    return GrownKV(preempted, recomputed, peak)


class _Room:
    """Bytes that the models on a GPU leave, and tasks that are no requests, over time."""

    def __init__(self, instance: Instance, timeline: Timeline, gpu: int) -> None:
        here = [stay for stay in timeline.residencies if stay.gpu == gpu]
        weight: list[int] = instance.weight_bytes.tolist()
        self._all = instance.cluster.gpus[gpu].memory_bytes
        comes = [(stay.load_start_us, weight[stay.model]) for stay in here]
        goes = [(stay.end_us, weight[stay.model]) for stay in here if stay.end_us is not None]
        if instance.template_memory.any():
            runs, held = timeline.runs, instance.template_memory[instance.task_template][timeline.runs.task]
            for run in np.flatnonzero((runs.gpu == gpu) & (held > 0)).tolist():
                comes.append((int(runs.start_us[run]), int(held[run])))
                goes.append((int(runs.end_us[run]), int(held[run])))
        comes.sort()
        goes.sort()
        self.leave = sorted((stay.end_us, stay.model) for stay in here if stay.end_us is not None)
        self._comes, self._goes = [at for at, _ in comes], [at for at, _ in goes]
        self._come = [0, *accumulate(size for _, size in comes)]
        self._gone = [0, *accumulate(size for _, size in goes)]
        self.changes_us = sorted({*self._comes, *self._goes})

    def before(self, now: int) -> int:
        """Return the bytes that are free for KV before anything comes or leaves at an instant."""
        return self._all - self._come[bisect_left(self._comes, now)] + self._gone[bisect_left(self._goes, now)]

    def after(self, now: int) -> int:
        """Return the bytes that are free for KV once what leaves at an instant has left."""
        return self._all - self._come[bisect_right(self._comes, now)] + self._gone[bisect_right(self._goes, now)]


class _Move(NamedTuple):
    """What a timeline says of a request that is preempted at a time, or then joins again."""

    task: int
    at_us: int
    leaves: bool


class _Serving:
    """Serves requests on one GPU as a timeline has them join."""

    def __init__(self, instance: Instance, timeline: Timeline, gpu: int, speed: StreamSpeed) -> None:
        self._instance, self._timeline, self._gpu = instance, timeline, gpu
        self._runs = timeline.runs
        limits = {} if timeline.served is None else timeline.served.limits
        self._limit = limits.get(gpu, LARGEST)
        self._cache = cache_on(instance.streams, int(instance.gpu_class[gpu]))
        self._growing = self._cache if isinstance(self._cache, GrowingCache) else None
        self._room = _Room(instance, timeline, gpu) if speed.block * speed.kv_bytes or self._cache is not None else None
        self._leaving = deque(self._room.leave if self._room is not None else ())
        self._changes = deque(self._room.changes_us if self._room is not None else ())
        self._held: dict[int, int] = {}
        self._held_bytes = 0
        self._run = self._new_run(speed, 0)
        self._goes_us = FOREVER
        self._number: dict[int, int] = {}
        self._first: dict[int, int] = {}
        self._end: dict[int, int] = {}
        self.again: list[Back] = []
        self.preempted: list[int] = []
        self.peak_bytes = 0
        self._cached_tokens: dict[int, int] = {}
        # Where a timeline says who was preempted when nobody is by rule E2.
        self._says = bool(timeline.preempted)
        self.violations: list[Violation] = []

    def serve(self, runs: list[int]) -> dict[int, _Joined]:
        """Return what follows from the joins of these runs, given in their order."""
        place: dict[int, tuple[int, int, _Refused | None, int]] = {}
        for run, leave in self._with_leaves(runs) if self._says else ((run, None) for run in runs):
            start = int(self._runs.start_us[run])
            if leave is not None:
                self._leave_or_return(leave)
                continue
            task, tokens = int(self._runs.task[run]), self._tokens(run)
            if start >= self._goes_us:
                self._serve_out()
            if not self._busy:
                interval = self._instance.cluster.gpus[self._gpu].available.at(start)
                self._goes_us = FOREVER if interval is None else interval[1]  # E3 tells of who joins where nothing is
            self._go_to(start, self._speed(run))
            # One that may not join does so nevertheless, where it should have at the earliest: the rest is checked on.
            place[run] = self._run.boundary_us, self._run.budget, self._refuse(task, tokens), self._goes_us
            if self._run.budget < 1:
                self._advance(self._run.stride())
            self._number[task] = run
            self._run.join(task, tokens if self._cache is None else self._hold(self._cache, task, tokens))
        self._serve_out()
        first, end = self._first, self._end
        cached = self._cached_tokens
        return {
            run: _Joined(*place[run], first.get(run, FOREVER), end.get(run, FOREVER), cached.get(run, 0))
            for run in runs
        }

    def _with_leaves(self, runs: list[int]) -> list[tuple[int, _Move | None]]:
        """Return the runs as they join, and between them who is preempted and who joins again, in their order."""
        served, orders = self._timeline.served, [NONE] * len(self._runs.task)
        if served is not None and served.order is not None:
            orders = [*served.order.tolist(), *(NONE if run.order is None else run.order for run in served.cut)]
        # By when, and where that is the same by the order of joining.
        found: list[tuple[int, int, int, _Move | None]] = []
        found += [(int(self._runs.start_us[run]), orders[run], run, None) for run in runs]
        tasks = {int(self._runs.task[run]): run for run in runs}
        for each in self._timeline.preempted:
            if each.gpu == self._gpu and each.task in tasks:
                found.append((each.from_us, each.order, tasks[each.task], _Move(each.task, each.from_us, True)))
                if each.to_us is not None and each.again is not None:
                    found.append((each.to_us, each.again, tasks[each.task], _Move(each.task, each.to_us, False)))
        return [(run, move) for _, _, run, move in sorted(found, key=lambda event: event[:2])]

    def _leave_or_return(self, move: _Move) -> None:
        """Have a request leave that runs, or join again, at a boundary."""
        if move.at_us >= self._goes_us:
            self._serve_out()
        self._go_to(move.at_us, self._run.speed)
        run, name = self._run, name_task(self._instance, move.task)
        what = "is preempted" if move.leaves else "joins again"
        if run.boundary_us != move.at_us:
            problem = f"{what} between two boundaries"
            self.violations.append(Violation("E8", name, problem, move.at_us, run.boundary_us))
        self._give_room(run.boundary_us)
        if self._growing is not None:
            self._note_room(self._growing, run.boundary_us)
        if not run.speed.block or not run.holds(move.task, move.leaves):
            problem = f"{what}, but {'does not run' if move.leaves else 'was not preempted'}"
            self.violations.append(Violation("E8", name, problem, move.at_us, "never"))
        elif move.leaves:
            run.leave(move.task)
            self.preempted.append(move.task)
        else:
            place = [each.task for each in run.preempted].index(move.task)
            self._refuse_return(name, place)
            self.again.append(run.bring_back(place))

    def _refuse_return(self, name: str, place: int) -> None:
        """Say what keeps a request from joining again at the boundary."""
        run = self._run
        if run.requests >= self._seats:
            self.violations.append(Violation("E8", name, "no seat is free", run.requests + 1, self._seats))
        if run.budget < 1:
            problem = "joins an iteration again whose prompt budget is spent"
            self.violations.append(Violation("E8", name, problem, 0, "at least 1 token"))
        if lacking := run.missing(place):
            self.violations.append(Violation("E8", name, "lacks blocks of KV to join again", lacking, 0))

    def _new_run(self, speed: StreamSpeed, now: int) -> StreamRun:
        return StreamRun(speed, now, cache=self._growing)

    @property
    def _block_bytes(self) -> int:
        return self._run.speed.block * self._run.speed.kv_bytes

    @property
    def _seats(self) -> int:
        return min(self._run.speed.seats, self._limit)

    @property
    def _busy(self) -> bool:
        return bool(self._run.requests or self._run.preempted)

    def _serve_out(self) -> None:
        """Serve until all have ended, or the GPU goes: who is left then is cut."""
        until = None if self._goes_us == FOREVER else self._goes_us
        while self._busy and self._run.boundary_us < self._goes_us:
            self._go_on(until)
        self._run = self._new_run(self._run.speed, min(self._run.boundary_us, self._goes_us))
        if self._cache is not None and self._goes_us != FOREVER:
            self._cache.clear()
            self._held.clear()
            self._held_bytes = 0

    def _refuse(self, task: int, tokens: Tokens) -> _Refused | None:
        """Return what keeps a request from joining at the boundary where KV grows; None if nothing does."""
        run = self._run
        if not run.speed.block:
            return None
        if run.requests >= self._seats:
            rule = "S5" if self._seats < run.speed.seats else "S1"
            return _Refused(rule, "no seat is free", run.requests + 1, self._seats)
        if run.closed and not self._says:
            return _Refused("E2", "joins before requests that were preempted", len(run.preempted), 0)
        self._give_room(run.boundary_us)
        shared = 0
        if self._growing is not None:
            self._note_room(self._growing, run.boundary_us)
            self._growing.settle(run.boundary_us)
            shared = self._growing.shared_tokens(task, self._chain(task))
        lacking = run.lacks_blocks(tokens.prompt, shared)
        return _Refused("E2", "lacks blocks of KV for its prompt", lacking, 0) if lacking else None

    def _tokens(self, run: int) -> Tokens:
        served, streams, task = self._timeline.served, self._instance.streams, int(self._runs.task[run])
        if streams is None:
            raise ValueError("the instance has no requests of streams")
        tokens = streams.tokens(task)
        if self._runs.again[run] and not tokens.uncached:
            tokens = tokens._replace(uncached=tokens.prompt)  # the KV that came in is lost
        return tokens if served is None else tokens._replace(output=int(served.output[task]))

    def _speed(self, run: int) -> StreamSpeed:
        streams, task = self._instance.streams, self._runs.task[run]
        if streams is None or self._cache is None:
            return self._run.speed
        stream = streams.template[self._instance.task_template[task]]
        return streams.speeds[stream][self._instance.gpu_class[self._gpu]] or self._run.speed

    def _hold(self, cache: PrefixCache | HeldKV, task: int, tokens: Tokens) -> Tokens:
        """Have a request hold its blocks, as it joins, and its other KV; return what the cache leaves to compute."""
        prefixes, speed = (None if (of := self._instance.streams) is None else of.prefixes), self._run.speed
        if prefixes is None:
            return tokens
        now, chain = self._run.boundary_us, self._chain(task)
        self._note_room(cache, now)
        left, self._cached_tokens[self._number[task]], _ = cache.join(task, tokens, chain, now)
        if self._growing is None:
            self._held[task] = (tokens.held - len(chain) * prefixes.size(task)) * speed.kv_bytes
            self._held_bytes += self._held[task]
            self._note(cache, now)
        return left

    def _chain(self, task: int) -> Chain:
        streams = self._instance.streams
        return () if streams is None or streams.prefixes is None else streams.prefixes.chains[task]

    def _note(self, cache: PrefixCache | HeldKV, now: int) -> None:
        """Have the cache give way to what takes room at an instant."""
        if self._room is not None:
            cache.note(now, self._room.after(now) - self._held_bytes - cache.held_bytes)

    def _note_room(self, cache: PrefixCache | HeldKV, before: int) -> None:
        """Have the cache give way to all that takes room before an instant, and forget the models that leave."""
        while self._room is not None and self._changes and self._changes[0] < before:
            now = self._changes.popleft()
            while self._leaving and self._leaving[0][0] <= now:
                cache.forget(self._leaving.popleft()[1], now)
            self._note(cache, now)

    def _go_to(self, start: int, speed: StreamSpeed) -> None:
        """Take iterations up to the first boundary at a time or after it; an empty GPU waits for it."""
        run = self._run
        while self._busy and run.boundary_us < start:
            self._go_on(start)
        if not self._busy and run.boundary_us <= start:
            self._run = self._new_run(speed, start)

    def _go_on(self, until: int | None) -> None:
        """Take iterations, to the first boundary at a time or after it at most, or wait for room if all have to."""
        run, room = self._run, self._room
        now = run.boundary_us
        changes = room.changes_us[bisect_right(room.changes_us, now) :] if room is not None and run.speed.block else []
        if not run.requests and self._says and until is not None:
            run.wait_until(until)
            return
        if not run.requests and not self._says:
            # All were preempted: what leaves at this very instant may be enough, or what leaves later.
            for instant in (at for at in (now, *changes) if at < self._goes_us):
                run.wait_until(instant)
                self._let_back()
                if run.requests:
                    return
        if not run.requests:
            run.preempted.clear()  # whoever waits for room that never comes is served by nobody
            return
        self._give_room(now)
        stride = run.stride()
        for event in (until, changes[0] if changes else None):
            if event is not None:
                stride = stride._replace(iterations=min(stride.iterations, max(1, run.iterations_until(event, stride))))
        self._advance(stride)

    def _advance(self, stride: Stride) -> None:
        run, growing, size = self._run, self._growing, self._block_bytes
        if self._says and run.blocks() > run.room:
            gpu = self._instance.cluster.gpus[self._gpu].id
            problem = f"requests lack blocks of KV at {run.boundary_us}"
            self.violations.append(Violation("E8", gpu, problem, run.blocks(), run.room))
        needed = run.blocks(stride.iterations - 1) * size
        self.peak_bytes = max(self.peak_bytes, needed)
        if growing is not None:
            self._note_room(growing, run.boundary_us)
            self._held_bytes = needed
            self._note(growing, run.boundary_us)
        if self._cache is not None:
            self._note_room(self._cache, run.end_us(stride))
        first, ended = run.advance(stride)
        if self._cache is not None and growing is None:
            self._keep(self._cache, first, ended)
        # Of the iteration that is under way when the GPU goes nothing comes.
        if run.boundary_us <= self._goes_us:
            self._first.update((self._number[task], run.boundary_us) for task in first)
            self._end.update((self._number[task], run.boundary_us) for task in ended)
        if run.speed.block and run.boundary_us < self._goes_us and not self._says:
            if self._room is not None and size:
                run.room = self._room.before(run.boundary_us) // size
            self.preempted += run.preempt()
            self._give_room(run.boundary_us)
            if run.blocks() > run.room:  # what comes takes only what is left
                self.preempted += run.preempt()
            self._let_back()
        if growing is not None:
            self._held_bytes = run.blocks() * size

    def _keep(self, cache: PrefixCache | HeldKV, first: list[int], ended: list[int]) -> None:
        """Have visible what iterations have computed, and hold no more what has ended."""
        for task, computed in (*self._run.under_way, *((task, LARGEST) for task in first)):
            cache.compute(task, computed)
        for task in ended:
            cache.leave(task, self._run.boundary_us)
            self._held_bytes -= self._held.pop(task)

    def _let_back(self) -> None:
        """Let those join again that were preempted, as far as there is room."""
        self._give_room(self._run.boundary_us)
        if self._growing is not None:
            self._note_room(self._growing, self._run.boundary_us)
        self.again += self._run.rejoin(self._seats)

    def _give_room(self, now: int) -> None:
        """Say how many blocks of KV there are."""
        if self._room is not None and self._block_bytes:
            self._run.room = self._room.after(now) // self._block_bytes
