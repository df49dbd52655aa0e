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

from truenorth.executor.execution import NOWHERE
from truenorth.executor.policies.central import CentralQueue, RemainingWork
from truenorth.executor.policies.options import QueueOptions, duration, one_of, option
from truenorth.executor.policies.view import UNREACHABLE, CostRows, Row, least
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
    gpu, finish_us, run_us
        The GPU, when the task would finish there, and how long it would run.
    free_us
        When those before it in the queue leave the GPU free.
    until_us
        Until then its inputs, if they leave, are there no later than that, whatever their way.
    costs
        Run time plus TD of the task on every GPU.
    """

    gpu: int
    finish_us: int
    run_us: int
    free_us: int
    until_us: int
    costs: memoryview


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
        self._server = site.gpu_server[0]
        self._costs = CostRows(self._work_out_costs)
        self._line: list[tuple[int, int]] = []
        self._place_in_line: dict[int, tuple[int, int]] = {}
        self._free_at = np.zeros(site.n_gpus, np.int64)
        self._choices: dict[int, _Choice] = {}
        # GPUs that may have become better for some who wait.
        self._better: set[int] = set()
        # Whether somebody has no choice, or GPUs are free at other times; and until when all choices stand otherwise:
        # no longer than until their GPUs should fall free, so that it is seen if one does not.
        self._news, self._until_us = True, 0

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
        self._news = True
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

    def in_line(self) -> list[int]:
        """Return who waits, in order."""
        return [task for _, task in self._line]

    def offer(self) -> None:
        """Let every task choose the GPU on which it would finish first."""
        now, idle, choices = self.site.now, self.idle, self._choices
        moved = self._see_costs()
        better, self._better = self._better | moved, set()
        if not better and self._all_wait():
            return
        free = np.maximum(self._free_at, now)
        free_of = free.data
        in_line = tuple(self._line)
        for position, (_, task) in enumerate(in_line):
            # Nobody is left to take one; who has not chosen now has to do it from the beginning.
            if not idle:
                for _, behind in in_line[position:]:
                    choices.pop(behind, None)
                break
            if task not in self.ready_us:  # another one took it along
                continue
            last = choices.get(task)
            if last is not None:
                gpu, finish_us, run_us, free_us, until_us, costs = last
                if free_of[gpu] == free_us and now <= until_us and gpu not in idle and gpu not in moved:
                    for other in better:
                        if free_of[other] + costs[other] <= finish_us:
                            break
                    else:
                        # It waits for that GPU: who comes behind must not count on it.
                        free_of[gpu] = free_us + run_us
                        continue
                del choices[task]
            gpu = self._take_or_wait(task, self._choose(task, last, free, better), free)
            if last is not None and gpu != last.gpu:
                better.add(last.gpu)
            better |= self._better  # nobody waits for these GPUs any more whom it took along
        self._news = len(choices) < len(self._line)
        if now > self._until_us:
            self._until_us = min((choice.until_us for choice in choices.values()), default=now)

    def _all_wait(self) -> bool:
        """Say whether all choices stand, and none is idle."""
        if self._news or self.site.now > self._until_us:
            return False
        return all(choice.gpu not in self.idle for choice in self._choices.values())

    def _see_costs(self) -> set[int]:
        """Take in what is seen of memories; return the GPUs where that changed."""
        view, needs, runs = self.view, self.site.needs, self.runs.row
        view.advance()
        # Where GPUs go, it depends on the time whether a task still ends before.
        if not self.site.stays:
            self._costs.clear()
        moved = view.moved
        if moved:
            view.moved = set()
            for template, costs in self._costs.items():
                for gpu in moved:
                    costs[gpu] = runs[template].item(gpu) + view.load_cost(gpu, needs[template], self._server)
        return moved

    def _work_out_costs(self, template: int) -> Row:
        """Return the run time of a template plus TD, per GPU."""
        costs = self.runs.row[template].copy()
        self.view.add_load_costs(costs, self.site.needs[template], self._server, out=costs)
        return costs

    def _take_or_wait(self, task: int, choice: _Choice, free: Row) -> int:
        """Bind a task if the GPU of its choice is idle, or have it counted on by those behind it; return that GPU."""
        gpu = choice.gpu
        if choice.finish_us >= UNREACHABLE:  # no GPU that is there ends it in time
            return NOWHERE
        if gpu in self.idle:
            free[gpu] = self._free_at[gpu] = choice.finish_us
            self.bind_batch(task, gpu)
            return gpu
        free[gpu] = choice.free_us + choice.run_us
        if self.site.stays:
            self._choices[task] = choice
            self._until_us = min(self._until_us, choice.until_us)
        return gpu

    def _choose(self, task: int, last: _Choice | None, free: Row, better: set[int]) -> _Choice:
        """Return the choice of a task."""
        costs = self._costs[self.site.template[task]]
        # Others have become no better, but for those that are named: if its own has not become worse, only these count.
        if last is not None and free.item(last.gpu) <= last.free_us:
            again = self._choice(task, last.gpu, free, costs)
            if again.finish_us <= last.finish_us:
                return self._best(task, again, free, costs, better)
        finish = self.inputs_at(task, free) + costs
        gpu = least(finish, self.favoured(task))
        return self._choice(task, gpu, free, costs, finish.item(gpu))

    def _best(self, task: int, best: _Choice, free: Row, costs: Row, better: set[int]) -> _Choice:
        """Return the best of a choice and GPUs that may have become better."""
        for gpu in better:
            if free.item(gpu) + costs.item(gpu) <= best.finish_us and gpu != best.gpu:
                other, favoured = self._choice(task, gpu, free, costs), self.favoured(task)
                order = other.finish_us, gpu not in favoured, gpu
                if order < (best.finish_us, best.gpu not in favoured, best.gpu):
                    best = other
        return best

    def _choice(self, task: int, gpu: int, free: Row, costs: Row, finish_us: int | None = None) -> _Choice:
        """Return what the choice of a GPU would be; `finish_us`, if that is known already."""
        site, free_us = self.site, free.item(gpu)
        if finish_us is None:
            finish_us = max(free_us, site.now + site.inputs_after(task, gpu)) + costs.item(gpu)
        until_us = free_us - self.longest_way_us[site.template[task]]
        return _Choice(gpu, finish_us, site.run_time(task, gpu), free_us, until_us, costs.data)

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
        self._see_free(gpu, self.site.now)
        super().came(gpu)

    def _see_free(self, gpu: int, free_us: int) -> None:
        """Note when a GPU will be free."""
        before_us = self._free_at.item(gpu)
        self._news |= before_us != free_us
        if free_us < before_us:
            self._better.add(gpu)
        self._free_at[gpu] = free_us

    def started(self, task: int, gpu: int) -> None:
        """Take note of what is left, and of when the GPU will be free."""
        super().started(task, gpu)
        self._see_free(gpu, self.site.run_end_us[gpu])
        self._work.started(task)
        self._move(self.site.job[task])
