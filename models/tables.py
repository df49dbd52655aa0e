"""The tables of an instance: workflows, GPU classes, and all times in microseconds, as arrays.

Times that many tasks share are kept once per *template* (a task of a workflow) and once per *GPU class*
(GPUs that no rule tells apart), so that memory grows with the jobs by a few integers each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from truenorth.models.cluster import GPU, Cluster, Network
from truenorth.models.places import Places
from truenorth.models.restrictions import InstanceError, Restrictions
from truenorth.models.streams import of_kind
from truenorth.models.workload import BatchClass, Edge, Job, MLModel, Mode, Workflow

NEVER = -1
"""Stands in the tables for "cannot run here" and "cannot be loaded here"."""

NONE = -1
"""Stands for the batch class of a template without one."""

LARGEST = 10**16
"""Most microseconds (317 years) or bytes (10 PB) of one quantity: sums over an instance then fit 64 bits."""

Ints: TypeAlias = NDArray[np.int64]
Arcs: TypeAlias = tuple[tuple[tuple[int, int], ...], ...]
"""Per template: pairs (offset of the other task, edge)."""


def as_ints(values: Sequence[int] | Sequence[Sequence[int]], what: str) -> Ints:
    """Return numbers as 64-bit integers; `what` names them in the error raised if one is above LARGEST."""
    try:
        array = np.array(values, np.int64)
    except OverflowError:
        array = np.array([LARGEST + 1], np.int64)
    if array.size and array.max() > LARGEST:
        raise InstanceError(f"{what} must not exceed {LARGEST} microseconds or bytes")
    return array


def distinct_workflows(jobs: Sequence[Job]) -> tuple[tuple[Workflow, ...], Ints]:
    """Return the distinct workflows in the order of their first jobs, and the index of each job's workflow.

    A workflow with other delays is another one.
    """
    by_identity: dict[object, int] = {}
    by_content: dict[object, int] = {}
    workflows: list[Workflow] = []
    job_workflow = []
    for job in jobs:
        delays = None if job.delays_us is None else frozenset(job.delays_us.items())
        index = by_identity.get((id(job.workflow), delays))
        if index is None:
            as_run = job.as_run
            index = by_content.setdefault(_content(as_run), len(workflows))
            by_identity[id(job.workflow), delays] = index
            if index == len(workflows):
                workflows.append(as_run)
        job_workflow.append(index)
    return tuple(workflows), np.array(job_workflow, np.int64)


def _content(workflow: Workflow) -> object:
    """Return a key that equal workflows share."""
    return (
        workflow.name,
        workflow.branches,
        tuple(
            (
                task.name,
                frozenset(task.runtime_us.items()),
                task.models,
                task.inputs,
                task.share,
                task.memory_bytes,
                task.input_bytes,
                (task.gpus, task.across, task.copies, tuple(mode.content for mode in task.modes)),
                None if task.batch is None else task.batch.content,
                None if task.stream is None else (task.stream.content, task.tokens, task.tied_to, task.first_token),
            )
            for task in workflow.tasks
        ),
    )


@dataclass(frozen=True, slots=True)
class GPUClasses:
    """GPUs grouped by what the rules can tell apart: kind, memory, load times, when they are there, restrictions.

    Parameters
    ----------
    of_gpu
        The class of each GPU. Shape [gpus].
    first
        The first GPU of each class.
    gpus
        The same GPUs themselves.
    """

    of_gpu: Ints
    first: tuple[int, ...]
    gpus: tuple[GPU, ...]

    @classmethod
    def of(cls, cluster: Cluster, restrictions: Restrictions) -> GPUClasses:
        """Group the GPUs of a cluster."""
        first: dict[object, int] = {}
        leader = []
        limits = (restrictions.model_gpus, restrictions.workflow_gpus)
        for index, gpu in enumerate(cluster.gpus):
            allowed = tuple(frozenset(name for name, gpus in limit.items() if index in gpus) for limit in limits)
            hardware = (gpu.kind, gpu.gpus, gpu.memory_bytes, gpu.slots, gpu.load_bandwidth, gpu.load_overhead_us)
            key = (hardware, gpu.available, gpu.drain_us * gpu.drains, allowed)
            leader.append(first.setdefault(key, index))
        leaders = tuple(first.values())
        of_gpu = np.searchsorted(np.array(leaders), np.array(leader)).astype(np.int64)
        return cls(of_gpu, leaders, tuple(cluster.gpus[index] for index in leaders))


class PlaceClass(NamedTuple):
    """What places of one class have in common: the classes of their GPUs, their size, and how far they are spread.

    Parameters
    ----------
    spread
        0: inside a server; 1: over servers of a group; 2: over groups.
    """

    classes: tuple[int, ...]
    size: int
    spread: int


def place_classes(places: Places, cluster: Cluster, classes: GPUClasses) -> tuple[Ints, tuple[PlaceClass, ...]]:
    """Return the class of each place, and the classes: first those of GPUs, then those of places of several."""
    of_gpu: list[int] = classes.of_gpu.tolist()
    number = {PlaceClass((own,), 1, 0): own for own in range(len(classes.gpus))}
    of_place = []
    for gpus in places.gpus:
        own = tuple(sorted({of_gpu[gpu] for gpu in gpus}))
        ends = cluster.gpus[gpus[0]], cluster.gpus[gpus[-1]]
        spread = len({gpu.server for gpu in ends}) + len({gpu.group for gpu in ends}) - 2
        of_place.append(number.setdefault(PlaceClass(own, len(gpus), spread), len(number)))
    return np.array(of_place, np.int64), tuple(number)


def part_bytes(weight_bytes: int, parts: int) -> int:
    """Return what each GPU holds of a model that is split into so many parts (rule G2)."""
    return -(-weight_bytes // parts)


def load_times(
    models: Sequence[MLModel], classes: GPUClasses, places: Sequence[PlaceClass], restrictions: Restrictions
) -> Ints:
    """Return the load time of each model on each class of places, split over their GPUs; NEVER where it may not be.

    Shape [models, classes].
    """

    def alone(model: MLModel, size_bytes: int, own: int) -> int:
        gpu, allowed = classes.gpus[own], restrictions.allows_model(model.name, classes.first[own])
        return gpu.load_us(size_bytes) if allowed and gpu.fits([size_bytes]) else NEVER

    def together(model: MLModel, place: PlaceClass) -> int:
        """Return when the last GPU has its part."""
        times = [alone(model, part_bytes(model.weight_bytes, place.size), own) for own in place.classes]
        return NEVER if NEVER in times else max(times)

    rows = [[together(model, place) for place in places] for model in models]
    return as_ints(rows, "load times").reshape(len(models), len(places))


def split_models(workflows: Sequence[Workflow], places: Sequence[PlaceClass]) -> NDArray[np.bool_]:
    """Say for each template and class of places whether a run there has its models split over its GPUs (rule G2).

    Shape [templates, classes].
    """
    tasks = [task for workflow in workflows for task in workflow.tasks]
    split = np.zeros((len(tasks), len(places)), np.bool_)
    for template, task in enumerate(tasks):
        parted = {mode.gpus for mode in task.choices if mode.parts > 1} if task.models and task.gpus > 1 else ()
        if parted:
            split[template] = [place.size in parted for place in places]
    return split


def needed_models(workflows: Sequence[Workflow], models: Sequence[MLModel]) -> tuple[tuple[int, ...], ...]:
    """Return the models that each template needs."""
    position = {model.name: index for index, model in enumerate(models)}
    needs = []
    for workflow in workflows:
        for task in workflow.tasks:
            unknown = [name for name in task.models if name not in position]
            if unknown:
                raise InstanceError(f"workflow {workflow.name}: task {task.name} needs unknown model {unknown[0]}")
            needs.append(tuple(position[name] for name in task.models))
    return tuple(needs)


def run_times(
    workflows: Sequence[Workflow],
    needs: Sequence[tuple[int, ...]],
    models: Sequence[MLModel],
    classes: GPUClasses,
    places: Sequence[PlaceClass],
    restrictions: Restrictions,
) -> Ints:
    """Return the run time of each template on each class of places, NEVER where it cannot run.

    Shape [templates, classes].
    """
    tasks = [(workflow, task) for workflow in workflows for task in workflow.tasks]
    demands = {
        (needed, task.memory_bytes, mode.parts)
        for needed, (_, task) in zip(needs, tasks, strict=True)
        for mode in task.choices
    }
    room = {
        (needed, working, parts): [
            all(restrictions.allows_model(models[m].name, index) for m in needed)
            and gpu.fits((part_bytes(models[m].weight_bytes, parts) for m in needed), working)
            for gpu, index in zip(classes.gpus, classes.first, strict=True)
        ]
        for needed, working, parts in demands
    }
    rows = []
    for needed, (workflow, task) in zip(needs, tasks, strict=True):
        allowed = [restrictions.allows_workflow(workflow.name, index) for index in classes.first]
        modes = {}
        for mode in task.choices:
            fits = room[needed, task.memory_bytes, mode.parts]
            able = [may and has_room for may, has_room in zip(allowed, fits, strict=True)]
            modes[mode.gpus] = mode, [_alone(mode, *each) for each in zip(classes.gpus, able, strict=True)]
        several = task.gpus > 1 or len(places) > len(allowed)
        rows.append([_at_place(modes, place) for place in places] if several else modes[1][1])
    return as_ints(rows, "run times")


def _alone(mode: Mode, gpu: GPU, able: bool) -> int:
    """Return the run time of a mode on GPUs of a class, NEVER where it cannot run."""
    runtime = of_kind(mode.runtime_us, gpu.kind) if able else None
    return NEVER if runtime is None else runtime


def _at_place(modes: Mapping[int, tuple[Mode, Sequence[int]]], place: PlaceClass) -> int:
    """Return the run time of a task at a place of a class, in the mode of as many GPUs, from those on their classes."""
    if place.size not in modes:
        return NEVER
    mode, alone = modes[place.size]
    times = [alone[own] for own in place.classes]
    if NEVER in times:
        return NEVER
    return math.ceil(max(times) * mode.across) if place.spread else max(times)


def batch_classes(workflows: Sequence[Workflow]) -> tuple[tuple[BatchClass, ...], Ints]:
    """Return the batch classes in the order of their first templates, and the class of each template, NONE without."""
    position: dict[str, int] = {}
    found: list[BatchClass] = []
    of_template = []
    for workflow in workflows:
        for task in workflow.tasks:
            if task.batch is None:
                of_template.append(NONE)
                continue
            index = position.setdefault(task.batch.name, len(found))
            if index == len(found):
                found.append(task.batch)
            elif found[index] is not task.batch and found[index].content != task.batch.content:
                raise InstanceError(f"batch class {task.batch.name} is given twice, with different content")
            of_template.append(index)
    return tuple(found), np.array(of_template, np.int64)


def batch_times(batches: Sequence[BatchClass], models: Sequence[MLModel], load_us: Ints, classes: GPUClasses) -> Ints:
    """Return the run time of each batch class on each GPU class by size, NEVER for sizes that cannot run there.

    Shape [batches, classes, largest size + 1]; entry 0 of the last axis is NEVER.
    """
    position = {model.name: index for index, model in enumerate(models)}
    largest = max((batch.largest_on(gpu.kind) for batch in batches for gpu in classes.gpus), default=0)
    times = np.full((len(batches), len(classes.gpus), largest + 1), NEVER, np.int64)
    for b, batch in enumerate(batches):
        needed = [position[name] for name in batch.models]
        weights = [models[model].weight_bytes for model in needed]
        for c, gpu in enumerate(classes.gpus):
            if (load_us[needed, c] == NEVER).any():
                continue
            before = 0
            for size, time_us in sorted(batch.times_on(gpu.kind).items()):
                if time_us > LARGEST:
                    raise InstanceError(f"run times must not exceed {LARGEST} microseconds")
                times[b, c, before + 1 : size + 1] = time_us
                before = size
            while before and not gpu.fits(weights, before * batch.memory_bytes):
                times[b, c, before] = NEVER
                before -= 1
    return times


def precedence_arcs(workflows: Sequence[Workflow]) -> tuple[Arcs, Arcs, list[Edge]]:
    """Return inputs and outputs of each template, and the edges in the order of their numbers."""
    inputs: list[tuple[tuple[int, int], ...]] = []
    outputs: list[list[tuple[int, int]]] = []
    edges: list[Edge] = []
    for workflow in workflows:
        outputs.extend([] for _ in workflow.tasks)
        first = len(inputs)
        for index, task in enumerate(workflow.tasks):
            row = []
            for edge in task.inputs:
                source = workflow.position[edge.source]
                row.append((source - index, len(edges)))
                outputs[first + source].append((index - source, len(edges)))
                edges.append(edge)
            inputs.append(tuple(row))
    return tuple(inputs), tuple(tuple(row) for row in outputs), edges


def input_times(workflows: Sequence[Workflow], network: Network) -> Ints:
    """Return how long the input bytes of each template take to another server than the job's ingress."""
    sizes = [task.input_bytes for workflow in workflows for task in workflow.tasks]
    return as_ints([network.input_us(size) for size in sizes], "transfer times")


def transfer_times(edges: Sequence[Edge], cluster: Cluster, classes: GPUClasses) -> Ints:
    """Return the transfer time of each edge by class of source and target, and 1 for the same server.

    Shape [edges, classes, classes, 2].
    """
    sizes = sorted({edge.size_bytes for edge in edges})
    position = {size: index for index, size in enumerate(sizes)}
    table = np.zeros((len(sizes), len(classes.gpus), len(classes.gpus), 2), np.int64)
    for a, source in enumerate(classes.gpus):
        for b, target in enumerate(classes.gpus):
            for same_server in (False, True):
                times = cluster.network.transfers_us(sizes, source, target, same_server)
                table[:, a, b, int(same_server)] = as_ints(times, "transfer times")
    return table[np.array([position[edge.size_bytes] for edge in edges], np.int64)]
