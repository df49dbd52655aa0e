"""Rows over the workers: run times and transfers as arrays, so that a decision is a few array operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from executor.policies.view import Row
from executor.site import Site
from models import NEVER

UNREACHABLE = 1 << 60
"""Stands in rows for "not there": above every time that can add up."""

T = TypeVar("T")


class CostRows(dict[int, T]):
    """Rows by number, each worked out when it is first asked for: workflows become known with the jobs.

    >>> squares = CostRows(lambda number: number * number)
    >>> squares[3], dict(squares)
    (9, {3: 9})
    """

    def __init__(self, work_out: Callable[[int], T]) -> None:
        super().__init__()
        self._work_out = work_out

    def __missing__(self, number: int) -> T:
        """Work a row out and keep it."""
        row = self[number] = self._work_out(number)
        return row


def least(row: Row, favoured: Sequence[int]) -> int:
    """Return the worker of the least value; among equals the first of the favoured ones, then the lowest.

    Every policy that picks by argmin favours the GPUs of the job's ingress server.
    """
    lowest = row.argmin()
    value = row.item(lowest)
    for worker in favoured:
        if row.item(worker) == value:
            return worker
    return int(lowest)


class _PresentRows(CostRows[Row]):
    """Rows over the workers that are there and could end in time: worked out anew, for that changes with time."""

    def __init__(self, site: Site, work_out: Callable[[int], Row]) -> None:
        super().__init__(work_out)
        self._site = site

    def __getitem__(self, template: int) -> Row:
        """Return the row, UNREACHABLE for workers that are away or go too soon."""
        able = super().__getitem__(template)
        there = [value < UNREACHABLE and self._site.takes(template, gpu) for gpu, value in enumerate(able.tolist())]
        return np.where(there, able, UNREACHABLE)


class RunRows:
    """Run times per template as rows over the workers.

    Attributes
    ----------
    row
        Per template: run time by worker, UNREACHABLE where it cannot run.
    uniform
        Per template: the run time if it is the same on every worker, else None.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        self._of_worker = np.array(site.gpu_class)
        self.row: CostRows[Row] = CostRows(self._row) if site.stays else _PresentRows(site, self._row)
        self.uniform: CostRows[int | None] = CostRows(self._uniform)

    def _row(self, template: int) -> Row:
        times = np.array(self._site.run_us[template], np.int64)
        times[times == NEVER] = UNREACHABLE
        by_worker: Row = times[self._of_worker]
        by_worker[list(self._site.lost)] = UNREACHABLE
        return by_worker

    def add_to(self, row: Row, template: int) -> None:
        """Add run times, less what they have in common, to a row by which workers are compared."""
        if self.uniform[template] is None:
            row += self.row[template]

    def _uniform(self, template: int) -> int | None:
        times = set(self._site.run_us[template])
        return None if self._site.lost or not self._site.stays or len(times) > 1 or NEVER in times else times.pop()


def load_rows(site: Site) -> list[Row]:
    """Return, per model, its load times as a row over the workers; 0 where it may not be."""
    of_worker = np.array(site.gpu_class)
    return [np.maximum(np.array(times, np.int64), 0)[of_worker] for times in site.load_us]


class InputRows:
    """What the input bytes of tasks without predecessors cost, as rows over the workers."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._servers = np.array(site.gpu_server)
        self._rows: dict[tuple[int, int], Row] = {}

    def of(self, task: int) -> Row | None:
        """Return how long the input bytes of a task take to each worker; None where they cost nothing."""
        site = self._site
        template = site.template[task]
        ingress = site.jobs[site.job[task]].ingress if site.input_us[template] else None
        if ingress is None:
            return None
        if (template, ingress) not in self._rows:
            self._rows[template, ingress] = np.where(self._servers == ingress, 0, site.input_us[template])
        return self._rows[template, ingress]


class TransferRows:
    """Transfer times per edge as rows over the receiving workers.

    Parameters
    ----------
    site
        For the network, the GPU classes and the servers.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        self._of_worker = np.array(site.gpu_class)
        self._class = site.gpu_class
        self._far: CostRows[list[Row]] = CostRows(lambda edge: self._by_source(edge, 0))
        self._near: CostRows[list[Row]] = CostRows(lambda edge: self._by_source(edge, 1))
        servers = np.array(site.gpu_server)
        alike = site.cluster.network.within == site.cluster.network.between
        self._neighbours = [
            None if alike or (servers == server).sum() == 1 else np.flatnonzero(servers == server)
            for server in site.gpu_server
        ]
        self._alike = all(neighbours is None for neighbours in self._neighbours)
        self._uniform: CostRows[list[int | None]] = CostRows(self._uniform_by_source)
        self._sent = np.zeros((), np.int64)
        self._arrival = np.zeros(site.n_gpus, np.int64)

    def _uniform_by_source(self, edge: int) -> list[int | None]:
        """Return, per class of the sender, the transfer time to any other worker; None if they differ."""
        return [int(row[0]) if self._alike and (row == row[0]).all() else None for row in self._far[edge]]

    def _by_source(self, edge: int, same_server: int) -> list[Row]:
        """Return, per class of the sender, when an output of time 0 reaches each worker."""
        table = self._site.transfer_us[edge]
        return [np.array(targets, np.int64)[self._of_worker, same_server] for targets in table]

    def arrive(self, edge: int, source: int, sent_us: int, out: Row) -> None:
        """Write when an output that leaves one worker reaches each worker."""
        of_class = self._class[source]
        np.add(self._far[edge][of_class], sent_us, out=out)
        neighbours = self._neighbours[source]
        if neighbours is not None:
            out[neighbours] = self._near[edge][of_class][neighbours] + sent_us
        out[source] = sent_us

    def wait_for(self, free: Row, edge: int, source: int, sent_us: int, out: Row | None = None) -> Row:
        """Return when each worker is free and has an output that leaves one worker, in a new row or in `out`."""
        here, uniform = free.item(source), self._uniform[edge][self._class[source]]
        if uniform is None:
            self.arrive(edge, source, sent_us, self._arrival)
            both: Row = np.maximum(free, self._arrival, out=out)
        else:
            self._sent[()] = sent_us + uniform
            both = np.maximum(free, self._sent, out=out)
        both[source] = max(here, sent_us)
        return both

    def add_to(self, row: Row, edge: int, source: int) -> None:
        """Add transfer times from one worker, less what they have in common, to a row by which workers are compared."""
        uniform = self._uniform[edge][self._class[source]]
        if uniform is None:
            self.arrive(edge, source, 0, self._arrival)
            row += self._arrival
        else:
            row[source] -= uniform
