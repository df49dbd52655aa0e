"""What a formulation decides over: GPUs of tasks, needs, who may follow whom in memory, and rooms for models.

A *need* is a pair of a task and a model it needs. On its GPU a need either opens a residency (by a load, or because
the model was there at time 0) or follows an earlier need of the same residency. Formulations that share these
index sets are twins: a variable or constraint of one names the same decision in the other.

Which GPUs no rule tells apart is one of them. In a group of interchangeable GPUs the tasks, taken in their order, use
the GPUs in theirs: a task runs on the k-th only if an earlier task runs on the one before. Every timeline can be
renumbered to obey that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from truenorth.models.formulations.allowance import UNLIMITED, Allowance
from truenorth.models.formulations.orders import Orders, batch_of, joinable, overlapping
from truenorth.models.formulations.windows import Windows
from truenorth.models.instance import NONE, Instance
from truenorth.models.timeline import Timeline


def interchangeable_gpus(instance: Instance, windows: Windows | None = None) -> tuple[tuple[int, ...], ...]:
    """Return the groups of two or more GPUs that can swap names: equal hardware, limits, contents and neighbours.

    Parameters
    ----------
    windows
        When tasks may run: GPUs with other windows cannot swap names either.

    Notes
    -----
    Invariant: renaming the GPUs of a group turns every plan into one of the same value, with the same windows.
    Because: the key holds all that a rule can see of a GPU: its class (hardware, limits and absences), what lies on it
        at first, its server where transfers within and between servers differ, and the windows of all tasks on it.
    Cost: O(GPUs x tasks).
    If wrong: unsound. `number_equal_gpus` then forbids plans that no renaming brings back.
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
    n_gpus = int(max([timeline.place.max(), *(r.gpu for r in timeline.residencies), *(g[-1] for g in groups)])) + 1
    # An unused GPU comes after every used one.
    first = np.full(n_gpus, len(timeline.place))
    np.minimum.at(first, timeline.place, np.arange(len(timeline.place)))
    new = np.arange(n_gpus)
    for group in groups:
        for target, source in zip(group, sorted(group, key=lambda gpu: int(first[gpu])), strict=True):
            new[source] = target
    moved = sorted(
        (replace(residency, gpu=int(new[residency.gpu])) for residency in timeline.residencies),
        key=lambda r: (r.gpu, r.load_start_us, r.ready_us, r.model),
    )
    return replace(timeline, place=new[timeline.place], residencies=tuple(moved))


@dataclass(frozen=True, slots=True)
class Room:
    """A part of a GPU's memory in which residencies count alike: all of it, or its slots of one size.

    Parameters
    ----------
    capacity
        Bytes in units that divide all weights and what tasks hold, or the number of slots.
    demand
        What each model that may sit here takes up.
    slots
        The slots it stands for; empty if memory is shared by bytes.
    unit
        Bytes of one unit; 0 for slots.
    """

    capacity: int
    demand: Mapping[int, int]
    slots: tuple[int, ...] = ()
    unit: int = 0


@dataclass(frozen=True, slots=True)
class Choices:
    """Index sets of a formulation.

    Parameters
    ----------
    gpus
        Per task, the GPUs it may run on.
    needs
        Pairs (task, model).
    follows
        Pairs of needs (before, after): the second may be the next user of the first one's residency.
    initial
        Pairs (need, GPU) where the need may open an initial residency.
    rooms
        Per GPU.
    equal_gpus
        Groups of interchangeable GPUs.
    joins
        Pairs of tasks (leader, member): the second may run in the batch of the first.
    """

    instance: Instance
    windows: Windows
    gpus: tuple[tuple[int, ...], ...]
    needs: tuple[tuple[int, int], ...]
    follows: tuple[tuple[int, int], ...]
    initial: tuple[tuple[int, int], ...]
    rooms: tuple[tuple[Room, ...], ...]
    equal_gpus: tuple[tuple[int, ...], ...]
    joins: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, instance: Instance, windows: Windows, allowance: Allowance = UNLIMITED) -> Choices:
        """Return what is left to decide inside the windows.

        Raises
        ------
        GivenUpError
            If the pairs of tasks and needs are too many for the memory or the time.
        """
        gpus = tuple(tuple(int(g) for g in row.nonzero()[0]) for row in windows.possible)
        needs = tuple((task, model) for task in range(instance.n_tasks) for model in instance.task_needs(task))
        there = {(resident.model, resident.gpu) for resident in instance.initial}
        initial = tuple(
            (need, gpu) for need, (task, model) in enumerate(needs) for gpu in gpus[task] if (model, gpu) in there
        )
        orders = Orders.of(instance, windows, gpus)
        follows = tuple(
            _follows(orders, needs, orders.allow_beside if overlapping(instance) else orders.allow, allowance)
        )
        rooms = tuple(_rooms(instance, gpu) for gpu in range(instance.n_gpus))
        equal = interchangeable_gpus(instance, windows)
        return cls(instance, windows, gpus, needs, follows, initial, rooms, equal, tuple(joinable(orders, allowance)))

    def most_with(self, task: int, followers: int) -> int:
        """Return the most tasks of a batch that a task leads, and so many others can be in."""
        batch = batch_of(self.instance, task)
        largest = 1 if batch == NONE else int(self.instance.batch_largest[batch].max())
        return min(1 + followers, largest)

    def last_us(self, gpu: int) -> int:
        """Return until when a GPU is there, as far as a plan can tell: it comes once."""
        return min(int(self.windows.latest_end_us.max()), self.instance.cluster.gpus[gpu].available.intervals[0][1])

    def rooms_of(self, model: int, gpu: int) -> list[int]:
        """Return the rooms of a GPU in which a model may sit."""
        return [index for index, room in enumerate(self.rooms[gpu]) if model in room.demand]

    def room_of_slot(self, gpu: int, slot: int | None) -> int:
        """Return the room of a GPU to which a slot belongs; None stands for memory shared by bytes."""
        return next(index for index, room in enumerate(self.rooms[gpu]) if slot is None or slot in room.slots)

    def initial_room(self, model: int, gpu: int) -> int:
        """Return the room in which a model is initially resident."""
        slot = next(r.slot for r in self.instance.initial if (r.model, r.gpu) == (model, gpu))
        return self.room_of_slot(gpu, slot)


def _follows(
    orders: Orders, needs: tuple[tuple[int, int], ...], allow: Callable[[int, int], bool], allowance: Allowance
) -> Iterator[tuple[int, int]]:
    """Yield the pairs of needs of one model whose tasks can run in this order on one GPU."""
    by_model: dict[int, list[int]] = {}
    for need, (_, model) in enumerate(needs):
        by_model.setdefault(model, []).append(need)
    for group in by_model.values():
        for before in group:
            allowance.go_on()
            yield from ((before, after) for after in group if allow(needs[before][0], needs[after][0]))


def _rooms(instance: Instance, gpu: int) -> tuple[Room, ...]:
    """Return the rooms of a GPU: one by bytes, or one per size of its slots."""
    device = instance.cluster.gpus[gpu]
    weights = {m: int(w) for m, w in enumerate(instance.weight_bytes) if instance.load_time(m, gpu) >= 0}
    # Bytes in the largest unit that divides all: cumulatives of small numbers propagate better.
    if not device.slots:
        unit = math.gcd(*weights.values(), *instance.template_memory.tolist()) or 1
        demand = {model: weight // unit for model, weight in weights.items()}
        return (Room(device.memory_bytes // unit, demand, unit=unit),)
    rooms = []
    for size in sorted(set(device.slots)):
        slots = tuple(index for index, slot in enumerate(device.slots) if slot == size)
        rooms.append(Room(len(slots), {model: 1 for model, weight in weights.items() if weight <= size}, slots))
    return tuple(rooms)
