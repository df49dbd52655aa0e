"""Reductions: windows that are planned as another one, their twin, whose plans come back.

`Lanes`, `Visits` and `Ticks` have the optimum of their windows, so what bounds the twin bounds the window; `Singles`
has plans only.

Tasks of equal shares without models are planned on GPUs of their own: what k of them do side by side, k GPUs do one by
one. All that is known of tasks that run one at a time then serves them: the faster decoder, stronger bounds, CP-SAT
without profiles.

GPUs that come and go are planned as GPUs that come once: every interval in which one is there is a GPU of its own.
Nothing outlasts the absence between two intervals of a GPU but the outputs of its tasks, and these have arrived by the
time it is back unless a transfer takes longer than the absence. So the twin has the same plans.

Where every time is a multiple of one unit, say a second, exact methods count in that unit (`Ticks`): a makespan that is
refuted second by second would take a million times as long microsecond by microsecond.

Tasks of batch classes are planned as single requests: what runs one by one may also run where several could run
together. A plan of the twin is a plan of the window, but for a microsecond by which starts of one class keep off each
other below share 1: so what bounds the twin need not bound the window. Where the twin runs one task at a time, beams
find its plans in a fraction of the time that batches take to arrange.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from math import gcd
from typing import Any

import numpy as np

from truenorth.models import (
    GPU,
    BatchClass,
    Cluster,
    InitialResidency,
    Job,
    Link,
    Network,
    Objective,
    Task,
    UnsupportedInstanceError,
    Workflow,
    assert_feasible,
)
from truenorth.models.cluster import FOREVER, Availability
from truenorth.models.features import MOLDABLE, NO_RULES, SEVERAL_AT_A_TIME, Feature, missing, require
from truenorth.models.instance import NEVER, NONE, Instance, Ints
from truenorth.models.objective import Term, charges
from truenorth.models.restrictions import Restrictions
from truenorth.models.timeline import Timeline, end_with_gpu
from truenorth.models.workload import WHOLE
from truenorth.solvers.rounding import round_up


@dataclass(frozen=True, slots=True)
class Reduction(ABC):
    """A window that is planned as another one.

    Parameters
    ----------
    instance, twin
        The window, and the one that is planned in its place.
    """

    instance: Instance
    twin: Instance

    @abstractmethod
    def back(self, timeline: Timeline) -> Timeline:
        """Return a plan of the twin as one of the window."""


class Equivalent(Reduction):
    """A window that is planned as another one of the same optimum: what bounds the twin bounds the window."""

    @abstractmethod
    def to_twin(self, timeline: Timeline) -> Timeline:
        """Return a plan of the window as one of the twin that is as good."""

    @property
    def value_of_one(self) -> int:
        """What a value of 1 of the twin is in the window."""
        return 1

    def least(self, objective: Objective, bound: Fraction) -> Fraction:
        """Return the least value of the twin that is no less than a bound."""
        return bound


@dataclass(frozen=True, slots=True)
class Lanes(Equivalent):
    """A window whose tasks run side by side: GPU g is the twin's GPUs from g x `count` on.

    Parameters
    ----------
    count
        How many tasks run at once on a GPU.
    """

    count: int

    def to_twin(self, timeline: Timeline) -> Timeline:
        """Return the plan on the twin: every task on the first of its GPU's lanes that is free."""
        free_us = np.zeros((self.instance.n_gpus, self.count), np.int64)
        gpus = np.empty_like(timeline.place)
        for task in np.lexsort((timeline.end_us, timeline.start_us)).tolist():
            gpu = int(timeline.place[task])
            # One is free: the plan keeps the limit of k at a time, and tasks come in order of start.
            lane = int(np.flatnonzero(free_us[gpu] <= timeline.start_us[task])[0])
            free_us[gpu, lane] = timeline.end_us[task]
            gpus[task] = gpu * self.count + lane
        return replace(timeline, place=gpus, residencies=())

    def back(self, timeline: Timeline) -> Timeline:
        """Return a plan of the twin as one of the window."""
        gathered = replace(timeline, place=timeline.place // self.count)
        # A false twin must not become a false plan, nor a false bound.
        assert_feasible(self.instance, gathered)
        return gathered


_OF_LANES = NO_RULES | {
    Feature.SHARES,
    Feature.WORKFLOWS,
    Feature.DELAYS,
    Feature.SLOTS,
    Feature.SERIAL_LOADS,
}
"""What lanes support: limits name GPUs and replicas, which lanes would count anew."""


def lanes_of(instance: Instance) -> Lanes | None:
    """Return the twin of a window; None if its tasks need models, batches or memory, or pay for transfers.

    They must run k at a time, k > 1, whatever their shares, on GPUs that are always there.
    """
    # Two shares of 0.4 fit, as two of 0.5 do: what counts is how many fit side by side.
    counts = {WHOLE // share for share in instance.template_share.tolist()}
    # One GPU keeps its outputs; the lanes of several would be as far apart as GPUs are.
    near = instance.n_gpus == 1 or not (instance.transfer_us.any() or instance.input_us.any())
    if len(counts) > 1 or 1 in counts or not near or missing(instance, _OF_LANES):
        return None
    count = counts.pop()
    gpus = tuple(replace(gpu, id=f"{gpu.id}/{lane}") for gpu in instance.cluster.gpus for lane in range(count))
    alone = [replace(w, tasks=tuple(replace(task, share=WHOLE) for task in w.tasks)) for w in instance.workflows]
    twin = Instance(
        Cluster(gpus, Network(Link(), Link())),
        (),
        tuple(
            replace(job, workflow=alone[index])
            for job, index in zip(instance.jobs, instance.job_workflow.tolist(), strict=True)
        ),
        instance.overlap_loads,
    )
    return Lanes(instance, twin, count)


@dataclass(frozen=True, slots=True)
class Visits(Equivalent):
    """A window whose GPUs come and go.

    Parameters
    ----------
    first
        GPU g is the twin's GPUs from `first[g]` on, in the order of time.
    of_gpu
        Per GPU of the twin: the GPU whose interval it is.
    """

    first: Ints
    of_gpu: Ints

    @classmethod
    def of(cls, instance: Instance) -> Visits:
        """Return the twin of a window.

        Raises
        ------
        UnsupportedInstanceError
            If an output may still travel to another GPU of its server when its own GPU is back.
        """
        once = all(len(gpu.available.intervals) == 1 for gpu in instance.cluster.gpus)
        # Behind a delay an output could begin its way to the next visit of the GPU that made it, where it lies already.
        supported = SEVERAL_AT_A_TIME | {Feature.DELAYS} if once else SEVERAL_AT_A_TIME
        require(instance, "a plan for servers that come back", supported)
        _refuse_long_transfers(instance)
        gpus, of_gpu = [], list[int]()
        for index, gpu in enumerate(instance.cluster.gpus):
            for interval in gpu.available.intervals:
                gpus.append(replace(gpu, id=f"{gpu.id} from {interval[0]} us", available=Availability((interval,))))
                of_gpu.append(index)
        visited = np.array(of_gpu, np.int64)
        # The intervals of a GPU stand together, so that their number is where they begin.
        first = np.searchsorted(visited, np.arange(instance.n_gpus)).astype(np.int64)
        twin = Instance(
            Cluster(tuple(gpus), instance.cluster.network),
            instance.models,
            instance.jobs,
            instance.overlap_loads,
            # What is there at the beginning is there in the first interval alone.
            tuple(InitialResidency(int(first[r.gpu]), r.model, r.slot) for r in instance.initial),
            _spread_limits(instance.restrictions, visited),
            instance.catalogue,
        )
        return cls(instance, twin, first, visited)

    def to_twin(self, timeline: Timeline) -> Timeline:
        """Return the plan on the twin."""
        gpu = [
            self._visit(g, start) for g, start in zip(timeline.place.tolist(), timeline.start_us.tolist(), strict=True)
        ]
        stays = [replace(r, gpu=self._visit(r.gpu, r.load_start_us)) for r in timeline.residencies]
        # The order in which timelines list residencies, by GPU and load.
        stays.sort(key=lambda r: (r.gpu, r.load_start_us, r.ready_us, r.model))
        return replace(timeline, place=np.array(gpu, np.int64), residencies=tuple(stays))

    def back(self, timeline: Timeline) -> Timeline:
        """Return a plan of the twin as one of the window."""
        stays = (replace(r, gpu=int(self.of_gpu[r.gpu])) for r in timeline.residencies)
        ordered = sorted(stays, key=lambda r: (r.gpu, r.load_start_us, r.ready_us, r.model))
        return replace(timeline, place=self.of_gpu[timeline.place], residencies=tuple(ordered))

    def _visit(self, gpu: int, instant: int) -> int:
        """Return the GPU of the twin that a GPU is at an instant at which it is there."""
        intervals = self.instance.cluster.gpus[gpu].available.intervals
        return int(self.first[gpu]) + next(k for k, (_, end) in enumerate(intervals) if instant < end)


@dataclass(frozen=True, slots=True)
class Ticks(Equivalent):
    """A window whose times are all multiples of one unit, and its twin, in which that unit is a microsecond.

    Rounding every time of a plan down to the unit breaks no rule, for what lasts, and what bounds it, are multiples:
    one thing still ends before another begins, and what runs side by side already did so before. So the twin has a plan
    as good as any of the window.

    Parameters
    ----------
    tick_us
        The unit.
    value
        What a value of the twin is worth in the window: as many microseconds, or as many jobs or ratios.
    """

    tick_us: int
    value: int

    def to_twin(self, timeline: Timeline) -> Timeline:
        """Return a plan of the window on the twin, where it is as good or better."""
        return _with_times(timeline, lambda us: us // self.tick_us)

    def back(self, timeline: Timeline) -> Timeline:
        """Return a plan of the twin as one of the window."""
        return _with_times(timeline, lambda us: us * self.tick_us)

    @property
    def value_of_one(self) -> int:
        """What a value of 1 of the twin is in the window."""
        return self.value

    def least(self, objective: Objective, bound: Fraction) -> Fraction:
        """Return a bound, rounded up to what whole units allow."""
        return round_up(self.twin, objective, bound)


def _with_times(timeline: Timeline, change: Callable[[Any], Any]) -> Timeline:
    """Return a timeline with every time changed, alone or in arrays."""
    stays = (
        replace(
            stay,
            load_start_us=change(stay.load_start_us),
            ready_us=change(stay.ready_us),
            end_us=None if stay.end_us is None else change(stay.end_us),
        )
        for stay in timeline.residencies
    )
    start_us, end_us = change(timeline.start_us), change(timeline.end_us)
    return replace(timeline, start_us=start_us, end_us=end_us, residencies=tuple(stays))


_MOST_IN_TICKS = 400
"""Larger windows are left to methods that count no time."""


def ticks_of(instance: Instance, objective: Objective) -> Ticks | None:
    """Return the twin of a window that counts in a longer unit; None if there is none, or the window is large."""
    # Batches of a class that run side by side start a microsecond apart.
    apart = bool(instance.batches) and bool((instance.template_share < WHOLE).any())
    supported = SEVERAL_AT_A_TIME | MOLDABLE | {Feature.DELAYS}
    if apart or missing(instance, supported) or instance.n_tasks > _MOST_IN_TICKS:
        return None
    tick_us = gcd(*(abs(time) for time in _times_us(instance, objective) if time not in (NEVER, FOREVER)))
    if tick_us < 2:
        return None
    twin = _divided(instance, tick_us)
    own_us, twin_us = _times_us(instance, objective), _times_us(twin, objective)
    # Latencies and bandwidths that are none may add up to multiples; what differed only where no plan looks is one.
    if len(own_us) != len(twin_us) or any(
        own != other * tick_us for own, other in zip(own_us, twin_us, strict=True) if own not in (NEVER, FOREVER)
    ):
        return None
    return Ticks(instance, twin, tick_us, tick_us if objective.unit == "s" else 1)


def _times_us(instance: Instance, objective: Objective) -> list[int]:
    """Return all times that a plan or its value depends on."""
    tables = [instance.job_release_us, instance.run_us, instance.batch_us, instance.load_us, instance.delay_us]
    if instance.n_gpus > 1:
        tables += [instance.transfer_us, instance.input_us]
    if objective in (Objective.MEAN_SLOWDOWN, Objective.MAX_SLOWDOWN):
        tables.append(instance.job_ideal_us)
    charged = charges(objective, instance)
    if charged.term is Term.TARDINESS:
        tables.append(charged.due_us)
    times = [int(time) for table in tables for time in table.flat]
    return times + [time for gpu in instance.cluster.gpus for each in gpu.available.intervals for time in each]


def _divided(instance: Instance, by: int) -> Instance:
    """Return an instance with every time divided, rounded down where no plan depends on it."""

    def link(old: Link) -> Link:
        return Link(old.latency_us // by, None if old.bandwidth is None else old.bandwidth * by)

    def shorter(times: Mapping[Any, int]) -> dict[Any, int]:
        return {key: max(1, time // by) for key, time in times.items()}

    def batch(old: BatchClass | None) -> BatchClass | None:
        if old is None:
            return None
        return replace(old, runtime_us={kind: shorter(times) for kind, times in old.runtime_us.items()})

    def task(old: Task) -> Task:
        modes = tuple(replace(mode, runtime_us=shorter(mode.runtime_us)) for mode in old.modes)
        inputs = tuple(replace(edge, delay_us=edge.delay_us // by) for edge in old.inputs)
        return replace(old, runtime_us=shorter(old.runtime_us), batch=batch(old.batch), inputs=inputs, modes=modes)

    def workflow(old: Workflow) -> Workflow:
        ideal_us = None if old.ideal_us is None else max(1, old.ideal_us // by)
        return replace(old.with_tasks(task), ideal_us=ideal_us)

    def gpu(old: GPU) -> GPU:
        there = ((a // by, b if b == FOREVER else b // by) for a, b in old.available.intervals)
        bandwidth, overhead_us = old.load_bandwidth * by, old.load_overhead_us // by
        return replace(
            old, load_bandwidth=bandwidth, load_overhead_us=overhead_us, available=Availability(tuple(there))
        )

    def job(old: Job) -> Job:
        deadline_us = None if old.deadline_us is None else old.deadline_us // by
        delays_us = None if old.delays_us is None else {name: us // by for name, us in old.delays_us.items()}
        own_us = None if old.own_ideal_us is None else max(1, old.own_ideal_us // by)
        made = replace(old, release_us=old.release_us // by, deadline_us=deadline_us, delays_us=delays_us)
        return replace(made, own_ideal_us=own_us)

    network = instance.cluster.network
    links = replace(network, between=link(network.between), within=link(network.within))
    cluster = replace(instance.cluster, gpus=tuple(map(gpu, instance.cluster.gpus)), network=links)
    made = instance.with_workflows(workflow, catalogue=())
    return replace(made, cluster=cluster, jobs=tuple(map(job, made.jobs)))


def close(twin: Instance, timeline: Timeline) -> Timeline:
    """Return a plan of a window in which no GPU comes twice with every residency over when its GPU goes."""
    return replace(timeline, residencies=tuple(end_with_gpu(twin, each) for each in timeline.residencies))


def _spread_limits(limits: Restrictions, of_gpu: Ints) -> Restrictions:
    """Return an operator's limits for the GPUs of the twin."""
    # Who may use a GPU may use it in each of its intervals.
    models, workflows = (
        {name: frozenset(np.flatnonzero(np.isin(of_gpu, sorted(gpus))).tolist()) for name, gpus in limit.items()}
        for limit in (limits.model_gpus, limits.workflow_gpus)
    )
    return replace(limits, model_gpus=models, workflow_gpus=workflows)


def _refuse_long_transfers(instance: Instance) -> None:
    longest = int(instance.transfer_us[..., 1].max(initial=0))
    for gpu in instance.cluster.gpus:
        for before, after in pairwise(gpu.available.intervals):
            # An output on its way to the GPU's next visit would seem to come from another GPU.
            if after[0] - before[1] < longest:
                problem = (
                    f"a transfer within a server takes {longest} us, and {gpu.id} is away for {after[0] - before[1]}"
                )
                raise UnsupportedInstanceError(f"plan: {problem} us; allowed are absences as long as such transfers")


@dataclass(frozen=True, slots=True)
class Singles(Reduction):
    """A window with batch classes, and its twin, in which every task runs alone."""

    def back(self, timeline: Timeline) -> Timeline:
        """Return a plan of the twin as one of the window.

        Below share 1 tasks of one class that start together would be a batch; all but the first start 1 us apart, which
        may break other rules: whoever offers the plan checks it.
        """
        batch = self.instance.template_batch[self.instance.task_template]
        start_us, taken = timeline.start_us.copy(), set[tuple[int, int, int]]()
        for task in np.lexsort((timeline.end_us, timeline.start_us)).tolist():
            gpu, of_class, at_us = int(timeline.place[task]), int(batch[task]), int(start_us[task])
            while of_class != NONE and (gpu, of_class, at_us) in taken:
                at_us += 1
            taken.add((gpu, of_class, at_us))
            start_us[task] = at_us
        return replace(timeline, start_us=start_us, end_us=timeline.end_us + start_us - timeline.start_us)


def singles_of(instance: Instance) -> Singles | None:
    """Return the twin of a window whose tasks all run alone; None if it has no batch classes."""
    if not instance.batches:
        return None
    alone = [workflow.with_tasks(_without_class) for workflow in instance.workflows]
    of_job = zip(instance.jobs, instance.job_workflow.tolist(), strict=True)
    jobs = tuple(replace(job, workflow=alone[index]) for job, index in of_job)
    return Singles(instance, replace(instance, jobs=jobs, catalogue=()))


def _without_class(task: Task) -> Task:
    """Return a task without its class, whose figures at size 1 it has."""
    return replace(task, batch=None)
