"""Energetic bounds: the work that must lie inside an interval against what the GPUs can do in it.

For every set of GPU classes, the tasks that can run nowhere else are preempted on one machine as fast as those GPUs
together, each with a head (its earliest start) and a tail (what its job still needs after it). On one machine, earliest
due date first minimises the largest lateness (Jackson 1955, Horn 1974), and it is late exactly if some interval
holds more work than time. Whichever task of that interval ends last, it ends after the work is done: what this costs
at least is the bound. For late jobs, an interval with too much work has jobs that must be late (Moore, Hodgson 1968).
All of a task's work lies in its interval: of a task that may run in batches, the least of share x p(b) / b over all b.

The interval is the proof: `solvers.bounds.recomputed` prices it again with code of its own.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from truenorth.models import NEVER, Instance, Objective
from truenorth.models.cluster import FOREVER
from truenorth.models.instance import Ints
from truenorth.models.objective import Charges, Term, charges
from truenorth.solvers.bounds import critical_path
from truenorth.solvers.bounds.batch_work import Work
from truenorth.solvers.bounds.critical_path import tails_us
from truenorth.solvers.bounds.proof import Flags, Proof, layers, thinned

SLOWDOWN_STEPS = 24
"""Most intervals tried, one after the other, to raise the largest slowdown; every step is one pass over the tasks."""

INTERVAL_ENDS = 200
"""Most instants at which the intervals of the bound on late jobs begin or end; any choice is valid."""

NO_END = 1 << 60
"""Stands for a time later than any plan's end."""

WORK_LEVELS = 128
"""Intervals are chosen by amounts of work rounded down to so many; what they prove is counted exactly."""


@dataclass(frozen=True, slots=True)
class _Captive:
    """Tasks that run on these GPUs alone, and the GPUs.

    Parameters
    ----------
    tasks, job, head, tail
        Which tasks, their jobs, heads and tails in microseconds.
    work
        What each takes at least, in `parts` of a GPU's microsecond.
    speed
        How many of these the GPUs do in a microsecond.
    """

    tasks: Ints
    job: Ints
    head: Ints
    work: Ints
    tail: Ints
    classes: tuple[int, ...]
    parts: int
    speed: int

    def only(self, chosen: Flags) -> _Captive:
        """Return the work of some of the tasks."""
        task, job, head, work, tail = (part[chosen] for part in (self.tasks, self.job, self.head, self.work, self.tail))
        return _Captive(task, job, head, work, tail, self.classes, self.parts, self.speed)

    def witness(self) -> dict[str, Any]:
        """Return what the verifier must know of it."""
        return {"gpu_classes": list(self.classes)} | ({"parts": self.parts} if self.parts > 1 else {})


def bound(instance: Instance, objective: Objective) -> Fraction | None:
    """Return the bound for makespan, largest slowdown, late jobs and tardiness; None for another objective."""
    found = prove(instance, objective)
    return None if found is None else found.value


def prove(instance: Instance, objective: Objective) -> Proof | None:
    """Return the same bound with the intervals that prove it."""
    charged = charges(objective, instance)
    if charged.term is Term.LATE:
        return _late_jobs(instance, charged)
    if charged.term is Term.TARDINESS or not charged.is_sum:
        return _last_end(instance, objective, charged)
    return None


def _captive_work(instance: Instance) -> Iterator[_Captive]:
    """Yield the work that is confined to a set of GPU classes, for every set that some template is confined to."""
    eligible = instance.run_us != NEVER
    # Beside the sets that templates are confined to, the whole cluster, on which all tasks run.
    sets = {tuple(row) for row in eligible.tolist()} | {(True,) * eligible.shape[1]}
    earliest, tail, work = critical_path.earliest(instance), tails_us(instance), Work.of(instance, bounded=True)
    least = np.array(work.least, np.int64)
    for chosen in sorted(sets):
        inside = np.array(chosen)
        tasks = np.flatnonzero(~(eligible & ~inside).any(axis=1)[instance.task_template])
        template = instance.task_template[tasks]
        classes, n_gpus = tuple(np.flatnonzero(inside).tolist()), int(inside[instance.gpu_class].sum())
        job, head = instance.task_job[tasks], earliest.start_us[tasks]
        speed = n_gpus * work.parts
        yield _Captive(tasks, job, head, least[template], tail[template], classes, work.parts, speed)


# Who ends last


def _last_end(instance: Instance, objective: Objective, charged: Charges) -> Proof:
    """Return what the tasks of an overfull interval prove about the one that ends last, or what a job alone does."""
    best = Proof(critical_path.bound(instance, objective), {})
    with_deadline = np.array([job.deadline_us is not None for job in instance.jobs])
    for work in _captive_work(instance):
        if charged.term is Term.TARDINESS:
            work = work.only(with_deadline[work.job])
        if not len(work.tasks):
            continue
        for _ in range(SLOWDOWN_STEPS):
            # Each step refutes the level reached before, and so raises it.
            level = best.value
            due = _due(charged, work, level)
            lateness, last = _most_late(work, due)
            # Nothing is late at this level, so that no interval says that it cannot be reached.
            if lateness <= 0 and charged.term is not Term.COMPLETION:
                break
            first = _fullest_from(work, due <= last)
            inside = work.only((work.head >= first) & (due <= last))
            value = _cost_of_ending(charged, inside, _done_us(instance, inside, first))
            if value > best.value:
                witness = work.witness() | {"from_us": first, "due_us": last}
                if _has_levels(charged):
                    witness["level"] = [level.numerator, level.denominator]
                best = Proof(value, witness)
            if not _has_levels(charged):
                break
    return best


def _done_us(instance: Instance, work: _Captive, first: int) -> int:
    """Return when its GPUs, working from an instant on while they are there, have done the work at the earliest."""
    left = int(work.work.sum())
    if instance.always_available:
        return first - (-left // work.speed)
    counts = np.bincount(instance.gpu_class).tolist()
    there = [(counts[c], gpu.available) for c, gpu in enumerate(instance.class_gpu) if c in work.classes]
    # Speed changes only when a GPU comes or goes.
    turns = {
        at for _, available in there for interval in available.intervals for at in interval if first < at < FOREVER
    }
    for begin, end in pairwise([first, *sorted(turns), FOREVER]):
        speed = work.parts * sum(count for count, available in there if available.at(begin))
        if speed * (end - begin) >= left:
            return begin - (-left // speed) if left else begin
        left -= speed * (end - begin)
    return NO_END


def _has_levels(charged: Charges) -> bool:
    """Say whether due dates depend on the value to be refuted: not where all jobs weigh the same, nor in a sum."""
    return not (charged.is_sum or charged.alike)


def _due(charged: Charges, work: _Captive, level: Fraction) -> Ints:
    """Return when each task must end for its job to cost nothing, or no more than a level."""
    due = charged.due_us
    if _has_levels(charged):  # ends are whole, so rounding down takes nothing from any plan
        weights = charged.weights.distinct
        allowed = [min(int(level / weight), NO_END) if weight else NO_END for weight in weights]
        due = due + np.array(allowed, np.int64)[charged.weights.of_job]
    return np.asarray(due[work.job] - work.tail, np.int64)


def _most_late(work: _Captive, due: Ints) -> tuple[int, int]:
    """Return the least possible largest (end - due) on the fast machine, in 1 / speed us, and the due date missed."""
    speed, head, run, due_at = work.speed, work.head.tolist(), work.work.tolist(), due.tolist()
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
        # Preempted: the release that is next may be due sooner.
        if until - now < remaining:
            heapq.heapreplace(waiting, (due_now, remaining - (until - now)))
        else:
            heapq.heappop(waiting)
            worst = max(worst, (until - due_now * speed, due_now))
        now = until
    return worst


def _fullest_from(work: _Captive, chosen: Flags) -> int:
    """Return the instant from which on the chosen tasks, and no earlier ones, keep the GPUs busy for longest."""
    head, done_there = work.head[chosen], work.work[chosen]
    # From the latest head on: each sum is the work that begins no earlier.
    order = np.argsort(head, kind="stable")[::-1]
    ends = zip(head[order].tolist(), np.cumsum(done_there[order]).tolist(), strict=True)
    return int(max((work.speed * begin + done, begin) for begin, done in ends)[1])


def _cost_of_ending(charged: Charges, work: _Captive, end_us: int) -> Fraction:
    """Return the least value of the objective if one of these tasks ends then or later, whichever it is."""
    least = np.full(len(charged.weights.distinct), NO_END)
    beyond = np.maximum(end_us + work.tail - charged.due_us[work.job], 0)
    np.minimum.at(least, charged.weights.of_job[work.job], beyond)
    costs = [weight * us for weight, us in zip(charged.weights.distinct, least.tolist(), strict=True) if us < NO_END]
    return min(costs, default=Fraction(0))


# Late jobs


def _late_jobs(instance: Instance, charged: Charges) -> Proof:
    """Return what jobs late even alone weigh, plus the most that disjoint intervals prove late among the others.

    Job j occupies [release, release + deadline] if it is on time. An interval [a, b] holds the captive work of the
    jobs that lie inside it.
    """
    ends = np.maximum.reduceat(critical_path.earliest(instance).end_us, instance.job_first_task[:-1])
    due, hopeless, of_layers = charged.due_us, charged.value(ends), layers(charged)
    best = Proof(hopeless, {})
    if not of_layers:
        return best
    for work in _captive_work(instance):
        captive = np.zeros(len(instance.jobs), np.int64)
        np.add.at(captive, work.job, work.work)
        spans = list[tuple[Fraction, _Spans]]()
        for worth, inside in of_layers:
            jobs = np.flatnonzero(inside & (due >= ends) & (captive > 0))
            if len(jobs):
                spans.append((worth, _Spans(instance.job_release_us[jobs], due[jobs], captive[jobs], work.speed)))
        intervals = _overfull(spans) if spans else []
        late = sum((worth * each.late(*interval) for worth, each in spans for interval in intervals), hopeless)
        if late > best.value:
            witness = work.witness() | {"intervals": [list(interval) for interval in intervals]}
            best = Proof(late, witness)
    return best


def _overfull(spans: list[tuple[Fraction, _Spans]]) -> list[tuple[int, int]]:
    """Return disjoint intervals, in the order of time, that together hold the most too much, by worth.

    The first layer holds the jobs of all others. Only the choice is made in floats.
    """
    all_jobs = spans[0][1]
    begins, ends = (
        np.array(thinned(np.unique(at).tolist(), INTERVAL_ENDS), np.int64) for at in (all_jobs.release, all_jobs.due)
    )
    removed = sum((float(worth) * each.count_removed(begins, ends) for worth, each in spans), np.zeros(()))
    most, chosen = np.zeros(len(ends)), dict[int, tuple[int, int]]()  # by end of the last interval
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


@dataclass(frozen=True, slots=True)
class _Spans:
    """The times that jobs occupy if they are on time, their work in parts, and the parts done in a microsecond."""

    release: Ints
    due: Ints
    work: Ints
    speed: int

    def late(self, first: int, last: int) -> int:
        """Return how many jobs inside an interval are late at least: while too much is due, the largest goes."""
        inside = np.flatnonzero((self.release >= first) & (self.due <= last))
        inside = inside[np.argsort(self.due[inside], kind="stable")]
        kept: list[int] = []
        total = removed = 0
        for due, work in zip(self.due[inside].tolist(), self.work[inside].tolist(), strict=True):
            heapq.heappush(kept, -work)
            total += work
            # Moore and Hodgson: of what is due until now the largest goes, so that most others stay.
            if total > self.speed * (due - first):
                total += heapq.heappop(kept)
                removed += 1
        return removed

    def count_removed(self, begins: Ints, ends: Ints) -> Ints:
        """Return how many of the largest must go until the rest fits. Shape [begins, ends]."""
        levels = np.array(thinned(np.unique(self.work).tolist(), WORK_LEVELS), np.int64)
        level = np.searchsorted(levels, self.work, side="right") - 1
        count = np.zeros((len(levels), len(begins), len(ends)), np.int64)
        first = np.searchsorted(begins, self.release, side="right") - 1
        np.add.at(count, (level, first, np.searchsorted(ends, self.due)), 1)
        count = count[:, ::-1].cumsum(axis=1)[:, ::-1].cumsum(axis=2)
        excess = np.tensordot(levels, count, 1)
        longest = int(excess.max()) // self.speed + 1  # more room than that is never filled
        excess -= self.speed * np.clip(ends - begins[:, None], 0, longest)
        removed = np.zeros_like(excess)
        for amount, there in zip(levels[::-1].tolist(), count[::-1], strict=True):
            taken = np.clip(-(-excess // amount), 0, there)
            removed += taken
            excess -= taken * amount
        return np.asarray(np.where(ends > begins[:, None], removed, 0), np.int64)
