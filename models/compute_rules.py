"""The rules of compute (T3, T3b, T3c), for the checker: what may run beside what on a GPU, and for how long.

The unit is a batch, a task without a batch class being a batch of one. Tables are read from the classes themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

import numpy as np

from truenorth.models.instance import NONE, Instance, Ints
from truenorth.models.timeline import Timeline, batch_leaders
from truenorth.models.violation import Violation, name_task
from truenorth.models.workload import WHOLE


def check_batches(instance: Instance, timeline: Timeline) -> Iterator[Violation]:
    """T3b: at most the largest listed size, members end together, and end - start is the table's time at the size."""
    if not instance.batches:
        return
    batch = instance.template_batch[instance.task_template]
    groups: dict[int, list[int]] = {}
    leaders = batch_leaders(instance, timeline)
    for task in np.flatnonzero(batch != NONE):
        groups.setdefault(int(leaders[task]), []).append(int(task))
    for leader, members in groups.items():
        kind = instance.cluster.gpus[timeline.gpu[leader]].kind
        table = instance.batches[batch[leader]]
        most, size = table.largest_on(kind), len(members)
        subject = f"batch of {table.name} with {name_task(instance, leader)}"
        end_us, start_us = int(timeline.end_us[leader]), int(timeline.start_us[leader])
        if size > most > 0:
            yield Violation("T3b", subject, "batch is too large", size, most)
        for member in members:
            if timeline.end_us[member] != end_us:
                name = f"{name_task(instance, member)} in the {subject}"
                yield Violation("T3b", name, "a member ends apart", int(timeline.end_us[member]), end_us)
        allowed = table.runtime_on(kind, size)
        if allowed is not None and not timeline.realised and end_us - start_us != allowed:
            yield Violation("T3b", subject, f"batch of {size} runs for the wrong time", end_us - start_us, allowed)


def check_compute(instance: Instance, timeline: Timeline) -> Iterator[Violation]:
    """T3, T3c: at every instant the shares of the batches that run on a GPU add up to at most 1."""
    leaders = batch_leaders(instance, timeline)
    end_us = timeline.end_us.copy()
    np.maximum.at(end_us, leaders, timeline.end_us)
    leading = leaders == np.arange(instance.n_tasks)
    if instance.streams is not None:  # how requests share a GPU is for the rules of streams to say
        leading &= instance.streams.template[instance.task_template] == NONE
    runs = np.flatnonzero(leading)
    share = instance.template_share[instance.task_template[runs]]
    if (share == WHOLE).all():
        yield from _overlaps(instance, timeline, runs, end_us)
    else:
        yield from _shares(instance, timeline, runs, end_us, share)


def _overlaps(instance: Instance, timeline: Timeline, runs: Ints, end_us: Ints) -> Iterator[Violation]:
    """Yield where a run that takes a whole GPU starts before the one before it has ended."""
    order = runs[np.lexsort((end_us[runs], timeline.start_us[runs], timeline.gpu[runs]))]
    before, after = order[:-1], order[1:]
    overlap = (timeline.gpu[before] == timeline.gpu[after]) & (timeline.start_us[after] < end_us[before])
    for pair in np.flatnonzero(overlap):
        first, second = int(before[pair]), int(after[pair])
        subject = f"{name_task(instance, second)} after {name_task(instance, first)}"
        found, least = int(timeline.start_us[second]), int(end_us[first])
        yield Violation("T3", subject, "tasks overlap on a GPU", found, least)


def _shares(instance: Instance, timeline: Timeline, runs: Ints, end_us: Ints, share: Ints) -> Iterator[Violation]:
    """Yield every instant at which a start takes the shares on a GPU above 1; ends come before starts."""
    taken: dict[int, list[tuple[int, int, int]]] = {}
    for task, part in zip(runs.tolist(), share.tolist(), strict=True):
        if end_us[task] > timeline.start_us[task]:  # an empty run takes nothing
            events = taken.setdefault(int(timeline.gpu[task]), [])
            events += [(int(timeline.start_us[task]), 1, part), (int(end_us[task]), 0, -part)]
    for gpu, events in sorted(taken.items()):
        level = 0
        for instant, _, part in sorted(events):
            level += part
            if part > 0 and level > WHOLE:
                subject = f"{instance.cluster.gpus[gpu].id} at {instant} us"
                yield Violation("T3c", subject, "shares add up to more than the GPU", str(Decimal(level) / WHOLE), 1)
