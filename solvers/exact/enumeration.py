"""The sequences of operations that the oracle tries, where a GPU serves one task at a time.

A plan is built as a sequence of operations (a load, with what it evicts, or a run), each started as early as the
operations before it allow, in order of time.

Why this covers an optimum. Leave residencies that serve nothing, and evictions that no load needs, out of a plan;
take, among the optimal plans, one whose operations start earliest in total. Sort its operations by start. Whatever an
operation waits for (a free engine, inputs, models, the last use of what it evicts) began before it, since every
operation lasts, so replaying the sequence can always start it, and not later than the plan does. If it could
start earlier, the plan with only this operation moved there would still obey every rule and no objective would
grow: a contradiction to the choice. So the replay gives the plan itself, and starts never decrease along it. Hence
a branch whose next start lies before its last one may be cut, except where a limit on replicas couples
the GPUs: there a load also waits for the last start. Operations that start together do not depend on each other
and are tried in one order only. Evicting more than a load needs never helps, as a later load can evict it then.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain, combinations

import numpy as np

from models.instance import NEVER, InitialResidency, Instance
from models.objective import Objective, objective_value
from models.timeline import Placement, Residency, Timeline


@dataclass(frozen=True, slots=True)
class Copy:
    """A model in memory: its residency so far, and when it was last used (None: not yet)."""

    residency: Residency
    last_end_us: int | None

    @property
    def free_us(self) -> int:
        """When nothing needs it any more."""
        return self.residency.ready_us if self.last_end_us is None else self.last_end_us


@dataclass(frozen=True, slots=True)
class State:
    """What the operations so far have led to.

    Parameters
    ----------
    clock, last
        Start of the last operation, and its rank among operations that start together.
    compute_free, copy_free, freed
        Per GPU: when its engines are free, and when memory was last freed for a replica elsewhere.
    copies
        In memory now.
    gone
        Residencies that have ended.
    runs
        The placed tasks by number.
    stint
        Per GPU: which of its intervals it is in, or about to be (rule A1).
    """

    clock: int
    last: tuple[int, ...]
    compute_free: tuple[int, ...]
    copy_free: tuple[int, ...]
    freed: tuple[int, ...]
    copies: tuple[Copy, ...]
    gone: tuple[Residency, ...]
    runs: dict[int, Placement]
    stint: tuple[int, ...]


class Enumeration:
    """A depth-first search over all sequences, cut where the objective cannot improve."""

    def __init__(self, instance: Instance, objective: Objective) -> None:
        self.instance, self.objective = instance, objective
        self.limits = instance.restrictions
        self.fastest = [
            min(instance.run_time(t, g) for g in instance.eligible_gpus(t)) for t in range(instance.n_tasks)
        ]
        self.order = [
            int(instance.job_first_task[job]) + index
            for job, workflow in enumerate(instance.job_workflow)
            for index in instance.workflows[workflow].topological
        ]
        self.values: dict[tuple[int, ...], Fraction] = {}
        self.value: Fraction | None = None
        self.timeline: Timeline | None = None

    def best(self) -> Timeline | None:
        """Return an optimal timeline, or None if none is feasible."""
        zeros = (0,) * self.instance.n_gpus
        for kept in self._initial_choices():
            copies = tuple(Copy(Residency(r.model, r.gpu, 0, 0, None, r.slot, True), None) for r in kept)
            if all(
                sum(copy.residency.model == model for copy in copies) <= self._most(model)
                for model in range(len(self.instance.models))
            ):
                self._extend(State(0, (-1, -1), zeros, zeros, zeros, copies, (), {}, zeros))
        return self.timeline

    def _initial_choices(self) -> Iterator[tuple[InitialResidency, ...]]:
        """Yield what of the initial residencies is kept: all, unless one that stays can be in the way for ever."""
        given = self.instance.initial
        if not (self.limits.no_swaps or self.limits.max_replicas):
            return iter([given])
        return chain.from_iterable(combinations(given, size) for size in range(len(given), -1, -1))

    def _extend(self, state: State) -> None:
        if self.value is not None and self._lower_bound(state) >= self.value:
            return
        if len(state.runs) == self.instance.n_tasks:
            residencies = [*state.gone, *(self._to_the_end(state, copy) for copy in state.copies)]
            self.timeline = Timeline.build(self.instance.n_tasks, state.runs.values(), residencies)
            self.value = self._lower_bound(state)
            return
        every = chain(self._runs(state), self._loads(state), self._departures(state))
        for following in sorted(every, key=lambda after: after.clock):
            self._extend(following)

    def _departures(self, state: State) -> Iterator[State]:
        """Yield what follows from each GPU that can be the next to go: here all of them stay."""
        return iter(())

    def _to_the_end(self, state: State, copy: Copy) -> Residency:
        """Return the residency of a copy that nothing evicts any more."""
        return copy.residency

    def _lower_bound(self, state: State) -> Fraction:
        """Return the value if every task still to come started as soon as its job alone allows."""
        end = [0] * self.instance.n_tasks
        for task in self.order:
            if task in state.runs:
                end[task] = state.runs[task].end_us
                continue
            release = int(self.instance.job_release_us[self.instance.task_job[task]])
            inputs = [end[before] for before, _ in self.instance.task_inputs(task)]
            end[task] = max(state.clock, release, *inputs) + self.fastest[task]
        done = tuple(max(end[task] for task in self.instance.tasks_of(job)) for job in range(len(self.instance.jobs)))
        if done not in self.values:
            self.values[done] = objective_value(self.objective, self.instance, np.array(done, np.int64))
        return self.values[done]

    def _in_order(self, state: State, start: int, gpu: int, kind: int) -> bool:
        """Say whether an operation comes after the last one: later, or together with it and next in rank."""
        return start > state.clock or (start == state.clock and (gpu, kind) > state.last)

    def _runs(self, state: State) -> Iterator[State]:
        """Yield what follows from each run that can come next."""
        for task in range(self.instance.n_tasks):
            inputs = [*self.instance.task_inputs(task)]
            if task in state.runs or any(before not in state.runs for before, _ in inputs):
                continue
            for gpu in self.instance.eligible_gpus(task):
                used = [
                    copy
                    for copy in state.copies
                    if copy.residency.gpu == gpu and copy.residency.model in self.instance.task_needs(task)
                ]
                if len(used) == len(self.instance.task_needs(task)):
                    start = self._run_start(state, task, gpu, used, inputs)
                    if self._in_order(state, start, gpu, 1):
                        yield self._after_run(state, task, gpu, start, used)

    def _run_start(self, state: State, task: int, gpu: int, used: list[Copy], inputs: list[tuple[int, int]]) -> int:
        arrivals = [
            state.runs[before].end_us + self.instance.transfer_time(edge, state.runs[before].gpu, gpu)
            for before, edge in inputs
        ]
        release = self.instance.earliest_start(task, gpu)
        copying = 0 if self.instance.overlap_loads else state.copy_free[gpu]
        ready = [copy.residency.ready_us for copy in used]
        return max(release, state.compute_free[gpu], copying, *ready, *arrivals)

    def _after_run(self, state: State, task: int, gpu: int, start: int, used: list[Copy]) -> State:
        end = start + self.instance.run_time(task, gpu)
        copies = tuple(replace(copy, last_end_us=end) if copy in used else copy for copy in state.copies)
        return replace(
            state,
            clock=start,
            last=(gpu, 1),
            compute_free=_with(state.compute_free, gpu, end),
            copies=copies,
            runs=state.runs | {task: Placement(task, gpu, start, end)},
        )

    def _loads(self, state: State) -> Iterator[State]:
        """Yield what follows from each load that can come next and may still serve a task."""
        for model in range(len(self.instance.models)):
            users = [
                task
                for task in range(self.instance.n_tasks)
                if task not in state.runs and model in self.instance.task_needs(task)
            ]
            waiting = sum(
                copy.residency.model == model and copy.last_end_us is None and not copy.residency.initial
                for copy in state.copies
            )
            for gpu in range(self.instance.n_gpus):
                there = any((c.residency.model, c.residency.gpu) == (model, gpu) for c in state.copies)
                useful = any(self.instance.run_time(task, gpu) != NEVER for task in users)
                # More copies that wait for their first use than tasks to come serve nothing.
                if useful and not there and waiting < len(users):
                    yield from self._loads_of(state, model, gpu)

    def _loads_of(self, state: State, model: int, gpu: int) -> Iterator[State]:
        duration = self.instance.load_time(model, gpu)
        for slot, here in self._rooms(state, model, gpu):
            for elsewhere in self._surplus(state, model):
                victims = (*here, *elsewhere)
                computing = 0 if self.instance.overlap_loads else state.compute_free[gpu]
                start = max(
                    state.copy_free[gpu],
                    state.freed[gpu],
                    computing,
                    # A limit on replicas couples the GPUs, so this load may not begin before what led to it.
                    state.clock if self._limited(model) else 0,
                    *(victim.free_us for victim in victims),
                )
                if self._in_order(state, start, gpu, 0):
                    residency = Residency(model, gpu, start, start + duration, None, slot)
                    yield self._after_load(state, residency, victims)

    def _after_load(self, state: State, residency: Residency, victims: tuple[Copy, ...]) -> State:
        start, gpu = residency.load_start_us, residency.gpu
        freed = state.freed
        for victim in victims:
            if victim.residency.gpu != gpu:
                freed = _with(freed, victim.residency.gpu, start)
        stay = tuple(copy for copy in state.copies if copy not in victims)
        return replace(
            state,
            clock=start,
            last=(gpu, 0),
            copy_free=_with(state.copy_free, gpu, residency.ready_us),
            freed=freed,
            copies=(*stay, Copy(residency, None)),
            gone=(*state.gone, *(replace(victim.residency, end_us=start) for victim in victims)),
        )

    def _evictable(self, copy: Copy) -> bool:
        """Say whether a copy may leave: a load that served nothing is never worth it."""
        return not self.limits.no_swaps and (copy.last_end_us is not None or copy.residency.initial)

    def _rooms(self, state: State, model: int, gpu: int) -> Iterator[tuple[int | None, tuple[Copy, ...]]]:
        """Yield the slots a model can be loaded into (None: by bytes) with the fewest copies that must leave for it."""
        device, weights = self.instance.cluster.gpus[gpu], self.instance.weight_bytes
        if self.instance.load_time(model, gpu) == NEVER:
            return
        here = [copy for copy in state.copies if copy.residency.gpu == gpu]
        if device.slots:
            for slot, size in enumerate(device.slots):
                inside = tuple(copy for copy in here if copy.residency.slot == slot)
                if weights[model] <= size and all(self._evictable(copy) for copy in inside):
                    yield slot, inside
            return
        missing = int(weights[model] + sum(weights[copy.residency.model] for copy in here)) - device.memory_bytes
        leaving = [copy for copy in here if self._evictable(copy)]
        for victims in chain.from_iterable(combinations(leaving, size) for size in range(len(leaving) + 1)):
            sizes = [int(weights[copy.residency.model]) for copy in victims]
            # Sets from which nobody could stay: what leaves without need can leave at a later load.
            if sum(sizes) >= missing and not any(sum(sizes) - size >= missing for size in sizes):
                yield None, victims

    def _surplus(self, state: State, model: int) -> Iterator[tuple[Copy, ...]]:
        """Yield the sets of copies that must leave other GPUs, so that one more replica is within its limit."""
        copies = [copy for copy in state.copies if copy.residency.model == model]
        # Counting the one that is about to be loaded.
        too_many = max(0, len(copies) + 1 - self._most(model))
        yield from combinations([copy for copy in copies if self._evictable(copy)], too_many)

    def _limited(self, model: int) -> bool:
        return self.instance.models[model].name in self.limits.max_replicas

    def _most(self, model: int) -> int:
        return self.limits.max_replicas.get(self.instance.models[model].name, self.instance.n_gpus)


def _with(values: tuple[int, ...], index: int, value: int) -> tuple[int, ...]:
    """Return a tuple with one entry replaced."""
    return (*values[:index], value, *values[index + 1 :])
