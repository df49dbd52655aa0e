"""Planning of a whole job on its arrival, as Compass and the HEFT of its paper do it: append only, nothing reserved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from executor.policies.costs import UNREACHABLE, CostRows, InputRows, RunRows, TransferRows, least
from executor.policies.ranks import MeanTransfers, rank_order
from executor.policies.view import Row
from executor.site import Site
from models.workload import WHOLE


class LoadCosts(Protocol):
    """What the planner is told of loads."""

    def add(self, row: Row, needs: tuple[int, ...], out: Row) -> None:
        """Add the time to bring models in, TD, to a row over the workers; needs are not empty."""

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
        busy_us = end_us - (ran_us - ran_us * site.share[template] // WHOLE)
        return before_us + round(site.likelihood[template] * (busy_us - before_us))

    def plan(self, job: int, available: Row, costs: LoadCosts | None, ingress: Sequence[int]) -> list[tuple[int, int]]:
        """Return the tasks of a job, in their order, each with its worker.

        Tasks of a branch that the job may take are placed as well; they keep a worker busy as long as they are likely.

        Parameters
        ----------
        available
            When each worker will be available; changed by the planning. Shape [workers].
        costs
            Of loads; None: they are ignored.
        ingress
            The workers of the server where the job arrives.
        """
        site, start, tasks = self._site, self._start, self._site.job_tasks[job]
        steps = self._steps[site.job_workflow[job]]
        where, finish = [0] * len(steps), [0] * len(steps)
        wait_for, uniform, dropped = self.transfers.wait_for, self.runs.uniform, site.dropped
        for task, template, inputs, brought, needs, partly in steps:
            if dropped and tasks[task] in dropped:
                continue
            earliest = available
            for offset, edge in site.needed_inputs(tasks[task]) if dropped else inputs:
                source = task + offset
                earliest = wait_for(earliest, edge, where[source], finish[source], start)
            given = self._inputs.of(tasks[task]) if brought else None
            if given is not None:
                earliest = np.maximum(earliest, given + site.now, out=start)
            if needs and costs is not None:
                costs.add(earliest, needs, start)
                earliest = start
            run_us = uniform[template]
            if run_us is None:
                earliest = np.add(earliest, self.runs.row[template], out=start)
            worker = least(earliest, ingress)
            end_us = earliest.item(worker) + (run_us or 0)
            if end_us >= UNREACHABLE:  # no GPU is there for it: it is placed when it can run
                end_us = site.now
            if needs and costs is not None:
                costs.placed(worker, needs)
            where[task], finish[task] = worker, end_us
            available[worker] = self._free_us(template, worker, available, end_us) if partly else end_us
        placed = list(zip(tasks, where, strict=True))
        return [(task, gpu) for task, gpu in placed if task not in dropped] if dropped else placed
