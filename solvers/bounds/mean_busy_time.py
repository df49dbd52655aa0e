"""Mean busy time: all work preempted on one machine as fast as the whole cluster.

For sums of weighted completions. A task that ends at e was busy on average at e - p/2, and its job ends no earlier
than e + tail. Averaged over a job's work, C_j >= M_j + sum over its tasks of p (tail + p/2) / W_j, where M_j is
the mean busy time of the job's work W_j. The sum of w_j M_j is least if the machine always works on the
released task of highest w_j / W_j, so the bound holds for the sum, never job by job. Sources: Goemans,
Queyranne, Schulz, Skutella, Wang, Single machine scheduling with release dates (2002); the fast machine as in Eastman,
Even, Isaacs (1964). For equal weights, shortest remaining work first on the fast machine is a bound too (Schrage 1968).
"""

from __future__ import annotations

import heapq
from fractions import Fraction

from models import Instance, Objective
from solvers.bounds.critical_path import earliest, fastest_run, tails


def bound(instance: Instance, objective: Objective) -> Fraction | None:
    """Return the bound on a sum of weighted latencies; None for another objective. O(n log n) for n tasks."""
    weights = latency_weights(instance, objective)
    if weights is None:
        return None
    busy = _weighted_completions(instance, weights)
    if len(set(weights)) == 1:
        busy = max(busy, weights[0] * _least_completions(instance))
    return busy - _weighted_releases(instance, weights)


def latency_weights(instance: Instance, objective: Objective) -> list[Fraction] | None:
    """Return the weights w_j with objective = sum of w_j (C_j - r_j), or None where it has not this form."""
    n = len(instance.jobs)
    if objective is Objective.MEAN_LATENCY:
        return [Fraction(1, n)] * n
    if objective is Objective.MEAN_SLOWDOWN:
        per_path = {int(path): Fraction(1, n * int(path)) for path in set(instance.job_critical_us.tolist())}
        return [per_path[path] for path in instance.job_critical_us.tolist()]
    if objective is Objective.WEIGHTED_LATENCY:
        total = sum((job.weight for job in instance.jobs), Fraction(0))
        return [job.weight / total if total else Fraction(0) for job in instance.jobs]
    return None


def _weighted_releases(instance: Instance, weights: list[Fraction]) -> Fraction:
    sums: dict[Fraction, int] = {}
    for weight, release in zip(weights, instance.job_release_us.tolist(), strict=True):
        sums[weight] = sums.get(weight, 0) + release
    return sum((weight * total for weight, total in sums.items()), Fraction(0))


def _weighted_completions(instance: Instance, weights: list[Fraction]) -> Fraction:
    """Return a lower bound on the sum of w_j C_j. Times are counted in 1 / GPUs of a microsecond, so all are whole."""
    speed, start = instance.n_gpus, earliest(instance).start_us
    run, after = fastest_run(instance)[instance.task_template], tails(instance)[instance.task_template]
    job_of = instance.task_job.tolist()
    work = [0] * len(instance.jobs)
    for job, p in zip(job_of, run.tolist(), strict=True):
        work[job] += p
    shares = [weight / total for weight, total in zip(weights, work, strict=True)]
    ranks = {share: rank for rank, share in enumerate(sorted(set(shares), reverse=True))}
    rank = [ranks[share] for share in shares]
    # Twice the integral of time over the busy time of each rank, and twice what every end adds to it.
    moments, extras = [0] * len(ranks), [0] * len(ranks)
    for task, begin, end in _preempted(start.tolist(), run.tolist(), [rank[job] for job in job_of], speed):
        moments[rank[job_of[task]]] += end * end - begin * begin
    for task, (p, tail) in enumerate(zip(run.tolist(), after.tolist(), strict=True)):
        extras[rank[job_of[task]]] += p * (2 * tail + p)
    return sum(
        (share * (Fraction(moments[r], speed) + extras[r]) / 2 for share, r in ranks.items()),
        Fraction(0),
    )


def _preempted(release: list[int], work: list[int], rank: list[int], speed: int) -> list[tuple[int, int, int]]:
    """Return the pieces (task, begin, end) of the preemptive schedule by rank, in 1 / speed of a microsecond."""
    order = sorted(range(len(work)), key=lambda task: release[task])
    remaining, pieces = list(work), []
    waiting: list[tuple[int, int]] = []
    now, coming = 0, 0
    while coming < len(order) or waiting:
        if not waiting:
            now = max(now, release[order[coming]] * speed)
        while coming < len(order) and release[order[coming]] * speed <= now:
            heapq.heappush(waiting, (rank[order[coming]], order[coming]))
            coming += 1
        task = waiting[0][1]
        until = now + remaining[task]
        if coming < len(order):
            until = min(until, release[order[coming]] * speed)
        pieces.append((task, now, until))
        remaining[task] -= until - now
        now = until
        if not remaining[task]:
            heapq.heappop(waiting)
    return pieces


def _least_completions(instance: Instance) -> Fraction:
    """Return the sum of completions of the jobs on the fast machine, shortest remaining work first."""
    run = fastest_run(instance)[instance.task_template].tolist()
    work = [sum(run[task] for task in instance.tasks_of(job)) for job in range(len(instance.jobs))]
    speed, release = instance.n_gpus, instance.job_release_us.tolist()
    waiting: list[int] = []
    now = total = 0
    for job, begin in enumerate(release):
        while waiting and now + waiting[0] <= begin * speed:
            now += heapq.heappop(waiting)
            total += now
        if waiting:
            heapq.heapreplace(waiting, waiting[0] - (begin * speed - now))
        now = begin * speed
        heapq.heappush(waiting, work[job])
    while waiting:
        now += heapq.heappop(waiting)
        total += now
    return Fraction(total, speed)
