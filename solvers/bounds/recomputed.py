"""Closed forms computed a second time, for the verifier: whole numbers and fractions, and no code of the provers.

Where a prover searches (for intervals, windows or sets of GPUs), the certificate holds what it found, and here that
alone is priced: any interval proves something, whoever chose it.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Mapping
from fractions import Fraction
from itertools import pairwise
from math import lcm

from truenorth.models import NEVER, WHOLE, Instance, Job, Objective
from truenorth.models.features import HELD, SEVERAL_AT_A_TIME, Feature, Features
from truenorth.solvers.bounds.alone import LoneJobs
from truenorth.solvers.bounds.certified import LATEST, RefusedError, as_list, get, whole
from truenorth.solvers.bounds.least_computed import least_computed
from truenorth.solvers.bounds.stream_recomputed import stream_value

_LARGEST_LEVEL = 1 << 200
"""Neither part of a fraction in a certificate is larger."""

_MAXIMA = (Objective.MAKESPAN, Objective.MAX_SLOWDOWN)

Recompute = Callable[[Instance, Objective, object], Fraction | None]


def critical_path(instance: Instance, objective: Objective, _: object) -> Fraction:
    """Return the value of the objective if every job ended as early as it could alone."""
    instance = least_computed(instance)
    ends = _ends(LoneJobs(instance))
    weights = latency_weights(instance, objective)
    if weights is not None:
        latencies = Counter[tuple[int, int]]()
        for weight, job, end in zip(weights, instance.jobs, ends, strict=True):
            latencies[weight.as_integer_ratio()] += end - job.release_us
        return sum((Fraction(*weight) * total for weight, total in latencies.items()), Fraction(0))
    if objective is Objective.LATE_JOBS:
        late = (job.weight for job, end in zip(instance.jobs, ends, strict=True) if _is_late(job, end))
        return sum(late, Fraction(0))
    costs = [_cost(instance, objective, job, end) for job, end in enumerate(ends)]
    return max(costs) if objective in _MAXIMA else sum(costs, Fraction(0))


def _is_late(job: Job, end_us: int) -> bool:
    return job.deadline_us is not None and end_us > job.release_us + job.deadline_us


def _ends(alone: LoneJobs) -> list[int]:
    return [max(alone.times(job)[1]) for job in range(len(alone.instance.jobs))]


# Mean busy time


def mean_busy_time(instance: Instance, objective: Objective, _: object) -> Fraction | None:
    """Return the bound from the schedule that prefers the highest weight per work on one machine as fast as all GPUs.

    Highest weights first, every task takes what is left of the time after its earliest start: of the spans between
    two earliest starts the first that is not full, from its beginning. That is the same schedule as one by events.
    """
    weights = latency_weights(instance, objective)
    if weights is None:
        return None
    alone = LoneJobs(instance)
    least = [
        min(Fraction(alone.share[t] * run, WHOLE * size) for size, run in enumerate(alone.fastest_runs(t), 1))
        for t in range(len(alone.share))
    ]
    parts = lcm(*(work.denominator for work in least))  # of a GPU's microsecond: so all work is whole
    work, speed = [int(task * parts) for task in least], instance.n_gpus * parts
    works = [sum(work[t] for t in _templates(alone, job)) for job in range(len(instance.jobs))]
    by_share: dict[Fraction, list[int]] = {}
    for job, (weight, total_work) in enumerate(zip(weights, works, strict=True)):
        by_share.setdefault(weight / total_work, []).append(job)
    heads = sorted({at for job in range(len(works)) for at in alone.times(job)[0]})
    room, total = _MachineTime(heads, speed), Fraction(0)
    for share in sorted(by_share, reverse=True):
        moment = ends = 0  # twice what each task is busy on average, and twice what its end adds, times its work
        for job in by_share[share]:
            for template, head in zip(_templates(alone, job), alone.times(job)[0], strict=True):
                moment += room.take(head, work[template])
                ends += work[template] * (2 * alone.tail[template] + alone.fastest[template])
        total += share * (Fraction(moment, speed) + ends) / 2
    if len(set(weights)) == 1:
        releases = [job.release_us for job in instance.jobs]
        total = max(total, weights[0] * Fraction(_shortest_first(releases, works, speed), speed))
    return total - sum((w * job.release_us for w, job in zip(weights, instance.jobs, strict=True)), Fraction(0))


class _MachineTime:
    """The time of one machine between given instants, in 1 / speed of a microsecond, taken from the left."""

    def __init__(self, instants: list[int], speed: int) -> None:
        self._index = {at: index for index, at in enumerate(instants)}
        self._free = [at * speed for at in instants]
        self._end = [*self._free[1:], None]
        self._open = list(range(len(instants)))

    def take(self, head: int, work: int) -> int:
        """Take the first free time from an instant on; return the sum of end^2 - begin^2 over its pieces."""
        moment = 0
        while work:
            span = self._first_open(self._index[head])
            begin, end = self._free[span], self._end[span]
            piece = work if end is None else min(work, end - begin)
            moment += piece * (2 * begin + piece)
            self._free[span] += piece
            work -= piece
            if self._free[span] == end:
                self._open[span] = span + 1
        return moment

    def _first_open(self, span: int) -> int:
        while self._open[span] != span:
            self._open[span] = self._open[self._open[span]]
            span = self._open[span]
        return span


def _shortest_first(releases: list[int], works: list[int], speed: int) -> int:
    """Return the sum of completions, in 1 / speed of a microsecond, if the job with the least left always runs."""
    waiting: list[int] = []
    now = total = 0
    for begin, work in [*zip((at * speed for at in releases), works, strict=True), (None, 0)]:
        while waiting and (begin is None or now < begin):
            least = heapq.heappop(waiting)
            done = least if begin is None else min(least, begin - now)
            now += done
            if done < least:
                heapq.heappush(waiting, least - done)
            else:
                total += now
        if begin is not None:
            now = max(now, begin)
            heapq.heappush(waiting, work)
    return total


def latency_weights(instance: Instance, objective: Objective) -> list[Fraction] | None:
    """Return what a microsecond of each job's latency costs, or None for an objective that is no such sum."""
    n, total = len(instance.jobs), sum((job.weight for job in instance.jobs), Fraction(0))
    weight: Mapping[Objective, Callable[[int], Fraction]] = {
        Objective.MEAN_LATENCY: lambda _: Fraction(1, n),
        Objective.MEAN_SLOWDOWN: lambda job: Fraction(1, n * int(instance.job_ideal_us[job])),
        Objective.WEIGHTED_LATENCY: lambda job: instance.jobs[job].weight / (total or 1),
    }
    return [weight[objective](job) for job in range(n)] if objective in weight else None


def completion_costs(instance: Instance, objective: Objective, scale: int) -> list[tuple[int, int, int, bool]]:
    """Return (job, weight, free until, step) of the jobs that cost something: whole weights, rounded down."""
    late, costs = objective is Objective.LATE_JOBS, []
    weights = latency_weights(instance, objective) or [Fraction(0)] * len(instance.jobs)
    for index, (job, weight) in enumerate(zip(instance.jobs, weights, strict=True)):
        free_until = job.release_us
        if job.deadline_us is not None and (late or objective is Objective.WEIGHTED_TARDINESS):
            weight, free_until = job.weight, job.release_us + job.deadline_us
        if weight > 0:
            costs.append((index, int(weight * scale), free_until, late))
    return costs


def least_value(instance: Instance, objective: Objective, bound: Fraction) -> Fraction:
    """Return the least value from a bound on that the objective can take, since times are whole."""
    if objective is Objective.LATE_JOBS:
        due = [job.weight for job in instance.jobs if job.weight and job.deadline_us is not None]
        unit = Fraction(math.gcd(*(w.numerator for w in due)), lcm(*(w.denominator for w in due)))
        return math.ceil(bound / unit) * unit if unit else bound
    if objective is Objective.MAKESPAN:
        return Fraction(math.ceil(bound))
    if objective is Objective.MEAN_LATENCY:
        return Fraction(math.ceil(bound * len(instance.jobs)), len(instance.jobs))
    return bound


_MOST_LAYERS = 32


def _layers(instance: Instance) -> list[tuple[Fraction, list[int]]]:
    """Return layers of the jobs with deadlines, by weight: what each is worth, and its jobs.

    A job's weight is the worth of all layers that it lies in, or more; so the late jobs of each, times its worth, add
    up to no more than what late jobs weigh.
    """
    due = [job for job, owner in enumerate(instance.jobs) if owner.deadline_us is not None]
    levels = sorted({instance.jobs[job].weight for job in due} - {Fraction(0)})
    if len(levels) > _MOST_LAYERS:
        levels = [levels[i * (len(levels) - 1) // (_MOST_LAYERS - 1)] for i in range(_MOST_LAYERS)]
    return [
        (level - below, [job for job in due if instance.jobs[job].weight >= level])
        for below, level in pairwise([Fraction(0), *levels])
    ]


# Energetic


def energetic(instance: Instance, objective: Objective, parameters: object) -> Fraction | None:
    """Return what the work proves that the certificate's intervals confine; without any, what a job alone proves."""
    if objective is Objective.LATE_JOBS:
        return _late_in_intervals(instance, parameters)
    if objective not in (Objective.MAKESPAN, Objective.MAX_SLOWDOWN, Objective.WEIGHTED_TARDINESS):
        return None
    value = critical_path(instance, objective, None)
    return value if parameters == {} else max(value, _late_in_interval(instance, objective, parameters))


def _late_in_interval(instance: Instance, objective: Objective, parameters: object) -> Fraction:
    """Return what ending last costs at least, of the tasks that begin no earlier and are due no later than said.

    Together they end no earlier than their first start plus their work over the GPUs that can run them.
    """
    level = _level(parameters) if objective is Objective.MAX_SLOWDOWN else Fraction(0)
    first = whole(get(parameters, "from_us"), 0, LATEST, "from_us")
    last = whole(get(parameters, "due_us"), -LATEST, LATEST, "due_us")
    alone, (captive, gpus), parts = LoneJobs(instance), _read_confined(instance, parameters), _parts(parameters)
    work, inside = 0, list[tuple[int, int]]()
    for job, owner in enumerate(instance.jobs):
        due = 0
        if objective is Objective.MAX_SLOWDOWN:
            due = owner.release_us + int(level * int(instance.job_ideal_us[job]))
        elif objective is Objective.WEIGHTED_TARDINESS:
            if owner.deadline_us is None:
                continue
            due = owner.release_us + owner.deadline_us
        for template, head in zip(_templates(alone, job), alone.times(job)[0], strict=True):
            if captive[template] and head >= first and due - alone.tail[template] <= last:
                work += _least_work(alone, template, parts)
                inside.append((job, alone.tail[template]))
    end = first - (-work // (gpus * parts))  # ends are whole
    if not instance.always_available:
        end = _done_us(instance, parameters, first, -(-work // parts))
    return min((_cost(instance, objective, job, end + tail) for job, tail in set(inside)), default=Fraction(0))


def _done_us(instance: Instance, parameters: object, first: int, gpu_us: int) -> int:
    """Return the first instant by which the GPUs of some classes were there for so long since another one."""
    listed = as_list(get(parameters, "gpu_classes"), None, "gpu_classes")
    there = [
        g.available for g, c in zip(instance.cluster.gpus, instance.gpu_class.tolist(), strict=True) if c in listed
    ]

    def had(end: int) -> int:
        return sum(available.available_us(first, end) for available in there)

    low, high = first, first + 1
    while had(high) < gpu_us and high < LATEST:
        high *= 2
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if had(middle) >= gpu_us else (middle + 1, high)
    return low


def _cost(instance: Instance, objective: Objective, job: int, end_us: int) -> Fraction:
    """Return the least value of an objective if a job ends then or later."""
    owner = instance.jobs[job]
    if objective is Objective.MAKESPAN:
        return Fraction(end_us)
    if objective is Objective.MAX_SLOWDOWN:
        return Fraction(end_us - owner.release_us, int(instance.job_ideal_us[job]))
    if owner.deadline_us is None:
        return Fraction(0)
    return owner.weight * max(0, end_us - owner.release_us - owner.deadline_us)


def _late_in_intervals(instance: Instance, parameters: object) -> Fraction:
    """Return what jobs late even alone weigh, and those late in each interval, of which no two share a job."""
    alone, intervals, gpus, parts = LoneJobs(instance), list[tuple[int, int]](), 1, 1
    captive = [False] * len(alone.fastest)
    if parameters != {}:
        (captive, gpus), parts = _read_confined(instance, parameters), _parts(parameters)
        for pair in as_list(get(parameters, "intervals"), None, "intervals"):
            begin, end = (whole(at, 0, LATEST, "intervals") for at in as_list(pair, 2, "intervals"))
            intervals.append((begin, end))
    if any(b > c for (_, b), (c, _) in pairwise(intervals)) or any(a > b for a, b in intervals):
        raise RefusedError("intervals overlap or are out of order")
    weight, on_time = Fraction(0), dict[int, tuple[int, int, int]]()
    for job, (owner, end) in enumerate(zip(instance.jobs, _ends(alone), strict=True)):
        if owner.deadline_us is not None:
            due = owner.release_us + owner.deadline_us
            weight += owner.weight if end > due else 0
            work = sum(_least_work(alone, t, parts) for t in _templates(alone, job) if captive[t])
            if end <= due and work:
                on_time[job] = due, owner.release_us, work
    for worth, jobs in _layers(instance) if intervals else ():
        ordered = sorted(on_time[job] for job in jobs if job in on_time)
        for first, last in intervals:
            inside = [(due, work) for due, begin, work in ordered if first <= begin and due <= last]
            weight += worth * _too_many(inside, first, gpus * parts)
    return weight


def _too_many(inside: list[tuple[int, int]], begin: int, speed: int) -> int:
    """Return how many of these jobs cannot all do their work between `begin` and their due dates, which ascend.

    Whenever the work due by a date exceeds the time until then, the largest must go (Moore and Hodgson 1968).
    """
    kept, total = list[int](), 0
    for due, work in inside:
        heapq.heappush(kept, -work)
        total += work
        if total > speed * (due - begin):
            total += heapq.heappop(kept)
    return len(inside) - len(kept)


def _read_confined(instance: Instance, parameters: object) -> tuple[list[bool], int]:
    """Return which templates only GPUs of the named classes can run, and how many these are."""
    classes = range(len(instance.class_gpu))
    listed = as_list(get(parameters, "gpu_classes"), None, "gpu_classes")
    chosen = {whole(c, 0, len(classes) - 1, "gpu_classes") for c in listed}
    gpus = sum(c in chosen for c in instance.gpu_class.tolist())
    if not gpus:
        raise RefusedError("gpu_classes is empty")
    return [all(c in chosen for c in classes if row[c] != NEVER) for row in instance.run_us.tolist()], gpus


def _parts(parameters: object) -> int:
    """Return in how many parts of a GPU's microsecond work is counted; rounded down, any number of them is sound."""
    told = isinstance(parameters, dict) and "parts" in parameters
    return whole(get(parameters, "parts"), 1, LATEST, "parts") if told else 1


def _least_work(alone: LoneJobs, template: int, parts: int) -> int:
    """Return the least that a task takes of the GPUs, in parts of a GPU's microsecond."""
    return min(rate * run for rate, run in alone.rates(template, parts))


def _level(parameters: object) -> Fraction:
    """Return the slowdown that gives the tasks their due dates, written as numerator and denominator."""
    numerator, denominator = as_list(get(parameters, "level"), 2, "level")
    return Fraction(whole(numerator, 0, _LARGEST_LEVEL, "level"), whole(denominator, 1, _LARGEST_LEVEL, "level"))


def _templates(alone: LoneJobs, job: int) -> range:
    return alone.templates(int(alone.instance.job_workflow[job]))


# Fluid


def fluid(instance: Instance, objective: Objective, parameters: object) -> Fraction | None:
    """Return what late jobs weigh at least, since a window holds more work or loads than the GPUs can do in it."""
    if objective is not Objective.LATE_JOBS:
        return None
    if parameters == {}:
        return Fraction(0)
    begin = whole(get(parameters, "begin_us"), 0, LATEST, "begin_us")
    end = whole(get(parameters, "end_us"), begin + 1, LATEST, "end_us")
    resource, gpus = get(parameters, "resource"), instance.n_gpus
    if resource == "compute":
        return _late_for_work(instance, begin, end, _parts(parameters))
    if resource == "copy engine" and begin == 0:
        held = {resident.model for resident in instance.initial}
        size = [
            0 if model in held else min((load for load in row if load != NEVER), default=0)
            for model, row in enumerate(instance.load_us.tolist())
        ]
        return _late_for_models(instance, begin, end, size, Fraction(_gpu_us(instance, 0, end)))
    if resource == "memory":
        room = max(gpu.memory_bytes for gpu in instance.class_gpu)
        loaded = max(gpu.load_bandwidth for gpu in instance.class_gpu) * (end - begin) / 1_000_000
        size = [model.weight_bytes for model in instance.models]
        return _late_for_models(instance, begin, end, size, gpus * (room + loaded))
    raise RefusedError("resource must be compute, memory, or copy engine from 0 on")


def _gpu_us(instance: Instance, begin: int, end: int) -> int:
    """Return for how long all GPUs together are there in a window."""
    return sum(gpu.available.available_us(begin, end) for gpu in instance.cluster.gpus)


def _late_for_work(instance: Instance, begin: int, end: int, parts: int) -> Fraction:
    """Return what jobs weigh that must go until the work that no job on time can move out of the window fits in."""
    alone, energy = LoneJobs(instance), dict[int, int]()
    rates = [alone.rates(template, parts) for template in range(len(alone.share))]
    for job, owner in enumerate(instance.jobs):
        if owner.deadline_us is not None:
            release, due = owner.release_us, owner.release_us + owner.deadline_us
            energy[job] = sum(
                min(
                    rate
                    * max(
                        0,
                        min(
                            run,
                            end - begin,
                            release + alone.head[t] + run - begin,
                            end - (due - alone.tail[t] - run),
                        ),
                    )
                    for rate, run in rates[t]
                )
                for t in _templates(alone, job)
            )
    room, weight = parts * _gpu_us(instance, begin, end), Fraction(0)
    for worth, jobs in _layers(instance):
        energies = sorted(energy[job] for job in jobs)
        excess = sum(energies) - room
        while excess > 0:
            excess -= energies.pop()
            weight += worth
    return weight


def _late_for_models(instance: Instance, begin: int, end: int, size: list[int], room: Fraction) -> Fraction:
    """Return what jobs weigh that must go until the models of the others fit."""
    needed = [
        {m for t in range(first, beyond) for m in instance.needs[t]}
        for first, beyond in pairwise(instance.template_first.tolist())
    ]
    inside = {
        job: needed[int(instance.job_workflow[job])]
        for job, owner in enumerate(instance.jobs)
        if owner.deadline_us is not None and owner.release_us >= begin and owner.release_us + owner.deadline_us <= end
    }
    layers = _layers(instance)
    return sum(
        (worth * _too_large([inside[job] for job in jobs if job in inside], size, room) for worth, jobs in layers),
        Fraction(0),
    )


def _too_large(needed: list[set[int]], size: list[int], room: Fraction) -> int:
    """Return how many of these jobs must go until their models fit: by fractions, the most size per job first."""
    users, together = [0] * len(size), max(map(len, needed), default=1) or 1
    for models in needed:
        for model in models:
            users[model] += 1
    used = [m for m, count in enumerate(users) if count and size[m]]
    used.sort(key=lambda m: Fraction(size[m], users[m]), reverse=True)
    excess, late = sum(size[m] for m in used) - room, Fraction(0)
    for m in used:
        if excess > 0:
            late += Fraction(users[m], together) * min(Fraction(1), excess / size[m])
            excess -= size[m]
    return -(-late.numerator // late.denominator)


# Prices of streams


def stream_prices(instance: Instance, objective: Objective, parameters: object) -> Fraction | None:
    """Return what all jobs pay at the least for GPU time and for coming late, less the worth of all GPUs."""
    instance, due = least_computed(instance), _due(instance, objective)
    return None if instance.streams is None or due is None else stream_value(instance, due, parameters)


def _due(instance: Instance, objective: Objective) -> list[tuple[Fraction, int]] | None:
    """Return what a microsecond beyond how long a latency costs each job; None for an objective that is no such sum."""
    if objective is Objective.WEIGHTED_TARDINESS:
        free = (Fraction(0), 0)
        return [free if job.deadline_us is None else (job.weight, job.deadline_us) for job in instance.jobs]
    weights = latency_weights(instance, objective)
    return None if weights is None else [(weight, 0) for weight in weights]


RECOMPUTED: Mapping[str, Recompute] = {
    "critical_path": critical_path,
    "mean_busy_time": mean_busy_time,
    "energetic": energetic,
    "fluid": fluid,
    "stream_prices": stream_prices,
}
SUPPORTS: Mapping[str, Features] = {
    "critical_path": HELD | {Feature.DELAYS},
    "mean_busy_time": SEVERAL_AT_A_TIME | {Feature.DELAYS},
    "energetic": SEVERAL_AT_A_TIME | {Feature.DELAYS},
    "fluid": SEVERAL_AT_A_TIME | {Feature.DELAYS},
    "stream_prices": HELD | {Feature.DELAYS},
}
