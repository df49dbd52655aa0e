"""Energetic bounds: the work that must lie inside an interval against what the GPUs can do in it.

For every set of GPU classes, the tasks that can run nowhere else are preempted on one machine as fast as those GPUs
together, each with a head (its earliest start) and a tail (what its job still needs after it). On one machine, earliest
due date first minimises the largest lateness (Jackson 1955, Horn 1974), and it is late exactly if some interval
holds more work than time. Whichever task of that interval ends last, it ends after the work is done: what this costs
at least is the bound. For late jobs, an interval with too much work has jobs that must be late (Moore, Hodgson 1968).

The interval is the proof: `solvers.bounds.recomputed` prices it again with code of its own.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from models import NEVER, Instance, Objective
from models.instance import Ints
from solvers.bounds import critical_path
from solvers.bounds.proof import Proof

SLOWDOWN_STEPS = 24
"""Most intervals tried, one after the other, to raise the largest slowdown; every step is one pass over the tasks."""

INTERVAL_ENDS = 200
"""Most instants at which the intervals of the bound on late jobs begin or end; any choice is valid."""

NO_END = 1 << 60
"""Stands for a time later than any plan's end."""

Flags = NDArray[np.bool_]

WORK_LEVELS = 128
"""Intervals are chosen by amounts of work rounded down to so many; what they prove is counted exactly."""


@dataclass(frozen=True, slots=True)
class _Work:
    """Tasks that run on these GPUs alone: which, their job, head, run time and tail in microseconds; and the GPUs."""

    tasks: Ints
    job: Ints
    head: Ints
    run: Ints
    tail: Ints
    classes: tuple[int, ...]
    n_gpus: int

    def only(self, chosen: Flags) -> _Work:
        """Return the work of some of the tasks."""
        task, job, head, run, tail = (part[chosen] for part in (self.tasks, self.job, self.head, self.run, self.tail))
        return _Work(task, job, head, run, tail, self.classes, self.n_gpus)


def bound(instance: Instance, objective: Objective) -> Fraction | None:
    """Return the bound for makespan, largest slowdown, late jobs and tardiness; None for another objective."""
    found = prove(instance, objective)
    return None if found is None else found.value


def prove(instance: Instance, objective: Objective) -> Proof | None:
    """Return the same bound with the intervals that prove it."""
    if objective is Objective.LATE_JOBS:
        return _late_jobs(instance)
    if objective in (Objective.MAKESPAN, Objective.MAX_SLOWDOWN, Objective.WEIGHTED_TARDINESS):
        return _last_end(instance, objective)
    return None


def _captive_work(instance: Instance) -> Iterator[_Work]:
    """Yield the work that is confined to a set of GPU classes, for every set that some template is confined to."""
    eligible = instance.run_us != NEVER
    sets = {tuple(row) for row in eligible.tolist()} | {(True,) * eligible.shape[1]}
    earliest, fastest = critical_path.earliest(instance), critical_path.fastest_run(instance)
    tail = critical_path.tails(instance)
    for chosen in sorted(sets):
        inside = np.array(chosen)
        tasks = np.flatnonzero(~(eligible & ~inside).any(axis=1)[instance.task_template])
        template = instance.task_template[tasks]
        classes, n_gpus = tuple(np.flatnonzero(inside).tolist()), int(inside[instance.gpu_class].sum())
        job, head = instance.task_job[tasks], earliest.start_us[tasks]
        yield _Work(tasks, job, head, fastest[template], tail[template], classes, n_gpus)


# Who ends last


def _last_end(instance: Instance, objective: Objective) -> Proof:
    """Return what the tasks of an overfull interval prove about the one that ends last, or what a job alone does."""
    best = Proof(critical_path.bound(instance, objective), {})
    with_deadline = np.array([job.deadline_us is not None for job in instance.jobs])
    for work in _captive_work(instance):
        if objective is Objective.WEIGHTED_TARDINESS:
            work = work.only(with_deadline[work.job])
        if not len(work.tasks):
            continue
        for _ in range(SLOWDOWN_STEPS):
            level = best.value
            due = _due(instance, objective, work, level)
            lateness, last = _most_late(work, due)
            if lateness <= 0 and objective is not Objective.MAKESPAN:
                break
            first = _fullest_from(work, due <= last)
            inside = work.only((work.head >= first) & (due <= last))
            value = _cost_of_ending(instance, objective, inside, first - (-int(inside.run.sum()) // work.n_gpus))
            if value > best.value:
                witness = {"gpu_classes": list(work.classes), "from_us": first, "due_us": last}
                if objective is Objective.MAX_SLOWDOWN:
                    witness["level"] = [level.numerator, level.denominator]
                best = Proof(value, witness)
            if objective is not Objective.MAX_SLOWDOWN:
                break
    return best


def _due(instance: Instance, objective: Objective, work: _Work, level: Fraction) -> Ints:
    """Return when each task must end for its job to be done in time: at 0, at a slowdown, or at the deadline."""
    if objective is Objective.MAKESPAN:
        return -work.tail
    if objective is Objective.MAX_SLOWDOWN:  # ends are whole, so rounding down takes nothing from any plan
        paths, index = np.unique(instance.job_critical_us, return_inverse=True)
        allowed = np.array([min(int(level * path), NO_END) for path in paths.tolist()], np.int64)[index]
    else:
        allowed = np.array([job.deadline_us or 0 for job in instance.jobs], np.int64)
    return np.asarray((instance.job_release_us + allowed)[work.job] - work.tail, np.int64)


def _most_late(work: _Work, due: Ints) -> tuple[int, int]:
    """Return the least possible largest (end - due) on the fast machine, in 1 / speed us, and the due date missed."""
    speed, head, run, due_at = work.n_gpus, work.head.tolist(), work.run.tolist(), due.tolist()
    order = np.argsort(work.head, kind="stable").tolist()
    waiting: list[tuple[int, int]] = []  # (due, remaining), in 1 / speed of a microsecond
    now, coming, worst = 0, 0, (-1 << 100, 0)
    while coming < len(order) or waiting:
        if not waiting:
            now = max(now, head[order[coming]] * speed)
        while coming < len(order) and head[order[coming]] * speed <= now:
            heapq.heappush(waiting, (due_at[order[coming]], run[order[coming]]))
            coming += 1
        until, (due_now, remaining) = now + waiting[0][1], waiting[0]
        if coming < len(order):
            until = min(until, head[order[coming]] * speed)
        if until - now < remaining:
            heapq.heapreplace(waiting, (due_now, remaining - (until - now)))
        else:
            heapq.heappop(waiting)
            worst = max(worst, (until - due_now * speed, due_now))
        now = until
    return worst


def _fullest_from(work: _Work, chosen: Flags) -> int:
    """Return the instant from which on the chosen tasks, and no earlier ones, keep the GPUs busy for longest."""
    head, run = work.head[chosen], work.run[chosen]
    order = np.argsort(head, kind="stable")[::-1]
    ends = zip(head[order].tolist(), np.cumsum(run[order]).tolist(), strict=True)
    return int(max((work.n_gpus * begin + done, begin) for begin, done in ends)[1])


def _cost_of_ending(instance: Instance, objective: Objective, work: _Work, end_us: int) -> Fraction:
    """Return the least value of the objective if one of these tasks ends then or later, whichever it is."""
    done = end_us + work.tail
    if objective is Objective.MAKESPAN:
        return Fraction(int(done.min()))
    latency = done - instance.job_release_us[work.job]
    if objective is Objective.MAX_SLOWDOWN:
        paths, index = np.unique(instance.job_critical_us[work.job], return_inverse=True)
        least = np.full(len(paths), NO_END)
        np.minimum.at(least, index, latency)
        return min(Fraction(flow, path) for flow, path in zip(least.tolist(), paths.tolist(), strict=True))
    jobs = [instance.jobs[job] for job in work.job.tolist()]
    late = [max(0, flow - (job.deadline_us or 0)) for job, flow in zip(jobs, latency.tolist(), strict=True)]
    return min((job.weight * us for job, us in zip(jobs, late, strict=True)), default=Fraction(0))


# Late jobs


def _late_jobs(instance: Instance) -> Proof:
    """Return jobs late even alone, plus the most that disjoint intervals prove late among the others.

    Job j occupies [release, release + deadline] if it is on time. An interval [a, b] holds the captive work of the
    jobs that lie inside it.
    """
    ends = np.maximum.reduceat(critical_path.earliest(instance).end_us, instance.job_first_task[:-1])
    due = np.array([-1 if job.deadline_us is None else job.release_us + job.deadline_us for job in instance.jobs])
    hopeless = int(np.count_nonzero((due >= 0) & (ends > due)))
    best = Proof(Fraction(hopeless), {})
    for work in _captive_work(instance):
        captive = np.zeros(len(instance.jobs), np.int64)
        np.add.at(captive, work.job, work.run)
        jobs = np.flatnonzero((due >= ends) & (captive > 0))
        spans = _Spans(instance.job_release_us[jobs], due[jobs], captive[jobs], work.n_gpus)
        intervals = spans.overfull() if len(jobs) else []
        late = hopeless + sum(spans.late(first, last) for first, last in intervals)
        if late > best.value:
            witness = {"gpu_classes": list(work.classes), "intervals": [list(interval) for interval in intervals]}
            best = Proof(Fraction(late), witness)
    return best


@dataclass(frozen=True, slots=True)
class _Spans:
    """The times that jobs occupy if they are on time, and their work in microseconds."""

    release: Ints
    due: Ints
    work: Ints
    n_gpus: int

    def late(self, first: int, last: int) -> int:
        """Return how many jobs inside an interval are late at least: while too much is due, the largest goes."""
        inside = np.flatnonzero((self.release >= first) & (self.due <= last))
        inside = inside[np.argsort(self.due[inside], kind="stable")]
        kept: list[int] = []
        total = removed = 0
        for due, work in zip(self.due[inside].tolist(), self.work[inside].tolist(), strict=True):
            heapq.heappush(kept, -work)
            total += work
            if total > self.n_gpus * (due - first):
                total += heapq.heappop(kept)
                removed += 1
        return removed

    def overfull(self) -> list[tuple[int, int]]:
        """Return disjoint intervals, in the order of time, that together hold the most jobs too many."""
        begins, ends = (np.array(_thinned(np.unique(at).tolist()), np.int64) for at in (self.release, self.due))
        removed = self._removed(begins, ends)
        most, chosen = np.zeros(len(ends), np.int64), dict[int, tuple[int, int]]()  # by end of the last interval
        for b, begin in enumerate(begins.tolist()):
            reached = int(np.searchsorted(ends, begin, side="right"))
            before = int(np.argmax(most[:reached])) if reached else -1
            total = removed[b] + (most[before] if reached else 0)
            for e in np.flatnonzero((removed[b] > 0) & (total > most)).tolist():
                most[e], chosen[e] = total[e], (b, before)
        intervals = []
        at = int(np.argmax(most))
        while at in chosen:
            b, before = chosen[at]
            intervals.append((int(begins[b]), int(ends[at])))
            at = before
        return intervals[::-1]

    def _removed(self, begins: Ints, ends: Ints) -> Ints:
        """Return how many of the largest must go until the rest fits. Shape [begins, ends]."""
        levels = np.array(_thinned(np.unique(self.work).tolist(), WORK_LEVELS), np.int64)
        level = np.searchsorted(levels, self.work, side="right") - 1
        count = np.zeros((len(levels), len(begins), len(ends)), np.int64)
        first = np.searchsorted(begins, self.release, side="right") - 1
        np.add.at(count, (level, first, np.searchsorted(ends, self.due)), 1)
        count = count[:, ::-1].cumsum(axis=1)[:, ::-1].cumsum(axis=2)
        excess = np.tensordot(levels, count, 1)
        longest = int(excess.max()) // self.n_gpus + 1  # more room than that is never filled
        excess -= self.n_gpus * np.clip(ends - begins[:, None], 0, longest)
        removed = np.zeros_like(excess)
        for amount, there in zip(levels[::-1].tolist(), count[::-1], strict=True):
            taken = np.clip(-(-excess // amount), 0, there)
            removed += taken
            excess -= taken * amount
        return np.asarray(np.where(ends > begins[:, None], removed, 0), np.int64)


def _thinned(values: list[int], most: int = INTERVAL_ENDS) -> list[int]:
    """Return at most so many of ascending values, evenly picked, the outermost included."""
    if len(values) <= most:
        return values
    return [values[i * (len(values) - 1) // (most - 1)] for i in range(most)]
