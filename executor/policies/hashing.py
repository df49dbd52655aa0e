"""Hash: a task goes to a worker by a checksum of its name."""

from __future__ import annotations

from zlib import crc32

from executor.policies.queueing import QueuePolicy


class Hash(QueuePolicy):
    """Placement by the CRC-32 of ``job/task`` (the job's index in release order, the task's name in its workflow).

    The checksum, modulo the number of GPUs that can run the task, picks one of them.
    """

    def released(self, job: int) -> None:
        """Place the tasks of the job."""
        site = self.site
        names = site.workflows[site.job_workflow[job]].tasks
        for task, named in zip(site.job_tasks[job], names, strict=True):
            eligible = site.eligible_gpus(task)
            self.place(task, eligible[crc32(f"{job}/{named.name}".encode()) % len(eligible)])
