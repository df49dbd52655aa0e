"""Small uncertain windows for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tests.instances import chain, cluster, instance, task
from truenorth.models import Instance, Job
from truenorth.models.timeline import Placement, Timeline
from truenorth.planner.inputs.told import Told


def window(times_us: Mapping[str, int], gpus: int = 1) -> Instance:
    """Return jobs of one task each, without models, all released at 0."""
    jobs = [Job(chain(task("t", us), name=name), 0) for name, us in times_us.items()]
    return instance(jobs, on=cluster(gpus))


def told(on: Instance, low: Sequence[float] | float, high: Sequence[float] | float, by_job: bool = False) -> Told:
    """Return an instance's run times as medians, with these multiples of them as intervals."""
    return Told(on, np.broadcast_to(low, on.n_tasks) * 1.0, np.broadcast_to(high, on.n_tasks) * 1.0, by_job)


def timeline(on: Instance, *runs: tuple[int, int]) -> Timeline:
    """Return a timeline without models; per task its GPU and start."""
    placed = [Placement(task, gpu, start, start + on.run_time(task, gpu)) for task, (gpu, start) in enumerate(runs)]
    return Timeline.build(on.n_tasks, placed, ())
