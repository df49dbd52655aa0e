"""Which pairs of operations an order is to be chosen for, and how far apart in time they can be.

Where CP-SAT keeps intervals apart, the MILP chooses for every pair which comes first. A pair is left out where inputs
or time windows decide already; the extremes of the windows bound what an order that is not chosen must leave free.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from models.formulations.choices import Choices
from models.formulations.orders import Orders

Pair = tuple[int, int]


def first_start(choices: Choices, task: int) -> int:
    """Return the earliest start of a task on any GPU in microseconds."""
    return min(int(choices.windows.earliest_start_us[task, g]) for g in choices.gpus[task])


def first_end(choices: Choices, task: int) -> int:
    """Return the earliest end of a task on any GPU in microseconds."""
    earliest, instance = choices.windows.earliest_start_us, choices.instance
    return min(int(earliest[task, g]) + instance.run_time(task, g) for g in choices.gpus[task])


def last_start(choices: Choices, task: int) -> int:
    """Return the latest start of a task on any GPU in microseconds."""
    return max(_last_start_on(choices, task, g) for g in choices.gpus[task])


def last_end(choices: Choices, task: int) -> int:
    """Return the latest end of a task on any GPU in microseconds."""
    return max(int(choices.windows.latest_end_us[task, g]) for g in choices.gpus[task])


def _last_start_on(choices: Choices, task: int, gpu: int) -> int:
    return int(choices.windows.latest_end_us[task, gpu]) - choices.instance.run_time(task, gpu)


def _last_load(choices: Choices, need: int) -> int:
    """Return the latest start of a need's load on any GPU in microseconds."""
    task, wanted = choices.needs[need]
    return max(_last_start_on(choices, task, g) - choices.instance.load_time(wanted, g) for g in choices.gpus[task])


def find_crowded_rooms(choices: Choices) -> dict[Pair, list[int]]:
    """Return the (GPU, room) that cannot hold all models needed there, with the needs that may sit in them.

    Without swaps there are none: what is ever in a room is then limited for ever.
    """
    crowded = {}
    for g, rooms in enumerate(choices.rooms if not choices.instance.restrictions.no_swaps else ()):
        for index, room in enumerate(rooms):
            inside = [u for u, (task, m) in enumerate(choices.needs) if g in choices.gpus[task] and m in room.demand]
            if sum(room.demand[m] for m in {choices.needs[u][1] for u in inside}) > room.capacity:
                crowded[g, index] = inside
    return crowded


def limited_models(choices: Choices) -> dict[int, int]:
    """Return the models of which only so many replicas may exist at an instant, where swaps make instants differ."""
    limits = choices.instance.restrictions
    if limits.no_swaps:
        return {}
    return {
        m: limits.max_replicas[ml_model.name]
        for m, ml_model in enumerate(choices.instance.models)
        if ml_model.name in limits.max_replicas
    }


@dataclass(frozen=True, slots=True)
class Pairs:
    """The pairs of runs, loads and ends of residencies whose order matters."""

    choices: Choices
    orders: Orders

    @classmethod
    def of(cls, choices: Choices) -> Pairs:
        """Return the pairs of a formulation."""
        return cls(choices, Orders.of(choices.instance, choices.windows, choices.gpus))

    def keeps_apart(self, before: int, after: int) -> bool:
        """Say whether the second task always starts after the end of the first: by its inputs or by the windows."""
        return self.orders.precedes(before, after) or last_end(self.choices, before) <= first_start(self.choices, after)

    def runs(self) -> Iterator[Pair]:
        """Yield the pairs of tasks that can run in this order and are not kept apart anyway, or share a model (R4)."""
        instance = self.choices.instance
        for t in range(instance.n_tasks):
            for u in range(instance.n_tasks):
                common = not set(instance.task_needs(t)).isdisjoint(instance.task_needs(u))
                if (common or not self.keeps_apart(t, u)) and self.orders.allow(t, u):
                    yield t, u

    def loads(self) -> Iterator[Pair]:
        """Yield the pairs of needs of different models that can load in this order on one GPU."""
        choices, load_time = self.choices, self.choices.instance.load_time
        for u, (t, first) in enumerate(choices.needs):
            for v, (after, second) in enumerate(choices.needs):
                shared = set(choices.gpus[t]) & set(choices.gpus[after])
                if first != second and any(
                    load_time(first, g) + load_time(second, g) <= _last_start_on(choices, after, g) for g in shared
                ):
                    yield u, v

    def blocking(self) -> Iterator[Pair]:
        """Yield the pairs (task, need) whose run and load compete for a compute engine: none if loads overlap runs."""
        if self.choices.instance.overlap_loads:
            return
        for task, gpus in enumerate(self.choices.gpus):
            for need, (owner, _) in enumerate(self.choices.needs):
                loaded_before = task == owner or self.orders.precedes(owner, task)
                if not loaded_before and not set(gpus).isdisjoint(self.choices.gpus[owner]):
                    yield task, need

    def runs_before_loads(self) -> Iterator[Pair]:
        """Yield those of them that can happen in this order."""
        yield from ((t, u) for t, u in self.blocking() if first_end(self.choices, t) <= _last_load(self.choices, u))

    def loads_before_runs(self) -> Iterator[Pair]:
        """Yield the pairs (need, task) that can happen in this order."""
        for task, need in self.blocking():
            owner, wanted = self.choices.needs[need]
            fastest = min(self.choices.instance.load_time(wanted, g) for g in self.choices.gpus[owner])
            if fastest <= last_start(self.choices, task):
                yield need, task

    def room_mates(self) -> list[Pair]:
        """Return the pairs of needs of different models that may compete for a room."""
        model = [m for _, m in self.choices.needs]
        rooms = find_crowded_rooms(self.choices).values()
        return [*dict.fromkeys((u, v) for inside in rooms for u in inside for v in inside if model[u] != model[v])]

    def replicas(self) -> list[Pair]:
        """Return the pairs of needs of one model whose replicas are limited."""
        model = [m for _, m in self.choices.needs]
        users = [need for need, m in enumerate(model) if m in limited_models(self.choices)]
        return [(u, v) for u in users for v in users if u != v and model[u] == model[v]]

    def closings(self) -> Iterator[Pair]:
        """Yield those of both whose first need can be over when the second one loads."""
        for u, v in self.room_mates() + self.replicas():
            task, loader = self.choices.needs[u][0], self.choices.needs[v][0]
            possible = task != loader and not self.orders.precedes(loader, task)
            if possible and first_end(self.choices, task) <= _last_load(self.choices, v):
                yield u, v
