"""Index sets of batches: who may join whose batch, how large it may become, and what runs beside what.

Of the tasks of a batch the lowest *leads*: engines, models and residencies see only leaders. Where shares are below 1,
tasks *overlap* on a GPU; a residency then serves tasks that run beside each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from models.formulations.allowance import Allowance
from models.formulations.orders import Orders
from models.instance import NEVER, NONE, Instance
from models.workload import WHOLE


def joinable(orders: Orders, allowance: Allowance) -> Iterator[tuple[int, int]]:
    """Yield the pairs (leader, member) of one class that can start at the same instant on one GPU."""
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
