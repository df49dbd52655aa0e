"""The published view: what a server knows of every worker when it decides, and what it would pay there.

Each worker publishes its load and its resident models at every multiple of a period. The view of the others is
their state after all events before the latest multiple, and what the server has itself decided since; the own rows are
fresh. What has changed is copied when a
boundary passes, so that reading costs a few array operations over the workers. Run times and transfers are arrays over
the workers, too, so that a decision is a few array operations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from truenorth.executor.policies.decided import OwnDecisions
from truenorth.executor.site import Site
from truenorth.models import NEVER

Row = NDArray[np.int64]


class PublishedView:
    """Loads and load costs of all workers, stale for others, fresh for oneself.

    Parameters
    ----------
    site
        For the memories of the workers.
    period_us
        0: everything is always fresh.
    own
        What servers have themselves decided and is not published yet; None: they do not remember it.

    Attributes
    ----------
    queued_us
        Per GPU, now: run times of the tasks in its queue, and of one whose models are being loaded.
    busy_until_us
        Per GPU, now: when its running task should end.
    gpus_of
        Per server: its GPUs.
    boundary_us
        When what is seen of the others was published.
    moved
        GPUs whose load costs may be seen otherwise since somebody last emptied this.
    """

    def __init__(self, site: Site, period_us: int, own: OwnDecisions | None) -> None:
        self._site = site
        self._period_us = period_us
        self._own = own
        self.boundary_us = 0
        self.moved: set[int] = set()
        self.queued_us = [0] * site.n_gpus
        self.busy_until_us = [0] * site.n_gpus
        self.gpus_of: dict[int, list[int]] = {}
        for gpu, server in enumerate(site.gpu_server):
            self.gpus_of.setdefault(server, []).append(gpu)
        self._costs = [self._load_costs(gpu) for gpu in range(site.n_gpus)]
        self._seen_queued = np.zeros(site.n_gpus, np.int64)
        self._seen_busy = np.zeros(site.n_gpus, np.int64)
        self._queued_of = self._seen_queued.data  # numpy takes twice as long over a single entry
        self._busy_of = self._seen_busy.data
        self._seen_costs: Row = np.array(self._costs, np.int64).reshape(site.n_gpus, len(site.models)).T.copy()
        self._seen_cost_of = list(self._seen_costs)
        self._seen_of = list(self._costs)
        # Whose load and whose models have changed since the latest boundary, and when the next one is seen to pass.
        self._loaded: set[int] = set()
        self._filled: set[int] = set()
        self._next_us = 0
        self._waits = np.zeros(site.n_gpus, np.int64)
        self._shift = np.zeros((), np.int64)

    def _load_costs(self, gpu: int) -> list[int]:
        """Return, per model: 0 if it is there, its load time if it fits, twice that if something must be evicted."""
        site, memory, of_class = self._site, self._site.memory[gpu], self._site.gpu_class[gpu]
        return [
            0 if model in memory.residents else max(0, row[of_class]) * (1 if memory.has_room(model) else 2)
            for model, row in enumerate(site.load_us)
        ]

    def add_work(self, gpu: int, work_us: int) -> None:
        """Have more, or less, work in the queue of a worker."""
        if self._site.now >= self._next_us:
            self.advance()
        self._loaded.add(gpu)
        self.queued_us[gpu] += work_us

    def begin_work(self, gpu: int, work_us: int, until_us: int) -> None:
        """Take work out of the queue of a worker, which is busy until a time."""
        if self._site.now >= self._next_us:
            self.advance()
        self._loaded.add(gpu)
        self.queued_us[gpu] -= work_us
        self.busy_until_us[gpu] = until_us

    def note_memory(self, gpu: int) -> None:
        """Look at the models of a worker anew."""
        if self._site.now >= self._next_us:
            self.advance()
        self._filled.add(gpu)
        self._costs[gpu] = self._load_costs(gpu)
        self.moved.add(gpu)

    def advance(self) -> None:
        """Take in what was published up to now.

        Called before anything changes as well: what is noted as changed has changed in one period, and stands as the
        next boundary finds it.
        """
        now = self._site.now
        if now < self._next_us:
            return
        self.boundary_us = now - now % self._period_us if self._period_us else now
        # Without a period what changes at this very instant is seen, too: no time is too early to look again.
        self._next_us = self.boundary_us + self._period_us if self._period_us else 0
        queued_us, busy_us, seen_queued, seen_busy = self.queued_us, self.busy_until_us, self._queued_of, self._busy_of
        for gpu in self._loaded:
            seen_queued[gpu], seen_busy[gpu] = queued_us[gpu], busy_us[gpu]
        self._loaded.clear()
        if self._own is not None:
            self._own.publish()
        while self._filled:
            gpu = self._filled.pop()
            self._seen_costs[:, gpu] = self._seen_of[gpu] = self._costs[gpu]
            self.moved.add(gpu)

    def wait(self, gpu: int, server: int) -> int:
        """Return the wait of one worker, seen from a server, in microseconds; after `advance`."""
        if self._site.gpu_server[gpu] == server:
            queued_us, busy_us = self.queued_us[gpu], self.busy_until_us[gpu] - self._site.now
        else:
            queued_us, busy_us = self._queued_of[gpu], self._busy_of[gpu] - self.boundary_us
            if self._own is not None:
                queued_us += self._own.queued[server].item(gpu)
        if self._own is not None:
            queued_us += self._own.coming[server].item(gpu)
        return queued_us + busy_us if busy_us > 0 else queued_us

    def waits(self, server: int, from_us: int = 0) -> Row:
        """Return the waits of all workers, seen from a server; after `advance`. The next call reuses the array.

        Parameters
        ----------
        from_us
            Is added: `now` tells until when each worker is taken, and `boundary_us`, at the least cost, who waits less.
        """
        waits, shift, now = self._waits, self._shift, self._site.now
        shift[()] = self.boundary_us  # an array of no dimension: numpy takes twice as long over a plain number
        np.maximum(self._seen_busy, shift, out=waits)
        waits += self._seen_queued
        if self._own is not None:
            waits += self._own.queued[server]
        if from_us != self.boundary_us:
            shift[()] = from_us - self.boundary_us
            waits += shift
        for gpu in self.gpus_of[server]:
            busy_us = self.busy_until_us[gpu] - now
            waits[gpu] = from_us + self.queued_us[gpu] + (busy_us if busy_us > 0 else 0)
        if self._own is not None:
            waits += self._own.coming[server]
        return waits

    def add_load_costs(self, row: Row, models: tuple[int, ...], server: int, out: Row) -> None:
        """Add TD, the time to bring missing models in, to a row over the workers; several models add up."""
        for model in models:
            np.add(row, self._seen_cost_of[model], out=out)
            row = out
        # What has changed since the boundary is seen on the own server alone.
        for gpu in self._filled.intersection(self.gpus_of[server]) if self._filled else ():
            seen, fresh = self._seen_of[gpu], self._costs[gpu]
            out[gpu] += sum(fresh[model] - seen[model] for model in models)

    def placed(self, worker: int, needs: tuple[int, ...]) -> None:
        """Change nothing: while a job is planned nothing is reserved."""

    def load_cost(self, gpu: int, models: tuple[int, ...], server: int) -> int:
        """Return TD on one worker, as `add_load_costs` adds it."""
        costs = self._costs[gpu] if self._site.gpu_server[gpu] == server else self._seen_of[gpu]
        return sum(costs[model] for model in models)


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
        here_us, uniform = free.item(source), self._uniform[edge][self._class[source]]
        if uniform is None:
            self.arrive(edge, source, sent_us, self._arrival)
            both: Row = np.maximum(free, self._arrival, out=out)
        else:
            self._sent[()] = sent_us + uniform
            both = np.maximum(free, self._sent, out=out)
        both[source] = here_us if here_us > sent_us else sent_us
        return both

    def add_to(self, row: Row, edge: int, source: int) -> None:
        """Add transfer times from one worker, less what they have in common, to a row by which workers are compared."""
        uniform = self._uniform[edge][self._class[source]]
        if uniform is None:
            self.arrive(edge, source, 0, self._arrival)
            row += self._arrival
        else:
            row[source] -= uniform
