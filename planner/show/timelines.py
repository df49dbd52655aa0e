"""Timelines for those who look closely: ``timelines.json`` behind a page's Gantt chart, and trace events for Perfetto.

The file holds all that the chart shows, without the scenario: times in microseconds, tasks and jobs in the instance's
order, GPUs and models by index. Events are for https://ui.perfetto.dev and chrome://tracing: a process per GPU, three
tracks.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from truenorth.models.cluster import FOREVER, GPU
from truenorth.models.identity import scenario_hash
from truenorth.models.instance import Instance
from truenorth.models.objective import completion_us
from truenorth.models.record import ABSENT, encode
from truenorth.models.scenario import InputError, write_atomically
from truenorth.models.timeline import Timeline
from truenorth.planner.answers.shown import Shown
from truenorth.planner.show.gantt import runs_by_gpu
from truenorth.planner.show.written import read_record

NAME = "timelines.json"
SCHEMA_VERSION = 1
_DIGITS = 4
"""Decimals of a slowdown that is only shown."""
Times = list[Annotated[int, Field(ge=-1, le=10**18)]]


@dataclass(frozen=True, slots=True)
class GPUShown:
    """A GPU; `away` is when it is not there, as far as it ever is not: from, to (None: for good)."""

    id: str
    kind: str
    memory_bytes: int
    slots: list[int]
    away: list[tuple[int, int | None]] = ABSENT


@dataclass(frozen=True, slots=True)
class ModelShown:
    """A model."""

    name: str
    weight_bytes: int


@dataclass(frozen=True, slots=True)
class TaskShown:
    """A task of a workflow, with the indices of the models it needs."""

    name: str
    models: list[int]


@dataclass(frozen=True, slots=True)
class WorkflowShown:
    """A workflow."""

    name: str
    tasks: list[TaskShown]


@dataclass(frozen=True, slots=True)
class JobsShown:
    """The jobs, a column each for their workflows and their releases."""

    workflow: Times
    release_us: Times


@dataclass(frozen=True, slots=True)
class InstanceShown:
    """What timelines belong to.

    Parameters
    ----------
    places
        The GPUs of each place of several, numbered behind the last GPU.
    """

    scenario_hash: str
    gpus: list[GPUShown]
    models: list[ModelShown]
    workflows: list[WorkflowShown]
    jobs: JobsShown
    places: list[list[int]] = ABSENT


@dataclass(frozen=True, slots=True)
class TimelineShown:
    """A timeline, a column per figure of its jobs and tasks.

    Parameters
    ----------
    instance
        Index of the one it belongs to.
    residencies
        GPU or place, model, start of the load, ready, end, slot, initial.
    members, low, high
        Unless every task has its GPU for itself: the size of the batch that a task leads, 0 for one of another's, and
        its place in the compute lane.
    """

    name: str
    clairvoyant: bool
    instance: Annotated[int, Field(ge=0)]
    slowdown: list[float]
    latency_us: Times
    gpu: Times
    start_us: Times
    run_us: Times
    residencies: list[tuple[int, int, int, int, int | None, int | None, bool]]
    members: list[int] = ABSENT
    low: list[float] = ABSENT
    high: list[float] = ABSENT


@dataclass(frozen=True, slots=True)
class Timelines:
    """Timelines, the most interesting first, and their instances."""

    schema_version: int
    instances: list[InstanceShown]
    timelines: list[TimelineShown]


def write(folder: Path, shown: Sequence[Shown]) -> Path:
    """Write the timelines, the most interesting first, and return the file's path.

    Raises
    ------
    InputError
        If the file cannot be written.
    """
    path = folder / NAME
    write_atomically(path, json.dumps(encode(timelines_of(shown)), separators=(",", ":")))
    return path


def read(folder: Path) -> Timelines | None:
    """Return the timelines of a folder, or None if it has none.

    Raises
    ------
    InputError
        If the file cannot be read, or is of another version.
    """
    path = folder / NAME
    if not path.exists():
        return None
    found = read_record(path, Timelines)
    if found.schema_version != SCHEMA_VERSION:
        problem = f"is {found.schema_version}; allowed is {SCHEMA_VERSION}: make the folder again"
        raise InputError(str(path), 1, "schema_version", problem)
    return found


def timelines_of(shown: Sequence[Shown]) -> Timelines:
    """Return timelines, and the instances that they belong to, as a chart shows them."""
    instances: list[Instance] = []
    for entry in shown:
        if not any(entry.instance is instance for instance in instances):
            instances.append(entry.instance)
    return Timelines(
        SCHEMA_VERSION,
        [_instance(instance) for instance in instances],
        [_timeline(entry, instances) for entry in shown],
    )


def _instance(instance: Instance) -> InstanceShown:
    firsts = zip(instance.workflows, instance.template_first.tolist(), strict=False)
    return InstanceShown(
        scenario_hash(instance),
        [GPUShown(gpu.id, gpu.kind, gpu.memory_bytes, list(gpu.slots), _away(gpu)) for gpu in instance.cluster.gpus],
        [ModelShown(model.name, model.weight_bytes) for model in instance.models],
        [
            WorkflowShown(
                workflow.name,
                [
                    TaskShown(task.name, list(instance.needs[first + position]))
                    for position, task in enumerate(workflow.tasks)
                ],
            )
            for workflow, first in firsts
        ],
        JobsShown(instance.job_workflow.tolist(), instance.job_release_us.tolist()),
        [list(gpus) for gpus in instance.places.gpus[instance.n_gpus :]] if instance.gangs else ABSENT,
    )


def _away(gpu: GPU) -> list[tuple[int, int | None]]:
    """Return when a GPU is away."""
    away = gpu.available.absences(FOREVER)
    return [(gone, None if back == FOREVER else back) for gone, back in away] if away else ABSENT


def slowdowns(entry: Shown) -> list[float]:
    """Return the slowdown of every job, to the digits that are shown."""
    latency_us = completion_us(entry.instance, entry.timeline) - entry.instance.job_release_us
    return [float(value) for value in np.round(latency_us / entry.instance.job_ideal_us, _DIGITS)]


def _timeline(entry: Shown, instances: Sequence[Instance]) -> TimelineShown:
    timeline, instance = entry.timeline, entry.instance
    latency_us = completion_us(instance, timeline) - instance.job_release_us
    return TimelineShown(
        entry.name,
        entry.clairvoyant,
        next(index for index, other in enumerate(instances) if other is instance),
        slowdowns(entry),
        latency_us.tolist(),
        timeline.place.tolist(),
        timeline.start_us.tolist(),
        (timeline.end_us - timeline.start_us).tolist(),
        [(r.gpu, r.model, r.load_start_us, r.ready_us, r.end_us, r.slot, r.initial) for r in timeline.residencies],
        *_batches_and_shares(instance, timeline),
    )


def _batches_and_shares(instance: Instance, timeline: Timeline) -> tuple[list[int], list[float], list[float]]:
    """Return, by task, the size of the batch that it leads and its place in the compute lane."""
    if instance.one_at_a_time:
        return ABSENT, ABSENT, ABSENT
    members, low, high = [0] * instance.n_tasks, [0.0] * instance.n_tasks, [1.0] * instance.n_tasks
    for run in chain.from_iterable(runs_by_gpu(instance, timeline)):
        leader = run.tasks[0]
        members[leader], low[leader], high[leader] = len(run.tasks), round(run.low, 4), round(run.high, 4)
    return members, low, high


_COMPUTE, _COPY = 0, 1


def trace_events(instance: Instance, timeline: Timeline, label: str, first_process: int = 0) -> list[dict[str, Any]]:
    """Return the events of one timeline in the Trace Event Format.

    Parameters
    ----------
    label
        Stands before each GPU's name, so that several timelines can share a file.
    first_process
        Number of the first GPU's process; the next timeline in a file starts after the last GPU.
    """
    events: list[dict[str, Any]] = []
    for gpu, device in enumerate(instance.cluster.gpus):
        process = first_process + gpu
        events.append(_name("process_name", process, 0, f"{label} {device.id}"))
        events.append(_name("thread_name", process, _COMPUTE, "compute"))
        events.append(_name("thread_name", process, _COPY, "copy"))
    events += _runs(instance, timeline, first_process)
    events += _loads(instance, timeline, first_process)
    events += _memory(instance, timeline, first_process)
    return events


def _name(what: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": {"name": name}}


def _slice(name: str, process: int, track: int, start_us: int, end_us: int, told: dict[str, Any]) -> dict[str, Any]:
    when = {"ts": start_us, "dur": end_us - start_us}
    return {"ph": "X", "name": name, "pid": process, "tid": track, **when, "args": told}


def _runs(instance: Instance, timeline: Timeline, first: int) -> list[dict[str, Any]]:
    """Return a slice per run; runs at different heights, which share a GPU, need tracks of their own."""
    by_gpu, events = runs_by_gpu(instance, timeline), []
    floors = sorted({run.low for runs in by_gpu for run in runs} - {0.0})
    for gpu, runs in enumerate(by_gpu):
        beside = {_track(floors, run.low): f"compute, from {run.low:.0%} on" for run in runs if run.low > 0}
        events += [_name("thread_name", first + gpu, track, name) for track, name in sorted(beside.items())]
        for run in runs:
            task, size = run.tasks[0], len(run.tasks)
            batch = f" and {size - 1} more" if size > 1 else ""
            models = [instance.models[model].name for model in instance.task_needs(task)]
            name = f"{instance.task_name(task)} (job {instance.task_job[task]}{batch})"
            told = {"models": models} | ({"batch_size": size} if size > 1 else {})
            events.append(_slice(name, first + gpu, _track(floors, run.low), run.start_us, run.end_us, told))
    return events


def _track(floors: list[float], low: float) -> int:
    """Return the track of the runs at a height: the lowest one is the compute engine's own."""
    return _COMPUTE if low == 0 else _COPY + 1 + floors.index(low)


def _loads(instance: Instance, timeline: Timeline, first: int) -> list[dict[str, Any]]:
    loads = (residency for residency in timeline.residencies if not residency.initial)
    return [
        _slice(
            f"load {instance.models[r.model].name}",
            first + gpu,
            _COPY,
            r.load_start_us,
            r.ready_us,
            {"evicted_us": r.end_us},
        )
        for r in loads
        for gpu in instance.places.gpus[r.gpu]
    ]


def _memory(instance: Instance, timeline: Timeline, first: int) -> list[dict[str, Any]]:
    """Count, per GPU, the gigabytes of weights held after each change."""
    changes: list[tuple[int, int, int]] = []
    for residency in timeline.residencies:
        weight = instance.held_bytes(residency.model, residency.gpu)
        for gpu in instance.places.gpus[residency.gpu]:
            changes.append((residency.load_start_us, gpu, weight))
            if residency.end_us is not None:
                changes.append((residency.end_us, gpu, -weight))
    held = [0] * instance.n_gpus
    events = []
    for instant, gpu, change in sorted(changes):
        held[gpu] += change
        counter = {"weights in GB": held[gpu] / 1e9}
        events.append({"ph": "C", "name": "memory", "pid": first + gpu, "ts": instant, "args": counter})
    return events
