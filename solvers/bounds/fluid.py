"""Fluid bounds: what a window must compute, load and hold against the rates of the engines and the memory there is.

A job on time does all its work between its release and its due date. Of a window [a, b) that is work which no plan can
move out of it: of each task at least min(p, b - a, head + p - a, b - (latest end - p)), Baptiste, Le Pape, Nuijten,
Constraint-Based Scheduling (2001), section 3.3; of a task that may run in batches, the least of share / b times that
of p(b), over all b. On time 0 the copy engines are cold, so that every model which jobs
due by b need was loaded in [0, b). And a model used in [a, b) was resident at a or is loaded in it. Whatever
exceeds the rates makes jobs late: at least as many as must go, largest first, until the rest fits.

A few windows of every length are looked at, those in which most work arrives, so a trace of a million jobs takes
seconds; short traces are looked at from every release to every due date.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain
from math import ceil
from typing import Literal

import numpy as np

from truenorth.models import Instance, Objective
from truenorth.models.instance import Ints
from truenorth.models.objective import Term, charges
from truenorth.solvers.bounds.batch_work import Work
from truenorth.solvers.bounds.critical_path import heads_us, tails_us
from truenorth.solvers.bounds.proof import Proof, layers, thinned

Resource = Literal["compute", "copy engine", "memory"]

WINDOW_EDGES = 100
"""Most instants at which windows begin, and at which they end, in a short trace; any choice is valid."""

INSIDE_EDGES = 16
"""The same inside one interval of several."""

END_OF_TIME = 1 << 60
"""Stands for an interval without an end."""

SHORT_TRACE = 5_000
"""A trace of up to so many tasks is looked at from many instants to many instants."""

NO_DEADLINE = np.int64(1) << 60
"""Stands for the due date of a job that is never late."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What jobs on time demand of one resource in a window.

    Parameters
    ----------
    begin_us, end_us
        The window.
    resource
        What is short.
    models
        Those that the work or the loads are for, the largest share first; empty for work without models.
    amount, share
        Per job (compute) or per model (loads): what it demands, descending, and how many jobs at least must be late
        to save it. GPU-microseconds for compute and copy engines, bytes for memory.
    rate
        What one GPU offers in the window, in the same unit.
    parts
        The unit is cut into so many.
    """

    begin_us: int
    end_us: int
    resource: Resource
    models: tuple[int, ...]
    amount: Ints
    share: tuple[Fraction, ...] | None
    rate: Fraction
    parts: int = 1

    def late(self, gpus: int | Fraction) -> int:
        """Return how many jobs at least are late on so many GPUs; a fraction of one is there for part of the time."""
        excess = self._total - gpus * self.rate
        if excess <= 0:
            return 0
        # Work: each job saves its own, the largest first, so that as few as possible are late.
        if self.share is None:
            return int(np.searchsorted(np.cumsum(self.amount), ceil(excess)) + 1)
        late = Fraction(0)
        for amount, share in zip(self.amount.tolist(), self.share, strict=True):
            if amount >= excess:
                late += share * excess / amount
                break
            late, excess = late + share, excess - amount
        return -(-late.numerator // late.denominator)

    def gpus(self, most_late: int) -> int:
        """Return the least number of GPUs on which no more jobs than that must be late."""
        # With so many nobody is late; more GPUs never make more jobs late.
        low, high = 0, -(-self._total // self.rate)
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self.late(middle) <= most_late else (middle + 1, high)
        return int(low)

    @property
    def _total(self) -> int:
        # The bytes of all models may exceed 64 bits; the work of all tasks does not.
        return int(self.amount.sum()) if self.share is None else sum(self.amount.tolist())


def bound(instance: Instance, objective: Objective) -> Fraction | None:
    """Return the bound on the weight of late jobs; None for another objective."""
    found = prove(instance, objective)
    return None if found is None else found.value


def prove(instance: Instance, objective: Objective) -> Proof | None:
    """Return the same bound with the window that proves it."""
    charged = charges(objective, instance)
    if charged.term is not Term.LATE:
        return None
    due, late = due_us(instance), defaultdict[tuple[Resource, int, int, int], Fraction](Fraction)
    of_layers = [(worth, _Jobs.of(instance, np.where(inside, due, NO_DEADLINE))) for worth, inside in layers(charged)]
    for worth, work in of_layers:
        for demand in _demands(work, of_layers[0][1]):
            window = demand.resource, demand.begin_us, demand.end_us, demand.parts
            late[window] += worth * demand.late(_there(instance, demand))
    most = max(late.values(), default=Fraction(0))
    if not most:
        return Proof(most, {})
    resource, begin, end, parts = next(window for window, weight in late.items() if weight == most)
    witness = {"resource": resource, "begin_us": begin, "end_us": end} | ({"parts": parts} if parts > 1 else {})
    return Proof(most, witness)


def _there(instance: Instance, demand: Demand) -> int | Fraction:
    """Return how many GPUs there are in a window on average; all of them for what memory holds."""
    if instance.always_available or demand.resource == "memory":
        return instance.n_gpus
    begin, end = demand.begin_us, demand.end_us
    counts = np.bincount(instance.gpu_class).tolist()
    each = (n * gpu.available.available_us(begin, end) for n, gpu in zip(counts, instance.class_gpu, strict=True))
    return Fraction(sum(each), end - begin)


def longest_s(instance: Instance) -> float:
    """Return how many seconds the bound may take: a fifth of a millisecond for each window of a short trace."""
    sizes = max(1, int(instance.batch_largest.max(initial=1)))
    if instance.n_tasks > SHORT_TRACE:
        return 2e-6 * instance.n_tasks * sizes
    return 2e-4 * min(len(instance.jobs), WINDOW_EDGES) ** 2 * sizes


def due_us(instance: Instance) -> Ints:
    """Return the latest completion of each job on time, `NO_DEADLINE` where it has none. Shape [jobs]."""
    late = [job.deadline_us for job in instance.jobs]
    allowed = np.array([NO_DEADLINE if deadline is None else deadline for deadline in late], np.int64)
    return np.asarray(np.where(allowed == NO_DEADLINE, NO_DEADLINE, instance.job_release_us + allowed), np.int64)


def least_gpus(instance: Instance, due: Ints, most_late: int) -> tuple[int, Demand | None]:
    """Return how many GPUs of these kinds no plan can do without, and the demand that says so (None: nothing does).

    Parameters
    ----------
    due
        Latest completion of each job on time in microseconds, see `due_us`. Shape [jobs].
    most_late
        How many jobs may be late.
    """
    worst: tuple[int, Demand | None] = (1, None)
    for demand in demands(instance, due):
        # To look for the number is dear: only where what is known does not suffice.
        needed = demand.gpus(most_late) if demand.late(worst[0]) > most_late else 0
        if needed > worst[0]:
            worst = needed, demand
    return worst


def demands_within(instance: Instance, due: Ints, begin_us: int, end_us: int) -> list[Demand]:
    """Return what jobs released and due in [begin, end) demand of compute in windows inside.

    Jobs of another interval demand nothing here, so that late jobs of disjoint intervals add up.
    """
    inside = (instance.job_release_us >= begin_us) & (due <= end_us)
    work = _Jobs.of(instance, np.where(inside, due, NO_DEADLINE))
    return [work.compute(*window) for window in _windows_within(work, begin_us, end_us)] if len(work.due) else []


def least_gpus_within(
    instance: Instance, due: Ints, most_late: int, begin_us: int, end_us: int
) -> tuple[int, Demand | None]:
    """Return how many GPUs of these kinds no plan can do without in [begin, end), and the demand that says so.

    Whatever there is before and after: only windows inside count. Parameters else as those of `least_gpus`.
    """
    worst: tuple[int, Demand | None] = (0, None)
    work = _Jobs.of(instance, due)
    for begin, end in _windows_within(work, begin_us, end_us) if len(work.due) else ():
        demand = work.compute(begin, end)
        needed = demand.gpus(most_late) if demand.late(worst[0]) > most_late else 0
        worst = (needed, demand) if needed > worst[0] else worst
    return worst


def demands(instance: Instance, due: Ints) -> Iterator[Demand]:
    """Yield the demands of all windows that are looked at; they do not depend on the number of GPUs, only on kinds."""
    work = _Jobs.of(instance, due)
    yield from _demands(work, work)


def _demands(work: _Jobs, of_all: _Jobs) -> Iterator[Demand]:
    """Yield what some jobs demand, in the windows that are looked at for all of them."""
    if not len(of_all.due):
        return
    for begin, end in _windows(of_all, work.instance.n_tasks <= SHORT_TRACE):
        yield work.compute(begin, end)
        yield from work.memory(begin, end)
    yield from work.cold_loads(of_all.due)


@dataclass(frozen=True, slots=True)
class _Jobs:
    """The jobs with a due date, in release order, and what their tasks need.

    Parameters
    ----------
    work, needs
        Work per job; per workflow and model whether it is needed.
    first_task
        Where the tasks of each job begin, and at last their number.
    first_use, model
        Where the models that each task needs begin, and at last their number; these models.
    parts
        Of a GPU's microsecond, in which work is counted.
    rate, run, earliest_end, latest_start
        By size of batch, the largest first, and task: parts taken in each microsecond, run time, and what release and
        due date leave of it.
    """

    instance: Instance
    jobs: Ints
    release: Ints
    due: Ints
    work: Ints
    needs: Ints
    first_task: Ints
    first_use: Ints
    model: Ints
    parts: int
    rate: Ints
    run: Ints
    earliest_end: Ints
    latest_start: Ints

    @classmethod
    def of(cls, instance: Instance, due: Ints) -> _Jobs:
        """Return what the jobs that are due ask for, by their releases."""
        of_tasks, workflow = Work.of(instance, bounded=True), instance.job_workflow
        per_workflow = np.add.reduceat(np.array(of_tasks.least, np.int64), instance.template_first[:-1])
        needs = np.zeros((len(instance.workflows), len(instance.models)), np.int64)
        for index, first in enumerate(instance.template_first[:-1].tolist()):
            for template in range(first, int(instance.template_first[index + 1])):
                needs[index, list(instance.needs[template])] = 1
        jobs = np.flatnonzero(due != NO_DEADLINE)
        tasks = np.diff(instance.template_first)[workflow[jobs]]
        first_task = np.concatenate(([0], np.cumsum(tasks)))
        offset = first_task[:-1] - instance.template_first[:-1][workflow[jobs]]
        of_task = np.asarray(np.arange(first_task[-1]) - np.repeat(offset, tasks), np.int64)
        # Templates with fewer sizes of batch than others list their last one again.
        most = max(map(len, of_tasks.runs))
        sizes = np.array([[row[min(size, len(row) - 1)] for row in of_tasks.runs] for size in range(most)], np.int64)
        rate, run = sizes[:, of_task, 0], sizes[:, of_task, 1]
        used = [instance.needs[template] for template in of_task.tolist()]
        release, last = np.repeat(instance.job_release_us[jobs], tasks), np.repeat(due[jobs], tasks)
        return cls(
            instance,
            jobs,
            instance.job_release_us[jobs],
            due[jobs],
            per_workflow[workflow[jobs]],
            needs,
            first_task,
            np.concatenate(([0], np.cumsum(list(map(len, used))))),
            np.fromiter(chain.from_iterable(used), np.int64),
            of_tasks.parts,
            rate,
            run,
            release + heads_us(instance)[of_task] + run,
            last - tails_us(instance)[of_task] - run,
        )

    def compute(self, begin: int, end: int) -> Demand:
        """Return the work that jobs on time do in a window, whatever the plan, in the batches that do least of it."""
        first, beyond = self._touching(begin, end)
        tasks = slice(int(self.first_task[first]), int(self.first_task[beyond]))
        # Of each task and size the least that lies inside, shifted as far left or right as it can be.
        inside = np.minimum(self.earliest_end[:, tasks] - begin, end - self.latest_start[:, tasks])
        inside = np.minimum(inside, np.minimum(self.run[:, tasks], end - begin))
        # Nobody knows in which size of batch it runs: the least of all sizes counts.
        done = (np.maximum(inside, 0) * self.rate[:, tasks]).min(axis=0)
        energy = np.add.reduceat(done, self.first_task[first:beyond] - tasks.start) if beyond > first else done
        # Descending, as `late` takes them.
        amount = -np.sort(-energy[energy > 0])
        models = self._named(tasks, done)
        return Demand(begin, end, "compute", models, amount, None, Fraction((end - begin) * self.parts), self.parts)

    def _named(self, tasks: slice, done: Ints) -> tuple[int, ...]:
        """Return the models that the work of a range of tasks is for, those of most work first."""
        uses = slice(int(self.first_use[tasks.start]), int(self.first_use[tasks.stop]))
        work = np.repeat(done, np.diff(self.first_use[tasks.start : tasks.stop + 1]))
        by_model = np.bincount(self.model[uses], work, len(self.instance.models))
        return tuple(m for m in np.argsort(-by_model, kind="stable").tolist() if by_model[m] > 0)

    def memory(self, begin: int, end: int) -> Iterator[Demand]:
        """Yield what the models used in a window hold, against the memory and what can be loaded in it."""
        first, beyond = self._touching(begin, end)
        inside = np.flatnonzero((self.release[first:beyond] >= begin) & (self.due[first:beyond] <= end)) + first
        gpus = self.instance.class_gpu
        # The largest GPU and the fastest link stand for all: fewer models fit in truth.
        room = max(gpu.memory_bytes for gpu in gpus)
        rate = max(gpu.load_bandwidth for gpu in gpus) * (end - begin) / 1_000_000
        yield from self._loads(inside, begin, end, "memory", self.instance.weight_bytes, room + rate)

    def cold_loads(self, due: Ints) -> Iterator[Demand]:
        """Yield the loads of models that nobody holds at time 0, for jobs due by some of these instants."""
        load = np.where(self.instance.load_us < 0, NO_DEADLINE, self.instance.load_us).min(axis=1, initial=NO_DEADLINE)
        load = np.where(load == NO_DEADLINE, 0, load)
        load[[resident.model for resident in self.instance.initial]] = 0
        # What is due at 0 is late, but says so alone: a window of no length offers nothing and proves nothing.
        dues = np.unique(due[due > 0])
        if not load.any() or not len(dues):
            return
        early = dues[dues <= int(load.sum()) + int(dues[0])]
        for end in thinned(early.tolist(), WINDOW_EDGES):
            inside = np.flatnonzero(self.due <= end)
            yield from self._loads(inside, 0, end, "copy engine", load, Fraction(end))

    def _loads(
        self, inside: Ints, begin: int, end: int, resource: Resource, size: Ints, rate: Fraction
    ) -> Iterator[Demand]:
        """Yield the demand of the models that some jobs use; saving a model makes all jobs that use it late."""
        count = np.bincount(self.instance.job_workflow[self.jobs[inside]], minlength=len(self.needs))
        users = count @ self.needs
        models = [m for m in np.flatnonzero(users).tolist() if size[m] > 0]
        if not models:
            return
        # A job that is late may save several models at once.
        together = max(1, int(self.needs[count > 0].sum(axis=1).max()))
        models.sort(key=lambda m: Fraction(int(size[m]), int(users[m])), reverse=True)
        share = tuple(Fraction(int(users[m]), together) for m in models)
        yield Demand(begin, end, resource, tuple(models), size[models], share, rate)

    def _touching(self, begin: int, end: int) -> tuple[int, int]:
        """Return the range of jobs that may work in a window: released before its end, due after its begin."""
        longest = int((self.due - self.release).max())
        return (
            int(np.searchsorted(self.release, begin - longest)),
            int(np.searchsorted(self.release, end)),
        )


def _windows(work: _Jobs, short: bool) -> Iterator[tuple[int, int]]:
    """Yield windows: all pairs of picked instants in a short trace, else the busiest of every length."""
    if short:
        ends = np.array(thinned(np.unique(work.due).tolist(), WINDOW_EDGES), np.int64)
        for begin in thinned(np.unique(work.release).tolist(), WINDOW_EDGES):
            for end in ends[ends > begin].tolist():
                yield begin, end
        return
    done = np.concatenate(([0], np.cumsum(work.work)))
    slack = int(np.median(work.due - work.release))
    length = max(1, slack)
    span = int(work.release[-1] - work.release[0]) + 1
    while length < 2 * span:
        beyond = np.searchsorted(work.release, work.release + length)
        first = int(np.argmax(done[beyond] - done[:-1]))
        begin = int(work.release[first])
        for end in sorted({begin + length, begin + length + slack}):
            yield begin, end
        length *= 2
    if work.release[0] < work.due.max():
        yield int(work.release[0]), int(work.due.max())


def _windows_within(work: _Jobs, begin_us: int, end_us: int) -> Iterator[tuple[int, int]]:
    """Yield windows inside [begin, end), from picked releases to picked due times."""
    begins = work.release[(work.release >= begin_us) & (work.release < end_us)].tolist()
    ends = work.due[(work.due > begin_us) & (work.due <= end_us)].tolist()
    ends += [end_us] if end_us < END_OF_TIME else []
    picked = thinned(sorted(set(ends)), INSIDE_EDGES)
    for begin in thinned(sorted({begin_us, *begins}), INSIDE_EDGES):
        yield from ((begin, end) for end in picked if begin < end)
