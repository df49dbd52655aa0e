"""A GPU serves its queue of requests by the rules of an instant (`models.gpu_state`): what any plan of requests costs.

The next of the queue joins as soon as it may, and nobody passes it. Models follow the queue: what the next one lacks
is loaded as soon as there is room, in place of models that the queue needs latest; a GPU that is `eager` loads what
comes later as well, while there is room for it beside the rest. So a plan is an order, and all else follows from it,
whatever the window has: contexts, KV that grows, adapters, caches, GPUs that go.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from truenorth.models.caches import cache_on
from truenorth.models.cluster import FOREVER
from truenorth.models.gpu_state import IDLE, GPUState, Request, Run, block_bytes
from truenorth.models.instance import NEVER, NONE, Instance
from truenorth.models.stream_tables import StreamTables
from truenorth.models.strides import Stride
from truenorth.models.timeline import Residency

FAR = 1 << 62
"""Later than anything happens."""


@dataclass(slots=True)
class Decisions:
    """A plan of requests: all else follows.

    Parameters
    ----------
    queue
        Per GPU: its tasks in their order.
    not_before
        Per task: before when it does not join.
    limit
        Per GPU: most requests at once; 0: as many as there are seats.
    eager
        Per GPU: whether models are loaded before the next of the queue needs them.
    """

    queue: list[list[int]]
    not_before: list[int]
    limit: list[int]
    eager: list[bool]


@dataclass(slots=True)
class Served:
    """What comes of the queue of a GPU, task by task in its order, and the models that it had."""

    start: list[int] = field(default_factory=list)
    first: list[int] = field(default_factory=list)
    end: list[int] = field(default_factory=list)
    cached: list[int] = field(default_factory=list)
    stays: list[Residency] = field(default_factory=list)


class Window:
    """What the GPUs of an instance are asked for, in lists.

    Attributes
    ----------
    stream
        Per task: its stream class, NONE for what is no request.
    needs, inputs
        Per task: its models, and its predecessors with their edges.
    apart
        Whether no task waits for one on another GPU: then each GPU is served alone.
    """

    def __init__(self, instance: Instance, streams: StreamTables) -> None:
        self.instance, self.streams = instance, streams
        template = instance.task_template.tolist()
        of_template = streams.template.tolist()
        self.stream = [of_template[each] for each in template]
        self.needs = [instance.needs[each] for each in template]
        self.inputs = [list(instance.task_inputs(task)) for task in range(instance.n_tasks)]
        first = instance.job_first_task.tolist()
        self.apart = all(len(streams.together[template[at]]) == end - at for at, end in pairwise(first))
        self.weight_bytes: list[int] = instance.weight_bytes.tolist()
        self.gpu_class: list[int] = instance.gpu_class.tolist()
        self._requests: list[dict[int, Request]] = [{} for _ in instance.class_gpu]

    def request(self, task: int, gpu: int) -> Request:
        """Return a request as it joins a GPU."""
        known, here = self._requests[self.gpu_class[gpu]], self.gpu_class[gpu]
        if task not in known:
            tokens, stream = self.streams.tokens(task), self.stream[task]
            speed, prefixes = self.streams.speeds[stream][here], self.streams.prefixes
            if speed is None:
                raise ValueError(f"GPU {gpu} cannot serve task {task}")
            chain = () if prefixes is None else prefixes.chains[task]
            held = tokens.held - (0 if prefixes is None else len(chain) * prefixes.size(task))
            held_bytes = held * speed.kv_bytes
            if speed.block:
                held_bytes = -(-tokens.prompt // speed.block) * block_bytes(speed)
            known[task] = Request(task, tokens, stream, speed, self.needs[task], held_bytes, chain)
        return known[task]


class _Begun(NamedTuple):
    """Where a GPU stood when it became available: its place in the queue, and how many models it had had."""

    position: int
    stays: int


class Node:
    """A GPU that serves its queue, from instant to instant.

    Parameters
    ----------
    window, decisions
        What is served, and in what order.
    gpu
        Which GPU it is.
    place, ends
        Per task: its GPU, and when it ended, FAR as long as it has not.

    Attributes
    ----------
    served
        What has come of the queue.
    failed
        Whether somebody can never be served.
    """

    def __init__(self, window: Window, decisions: Decisions, gpu: int, place: Sequence[int], ends: list[int]) -> None:
        self._window, self._instance, self._gpu = window, window.instance, gpu
        self._queue, self._not_before = decisions.queue[gpu], decisions.not_before
        self._limit, self._eager = decisions.limit[gpu], decisions.eager[gpu]
        self._place, self._ends, self._class = place, ends, window.gpu_class[gpu]
        self._at = {task: at for at, task in enumerate(self._queue)}
        self._uses: dict[int, list[int]] = {}
        for at, task in enumerate(self._queue):
            for model in window.needs[task]:
                self._uses.setdefault(model, []).append(at)
        count = len(self._queue)
        self.served = Served([FAR] * count, [NONE] * count, [FAR] * count, [0] * count, [])
        self.failed = False
        self._held_until: dict[int, int] = {}
        self._left: set[int] = set()
        self._stride: Stride | None = None
        self._stride_ends_us = self._run_ends_us = FAR
        self._position, self._interval, self._ready_us, self._asked = 0, -1, 0, NONE
        self._become_available()

    # -- time -----------------------------------------------------------------------------------------------------

    @property
    def next_us(self) -> int:
        """When something happens here next, as far as that is known; FAR if nothing does."""
        state, now, soonest = self._state, self._now, FAR
        if self._stride is not None:
            soonest = self._stride_ends_us
        elif state.runs and state.serving is None:
            soonest = self._run_ends_us
        if state.loading != IDLE and state.load_end_us < soonest:
            soonest = state.load_end_us
        if self._position < len(self._queue):
            ready_us = self._ready(self._queue[self._position])
            for instant in (ready_us, self._opens_us):
                if now < instant < soonest:
                    soonest = instant
        if self._goes_us < soonest and (self._position < len(self._queue) or state.runs):
            soonest = self._goes_us
        return soonest

    def end(self, now: int) -> None:
        """Have happen what ends at an instant: a load, a run, a stride."""
        self._now, state = now, self._state
        if state.loading != IDLE and state.load_end_us == now:
            state.end_load()
        if self._stride is not None:
            if self._stride_ends_us == now:
                self._advance(self._stride)
        elif state.runs and state.serving is None and self._run_ends_us == now:
            task = next(iter(state.runs))
            state.end_run(task)
            self._end(task)
        if now >= self._goes_us:
            self._go()

    def begin(self, now: int) -> None:
        """Begin all that may at an instant: requests join, models are loaded, and the next stride begins."""
        state = self._state
        if now < self._opens_us or self._now < now or self.failed:
            return  # it has begun an interval again, and goes on from there
        while self._join_next() or self._make_room():
            pass
        while self._load():
            pass
        serving = state.serving
        if serving is not None and self._stride is None:
            if serving.preempted:
                if not serving.requests:
                    serving.wait_until(now)
                    there = set(state.memory.ready)
                    self._free(state.lacks_to_go_on(), ())
                    self._left |= there - state.memory.ready
                state.rejoin(self._limit)
            if serving.requests:
                self._stride = state.next_stride()
                self._stride_ends_us = serving.end_us(self._stride)
        # Where KV grows it is noted as requests join and leave, and as a stride begins.
        if serving is None or serving.cache is None:
            state.note_room(now)

    @property
    def is_done(self) -> bool:
        """Whether all of its queue has ended."""
        return self._position == len(self._queue) and not self._state.runs

    def _advance(self, stride: Stride) -> None:
        """Take a stride, to the boundary that is now."""
        self._stride = None
        came = self._state.advance(stride, self._limit)
        if came.back:
            self._joined_us = self._now
        for task in came.first:
            self.served.first[self._at[task]] = self._now
        for task in came.ended:
            self._end(task)

    def _end(self, task: int) -> None:
        self.served.end[self._at[task]] = self._ends[task] = self._now

    def _ready(self, task: int) -> int:
        """Return when a task may join at the earliest; FAR as long as an input has no end."""
        if task == self._asked and self._ready_us < FAR:
            return self._ready_us
        instance, gpu = self._instance, self._gpu
        ready_us = max(self._not_before[task], instance.earliest_start(task, gpu), self._held_until.get(task, 0))
        for source, edge in self._window.inputs[task]:
            if self._ends[source] >= FAR:
                ready_us = FAR
                break
            there = self._place[source]
            gap_us = instance.gap_time(edge, there, gpu)
            if self._window.streams.kv_edge[edge]:
                gap_us = int(instance.delay_us[edge]) + instance.kv_transfer_time(source, there, gpu)
            ready_us = max(ready_us, self._ends[source] + gap_us)
        self._asked, self._ready_us = task, ready_us
        return ready_us

    # -- who joins ------------------------------------------------------------------------------------------------

    def _join_next(self) -> bool:
        """Let the next of the queue begin, if it may; say whether it has."""
        if self._position == len(self._queue):
            return False
        task, now, state = self._queue[self._position], self._now, self._state
        if self._ready(task) > now or now >= self._closes_us:
            return False
        if self._window.stream[task] == NONE:
            return self._run(task)
        request = self._window.request(task, self._gpu)
        if state.refuse_request(request, self._limit) is not None or not self._is_at_boundary():
            return False
        # Where KV grows it is known only at the boundary whether there is room.
        if state.refuse_boundary(now) is not None or state.refuse_request(request, self._limit) is not None:
            return False
        cached = state.begin_request(request, now)
        at = self._position
        self.served.start[at], self.served.cached[at] = now, cached
        self._joined_us = now
        self._position += 1
        return True

    def _run(self, task: int) -> bool:
        """Start a task that is no request, alone; say whether it has."""
        instance, now = self._instance, self._now
        template = int(instance.task_template[task])
        ends_us = now + int(instance.run_us[template, self._class])
        run = Run((task,), now, ends_us, models=self._window.needs[task])
        run.memory_bytes = int(instance.template_memory[template])
        if self._state.runs or self._state.refuse_run(run) is not None or ends_us > self._goes_us:
            return False
        self._state.begin_run(run)
        self._run_ends_us = ends_us
        self.served.start[self._position] = now
        self._position += 1
        return True

    def _is_at_boundary(self) -> bool:
        """Say whether nobody is inside an iteration; if somebody is, the stride ends at the next boundary."""
        serving, stride = self._state.serving, self._stride
        if serving is None or stride is None:
            return True
        if not serving.decodes_only:
            return False
        passed = serving.iterations_until(self._now, stride)
        if passed >= stride.iterations:
            return False
        done = stride._replace(iterations=max(1, passed))
        self._stride_ends_us = serving.end_us(done)
        self._stride = done
        if self._stride_ends_us > self._now:
            self._state.hold_blocks(done.iterations - 1)
            return False
        self._advance(done)
        return True

    # -- models ---------------------------------------------------------------------------------------------------

    def _next_use(self, model: int) -> int:
        """Return the place in the queue of the next that needs a model, FAR if none does."""
        uses = self._uses.get(model, ())
        at = bisect_left(uses, self._position)
        return uses[at] if at < len(uses) else FAR

    def _load(self) -> bool:
        """Begin the load that is needed first, if there is room; say whether one has begun."""
        state, memory = self._state, self._state.memory
        if not self._uses or state.refuse_copying() is not None:
            return False
        wanted = [(self._next_use(model), model) for model in self._uses if model not in memory.residents]
        use, model = min(wanted, default=(FAR, NONE))
        if use == FAR or (use > self._position and not self._eager):
            return False
        load_us = self._instance.load_time(model, self._gpu)
        if load_us == NEVER or self._now + load_us > self._goes_us or not self._may_load(model):
            return False
        lacking = self._window.weight_bytes[model] - memory.free_bytes
        if not self._free(lacking, (), use):
            return False
        state.begin_load(model, self._now + load_us)
        self.served.stays.append(Residency(model, self._gpu, self._now, self._now + load_us))
        return True

    def _may_load(self, model: int) -> bool:
        """Say whether memory may be taken now: where KV grows at boundaries, from nobody who joins there or waits.

        What has left for those who wait does not come back before all have ended, or it would do so time and again.
        """
        serving = self._state.serving
        if serving is None or not serving.speed.block:
            self._left.clear()
            return True
        if serving.preempted or model in self._left:
            return False
        return self._joined_us < self._now and self._is_at_boundary()

    def _make_room(self) -> bool:
        """Have idle models leave where they alone keep the next of the queue from its memory; say whether any has."""
        if self._position == len(self._queue) or not self._uses:
            return False
        task, state = self._queue[self._position], self._state
        if self._ready(task) > self._now or self._now >= self._closes_us or self._window.stream[task] == NONE:
            return False
        request = self._window.request(task, self._gpu)
        lacking = state.lacks_kv(request)
        if lacking <= 0 or self._stride is not None or state.refuse_boundary(self._now) is not None:
            return False
        held, chain, request.kv_bytes, request.chain = request.kv_bytes, request.chain, 0, ()
        others = state.refuse_request(request, self._limit)
        request.kv_bytes, request.chain = held, chain
        return others is None and self._free(lacking, request.models)

    def _free(self, lacking: int, needed: Sequence[int], use: int = NONE) -> bool:
        """Have models leave, those first that are needed latest, until no bytes are lacking; say whether that was done.

        Only idle ones that are needed after a place in the queue; none where that would not do.
        """
        if lacking <= 0:
            return True
        if self._instance.restrictions.no_swaps:
            return False
        state, leaving = self._state, list[int]()
        idle = [model for model in state.memory.ready if model not in needed and not state.uses(model)]
        for later, model in sorted(((self._next_use(model), model) for model in idle), reverse=True):
            if lacking <= 0 or later <= use:
                break
            leaving.append(model)
            lacking -= self._window.weight_bytes[model]
        if lacking > 0:
            return False
        for model in leaving:
            self._evict(model)
        return True

    def _evict(self, model: int) -> None:
        self._state.memory.drop_model(model)
        if self._state.cache is not None:
            self._state.cache.forget(model, self._now)
        self._end_stay(model)

    def _end_stay(self, model: int) -> None:
        stays = self.served.stays
        at = max(at for at, stay in enumerate(stays) if stay.model == model)
        stay = stays[at]
        stays[at] = Residency(model, self._gpu, stay.load_start_us, stay.ready_us, self._now, initial=stay.initial)

    # -- GPUs that come and go ------------------------------------------------------------------------------------

    def _become_available(self) -> None:
        """Stand at the beginning of the next interval, with nothing in memory but what is there at time 0."""
        gpu = self._instance.cluster.gpus[self._gpu]
        intervals = gpu.available.intervals
        self._interval += 1
        if self._interval == len(intervals):
            self.failed = self._position < len(self._queue)
            self._interval -= 1
            return
        self._opens_us, self._goes_us = intervals[self._interval]
        if self._goes_us == FOREVER:
            self._goes_us = FAR
        self._closes_us = self._goes_us - gpu.drain_us
        self._now = self._opens_us - 1
        self._open()
        self._begun = _Begun(self._position, len(self.served.stays))

    def _open(self) -> None:
        """Have the GPU empty, or as it is at time 0; initial models that nobody needs are left out."""
        instance = self._instance
        self._state = GPUState(instance.cluster.gpus[self._gpu], self._window.weight_bytes, instance.overlap_loads)
        self._state.cache = cache_on(self._window.streams, self._class)
        self._stride = None
        self._joined_us = NONE
        self._left.clear()
        self._stride_ends_us = self._run_ends_us = FAR
        for there in instance.initial if self._interval == 0 else ():
            if there.gpu == self._gpu and there.model in self._uses:
                self._state.memory.hold_model(there.model, there.slot)
                self._state.memory.ready.add(there.model)
                self.served.stays.append(Residency(there.model, self._gpu, 0, 0, None, there.slot, initial=True))

    def _go(self) -> None:
        """Be available no more; if somebody would be cut, begin the interval again, and have that one wait."""
        cut = [*self._state.runs] and self._state.stop_serving()
        if cut:
            last = self._interval + 1 == len(self._instance.cluster.gpus[self._gpu].available.intervals)
            if last or not self._window.apart:
                self.failed = True
                return
            first = min(self._at[task] for task in cut)
            comes_us = self._instance.cluster.gpus[self._gpu].available.intervals[self._interval + 1][0]
            self._held_until[self._queue[first]] = comes_us
            for at in range(self._begun.position, self._position):
                self._ends[self._queue[at]] = self.served.end[at] = FAR
            self._position, self._asked = self._begun.position, NONE
            del self.served.stays[self._begun.stays :]
            self._interval -= 1
        else:
            for model in list(self._state.memory.residents):
                self._end_stay(model)
        self._become_available()


def serve(
    window: Window, decisions: Decisions, gpus: Sequence[int], place: Sequence[int], ends: list[int]
) -> list[Served] | None:
    """Serve the queues of these GPUs, and return what comes of them; None if somebody can never be served.

    Parameters
    ----------
    gpus
        If tasks wait for others on other GPUs, all.
    place
        Per task: its GPU.
    ends
        Per task: when it ends. Those of other GPUs are known; those of these are filled in.
    """
    for gpu in gpus:
        for task in decisions.queue[gpu]:
            ends[task] = FAR
    nodes = [Node(window, decisions, gpu, place, ends) for gpu in gpus]
    for together in [[node] for node in nodes] if window.apart else [nodes]:
        if not _serve_out(together):
            return None
    return [node.served for node in nodes]


def _serve_out(nodes: Sequence[Node]) -> bool:
    """Serve GPUs from instant to instant until nothing happens any more; say whether all queues are done."""
    while True:
        now = min(node.next_us for node in nodes)
        if now >= FAR:
            return all(node.is_done for node in nodes)
        due = [node for node in nodes if node.next_us == now]
        for node in due:
            node.end(now)
        # An end elsewhere may let a request join at this very instant.
        due += [node for node in nodes if node not in due and node.next_us == now] if len(nodes) > 1 else []
        for node in due:
            node.begin(now)
            if node.failed:
                return False
