"""Which task can run before which on one GPU, as far as precedence and time windows tell."""

from __future__ import annotations

from dataclasses import dataclass

import networkx as nx

from models.formulations.windows import Windows
from models.instance import Instance


@dataclass(frozen=True, slots=True)
class Orders:
    """The orders of two tasks on one GPU that are still possible.

    Parameters
    ----------
    gpus
        Per task, the GPUs it may run on.
    descendants
        Per workflow and task in it: the tasks that come after it.
    """

    instance: Instance
    windows: Windows
    gpus: tuple[tuple[int, ...], ...]
    descendants: tuple[tuple[frozenset[int], ...], ...]

    @classmethod
    def of(cls, instance: Instance, windows: Windows, gpus: tuple[tuple[int, ...], ...]) -> Orders:
        """Return the orders that the windows leave."""
        after = tuple(_descendants(instance, workflow) for workflow in range(len(instance.workflows)))
        return cls(instance, windows, gpus, after)

    def allow(self, before: int, after: int) -> bool:
        """Say whether the first task can end before the second starts, on a GPU that both may use."""
        if before == after or self.precedes(after, before):
            return False
        return any(self._fit(before, after, gpu) for gpu in self.gpus[before] if gpu in self.gpus[after])

    def allow_beside(self, before: int, after: int) -> bool:
        """Say whether the second task can start with the first or after it, perhaps beside it, on a common GPU."""
        if before == after or self.precedes(after, before):
            return False
        earliest, latest = self.windows.earliest_start_us, self.windows.latest_end_us
        return any(
            earliest[before, gpu] + self.instance.run_time(after, gpu) <= latest[after, gpu]
            for gpu in self.gpus[before]
            if gpu in self.gpus[after]
        )

    def precedes(self, before: int, after: int) -> bool:
        """Say whether the second task comes after the first in their job's workflow."""
        job = int(self.instance.task_job[before])
        if job != self.instance.task_job[after]:
            return False
        first = int(self.instance.job_first_task[job])
        return (after - first) in self.descendants[self.instance.job_workflow[job]][before - first]

    def _fit(self, before: int, after: int, gpu: int) -> bool:
        """Say whether both tasks can run on a GPU in this order inside their windows."""
        both = self.instance.run_time(before, gpu) + self.instance.run_time(after, gpu)
        return bool(self.windows.earliest_start_us[before, gpu] + both <= self.windows.latest_end_us[after, gpu])


def _descendants(instance: Instance, workflow: int) -> tuple[frozenset[int], ...]:
    """Return, for each task of a workflow, the tasks that come after it."""
    tasks = instance.workflows[workflow]
    graph = nx.DiGraph([(tasks.position[edge.source], i) for i, task in enumerate(tasks.tasks) for edge in task.inputs])
    graph.add_nodes_from(range(len(tasks.tasks)))
    return tuple(frozenset(nx.descendants(graph, index)) for index in range(len(tasks.tasks)))
