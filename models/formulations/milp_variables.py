"""The decisions of the MILP: those of the CP-SAT twin, and an order wherever that one has intervals.

Where CP-SAT keeps intervals apart, the MILP chooses for every pair of operations which comes first. A pair is left out
where inputs or time windows decide already; the extremes of the windows bound what an order that is not chosen must
leave free.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pulp

from truenorth.models.formulations.choices import Choices
from truenorth.models.formulations.milp_problem import MilpCosts
from truenorth.models.formulations.orders import Orders
from truenorth.models.formulations.scale import ScaledObjective

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
                # Loads of one model are kept apart by R4; the other order is a pair of its own.
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
        """Yield those of both whose first need can be over when the second one loads.

        Notes
        -----
        If wrong: unsound if a pair is missing, since what has left a room is then still counted; slower if there are
            too many.
        """
        for u, v in self.room_mates() + self.replicas():
            task, loader = self.choices.needs[u][0], self.choices.needs[v][0]
            # What a load waits for, by inputs, it can never displace.
            possible = task != loader and not self.orders.precedes(loader, task)
            if possible and first_end(self.choices, task) <= _last_load(self.choices, v):
                yield u, v


class MilpVariables(MilpCosts):
    """The decisions; needs are numbered as in `Choices`, letters as in the constraints; costs as in `MilpCosts`.

    Attributes
    ----------
    assign
        (task, GPU): the task runs there (x_tg).
    start, end
        Per task (s_t, e_t); the end is an expression.
    before
        (task, task): both run on one GPU, the first before the second (b_tu).
    hit
        (before, after): a need follows another in the same residency (h_uv).
    miss
        (need, GPU): the need opens a residency by a load (m_ug).
    initial
        (need, GPU): the need opens an initial residency (i_ug).
    hold
        Per need: since when its memory is held for it (q_u).
    load_before
        (need, need): both load on one GPU, the first before the second (l_uv).
    run_before_load, load_before_run
        (task, need), (need, task): the run ends before the load starts, or the reverse (d_tu, d_ut); only if loads
        block compute.
    closed
        (need, need): the first is the last of its residency, which has left the room by the second one's load (c_uv).
    later
        (need, need): the second one's residency opens later than the first one's load, in the same room (a_uv);
        l_uv itself where GPUs have one room.
    opened
        (need, GPU, room): the need loads into this room (o_ugk); only where a GPU has several.
    place
        (need, GPU, room): the residency sits in this room (y_ugk); x_tg itself where there is one room.
    resident
        (model, GPU, room): the model is ever there (z_mgk); only without swaps.
    used
        (task, GPU): this task or one before it runs there (f_tg); only for interchangeable GPUs.
    """

    def __init__(self, problem: pulp.LpProblem, choices: Choices, scaled: ScaledObjective) -> None:
        super().__init__(problem, choices, scaled)
        binary, pairs = self._binary, Pairs.of(choices)
        tasks, needs = range(choices.instance.n_tasks), range(len(choices.needs))
        self.assign = {(t, g): binary(f"assign[{t},{g}]") for t in tasks for g in choices.gpus[t]}
        self.start = [self._time(f"start[{t}]", first_start(choices, t), last_start(choices, t)) for t in tasks]
        self.load_before = {(u, v): binary(f"load_before[{u},{v}]") for u, v in pairs.loads()}
        self.place = {
            (u, g, room): binary(f"place[{u},{g},{room}]") if several else self.assign[task, g]
            for u, (task, wanted) in enumerate(choices.needs)
            for g in choices.gpus[task]
            for several in [len(choices.rooms_of(wanted, g)) > 1]
            for room in choices.rooms_of(wanted, g)
        }
        self._declare_costs(choices, scaled)
        self.end = [self._end(choices, t) for t in tasks]
        self.before = {(t, u): binary(f"before[{t},{u}]") for t, u in pairs.runs()}
        self.hit = {(u, v): binary(f"hit[{u},{v}]") for u, v in choices.follows}
        self.miss = {(u, g): binary(f"miss[{u},{g}]") for u in needs for g in choices.gpus[choices.needs[u][0]]}
        self.initial = {(u, g): binary(f"initial[{u},{g}]") for u, g in choices.initial}
        self.hold = [self._time(f"hold[{u}]", 0, last_start(choices, choices.needs[u][0])) for u in needs]
        self.run_before_load = {(t, u): binary(f"run_before_load[{t},{u}]") for t, u in pairs.runs_before_loads()}
        self.load_before_run = {(u, t): binary(f"load_before_run[{u},{t}]") for u, t in pairs.loads_before_runs()}
        self.closed = {(u, v): binary(f"closed[{u},{v}]") for u, v in pairs.closings()}
        several_rooms = any(len(rooms) > 1 for rooms in choices.rooms)
        self.later = {
            (u, v): self._share(f"later[{u},{v}]") if several_rooms else self.load_before[u, v]
            for u, v in pairs.room_mates()
            if (u, v) in self.load_before
        }
        self.later |= {(u, v): binary(f"later[{u},{v}]") for u, v in pairs.replicas()}
        self.opened = {
            (u, g, room): self._share(f"opened[{u},{g},{room}]")
            for (g, room), inside in find_crowded_rooms(choices).items()
            for u in inside
            if len(choices.rooms_of(choices.needs[u][1], g)) > 1
        }
        # Sorted, so that equal instances give equal problems.
        ever = {(choices.needs[u][1], g, room) for u, g, room in self.place}
        no_swaps = choices.instance.restrictions.no_swaps
        self.resident = {(m, g, k): binary(f"resident[{m},{g},{k}]") for m, g, k in sorted(ever) if no_swaps}
        self.used = {
            (t, g): self._share(f"used[{t},{g}]") for group in choices.equal_gpus for g in group[:-1] for t in tasks
        }

    def _share(self, name: str) -> pulp.LpVariable:
        """Return a variable from 0 to 1 that other variables make whole."""
        return self._problem.add_variable(name, 0, 1)

    def _time(self, name: str, first: int, last: int) -> pulp.LpVariable:
        return self._problem.add_variable(name, self.units.time(first), self.units.time(last))

    def _end(self, choices: Choices, task: int) -> pulp.LpAffineExpression:
        times = {g: self.units.time(choices.instance.run_time(task, g)) for g in choices.gpus[task]}
        if len(set(times.values())) == 1:
            return self.start[task] + next(iter(times.values()))
        return self.start[task] + pulp.lpSum(time * self.assign[task, g] for g, time in times.items())


def loaded(v: MilpVariables, choices: Choices, need: int) -> pulp.LpAffineExpression:
    """Return when a need's model is ready: after its load, or as soon as it is held if it needs none (q_u + load_u)."""
    task, wanted = choices.needs[need]
    times = {g: v.units.time(choices.instance.load_time(wanted, g)) for g in choices.gpus[task]}
    return v.hold[need] + pulp.lpSum(time * v.miss[need, g] for g, time in times.items())
