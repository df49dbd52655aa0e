"""Batches by due times: a central queue per class, earliest due first, and loads by demand; Clockwork and Symphony."""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from truenorth.executor.execution import NOWHERE
from truenorth.executor.policies.central import CentralQueue
from truenorth.executor.policies.eviction import makes_room, room_for
from truenorth.executor.policies.options import QueueOptions, duration, factor, option
from truenorth.executor.policies.view import CostRows
from truenorth.executor.site import Site
from truenorth.models import NEVER, NONE

Group = list[tuple[int, int]]
"""Due time and number of tasks that may run together, earliest due first."""


@dataclass(frozen=True, slots=True)
class DueOptions:
    """Readings of both.

    Parameters
    ----------
    due
        Jobs without a deadline are due after so many times their critical path of run times.
    period
        The queue is central, and what it sees of GPUs is fresh unless a period is given.
    """

    due: float = option(5.0, factor)
    period: int = option(0, duration)


class DueQueue(CentralQueue):
    """Forms the batches of idle GPUs from one queue per class, and loads the models that are asked for most.

    A task is due at its job's due time less the longest path of run times behind it. The class of the earliest due time
    goes first, to the idle GPU with its models that runs it fastest (equals: the ingress server of the first task's
    job, then the lowest index); what can no longer be on time goes last. A GPU runs one batch at a time. An idle copy
    engine loads the model of most queued work per second of its load, shared among the copies that there are and the
    new one; victims are least recently used, none worth as much by the same count as what comes in. Tasks without a
    class are batches of one.
    """

    Options: ClassVar[type[object]] = DueOptions

    def __init__(self, options: DueOptions | None = None) -> None:
        self._readings = options or DueOptions()
        super().__init__(QueueOptions(period=self._readings.period, prefetch=0, evict="lru"))

    def begin(self, site: Site) -> None:
        """Set up empty queues."""
        super().begin(site)
        self.groups: dict[tuple[int, tuple[int, ...]], Group] = {}
        self._fastest = CostRows(lambda template: min(us for us in site.run_us[template] if us != NEVER))
        self._tails: dict[int, list[int]] = {}
        self._job_due_us: list[int] = []
        self._queued_us = [0] * len(site.models)
        # Replicas, those under way among them.
        self._copies = [0] * len(site.models)
        for memory in site.memory:
            for model in memory.residents:
                self._copies[model] += 1

    @abstractmethod
    def batch_now(self, group: Group, gpu: int) -> Sequence[int]:
        """Return the tasks of a group that an idle GPU starts together now; none if it does better to wait."""

    def runnable(self, task: int, server: int) -> None:
        """Let a task wait among those of its class."""
        self.ready_us[task] = self.site.now
        # By due time, then by number: equals go in the order of release.
        insort(self.groups.setdefault(self._key(task), []), (self.due_us(task), task))
        self._count_work(task, 1)

    def due_us(self, task: int) -> int:
        """Return when a task has to end for its job to be in time, if nothing behind it waits.

        Where a job may take several paths it stays due as it was at the release, when only their mean was known.
        """
        site, job = self.site, self.site.job[task]
        workflow = site.job_workflow[job]
        if workflow not in self._tails:
            self._tails[workflow] = self._tails_of(workflow)
        return self._job_due_us[job] - self._tails[workflow][task - site.job_tasks[job].start]

    def released(self, job: int) -> None:
        """Note when the job is due, and let its first tasks wait."""
        made = self.site.jobs[job]
        relative = made.deadline_us
        if relative is None:
            # As if promised: a multiple of what the job takes alone.
            relative = int(self._readings.due * made.critical_path_us)
        self._job_due_us.append(made.release_us + relative)
        super().released(job)

    def _tails_of(self, workflow: int) -> list[int]:
        """Return the longest path of delays and run times behind each task of a workflow."""
        site, first = self.site, self.site.template_first[workflow]
        tails = [0] * len(site.workflows[workflow].tasks)
        for position in reversed(site.workflows[workflow].topological):
            behind = ((position + offset, site.delay_us[edge]) for offset, edge in site.outputs[first + position])
            paths = (delay_us + self._fastest[first + other] + tails[other] for other, delay_us in behind)
            tails[position] = max(paths, default=0)
        return tails

    def _key(self, task: int) -> tuple[int, tuple[int, ...]]:
        """Return what tasks that may run together have in common."""
        template = self.site.template[task]
        batch = self.site.batch[template]
        # Negative, so that no class has the same number; such a group has batches of one.
        return (~template, ()) if batch == NONE else (batch, self.site.able_gpus(task))

    def _count_work(self, task: int, sign: int) -> None:
        template = self.site.template[task]
        for model in self.site.needs[template]:
            self._queued_us[model] += sign * self._fastest[template]

    # -- runs -----------------------------------------------------------------------------------------------------

    def run_us(self, task: int, gpu: int, size: int) -> int:
        """Return how long a batch of a task's class runs on a GPU, NEVER if it cannot."""
        batch = self.site.batch[self.site.template[task]]
        return self.site.run_time(task, gpu) if batch == NONE else self.site.batch_time(batch, gpu, size)

    def on_time(self, group: Group, gpu: int) -> int:
        """Return the place of the first task of a group that would be on time alone, started now."""
        return bisect_left(group, (self.site.now + self.run_us(group[0][1], gpu, 1), NOWHERE))

    def offer(self) -> None:
        """Let idle GPUs start batches, most urgent first."""
        asked = []
        for key, group in self.groups.items():
            gpu = self._best_gpu(group) if group else NOWHERE
            if gpu != NOWHERE:
                first = self.on_time(group, gpu)
                asked.append((first == len(group), group[first % len(group)], key))
        # Those that can still be on time come first, then the earliest due.
        for _, _, key in sorted(asked):
            group = self.groups[key]
            gpu = self._best_gpu(group)
            while gpu != NOWHERE:
                tasks = self.batch_now(group, gpu)
                for task in tasks:
                    group.remove((self.due_us(task), task))
                    self._count_work(task, -1)
                    self.bind(task, gpu)
                    self.enqueue(task, gpu)
                gpu = self._best_gpu(group) if tasks and group else NOWHERE

    def _best_gpu(self, group: Group) -> int:
        """Return the idle GPU that serves the first task of a group fastest, NOWHERE if none has its models."""
        # The first stands for all: tasks of a group run on the same GPUs, with the same models.
        task, site = group[0][1], self.site
        template, favoured = site.template[task], self.favoured(task)
        needs = site.needs[template]
        able = [
            (site.run_time(task, gpu), gpu not in favoured, gpu)
            for gpu in self.idle
            if self.can_run(task, gpu)
            and (site.overlap_loads or site.state[gpu].loading == NOWHERE)
            and site.memory[gpu].ready.issuperset(needs)
            and self.batches.largest(template, gpu)
        ]
        return min(able)[2] if able else NOWHERE

    def arrived(self, task: int, missing: int) -> None:
        """Take note of an input; the task queued up when it was bound."""

    def next_in_turn(self, gpu: int) -> int | None:
        """Return the first task of a GPU's batch once the inputs of all of them are there."""
        queue = self.queue[gpu]
        return 0 if queue and not any(self.site.inputs_missing[task] for task in queue) else None

    def _see_idle(self, gpu: int) -> None:
        if not self.site.state[gpu].runs:
            super()._see_idle(gpu)

    # -- loads ----------------------------------------------------------------------------------------------------

    def act(self, gpus: Sequence[int]) -> None:
        """Start what can start, then load what is asked for most."""
        super().act(gpus)
        if self.ready_us:
            for gpu, state in enumerate(self.site.state):
                if state.refuse_copying() is None and (self.site.overlap_loads or gpu in self.idle):
                    self._load_by_demand(gpu)

    def _load_by_demand(self, gpu: int) -> None:
        """Load the model that is worth most on a GPU, if its victims are worth less."""
        site, memory = self.site, self.site.memory[gpu]
        wanted: dict[int, int] = {}
        for group in self.groups.values():
            template = site.template[group[0][1]] if group else NONE
            if group and self.can_run(group[0][1], gpu):
                wanted |= dict.fromkeys((m for m in site.needs[template] if m not in memory.residents), template)
        worth = {model: self._worth(model, gpu, self._copies[model] + 1) for model in wanted}
        # Most worth first; equals by number, so that runs repeat.
        for model in sorted(wanted, key=lambda m: (-worth[m], m)):
            evict, slot = room_for(site, gpu, model, site.needs[wanted[model]], self._may_leave(gpu))
            # A victim that is worth as much would be asked for again at once.
            cheap = all(self._worth(victim, gpu, self._copies[victim]) < worth[model] for victim in evict)
            if cheap and makes_room(site, gpu, model, evict):
                self._load(gpu, model, evict, slot)
                return

    def _worth(self, model: int, gpu: int, copies: int) -> float:
        """Return the queued work of a model per second of its load, for each of its copies."""
        return self._queued_us[model] / max(1, self.site.load_time(model, gpu)) / copies

    def _may_leave(self, gpu: int) -> list[int]:
        """Return the models that nothing uses or is bound to use on a GPU, least recently used first."""
        site = self.site
        bound = {model for task in self.queue[gpu] for model in site.needs[site.template[task]]}
        return [model for model in self.eviction_order(gpu) if model not in bound]

    def _load(self, gpu: int, model: int, evict: Sequence[int], slot: int | None) -> None:
        super()._load(gpu, model, evict, slot)
        self._copies[model] += 1

    def evicted(self, model: int, gpu: int) -> None:
        """Count the copies."""
        self._copies[model] -= 1


class Clockwork(DueQueue):
    """An idle GPU runs the largest batch of a class, earliest due first, that is still on time for all its members.

    The paper cancels what can no longer be on time; here it goes last, in batches as large as the class allows. The
    paper's controller sends actions ahead to workers that execute them one at a time; here a GPU is told when it is
    idle, which without noise is the same.
    """

    def batch_now(self, group: Group, gpu: int) -> Sequence[int]:
        """Return the batch that an idle GPU starts now."""
        first = self.on_time(group, gpu)
        largest = self.batches.largest(self.site.template[group[0][1]], gpu)
        if first == len(group):  # all of them are late
            return [task for _, task in group[:largest]]
        due_us, task = group[first]
        size = min(largest, len(group) - first)
        # The earliest due of them decides: later members have more time.
        while size > 1 and self.site.now + self.run_us(task, gpu, size) > due_us:
            size -= 1
        return [task for _, task in group[first : first + size]]


class Deferred(DueQueue):
    """A batch starts once it is full, or once waiting longer would miss the earliest due time less its run time.

    Its size is what waits, up to the largest; what comes meanwhile makes it run longer, and so start earlier. The paper
    drops what can no longer be on time; here nothing is dropped: what is late waits no more, and takes along what else
    waits of its class, those on time first.
    """

    def batch_now(self, group: Group, gpu: int) -> Sequence[int]:
        """Return the batch that an idle GPU starts now; it is asked again when the batch has to start."""
        first = self.on_time(group, gpu)
        largest = self.batches.largest(self.site.template[group[0][1]], gpu)
        size = min(largest, len(group))
        latest_us = group[0][0] - self.run_us(group[0][1], gpu, size)
        if size < largest and self.site.now < latest_us:
            # Waiting causes no event by itself.
            self.site.wake(latest_us)
            return ()
        return [task for _, task in (*group[first:], *group[:first])[:size]]
