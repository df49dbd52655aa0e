"""Random timelines of tiny instances: feasible ones by construction, and mutants of them."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np

from truenorth.models import Instance, Placement, Residency, Timeline


def simple_timeline(rng: random.Random, instance: Instance) -> Timeline:
    """Return a timeline that keeps every rule of the problem, though not always an operator's limits on swaps
    and replicas: tasks in order, each on a random eligible GPU, behind everything there, with random pauses.
    """
    placements: list[Placement] = []
    gpus = [_GPUState(instance, index) for index in range(instance.n_gpus)]
    for task in range(instance.n_tasks):
        where = rng.choice(instance.eligible_gpus(task))
        earliest = instance.earliest_start(task, where)
        for before, edge in instance.task_inputs(task):
            arrival = placements[before].end_us + instance.gap_time(edge, placements[before].gpu, where)
            earliest = max(earliest, arrival)
        working = int(instance.template_memory[instance.task_template[task]])
        ready = gpus[where].provide(rng, instance.task_needs(task), working)
        start = max(earliest, ready, gpus[where].free) + rng.choice((0, 0, 1))
        gpus[where].free = start + instance.run_time(task, where)
        placements.append(Placement(task, where, start, gpus[where].free))
    residencies = [residency for state in gpus for residency in (*state.past, *state.resident.values())]
    return Timeline.build(instance.n_tasks, placements, residencies)


class _GPUState:
    """One GPU while a timeline grows: what is resident, and from when on compute, copy engine and memory are free."""

    def __init__(self, instance: Instance, index: int) -> None:
        self.instance, self.index = instance, index
        self.free = self.copy_free = self.last_eviction = 0
        self.past: list[Residency] = []
        self.resident = {
            i.model: Residency(i.model, index, 0, 0, None, i.slot, initial=True)
            for i in instance.initial
            if i.gpu == index
        }

    def provide(self, rng: random.Random, needed: tuple[int, ...], working: int = 0) -> int:
        """Make models resident, with room for what a task holds beside them; return when all of them are ready."""
        if working or not all(model in self.resident for model in needed):
            slots = self._make_room(rng, needed, working)
            for model in needed:
                if model not in self.resident:
                    self._load(rng, model, slots.get(model))
        ready = max((self.resident[model].ready_us for model in needed), default=0)
        return max(ready, self.last_eviction) if working else ready

    def _make_room(self, rng: random.Random, needed: tuple[int, ...], working: int) -> dict[int, int]:
        """Evict until what is needed fits, everything if it must; return a slot for each missing model."""
        gpu, weight = self.instance.cluster.gpus[self.index], self.instance.weight_bytes
        missing = [model for model in needed if model not in self.resident]
        victims = [model for model in self.resident if model not in needed]
        rng.shuffle(victims)
        while True:
            taken = {residency.slot for residency in self.resident.values()}
            open_slots = sorted((size, slot) for slot, size in enumerate(gpu.slots) if slot not in taken)
            chosen: dict[int, int] = {}
            for model in sorted(missing, key=lambda m: -weight[m]):
                fitting = [slot for size, slot in open_slots if size >= weight[model] and slot not in chosen.values()]
                if fitting:
                    chosen[model] = fitting[0]
            held = sum(int(weight[model]) for model in self.resident) + sum(int(weight[model]) for model in missing)
            held += working
            if len(chosen) == len(missing) if gpu.slots else held <= gpu.memory_bytes:
                return chosen
            self._evict(victims.pop() if victims else next(iter(self.resident)))
            missing = [model for model in needed if model not in self.resident]

    def _evict(self, model: int) -> None:
        residency = self.resident.pop(model)
        self.last_eviction = max(self.free, self.copy_free)
        self.past.append(replace(residency, end_us=self.last_eviction))

    def _load(self, rng: random.Random, model: int, slot: int | None) -> None:
        start = max(self.copy_free, self.last_eviction) + rng.choice((0, 0, 1))
        if not self.instance.overlap_loads or self.instance.template_memory.any():
            start = max(start, self.free)  # behind what computes, or what it holds of the memory
        self.copy_free = start + self.instance.load_time(model, self.index)
        self.resident[model] = Residency(model, self.index, start, self.copy_free, None, slot)


def mutant(rng: random.Random, instance: Instance, timeline: Timeline) -> Timeline:
    """Return a timeline with one or two small changes, most of which break some rule."""
    placements, residencies = list(timeline.placements), list(timeline.residencies)
    for _ in range(rng.randint(1, 2)):
        if residencies and rng.random() < 0.6:
            _change_residency(rng, instance, residencies)
        else:
            index = rng.randrange(len(placements))
            placements[index] = _changed(rng, instance, placements[index])
    return Timeline.build(instance.n_tasks, placements, residencies, realised=rng.random() < 0.2)


def serving_mutant(rng: random.Random, instance: Instance, timeline: Timeline) -> Timeline:
    """Return a timeline in which some tasks have moved to other tasks' starts, or so near that runs overlap."""
    gpu, start, end = timeline.place.copy(), timeline.start_us.copy(), timeline.end_us.copy()
    for _ in range(rng.randint(1, 3)):
        task, beside = rng.randrange(instance.n_tasks), rng.randrange(instance.n_tasks)
        batch = instance.template_batch[instance.task_template]
        if rng.random() < 0.8:
            gpu[task], start[task] = gpu[beside], start[beside] + rng.choice((0, 0, 0, 1))
        else:
            start[task] += rng.choice((-2, -1, 1, 2))
        together = np.flatnonzero((batch == batch[task]) & (gpu == gpu[task]) & (start == start[task]))
        size = 1 if batch[task] < 0 else len(together) + rng.choice((0, 0, 0, 0, -1))
        run_us = instance.batch_time(int(batch[task]), int(gpu[task]), size) if batch[task] >= 0 else -1
        for member in together if batch[task] >= 0 else [task]:
            end[member] = start[member] + (run_us if run_us > 0 else max(1, instance.run_time(task, int(gpu[task]))))
        if rng.random() < 0.05:
            end[task] += 1
    return Timeline(gpu, start, end, timeline.residencies, realised=rng.random() < 0.1)


def _changed(rng: random.Random, instance: Instance, placement: Placement) -> Placement:
    by = rng.choice((-3, -2, -1, 1, 2, 3))
    choice = rng.randrange(4)
    if choice == 0:
        return replace(placement, gpu=rng.randrange(instance.n_gpus))
    if choice == 1:
        return replace(placement, end_us=max(placement.start_us + 1, placement.end_us + by))
    return replace(placement, start_us=placement.start_us + by, end_us=placement.end_us + by)


def _change_residency(rng: random.Random, instance: Instance, residencies: list[Residency]) -> None:
    index = rng.randrange(len(residencies))
    old = residencies[index]
    by = rng.choice((-3, -2, -1, 1, 2, 3))
    near = old.ready_us + rng.randint(0, 8) if old.end_us is None else old.end_us + by
    changes: list[dict[str, object]] = [
        {"load_start_us": old.load_start_us + by, "ready_us": old.ready_us + by},
        {"load_start_us": old.load_start_us + by, "ready_us": old.ready_us + by},
        {"ready_us": max(old.load_start_us + 1, old.ready_us + by)},
        {"end_us": near},
        {"end_us": near},
        {"end_us": None},
        {"gpu": rng.randrange(instance.n_gpus)},
        {"model": rng.randrange(len(instance.models))},
        {"slot": rng.choice((None, 0, 1))},
        {"initial": not old.initial},
    ]
    new = replace(old, **rng.choice(changes))  # type: ignore[arg-type]
    fate = rng.random()
    if fate < 0.1:
        del residencies[index]
    elif fate < 0.2:
        residencies.append(new)
    else:
        residencies[index] = new
