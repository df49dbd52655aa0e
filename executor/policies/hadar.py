"""Hadar (IPDPS 2024, arXiv 2503.10918; no code is published): posted prices on booked time and memory.

There a job buys the cheapest schedule if that is worth its price, and is refused otherwise; here nobody is refused, so
prices only steer: to kinds where the run is short for what it costs, and away from what is nearly booked up.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import ceil, inf
from statistics import median
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from truenorth.executor.execution import NOWHERE
from truenorth.executor.policies.bookings import Bookings
from truenorth.executor.policies.options import QueueOptions, count_from_1, option, positive_duration
from truenorth.executor.policies.planning import MeanTransfers, rank_order
from truenorth.executor.policies.queueing import HeadFirst
from truenorth.executor.policies.view import UNREACHABLE, CostRows, InputRows, Row, RunRows, TransferRows, least
from truenorth.executor.site import Site
from truenorth.models import Workflow
from truenorth.models.branches import open_tasks

_JOBS = 100
"""How many of the latest jobs set the range of prices."""
_FIRST = (0.1, 10.0)
"""The first range, in parts of the catalogue's mean."""
_NEAR = (0.04, 0.2, 1.0)
"""Parts of the windows that are looked at, as far as what lies beyond could be cheaper."""
_US_PER_S = 1_000_000
AUTO = 0
"""Stands for a window that follows the run times."""
_PER_MEDIAN = Fraction(2, 3)
"""Its length in median run times of the catalogue's tasks: on the workflows of the Compass authors it is 98 ms."""
_UNKNOWN_US = 100_000
"""Its length where there is no catalogue."""


def window_length(text: str) -> int:
    """Read a time with its unit, or ``auto``.

    >>> window_length("100 ms"), window_length("auto") == AUTO
    (100000, True)
    """
    if text == "auto":
        return AUTO
    try:
        return positive_duration(text)
    except ValueError as error:
        raise ValueError(f"{error}, or auto") from None


@dataclass(frozen=True, slots=True)
class HadarOptions:
    """Readings of the prices.

    Parameters
    ----------
    window, windows
        Time is booked in so many windows of this length, in microseconds; auto: two thirds of the median run time of
        the catalogue's tasks where they are fastest.
    """

    window: int = option(AUTO, window_length)
    windows: int = option(100, count_from_1(10_000))


class PriceRange:
    """The least and the most of weight x delay avoided per second of work, over the last jobs.

    Parameters
    ----------
    catalogue
        Sets the first range, as long as no jobs do.

    Attributes
    ----------
    range
        L and U; U > L > 0.
    """

    def __init__(self, catalogue: Sequence[Workflow]) -> None:
        paths = [w.critical_path_us / sum(task.fastest_us for task in w.tasks) for w in catalogue]
        mean = sum(paths) / len(paths) if paths else 1.0
        self.range = _FIRST[0] * mean, _FIRST[1] * mean
        self._avoided: deque[float] = deque(maxlen=_JOBS)

    def see(self, avoided: float) -> None:
        """Let a job set the range, with those before it."""
        if avoided > 0:
            self._avoided.append(avoided)
        low, high = min(self._avoided, default=0.0), max(self._avoided, default=0.0)
        if high > low > 0:
            self.range = low, high


class Hadar(HeadFirst):
    """A released job books, task by task in rank order, the GPU and start of least weight x finish + price.

    Compute and memory of every GPU are booked in windows. A second of a window of which x is booked costs L (U / L)^x,
    the memory times the part that the task's models take. U and L are the most and least of weight x delay avoided per
    second of work among the last jobs: the delay avoided is how much later the least attractive GPU could have started
    its tasks. A missing model is loaded before the run. Equal offers: the GPUs of the ingress server, then the lowest
    index, then the earliest start. A GPU runs its tasks strictly in the order of their booked starts, none of which
    can wait for a later one.
    """

    remembers: ClassVar[bool] = False  # it has booked whatever it decided
    Options: ClassVar[type[object]] = HadarOptions

    def __init__(self, options: HadarOptions | None = None) -> None:
        self.readings = options or HadarOptions()
        super().__init__(QueueOptions(period=0))

    def begin(self, site: Site) -> None:
        """Open the books."""
        super().begin(site)
        self._prices = PriceRange(site.catalogue)
        self._window_us = self.readings.window or fitting_window(site.catalogue)
        self._books = Bookings(site.n_gpus, self.readings.windows, self._window_us, self._prices.range)
        self._runs, self._transfers, self._inputs = RunRows(site), TransferRows(site), InputRows(site)
        self._means = MeanTransfers(site)
        self._coming = [[0] * site.n_gpus for _ in site.models]
        self._missing_us = [np.zeros(site.n_gpus, np.int64) for _ in site.models]
        for model, gpu in product(range(len(site.models)), range(site.n_gpus)):
            self._see_model(model, gpu)
        self._demands = CostRows(self._see_demand)
        self._orders: dict[int, list[int]] = {}
        self._open: dict[int, frozenset[int]] = {}
        self._finish: dict[int, dict[int, tuple[int, int]]] = {}
        self._booked: dict[int, tuple[int, int]] = {}
        self._late_us, self._looked_us = np.zeros(site.n_gpus, np.int64), -1
        self._row, self._free = np.zeros(site.n_gpus, np.int64), np.zeros(site.n_gpus, np.int64)
        self._bound = np.zeros(site.n_gpus)
        self._scalar = np.zeros((), np.int64)
        self._near = near_windows(self.readings.windows)

    def released(self, job: int) -> None:
        """Book the tasks of a job, as far as they do not depend on a branch that has not shown."""
        site = self.site
        workflow = site.job_workflow[job]
        if workflow not in self._orders:
            self._orders[workflow] = rank_order(site, workflow, self._means)
            self._open[workflow] = open_tasks(site.workflows[workflow])
        order = self._orders[workflow]
        if site.jobs[job].workflow.branches:
            self._finish[job] = {}
            certain = [position for position in order if position not in self._open[workflow]]
            self._book(job, certain, self._finish[job])
        else:
            self._book(job, order, {})

    def decided(self, job: int, dropped: Sequence[int]) -> None:
        """Book what was left open."""
        workflow = self.site.job_workflow[job]
        left = [position for position in self._orders[workflow] if position in self._open[workflow]]
        self._book(job, left, self._finish.pop(job))
        super().decided(job, dropped)

    def _book(self, job: int, positions: Sequence[int], finish: dict[int, tuple[int, int]]) -> None:
        """Book tasks of a job, predecessors first; `finish` says where and when those booked will have ended."""
        site = self.site
        weight, tasks = float(site.jobs[job].weight), site.job_tasks[job]
        self._books.advance(site.now, self._prices.range)
        self._see_lateness()
        avoided_s = work_s = 0.0
        for task in (tasks[position] for position in positions):
            if task in site.dropped:
                continue
            if not site.stays and not self._can_book(task, finish):
                if not site.predecessors_left[task]:
                    self.seek_place(task, site.job_ingress[job])
                continue
            gpu, start_us, saved_us = self._cheapest(task, weight, finish)
            run_us = site.run_time(task, gpu)
            finish[task] = gpu, start_us + run_us
            avoided_s, work_s = avoided_s + saved_us / _US_PER_S, work_s + run_us / _US_PER_S
        if work_s:
            self._prices.see(weight * avoided_s / work_s)

    def _can_book(self, task: int, finish: dict[int, tuple[int, int]]) -> bool:
        """Say whether a GPU that is there can run a task, and its predecessors are booked."""
        booked = all(task + offset in finish for offset, _ in self.site.needed_inputs(task))
        return booked and bool(self.site.eligible_gpus(task))

    def finished(self, task: int, gpu: int) -> None:
        """Strike what was booked behind a delay that begins now: no GPU waits for a tool, or for a person."""
        site = self.site
        for offset, _ in site.outputs[site.template[task]]:
            if (task, task + offset) in site.delayed:
                self.withdraw(task + offset)
        super().finished(task, gpu)

    def runnable(self, task: int, server: int) -> None:
        """Book a task that has lost its place, or found none at first."""
        site = self.site
        before = [task + offset for offset, _ in site.needed_inputs(task)]
        ended = {source: (site.gpu[source], site.ended_us[source]) for source in before}
        self._books.advance(site.now, self._prices.range)
        self._see_lateness()
        self._cheapest(task, float(site.jobs[site.job[task]].weight), ended)

    def withdrawn(self, task: int, gpu: int) -> None:
        """Strike a booking, and those of its successors: in a queue they must not come before it."""
        if task in self._booked:
            self._count_coming(task, gpu, -1)
            del self._booked[task]
        for offset, _ in self.site.outputs[self.site.template[task]]:
            if task + offset in self._booked:
                self.withdraw(task + offset)

    def _cheapest(self, task: int, weight: float, finish: dict[int, tuple[int, int]]) -> tuple[int, int, float]:
        """Book a task; return its GPU, its start, and the delay that it avoids."""
        site, books = self.site, self._books
        demand = self._demand(site.template[task])
        rate = weight / _US_PER_S
        earliest = self._could_begin(task, finish)
        first_us = earliest.item(earliest.argmin())
        horizon_us = (first_us // books.window_us + books.windows) * books.window_us
        free = np.maximum(earliest, books.fit_us(demand.whole), out=self._free)
        base = demand.base(rate, books.low)
        # Nobody offers less than a start in its first free window at the least price: ask who seems cheapest, until so.
        bound = np.multiply(free, rate, out=self._bound)
        bound += base
        favoured = self.view.gpus_of[site.job_ingress[site.job[task]]]
        starts: dict[int, int] = {}
        while (gpu := least(bound, favoured)) not in starts and bound.item(gpu) < inf:
            run_us, part = demand.runs.item(gpu), demand.memory[gpu]
            found = books.offer(gpu, earliest.item(gpu), run_us, part, horizon_us, rate)
            cost, starts[gpu] = found or (inf, NOWHERE)
            if starts[gpu] != free.item(gpu) < site.now + books.window_us:
                books.look(gpu)  # what was free has passed meanwhile
            bound[gpu] = cost + base.item(gpu)
        cost = bound.item(gpu) - rate * site.now
        if cost < inf:
            start = starts[gpu]
        else:  # everything is booked: behind the last window
            gpu = least(np.where(demand.possible, earliest, UNREACHABLE), favoured)
            start = max(earliest.item(gpu), site.now + books.windows * books.window_us)
        reach_us = first_us + (self._looked_at(first_us, cost, rate, demand) - 1) * books.window_us
        saved_us = max(0.0, self._latest(free, earliest, demand, reach_us) - start)
        if cost < inf:
            books.book(gpu, start, demand.runs.item(gpu), demand.memory[gpu])
        self._queue_up(task, gpu, start)
        return gpu, start, saved_us

    def _latest(self, free: Row, earliest: Row, demand: _TemplateDemand, reach_us: int) -> int:
        """Return when the least attractive GPU could start a run first, as far as was looked."""
        latest = free.item(free.argmax()) if demand.everywhere else int(free[demand.possible].max(initial=0))
        if latest < reach_us:
            uncertain = demand.possible & (earliest < self._books.tail_us)
            for gpu in np.flatnonzero(uncertain).tolist():
                run_us = demand.runs.item(gpu)
                latest = max(latest, self._books.first_start(gpu, earliest.item(gpu), run_us, reach_us))
                if latest >= reach_us:
                    break
        return min(latest, reach_us)

    def _looked_at(self, first_us: int, cost: float, rate: float, demand: _TemplateDemand) -> int:
        """Return how many windows have to be looked at so that nothing beyond could cost less."""
        books = self._books
        for windows in self._near:
            beyond_us = first_us - self.site.now + (windows - 1) * books.window_us + demand.fastest_us
            if cost <= rate * beyond_us + demand.least_share * books.low:
                return windows
        return books.windows

    def _could_begin(self, task: int, finish: dict[int, tuple[int, int]]) -> Row:
        """Return when each GPU could begin: it is not late any more, and inputs and models are there."""
        site, row = self.site, self._row
        template = site.template[task]
        self._scalar[()] = site.now
        np.add(self._late_us, self._scalar, out=row)
        for offset, edge in site.needed_inputs(task):
            source, end_us = finish[task + offset]
            self._transfers.wait_for(row, edge, source, end_us + site.delay_us[edge], out=row)
        given = self._inputs.of(task) if site.input_us[template] else None
        if given is not None:
            np.maximum(row, given + site.now, out=row)
        for model in site.needs[template]:
            row += self._missing_us[model]
        return row

    def _see_lateness(self) -> None:
        """Once a window, add up what each GPU should have done by now and has not."""
        site = self.site
        if site.now // self._window_us == self._looked_us:
            return
        self._looked_us = site.now // self._window_us
        self._late_us = np.maximum(np.array(self.view.busy_until_us, np.int64) - site.now, 0)
        for gpu, queue in enumerate(self.queue):
            for task in queue:
                if self._booked[task][0] >= site.now:
                    break
                self._late_us[gpu] += site.run_time(task, gpu)

    def _queue_up(self, task: int, gpu: int, start_us: int) -> None:
        """Place a task, and put it where its start belongs in the queue."""
        self._booked[task] = start_us, task
        self._count_coming(task, gpu, 1)
        self.place_in_queue(task, gpu)
        self.queue[gpu].pop()
        insort(self.queue[gpu], task, key=self._booked.__getitem__)

    def _count_coming(self, task: int, gpu: int, more: int) -> None:
        for model in self.site.needs[self.site.template[task]]:
            self._coming[model][gpu] += more
            self._see_model(model, gpu)

    def _see_demand(self, template: int) -> _TemplateDemand:
        return _TemplateDemand(self.site, self._books, self._runs.row[template], template)

    def _demand(self, template: int) -> _TemplateDemand:
        """Return what a run takes of each GPU that is there."""
        return self._demands[template] if self.site.stays else self._see_demand(template)

    def _see_model(self, model: int, gpu: int) -> None:
        """Note how long a model takes to a GPU: nothing if it is there, or is to come for another task."""
        site = self.site
        here = self._coming[model][gpu] or model in site.memory[gpu].residents
        self._missing_us[model][gpu] = 0 if here else max(0, site.load_time(model, gpu))

    def _load(self, gpu: int, model: int, evict: Sequence[int], slot: int | None) -> None:
        super()._load(gpu, model, evict, slot)
        self._see_model(model, gpu)

    def evicted(self, model: int, gpu: int) -> None:
        """Take note that a model is gone."""
        self._see_model(model, gpu)

    def started(self, task: int, gpu: int) -> None:
        """Take the task out of what is to come."""
        self._count_coming(task, gpu, -1)
        del self._booked[task]


def fitting_window(catalogue: Sequence[Workflow]) -> int:
    """Return a length that fits the run times of a catalogue: beforehand no others are known."""
    runs_us = [task.fastest_us for workflow in catalogue for task in workflow.tasks]
    return max(1, round(_PER_MEDIAN * Fraction(median(runs_us)))) if runs_us else _UNKNOWN_US


def near_windows(windows: int) -> list[int]:
    """Return how many windows are looked at first, and then, as far as what lies beyond could be cheaper."""
    return [ceil(part * windows) for part in _NEAR]


class _TemplateDemand:
    """What a run of a template takes of each GPU.

    Attributes
    ----------
    runs, possible, everywhere
        Run time per GPU, UNREACHABLE where it cannot run; where it can; whether that is everywhere.
    memory
        Per GPU: the part of its memory that the models take.
    whole
        How many windows it takes before its last one where it is fastest.
    fastest_us, least_share
        The least run time, and the least number of windows that it pays for.
    """

    def __init__(self, site: Site, books: Bookings, runs: Row, template: int) -> None:
        self.runs, self.possible = runs, runs < UNREACHABLE
        self.everywhere = bool(self.possible.all())
        held = sum(site.weight_bytes[model] for model in site.needs[template])
        self.memory = [min(held / gpu.memory_bytes, 1.0) for gpu in site.cluster.gpus]
        self.fastest_us = int(runs.min())
        self.whole = books.parts[self.fastest_us][0]
        self.least_share = self.fastest_us / books.window_us * (1.0 + min(self.memory))
        shares = [books.windows_paid(us, part) for us, part in zip(runs.tolist(), self.memory, strict=True)]
        self._shares = np.where(self.possible, shares, inf)
        self._base: tuple[float, float, NDArray[np.float64]] | None = None

    def base(self, rate: float, low: float) -> NDArray[np.float64]:
        """Return, per GPU, what the run costs where nothing is booked, from its start on; inf where it cannot run."""
        if self._base is None or self._base[:2] != (rate, low):
            self._base = rate, low, rate * self.runs + low * self._shares
        return self._base[2]
