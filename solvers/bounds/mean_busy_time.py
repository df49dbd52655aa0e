"""Mean busy time: all work preempted on one machine as fast as the whole cluster.

For sums of weighted completions. A task that ends at e was busy on average at e - p/2, and its job ends no earlier
than e + tail. Averaged over a job's work, C_j >= M_j + sum over its tasks of p (tail + p/2) / W_j, where M_j is
the mean busy time of the job's work W_j. The sum of w_j M_j is least if the machine always works on the
released task of highest w_j / W_j, so the bound holds for the sum, never job by job. In a batch of b a task answers for
a b-th of its share: its work is the least of share x p(b) / b over all b, and p / 2 counts it alone, when it runs
shortest. Sources: Goemans,
Queyranne, Schulz, Skutella, Wang, Single machine scheduling with release dates (2002); the fast machine as in Eastman,
Even, Isaacs (1964). For equal weights, shortest remaining work first on the fast machine is a bound too (Schrage 1968).
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from truenorth.models import Instance, Objective
from truenorth.models.objective import Term, charges
from truenorth.solvers.bounds.batch_work import Work
from truenorth.solvers.bounds.critical_path import earliest, fastest_run_us, tails_us

Floats = NDArray[np.float64]


def bound(instance: Instance, objective: Objective) -> Fraction | None:
    """Return the bound on a sum of weighted latencies; None for another objective. O(n log n) for n tasks."""
    weights = latency_weights(instance, objective)
    if weights is None:
        return None
    work = Work.of(instance)
    busy = _weighted_completions(instance, weights, work)
    if all(weight is weights[0] or weight == weights[0] for weight in weights):
        busy = max(busy, weights[0] * _least_completions(instance, work))
    return busy - _weighted_releases(instance, weights)


def latency_weights(instance: Instance, objective: Objective) -> list[Fraction] | None:
    """Return the weights w_j with objective = sum of w_j (C_j - r_j), or None where it has not this form."""
    charged = charges(objective, instance)
    return charged.job_weights if charged.is_sum and charged.term is Term.LATENCY else None


def _weighted_releases(instance: Instance, weights: list[Fraction]) -> Fraction:
    sums: dict[tuple[int, int], int] = {}
    for weight, release in zip(weights, instance.job_release_us.tolist(), strict=True):
        ratio = weight.as_integer_ratio()  # hashed in a tenth of the time
        sums[ratio] = sums.get(ratio, 0) + release
    return sum((Fraction(*ratio) * total for ratio, total in sums.items()), Fraction(0))


@dataclass(frozen=True, slots=True)
class _FastMachine:
    """The preemptive schedule on the fast machine. Times are counted in 1 / `speed` of a microsecond: all are whole.

    Parameters
    ----------
    speed
        How many parts of work the GPUs do in a microsecond.
    work
        The least work of every task, in parts.
    shares
        Weight per part of work, w_j / W_j, by rank, the highest first.
    rank
        Rank of every task.
    pieces
        (task, begin, end) in the order of time.
    """

    speed: int
    work: list[int]
    shares: list[Fraction]
    rank: list[int]
    pieces: list[tuple[int, int, int]]


def _fast_machine(instance: Instance, weights: list[Fraction], work: Work) -> _FastMachine:
    """Return the schedule that always works on the released task of highest weight per work."""
    start, of_task = earliest(instance).start_us, work.of_tasks(instance)
    job_of = instance.task_job.tolist()
    of_job = [0] * len(instance.jobs)
    for job, part in zip(job_of, of_task, strict=True):
        of_job[job] += part
    # Few weights and works differ, and fractions are slow to divide, to compare and to hash.
    pairs = [(*weight.as_integer_ratio(), total) for weight, total in zip(weights, of_job, strict=True)]
    by_pair = {(a, b, total): Fraction(a, b * total) for a, b, total in set(pairs)}
    shares = sorted(set(by_pair.values()), reverse=True)
    ranks = {share: rank for rank, share in enumerate(shares)}
    by_job = [ranks[by_pair[pair]] for pair in pairs]
    rank = [by_job[job] for job in job_of]
    speed = instance.n_gpus * work.parts
    return _FastMachine(speed, of_task, shares, rank, list(_preempted(start.tolist(), of_task, rank, speed)))


def _weighted_completions(instance: Instance, weights: list[Fraction], work: Work) -> Fraction:
    """Return a lower bound on the sum of w_j C_j."""
    machine = _fast_machine(instance, weights, work)
    added = (2 * tails_us(instance) + fastest_run_us(instance))[instance.task_template].tolist()
    # Twice the integral of time over the busy time of each rank, and twice what every end adds to it.
    moments, extras = [0] * len(machine.shares), [0] * len(machine.shares)
    for task, begin, end in machine.pieces:
        moments[machine.rank[task]] += end * end - begin * begin
    for rank, part, us in zip(machine.rank, machine.work, added, strict=True):
        extras[rank] += part * us
    return sum(
        (share * (Fraction(moments[r], machine.speed) + extras[r]) / 2 for r, share in enumerate(machine.shares)),
        Fraction(0),
    )


@dataclass(frozen=True, slots=True)
class WorkPrices:
    """What a microsecond of work is worth on the fast machine over time: the bound's dual solution.

    Parameters
    ----------
    times_us, prices
        Between these times, which rise, the price is linear; where one occurs twice, it jumps. In units of the
        objective per microsecond.
    ended_us, last_price
        When each job's work ends on the fast machine, and the price then. Shape [jobs].
    """

    times_us: Floats
    prices: Floats
    ended_us: Floats
    last_price: Floats


def work_prices(instance: Instance, weights: list[Fraction]) -> WorkPrices:
    """Return the prices at which every job works when it costs least, as the fast machine does.

    While a job runs, the price falls by its weight per work, so that it pays the same whenever it runs; the price is as
    high as it can be with no later time cheaper for that job, and 0 where nothing runs.

    Parameters
    ----------
    weights
        The objective is the sum of w_j (C_j - r_j).
    """
    work = Work.of(instance)
    machine = _fast_machine(instance, weights, work)
    shares, job_of = [float(share * work.parts) for share in machine.shares], instance.task_job.tolist()
    times, prices = [machine.pieces[-1][2] / machine.speed], [0.0]
    ended, last_price = np.zeros((2, len(instance.jobs)))
    later = _LowerHull(times[0])
    for task, begin, end in reversed(machine.pieces):
        share, begin_us, end_us = shares[machine.rank[task]], begin / machine.speed, end / machine.speed
        if end_us < times[-1]:  # idle from here to the piece that was taken before
            times += [times[-1], end_us]
            prices += [0.0, 0.0]
            later = _LowerHull(end_us)
        price = later.least(share) - share * end_us
        if not ended[job_of[task]]:
            ended[job_of[task]], last_price[job_of[task]] = end_us, price
        times += [end_us, begin_us]
        prices += [price, price + share * (end_us - begin_us)]
        later.add(end_us, price)
        later.add(begin_us, prices[-1])
    return WorkPrices(np.array(times[::-1]), np.array(prices[::-1]), ended, last_price)


class _LowerHull:
    """The lower convex hull of (time, price) points that come from the right; at first, price 0 at one time."""

    def __init__(self, time: float) -> None:
        self._points = [(time, 0.0)]

    def add(self, time: float, price: float) -> None:
        """Add a point that lies no later than those before it."""
        points = self._points
        while points and points[-1][0] == time and points[-1][1] >= price:
            points.pop()
        if points and points[-1][0] == time:
            return
        while len(points) > 1 and _turns(points[-2], points[-1], (time, price)):
            points.pop()
        points.append((time, price))

    def least(self, share: float) -> float:
        """Return the least of share x time + price over all points."""
        points, low, high = self._points, 0, len(self._points) - 1
        while low < high:  # costs fall towards the least and rise after it
            middle = (low + high) // 2
            if share * points[middle][0] + points[middle][1] <= share * points[middle + 1][0] + points[middle + 1][1]:
                high = middle
            else:
                low = middle + 1
        return share * points[low][0] + points[low][1]


def _turns(right: tuple[float, float], middle: tuple[float, float], left: tuple[float, float]) -> bool:
    """Say whether the middle point lies on or above the line between the others."""
    return (right[0] - left[0]) * (middle[1] - left[1]) >= (middle[0] - left[0]) * (right[1] - left[1])


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


def _least_completions(instance: Instance, work: Work) -> Fraction:
    """Return the sum of completions of the jobs on the fast machine, shortest remaining work first."""
    of_task = work.of_tasks(instance)
    of_job = [sum(of_task[task] for task in instance.tasks_of(job)) for job in range(len(instance.jobs))]
    speed, release = instance.n_gpus * work.parts, instance.job_release_us.tolist()
    waiting: list[int] = []
    now = total = 0
    for job, begin in enumerate(release):
        while waiting and now + waiting[0] <= begin * speed:
            now += heapq.heappop(waiting)
            total += now
        if waiting:
            heapq.heapreplace(waiting, waiting[0] - (begin * speed - now))
        now = begin * speed
        heapq.heappush(waiting, of_job[job])
    while waiting:
        now += heapq.heappop(waiting)
        total += now
    return Fraction(total, speed)
