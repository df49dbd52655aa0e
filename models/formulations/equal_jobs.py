"""Jobs that no rule and no objective tells apart: of the plans that differ by their names one is enough.

Two jobs are equal if they run the same workflow, are released together, have the same due time and weight, and have
their input in the same place. In every formulation and programme the first tasks of equal jobs start in the order of
the jobs.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from truenorth.models.instance import Instance, Ints
from truenorth.models.objective import Objective, charges
from truenorth.models.timeline import Timeline


def equal_jobs(instance: Instance, objective: Objective) -> list[list[int]]:
    """Return the groups of two or more equal jobs, each in order.

    Notes
    -----
    Invariant: exchanging two jobs of a group in a plan gives a plan of the same value.
    Because: the key holds all that a rule or an objective can see of a job beside its tasks.
    If wrong: unsound. Orders that no exchange brings back are then left out.
    """
    charged, fed = charges(objective, instance), bool(instance.input_us.any())
    groups: dict[object, list[int]] = {}
    for job, (workflow, due_us, weight) in enumerate(
        zip(instance.job_workflow.tolist(), charged.due_us.tolist(), charged.job_weights, strict=True)
    ):
        ingress = int(instance.job_ingress[job]) if fed else None
        key = (workflow, int(instance.job_release_us[job]), due_us, weight, ingress)
        groups.setdefault(key, []).append(job)
    return [group for group in groups.values() if len(group) > 1]


def ordered_tasks(instance: Instance, objective: Objective) -> list[tuple[int, int]]:
    """Return the pairs of tasks of which the second starts no earlier: the first tasks of equal jobs, one by one."""
    groups = equal_jobs(instance, objective)
    return [(_first_task(instance, a), _first_task(instance, b)) for group in groups for a, b in pairwise(group)]


def job_before(instance: Instance, objective: Objective) -> Ints:
    """Return the equal job that comes before each, -1 where there is none. Shape [jobs]."""
    before = np.full(len(instance.jobs), -1, np.int64)
    for group in equal_jobs(instance, objective):
        before[group[1:]] = group[:-1]
    return before


def sort_equal_jobs(instance: Instance, objective: Objective, timeline: Timeline) -> Timeline:
    """Return the timeline with equal jobs in the order in which their first tasks start."""
    source = np.arange(instance.n_tasks)
    for group in equal_jobs(instance, objective):
        begun = sorted(group, key=lambda job: int(timeline.start_us[_first_task(instance, job)]))
        for job, other in zip(group, begun, strict=True):
            source[instance.tasks_of(job)] = instance.tasks_of(other)
    return replace(
        timeline, place=timeline.place[source], start_us=timeline.start_us[source], end_us=timeline.end_us[source]
    )


def _first_task(instance: Instance, job: int) -> int:
    """Return a task of a job that waits for no other one: the same one in equal jobs."""
    workflow = instance.workflows[int(instance.job_workflow[job])]
    return int(instance.job_first_task[job]) + workflow.topological[0]
