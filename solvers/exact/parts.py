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
from truenorth.solvers.exact.certify_parts import PartProof, certify
from truenorth.solvers.exact.start_orders_tables import ComputeRate
from truenorth.solvers.result import Search
from truenorth.solvers.search.decoder import Decisions, Decoder

_MOST_TASKS = 150
"""Larger parts are left to the Lagrangian."""
_S_PER_TASK = 0.04
"""With less time parts are not worth a try."""
_PROOFS_SHARE = 0.75
"""Where proofs are to be written down they get so much of the time, and their verifier's own programme the rest."""
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
        return Timeline(timeline.place[at], timeline.start_us[at], timeline.end_us[at], timeline.residencies)


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
    little, cuts = search.tuning.cut_loss * float(search.value - priced.bound), [0]
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
    clock = search.clock.child(limit_s)
    # Whoever wants certificates proves again what is proved here.
    proving = clock.child(_PROOFS_SHARE * limit_s if search.writes else limit_s)
    ranges, timeline, rate = cut(search, priced), search.timeline, ComputeRate.of(priced)

    if len(ranges) == 1 or timeline is None:
        start_orders.improve(search, rate, proving.left_s)
        if search.writes and search.bound_method == start_orders.METHOD:
            certify(search, [_OpenPart.whole(search, rate, priced).proof], clock)
        return
    parts = sorted((_OpenPart.of(search, jobs, timeline, limit_s) for jobs in ranges), key=lambda part: part.alone.size)

    def prove_at_once(at: int) -> None:
        if not proving.is_set():
            parts[at].prove_at_once(rate, proving.left_s)

    def prove_alone(at: int) -> None:
        # By size; what the small ones do not need goes to those behind them.
        share = min(1.0, workers * parts[at].alone.size / sum(part.alone.size for part in parts[at:]))
        if not proving.is_set():
            parts[at].prove_alone(share * proving.left_s)

    with ThreadPoolExecutor(workers) as pool:
        # All at known prices first: most are proved so, in a fraction of the time that new prices take.
        for prove in (prove_at_once, prove_alone):
            list(pool.map(prove, range(len(parts))))
    _join(search, timeline, parts)
    # A part without a bound counts 0: no objective is negative.
    bounds = [part.alone.share * (part.search.bound or 0) for part in parts]
    search.offer_bound(sum(bounds, Fraction(0)), start_orders.METHOD)
    if search.writes:
        certify(search, [part.proof for part in sorted(parts, key=lambda part: part.jobs.start)], clock)


@dataclass(slots=True)
class _OpenPart:
    """A part that is being proved: a search of its own, and the prices that served.

    Parameters
    ----------
    rate
        Prices that guided its last start orders.
    priced
        Its own prices, if it has any.
    """

    jobs: range
    alone: JobsPart
    search: Search
    rate: ComputeRate | None = None
    priced: Priced | None = None

    @classmethod
    def of(cls, search: Search, jobs: range, timeline: Timeline, limit_s: float) -> _OpenPart:
        """Return a part that knows its share of a plan, and bounds that need no ascent."""
        part = JobsPart.of(search.instance, search.objective, jobs)
        alone = Search(part.instance, search.objective, search.clock.child(limit_s), tuning=search.tuning)
        alone.left_out = search.left_out
        alone.offer(part.plan(timeline))
        alone.offer_bound(*closed_form.best(part.instance, search.objective))
        return cls(jobs, part, alone)

    @classmethod
    def whole(cls, search: Search, rate: ComputeRate, priced: Priced) -> _OpenPart:
        """Return the only part of a window."""
        jobs = range(len(search.instance.jobs))
        return cls(jobs, JobsPart.of(search.instance, search.objective, jobs), search, rate, priced)

    def prove_at_once(self, rate: ComputeRate, limit_s: float) -> None:
        """Prove it at prices of the whole window if that takes few states."""
        if not self.search.proved and self.alone.size <= _MOST_TASKS:
            # Prices of the window in units of the part's own objective.
            self.rate = rate._replace(scale=rate.scale * self.alone.share)
            start_orders.improve(self.search, self.rate, limit_s, _FEW_STATES)

    def prove_alone(self, limit_s: float) -> None:
        """Prove it at prices of its own if it is small enough; otherwise raise its bound as far as time allows."""
        if self._is_settled():
            return
        clock, size = self.search.clock.child(limit_s), self.alone.size
        if size <= _MOST_TASKS:
            self.priced = raise_bound(self.search, min(_ASCENT_S_PER_TASK * size, _ASCENT_SHARE * limit_s))
            if self.priced is not None:
                self.rate = ComputeRate.of(self.priced)
                start_orders.improve(self.search, self.rate, clock.left_s)
        if not self._is_settled():
            longer = raise_bound(self.search, clock.left_s)
            if self.priced is None or (longer is not None and longer.bound > self.priced.bound):
                self.priced = longer

    def _is_settled(self) -> bool:
        return self.search.proved or self.search.bound_method == start_orders.METHOD

    @property
    def proof(self) -> PartProof:
        """What is proved of it."""
        found, by_order = self.search, self.search.bound_method == start_orders.METHOD
        done_us = 0 if found.timeline is None else int(found.timeline.end_us.max())
        return PartProof(
            self.jobs, found.bound or Fraction(0), found.value, done_us, self.rate if by_order else None, self.priced
        )


def _join(search: Search, timeline: Timeline, parts: Iterable[_OpenPart]) -> None:
    """Offer the plan with better ones of some parts in it, under the names of the GPUs that suit it best."""
    decoder, gpus = Decoder(search.instance, search.objective, idle_first=True), search.instance.n_gpus
    start_us, gpu = timeline.start_us.copy(), timeline.place.copy()
    # GPUs are alike, so a part may use any names: those that load least at its seams are the best.
    names = list(permutations(range(gpus))) if gpus <= _MOST_RENAMED else [tuple(range(gpus))]
    for part, own in ((open_part.alone, open_part.search.timeline) for open_part in parts):
        if own is None or (own.start_us == timeline.start_us[part.tasks]).all():
            continue
        start_us[part.tasks] = own.start_us
        # Behind a part its neighbours may start sooner or later: the decoder times them anew.
        order, tried = np.lexsort((timeline.end_us, start_us)).astype(np.int64), []
        for name in names:
            gpu[part.tasks] = np.array(name)[own.place]
            tried.append((decoder.cost(Decisions(order, gpu)), name))
        gpu[part.tasks] = np.array(min(tried)[1])[own.place]
        joined = decoder.timeline(Decisions(order, gpu))
        if joined is not None:
            search.offer(joined)
