"""The published view: what a server knows of every worker when it decides.

Each worker publishes its load and its resident models at every multiple of a period. The view of the others is
their state after all events before the latest multiple; the own rows are fresh. Changes go into a log that is
applied when a boundary passes, so that reading costs a few array operations over the workers.
"""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from executor.site import Site

Row = NDArray[np.int64]


class PublishedView:
    """Loads and load costs of all workers, stale for others, fresh for oneself.

    Parameters
    ----------
    site
        For the memories of the workers.
    period_us
        0: everything is always fresh.

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
    """

    def __init__(self, site: Site, period_us: int) -> None:
        self._site = site
        self._period_us = period_us
        self.boundary_us = 0
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
        self._queue_log: deque[tuple[int, int, int, int]] = deque()
        self._memory_log: deque[tuple[int, int, list[int]]] = deque()
        self._waits = np.zeros(site.n_gpus, np.int64)
        self._shift = np.zeros((), np.int64)
        self._longest_log = 100 + 4 * site.n_gpus

    def _load_costs(self, gpu: int) -> list[int]:
        """Return, per model: 0 if it is there, its load time if it fits, twice that if something must be evicted."""
        site, memory, of_class = self._site, self._site.memory[gpu], self._site.gpu_class[gpu]
        return [
            0 if model in memory.residents else max(0, row[of_class]) * (1 if memory.has_room(model) else 2)
            for model, row in enumerate(site.load_us)
        ]

    def note_queue(self, gpu: int) -> None:
        """Publish the load of a worker at the next boundary."""
        self._queue_log.append((self._site.now, gpu, self.queued_us[gpu], self.busy_until_us[gpu]))
        if len(self._queue_log) > self._longest_log:
            self.advance()  # nobody may ever read the view, and the log must not grow with the trace

    def note_memory(self, gpu: int) -> None:
        """Publish the resident models of a worker at the next boundary."""
        self._costs[gpu] = self._load_costs(gpu)
        self._memory_log.append((self._site.now, gpu, self._costs[gpu]))

    def advance(self) -> None:
        """Take in what was published up to now."""
        now = self._site.now
        self.boundary_us = now - now % self._period_us if self._period_us else now
        before = self.boundary_us if self._period_us else now + 1
        log, seen_queued, seen_busy = self._queue_log, self._queued_of, self._busy_of
        while log and log[0][0] < before:
            _, gpu, queued, busy = log.popleft()
            seen_queued[gpu] = queued
            seen_busy[gpu] = busy
        while self._memory_log and self._memory_log[0][0] < before:
            _, gpu, costs = self._memory_log.popleft()
            self._seen_costs[:, gpu] = costs
            self._seen_of[gpu] = costs

    def wait(self, gpu: int, server: int) -> int:
        """Return the wait of one worker, seen from a server, in microseconds; after `advance`."""
        if self._site.gpu_server[gpu] == server:
            return self.queued_us[gpu] + max(0, self.busy_until_us[gpu] - self._site.now)
        return self._queued_of[gpu] + max(0, self._busy_of[gpu] - self.boundary_us)

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
        if from_us != self.boundary_us:
            shift[()] = from_us - self.boundary_us
            waits += shift
        for gpu in self.gpus_of[server]:
            busy_us = self.busy_until_us[gpu] - now
            waits[gpu] = from_us + self.queued_us[gpu] + (busy_us if busy_us > 0 else 0)
        return waits

    def add_load_costs(self, row: Row, models: tuple[int, ...], server: int, out: Row) -> None:
        """Add TD, the time to bring missing models in, to a row over the workers; several models add up."""
        for model in models:
            np.add(row, self._seen_cost_of[model], out=out)
            row = out
        for gpu in self.gpus_of[server]:
            seen, fresh = self._seen_of[gpu], self._costs[gpu]
            if seen is not fresh:
                out[gpu] += sum(fresh[model] - seen[model] for model in models)
