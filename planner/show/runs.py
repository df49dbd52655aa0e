"""What runs on a GPU, as it is drawn: a batch is one run with its size, and a run takes its share of the height."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from models.instance import Instance
from models.timeline import UNPLACED, Timeline, batch_leaders
from models.workload import WHOLE


@dataclass(frozen=True, slots=True)
class ShownRun:
    """A task alone, or a batch of tasks.

    Parameters
    ----------
    tasks
        Lowest first; more than one are a batch.
    low, high
        The part of the compute lane that it takes, from 0 at the floor to 1: as high as its share of the GPU.
    """

    tasks: tuple[int, ...]
    start_us: int
    end_us: int
    low: float
    high: float


def runs_by_gpu(instance: Instance, timeline: Timeline) -> list[list[ShownRun]]:
    """Return the runs of every GPU in order of time; those that overlap in time lie at different heights."""
    members: dict[int, list[int]] = {}
    for task, leader in enumerate(batch_leaders(instance, timeline).tolist()):
        if timeline.gpu[task] != UNPLACED:
            members.setdefault(leader, []).append(task)
    runs: list[list[ShownRun]] = [[] for _ in range(instance.n_gpus)]
    active: list[list[ShownRun]] = [[] for _ in range(instance.n_gpus)]
    for first in sorted(members, key=lambda task: (int(timeline.start_us[task]), task)):
        gpu, start_us, end_us = (int(of[first]) for of in (timeline.gpu, timeline.start_us, timeline.end_us))
        active[gpu] = [run for run in active[gpu] if run.end_us > start_us]
        share = int(instance.template_share[instance.task_template[first]]) / WHOLE
        low = _floor(active[gpu], share)
        active[gpu].append(ShownRun(tuple(members[first]), start_us, end_us, low, low + share))
        runs[gpu].append(active[gpu][-1])
    return runs


def _floor(active: Sequence[ShownRun], share: float) -> float:
    """Return the lowest height at which a share fits between what runs; where only pieces are free, the top."""
    slack = 1e-9  # shares are drawn: ten thousandths need not add up to the last bit
    for low in sorted({0.0, *(run.high for run in active)}):
        if low + share <= 1 + slack and all(
            run.high <= low + slack or run.low >= low + share - slack for run in active
        ):
            return low
    return 1 - share
