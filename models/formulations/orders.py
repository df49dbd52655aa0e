"""Which task can run before which on one GPU, as far as precedence and time windows tell, and who may join whom.

Index sets of batches: who may join whose batch, how large it may become, and what runs beside what. Of the tasks of a
batch the lowest *leads*: engines, models and residencies see only leaders. Where shares are below 1, tasks *overlap* on
a GPU; a residency then serves tasks that run beside each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import networkx as nx

from truenorth.models.formulations.allowance import Allowance
from truenorth.models.formulations.windows import Windows
from truenorth.models.instance import NEVER, NONE, Instance
from truenorth.models.workload import WHOLE


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
        """Say whether the first task can end before the second starts, on a GPU that both may use.

        Notes
        -----
        Invariant: false only if no plan inside the windows runs both on one GPU in this order.
        Because: precedence forbids the reverse, and a window that ends before both have run leaves no room.
        Cost: O(GPUs).
        If wrong: unsound if it says no too often (a hit or an order is missing); slower if it says yes too often.
        """
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


def joinable(orders: Orders, allowance: Allowance) -> Iterator[tuple[int, int]]:
    """Yield the pairs (leader, member) of one class that can start at the same instant on one GPU.

    Notes
    -----
    Only the lower number may lead, so that a batch is led in one way. Tasks of one chain never start together.
    If wrong: unsound if a pair is missing, since batches with it are then no plans of the model.
    """
    instance, windows = orders.instance, orders.windows
    members: dict[int, list[int]] = {}
    for task in range(instance.n_tasks):
        batch = batch_of(instance, task)
        if batch != NONE:
            members.setdefault(batch, []).append(task)
    for batch, tasks in members.items():
        for position, leader in enumerate(tasks):
            allowance.go_on()
            for member in tasks[position + 1 :]:
                if orders.precedes(leader, member) or orders.precedes(member, leader):
                    continue
                for gpu in set(orders.gpus[leader]) & set(orders.gpus[member]):
                    # A batch of two is the shortest that has both; larger ones take no less.
                    pair_us = instance.batch_time(batch, gpu, 2)
                    begin = max(windows.earliest_start_us[task, gpu] for task in (leader, member))
                    end = min(windows.latest_end_us[task, gpu] for task in (leader, member))
                    if pair_us != NEVER and begin + pair_us <= end:
                        yield leader, member
                        break


def batch_of(instance: Instance, task: int) -> int:
    """Return the batch class of a task, NONE without one."""
    return int(instance.template_batch[instance.task_template[task]])


def share_of(instance: Instance, task: int) -> int:
    """Return the share that a task, or its batch, takes, in parts of WHOLE."""
    return int(instance.template_share[instance.task_template[task]])


def memory_of(instance: Instance, task: int) -> int:
    """Return the bytes that a task holds while it runs."""
    return int(instance.template_memory[instance.task_template[task]])


def overlapping(instance: Instance) -> bool:
    """Say whether tasks can run beside each other on a GPU, in several batches."""
    return bool((instance.template_share < WHOLE).any())


def batch_times(instance: Instance, task: int, gpu: int, most: int) -> list[int]:
    """Return the run times of the batches of 1, 2, ... up to `most` tasks that a task can lead on a GPU."""
    batch = batch_of(instance, task)
    if batch == NONE:
        return [instance.run_time(task, gpu)]
    times = (instance.batch_time(batch, gpu, size) for size in range(1, most + 1))
    return [time for time in times if time != NEVER]


def led_by(joins: Sequence[tuple[int, int]]) -> dict[int, list[int]]:
    """Return the tasks that each task may have in its batch, for those that may have any."""
    members: dict[int, list[int]] = {}
    for leader, member in joins:
        members.setdefault(leader, []).append(member)
    return members
