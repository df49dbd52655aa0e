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


_APART = "have equal tasks side by side that {} at different times: no plan if each is one job, split over single GPUs"


def split_jobs(instance: Instance) -> list[int]:
    """Return the jobs that are nothing but equal tasks side by side."""
    split = {id(of): is_side_by_side(of) for of in {id(job.workflow): job.workflow for job in instance.jobs}.values()}
    return [index for index, job in enumerate(instance.jobs) if split[id(job.workflow)]]


def jobs_apart(instance: Instance, timeline: Timeline) -> int:
    """Return how many jobs of equal tasks side by side have these begin at different times."""
    tasks = map(instance.tasks_of, split_jobs(instance))
    return sum(len(set(timeline.start_us[each.start : each.stop].tolist())) > 1 for each in tasks)


def say_apart(instance: Instance, timeline: Timeline) -> str:
    """Return how many jobs of a timeline run apart, in words; nothing if none does."""
    apart = jobs_apart(instance, timeline)
    return f"{apart:,} of {len(instance.jobs):,} jobs {_APART.format('begin')}" if apart else ""


def say_split(instance: Instance) -> str:
    """Return how many jobs may run apart, in words; nothing if there is none."""
    split = len(split_jobs(instance))
    return f"{split:,} of {len(instance.jobs):,} jobs {_APART.format('may begin')}" if split else ""
