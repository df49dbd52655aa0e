"""The plain policies of the comparison: JIT, hash and HEFT as in the Compass paper, and LRU as model gateways do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar
from zlib import crc32

import numpy as np

from truenorth.executor.execution import NOWHERE
from truenorth.executor.policies.options import QueueOptions, duration, one_of, option, switch
from truenorth.executor.policies.planning import JobPlanner
from truenorth.executor.policies.queueing import HeadFirst, QueuePolicy
from truenorth.executor.policies.view import UNREACHABLE, Row, RunRows, least
from truenorth.executor.policy import Knows
from truenorth.executor.site import Site


@dataclass(frozen=True, slots=True)
class LruOptions:
    """Readings of the rule.

    Parameters
    ----------
    period
        A gateway sees every GPU as it is, unless it is told of them only every so many microseconds.
    keep_alive
        A model that has idled for longer is evicted (``OLLAMA_KEEP_ALIVE``, llama-swap's ``ttl``); None: never.
    copies
        Whether a model gets another copy on an idle GPU where to wait for those that hold it takes longer than to load.
    """

    period: int = option(0, duration)
    keep_alive: int | None = option(None, duration)
    copies: bool = option(True, switch)


class Lru(HeadFirst):
    """A task goes where its models are, or else where the wait is least, and what was used longest ago makes room.

    It is placed when it is ready: on the GPU of least wait (loads not counted) among those that hold or are loading all
    its models, else on the GPU of least wait. Gateways scale out: where the wait exceeds what the loads take on an idle
    GPU (twice as long if something must be evicted), it goes there, and its models have a copy more. A GPU's queue is
    strictly first in, first out: a head whose inputs are still under way blocks it. Victims are the models whose last
    run ended longest ago. Nothing is prefetched.
    """

    Options: ClassVar[type[object]] = LruOptions
    knows: ClassVar[Knows] = Knows.WAITS

    def __init__(self, options: LruOptions | None = None) -> None:
        readings = options or LruOptions()
        self._keep_alive_us, self._copies = readings.keep_alive, readings.copies
        super().__init__(QueueOptions(period=readings.period, prefetch=0, evict="lru"))

    def begin(self, site: Site) -> None:
        """Tabulate where tasks can run."""
        super().begin(site)
        self._runs = RunRows(site)
        self._missing = np.zeros(site.n_gpus, np.int64)
        if self._keep_alive_us is not None:
            site.wake(self._keep_alive_us)  # initial residents may never be used

    def runnable(self, task: int, server: int) -> None:
        """Place a task, and queue it up at once."""
        site, view = self.site, self.view
        view.advance()
        template = site.template[task]
        waits = np.where(self._runs.row[template] < UNREACHABLE, view.waits(server), UNREACHABLE)
        favoured = view.gpus_of[site.job_ingress[site.job[task]]]
        gpu = least(self._where_held(waits, site.needs[template], server), favoured)
        if waits[gpu] == UNREACHABLE or self._missing[gpu]:
            gpu = least(waits, favoured)
        elif self._copies:
            idle = least(np.where(waits, UNREACHABLE, self._missing), favoured)
            if not waits[idle] and self._missing[idle] < waits[gpu]:
                gpu = idle
        self.place_in_queue(task, gpu)

    def _where_held(self, waits: Row, needs: tuple[int, ...], server: int) -> Row:
        """Return the waits, UNREACHABLE where a model of the task is neither there nor being loaded."""
        self._missing[:] = 0
        self.view.add_load_costs(self._missing, needs, server, out=self._missing)
        return np.where(self._missing, UNREACHABLE, waits)

    def finished(self, task: int, gpu: int) -> None:
        """Remember when the models that it used will have idled for too long."""
        super().finished(task, gpu)
        if self._keep_alive_us is not None:
            self.site.wake(self.site.now + self._keep_alive_us)

    def act(self, gpus: Sequence[int]) -> None:
        """Evict what has idled for too long, then go on."""
        if self._keep_alive_us is not None:
            for gpu in gpus:
                self._expire(gpu, self.site.now - self._keep_alive_us)
        super().act(gpus)

    def _expire(self, gpu: int, before_us: int) -> None:
        """Evict the models whose last run ended at a time or earlier, unless a task here is to use them."""
        site, last_use_us = self.site, self.last_use_us[gpu]
        here = [self.in_turn[gpu], *self.queue[gpu]]
        wanted = {model for task in here if task != NOWHERE for model in site.needs[site.template[task]]}
        idle = {model for model in site.memory[gpu].ready if last_use_us.get(model, 0) <= before_us}
        for model in sorted(idle - wanted):
            if not site.state[gpu].uses(model):
                self.evict(model, gpu)


@dataclass(frozen=True, slots=True)
class JitOptions(QueueOptions):
    """Readings of JIT.

    Parameters
    ----------
    roots
        Tasks without predecessors go to the ``least`` wait + TD as all others do, or by ``hash`` as in the simulator
        that one of the Compass authors released.
    """

    roots: str = option("least", one_of("least", "hash"))


class Jit(QueuePolicy):
    """Just-in-time placement: argmin of wait + TD over the workers (several kinds: plus the run time there).

    A task becomes runnable when its last predecessor finishes; the server where that happened decides, by its view.
    Equal workers: those of the job's ingress server, then the lowest index.
    """

    Options: ClassVar[type[object]] = JitOptions
    knows: ClassVar[Knows] = Knows.WAITS

    def __init__(self, options: JitOptions | None = None) -> None:
        self._roots = (options or JitOptions()).roots
        super().__init__(options or JitOptions())

    def runnable(self, task: int, server: int) -> None:
        """Place the task where it could start (several kinds: finish) first, as every policy does without its own."""
        if self._roots == "hash" and not self.site.inputs[self.site.template[task]]:
            self.place(task, hash_gpu(self.site, task))
        else:
            super().runnable(task, server)


class Hash(QueuePolicy):
    """Placement by the CRC-32 of ``job/task`` (the job's index in release order, the task's name in its workflow).

    The checksum, modulo the number of GPUs that can run the task, picks one of them.
    """

    remembers: ClassVar[bool] = False
    knows: ClassVar[Knows] = Knows.NOTHING

    def released(self, job: int) -> None:
        """Place the tasks of the job, as far as a GPU that is there can run them."""
        for task in self.site.job_tasks[job]:
            if task in self.site.dropped:
                continue
            if self.site.stays or self.site.eligible_gpus(task):
                self.place(task, hash_gpu(self.site, task))
            elif not self.site.predecessors_left[task]:
                self.seek_place(task, self.site.job_ingress[job])

    def runnable(self, task: int, server: int) -> None:
        """Place a task that has lost its GPU, or found none at first."""
        self.place(task, hash_gpu(self.site, task))


def hash_gpu(site: Site, task: int) -> int:
    """Return the GPU of a task by the checksum of its name."""
    job = site.job[task]
    name = site.workflows[site.job_workflow[job]].tasks[task - site.job_tasks[job].start].name
    eligible = site.eligible_gpus(task)
    return eligible[crc32(f"{job}/{name}".encode()) % len(eligible)]


class Heft(QueuePolicy):
    """Planning on arrival with every worker available at once and no load to pay (TD = 0); no adjustment.

    All workers look alike to the head of a job, so it stays at the ingress server. Topcuoglu's HEFT is another
    algorithm (insertion, mean costs): a list heuristic among the solvers.
    """

    def begin(self, site: Site) -> None:
        """Set up the planner."""
        super().begin(site)
        self._planner = JobPlanner(site)

    def released(self, job: int) -> None:
        """Plan the job."""
        site = self.site
        available = np.full(site.n_gpus, site.now, np.int64)
        ingress = self.view.gpus_of[site.job_ingress[job]]
        where = self._planner.plan(job, available, site.now, None, ingress)
        for task, gpu in where:
            self.place(task, gpu)
