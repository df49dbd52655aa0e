"""Shortest remaining work first: the rule of SRPT on several GPUs, with placement by residency.

SRPT (shortest remaining processing time) minimises mean latency on one preemptive machine (Schrage, 1968). Here tasks
are not preempted and GPUs hold different models, so it is a rule of thumb, but one that needs to know no future.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from executor.policies.central import CentralQueue, RemainingWork
from executor.policies.costs import UNREACHABLE, least
from executor.policies.options import QueueOptions, duration, one_of, option
from executor.site import Site


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


class Srpt(CentralQueue):
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
        """Tabulate the work of every workflow."""
        super().begin(site)
        self._work = RemainingWork(site)
        self._free_at = np.zeros(site.n_gpus, np.int64)

    def released(self, job: int) -> None:
        """Let the job's first tasks wait."""
        self._work.released(job)
        super().released(job)

    def decided(self, job: int, dropped: Sequence[int]) -> None:
        """Take note of what is left."""
        self._work.decided(job)
        super().decided(job, dropped)

    def offer(self) -> None:
        """Let every task choose the GPU on which it would finish first."""
        site, view = self.site, self.view
        self.waiting.sort(key=self._precedence)
        view.advance()
        free = np.maximum(self._free_at, site.now)
        left = []
        for position, task in enumerate(self.waiting):
            if not self.idle:
                left.extend(self.waiting[position:])
                break
            if task not in self.ready_us:
                continue  # another one took it along
            template = site.template[task]
            finish = self.inputs_at(task, free) + self.runs.row[template]
            view.add_load_costs(finish, site.needs[template], site.gpu_server[0], out=finish)
            best = least(finish, self.favoured(task))
            if finish[best] >= UNREACHABLE:  # no GPU that is there ends it in time
                left.append(task)
            elif best in self.idle:
                free[best] = self._free_at[best] = finish[best]
                self.bind_batch(task, best)
            else:
                free[best] += site.run_time(task, best)
                left.append(task)
        self.waiting = [task for task in left if task in self.ready_us]

    def _precedence(self, task: int) -> tuple[int, int]:
        job = self.site.job[task]
        path_us = self.site.jobs[job].critical_path_us if self._order == "slowdown" else 1
        return self._work.remaining_us[job] * path_us, task

    def came(self, gpu: int) -> None:
        """Forget what was to run there before."""
        self._free_at[gpu] = self.site.now
        super().came(gpu)

    def started(self, task: int, gpu: int) -> None:
        """Take note of what is left, and of when the GPU will be free."""
        super().started(task, gpu)
        self._free_at[gpu] = self.site.run_end_us[gpu]
        self._work.started(task)
