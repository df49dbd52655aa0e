"""A part of a plan: its borders on every GPU, the residencies that cross them, and the instance that it makes.

On each GPU the part begins when the last task before it has ended, and closes when the first task after it starts.
What memory holds at its beginning is initially resident there, and no load starts earlier. Loads inside that serve
later tasks are owed: a *handover* task of one microsecond asks for their models once the part has closed. Tasks
inside that are not free keep place and time, but who loads for them is decided anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from models.cluster import Cluster
from models.formulations.normal_form import serving_chains
from models.formulations.windows import UNREACHABLE, Limits
from models.instance import InitialResidency, Instance, Ints
from models.timeline import Residency, Timeline
from models.workload import ANY_KIND, Job, Task, Workflow

Flags = np.ndarray[tuple[int], np.dtype[np.bool_]]


@dataclass(frozen=True, slots=True)
class Standing:
    """A plan with, per residency that serves tasks, these tasks in the order of their starts."""

    instance: Instance
    timeline: Timeline
    served: tuple[tuple[Residency, tuple[int, ...]], ...]

    @classmethod
    def of(cls, instance: Instance, timeline: Timeline) -> Standing:
        """Return a plan with what its residencies serve."""
        task, _ = instance.model_uses()
        chains = serving_chains(instance, timeline)
        return cls(instance, timeline, tuple((r, tuple(int(task[need]) for need in needs)) for r, needs in chains))


@dataclass(frozen=True, slots=True)
class Borders:
    """Where a part begins and ends on each GPU of the whole, in microseconds. Shape [gpus] each.

    Parameters
    ----------
    opens_us
        When the last task before the part has ended.
    loads_from_us
        When the copy engine is free for the part; at least `opens_us`.
    closes_us
        When the first task after the part starts.
    handover_us
        When the last load that began before that has ended; at least `closes_us`.
    """

    opens_us: Ints
    loads_from_us: Ints
    closes_us: Ints
    handover_us: Ints

    @classmethod
    def of(cls, plan: Standing, begin_us: int, end_us: int) -> Borders:
        """Return the borders of the part that runs in an interval."""
        timeline, gpus = plan.timeline, plan.instance.n_gpus
        opens = np.zeros(gpus, np.int64)
        before, after = timeline.end_us <= begin_us, timeline.start_us >= end_us
        np.maximum.at(opens, timeline.gpu[before], timeline.end_us[before])
        # After the last task of a GPU there is as much room again as the part has.
        closes = np.full(gpus, int(timeline.end_us.max()) + end_us - begin_us, np.int64)
        np.minimum.at(closes, timeline.gpu[after], timeline.start_us[after])
        loads_from, handover = opens.copy(), closes.copy()
        for residency, _ in plan.served:
            for border, free in ((opens, loads_from), (closes, handover)):
                if residency.load_start_us < border[residency.gpu]:
                    free[residency.gpu] = max(int(free[residency.gpu]), residency.ready_us)
        return cls(opens, loads_from, closes, handover)


@dataclass(frozen=True, slots=True)
class Stay:
    """A residency of the plan on a GPU of a part.

    Parameters
    ----------
    found
        Whether the part finds it in memory, loaded for a task before or about to be ready.
    before_us, inside_us, after_us
        When the last task that it serves before, in and after the part ends; 0 if there is none.
    owed
        Whether it was there before the part closes and serves tasks after it.
    """

    residency: Residency
    found: bool
    before_us: int
    inside_us: int
    after_us: int
    owed: bool


def handover_gpu(task: int) -> int:
    """Return the GPU, of the whole, that a handover task stands for."""
    return -1 - task


def stays_of(plan: Standing, borders: Borders, inside: Flags, gpus: tuple[int, ...]) -> Iterator[Stay]:
    """Yield the residencies of some GPUs by what they serve."""
    end_us, start_us = plan.timeline.end_us, plan.timeline.start_us
    for residency, tasks in plan.served:
        g = residency.gpu
        if g not in gpus:
            continue
        opens, closes = int(borders.opens_us[g]), int(borders.closes_us[g])
        before = max((int(end_us[task]) for task in tasks if end_us[task] <= opens), default=0)
        within = max((int(end_us[task]) for task in tasks if inside[task]), default=0)
        after = max((int(end_us[task]) for task in tasks if start_us[task] >= closes), default=0)
        found = residency.load_start_us < opens and (residency.end_us is None or residency.end_us > opens)
        yield Stay(residency, found, before, within, after, after > 0 and residency.load_start_us < closes)


def sub_jobs(instance: Instance, inside: Flags) -> Iterator[tuple[Job, int, tuple[int, ...]]]:
    """Yield the jobs that run inside, cut down to their tasks there, each with its index and these tasks."""
    parts: dict[tuple[int, tuple[int, ...]], Workflow] = {}
    tasks = np.flatnonzero(inside).tolist()
    for index, group in groupby(tasks, key=lambda task: int(instance.task_job[task])):
        members = tuple(group)
        kept = tuple(task - int(instance.job_first_task[index]) for task in members)
        key = int(instance.job_workflow[index]), kept
        if key not in parts:
            parts[key] = _sub_workflow(instance.jobs[index].workflow, kept)
        yield replace(instance.jobs[index], workflow=parts[key], ingress=None), index, members


def _sub_workflow(workflow: Workflow, kept: tuple[int, ...]) -> Workflow:
    """Return a workflow with only some of its tasks, and the edges between them."""
    names = {workflow.tasks[position].name for position in kept}
    return Workflow(
        workflow.name,
        tuple(
            replace(task, inputs=tuple(edge for edge in task.inputs if edge.source in names))
            for task in (workflow.tasks[position] for position in kept)
        ),
    )


def handovers(
    instance: Instance, borders: Borders, stays: tuple[Stay, ...], gpus: tuple[int, ...]
) -> Iterator[tuple[Job, int, tuple[int, ...]]]:
    """Yield a job per GPU that needs the models owed there; it also tells equal GPUs apart."""
    for gpu in gpus:
        owed = tuple(
            instance.models[stay.residency.model].name for stay in stays if stay.owed and stay.residency.gpu == gpu
        )
        name = f"handover {instance.cluster.gpus[gpu].id}"
        workflow = Workflow(name, (Task("handover", {ANY_KIND: 1}, owed),))
        yield Job(workflow, int(borders.handover_us[gpu])), -1, (-1 - gpu,)


def part_instance(
    instance: Instance, jobs: tuple[Job, ...], gpus: tuple[int, ...], borders: Borders, stays: tuple[Stay, ...]
) -> Instance:
    """Return some jobs on some GPUs; what the borders cut through is initially resident."""
    index = {gpu: here for here, gpu in enumerate(gpus)}
    initial = [
        InitialResidency(index[stay.residency.gpu], stay.residency.model, stay.residency.slot)
        for stay in stays
        if stay.found
    ]
    initial += [
        replace(resident, gpu=index[resident.gpu])
        for resident in instance.initial
        if resident.gpu in index and borders.opens_us[resident.gpu] == 0
    ]
    limits = instance.restrictions

    def here(limit: Mapping[str, frozenset[int]]) -> dict[str, frozenset[int]]:
        return {name: frozenset(index[gpu] for gpu in where if gpu in index) for name, where in limit.items()}

    return replace(
        instance,
        cluster=Cluster(tuple(instance.cluster.gpus[gpu] for gpu in gpus), instance.cluster.network),
        jobs=jobs,
        initial=tuple(initial),
        restrictions=replace(limits, model_gpus=here(limits.model_gpus), workflow_gpus=here(limits.workflow_gpus)),
    )


def limits_of(
    plan: Standing,
    part: Instance,
    tasks: tuple[int, ...],
    gpus: tuple[int, ...],
    free: Mapping[int, tuple[int, ...]],
    borders: Borders,
) -> tuple[Limits, tuple[bool, ...]]:
    """Return when and where the tasks of a part may run, and which of its jobs complete there."""
    earliest = np.full((len(tasks), len(gpus)), UNREACHABLE)
    latest = np.full_like(earliest, -1)
    index = {gpu: here for here, gpu in enumerate(gpus)}
    inside, end_us = set(tasks), plan.timeline.end_us
    counts = []
    for job in range(len(part.jobs)):
        members = range(int(part.job_first_task[job]), int(part.job_first_task[job + 1]))
        outside_us = _end_outside(plan, tasks[members[0]], inside)
        counts.append(tasks[members[0]] >= 0 and max(int(end_us[tasks[here]]) for here in members) > outside_us)
        for here in members:
            for gpu, first, last in _windows(plan, tasks[here], free, inside, borders):
                # Where tasks outside complete the job, those inside may end as late as they do for nothing.
                last = (
                    last if counts[-1] or tasks[here] < 0 else min(last, outside_us - part.run_time(here, index[gpu]))
                )
                earliest[here, index[gpu]], latest[here, index[gpu]] = first, last
    return Limits(earliest, latest, np.full(len(part.jobs), UNREACHABLE)), tuple(counts)


def _end_outside(plan: Standing, task: int, inside: set[int]) -> int:
    """Return when the last task outside ends of the job of a task inside; 0 if there is none."""
    if task < 0:
        return 0
    others = plan.instance.tasks_of(int(plan.instance.task_job[task]))
    return max((int(plan.timeline.end_us[other]) for other in others if other not in inside), default=0)


def _windows(
    plan: Standing, task: int, free: Mapping[int, tuple[int, ...]], inside: set[int], borders: Borders
) -> Iterator[tuple[int, int, int]]:
    """Yield the GPUs that a task may take, each with its earliest and its latest start there."""
    instance, timeline = plan.instance, plan.timeline
    if task < 0:
        gpu = handover_gpu(task)
        yield gpu, int(borders.handover_us[gpu]), int(borders.handover_us[gpu])
        return
    if task not in free:
        start = int(timeline.start_us[task])
        yield int(timeline.gpu[task]), start, start
        return
    sources = [(other, edge) for other, edge in instance.task_inputs(task) if other not in inside]
    targets = [(other, edge) for other, edge in instance.task_outputs(task) if other not in inside]
    for gpu in free[task]:
        first = max(int(borders.opens_us[gpu]), instance.earliest_start(task, gpu))
        last = int(borders.closes_us[gpu])
        for other, edge in sources:
            arrival = int(timeline.end_us[other]) + instance.transfer_time(edge, int(timeline.gpu[other]), gpu)
            first = max(first, arrival)
        for other, edge in targets:
            sent = int(timeline.start_us[other]) - instance.transfer_time(edge, gpu, int(timeline.gpu[other]))
            last = min(last, sent)
        yield gpu, first, last - instance.run_time(task, gpu)
