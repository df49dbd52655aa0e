"""A central queue: tasks that are ready wait in one place, and are bound to a GPU only when one is idle."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import ClassVar

import numpy as np

from truenorth.executor.execution import NOWHERE
from truenorth.executor.policies.queueing import QueuePolicy
from truenorth.executor.policies.view import CostRows, InputRows, Row, RunRows, TransferRows
from truenorth.executor.site import Site
from truenorth.models import NEVER, NONE
from truenorth.models.features import NO_RULES, Features


class RemainingWork:
    """What is left of every job: the sum of the fastest run times of its tasks that have not started, in expectation.

    Attributes
    ----------
    remaining_us
        Per job released so far.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        self._fastest = CostRows(lambda template: min(run_us for run_us in site.run_us[template] if run_us != NEVER))
        self.remaining_us: list[int] = []

    def released(self, job: int) -> None:
        """Take note of a job."""
        self.remaining_us.append(self._expected_us(job))

    def decided(self, job: int) -> None:
        """Take note of the branch that a job takes."""
        self.remaining_us[job] = self._expected_us(job)

    def _expected_us(self, job: int) -> int:
        """Return the work of the tasks that have not started, each as far as it is likely."""
        site = self._site
        # Without branches likelihoods are 1, and multiplying by them would only cost time.
        decided = not site.jobs[job].workflow.branches
        left = (task for task in site.job_tasks[job] if task not in site.dropped and site.started_us[task] < 0)
        templates = (site.template[task] for task in left)
        return sum(self._fastest[t] if decided else round(site.likelihood[t] * self._fastest[t]) for t in templates)

    def started(self, task: int) -> None:
        """Take note of a start."""
        self.remaining_us[self._site.job[task]] -= self._fastest[self._site.template[task]]


class CentralQueue(QueuePolicy):
    """Base of the policies with one queue for the whole cluster; they only decide who takes which idle GPU.

    Attributes
    ----------
    ready_us
        When each task that is ready and not bound became ready, in that order.
    idle
        GPUs with compute to spare and nothing that is to run there.
    runs, transfers, inputs
        Rows over the GPUs.
    longest_way_us
        Per template: how long its inputs take at most.
    """

    supports: ClassVar[Features] = QueuePolicy.supports - NO_RULES
    remembers: ClassVar[bool] = False  # it gives tasks to idle GPUs only

    def begin(self, site: Site) -> None:
        """Set up an empty queue."""
        super().begin(site)
        self.ready_us: dict[int, int] = {}
        self.idle = {gpu for gpu in range(site.n_gpus) if not site.is_away(gpu)}
        self.runs, self.transfers, self.inputs = RunRows(site), TransferRows(site), InputRows(site)
        self.longest_way_us = CostRows(self._see_ways)

    def runnable(self, task: int, server: int) -> None:
        """Let a task wait."""
        self.ready_us[task] = self.site.now

    def bind(self, task: int, gpu: int) -> None:
        """Give a task a GPU; it waits no more, which those who keep a list of their own find out by `ready_us`."""
        self.idle.discard(gpu)
        del self.ready_us[task]
        self.place(task, gpu)

    def bind_batch(self, task: int, gpu: int) -> None:
        """Give a task a GPU, and those behind it in its batch class, as many as fit a batch."""
        self.bind(task, gpu)
        site = self.site
        batch = site.batch[site.template[task]]
        if batch == NONE:
            return
        most = self.batches.largest(site.template[task], gpu)
        alike = (other for other in self.in_line() if site.batch[site.template[other]] == batch)
        able = (other for other in alike if other in self.ready_us and self.can_run(other, gpu))
        # A list first: binding changes what is iterated over.
        for other in list(islice(able, max(0, most - 1))):
            self.bind(other, gpu)

    def in_line(self) -> Iterable[int]:
        """Return who waits, in order; there may be others among them, who wait no more."""
        return self.ready_us

    def can_run(self, task: int, gpu: int) -> bool:
        """Say whether a GPU can run a task, and does not go too soon."""
        site = self.site
        return site.run_time(task, gpu) != NEVER and (site.stays or site.takes(site.template[task], gpu))

    def came(self, gpu: int) -> None:
        """Have one more that is idle."""
        super().came(gpu)
        self._see_idle(gpu)

    def went(self, gpu: int, tasks: Sequence[int]) -> None:
        """Have one less."""
        self.idle.discard(gpu)
        super().went(gpu, tasks)

    def withdrawn(self, task: int, gpu: int) -> None:
        """Take note that a GPU may be idle again."""
        self._see_idle(gpu)

    def finished(self, task: int, gpu: int) -> None:
        """Take note that a GPU is idle, if nothing queues there."""
        self._see_idle(gpu)
        super().finished(task, gpu)

    def started(self, task: int, gpu: int) -> None:
        """Take note of compute that is left beside a task."""
        if self.site.state[gpu].free_share:
            self._see_idle(gpu)
            self.site.touched[gpu] = None  # so that tasks that wait are offered the rest at this instant

    def _see_idle(self, gpu: int) -> None:
        if not self.queue[gpu] and self.in_turn[gpu] == NOWHERE and not self.site.is_away(gpu):
            self.idle.add(gpu)

    def act(self, gpus: Sequence[int]) -> None:
        """Bind waiting tasks to idle GPUs, then let every worker concerned go on."""
        if self.idle and self.ready_us:
            self.offer()
        super().act(gpus)

    @abstractmethod
    def offer(self) -> None:
        """Bind tasks that wait to idle GPUs; there are some of both."""

    def inputs_at(self, task: int, free: Row) -> Row:
        """Return when each GPU is free and has the task's inputs, which leave once it is bound."""
        site = self.site
        for offset, edge in site.needed_inputs(task):
            free = self.transfers.wait_for(free, edge, site.gpu[task + offset], site.now)
        given = self.inputs.of(task)
        return free if given is None else np.maximum(free, given + site.now)

    def _see_ways(self, template: int) -> int:
        """Return how long the inputs of a template take at most."""
        site = self.site
        edges = (site.transfer_us[edge] for _, edge in site.inputs[template])
        ways = (us for by_source in edges for by_target in by_source for pair in by_target for us in pair)
        return max(ways, default=site.input_us[template])

    def favoured(self, task: int) -> Sequence[int]:
        """Return the GPUs of the ingress server of a task's job."""
        return self.view.gpus_of[self.site.job_ingress[self.site.job[task]]]
