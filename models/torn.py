"""The torn twin: every run on k GPUs as k runs on one GPU each, free to start when and where they like.

Invariant: the window has no plan below a bound of the twin.
Because: the k parts of a run, on the GPUs of its place from its start to its end, keep every rule of the twin; a part
    takes no longer than the run at the fastest place of its kind; a job ends with the last of its tasks in both.
Cost: the parts may be torn apart: a fragmented cluster, or the order of large runs, costs the twin nothing.
If wrong: unsound; certificates of windows with such runs are verified on this twin.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from truenorth.models.instance import NEVER, Instance
from truenorth.models.workload import Task, Workflow


def torn(instance: Instance) -> Instance:
    """Return the twin of a window with runs on several GPUs; the window itself if it has none."""
    if not instance.gangs:
        return instance
    apart = [
        _torn_workflow(instance, workflow, int(first))
        for workflow, first in zip(instance.workflows, instance.template_first, strict=False)
    ]
    jobs = tuple(
        replace(job, workflow=apart[index])
        for job, index in zip(instance.jobs, instance.job_workflow.tolist(), strict=True)
    )
    return replace(instance, jobs=jobs, catalogue=())


def _torn_workflow(instance: Instance, workflow: Workflow, first: int) -> Workflow:
    tasks = []
    for template, task in enumerate(workflow.tasks, first):
        if task.gpus == 1:
            tasks.append(task)
            continue
        part = replace(task, gpus=1, across=Fraction(1), runtime_us=_fastest(instance, template, task))
        tasks += [replace(part, name=f"{task.name}/{number}") for number in range(task.gpus)]
    # What slowdowns divide by stays what it is in the window.
    return replace(workflow, tasks=tuple(tasks), of=None, ideal_us=workflow.ideal_us or workflow.critical_path_us)


def _fastest(instance: Instance, template: int, task: Task) -> dict[str, int]:
    """Return the shortest run time of a task by kind of GPU, over the places of that kind."""
    fastest: dict[str, int] = {}
    row = instance.run_us[template]
    for place, kind in enumerate(instance.place_class.tolist()):
        if row[kind] != NEVER:
            gpu = instance.cluster.gpus[instance.places.gpus[place][0]]
            fastest[gpu.kind] = min(int(row[kind]), fastest.get(gpu.kind, int(row[kind])))
    return fastest
