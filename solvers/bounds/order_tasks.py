"""The tasks of a part whose GPUs are of one class, for the verifier: what each must wait for in a start order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from truenorth.models.instance import NONE, Instance, Ints
from truenorth.solvers.bounds.alone import LoneJobs
from truenorth.solvers.bounds.effort import TooLargeError

_MOST_TASKS, _MOST_MODELS = 500, 60


@dataclass(frozen=True, slots=True)
class OrderTasks:
    """The tasks of a part, and what each must wait for.

    Parameters
    ----------
    job, place, run_us, head_us, tail_us
        Per task: its job and its place there, how long it runs, its earliest start, and the longest chain behind it.
    needs
        Per task: a mask of the models that it needs and that no GPU holds from the start.
    load_us
        Per bit of those masks.
    source, gap_us
        The predecessors of a task, NONE where there are no more, and how long what they send takes between two GPUs.
        Shape [tasks, most predecessors].
    reach_us
        Per task: the longest gap behind it.
    """

    job: Ints
    place: Ints
    run_us: Ints
    head_us: Ints
    tail_us: Ints
    needs: Ints
    load_us: Ints
    source: Ints
    gap_us: Ints
    reach_us: Ints

    @classmethod
    def of(cls, instance: Instance, alone: LoneJobs) -> OrderTasks:
        """Return the tasks of an instance whose GPUs are of one class.

        Raises
        ------
        TooLargeError
            If there are too many of them, or too many models.
        """
        if instance.n_tasks > _MOST_TASKS:
            raise TooLargeError(f"more than {_MOST_TASKS} tasks")
        jobs, templates = range(len(instance.jobs)), instance.task_template
        held = {there.model for there in instance.initial}
        bits = {m: bit for bit, m in enumerate(sorted({m for row in instance.needs for m in row} - held))}
        if len(bits) > _MOST_MODELS:
            raise TooLargeError(f"more than {_MOST_MODELS} models")
        masks = np.array([sum(1 << bits[m] for m in row if m in bits) for row in instance.needs], np.int64)
        most = max(map(len, instance.inputs), default=0)
        source, gap_us = np.full((len(templates), most), NONE, np.int64), np.zeros((len(templates), most), np.int64)
        reach_us = np.zeros(len(templates), np.int64)
        for task in range(len(templates)):
            for at, (offset, edge) in enumerate(instance.inputs[templates[task]]):
                source[task, at], gap_us[task, at] = task + offset, _gap_us(instance, edge)
                reach_us[task + offset] = max(reach_us[task + offset], gap_us[task, at])
        return cls(
            instance.task_job,
            np.arange(len(templates)) - instance.job_first_task[instance.task_job],
            np.array(alone.fastest, np.int64)[templates],
            np.array([at for job in jobs for at in alone.times(job)[0]], np.int64),
            np.array(alone.tail, np.int64)[templates],
            masks[templates],
            np.array([int(instance.load_us[m, 0]) for m in bits], np.int64),
            source,
            gap_us,
            reach_us,
        )

    @property
    def most_us(self) -> int:
        """What runs, gaps and loads take together: no start order waits for longer, its heads aside."""
        gaps = self.gap_us.max(axis=1, initial=0)
        return sum(map(int, (self.run_us.sum(), gaps.sum(), self.load_us.sum())))


def _gap_us(instance: Instance, edge: int) -> int:
    """Return the least time that an output takes between two different GPUs of the one class."""
    servers = instance.gpu_server.tolist()
    links = [1] if len(set(servers)) < len(servers) else []
    links += [0] if len(set(servers)) > 1 else []
    return min((int(instance.transfer_us[edge, 0, 0, link]) for link in links), default=0)


def loads_us(load_us: Ints, models: Ints) -> Ints:
    """Return how long loading takes of the models in each mask, one after the other."""
    total = np.zeros(models.shape, np.int64)
    for bit, each in enumerate(load_us.tolist()):
        total += each * (models >> bit & 1)
    return total
