"""What a gateway knows of run times: not those of a request, but the mean over requests of its class."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from models.instance import Instance
from models.workload import Task, Workflow
from planner.answers.uncertain.told import round_time

MEAN = "mean"
"""The text of ``--noise told=mean``."""
_Class = tuple[object, ...]
"""What workflows of one class have in common."""


def tell_means(instance: Instance) -> Instance:
    """Return an instance in which every run time is the mean, over the jobs, of its workflow's class on that kind.

    Workflows are of one class if their tasks come after each other, need models and run on kinds of GPU alike: a file
    made from a log lists one for every run time of a model. Workflows without models keep their names apart. What runs
    in batches has a table of run times for all of its class in any case, and keeps it.
    """
    jobs = instance.job_workflow.tolist()
    alike: dict[_Class, list[Workflow]] = defaultdict(list)
    for index in jobs:
        alike[_class_of(instance.workflows[index])].append(instance.workflows[index])
    means = {of: _means(workflows) for of, workflows in alike.items()}
    made = {index: _tell(instance.workflows[index], means[_class_of(instance.workflows[index])]) for index in set(jobs)}
    told = tuple(replace(job, workflow=made[index]) for job, index in zip(instance.jobs, jobs, strict=True))
    return replace(instance, jobs=told)


def _class_of(workflow: Workflow) -> _Class:
    shape = tuple(
        (
            task.name,
            task.models,
            task.batch and task.batch.name,
            frozenset(task.runtime_us),
            tuple(edge.source for edge in task.inputs),
        )
        for task in workflow.tasks
    )
    return shape if any(task.models for task in workflow.tasks) else (workflow.name, *shape)


def _means(workflows: list[Workflow]) -> list[dict[str, int]]:
    """Return, per task, the mean run time on each kind; a workflow counts as often as it is listed."""
    return [
        {kind: round_time(sum(task.runtime_us[kind] for task in tasks) / len(tasks)) for kind in tasks[0].runtime_us}
        for tasks in zip(*(workflow.tasks for workflow in workflows), strict=True)
    ]


def _tell(workflow: Workflow, means: list[dict[str, int]]) -> Workflow:
    told = {task.name: times for task, times in zip(workflow.tasks, means, strict=True)}

    def tell(task: Task) -> Task:
        return replace(task, runtime_us=told[task.name]) if task.batch is None and task.name in told else task

    return workflow.with_tasks(tell)
