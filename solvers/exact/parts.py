"""Proofs part by part: cut where GPUs idle anyway, so that a part is small enough for the programme over start orders.

What a plan does for the jobs released before some instant is a plan of the window of these jobs alone, and so is what
it does for the others: whatever the cuts, the optima of the parts add up to no more than any plan costs. Nothing is
lost where no job of one part waits for one of another; the prices of the Lagrangian tell, which are 0 while GPUs idle.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise, permutations

import numpy as np

from truenorth.models.instance import Instance
from truenorth.models.objective import Objective, charges
from truenorth.models.timeline import Timeline
from truenorth.solvers.bounds import closed_form
from truenorth.solvers.bounds.lagrangian.improve import Priced
from truenorth.solvers.bounds.lagrangian.improve import improve as raise_bound
from truenorth.solvers.exact import start_orders
from truenorth.solvers.exact.start_orders_tables import ComputeRate
from truenorth.solvers.result import Search
from truenorth.solvers.search.decoder import Decisions, Decoder

_MOST_TASKS = 150
"""Larger parts are left to the Lagrangian."""
_S_PER_TASK = 0.04
"""With less time parts are not worth a try."""
_LITTLE = 1e-3
"""A cut may lose so much of the gap between plan and bound."""
_FEW_STATES = 10_000
"""With prices of the whole window a part is proved with so few states, or else with prices of its own."""
_ASCENT_S_PER_TASK, _ASCENT_SHARE = 0.06, 0.5
"""Those take so many seconds, or so much of a part's time if that is less."""
_MOST_RENAMED = 5
"""So many GPUs are tried under all names when a better plan of a part joins the others."""


@dataclass(frozen=True, slots=True)
class JobsPart:
    """Some jobs of a window by themselves.

    Parameters
    ----------
    instance
        The same cluster with these jobs alone.
    tasks
        Their tasks in the window.
    share
        What its objective counts for in that of the window.
    """

    instance: Instance
    tasks: slice
    share: Fraction

    @classmethod
    def of(cls, instance: Instance, objective: Objective, jobs: range) -> JobsPart:
        """Return the part of a window that some jobs are, not all of them without weight."""
        # Releases stay as they are, so that plans need not be shifted.
        alone = replace(instance, jobs=instance.jobs[jobs.start : jobs.stop])
        weights = charges(objective, instance).job_weights[jobs.start : jobs.stop]
        first, last = instance.job_first_task[[jobs.start, jobs.stop]].tolist()
        return cls(alone, slice(first, last), max(weights) / max(charges(objective, alone).job_weights))

    @property
    def size(self) -> int:
        """The number of its tasks."""
        return self.instance.n_tasks

    def plan(self, timeline: Timeline) -> Timeline:
        """Return what a plan of the window does for these jobs."""
        at = self.tasks
        return Timeline(timeline.gpu[at], timeline.start_us[at], timeline.end_us[at], timeline.residencies)


def cut(search: Search, priced: Priced) -> list[range]:
    """Return the jobs of a search's parts: cut where earlier jobs pay next to nothing once the next is released.

    Notes
    -----
    Invariant: ranges of jobs, in the order of release, that cover the window; each has a job that costs something.
    Because: a cut before a job loses what the plan's runs of earlier jobs pay after its release, about what they
    would be worth to it. No job takes longer than `longest_us` from its release in the plan, so only those that
    were released no more than that before can still run: the tasks of `last`, found by `searchsorted`. Earlier ones
    pay nothing.
    Cost: O(jobs x tasks that overlap a release).
    If wrong: weaker. Optima of parts add up to a bound wherever the cuts are; bad ones lose more of it.
    """
    instance, timeline = search.instance, search.timeline
    whole = [range(len(instance.jobs))]
    if timeline is None or search.value is None or not start_orders.applies(instance, search.objective):
        return whole
    rate, weights = ComputeRate.of(priced), charges(search.objective, instance).job_weights
    edges_us = np.arange(len(rate.by_slot) + 1) * rate.slot_us
    # In floats: cuts are a choice, and prove nothing by themselves.
    paid = np.concatenate(([0.0], np.cumsum(rate.by_slot) * rate.slot_us)) / float(rate.scale)
    release_us, first_task = instance.job_release_us, instance.job_first_task
    # The longest latency in the plan: whoever was released longer ago has ended.
    longest_us = int((np.maximum.reduceat(timeline.end_us, first_task[:-1]) - release_us).max())
    little, cuts = _LITTLE * float(search.value - priced.bound), [0]
    for job in range(1, len(instance.jobs)):
        last = slice(int(first_task[np.searchsorted(release_us, release_us[job] - longest_us)]), int(first_task[job]))
        # Of each run only what lies after the release: runs that ended before have start = end there, and pay 0.
        end_us = np.maximum(timeline.end_us[last], release_us[job])
        start_us = np.maximum(timeline.start_us[last], release_us[job])
        lost = np.interp(end_us, edges_us, paid) - np.interp(start_us, edges_us, paid)
        # A part of jobs without weight costs nothing whatever it does: it joins the next one.
        if lost.sum() <= little and any(weights[cuts[-1] : job]):
            cuts.append(job)
    if len(cuts) > 1 and not any(weights[cuts[-1] :]):
        # The last part would have no weight: it joins the one before.
        cuts.pop()
    return [range(first, last) for first, last in pairwise([*cuts, len(instance.jobs)])]


def suits(search: Search, priced: Priced, limit_s: float) -> bool:
    """Say whether most tasks of a window lie in parts that are small enough to be proved, with time to try them all."""
    instance = search.instance
    if limit_s < _S_PER_TASK * instance.n_tasks:
        return False
    sizes = [int(np.diff(instance.job_first_task[[jobs.start, jobs.stop]])[0]) for jobs in cut(search, priced)]
    # Where most tasks lie in larger parts the Lagrangian of the whole is worth more.
    return len(sizes) > 1 and 2 * sum(size for size in sizes if size <= _MOST_TASKS) >= instance.n_tasks


def improve(search: Search, priced: Priced, limit_s: float, workers: int = 1) -> None:
    """Improve a search's bound, and its plan, by those of its parts; the smallest come first.

    Parameters
    ----------
    priced
        Prices of the Lagrangian: the better they are, the fewer states.
    limit_s
        Seconds from now.
    workers
        So many parts are looked at at a time.
    """
    end_s = search.elapsed_s + limit_s
    ranges, timeline, rate = cut(search, priced), search.timeline, ComputeRate.of(priced)
    # The whole window is the only part.
    if len(ranges) == 1 or timeline is None:
        start_orders.improve(search, rate, limit_s)
        return

    def left_s() -> float:
        return min(search.remaining_s, end_s - search.elapsed_s)

    parts = sorted(
        (JobsPart.of(search.instance, search.objective, jobs) for jobs in ranges), key=lambda part: part.size
    )
    searches = [_begin(search, part, timeline, limit_s) for part in parts]

    def prove_at_once(at: int) -> None:
        """Prove a part at prices of the whole window if that takes few states."""
        if not searches[at].proved and parts[at].size <= _MOST_TASKS and left_s() > 0:
            # Prices of the window in units of the part's own objective.
            own = rate._replace(scale=rate.scale * parts[at].share)
            start_orders.improve(searches[at], own, left_s(), _FEW_STATES)

    def prove_alone(at: int) -> None:
        """Prove a part at prices of its own, in its share of the time that is left."""
        # By size; what the small ones do not need goes to those behind them.
        share = min(1.0, workers * parts[at].size / sum(part.size for part in parts[at:]))
        if not searches[at].proved and searches[at].bound_method != start_orders.METHOD and left_s() > 0:
            _prove_alone(searches[at], share * left_s())

    with ThreadPoolExecutor(workers) as pool:
        # All at known prices first: most are proved so, in a fraction of the time that new prices take.
        for prove in (prove_at_once, prove_alone):
            list(pool.map(prove, range(len(parts))))
    _join(search, timeline, zip(parts, searches, strict=True))
    # A part without a bound counts 0: no objective is negative.
    bounds = [part.share * (alone.bound or 0) for part, alone in zip(parts, searches, strict=True)]
    search.offer_bound(sum(bounds, Fraction(0)), start_orders.METHOD)


def _begin(search: Search, part: JobsPart, timeline: Timeline, limit_s: float) -> Search:
    """Return a search of a part that knows its share of a plan, and bounds that need no ascent."""
    alone = Search(part.instance, search.objective, limit_s, stop=search.stop, left_out=search.left_out)
    alone.offer(part.plan(timeline))
    alone.offer_bound(*closed_form.best(part.instance, search.objective))
    return alone


def _prove_alone(alone: Search, limit_s: float) -> None:
    """Prove a part if it is small enough; otherwise raise its bound as far as time allows."""
    end_s, size = alone.elapsed_s + limit_s, alone.instance.n_tasks
    if size <= _MOST_TASKS:
        priced = raise_bound(alone, min(_ASCENT_S_PER_TASK * size, _ASCENT_SHARE * limit_s))
        if priced is not None:
            start_orders.improve(alone, ComputeRate.of(priced), end_s - alone.elapsed_s)
    if not alone.proved and alone.bound_method != start_orders.METHOD:
        raise_bound(alone, end_s - alone.elapsed_s)


def _join(search: Search, timeline: Timeline, found: Iterable[tuple[JobsPart, Search]]) -> None:
    """Offer the plan with better ones of some parts in it, under the names of the GPUs that suit it best."""
    decoder, gpus = Decoder(search.instance, search.objective, idle_first=True), search.instance.n_gpus
    start_us, gpu = timeline.start_us.copy(), timeline.gpu.copy()
    # GPUs are alike, so a part may use any names: those that load least at its seams are the best.
    names = list(permutations(range(gpus))) if gpus <= _MOST_RENAMED else [tuple(range(gpus))]
    for part, alone in found:
        own = alone.timeline
        if own is None or (own.start_us == timeline.start_us[part.tasks]).all():
            continue
        start_us[part.tasks] = own.start_us
        # Behind a part its neighbours may start sooner or later: the decoder times them anew.
        order, tried = np.lexsort((timeline.end_us, start_us)).astype(np.int64), []
        for name in names:
            gpu[part.tasks] = np.array(name)[own.gpu]
            tried.append((decoder.cost(Decisions(order, gpu)), name))
        gpu[part.tasks] = np.array(min(tried)[1])[own.gpu]
        joined = decoder.timeline(Decisions(order, gpu))
        if joined is not None:
            search.offer(joined)
