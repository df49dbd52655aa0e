"""RLTune (arXiv 2512.10271, github dshruti20/RLTune) without the learning: a priority queue and a choice of placements.

Its optimisation over at most four candidate places is an argmin, written as such; its term for fragmentation is vacuous
in the released code and left out. What the paper leaves to the learned part is a fixed rule here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import ClassVar

import numpy as np

from truenorth.executor.execution import NOWHERE
from truenorth.executor.policies.central import CentralQueue, RemainingWork
from truenorth.executor.policies.eviction import room_for
from truenorth.executor.policies.options import QueueOptions, duration, factor, option
from truenorth.executor.policies.planning import mean_run
from truenorth.executor.policies.view import UNREACHABLE, CostRows, Row, least
from truenorth.executor.site import Site


@dataclass(frozen=True, slots=True)
class RltuneOptions:
    """The weights of what a place costs, and the age of what is seen.

    Parameters
    ----------
    finish, reload, balance, room
        Of the time until the task ends; of the time to load again what is evicted although the queue needs it; of the
        largest less the smallest wait; of the mean run time, taken off if the next task could still start at once.
    period
        The queue is central, and what it sees of GPUs is fresh unless a period is given.
    """

    finish: float = option(1.0, factor)
    reload: float = option(1.0, factor)
    balance: float = option(0.3, factor)
    room: float = option(0.5, factor)
    period: int = option(0, duration)


class Rltune(CentralQueue):
    """While a GPU is idle, the first task of the queue goes to the cheapest of at most four GPUs, idle or not.

    First is who has the least remaining work x critical path of the job / (1 + wait / mean wait of the queue). The four
    are the GPU of least wait, the one of least wait that holds all models, the one with most free memory, and the one
    whose victims the queue needs least (by their time to load, once per task that needs them). Equals: the GPUs of the
    job's ingress server, then the lowest index. A GPU costs

        finish x (wait, transfers and loads, run time) + reload x (bytes evicted that the queue needs / load bandwidth)
        + balance x (largest - smallest wait) - room x (mean run time of the queue, if the next task finds an idle GPU
        with its models).

    Victims are the least recently used models; nothing is prefetched.
    """

    Options: ClassVar[type[object]] = RltuneOptions

    def __init__(self, options: RltuneOptions | None = None) -> None:
        self.weights = options or RltuneOptions()
        super().__init__(QueueOptions(period=self.weights.period, prefetch=0, evict="lru"))

    def begin(self, site: Site) -> None:
        """Set up the queue."""
        super().begin(site)
        self._work = RemainingWork(site)
        self.waiting: list[int] = []
        self._mean_run = CostRows(lambda template: float(mean_run(site, site.run_us[template])))
        self._loads = np.zeros(site.n_gpus, np.int64)
        self._free_bytes = np.array([memory.free_bytes for memory in site.memory], np.int64)

    def released(self, job: int) -> None:
        """Let the job's first tasks wait."""
        self._work.released(job)
        super().released(job)

    def decided(self, job: int, dropped: Sequence[int]) -> None:
        """Take note of what is left."""
        self._work.decided(job)
        super().decided(job, dropped)

    def started(self, task: int, gpu: int) -> None:
        """Take note of what is left."""
        super().started(task, gpu)
        self._work.started(task)

    def runnable(self, task: int, server: int) -> None:
        """Let a task wait."""
        super().runnable(task, server)
        self.waiting.append(task)

    def in_line(self) -> list[int]:
        """Return who waits, as they were sorted last."""
        return self.waiting

    def offer(self) -> None:
        """Place the first of the queue, again and again, while a GPU is idle."""
        while self.waiting and self.idle:
            self._sort()
            task = next((task for task in self.waiting if self.site.stays or self.site.eligible_gpus(task)), NOWHERE)
            if task == NOWHERE:
                return
            self.waiting.remove(task)
            self.bind_batch(task, self._cheapest(task))
            self.waiting = [other for other in self.waiting if other in self.ready_us]

    def _sort(self) -> None:
        """Put the most urgent task first; equals by their numbers."""
        site, now = self.site, self.site.now
        mean_wait = sum(now - self.ready_us[task] for task in self.waiting) / len(self.waiting)

        def urgency(task: int) -> tuple[float, int]:
            job = site.job[task]
            waited = (now - self.ready_us[task]) / mean_wait if mean_wait else 0.0
            return self._work.remaining_us[job] * site.jobs[job].critical_path_us / (1 + waited), task

        # Anew each time: waits change by themselves, and with them the order.
        self.waiting.sort(key=urgency)

    def _cheapest(self, task: int) -> int:
        """Return the cheapest candidate; of equal ones the one that is found first."""
        site, view, weights = self.site, self.view, self.weights
        template = site.template[task]
        view.advance()
        waits = view.waits(site.gpu_server[0])
        reloads = CostRows(lambda gpu: self._reload_us(task, gpu))
        loads = self._loads
        loads[:] = 0
        view.add_load_costs(loads, site.needs[template], site.gpu_server[0], out=loads)
        found = self._candidates(task, waits, loads, reloads)
        if len(found) == 1:
            return found[0]
        shortest = int(waits.argmin())
        least_wait, most_wait = waits.item(shortest), waits.item(waits.argmax())
        # The second least, for what the spread is once the first has more to do.
        waits[shortest] = UNREACHABLE
        next_least = waits.item(waits.argmin())
        waits[shortest] = least_wait
        room_us, only = self._room()

        def cost(gpu: int) -> float:
            """Return what the weights make of a GPU for the task."""
            wait, run_us = waits.item(gpu), site.run_time(task, gpu)
            lowest = next_least if wait == least_wait else least_wait
            after = wait + run_us
            spread_us = max(most_wait, after) - min(lowest, after)
            finish_us = max(wait, self.site.inputs_after(task, gpu)) + loads.item(gpu) + run_us
            placed = weights.finish * finish_us + weights.reload * reloads[gpu]
            return float(placed + weights.balance * spread_us - (0.0 if gpu == only else weights.room * room_us))

        return min(found, key=cost)

    def _candidates(self, task: int, waits: Row, loads: Row, reloads: Mapping[int, int]) -> list[int]:
        """Return at most four GPUs, each once; one that holds all models evicts nothing."""
        favoured, template = self.favoured(task), self.site.template[task]
        free, holders = self._free_bytes, loads == 0
        if self.runs.uniform[template] is None:
            possible = self.runs.row[template] < UNREACHABLE
            waits, free = np.where(possible, waits, UNREACHABLE), np.where(possible, free, -UNREACHABLE)
            holders &= possible
        found = [least(waits, favoured), least(-free, favoured)]
        if holders.any():
            found.append(least(np.where(holders, waits, UNREACHABLE), favoured))
        else:
            found.append(self._least_missed(task, favoured, reloads))
        return list(dict.fromkeys(found))

    def _least_missed(self, task: int, favoured: Sequence[int], reloads: Mapping[int, int]) -> int:
        """Return the GPU whose victims the queue needs least; nothing is needed less than not at all."""
        eligible = self.site.eligible_gpus(task)
        first = chain((gpu for gpu in favoured if gpu in eligible), eligible)
        free = next((gpu for gpu in first if not reloads[gpu]), NOWHERE)
        return min(eligible, key=lambda gpu: (reloads[gpu], gpu not in favoured, gpu)) if free == NOWHERE else free

    def _reload_us(self, task: int, gpu: int) -> int:
        """Return the load time of what a task evicts on a GPU, once per task of the queues that needs it."""
        site, memory = self.site, self.site.memory[gpu]
        needs = site.needs[site.template[task]]
        absent = [model for model in needs if model not in memory.residents]
        # Nothing has to leave.
        if not absent or (sum(site.weight_bytes[model] for model in absent) <= memory.free_bytes and not memory.slots):
            return 0
        # A model counts once for each task: it would be missed so often.
        wanted = [model for other in (*self.waiting, *self.queue[gpu]) for model in site.needs[site.template[other]]]
        if not wanted:
            return 0
        order = self.eviction_order(gpu)
        victims = {victim for model in absent for victim in room_for(site, gpu, model, needs, order)[0]}
        return sum(site.load_time(model, gpu) for model in wanted if model in victims)

    def _room(self) -> tuple[float, int]:
        """Return the mean run time of the queue if its next task could start at once, and the only GPU where it could.

        0 if it could nowhere; NOWHERE for the GPU if there are several.
        """
        site = self.site
        if not self.waiting:
            return 0.0, NOWHERE
        template = site.template[self.waiting[0]]
        needs, runs = site.needs[template], self.runs.row[template]
        ready = (gpu for gpu in self.idle if runs.item(gpu) < UNREACHABLE and site.memory[gpu].ready.issuperset(needs))
        # Two are enough to know that it is not the only one.
        found = list(islice(ready, 2))
        mean_us = sum(self._mean_run[site.template[task]] for task in self.waiting) / len(self.waiting)
        return mean_us if found else 0.0, found[0] if len(found) == 1 else NOWHERE

    def _load(self, gpu: int, model: int, evict: Sequence[int], slot: int | None) -> None:
        super()._load(gpu, model, evict, slot)
        self._free_bytes[gpu] = self.site.memory[gpu].free_bytes

    def evicted(self, model: int, gpu: int) -> None:
        """Take note of the room."""
        self._free_bytes[gpu] = self.site.memory[gpu].free_bytes
