"""Planning of a whole job on its arrival, as Compass and the HEFT of its paper do it: append only, nothing reserved.

Tasks are placed by their upward ranks, which other policies order jobs by, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from graphlib import TopologicalSorter
from heapq import heappop, heappush
from itertools import product
from typing import NamedTuple, Protocol

import numpy as np

from truenorth.executor.policies.view import UNREACHABLE, CostRows, InputRows, Row, RunRows, TransferRows, least
from truenorth.executor.site import Site
from truenorth.models import NEVER, Workflow
from truenorth.models.workload import WHOLE, Branch


class LoadCosts(Protocol):
    """What the planner is told of loads."""

    def add_load_costs(self, row: Row, needs: tuple[int, ...], server: int, out: Row) -> None:
        """Add the time to bring models in, TD, as a server sees it, to a row over the workers; needs are not empty."""

    def placed(self, worker: int, needs: tuple[int, ...]) -> None:
        """Take note that a task with these needs goes to a worker."""


class _TaskPlacing(NamedTuple):
    """A task of a workflow, and what placing it takes.

    Parameters
    ----------
    task, template
        Its position in the workflow, and its number among all templates.
    inputs
        Pairs (offset of the predecessor, edge).
    brought
        Whether it has input bytes.
    needs
        Its models.
    partly
        Whether it takes a share of a worker, or may not run at all.
    """

    task: int
    template: int
    inputs: tuple[tuple[int, int], ...]
    brought: bool
    needs: tuple[int, ...]
    partly: bool


class JobPlanner:
    """Places the tasks of a job in the order of their ranks, each on the worker where it starts first.

    start(t, w) = max(available(w), arrival of the inputs at w) + TD(t, w); with several kinds of workers the earliest
    finish start + R(t, w) counts in place of the earliest start. Equal workers: those of the ingress server, then the
    lowest index.

    Parameters
    ----------
    site
        For the workflows and the tables.

    Attributes
    ----------
    runs, transfers
        Rows over the workers.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        self.runs = RunRows(site)
        self.transfers = TransferRows(site)
        self._inputs = InputRows(site)
        self._mean_transfers = MeanTransfers(site)
        self._steps: CostRows[list[_TaskPlacing]] = CostRows(self._list_steps)
        self._start = np.zeros(site.n_gpus, np.int64)

    def _list_steps(self, workflow: int) -> list[_TaskPlacing]:
        """Return the tasks of a workflow in the order in which they are placed."""
        site, first = self._site, self._site.template_first[workflow]
        return [
            _TaskPlacing(
                task,
                first + task,
                site.inputs[first + task],
                site.input_us[first + task] > 0,
                site.needs[first + task],
                site.share[first + task] < WHOLE or site.likelihood[first + task] < 1,
            )
            for task in rank_order(site, workflow, self._mean_transfers)
        ]

    def _free_us(self, template: int, worker: int, available: Row, end_us: int) -> int:
        """Return until when a task that takes a share of a worker, or may not run at all, counts as keeping it busy."""
        site, before_us = self._site, available.item(worker)
        ran_us = site.run_us[template][site.gpu_class[worker]]
        # A task of share s keeps the worker busy for s times its run.
        busy_us = end_us - (ran_us - ran_us * site.share[template] // WHOLE)
        return before_us + round(site.likelihood[template] * (busy_us - before_us))

    def plan(
        self, job: int, available: Row, now_us: int, costs: LoadCosts | None, ingress: Sequence[int]
    ) -> list[tuple[int, int]]:
        """Return the tasks of a job, in their order, each with its worker.

        Tasks of a branch that the job may take are placed as well; they keep a worker busy as long as they are likely.

        Parameters
        ----------
        available
            When each worker will be available; changed by the planning. Shape [workers].
        now_us
            What the clock shows by which they are.
        costs
            Of loads; None: they are ignored.
        ingress
            The workers of the server where the job arrives.
        """
        site, start, tasks = self._site, self._start, self._site.job_tasks[job]
        steps, server = self._steps[site.job_workflow[job]], site.job_ingress[job]
        where, finish = [0] * len(steps), [0] * len(steps)
        wait_for, uniform, dropped, delay_us = self.transfers.wait_for, self.runs.uniform, site.dropped, site.delay_us
        for task, template, inputs, brought, needs, partly in steps:
            # Its job takes another branch.
            if dropped and tasks[task] in dropped:
                continue
            # Not written to: rows are made in `start`.
            earliest = available
            for offset, edge in site.needed_inputs(tasks[task]) if dropped else inputs:
                source = task + offset
                earliest = wait_for(earliest, edge, where[source], finish[source] + delay_us[edge], start)
            given = self._inputs.of(tasks[task]) if brought else None
            if given is not None:
                earliest = np.maximum(earliest, given + now_us, out=start)
            if needs and costs is not None:
                costs.add_load_costs(earliest, needs, server, start)
                earliest = start
            # One number where all workers are as fast: no row needs to be added.
            run_us = uniform[template]
            if run_us is None:
                earliest = np.add(earliest, self.runs.row[template], out=start)
            worker = least(earliest, ingress)
            end_us = earliest.item(worker) + (run_us or 0)
            if end_us >= UNREACHABLE:  # no GPU is there for it: it is placed when it can run
                end_us = now_us
            if needs and costs is not None:
                costs.placed(worker, needs)
            where[task], finish[task] = worker, end_us
            available[worker] = self._free_us(template, worker, available, end_us) if partly else end_us
        placed = list(zip(tasks, where, strict=True))
        return [(task, gpu) for task, gpu in placed if task not in dropped] if dropped else placed


def rank_order(site: Site, workflow: int, transfers: MeanTransfers) -> list[int]:
    """Return the tasks of a workflow by decreasing rank, equal ranks in task order.

    rank(t) = R(t) + max over successors s of (delay(t, s) + transfer(t, s) + rank(s)), where R(t) is the mean run time
    over the eligible workers and transfer the mean over the pairs of different workers; exact. Where branches follow,
    the expectation over them takes the place of the maximum.

    Returns
    -------
    list of int
        Positions in the workflow; every task stands before its successors, since run times are positive.
    """
    first, asked = site.template_first[workflow], site.workflows[workflow]
    branch_of = {asked.position[name]: branch for branch in asked.branches for name in branch.tasks}
    rank: dict[int, Fraction] = {}
    for position in reversed(asked.topological):
        certain = Fraction(0)
        on: dict[Branch, Fraction] = {}
        for offset, edge in site.outputs[first + position]:
            between_us = site.delay_us[edge] + transfers.of(edge)
            tail, branch = between_us + rank[position + offset], branch_of.get(position + offset)
            if branch is None or position in branch_of:  # inside a branch its own tasks are certain
                certain = max(certain, tail)
            else:
                on[branch] = max(on.get(branch, tail), tail)
        more = sum((branch.probability * max(Fraction(0), on[branch] - certain) for branch in on), Fraction(0))
        rank[position] = mean_run(site, site.run_us[first + position]) + certain + more
    return _by_rank(asked, rank)


def _by_rank(workflow: Workflow, rank: dict[int, Fraction]) -> list[int]:
    """Return the tasks by decreasing rank, each behind its predecessors: an expected rank may be below a follower's."""
    sorter = TopologicalSorter(
        {index: [workflow.position[edge.source] for edge in task.inputs] for index, task in enumerate(workflow.tasks)}
    )
    sorter.prepare()
    order: list[int] = []
    ready: list[tuple[Fraction, int]] = []
    while sorter.is_active():
        for position in sorter.get_ready():
            heappush(ready, (-rank[position], position))
        order.append(heappop(ready)[1])
        sorter.done(order[-1])
    return order


def mean_run(site: Site, by_class: Sequence[int]) -> Fraction:
    """Return the mean over the eligible workers of run times given by GPU class."""
    members = Counter(site.gpu_class)
    eligible = [(run_us, members[c]) for c, run_us in enumerate(by_class) if run_us != NEVER]
    return Fraction(sum(run_us * count for run_us, count in eligible), sum(count for _, count in eligible))


class MeanTransfers:
    """Mean transfer times over all ordered pairs of different workers, counted by GPU class and server."""

    def __init__(self, site: Site) -> None:
        self._table = site.transfer_us
        members = Counter(site.gpu_class)
        self._all = {(a, b): members[a] * (members[b] - (a == b)) for a in members for b in members}
        self._near: Counter[tuple[int, int]] = Counter()
        on_server: dict[int, Counter[int]] = {}
        for server, of_class in zip(site.gpu_server, site.gpu_class, strict=True):
            on_server.setdefault(server, Counter())[of_class] += 1
        for here in on_server.values():
            for a, b in product(here, here):
                self._near[a, b] += here[a] * (here[b] - (a == b))

    def of(self, edge: int) -> Fraction:
        """Return the mean for an edge; zero on a single worker."""
        total = 0
        for (source, target), count in self._all.items():
            far, near = self._table[edge][source][target]
            total += far * (count - self._near[source, target]) + near * self._near[source, target]
        return Fraction(total, max(1, sum(self._all.values())))
