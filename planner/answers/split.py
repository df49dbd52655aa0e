"""Jobs whose equal tasks side by side are perhaps one run on several GPUs, and plans that run these apart."""

from __future__ import annotations

from dataclasses import replace

from truenorth.models.instance import Instance
from truenorth.models.timeline import Timeline
from truenorth.models.workload import Workflow


def is_side_by_side(workflow: Workflow) -> bool:
    """Say whether a workflow is nothing but equal tasks, none of which waits for another, as a split job is."""
    first, *others = workflow.tasks
    if not others or workflow.branches or first.stream is not None:
        return False
    return all(not task.inputs and replace(task, name=first.name) == first for task in workflow.tasks)


def jobs_apart(instance: Instance, timeline: Timeline) -> int:
    """Return how many jobs of equal tasks side by side have these begin at different times."""
    split = {id(of): is_side_by_side(of) for of in {id(job.workflow): job.workflow for job in instance.jobs}.values()}
    of_split = [instance.tasks_of(index) for index, job in enumerate(instance.jobs) if split[id(job.workflow)]]
    return sum(len(set(timeline.start_us[tasks.start : tasks.stop].tolist())) > 1 for tasks in of_split)
