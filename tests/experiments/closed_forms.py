"""Closed forms of docs/certificate.md that no instance of the library needs: held against the project's on any window.

They are said in the words of the stranger's verifier, and share no line with the project either.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable
from fractions import Fraction
from heapq import heappop, heappush
from itertools import accumulate, chain, pairwise
from typing import Any

from experiments.library.verifier import MAXIMA, Piece, Window, critical_path

LATENCIES = ("mean_latency", "weighted_latency", "mean_slowdown")


def demand(holds: bool) -> None:
    """Refuse unless it holds."""
    if not holds:
        raise ValueError


def run_of(x: Piece) -> int:
    """Return a task's shortest run alone."""
    return min((way.r for way in x.ways if way.fewest == 1), default=0)


def machine(pieces: Any, first: Callable[[int, int], int]) -> Any:
    """Run pieces (from, length, job) preemptively, least first(job, rest) first; yield who runs from when to when."""
    queue, now = list[Any](), 0
    for arrival, length, job in [*sorted(pieces), (math.inf, 0, 0)]:
        while queue and now < arrival:
            _, rest, j = heappop(queue)
            begin, now = now, min(arrival, now + rest)
            yield j, begin, now
            if rest > now - begin:
                heappush(queue, (first(j, rest - now + begin), rest - now + begin, j))
        now = max(now, arrival)
        heappush(queue, (first(job, length), length, job))


def mean_busy_time(window: Window, *_: Any) -> tuple[Any, bool]:
    """Do all work on one machine as fast as all GPUs, the job of highest w / W first."""
    demand(window.objective in LATENCIES)
    n, jobs, all_pieces = len(window.gpus), window.jobs, list(enumerate(window.pieces))
    work = [
        (j, x, min(Fraction(x.task.share * w.r, 10_000 * w.most) for w in x.ways)) for j, xs in all_pieces for x in xs
    ]
    unit = math.lcm(*((a / n).denominator for _, _, a in work))  # of time, so that everything is whole
    total, moment = defaultdict[int, Fraction](Fraction), defaultdict[int, Fraction](Fraction)
    for j, x, a in work:
        total[j] += a
        moment[j] += a * (x.tail + Fraction(run_of(x), 2))
    rank = {j: i for i, j in enumerate(sorted(total, key=lambda j: -jobs[j].w / total[j]))}
    for j, begin, end in machine([(x.start * unit, int(a * unit / n), j) for j, x, a in work], lambda j, _: rank[j]):
        moment[j] += n * Fraction(end * end - begin * begin, 2 * unit * unit)  # a M: the machine runs a in a / n
    value = sum(jobs[j].w / total[j] * moment[j] for j in total)
    if len({job.w for job in jobs}) == 1:  # the shortest remaining work first
        by_release = [(job.release * unit, int(total[j] * unit / n), j) for j, job in enumerate(jobs)]
        ends = {j: end for j, _, end in machine(by_release, lambda _, rest: rest)}
        value = max(value, jobs[0].w * Fraction(sum(ends.values()), unit))
    return value - sum(job.w * job.release for job in jobs), True


def energetic(window: Window, p: Any, _: Any) -> tuple[Fraction, bool]:
    """Captive work keeps its GPUs busy until some instant, or beyond so many due dates."""
    demand(window.objective not in LATENCIES)
    bound, pieces = critical_path(window)[0], list(chain(*window.pieces))
    if not p:
        return bound, True
    chosen, parts = set(p["gpu_classes"]), p.get("parts", 1)
    captive = [x for x in pieces if {way.c for way in x.ways} <= chosen]
    work = {id(x): min(parts * x.task.share // (10_000 * w.most) * w.r for w in x.ways) for x in captive}
    if window.objective == "late_jobs":
        speed = parts * sum(len(window.classes[c]) for c in chosen)
        spans, tiers = p["intervals"], list(layers(window))
        return bound + sum(
            worth * missed(window, work, speed, least, *s) for worth, least in tiers for s in spans
        ), True
    level = Fraction(*p["level"]) if window.objective == "max_slowdown" else 0
    due = [x for x in captive if x.job.deadline is not None or window.objective in MAXIMA]
    early = [x for x in due if x.job.d + math.floor(level / (x.job.w or 1)) - x.tail <= p["due_us"]]
    begin, inside = p["from_us"], [x for x in early if x.start >= p["from_us"]]
    need = -(-sum(work[id(x)] for x in inside) // parts)
    starts = [a for c in chosen for a, _ in window.classes[c][0].spans]
    reach = range(begin, max(begin, *starts) + need)
    end = begin + bisect_left(reach, need, key=lambda end: window.there(chosen, begin, end))
    return max(bound, min((x.job.w * max(0, end + x.tail - x.job.d) for x in inside), default=bound)), True


def layers(window: Window) -> Any:
    """Yield the worth and the least weight of the jobs of each layer of late jobs."""
    levels = sorted({job.w for job in window.jobs if job.w})
    k = len(levels)
    levels = levels if k <= 32 else [levels[i * (k - 1) // 31] for i in range(32)]
    yield from ((level - below, level) for below, level in pairwise([Fraction(), *levels]))


def missed(window: Window, work: dict[int, int], speed: int, least: Fraction, begin: int, end: int) -> int:
    """Count the due dates within a span, not missed anyway, that captive work misses, as Moore and Hodgson do."""
    taken, busy, late, inside = list[int](), 0, 0, []
    for j, (job, pieces) in enumerate(zip(window.jobs, window.pieces, strict=True)):
        a = sum(work.get(id(x), 0) for x in pieces)
        if a and job.w >= least and begin <= job.release and job.d <= end and max(x.end for x in pieces) <= job.d:
            inside.append((job.d, job.release, j, a))
    for due, _, _, a in sorted(inside):
        heappush(taken, -a)
        busy += a
        if busy > speed * (due - begin):
            busy += heappop(taken)
            late += 1
    return late


def heads(window: Window, pieces: list[Piece]) -> list[int]:
    """Return the longest chain of runs before each task of a job."""
    flow, head = window.flows[pieces[0].job.flow], dict[str, int]()
    runs = dict(zip(flow, map(run_of, pieces), strict=True))
    for t in window.order[pieces[0].job.flow]:
        head[t] = max((head[p] + runs[p] for p, _ in flow[t].before), default=0)
    return [head[t] for t in flow]


def fluid(window: Window, p: Any, _: Any) -> tuple[Fraction, bool]:
    """Weigh the jobs that are late since a span has too little of a resource for all that are due in it."""
    demand(window.objective == "late_jobs")
    found = (worth * short(window, p, least) for worth, least in layers(window)) if p else ()
    return sum(found, Fraction()), True


def short(window: Window, p: Any, least: Fraction) -> int:
    """Count the late jobs among those that weigh so much at least."""
    begin, end, resource = p["begin_us"], p["end_us"], p["resource"]
    demand(begin < end and (resource != "copy engine" or begin == 0))
    room = Fraction(window.there(range(len(window.classes)), begin, end))
    due = [xs for xs in window.pieces if xs[0].job.w >= least]
    if resource == "compute":
        parts, energies = p.get("parts", 1), []
        for pieces in due:
            energies.append(0)
            for x, head in zip(pieces, heads(window, pieces), strict=True):
                after, before = x.job.release + head - begin, end - x.job.d + x.tail
                rates = [(parts * x.task.share // (10_000 * way.most), way.r) for way in x.ways]
                energies[-1] += min(a * max(0, min(r, end - begin, after + r, before + r)) for a, r in rates)
        return sum(total > parts * room for total in accumulate(sorted(energies)))
    inside = [{m for x in xs for m in x.task.models} for xs in due if xs[0].job.release >= begin and xs[0].job.d <= end]
    users, there = Counter(chain(*inside)), {model for _, model, _ in window.initial}
    sizes = {m: Fraction(window.models[m]) for m in users}
    if resource == "memory":
        speed = Fraction(max(gpu.speed for gpu in window.gpus) * (end - begin), 10**6)
        room = len(window.gpus) * (max(gpu.memory for gpu in window.gpus) + speed)
    else:
        fit = {m: [g for g in window.gpus if window.models[m] <= max(g.slots or [g.memory])] for m in users}
        sizes = {m: Fraction(0 if m in there else min(window.load(m, gpu) for gpu in fit[m])) for m in users}
    late, excess = Fraction(), Fraction(sum(sizes.values())) - room
    for m in sorted(users, key=lambda m: sizes[m] / users[m], reverse=True):
        late += users[m] * min(Fraction(1), max(Fraction(0), excess) / (sizes[m] or 1))
        excess -= sizes[m]
    return math.ceil(late / (max(map(len, inside), default=0) or 1))
