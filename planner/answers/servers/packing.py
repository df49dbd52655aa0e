"""Levels that are bin packing: tasks without models, all released at 0 and due together, none of which may be late."""

from __future__ import annotations

import threading
from fractions import Fraction

from truenorth.models import Instance, Objective, Timeline
from truenorth.solvers.exact import arc_flow

METHOD = arc_flow.METHOD
"""Name of the refutations by packing; they take a solver to repeat."""


def applies(instance: Instance, most_late: Fraction) -> bool:
    """Say whether a plan without late jobs is a packing into bins, one for each GPU, as large as the deadline."""
    deadlines = {job.deadline_us for job in instance.jobs}
    return (
        most_late == 0
        and len(deadlines) == 1
        and None not in deadlines
        and arc_flow.applies(instance, Objective.MAKESPAN)
    )


def decide(
    instance: Instance, time_limit_s: float, workers: int, seed: int, stop: threading.Event
) -> tuple[bool, Timeline | None]:
    """Return whether the packing was decided, and the plan that it is if there is one."""
    sizes = [instance.run_time(task, 0) for task in range(instance.n_tasks)]
    deadline = instance.jobs[0].deadline_us or 0
    decided, packed = arc_flow.pack(sizes, instance.n_gpus, deadline, time_limit_s, workers, seed, stop.is_set)
    return decided, None if packed is None else arc_flow.timeline(instance, packed)
