"""A window with due dates in arrays, for the verifier's search: what each task of a start order must wait for."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from truenorth.models.instance import NEVER, NONE, Instance, Ints
from truenorth.solvers.bounds.alone import LoneJobs
from truenorth.solvers.bounds.effort import TooLargeError

_MOST_TASKS, _MOST_MODELS = 400, 62
_MOST_WAYS = 2_000
_LARGEST = 1 << 52
"""No sum of weighted times is larger: each is exact in a float."""


@dataclass(frozen=True, slots=True)
class DueWindows:
    """The tasks of jobs that are due, and the GPUs, class by class.

    Parameters
    ----------
    gpu_class
        Of each GPU, ascending.
    run_us, needs
        Per task and class: how long it runs, NEVER where it cannot, and a mask of the models that it needs and that no
        GPU of the class holds from the start. Shape [tasks, classes].
    fastest_us, head_us, last_us
        Per task: its shortest run, its earliest start, and when it must have ended.
    source, gap_us
        The predecessors of a task, NONE where there are no more, and what their outputs take at least between two GPUs
        of a class each. Shapes [tasks, predecessors], [tasks, predecessors, classes, classes].
    topological
        All tasks, each after its predecessors.
    load_us, weight_bytes, room_bytes
        Load times of the models on each class, their weights, and what a GPU of each class can hold of them.
    overlap
        Whether GPUs load while they run.
    in_order
        Whether tasks need nothing but a GPU, and it is enough to start them in their order on each.
    """

    gpu_class: Ints
    run_us: Ints
    needs: Ints
    fastest_us: Ints
    head_us: Ints
    last_us: Ints
    source: Ints
    gap_us: Ints
    topological: tuple[int, ...]
    load_us: Ints
    weight_bytes: tuple[int, ...]
    room_bytes: tuple[int, ...]
    overlap: bool
    in_order: bool

    @classmethod
    def of(cls, instance: Instance, alone: LoneJobs, due_us: dict[int, int]) -> DueWindows:
        """Return the windows of the jobs that are due at these instants; other jobs are left out.

        Raises
        ------
        TooLargeError
            If there are too many tasks or models, or times are too large.
        """
        due = [(job, task) for job in sorted(due_us) for task in instance.tasks_of(job)]
        task = np.array([each for _, each in due], np.int64)
        if not 0 < len(task) <= _MOST_TASKS or len(instance.models) > _MOST_MODELS:
            raise TooLargeError("too many tasks or models")
        if max(due_us.values()) > _LARGEST:
            raise TooLargeError("times are too large")
        template, classes = instance.task_template[task], range(len(instance.class_gpu))
        index = {each: number for number, each in enumerate(task.tolist())}
        head_us = np.array([at for job in sorted(due_us) for at in alone.times(job)[0]], np.int64)
        last_us = np.array([due_us[job] - alone.tail[instance.task_template[each]] for job, each in due], np.int64)
        run_us, fastest_us = instance.run_us[template], np.array(alone.fastest, np.int64)[template]
        load_us = np.where(instance.load_us == NEVER, 0, instance.load_us)
        inputs = [[(index[p], edge) for p, edge in instance.task_inputs(each)] for each in task.tolist()]
        most, links = max(map(len, inputs)), {(a, b): _links(instance, a, b) for a in classes for b in classes}
        source = np.full((len(task), most), NONE, np.int64)
        gap_us = np.zeros((len(task), most, len(classes), len(classes)), np.int64)
        for number, row in enumerate(inputs):
            for at, (before, edge) in enumerate(row):
                source[number, at] = before
                for a, b in product(classes, classes):
                    gaps = [int(instance.transfer_us[edge, a, b, link]) for link in links[a, b]]
                    gap_us[number, at, a, b] = min(gaps, default=0)
        waits_us = len(task) * (sum(map(int, load_us.max(axis=1, initial=0))) + int(gap_us.max(initial=0)))
        longest_us = waits_us + sum(map(int, run_us.max(axis=1))) + int(head_us.max())
        if longest_us + int(np.abs(last_us).max()) > _LARGEST:
            raise TooLargeError("times are too large")
        start = {job: index[instance.tasks_of(job)[0]] for job in due_us}
        topological = [start[job] + at for job in sorted(due_us) for at in instance.jobs[job].workflow.topological]
        needs = np.array([[_mask(instance, t, c) for c in classes] for t in template.tolist()], np.int64)
        # An exchange of two tasks on a GPU: the one that is there and due no later may go first.
        order = np.lexsort((last_us, head_us))
        plain = not most and not needs.any() and bool((np.diff(last_us[order]) >= 0).all())
        if plain:
            run_us, needs, fastest_us, head_us, last_us, source, gap_us = (
                each[order] for each in (run_us, needs, fastest_us, head_us, last_us, source, gap_us)
            )
        return cls(
            np.sort(instance.gpu_class),
            run_us,
            needs,
            fastest_us,
            head_us,
            last_us,
            source,
            gap_us,
            tuple(topological),
            load_us,
            tuple(instance.weight_bytes.tolist()),
            tuple(sum(gpu.slots) or gpu.memory_bytes for gpu in instance.class_gpu),
            instance.overlap_loads,
            plain,
        )

    @property
    def tasks(self) -> int:
        """How many there are."""
        return len(self.head_us)

    def loads_us(self, models: Ints, c: int) -> Ints:
        """Return how long a GPU of a class takes to load the models in each mask."""
        total = np.zeros(models.shape, np.int64)
        for model, each in enumerate(self.load_us[:, c].tolist()):
            total += each * (models >> model & 1)
        return total

    def kept(self, held: int, needed: int, c: int) -> list[int]:
        """Return what a GPU of a class may keep of what it holds beside what it needs: in every way that fits."""
        size = [self.weight_bytes[m] for m in range(len(self.weight_bytes))]
        room = self.room_bytes[c] - sum(each for m, each in enumerate(size) if needed >> m & 1)
        ways = [(0, room)]
        for m in range(len(size)):
            if held & ~needed & (1 << m):
                ways += [(kept | 1 << m, left - size[m]) for kept, left in ways if size[m] <= left]
                if len(ways) > _MOST_WAYS:
                    raise TooLargeError("too many ways to keep models")
        # Those into which nothing else of what it holds would fit.
        others = [(1 << m, size[m]) for m in range(len(size)) if held & ~needed & (1 << m)]
        return [kept for kept, left in ways if all(kept & bit or weighs > left for bit, weighs in others)]


@dataclass(frozen=True, slots=True)
class Energies:
    """What tasks take at least of the GPUs, each class's time counted by a weight of its own.

    Parameters
    ----------
    weight
        Per row and class. Shape [rows, classes].
    energy
        Per row and task: the least that it takes. Shape [rows, tasks].
    until_us
        Instants by which some tasks must have ended.
    due
        Which those are. Shape [instants, tasks].
    due_us
        When the last of them that a class can run must have ended, 0 where there is none. Shape [instants, classes].
    """

    weight: Ints
    energy: Ints
    until_us: Ints
    due: NDArray[np.bool_]
    due_us: Ints

    @classmethod
    def of(cls, windows: DueWindows, rows: list[list[int]]) -> Energies:
        """Return the energies by rows of weights.

        Raises
        ------
        TooLargeError
            If a sum would be too large.
        """
        can, weight = windows.run_us != NEVER, np.array(rows, np.int64)
        longest = int(np.abs(windows.last_us).max()) + int(windows.run_us.max(axis=1).sum())
        if int(weight.max()) * longest * (len(windows.gpu_class) + 1) > _LARGEST:
            raise TooLargeError("weights are too large")
        each = np.where(can, weight[:, None, :] * windows.run_us, _LARGEST)
        until_us = np.unique(windows.last_us)
        due = windows.last_us <= until_us[:, None]
        last_us = np.where(due[:, :, None] & can, windows.last_us[:, None], 0).max(axis=1)
        return cls(weight, each.min(axis=2), until_us, due, np.maximum(last_us, 0))


def _mask(instance: Instance, template: int, c: int) -> int:
    """Return the models of a template that no GPU of a class holds from the start."""
    held = {there.model for there in instance.initial if instance.gpu_class[there.gpu] == c}
    return sum(1 << model for model in instance.needs[template] if model not in held)


def _links(instance: Instance, a: int, b: int) -> list[int]:
    """Return by which links a GPU of one class reaches another GPU, of the same or another class: 1 within a server."""
    servers = [instance.gpu_server[instance.gpu_class == c].tolist() for c in (a, b)]
    one = sorted(servers[0])
    shared = len(set(one)) < len(one) if a == b else bool(set(one) & set(servers[1]))
    return [1] * shared + [0] * (len(set(one) | set(servers[1])) > 1)
