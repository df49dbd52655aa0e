"""Shortest remaining work first: a central queue in which every task chooses the GPU on which it would finish first.

SRPT minimises mean latency on one preemptive machine (Schrage, 1968); here tasks are not preempted and GPUs hold
different models, so it is a rule of thumb, but one that needs to know no future.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from truenorth.executor.policies.central import CentralQueue, RemainingWork
from truenorth.executor.policies.options import QueueOptions, duration, one_of, option
from truenorth.executor.policies.view import UNREACHABLE, Row, least
from truenorth.executor.site import Site


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


class _Choice(NamedTuple):
    """The GPU on which a task that waits would finish first, and what that rests on.

    Parameters
    ----------
    gpu, finish_us
        The GPU, and when the task would finish there.
    free_us
        When those before it in the queue leave the GPU free.
    until_us
        Until then its inputs, sent now, would not be later than that.
    """

    gpu: int
    finish_us: int
    free_us: int
    until_us: int


class Srpt(CentralQueue):
    """One central queue, ordered by remaining work; tasks are bound to a GPU only when it is idle.

    Whenever a GPU is idle, the waiting tasks are gone through in order. Each chooses the GPU on which it would finish
    first: the later of wait and arrival of its inputs, plus TD, plus run time; TD is the load time of missing models,
    twice that if something must be evicted. If that GPU is idle the task goes there; otherwise its run time counts as
    wait there for those after it. Remaining work is the sum of the fastest run times of a job's tasks that have not
    started. Equal jobs: first released; equal GPUs: those of the job's ingress server, then the lowest index.

    A choice is kept as long as nothing speaks against it: time alone makes the other GPUs no better. So a task looks at
    all GPUs only if its own has become worse, and otherwise at those that may have become better.
    """

    Options: ClassVar[type[object]] = SrptOptions

    def __init__(self, options: SrptOptions | None = None) -> None:
        self._order = (options or SrptOptions()).order
        super().__init__(options or SrptOptions())

    def begin(self, site: Site) -> None:
        """Begin with an empty queue."""
        super().begin(site)
        self._work = RemainingWork(site)
        self._line: list[tuple[int, int]] = []
        self._place_in_line: dict[int, tuple[int, int]] = {}
        self._free_at = np.zeros(site.n_gpus, np.int64)
        self._seen_free = self._free_at
        self._choices: dict[int, _Choice] = {}
        # GPUs that may have become better for some who wait, apart from those that are free earlier than before.
        self._better: set[int] = set()

    def released(self, job: int) -> None:
        """Let the job's first tasks wait."""
        self._work.released(job)
        super().released(job)

    def decided(self, job: int, dropped: Sequence[int]) -> None:
        """Take note of what is left."""
        self._work.decided(job)
        self._move(job)
        super().decided(job, dropped)

    def runnable(self, task: int, server: int) -> None:
        """Let a task wait where its job's remaining work puts it."""
        super().runnable(task, server)
        self._enter(task)

    def _enter(self, task: int) -> None:
        self._place_in_line[task] = place = self._precedence(task)
        insort(self._line, place)

    def bind(self, task: int, gpu: int) -> None:
        """Give a task a GPU; it leaves the queue."""
        self._leave(task)
        super().bind(task, gpu)

    def _leave(self, task: int) -> None:
        """Take a task out of the queue: those behind it may find the GPU of its choice better than before."""
        del self._line[bisect_left(self._line, self._place_in_line.pop(task))]
        choice = self._choices.pop(task, None)
        if choice is not None:
            self._better.add(choice.gpu)

    def in_line(self) -> Sequence[int]:
        """Return who waits, in order."""
        return [task for _, task in self._line]

    def offer(self) -> None:
        """Let every task choose the GPU on which it would finish first."""
        site, view = self.site, self.view
        view.advance()
        free = np.maximum(self._free_at, site.now)
        free_of = free.data
        moved, view.moved = view.moved, set()
        better = self._better.union(moved, np.flatnonzero(free < self._seen_free).tolist())
        before, self._choices, self._better = self._choices, {}, set()
        for task in self.in_line():
            # Nobody is left to take one; who has not chosen now has to do it from the beginning.
            if not self.idle:
                break
            last = before.get(task)
            if task not in self.ready_us:  # another one took it along
                if last is not None:
                    better.add(last.gpu)
                continue
            if last is None or last.gpu in moved or free_of[last.gpu] != last.free_us or site.now > last.until_us:
                choice = self._choose(task, free)
            else:
                choice = self._reconsider(task, last, free, better) if better else last
            if last is not None and choice.gpu != last.gpu:
                better.add(last.gpu)
            if choice.finish_us >= UNREACHABLE:  # no GPU that is there ends it in time
                continue
            if choice.gpu in self.idle:
                free_of[choice.gpu] = self._free_at[choice.gpu] = choice.finish_us
                self.bind_batch(task, choice.gpu)
            else:
                # It waits for that GPU: who comes behind must not count on it.
                free_of[choice.gpu] += site.run_time(task, choice.gpu)
                if site.stays:
                    self._choices[task] = choice
        self._seen_free = np.maximum(self._free_at, site.now)

    def _choose(self, task: int, free: Row) -> _Choice:
        """Return the choice of a task among all GPUs."""
        site, needs = self.site, self.site.needs[self.site.template[task]]
        finish = self.inputs_at(task, free) + self.runs.row[site.template[task]]
        self.view.add_load_costs(finish, needs, site.gpu_server[0], out=finish)
        gpu = least(finish, self.favoured(task))
        return self._choice(task, gpu, free, finish.item(gpu))

    def _choice(self, task: int, gpu: int, free: Row, finish_us: int) -> _Choice:
        """Return a choice."""
        free_us = free.item(gpu)
        return _Choice(gpu, finish_us, free_us, free_us - self.inputs_after(task, gpu))

    def _reconsider(self, task: int, last: _Choice, free: Row, better: set[int]) -> _Choice:
        """Return the choice of a task whose GPU is as good as before, while others may be better."""
        favoured = self.favoured(task)
        order = last.finish_us, last.gpu not in favoured, last.gpu
        for gpu in better:
            finish_us = self._finish(task, gpu, free.item(gpu))
            if (finish_us, gpu not in favoured, gpu) < order:
                order = finish_us, gpu not in favoured, gpu
        return last if order[2] == last.gpu else self._choice(task, order[2], free, order[0])

    def _finish(self, task: int, gpu: int, free_us: int) -> int:
        """Return when a task would finish on a GPU."""
        site, view = self.site, self.view
        template = site.template[task]
        able_us = max(free_us, site.now + self.inputs_after(task, gpu))
        load_us = view.load_cost(gpu, site.needs[template], site.gpu_server[0])
        return able_us + self.runs.row[template].item(gpu) + load_us

    def _precedence(self, task: int) -> tuple[int, int]:
        job = self.site.job[task]
        # A microsecond of delay costs 1 / P_j: work per cost is work x P_j.
        path_us = self.site.jobs[job].critical_path_us if self._order == "slowdown" else 1
        return self._work.remaining_us[job] * path_us, task

    def _move(self, job: int) -> None:
        """Put those tasks of a job that wait where its remaining work puts them now."""
        for task in self.site.job_tasks[job]:
            if task in self._place_in_line:
                self._leave(task)
                self._enter(task)

    def came(self, gpu: int) -> None:
        """Forget what was to run there before."""
        self._free_at[gpu] = self.site.now
        super().came(gpu)

    def started(self, task: int, gpu: int) -> None:
        """Take note of what is left, and of when the GPU will be free."""
        super().started(task, gpu)
        self._free_at[gpu] = self.site.run_end_us[gpu]
        self._work.started(task)
        self._move(self.site.job[task])
