"""Tasks of equal shares without models, on GPUs of their own: what k of them do side by side, k GPUs do one by one.

The twin has the same optimum, and all that is known of tasks that run one at a time serves it: the faster decoder,
stronger bounds, CP-SAT without profiles.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from models import WHOLE, Cluster, Instance, Link, Network, Timeline, assert_feasible
from models.restrictions import Restrictions


@dataclass(frozen=True, slots=True)
class Lanes:
    """A window whose tasks run side by side, and its twin.

    Parameters
    ----------
    instance, twin
        GPU g is the twin's GPUs from g x `count` on.
    count
        How many tasks run at once on a GPU.
    """

    instance: Instance
    twin: Instance
    count: int

    def spread(self, timeline: Timeline) -> Timeline:
        """Return the plan on the twin: every task on the first of its GPU's lanes that is free."""
        free_us = np.zeros((self.instance.n_gpus, self.count), np.int64)
        gpus = np.empty_like(timeline.gpu)
        for task in np.lexsort((timeline.end_us, timeline.start_us)).tolist():
            gpu = int(timeline.gpu[task])
            lane = int(np.flatnonzero(free_us[gpu] <= timeline.start_us[task])[0])
            free_us[gpu, lane] = timeline.end_us[task]
            gpus[task] = gpu * self.count + lane
        return replace(timeline, gpu=gpus, residencies=())

    def gather(self, timeline: Timeline) -> Timeline:
        """Return a plan of the twin as one of the window."""
        gathered = replace(timeline, gpu=timeline.gpu // self.count)
        assert_feasible(self.instance, gathered)
        return gathered


def lanes_of(instance: Instance) -> Lanes | None:
    """Return the twin of a window; None if its tasks need models, batches or memory, or pay for transfers.

    They must run k at a time, k > 1, whatever their shares, on GPUs that are always there.
    """
    counts = {WHOLE // share for share in instance.template_share.tolist()}
    plain = not instance.batches and not instance.template_memory.any() and not any(instance.needs)
    # One GPU keeps its outputs; the lanes of several would be as far apart as GPUs are.
    near = instance.n_gpus == 1 or not (instance.transfer_us.any() or instance.input_us.any())
    unlimited = instance.always_available and instance.restrictions == Restrictions()
    if len(counts) > 1 or 1 in counts or not (plain and near and unlimited):
        return None
    count = counts.pop()
    gpus = tuple(replace(gpu, id=f"{gpu.id}/{lane}") for gpu in instance.cluster.gpus for lane in range(count))
    alone = [replace(w, tasks=tuple(replace(task, share=WHOLE) for task in w.tasks)) for w in instance.workflows]
    twin = Instance(
        Cluster(gpus, Network(Link(), Link())),
        (),
        tuple(
            replace(job, workflow=alone[index])
            for job, index in zip(instance.jobs, instance.job_workflow.tolist(), strict=True)
        ),
        instance.overlap_loads,
    )
    return Lanes(instance, twin, count)
