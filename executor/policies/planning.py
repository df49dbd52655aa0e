"""Planning of a whole job on its arrival, as Compass and the HEFT of its paper do it: append only, nothing reserved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from executor.policies.costs import UNREACHABLE, InputRows, RunRows, TransferRows, least
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
        self._orders: dict[int, list[int]] = {}
        self._start = np.zeros(site.n_gpus, np.int64)

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
        site, start = self._site, self._start
        workflow, tasks = site.job_workflow[job], site.job_tasks[job]
        first = site.template_first[workflow]
        if workflow not in self._orders:
            self._orders[workflow] = rank_order(site, workflow, self._mean_transfers)
        order = self._orders[workflow]
        where, finish = [0] * len(order), [0] * len(order)
        wait_for, uniform, dropped = self.transfers.wait_for, self.runs.uniform, site.dropped
        for task in order:
            template = first + task
            if dropped and tasks[task] in dropped:
                continue
            earliest = available
            for offset, edge in site.needed_inputs(tasks[task]) if dropped else site.inputs[template]:
                source = task + offset
                earliest = wait_for(earliest, edge, where[source], finish[source], start)
            given = self._inputs.of(tasks[task]) if site.input_us[template] else None
            if given is not None:
                earliest = np.maximum(earliest, given + site.now, out=start)
            needs = site.needs[template]
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
            share, likelihood = site.share[template], site.likelihood[template]
            busy_us = end_us
            if share < WHOLE:
                ran_us = site.run_us[template][site.gpu_class[worker]]
                busy_us -= ran_us - ran_us * share // WHOLE
            if likelihood < 1:
                before = available.item(worker)
                busy_us = before + round(likelihood * (busy_us - before))
            available[worker] = busy_us
        return [(task, gpu) for task, gpu in zip(tasks, where, strict=True) if task not in dropped]
