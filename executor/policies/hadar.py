"""Hadar (IPDPS 2024, arXiv 2503.10918; no code is published): posted prices on booked time and memory.

There a job buys the cheapest schedule if that is worth its price, and is refused otherwise; here nobody is refused, so
prices only steer: to kinds where the run is short for what it costs, and away from what is nearly booked up.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import ClassVar

import numpy as np

from executor.policies.bookings import Bookings
from executor.policies.costs import UNREACHABLE, InputRows, RunRows, TransferRows, least, load_rows
from executor.policies.options import QueueOptions, count_from_1, option, positive_duration
from executor.policies.queueing import QueuePolicy
from executor.policies.ranks import MeanTransfers, rank_order
from executor.policies.view import Row
from executor.site import Site

_JOBS = 100
"""How many of the latest jobs set the range of prices."""
_FIRST = (0.1, 10.0)
"""The first range, in parts of the catalogue's mean."""
_NEAR = (0.04, 0.2, 1.0)
"""Parts of the windows that are looked at one after the other, as long as what lies beyond could be cheaper."""
_US_PER_S = 1_000_000


@dataclass(frozen=True, slots=True)
class HadarOptions:
    """Readings of the prices.

    Parameters
    ----------
    window, windows
        Time is booked in so many windows of this length, in microseconds.
    """

    window: int = option(100_000, positive_duration)
    windows: int = option(100, count_from_1(10_000))


class Hadar(QueuePolicy):
    """A released job books, task by task in rank order, the GPU and start of least weight x finish + price.

    Compute and memory of every GPU are booked in windows. A second of a window of which x is booked costs L (U / L)^x,
    the memory times the part that the task's models take. U and L are the most and least of weight x delay avoided per
    second of work among the last jobs: the delay avoided is how much later the least attractive GPU could have started
    its tasks. A missing model is loaded before the run. Equal offers: the GPUs of the ingress server, then the lowest
    index, then the earliest start. A GPU runs its tasks strictly in the order of their booked starts, none of which
    can wait for a later one.
    """

    Options: ClassVar[type[object]] = HadarOptions

    def __init__(self, options: HadarOptions | None = None) -> None:
        self._readings = options or HadarOptions()
        super().__init__(QueueOptions(period=0))

    def begin(self, site: Site) -> None:
        """Open the books."""
        super().begin(site)
        paths = [w.critical_path_us / sum(task.fastest_us for task in w.tasks) for w in site.catalogue]
        mean = sum(paths) / len(paths) if paths else 1.0
        self._prices = _FIRST[0] * mean, _FIRST[1] * mean
        self._avoided: deque[float] = deque(maxlen=_JOBS)
        self._books = Bookings(site.n_gpus, self._readings.windows, self._readings.window, self._prices)
        self._runs, self._transfers, self._inputs = RunRows(site), TransferRows(site), InputRows(site)
        self._means = MeanTransfers(site)
        self._loads = load_rows(site)
        self._memory = np.array([gpu.memory_bytes for gpu in site.cluster.gpus], float)
        self._coming = np.zeros((len(site.models), site.n_gpus), np.int64)
        self._resident = np.zeros((len(site.models), site.n_gpus), bool)
        for gpu, memory in enumerate(site.memory):
            self._resident[list(memory.residents), gpu] = True
        self._orders: dict[int, list[int]] = {}
        self._booked: dict[int, tuple[int, int]] = {}
        self._late_us, self._looked_us = np.zeros(site.n_gpus, np.int64), -1

    def released(self, job: int) -> None:
        """Book the tasks of a job."""
        site = self.site
        workflow, tasks = site.job_workflow[job], site.job_tasks[job]
        if workflow not in self._orders:
            self._orders[workflow] = rank_order(site, workflow, self._means)
        self._books.advance(site.now, self._prices)
        self._see_lateness()
        finish: dict[int, tuple[int, int]] = {}
        avoided_s = work_s = 0.0
        for position in self._orders[workflow]:
            task = tasks[position]
            gpu, start_us, saved_us = self._cheapest(task, float(site.jobs[job].weight), finish)
            run_us = site.run_time(task, gpu)
            finish[task] = gpu, start_us + run_us
            avoided_s, work_s = avoided_s + saved_us / _US_PER_S, work_s + run_us / _US_PER_S
        self._set_prices(float(site.jobs[job].weight) * avoided_s / work_s)

    def _cheapest(self, task: int, weight: float, finish: dict[int, tuple[int, int]]) -> tuple[int, int, float]:
        """Book a task; return its GPU, its start, and the delay that it avoids."""
        site, readings = self.site, self._readings
        template = site.template[task]
        needs, runs = site.needs[template], self._runs.row[template]
        possible = runs < UNREACHABLE
        loads, memory = self._missing(needs)
        earliest = self._inputs_at(task, finish) + loads
        for windows in (ceil(part * readings.windows) for part in _NEAR):
            offered = self._books.offers(earliest, np.where(possible, runs, 1), memory, windows)
            begin = np.where(possible, offered[0], np.inf)
            value = weight * (begin + runs - site.now) / _US_PER_S + offered[1]
            best = value.min(axis=0)
            run_s = int(runs.min()) / _US_PER_S
            reach_us = int(earliest.min()) - site.now + (windows - 1) * readings.window
            beyond = weight * (reach_us / _US_PER_S + run_s)
            if best.min() <= beyond + self._books.least_price(run_s * (1.0 + float(memory.min()))):
                break
        favoured = self.view.gpus_of[site.job_ingress[site.job[task]]]
        gpu = least(best if np.isfinite(best).any() else np.where(possible, earliest, UNREACHABLE), favoured)
        window = int(value[:, gpu].argmin())
        if np.isfinite(best[gpu]):
            start = int(begin[window, gpu])
            self._books.book(gpu, start, int(runs[gpu]), float(memory[gpu]))
        else:  # everything is booked: behind the last window
            start = max(int(earliest[gpu]), site.now + readings.windows * readings.window)
        worst = begin[:, possible].min(axis=0, initial=np.inf)
        saved = float(np.minimum(worst, site.now + reach_us).max()) - start
        self._queue_up(task, gpu, start)
        return gpu, start, max(0.0, saved)

    def _missing(self, needs: tuple[int, ...]) -> tuple[Row, np.ndarray]:
        """Return, per GPU, the time to load the models that are neither there nor coming, and their part of memory."""
        site = self.site
        loads, part = np.zeros(site.n_gpus, np.int64), np.zeros(site.n_gpus)
        for model in needs:
            loads += np.where((self._coming[model] > 0) | self._resident[model], 0, self._loads[model])
            part += site.weight_bytes[model] / self._memory
        return loads, np.minimum(part, 1.0)

    def _inputs_at(self, task: int, finish: dict[int, tuple[int, int]]) -> Row:
        """Return when each GPU could begin: it is not late any more, and the inputs are there."""
        site = self.site
        earliest = site.now + self._late_us
        for offset, edge in site.inputs[site.template[task]]:
            source, end_us = finish[task + offset]
            earliest = self._transfers.wait_for(earliest, edge, source, end_us)
        given = self._inputs.of(task)
        return earliest if given is None else np.maximum(earliest, given + site.now)

    def _see_lateness(self) -> None:
        """Once a window, add up what each GPU should have done by now and has not."""
        site = self.site
        if site.now // self._readings.window == self._looked_us:
            return
        self._looked_us = site.now // self._readings.window
        for gpu, queue in enumerate(self.queue):
            overdue = sum(site.run_time(task, gpu) for task in queue if self._booked[task][0] < site.now)
            self._late_us[gpu] = overdue + max(0, self.view.busy_until_us[gpu] - site.now)

    def _set_prices(self, avoided: float) -> None:
        """Let the last jobs set the range of prices; U > L > 0 is kept."""
        if avoided > 0:
            self._avoided.append(avoided)
        low, high = min(self._avoided, default=0.0), max(self._avoided, default=0.0)
        if high > low > 0:
            self._prices = low, high

    def _queue_up(self, task: int, gpu: int, start_us: int) -> None:
        """Place a task, and put it where its start belongs in the queue."""
        self._booked[task] = start_us, task
        for model in self.site.needs[self.site.template[task]]:
            self._coming[model, gpu] += 1
        self.place(task, gpu)
        self.enqueue(task, gpu)
        self.queue[gpu].pop()
        insort(self.queue[gpu], task, key=self._booked.__getitem__)

    def _load(self, gpu: int, model: int, evict: Sequence[int], slot: int | None) -> None:
        super()._load(gpu, model, evict, slot)
        self._resident[model, gpu] = True

    def evicted(self, model: int, gpu: int) -> None:
        """Take note that a model is gone."""
        self._resident[model, gpu] = False

    def started(self, task: int, gpu: int) -> None:
        """Take the task out of what is to come."""
        self._coming[list(self.site.needs[self.site.template[task]]), gpu] -= 1
        del self._booked[task]

    def arrived(self, task: int, missing: int) -> None:
        """Take note of a task that can run: it queued up when it was booked."""
        if not missing:
            self.batches.ready(task)

    def next_in_turn(self, gpu: int) -> int | None:
        """Return the place of the head, once its inputs are there."""
        queue = self.queue[gpu]
        return 0 if queue and not self.site.inputs_missing[queue[0]] else None
