"""A list schedule that looks ahead: shortest remaining work first, with loads while predecessors still run.

The rule of `srpt` binds a task when it is ready and a GPU is idle; only then do missing models come in. What a released
job needs next is known long before, from its workflow. So here all tasks of released jobs are listed anew at every
event, and what the list begins now is begun: runs, and loads for tasks that are still to come.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np

from truenorth.executor.execution import NOWHERE
from truenorth.executor.policies.central import CentralQueue, RemainingWork
from truenorth.executor.policies.eviction import makes_room, room_for
from truenorth.executor.policies.options import QueueOptions, count_from_1, factor, option
from truenorth.executor.policies.queueing import QueuePolicy
from truenorth.executor.policies.view import UNREACHABLE, Row, least, load_rows
from truenorth.executor.site import Site
from truenorth.models import NEVER, NONE, WHOLE

NO_GAP = -1
"""Stands for the gap of a GPU that has none: nothing ends before."""
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
        self.readings = options or AheadOptions()
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
        self._known = KnownLanes(site)
        self._changed = set(range(site.n_gpus))
        self._loads = load_rows(site)
        # Whether every task so far has a GPU to itself, on GPUs that stay, and every path is known.
        self._keeps = site.stays
        self._kept: dict[int, _KeptPlace] = {}
        self._better: set[int] = set()

    # -- what is known --------------------------------------------------------------------------------------------

    def released(self, job: int) -> None:
        """Take note of a job."""
        self._work.released(job)
        site = self.site
        tasks = [task for task in site.job_tasks[job] if task not in site.dropped]
        self._keeps &= not site.jobs[job].workflow.branches and all(site.alone[site.template[task]] for task in tasks)
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
        self._changed.add(gpu)
        self._forget_followers(task)

    def finished(self, task: int, gpu: int) -> None:
        """Look at the GPU anew."""
        self._changed.add(gpu)
        self._forget_followers(task)
        super().finished(task, gpu)

    def elapsed(self, task: int, follower: int, edge: int) -> None:
        """List a task anew whose input leaves now."""
        self._forget_place(follower)
        super().elapsed(task, follower, edge)

    def loaded(self, model: int, gpu: int) -> None:
        """Look at the GPU anew."""
        self._changed.add(gpu)

    def started(self, task: int, gpu: int) -> None:
        """Take note of what is left."""
        super().started(task, gpu)
        self._bound[gpu].remove(task)
        self._changed.add(gpu)
        job = self.site.job[task]
        self._work.started(task)
        self._to_start[job] -= 1
        self._count_needs([task], -1)
        self._see_work(job)

    def withdrawn(self, task: int, gpu: int) -> None:
        """Forget that a task was bound."""
        self._bound[gpu].remove(task)
        self._changed.add(gpu)
        super().withdrawn(task, gpu)

    def _see_work(self, job: int) -> None:
        # Its tasks are listed before others than so far.
        for task in self.site.job_tasks[job]:
            self._forget_place(task)
        if self._to_start[job]:
            path_us = self.site.jobs[job].critical_path_us
            self._urgency[job] = self._work.remaining_us[job] * path_us, job
        else:
            del self._to_start[job], self._urgency[job]

    def _forget_place(self, task: int) -> None:
        """List a task as if it had never been: whoever comes behind may find its GPU better."""
        kept = self._kept.pop(task, None)
        if kept is not None:
            self._better.add(kept.place.gpu)

    def _forget_followers(self, task: int) -> None:
        """List those anew that wait for a task, since its output is seen to come at another time, or from elsewhere."""
        for offset, _ in self.site.outputs[self.site.template[task]]:
            self._forget_place(task + offset)

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
        lanes = self._lanes()
        ends: dict[int, tuple[int, int]] = {}
        kept: dict[int, _KeptPlace] = {}
        worse: set[int] = set()
        first, begun, window = None, False, self.readings.window * self.site.n_gpus
        for position, task in enumerate(self._in_order()):
            if position >= window and not self._lack_work(lanes):
                break
            ready, last = task in self.ready_us, self._kept.pop(task, None)
            listed = position < window or ready
            if last is not None and listed and self._stands(task, last, ends, worse, lanes):
                place, kept[task] = last.place, last
            else:
                sources = self._sources(task, ends) if listed else None
                found = None if sources is None else self._best(task, sources, lanes)
                self._see_move(task, last, found, worse)
                if found is None:
                    continue
                place = found
                if self._starts(task, place, lanes):
                    self.bind_batch(task, place.gpu)
                    self._better.add(place.gpu)
                    begun = True
                elif self._begin_loads(task, place, lanes):
                    self._better.add(place.gpu)
                    begun = True
                elif self._keeps:
                    kept[task] = _KeptPlace(place, ready, self._stands_until(task, place, lanes))
            ends[task] = place.gpu, place.end_us
            if first is None and ready:
                first = task, place.gpu
            self._list(task, place, lanes)
        self._kept, self._better = kept, set()
        if first is not None and not begun and self._stands_still():
            self.bind_batch(*first)  # its models block each other: its worker makes them all leave and come in again

    def _stands(
        self, task: int, last: _KeptPlace, ends: dict[int, tuple[int, int]], worse: set[int], lanes: ListedLanes
    ) -> bool:
        """Say whether a task would be listed again where it was.

        *Invariant*: what is listed before it stands as it did, but on the GPUs in `worse` (more is listed there) and
        in `_better` (anything may be otherwise). *Because*: on all others the later of `now` and what stood there
        moves in one direction, so that none of them became better; its own is as good as it was until `until_us`.
        *If wrong*: decisions change.
        """
        site, gpu, ready = self.site, last.place.gpu, task in self.ready_us
        if site.now > last.until_us or ready != last.ready or gpu in worse or gpu in self._better:
            return False
        # It might start there now.
        if ready and gpu in self.idle and site.memory[gpu].ready.issuperset(site.needs[site.template[task]]):
            return False
        if not self._better:
            return True
        favoured, order, runs_us = self.favoured(task), last.place.order, self.runs.row[site.template[task]].data
        for other in self._better:
            # Unless the task fits in before what is listed there, the GPU has to be free.
            free_us = lanes.free_of[other] if lanes.gap_of[other] == NO_GAP else site.now
            if free_us + runs_us[other] > order:
                continue
            there = self._order_at(task, other, ends, lanes, order), other not in favoured, other
            if there <= (order, gpu not in favoured, gpu):
                return False
        return True

    def _order_at(
        self, task: int, gpu: int, ends: dict[int, tuple[int, int]], lanes: ListedLanes, at_most: float
    ) -> float:
        """Return by what `_best` orders one GPU, for a task that has it to itself; any larger value than `at_most`."""
        site, free_us, copy_us, room_bytes = self.site, lanes.free_of[gpu], lanes.copy_of[gpu], lanes.room_of[gpu]
        template, able_us, price_us = site.template[task], site.now, 0.0
        run_us = self.runs.row[template].item(gpu)
        for model in site.needs[template]:
            ready_us = lanes.ready_of[model, gpu]
            if ready_us == UNREACHABLE:
                load_us = self._loads[model].item(gpu)
                ready_us = copy_us = (copy_us if site.overlap_loads else max(copy_us, free_us)) + load_us
                room_bytes -= site.weight_bytes[model]
                price_us += self.readings.price * load_us * (room_bytes < 0)
            able_us = max(able_us, ready_us)
        # Models alone are enough to see it of most GPUs, and inputs take longest to look at.
        if able_us + run_us + price_us > at_most:
            return able_us + run_us + price_us
        able_us = max(able_us, site.now + site.input_time(task, gpu))
        for source, end_us, edge in self._sources(task, ends) or ():
            able_us = max(able_us, end_us + site.transfer_time(edge, source, gpu))
        fits = able_us + (0 if task in self.ready_us else run_us) <= lanes.gap_of[gpu]
        return (able_us if fits else max(able_us, free_us)) + run_us + price_us

    def _see_move(self, task: int, last: _KeptPlace | None, found: ListedPlace | None, worse: set[int]) -> None:
        """Note where those behind a task find things otherwise than when they were listed last."""
        if last is not None:
            if found is not None and found[:3] == last.place[:3]:
                return
            self._better.add(last.place.gpu)
        self._forget_followers(task)
        if found is not None:
            worse.add(found.gpu)
            # There may be a gap before it, and the models that it has loaded may serve others.
            needs = self.site.needs[self.site.template[task]]
            if found.gpu in self.idle or any(model not in self.site.memory[found.gpu].residents for model in needs):
                self._better.add(found.gpu)

    def _stands_until(self, task: int, place: ListedPlace, lanes: ListedLanes) -> int:
        """Return until when a place starts and ends as listed, whatever way its inputs have; -1: it may not now."""
        site = self.site
        template = site.template[task]
        # Loads that have not begun end later by the time that passes; so do tasks that are bound and have not started,
        # on this GPU or before this task.
        absent = any(model not in site.memory[place.gpu].residents for model in site.needs[template])
        if absent or self._bound[place.gpu]:
            return -1
        for offset, _ in site.inputs[template]:
            if site.gpu[task + offset] != NOWHERE and site.started_us[task + offset] < 0:
                return -1
        until_us = place.start_us - self.longest_way_us[template]
        # A gap is one until the instant at which it ends.
        in_gap = place.start_us < lanes.free_of[place.gpu]
        return min(until_us, lanes.gap_of[place.gpu] - 1) if in_gap else until_us

    def _lack_work(self, lanes: ListedLanes) -> bool:
        """Say whether a GPU is idle for which nothing is listed that starts now."""
        return any(lanes.gap_us[gpu] != NO_GAP or lanes.free_us[gpu] <= self.site.now for gpu in self.idle)

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

    def _lanes(self) -> ListedLanes:
        """Return what every GPU is bound to do."""
        known, view = self._known, self.view
        self._changed |= view.moved
        self._better |= self._changed
        for gpu in self._changed:
            known.see(gpu, self._bound[gpu])
        view.moved, self._changed = set(), set()
        return known.lanes(self.site.now)

    def _sources(self, task: int, ends: dict[int, tuple[int, int]]) -> list[InputSource] | None:
        """Return where the inputs of a task come from; None if one of them is not listed."""
        site, found = self.site, []
        for offset, edge in site.needed_inputs(task):
            before = task + offset
            gpu = site.gpu[before]
            # While a tool runs or a person thinks no GPU is kept for what comes after.
            if (before, task) in site.delayed or (site.delay_us[edge] and site.ended_us[before] < 0):
                return None
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

    def _best(self, task: int, sources: Sequence[InputSource], lanes: ListedLanes) -> ListedPlace | None:
        """Return the place where a task ends first, evictions counted; None if it ends nowhere before the GPU goes."""
        site, template = self.site, self.site.template[task]
        runs_us, given = self.runs.row[template], self.inputs.of(task)
        inputs_us = np.full(site.n_gpus, site.now) if given is None else given + site.now
        for source, end_us, edge in sources:
            inputs_us = self.transfers.wait_for(inputs_us, edge, source, end_us)
        able_us, price_us = self._able(template, inputs_us, lanes)
        start_us: Row = np.maximum(able_us, lanes.free_us)
        fits = able_us + (0 if task in self.ready_us else runs_us) <= lanes.gap_us
        if site.share[template] < WHOLE:
            fits |= site.share[template] <= np.minimum(self._known.free_share, WHOLE - 1)
        np.copyto(start_us, able_us, where=fits)
        ends_us: Row = start_us + runs_us
        if site.batch[template] != NONE:
            self._join_batches(template, able_us, start_us, ends_us, lanes)
        order: Row = np.asarray(ends_us + price_us)
        if not site.stays:
            order = np.where(ends_us <= site.goes_us, order, float(UNREACHABLE))
        gpu = least(order, self.favoured(task))
        if order.item(gpu) >= UNREACHABLE:
            return None
        return ListedPlace(gpu, start_us.item(gpu), ends_us.item(gpu), inputs_us.item(gpu), order.item(gpu))

    def _able(self, template: int, inputs_us: Row, lanes: ListedLanes) -> tuple[Row, Row | float]:
        """Return when inputs and models are there, and what evictions count, per GPU."""
        site, able_us, copy_us, room_bytes = self.site, inputs_us, lanes.copy_us, lanes.room_bytes
        price_us: Row | float = 0.0
        for model in site.needs[template]:
            ready_us, load_us = lanes.ready_us[model], self._loads[model]
            absent = ready_us == UNREACHABLE
            begin_us = copy_us if site.overlap_loads else np.maximum(copy_us, lanes.free_us)
            copy_us = np.where(absent, begin_us + load_us, copy_us)
            able_us = np.maximum(able_us, np.where(absent, copy_us, ready_us))
            room_bytes = room_bytes - site.weight_bytes[model] * absent
            price_us = price_us + self.readings.price * load_us * (absent & (room_bytes < 0))
        return able_us, price_us

    def _join_batches(self, template: int, able_us: Row, start_us: Row, end_us: Row, lanes: ListedLanes) -> None:
        """Let a task join a batch of its class that is listed, where it ends no later by that."""
        site, of_class = self.site, self.site.batch[template]
        for gpu, batch in lanes.batches.get(of_class, {}).items():
            if able_us[gpu] > batch.start_us:
                continue
            together_us = site.batch_time(of_class, gpu, batch.size + 1)
            if together_us != NEVER and batch.start_us + together_us <= end_us[gpu]:
                start_us[gpu], end_us[gpu] = batch.start_us, batch.start_us + together_us

    def _list(self, task: int, place: ListedPlace, lanes: ListedLanes) -> None:
        """Let what comes later see a task where it is listed."""
        site, gpu = self.site, place.gpu
        template = site.template[task]
        needs, of_class, free_us = site.needs[template], site.batch[template], lanes.free_of[gpu]
        for model in needs:
            if lanes.ready_of[model, gpu] == UNREACHABLE:
                lanes.copy_of[gpu] += site.load_time(model, gpu)
                lanes.ready_of[model, gpu] = lanes.copy_of[gpu]
                lanes.room_of[gpu] -= site.weight_bytes[model]
        if gpu not in lanes.kept:
            lanes.kept[gpu] = set(self._known.kept[gpu])
        lanes.kept[gpu].update(needs)
        if site.gpu[task] != NOWHERE:
            lanes.gap_of[gpu] = NO_GAP
            if not site.overlap_loads:
                lanes.copying.add(gpu)
        elif lanes.gap_of[gpu] == NO_GAP and gpu in self.idle and free_us <= site.now < place.start_us:
            lanes.gap_of[gpu] = place.start_us
        if of_class != NONE:
            here = lanes.batches.setdefault(of_class, {})
            batch, size = here.get(gpu), 1
            if batch is not None and batch.start_us == place.start_us:
                size = batch.size + 1
                free_us += place.end_us - batch.end_us
            here[gpu] = ListedBatch(place.start_us, place.end_us, size)
        lanes.free_of[gpu] = max(free_us, place.end_us)

    # -- what begins now ------------------------------------------------------------------------------------------

    def _starts(self, task: int, place: ListedPlace, lanes: ListedLanes) -> bool:
        """Say whether nothing but the way of its inputs keeps a task from starting where it is listed."""
        site, gpu = self.site, place.gpu
        if task not in self.ready_us or gpu not in self.idle:
            return False
        if not site.memory[gpu].ready.issuperset(site.needs[site.template[task]]):
            return False
        engine = site.overlap_loads or site.state[gpu].loading == NOWHERE
        free_us = lanes.free_us.item(gpu)
        return engine and (free_us <= site.now or place.start_us < free_us)

    def _begin_loads(self, task: int, place: ListedPlace, lanes: ListedLanes) -> bool:
        """Begin the first load that a task needs, if it may be and should be; say whether it was."""
        site, gpu = self.site, place.gpu
        if gpu in lanes.copying or not self._known.loads[gpu]:
            return False
        needs = site.needs[site.template[task]]
        kept = lanes.kept.get(gpu, self._known.kept[gpu])
        for model in needs:
            if lanes.ready_us[model, gpu] != UNREACHABLE:
                continue
            order = sorted((m for m in self.eviction_order(gpu) if m not in kept), key=self._worth)
            evict, slot = room_for(site, gpu, model, needs, order)
            due_us = max(place.inputs_us, lanes.free_us.item(gpu)) - site.load_time(model, gpu)
            if not (kept.isdisjoint(evict) and makes_room(site, gpu, model, evict)):
                continue
            if evict and self._is_early(due_us):
                continue
            self._load(gpu, model, evict, slot)
            lanes.ready_us[evict, gpu] = UNREACHABLE
            lanes.copy_us[gpu] = lanes.ready_us[model, gpu] = site.state[gpu].load_end_us
            lanes.room_bytes[gpu] = site.memory[gpu].free_bytes
            lanes.copying.add(gpu)
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
    """Where a task is listed: when it starts and ends, when its inputs are there, its end with evictions counted."""

    gpu: int
    start_us: int
    end_us: int
    inputs_us: int
    order: float


class _KeptPlace(NamedTuple):
    """A place that is kept between events.

    Parameters
    ----------
    ready
        Whether the task was ready.
    until_us
        Until then it starts and ends as listed, whatever way its inputs have.
    """

    place: ListedPlace
    ready: bool
    until_us: int


class ListedBatch(NamedTuple):
    """A batch that is listed."""

    start_us: int
    end_us: int
    size: int


@dataclass(slots=True)
class ListedLanes:
    """What every GPU is bound to do and what is listed for it so far; rows over the GPUs.

    Attributes
    ----------
    free_us, copy_us
        When its compute and its copy engine are free.
    ready_us
        By model and GPU, for what is there or listed to be loaded: when it is ready; else UNREACHABLE.
    room_bytes
        What nothing holds.
    gap_us
        Until when a GPU that is idle has nothing listed; NO_GAP if it is not, or something starts now.
    kept
        By GPU, where something is listed: models that what is bound or listed there needs.
    copying
        GPUs that may begin no load any more, since they have begun one, or run, and loads block compute.
    batches
        By batch class and GPU: the last batch that is listed.
    free_of, copy_of, ready_of, room_of, gap_of
        The rows once more: numpy takes twice as long over a single entry.
    """

    free_us: Row
    copy_us: Row
    ready_us: Row
    room_bytes: Row
    gap_us: Row
    kept: dict[int, set[int]] = field(default_factory=dict)
    copying: set[int] = field(default_factory=set)
    batches: dict[int, dict[int, ListedBatch]] = field(default_factory=dict)
    free_of: memoryview = field(init=False)
    copy_of: memoryview = field(init=False)
    ready_of: memoryview = field(init=False)
    room_of: memoryview = field(init=False)
    gap_of: memoryview = field(init=False)

    def __post_init__(self) -> None:
        self.free_of, self.copy_of, self.ready_of = self.free_us.data, self.copy_us.data, self.ready_us.data
        self.room_of, self.gap_of = self.room_bytes.data, self.gap_us.data


class KnownLanes:
    """What every GPU is bound to do, apart from the time that passes; looked at anew where something has changed.

    Attributes
    ----------
    loads
        Per GPU: whether it may begin a load; a bound task that lacks a model has its own worker load that.
    kept
        Per GPU: the models that what is bound there needs.
    free_share
        Per GPU: compute that nothing takes.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        self._run_end_us, self._bound_us, self._load_end_us, self._room_bytes, self.free_share = np.zeros(
            (5, site.n_gpus), np.int64
        )
        self._ready_us = np.full((len(site.models), site.n_gpus), UNREACHABLE)
        self._none = np.full(site.n_gpus, NO_GAP)
        self.loads = [True] * site.n_gpus
        self.kept: list[set[int]] = [set() for _ in range(site.n_gpus)]

    def see(self, gpu: int, bound: Sequence[int]) -> None:
        """Look at a GPU to which tasks are bound that have not started: none, one, or a batch."""
        site, state = self._site, self._site.state[gpu]
        self._run_end_us[gpu] = max((run.end_us for run in state.runs.values()), default=0)
        self._bound_us[gpu] = self._length_us(gpu, bound) if bound else 0
        loading = state.loading != NOWHERE
        self._load_end_us[gpu] = state.load_end_us if loading else 0
        self._ready_us[:, gpu] = UNREACHABLE
        self._ready_us[list(state.memory.residents), gpu] = 0
        if loading:
            self._ready_us[state.loading, gpu] = state.load_end_us
        self._room_bytes[gpu], self.free_share[gpu] = state.memory.free_bytes, state.free_share
        self.kept[gpu] = kept = {model for task in bound for model in site.needs[site.template[task]]}
        free = state.refuse_copying() is None and (site.overlap_loads or not bound)
        self.loads[gpu] = free and kept <= state.memory.residents.keys()

    def _length_us(self, gpu: int, bound: Sequence[int]) -> int:
        """Return how long a task, or a batch, will run."""
        site = self._site
        batch = site.batch[site.template[bound[0]]]
        return site.run_time(bound[0], gpu) if batch == NONE else site.batch_time(batch, gpu, len(bound))

    def lanes(self, now: int) -> ListedLanes:
        """Return what is known at a time, with nothing listed yet."""
        free_us = np.maximum(self._run_end_us, now) + self._bound_us
        copy_us, ready_us = np.maximum(self._load_end_us, now), np.maximum(self._ready_us, now)
        return ListedLanes(free_us, copy_us, ready_us, self._room_bytes.copy(), self._none.copy())
