"""Tasks of batch classes as single requests: what runs one by one may also run where several could run together.

A plan of the twin is a plan of the window, but for a microsecond by which starts of one class keep off each other below
share 1: so what bounds the twin need not bound the window. Where the twin runs one task at a time, beams find its plans
in a fraction of the time that batches take to arrange.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from models import Instance, Task, Timeline
from models.instance import NONE


@dataclass(frozen=True, slots=True)
class Singles:
    """A window with batch classes, and its twin, in which every task runs alone."""

    instance: Instance
    twin: Instance

    def gather(self, timeline: Timeline) -> Timeline:
        """Return a plan of the twin as one of the window.

        Below share 1 tasks of one class that start together would be a batch; all but the first start 1 us apart, which
        may break other rules: whoever offers the plan checks it.
        """
        batch = self.instance.template_batch[self.instance.task_template]
        start_us, taken = timeline.start_us.copy(), set[tuple[int, int, int]]()
        for task in np.lexsort((timeline.end_us, timeline.start_us)).tolist():
            gpu, of_class, at_us = int(timeline.gpu[task]), int(batch[task]), int(start_us[task])
            while of_class != NONE and (gpu, of_class, at_us) in taken:
                at_us += 1
            taken.add((gpu, of_class, at_us))
            start_us[task] = at_us
        return replace(timeline, start_us=start_us, end_us=timeline.end_us + start_us - timeline.start_us)


def singles_of(instance: Instance) -> Singles | None:
    """Return the twin of a window whose tasks all run alone; None if it has no batch classes."""
    if not instance.batches:
        return None
    alone = [workflow.with_tasks(_without_class) for workflow in instance.workflows]
    of_job = zip(instance.jobs, instance.job_workflow.tolist(), strict=True)
    jobs = tuple(replace(job, workflow=alone[index]) for job, index in of_job)
    return Singles(instance, replace(instance, jobs=jobs, catalogue=()))


def _without_class(task: Task) -> Task:
    """Return a task without its class, whose figures at size 1 it has."""
    return replace(task, batch=None)
