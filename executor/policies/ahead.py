"""A list schedule that looks ahead: shortest remaining work first, with loads while predecessors still run.

The rule of `srpt` binds a task when it is ready and a GPU is idle; only then do missing models come in. What a released
job needs next is known long before, from its workflow. So here all tasks of released jobs are listed anew at every
event, and what the list begins now is begun: runs, and loads for tasks that are still to come.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from truenorth.executor.execution import NOWHERE
from truenorth.executor.policies.central import CentralQueue, RemainingWork
from truenorth.executor.policies.eviction import makes_room, room_for
from truenorth.executor.policies.options import QueueOptions, count_from_1, factor, option
from truenorth.executor.policies.queueing import QueuePolicy
from truenorth.executor.site import Site
from truenorth.models import NEVER, NONE, WHOLE

_LIKELY = 0.5
"""Tasks of a branch that a job may take are listed from this probability on."""


@dataclass(frozen=True, slots=True)
class AheadOptions:
    """How far it looks, and what an eviction costs.

    Parameters
    ----------
    price
        A load that evicts counts so many times its duration on top when GPUs are compared.
    window
        How many tasks per GPU are listed; of those behind only ready ones, as long as a GPU has nothing to start now.
    """

    price: float = option(2.0, factor)
    window: int = option(4, count_from_1(10_000))


class Ahead(CentralQueue):
    """At every event the tasks of all released jobs are listed, and what the list begins now is begun.

    Jobs come in the order of remaining work x critical path, as in `srpt`, their tasks in topological order. Each goes
    to the GPU where it ends first: it starts once what is listed there before it has ended, its inputs are there and
    its models are ready, missing ones being loaded beside what runs. Before what is listed on an idle GPU another task
    fits in if it ends in time or, being ready, starts in time: no GPU waits for what is still to come while there is
    work. A load that evicts counts `price` times its duration on top. Equal GPUs: those of the job's ingress server,
    then the lowest index. A ready task that nothing but its inputs' way keeps from starting is bound. A GPU begins the
    first load that is listed there if nothing has to leave for it, and otherwise once it would be late. Victims are
    models that nothing listed there so far needs, first those that the tasks of released jobs need least often per
    copy, then the least recently used.
    """

    Options: ClassVar[type[object]] = AheadOptions

    def __init__(self, options: AheadOptions | None = None) -> None:
        self._readings = options or AheadOptions()
        super().__init__(QueueOptions(period=0, prefetch=0, evict="lru"))

    def begin(self, site: Site) -> None:
        """Begin without jobs."""
        super().begin(site)
        self._work = RemainingWork(site)
        self._to_start: dict[int, int] = {}
        self._urgency: dict[int, tuple[int, int]] = {}
        self._needed = [0] * len(site.models)
        self._wakes: set[int] = set()
        self._bound: list[list[int]] = [[] for _ in range(site.n_gpus)]

    # -- what is known --------------------------------------------------------------------------------------------

    def released(self, job: int) -> None:
        """Take note of a job."""
        self._work.released(job)
        tasks = [task for task in self.site.job_tasks[job] if task not in self.site.dropped]
        self._to_start[job] = len(tasks)
        self._count_needs(tasks, 1)
        self._see_work(job)
        super().released(job)

    def decided(self, job: int, dropped: Sequence[int]) -> None:
        """Take note of what is left."""
        self._work.decided(job)
        self._to_start[job] -= len(dropped)
        self._count_needs(dropped, -1)
        self._see_work(job)
        super().decided(job, dropped)

    def bind(self, task: int, gpu: int) -> None:
        """Give a task a GPU, and remember it until it starts."""
        super().bind(task, gpu)
        self._bound[gpu].append(task)

    def started(self, task: int, gpu: int) -> None:
        """Take note of what is left."""
        super().started(task, gpu)
        self._bound[gpu].remove(task)
        job = self.site.job[task]
        self._work.started(task)
        self._to_start[job] -= 1
        self._count_needs([task], -1)
        self._see_work(job)

    def withdrawn(self, task: int, gpu: int) -> None:
        """Forget that a task was bound."""
        self._bound[gpu].remove(task)
        super().withdrawn(task, gpu)

    def _see_work(self, job: int) -> None:
        if self._to_start[job]:
            path_us = self.site.jobs[job].critical_path_us
            self._urgency[job] = self._work.remaining_us[job] * path_us, job
        else:
            del self._to_start[job], self._urgency[job]

    def _count_needs(self, tasks: Sequence[int], more: int) -> None:
        for task in tasks:
            for model in self.site.needs[self.site.template[task]]:
                self._needed[model] += more

    # -- the list -------------------------------------------------------------------------------------------------

    def act(self, gpus: Sequence[int]) -> None:
        """List what is known, begin what begins now, then let every worker concerned go on."""
        self._wakes.discard(self.site.now)
        if self._to_start:
            self.offer()
        QueuePolicy.act(self, gpus)

    def offer(self) -> None:
        """List the tasks of released jobs, and begin what begins now."""
        lanes = [self._lane(gpu) for gpu in range(self.site.n_gpus)]
        ends: dict[int, tuple[int, int]] = {}
        first, begun, window = None, False, self._readings.window * len(lanes)
        for position, task in enumerate(self._in_order()):
            if position >= window and not self._lack_work(lanes):
                break
            sources = self._sources(task, ends) if position < window or task in self.ready_us else None
            place = None if sources is None else self._best(task, sources, lanes)
            if place is None:
                continue
            ends[task] = place.gpu, place.end_us
            if first is None and task in self.ready_us:
                first = task, place.gpu
            if self._starts(task, place, lanes[place.gpu]):
                self.bind_batch(task, place.gpu)
                begun = True
            else:
                begun |= self._begin_loads(task, place, lanes[place.gpu])
            self._list(task, place, lanes[place.gpu])
        if first is not None and not begun and self._stands_still():
            self.bind_batch(*first)  # its models block each other: its worker makes them all leave and come in again

    def _lack_work(self, lanes: Sequence[ListedLane]) -> bool:
        """Say whether a GPU is idle for which nothing is listed that starts now."""
        idle = (lanes[gpu] for gpu in self.idle)
        return any(lane.gap_us is not None or lane.free_us <= self.site.now for lane in idle)

    def _stands_still(self) -> bool:
        """Say whether nothing is under way, bound or due, so that nothing more would happen."""
        if any(self._bound) or self._wakes:
            return False
        return all(not state.runs and state.loading == NOWHERE for state in self.site.state)

    def _in_order(self) -> Iterator[int]:
        """Yield the tasks that are not bound and likely to run, most urgent job first."""
        site = self.site
        for job in sorted(self._to_start, key=self._urgency.__getitem__):
            decided, first = not site.jobs[job].workflow.branches, site.job_tasks[job].start
            for position in site.workflows[site.job_workflow[job]].topological:
                task = first + position
                likely = decided or site.likelihood[site.template[task]] >= _LIKELY
                if likely and site.gpu[task] == NOWHERE and task not in site.dropped:
                    yield task

    def _lane(self, gpu: int) -> ListedLane:
        """Return what a GPU is bound to do."""
        site, state, now = self.site, self.site.state[gpu], self.site.now
        free_us = max((now, *(run.end_us for run in state.runs.values())))
        bound = self._bound[gpu]
        if bound:  # a task, or a batch
            batch = site.batch[site.template[bound[0]]]
            free_us += site.run_time(bound[0], gpu) if batch == NONE else site.batch_time(batch, gpu, len(bound))
        ready_us, copy_us = dict.fromkeys(state.memory.residents, now), now
        if state.loading != NOWHERE:
            ready_us[state.loading] = copy_us = max(now, state.load_end_us)
        kept = {model for task in bound for model in site.needs[site.template[task]]}
        loads = state.refuse_copying() is None and (site.overlap_loads or not bound) and kept <= ready_us.keys()
        return ListedLane(free_us, copy_us, ready_us, state.memory.free_bytes, loads, kept)

    def _sources(self, task: int, ends: dict[int, tuple[int, int]]) -> list[InputSource] | None:
        """Return where the inputs of a task come from; None if one of them is not listed."""
        site, found = self.site, []
        for offset, edge in site.needed_inputs(task):
            before = task + offset
            gpu = site.gpu[before]
            if site.ended_us[before] >= 0:
                found.append(InputSource(gpu, site.now, edge))
            elif gpu != NOWHERE:
                runs = (run.end_us for run in site.state[gpu].runs.values() if before in run.tasks)
                end_us = max(runs, default=site.now + site.run_time(before, gpu))
                found.append(InputSource(gpu, max(site.now, end_us), edge))
            elif before in ends:
                found.append(InputSource(*ends[before], edge))
            else:
                return None
        return found

    def _best(self, task: int, sources: Sequence[InputSource], lanes: Sequence[ListedLane]) -> ListedPlace | None:
        """Return the place where a task ends first, evictions counted; None if it ends nowhere before the GPU goes."""
        site, favoured = self.site, self.favoured(task)
        places = (self._place_on(gpu, task, sources, lanes[gpu]) for gpu in site.eligible_gpus(task))
        return min(
            (place for place in places if place.end_us <= site.goes_us[place.gpu]),
            key=lambda place: (place.end_us + place.price_us, place.gpu not in favoured, place.gpu),
            default=None,
        )

    def _place_on(self, gpu: int, task: int, sources: Sequence[InputSource], lane: ListedLane) -> ListedPlace:
        """Return how a task would be listed for a GPU."""
        site, template = self.site, self.site.template[task]
        inputs_us = site.now + site.input_time(task, gpu)
        for source, end_us, edge in sources:
            inputs_us = max(inputs_us, end_us + site.transfer_time(edge, source, gpu))
        able_us, copy_us, room_bytes, price_us = inputs_us, lane.copy_us, lane.room_bytes, 0.0
        for model in site.needs[template]:
            if model in lane.ready_us:
                able_us = max(able_us, lane.ready_us[model])
                continue
            load_us = site.load_time(model, gpu)
            copy_us = (copy_us if site.overlap_loads else max(copy_us, lane.free_us)) + load_us
            able_us = max(able_us, copy_us)
            room_bytes -= site.weight_bytes[model]
            if room_bytes < 0:
                price_us += self._readings.price * load_us
        run_us, start_us = site.run_time(task, gpu), max(able_us, lane.free_us)
        in_gap = lane.gap_us is not None and able_us + (0 if task in self.ready_us else run_us) <= lane.gap_us
        if in_gap or site.share[template] <= min(site.state[gpu].free_share, WHOLE - 1):
            start_us = able_us
        batch = lane.batches.get(site.batch[template])
        if batch is not None and able_us <= batch.start_us:
            together_us = site.batch_time(site.batch[template], gpu, batch.size + 1)
            if together_us != NEVER and batch.start_us + together_us <= start_us + run_us:
                start_us, run_us = batch.start_us, together_us
        return ListedPlace(gpu, inputs_us, start_us, start_us + run_us, price_us)

    def _list(self, task: int, place: ListedPlace, lane: ListedLane) -> None:
        """Let what comes later see a task where it is listed."""
        site, gpu = self.site, place.gpu
        template = site.template[task]
        for model in site.needs[template]:
            if model not in lane.ready_us:
                lane.copy_us += site.load_time(model, gpu)
                lane.ready_us[model] = lane.copy_us
                lane.room_bytes -= site.weight_bytes[model]
        lane.kept.update(site.needs[template])
        if site.gpu[task] != NOWHERE:
            lane.gap_us, lane.loads = None, lane.loads and site.overlap_loads
        elif lane.gap_us is None and gpu in self.idle and lane.free_us <= site.now < place.start_us:
            lane.gap_us = place.start_us
        batch, size = lane.batches.get(site.batch[template]), 1
        if batch is not None and batch.start_us == place.start_us:
            size = batch.size + 1
            lane.free_us += place.end_us - batch.end_us
        if site.batch[template] != NONE:
            lane.batches[site.batch[template]] = ListedBatch(place.start_us, place.end_us, size)
        lane.free_us = max(lane.free_us, place.end_us)

    # -- what begins now ------------------------------------------------------------------------------------------

    def _starts(self, task: int, place: ListedPlace, lane: ListedLane) -> bool:
        """Say whether nothing but the way of its inputs keeps a task from starting where it is listed."""
        site, gpu = self.site, place.gpu
        if task not in self.ready_us or gpu not in self.idle:
            return False
        if not site.memory[gpu].ready.issuperset(site.needs[site.template[task]]):
            return False
        engine = site.overlap_loads or site.state[gpu].loading == NOWHERE
        return engine and (lane.free_us <= site.now or place.start_us < lane.free_us)

    def _begin_loads(self, task: int, place: ListedPlace, lane: ListedLane) -> bool:
        """Begin the first load that a task needs, if it may be and should be; say whether it was."""
        site, gpu = self.site, place.gpu
        needs = site.needs[site.template[task]]
        for model in needs:
            if model in lane.ready_us or not lane.loads:
                continue
            order = sorted((m for m in self.eviction_order(gpu) if m not in lane.kept), key=self._worth)
            evict, slot = room_for(site, gpu, model, needs, order)
            due_us = max(place.inputs_us, lane.free_us) - site.load_time(model, gpu)
            if not (lane.kept.isdisjoint(evict) and makes_room(site, gpu, model, evict)):
                continue
            if evict and self._is_early(due_us):
                continue
            self._load(gpu, model, evict, slot)
            for victim in evict:
                del lane.ready_us[victim]
            lane.copy_us = lane.ready_us[model] = site.state[gpu].load_end_us
            lane.room_bytes, lane.loads = site.memory[gpu].free_bytes, False
            return True
        return False

    def _is_early(self, due_us: int) -> bool:
        """Say whether a load is not due yet; it is thought of again when it is."""
        early = self.site.now < due_us
        if early and due_us not in self._wakes:
            self._wakes.add(due_us)
            self.site.wake(due_us)
        return early

    def _worth(self, model: int) -> float:
        """Return how many tasks of released jobs need a model, per copy."""
        return self._needed[model] / sum(model in memory.residents for memory in self.site.memory)


class InputSource(NamedTuple):
    """Where and when an input of a task is made, and the edge along which it comes."""

    gpu: int
    end_us: int
    edge: int


class ListedPlace(NamedTuple):
    """Where a task is listed: when its inputs are there, when it starts and ends, and what its evictions count."""

    gpu: int
    inputs_us: int
    start_us: int
    end_us: int
    price_us: float


class ListedBatch(NamedTuple):
    """A batch that is listed."""

    start_us: int
    end_us: int
    size: int


@dataclass(slots=True)
class ListedLane:
    """What a GPU is bound to do and what is listed for it so far.

    Attributes
    ----------
    free_us, copy_us
        When its compute and its copy engine are free.
    ready_us
        Per model that is there or listed to be loaded: when it is ready.
    room_bytes
        What nothing holds.
    loads
        Whether it may begin a load now; a bound task that lacks a model has its own worker load that.
    kept
        Models that what is listed needs.
    gap_us
        Until when a GPU that is idle has nothing listed; None if it is not, or something starts now.
    batches
        Per batch class: the last batch that is listed.
    """

    free_us: int
    copy_us: int
    ready_us: dict[int, int]
    room_bytes: int
    loads: bool
    kept: set[int]
    gap_us: int | None = None
    batches: dict[int, ListedBatch] = field(default_factory=dict)
