"""Hash: a task goes to a worker by a checksum of its name."""

from __future__ import annotations

from typing import ClassVar
from zlib import crc32

from executor.policies.queueing import QueuePolicy
from executor.policy import Knows
from executor.site import Site


class Hash(QueuePolicy):
    """Placement by the CRC-32 of ``job/task`` (the job's index in release order, the task's name in its workflow).

    The checksum, modulo the number of GPUs that can run the task, picks one of them.
    """

    knows: ClassVar[Knows] = Knows.NOTHING

    def released(self, job: int) -> None:
        """Place the tasks of the job, as far as a GPU that is there can run them."""
        for task in self.site.job_tasks[job]:
            if task in self.site.dropped:
                continue
            if self.site.stays or self.site.eligible_gpus(task):
                self.place(task, hash_gpu(self.site, task))
            elif not self.site.predecessors_left[task]:
                self.seek_place(task, self.site.job_ingress[job])

    def runnable(self, task: int, server: int) -> None:
        """Place a task that has lost its GPU, or found none at first."""
        self.place(task, hash_gpu(self.site, task))


def hash_gpu(site: Site, task: int) -> int:
    """Return the GPU of a task by the checksum of its name."""
    job = site.job[task]
    name = site.workflows[site.job_workflow[job]].tasks[task - site.job_tasks[job].start].name
    eligible = site.eligible_gpus(task)
    return eligible[crc32(f"{job}/{name}".encode()) % len(eligible)]
