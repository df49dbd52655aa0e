"""Shortest remaining work first: the rule of SRPT on several GPUs, with placement by residency.

SRPT (shortest remaining processing time) minimises mean latency on one preemptive machine (Schrage, 1968). Here tasks
are not preempted and GPUs hold different models, so it is a rule of thumb, but one that needs to know no future.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from executor.policies.costs import Rows, RunRows, TransferRows, least
from executor.policies.options import QueueOptions, duration, one_of, option
from executor.policies.queueing import QueuePolicy
from executor.policies.view import Row
from executor.site import NOWHERE, Site
from models import NEVER


@dataclass(frozen=True, slots=True)
class SrptOptions(QueueOptions):
    """Readings of the rule.

    Parameters
    ----------
    order
        Which job goes first: the one of the least remaining work x critical path (``slowdown``, for mean slowdown:
        a job's cost grows by 1 / P_j per microsecond), or of the least remaining work (``latency``).
    period
        The queue is central, and what it sees of memories is fresh unless a period is given.
    """

    order: str = option("slowdown", one_of("slowdown", "latency"))
    period: int = option(0, duration)


class Srpt(QueuePolicy):
    """One central queue, ordered by remaining work; tasks are bound to a GPU only when it is idle.

    Whenever a GPU is idle, the waiting tasks are gone through in order. Each chooses the GPU on which it would finish
    first: the later of wait and arrival of its inputs, plus TD, plus run time; TD is the load time of missing models,
    twice that if something must be evicted. If that GPU is idle the task goes there; otherwise its run time counts as
    wait there for those after it. Remaining work is the sum of the fastest run times of a job's tasks that have not
    started. Equal jobs: first released; equal GPUs: those of the job's ingress server, then the lowest index.
    """

    Options: ClassVar[type[object]] = SrptOptions

    def __init__(self, options: SrptOptions | None = None) -> None:
        self._order = (options or SrptOptions()).order
        super().__init__(options or SrptOptions())

    def begin(self, site: Site) -> None:
        """Tabulate run times and the work of every workflow."""
        super().begin(site)
        self._runs, self._transfers = RunRows(site), TransferRows(site)
        self._arrival = np.zeros(site.n_gpus, np.int64)
        self._fastest = Rows(lambda template: min(run_us for run_us in site.run_us[template] if run_us != NEVER))
        self._waiting: list[int] = []
        self._remaining: list[int] = []
        self._bound = [NOWHERE] * site.n_gpus
        self._free_at = np.zeros(site.n_gpus, np.int64)

    def released(self, job: int) -> None:
        """Let the job's first tasks wait."""
        site = self.site
        self._remaining.append(sum(self._fastest[site.template[task]] for task in site.job_tasks[job]))
        super().released(job)
        site.wake(site.now)

    def runnable(self, task: int, server: int) -> None:
        """Let a task wait."""
        self._waiting.append(task)

    def act(self, gpus: Sequence[int]) -> None:
        """Bind waiting tasks to idle GPUs, then let every worker concerned go on."""
        idle = {gpu for gpu, task in enumerate(self._bound) if task == NOWHERE and self.site.running[gpu] == NOWHERE}
        if idle and self._waiting:
            self._bind(idle)
        super().act(gpus)

    def _bind(self, idle: set[int]) -> None:
        site, view = self.site, self.view
        self._waiting.sort(key=self._precedence)
        free = np.maximum(self._free_at, site.now)
        left = []
        for position, task in enumerate(self._waiting):
            if not idle:
                left.extend(self._waiting[position:])
                break
            template = site.template[task]
            finish = self._inputs_at(task, free) + self._runs.row[template]
            view.advance()
            view.add_load_costs(finish, site.needs[template], site.gpu_server[0])
            best = least(finish, view.gpus_of[site.job_ingress[site.job[task]]])
            if best in idle:
                idle.remove(best)
                free[best] = self._free_at[best] = finish[best]
                self._bound[best] = task
                self.place(task, best)
            else:
                free[best] += site.run_time(task, best)
                left.append(task)
        self._waiting = left

    def _inputs_at(self, task: int, free: Row) -> Row:
        """Return when each worker is free and has the task's inputs, which leave once it is bound."""
        site = self.site
        for offset, edge in site.inputs[site.template[task]]:
            self._transfers.arrive(edge, site.gpu[task + offset], site.now, self._arrival)
            free = np.maximum(free, self._arrival)
        return free

    def _precedence(self, task: int) -> tuple[int, int]:
        job = self.site.job[task]
        path_us = self.site.jobs[job].critical_path_us if self._order == "slowdown" else 1
        return self._remaining[job] * path_us, task

    def _start(self, task: int, gpu: int, needs: tuple[int, ...]) -> None:
        super()._start(task, gpu, needs)
        self._bound[gpu] = NOWHERE
        self._free_at[gpu] = self.site.run_end_us[gpu]
        self._remaining[self.site.job[task]] -= self._fastest[self.site.template[task]]
