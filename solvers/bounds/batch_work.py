"""What a task takes of a GPU, by the size of the batch that it runs in.

A batch takes the share of its class for the table's time at its size, and each of b members answers for a b-th of it: a
member of a larger batch takes less of the GPU, for longer. A task without a class is a batch of one.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import NamedTuple

import numpy as np

from truenorth.models import NEVER, NONE, WHOLE, Instance

_ROOM = 1 << 60
"""Sums of work stay below this where arrays of 64 bits add them up."""


class BatchSize(NamedTuple):
    """Batches of `fewest` to `most` tasks run equally long on a GPU class."""

    fewest: int
    most: int
    run_us: int


class BatchSizes:
    """The sizes of batches, ascending, in which the tasks of an instance may run; no batch is larger than its class."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._batch = instance.template_batch.tolist()
        members = np.bincount(instance.template_batch[instance.task_template] + 1, minlength=len(instance.batches) + 1)
        classes = range(len(instance.class_gpu))
        self._of_batch = [
            [_levels(instance.batch_us[batch, c, 1 : members[batch + 1] + 1].tolist()) for c in classes]
            for batch in range(len(instance.batches))
        ]

    def on(self, template: int, gpu_class: int) -> list[BatchSize]:
        """Return the sizes for a template on a GPU class; none where it cannot run."""
        alone_us, batch = int(self._instance.run_us[template, gpu_class]), self._batch[template]
        if alone_us == NEVER:
            return []
        return [BatchSize(1, 1, alone_us)] if batch == NONE else self._of_batch[batch][gpu_class]


def _levels(times: list[int]) -> list[BatchSize]:
    """Return the sizes of a table of times by size, from 1 on."""
    found: list[BatchSize] = []
    for size, run_us in enumerate(times, 1):
        if run_us != NEVER and found and found[-1].run_us == run_us:
            found[-1] = BatchSize(found[-1].fewest, size, run_us)
        elif run_us != NEVER:
            found.append(BatchSize(size, size, run_us))
    return found


@dataclass(frozen=True, slots=True)
class Work:
    """What the tasks take of the GPUs at least, whatever their batches and wherever they run.

    Parameters
    ----------
    parts
        Work is counted in so many parts of a GPU's microsecond, so that all of it is whole.
    runs
        Per template: how much each microsecond takes and how many there are, (parts, run time) by size.
    least
        Per template: the least product of the two.
    """

    parts: int
    runs: tuple[tuple[tuple[int, int], ...], ...]
    least: list[int]

    @classmethod
    def of(cls, instance: Instance, bounded: bool = False) -> Work:
        """Return the work of an instance; `bounded`: rounded down, if need be, to parts whose sums fit 64 bits."""
        sizes, share = BatchSizes(instance), instance.template_share.tolist()
        rates = [
            [(Fraction(share[template], WHOLE * most), run_us) for most, run_us in _fastest(sizes, template, instance)]
            for template in range(len(share))
        ]
        parts = lcm(*{rate.denominator for row in rates for rate, _ in row})
        if bounded and parts > 1:
            longest = [max(run_us for _, run_us in row) for row in rates]
            counts = np.bincount(instance.task_template).tolist()
            total = sum(count * run_us for count, run_us in zip(counts, longest, strict=True))
            parts = min(parts, max(1, _ROOM // total))
        runs = tuple(tuple((int(rate * parts), run_us) for rate, run_us in row) for row in rates)
        return cls(parts, runs, [min(rate * run_us for rate, run_us in row) for row in runs])

    def of_tasks(self, instance: Instance) -> list[int]:
        """Return the least work of every task, in parts."""
        return [self.least[template] for template in instance.task_template.tolist()]


def _fastest(sizes: BatchSizes, template: int, instance: Instance) -> list[tuple[int, int]]:
    """Return (most, run time) of the sizes of a template on any class, but for those that a larger one outruns."""
    listed = [size for c in range(len(instance.class_gpu)) for size in sizes.on(template, c)]
    kept: list[tuple[int, int]] = []
    for _, most, run_us in sorted(listed, key=lambda size: (-size.most, size.run_us)):
        if not kept or run_us < kept[-1][1]:
            kept.append((most, run_us))
    return kept
