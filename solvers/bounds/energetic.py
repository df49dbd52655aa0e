"""Energetic bounds: the work that must lie inside an interval against what the GPUs can do in it.

For every set of GPU classes, the tasks that can run nowhere else are preempted on one machine as fast as those GPUs
together, each with a head (its earliest start) and a tail (what its job still needs after it). On one machine, earliest
due date first minimises the largest lateness (Jackson 1955, Horn 1974), and it is late exactly if some interval
holds more work than time. For late jobs, every interval with too much work has jobs that must be late.
"""

from __future__ import annotations

import heapq
from bisect import insort
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from models import NEVER, Instance, Objective
from models.instance import Ints
from solvers.bounds import critical_path

SLOWDOWN_STEPS = 24
"""Halvings of the interval in which the largest slowdown is sought; every step is one pass over the tasks."""

INTERVAL_ENDS = 200
"""Most instants at which the intervals of the bound on late jobs begin or end; any choice is valid."""


@dataclass(frozen=True, slots=True)
class _Work:
    """Tasks that run on these GPUs alone: which, how many GPUs, head, run time and tail of each in microseconds."""

    tasks: Ints
    n_gpus: int
    head: Ints
    run: Ints
    tail: Ints


def bound(instance: Instance, objective: Objective) -> Fraction | None:
    """Return the bound for makespan, largest slowdown, late jobs and tardiness; None for another objective."""
    if objective is Objective.MAKESPAN:
        return max(_largest_lateness(work, -work.tail) for work in _captive_work(instance))
    if objective is Objective.MAX_SLOWDOWN:
        return _largest_slowdown(instance)
    if objective is Objective.LATE_JOBS:
        return Fraction(max(_late_jobs(instance, work) for work in _captive_work(instance)))
    if objective is Objective.WEIGHTED_TARDINESS:
        return _tardiness(instance)
    return None


def _captive_work(instance: Instance) -> Iterator[_Work]:
    """Yield the work that is confined to a set of GPU classes, for every set that some template is confined to."""
    eligible = instance.run_us != NEVER
    sets = {tuple(row) for row in eligible.tolist()} | {(True,) * eligible.shape[1]}
    earliest, fastest = critical_path.earliest(instance), critical_path.fastest_run(instance)
    tail = critical_path.tails(instance)
    for chosen in sets:
        inside = np.array(chosen)
        tasks = np.flatnonzero(~(eligible & ~inside).any(axis=1)[instance.task_template])
        template = instance.task_template[tasks]
        n_gpus = int(inside[instance.gpu_class].sum())
        yield _Work(tasks, n_gpus, earliest.start_us[tasks], fastest[template], tail[template])


def _largest_lateness(work: _Work, due: Ints) -> Fraction:
    """Return the least possible largest (end - due) on the fast machine, in microseconds."""
    speed, head, run, due_at = work.n_gpus, work.head.tolist(), work.run.tolist(), due.tolist()
    order = sorted(range(len(run)), key=head.__getitem__)
    waiting: list[tuple[int, int]] = []  # (due, remaining), in 1 / speed of a microsecond
    now, coming, worst = 0, 0, None
    while coming < len(order) or waiting:
        if not waiting:
            now = max(now, head[order[coming]] * speed)
        while coming < len(order) and head[order[coming]] * speed <= now:
            heapq.heappush(waiting, (due_at[order[coming]] * speed, run[order[coming]]))
            coming += 1
        until, (due_now, remaining) = now + waiting[0][1], waiting[0]
        if coming < len(order):
            until = min(until, head[order[coming]] * speed)
        if until - now < remaining:
            heapq.heapreplace(waiting, (due_now, remaining - (until - now)))
        else:
            heapq.heappop(waiting)
            worst = until - due_now if worst is None else max(worst, until - due_now)
        now = until
    if worst is None:
        raise ValueError("there is no task")
    return Fraction(worst, speed)


def _largest_slowdown(instance: Instance) -> Fraction:
    """Return the largest slowdown found that the fast machines refute; below it lies no plan.

    A slowdown s gives every task the due date r + s P - tail. The critical path is met by any s at or above its own.
    """
    low = critical_path.bound(instance, Objective.MAX_SLOWDOWN)
    works = [work for work in _captive_work(instance) if len(work.tasks)]

    def refuted(slowdown: Fraction) -> bool:
        return any(_largest_lateness(work, _due(instance, work, slowdown)) > 0 for work in works)

    if not refuted(low):
        return low
    high = 2 * low
    while refuted(high):
        low, high = high, 2 * high
    for _ in range(SLOWDOWN_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def _due(instance: Instance, work: _Work, slowdown: Fraction) -> Ints:
    """Return the due dates for a slowdown; ends are whole, so rounding down takes nothing from any plan."""
    job = instance.task_job[work.tasks]
    by_path = {path: int(slowdown * path) for path in set(instance.job_critical_us.tolist())}
    allowed = np.array([by_path[path] for path in instance.job_critical_us[job].tolist()], np.int64)
    return instance.job_release_us[job] + allowed - work.tail


def _tardiness(instance: Instance) -> Fraction:
    """Return the least weight of a job with a deadline times the least possible largest lateness."""
    deadline = np.array([-1 if job.deadline_us is None else job.deadline_us for job in instance.jobs], np.int64)
    weights = [job.weight for job in instance.jobs if job.deadline_us is not None]
    lateness = Fraction(0)
    for work in _captive_work(instance):
        job = instance.task_job[work.tasks]
        due = (instance.job_release_us + deadline)[job] - work.tail
        with_deadline = deadline[job] >= 0
        chosen = _Work(
            work.tasks[with_deadline],
            work.n_gpus,
            work.head[with_deadline],
            work.run[with_deadline],
            work.tail[with_deadline],
        )
        if with_deadline.any():
            lateness = max(lateness, _largest_lateness(chosen, due[with_deadline]))
    return max(
        critical_path.bound(instance, Objective.WEIGHTED_TARDINESS), min(weights, default=Fraction(0)) * lateness
    )


def _late_jobs(instance: Instance, work: _Work) -> int:
    """Return jobs late even alone, plus the most that disjoint intervals prove late among the others.

    Job j occupies [release, release + deadline] if it is on time. An interval [a, b] holds the captive work of the
    jobs that lie inside it; taking out the largest until the rest fits counts how many of them must be late.
    """
    captive = np.bincount(instance.task_job[work.tasks], work.run, len(instance.jobs)).astype(np.int64)
    ends = np.maximum.reduceat(critical_path.earliest(instance).end_us, instance.job_first_task[:-1])
    hopeless, spans = 0, []
    for index, job in enumerate(instance.jobs):
        if job.deadline_us is None:
            continue
        due = job.release_us + job.deadline_us
        if ends[index] > due:
            hopeless += 1
        elif captive[index]:
            spans.append((job.release_us, due, int(captive[index])))
    return hopeless + _late_in_disjoint_intervals(spans, work.n_gpus)


def _late_in_disjoint_intervals(spans: list[tuple[int, int, int]], n_gpus: int) -> int:
    """Return the largest sum, over disjoint intervals, of the jobs that do not fit inside."""
    begins = _thinned(sorted({release for release, _, _ in spans}))
    ends = _thinned(sorted({due for _, due, _ in spans}))
    by_due = sorted(spans, key=lambda span: span[1])
    most: dict[int, int] = {}  # by end of the last interval
    for begin in begins:
        before = max((count for end, count in most.items() if end <= begin), default=0)
        inside: list[int] = []
        total = seen = 0
        for end in ends:
            while seen < len(by_due) and by_due[seen][1] <= end:
                if by_due[seen][0] >= begin:
                    insort(inside, by_due[seen][2])
                    total += by_due[seen][2]
                seen += 1
            if inside:
                late = before + _least_removed(inside, total, n_gpus * (end - begin))
                most[end] = max(late, most.get(end, 0))
    return max(most.values(), default=0)


def _least_removed(ascending: list[int], total: int, capacity: int) -> int:
    """Return how many of the largest amounts must go until the rest fits."""
    removed = 0
    while total > capacity:
        removed += 1
        total -= ascending[-removed]
    return removed


def _thinned(instants: list[int]) -> list[int]:
    """Return at most `INTERVAL_ENDS` of the instants, evenly picked, the outermost included."""
    if len(instants) <= INTERVAL_ENDS:
        return instants
    return [instants[i * (len(instants) - 1) // (INTERVAL_ENDS - 1)] for i in range(INTERVAL_ENDS)]
