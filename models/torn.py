"""The torn twin: every run on k GPUs as k runs on one GPU each, free to start when and where they like.

A task that chooses among numbers of GPUs is torn once, so that whatever it chooses leaves room for its parts: one as
long as its fastest mode, the others alike. Together they have about the least area of a mode.

Where models are split over k GPUs each part needs a model of its own, of a k-th of the bytes; where each GPU holds them
whole each part needs them as they are; parts of a task that chooses need none.

Invariant: the window has no plan below a bound of the twin.
Because: on the GPUs of a run's place, from its start to its end, its parts find room, whatever its mode (see `_parts`),
    and keep every rule of the twin; a job ends no sooner than its parts do. A residency at a place of k GPUs becomes
    one of the k-th on each of them, from the same start, as long and of the same bytes, ready no later.
Cost: the parts may be torn apart: a fragmented cluster, or the order of large runs, costs the twin nothing. Nor does a
    mode that is fast, but takes much GPU-time.
If wrong: unsound; certificates of windows with such runs are verified on this twin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from truenorth.models.instance import NEVER, Instance
from truenorth.models.restrictions import Restrictions
from truenorth.models.tables import part_bytes
from truenorth.models.workload import MLModel, Workflow


def torn(instance: Instance) -> Instance:
    """Return the twin of a window with runs on several GPUs; the window itself if it has none."""
    if not instance.gangs:
        return instance
    apart = [
        _torn_workflow(instance, workflow, int(first))
        for workflow, first in zip(instance.workflows, instance.template_first, strict=False)
    ]
    models, limits = _torn_models(instance, apart)
    jobs = tuple(
        replace(job, workflow=apart[index])
        for job, index in zip(instance.jobs, instance.job_workflow.tolist(), strict=True)
    )
    return replace(instance, jobs=jobs, models=models, restrictions=limits, catalogue=())


def _part_name(model: str, parts: int) -> str:
    """Return the name of the k-th part of a model; no other model has it."""
    return f"{model}/{parts} parts" if parts > 1 else model


def _torn_models(instance: Instance, apart: Sequence[Workflow]) -> tuple[tuple[MLModel, ...], Restrictions]:
    """Return the models of the window with the parts of those that are split, allowed wherever the whole is."""
    wanted = {name for workflow in apart for task in workflow.tasks for name in task.models}
    sizes = sorted({len(place) for place in instance.places.gpus} - {1})
    pairs = [(model, parts) for model in instance.models for parts in sizes]
    split = {_part_name(model.name, parts): (model, parts) for model, parts in pairs}
    split = {name: pair for name, pair in split.items() if name in wanted}
    limits = dict(instance.restrictions.model_gpus)
    limits |= {name: limits[model.name] for name, (model, _) in split.items() if model.name in limits}
    made = (MLModel(name, part_bytes(model.weight_bytes, parts)) for name, (model, parts) in split.items())
    return (*instance.models, *made), replace(instance.restrictions, model_gpus=limits)


def _torn_workflow(instance: Instance, workflow: Workflow, first: int) -> Workflow:
    tasks = []
    for template, task in enumerate(workflow.tasks, first):
        if task.gpus == 1:
            tasks.append(task)
            continue
        models = () if task.modes else tuple(_part_name(name, task.choices[0].parts) for name in task.models)
        part = replace(task, gpus=1, across=Fraction(1), modes=(), models=models, copies=False)
        tasks += [
            replace(part, name=f"{task.name}/{number}", runtime_us=runtime_us)
            for number, runtime_us in enumerate(_parts(_fastest(instance, template)))
        ]
    # What slowdowns divide by stays what it is in the window.
    return replace(workflow, tasks=tuple(tasks), of=None, ideal_us=workflow.ideal_us or workflow.critical_path_us)


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
