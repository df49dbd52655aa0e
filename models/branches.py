"""Uncertain paths: a job of a workflow with branches runs one of them, and only the plan knows beforehand which.

For plans, rules and metrics a job's workflow is the path that it takes. Online policies meet the *open* instance, in
which it is the whole workflow, until the path shows: with the end of the first task outside the branches that a task in
one of them comes after; at the release if a branch has a task without predecessors.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from truenorth.models.instance import Instance
from truenorth.models.streams import Tokens
from truenorth.models.tables import Ints
from truenorth.models.timeline import Timeline
from truenorth.models.workload import Job, Workflow


def paths_of(workflow: Workflow) -> tuple[Workflow, ...]:
    """Return what a job runs on each branch, under the workflow's name; the workflow itself if it has none."""
    if not workflow.branches:
        return (workflow,)
    return tuple(_path(workflow, index) for index in range(len(workflow.branches)))


def _path(workflow: Workflow, branch: int) -> Workflow:
    left_out = {name for index, other in enumerate(workflow.branches) if index != branch for name in other.tasks}
    names = workflow.position.keys() - left_out
    tasks = tuple(
        replace(task, inputs=tuple(edge for edge in task.inputs if edge.source in names))
        for task in workflow.tasks
        if task.name in names
    )
    return Workflow(workflow.name, tasks, of=workflow, ideal_us=workflow.ideal_us)


def likeliest_path(workflow: Workflow) -> Workflow:
    """Return the path of the most probable branch, the first of equal ones; the workflow itself if it has none."""
    if not workflow.branches:
        return workflow
    return _path(workflow, max(range(len(workflow.branches)), key=lambda index: workflow.branches[index].probability))


def branch_of(path: Workflow) -> int:
    """Return the number of the branch of which a workflow is the path; where several lead to the same, the first."""
    return paths_of(path.of).index(path) if path.of is not None else 0


def draw_branch(workflow: Workflow, seed: int, job: int) -> int:
    """Return the branch that a job takes, given its index in release order."""
    drawn = Fraction(random.Random(f"{seed} path of {job}").random())  # noqa: S311
    for index, branch in enumerate(workflow.branches):
        drawn -= branch.probability
        if drawn < 0:
            return index
    return len(workflow.branches) - 1


def likelihoods(workflow: Workflow) -> list[Fraction]:
    """Return how likely a job runs each task."""
    of_task = {name: branch.probability for branch in workflow.branches for name in branch.tasks}
    return [of_task.get(task.name, Fraction(1)) for task in workflow.tasks]


def open_tasks(workflow: Workflow) -> frozenset[int]:
    """Return the positions of the tasks of branches, and of those that come after one."""
    found = {workflow.position[name] for branch in workflow.branches for name in branch.tasks}
    for position in workflow.topological:
        if any(workflow.position[edge.source] in found for edge in workflow.tasks[position].inputs):
            found.add(position)
    return frozenset(found)


def deciders(workflow: Workflow) -> frozenset[int]:
    """Return the positions of the tasks with whose first end the path shows; none: it shows at the release."""
    branched = {name for branch in workflow.branches for name in branch.tasks}
    inside = [task for task in workflow.tasks if task.name in branched]
    if not all(task.inputs for task in inside):
        return frozenset()
    before = (edge.source for task in inside for edge in task.inputs)
    return frozenset(workflow.position[name] for name in before if name not in branched)


@dataclass(frozen=True, slots=True)
class Opened:
    """An instance as online policies meet it.

    Parameters
    ----------
    instance
        In which jobs run their whole workflows.
    kept
        Which of its tasks the given instance has, in order.
    """

    instance: Instance
    kept: Ints


def open_paths(instance: Instance) -> Opened | None:
    """Return an instance with its paths open; None if no job's workflow is one of several paths."""
    if all(job.workflow.of is None for job in instance.jobs):
        return None
    jobs = tuple(_open(job) for job in instance.jobs)
    opened = replace(instance, jobs=jobs)
    kept = [
        int(first) + position
        for first, whole, job in zip(opened.job_first_task, jobs, instance.jobs, strict=False)
        for position, task in enumerate(whole.workflow.tasks)
        if task.name in job.workflow.position
    ]
    return Opened(opened, np.array(kept, np.int64))


def _open(job: Job) -> Job:
    """Return a job that runs its whole workflow; a request that it will not run has a token each way."""
    whole = job.workflow.of or job.workflow
    tokens = {
        task.name: job.workflow.tasks[job.workflow.position[task.name]].tokens or Tokens(1, 1, 1)
        if task.name in job.workflow.position
        else Tokens(1, 1, 1)
        for task in whole.tasks
        if task.stream is not None
    }
    return replace(job, workflow=whole, tokens={**tokens, **(job.tokens or {})} or None)


def only(timeline: Timeline, kept: Ints) -> Timeline:
    """Return what happened to some of the tasks, numbered in their order."""
    served = None if timeline.served is None else timeline.served.only(kept)
    gpu, start_us, end_us = timeline.place[kept], timeline.start_us[kept], timeline.end_us[kept]
    return replace(timeline, place=gpu, start_us=start_us, end_us=end_us, served=served)
