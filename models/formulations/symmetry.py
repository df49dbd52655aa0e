"""Which GPUs no rule tells apart, and the one way of numbering them that a formulation keeps.

In a group of interchangeable GPUs the tasks, taken in their order, use the GPUs in theirs: a task runs on the
k-th only if an earlier task runs on the one before. Every timeline can be renumbered to obey that.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from models.formulations.windows import Windows
from models.instance import Instance
from models.timeline import Timeline


def interchangeable_gpus(instance: Instance, windows: Windows | None = None) -> tuple[tuple[int, ...], ...]:
    """Return the groups of two or more GPUs that can swap names: equal hardware, limits, contents and neighbours.

    Parameters
    ----------
    windows
        When tasks may run: GPUs with other windows cannot swap names either.
    """
    server_matters = bool((instance.transfer_us[..., 0] != instance.transfer_us[..., 1]).any())
    population = np.bincount(instance.gpu_server)
    contents: dict[int, set[tuple[int, int | None]]] = {}
    for resident in instance.initial:
        contents.setdefault(resident.gpu, set()).add((resident.model, resident.slot))
    groups: dict[object, list[int]] = {}
    for gpu, server in enumerate(instance.gpu_server.tolist()):
        place = server if server_matters and population[server] > 1 else None
        when = None if windows is None else windows.of_gpu(gpu)
        key = (int(instance.gpu_class[gpu]), frozenset(contents.get(gpu, ())), place, when)
        groups.setdefault(key, []).append(gpu)
    return tuple(tuple(group) for group in groups.values() if len(group) > 1)


def renumber(timeline: Timeline, groups: Iterable[tuple[int, ...]]) -> Timeline:
    """Return the timeline with the GPUs of each group in the order of their first tasks; unused ones come last."""
    n_gpus = int(max([timeline.gpu.max(), *(r.gpu for r in timeline.residencies), *(g[-1] for g in groups)])) + 1
    first = np.full(n_gpus, len(timeline.gpu))
    np.minimum.at(first, timeline.gpu, np.arange(len(timeline.gpu)))
    new = np.arange(n_gpus)
    for group in groups:
        for target, source in zip(group, sorted(group, key=lambda gpu: int(first[gpu])), strict=True):
            new[source] = target
    moved = sorted(
        (replace(residency, gpu=int(new[residency.gpu])) for residency in timeline.residencies),
        key=lambda r: (r.gpu, r.load_start_us, r.ready_us, r.model),
    )
    return replace(timeline, gpu=new[timeline.gpu], residencies=tuple(moved))
