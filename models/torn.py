"""The torn twin: every run on k GPUs as k runs on one GPU each, free to start when and where they like.

A task that chooses among numbers of GPUs is torn once, so that whatever it chooses leaves room for its parts: one as
long as its fastest mode, the others alike. Together they have about the least area of a mode.

Where models are split over k GPUs each part needs a model of its own, of a k-th of the bytes; where each GPU holds them
whole each part needs them as they are; parts of a task that chooses need none.

What comes after such a run waits for all its parts: each of its own parts for the first one, which is the longest, and
its first part for each. How long an output takes depends on both places; in the twin it takes no time between any two
GPUs, and is late by what it takes at least (`_least_transfer`). That an output of no bytes takes no time, links have no
latency there. Input bytes of such a run are at hand wherever it runs.

Invariant: the window has no plan below a bound of the twin.
Because: on the GPUs of a run's place, from its start to its end, its parts find room, whatever its mode (see `_parts`),
    and keep every rule of the twin; a job ends no sooner than its parts do. No part starts before the run, nor ends
    after it, so that whatever lies between two runs lies between their parts; between two tasks on one GPU each lies
    what did, or less. A residency at a place of k GPUs becomes one of the k-th on each of them, from the same start, as
    long and of the same bytes, ready no later.
Cost: the parts may be torn apart: a fragmented cluster, or the order of large runs, costs the twin nothing. Nor does a
    mode that is fast, but takes much GPU-time, nor the way between two places. Where such runs wait for others, or
    others for them, no transfer costs the latency of its link.
If wrong: unsound; certificates of windows with such runs are verified on this twin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from truenorth.models.cluster import Cluster
from truenorth.models.instance import NEVER, Instance
from truenorth.models.places import ways_between
from truenorth.models.restrictions import Restrictions
from truenorth.models.tables import part_bytes
from truenorth.models.workload import Edge, MLModel, Task, Workflow


def torn(instance: Instance) -> Instance:
    """Return the twin of a window with runs on several GPUs; the window itself if it has none."""
    if not instance.gangs:
        return instance
    apart = [
        _torn_workflow(instance, workflow, int(first))
        for workflow, first in zip(instance.workflows, instance.template_first, strict=False)
    ]
    models, limits = _torn_models(instance, apart)
    # The distinct workflows have the jobs' own delays in them.
    jobs = tuple(
        replace(job, workflow=apart[index], delays_us=None)
        for job, index in zip(instance.jobs, instance.job_workflow.tolist(), strict=True)
    )
    arcs = zip(instance.template_gpus > 1, instance.inputs, instance.outputs, strict=True)
    tied = any(several and (inputs or outputs) for several, inputs, outputs in arcs)
    cluster = _without_latency(instance.cluster) if tied else instance.cluster
    return replace(instance, cluster=cluster, jobs=jobs, models=models, restrictions=limits, catalogue=())


def priced_window(instance: Instance) -> Instance:
    """Return the window whose GPUs get prices: itself where it is a matter of GPUs alone, else the torn twin.

    Where each job is one task without models or memory, a run on k GPUs of a class pays k times the price of one, in
    the mode that is cheapest: nothing needs to be torn, and modes that are fast, but take much GPU-time, pay for it.
    """
    alone = instance.n_tasks == len(instance.jobs) and not any(instance.needs) and not instance.template_memory.any()
    whole = all(len(kind.classes) == 1 for kind in instance.place_kinds)
    return instance if not instance.gangs or (alone and whole) else torn(instance)


def _without_latency(cluster: Cluster) -> Cluster:
    network = cluster.network
    between, within = (replace(link, latency_us=0) for link in (network.between, network.within))
    return replace(cluster, network=replace(network, between=between, within=within))


def _part_name(instance: Instance, model: str, parts: int) -> str:
    """Return the name of the k-th part of a model; no other model has it."""
    if parts == 1:
        return model
    name = f"{model}/{parts} parts"
    while any(other.name == name for other in instance.models):
        name += "'"
    return name


def _torn_models(instance: Instance, apart: Sequence[Workflow]) -> tuple[tuple[MLModel, ...], Restrictions]:
    """Return the models of the window with the parts of those that are split, allowed wherever the whole is."""
    wanted = {name for workflow in apart for task in workflow.tasks for name in task.models}
    sizes = sorted({len(place) for place in instance.places.gpus} - {1})
    pairs = [(model, parts) for model in instance.models for parts in sizes]
    split = {_part_name(instance, model.name, parts): (model, parts) for model, parts in pairs}
    split = {name: pair for name, pair in split.items() if name in wanted}
    limits = dict(instance.restrictions.model_gpus)
    limits |= {name: limits[model.name] for name, (model, _) in split.items() if model.name in limits}
    made = (MLModel(name, part_bytes(model.weight_bytes, parts)) for name, (model, parts) in split.items())
    return (*instance.models, *made), replace(instance.restrictions, model_gpus=limits)


def _torn_workflow(instance: Instance, workflow: Workflow, first: int) -> Workflow:
    pieces = {
        task.name: [task] if task.gpus == 1 else _pieces(instance, task, _parts(_fastest(instance, template)))
        for template, task in enumerate(workflow.tasks, first)
    }
    tasks = []
    for template, task in enumerate(workflow.tasks, first):
        of_first, of_others = _inputs(instance, template, task, pieces)
        head, *others = pieces[task.name]
        tasks += [replace(head, inputs=of_first), *(replace(other, inputs=of_others) for other in others)]
    # What slowdowns divide by stays what it is in the window.
    return replace(workflow, tasks=tuple(tasks), of=None, ideal_us=workflow.ideal_us or workflow.critical_path_us)


def _pieces(instance: Instance, task: Task, parts: Sequence[Mapping[str, int]]) -> list[Task]:
    """Return the parts of a task, which wait for nothing yet."""
    models = () if task.modes else tuple(_part_name(instance, name, task.choices[0].parts) for name in task.models)
    part = replace(task, gpus=1, across=Fraction(1), modes=(), models=models, copies=False, inputs=(), input_bytes=0)
    return [replace(part, name=f"{task.name}/{number}", runtime_us=us) for number, us in enumerate(parts)]


def _inputs(
    instance: Instance, template: int, task: Task, pieces: Mapping[str, Sequence[Task]]
) -> tuple[tuple[Edge, ...], tuple[Edge, ...]]:
    """Return what the first part of a task waits for, and what each of the others does."""
    of_first, of_others = list[Edge](), list[Edge]()
    for edge, (offset, number) in zip(task.inputs, instance.inputs[template], strict=True):
        sent, parts = edge, pieces[edge.source]
        if max(instance.template_gpus[template], instance.template_gpus[template + offset]) > 1:
            least_us = _least_transfer(instance, template, offset, number)
            sent = replace(edge, size_bytes=0, delay_us=edge.delay_us + least_us)
        of_first += [replace(sent, source=part.name) for part in parts]
        of_others.append(replace(sent, source=parts[0].name))
    return tuple(of_first), tuple(of_others)


def _least_transfer(instance: Instance, template: int, offset: int, edge: int) -> int:
    """Return how long an output takes at least, from any place of its source to any place of a template."""
    here, there = (_able(instance, each) for each in (template + offset, template))
    ways = ways_between(here, there, instance.gpu_class, instance.gpu_server)
    return min((int(instance.transfer_us[edge, a, b, same_server]) for a, b, same_server in ways), default=0)


def _able(instance: Instance, template: int) -> set[int]:
    """Return the GPUs that some run of a template may take."""
    able = np.flatnonzero(instance.run_us[template, instance.place_class] != NEVER)
    return set(instance.places.members(able)[1].tolist())


def _fastest(instance: Instance, template: int) -> dict[str, dict[int, int]]:
    """Return the shortest run time of a task by kind of GPU and number of GPUs, over the places of that sort."""
    fastest: dict[str, dict[int, int]] = {}
    row = instance.run_us[template]
    for place, sort in enumerate(instance.place_class.tolist()):
        if row[sort] != NEVER:
            gpus = instance.places.gpus[place]
            modes = fastest.setdefault(instance.cluster.gpus[gpus[0]].kind, {})
            modes[len(gpus)] = min(int(row[sort]), modes.get(len(gpus), int(row[sort])))
    return fastest


def _parts(fastest: Mapping[str, Mapping[int, int]]) -> Sequence[dict[str, int]]:
    """Return the run times of the parts of a task by kind of GPU, from those of its modes there.

    Notes
    -----
    Invariant: on every kind, in every mode of k GPUs and p us, all parts find room on k GPUs within p.
    Because: `_others` makes the others so short.
    Cost: of 1 and the numbers of GPUs of modes, the number of parts is taken that has most GPU-time.
    """
    first = {kind: min(modes.values()) for kind, modes in fastest.items()}
    best = [first]
    for count in sorted({gpus for modes in fastest.values() for gpus in modes} - {1}):
        others = {kind: _others(modes, count) for kind, modes in fastest.items()}
        if all(others.values()):
            best = max(best, [first, *[others] * (count - 1)], key=_gpu_time)
    return best


def _gpu_time(parts: Sequence[Mapping[str, int]]) -> int:
    return sum(sum(part.values()) for part in parts)


def _others(modes: Mapping[int, int], count: int) -> int:
    """Return how long all parts but the first may be, which is as long as the fastest mode; 0 where there is no room.

    >>> _others({4: 12}, 4)  # as long as the first
    12
    >>> _others({1: 40, 4: 12}, 4)  # one after the other on 1 GPU: 12 + 9 + 9 + 9
    9
    """
    first = min(modes.values())

    def fits(other: int) -> bool:
        """Say whether every mode of k GPUs has room beside the first part on one of them, and on the k - 1 others."""
        return all(
            (run_us - first) // other + (gpus - 1) * (run_us // other) >= count - 1 for gpus, run_us in modes.items()
        )

    low, high = 0, first
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low
