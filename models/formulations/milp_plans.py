"""Plans in and out of the MILP: a complete start from a timeline, a timeline from the decisions of a solution.

A solver's times carry rounding errors, so only its decisions are read: who runs where and in which order, who loads,
and what a load waits for. The times are then the earliest whole microseconds that these allow, which no objective
can hold against them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import networkx as nx
import pulp

from truenorth.models.formulations.choices import renumber
from truenorth.models.formulations.equal_jobs import sort_equal_jobs
from truenorth.models.formulations.milp import MilpFormulation
from truenorth.models.formulations.milp_problem import start_costs
from truenorth.models.formulations.normal_form import Chain, normal_form, serving_chains
from truenorth.models.timeline import Placement, Residency, Timeline

Operation = tuple[str, int]
"""The run of a task, or the load of a need."""

Assignment = Iterator[tuple[pulp.LpVariable, float]]


class ContradictoryOrderError(ValueError):
    """The decisions of a solution put an operation before itself: the solver's tolerances hid a violation."""


def start_values(formulation: MilpFormulation, timeline: Timeline) -> dict[str, float]:
    """Return a value for every variable, by name, from a feasible timeline no worse than the one built in."""
    instance, objective = formulation.choices.instance, formulation.objective.objective
    known = renumber(sort_equal_jobs(instance, objective, timeline), formulation.choices.equal_gpus)
    chains = _Chains(formulation, known)
    parts = (
        _start_tasks(formulation, known),
        chains.needs(),
        chains.orders(),
        chains.rooms(),
        start_costs(formulation.variables, formulation.objective, formulation.choices.instance, known),
    )
    return {variable.name: value for part in parts for variable, value in part}


def _start_tasks(formulation: MilpFormulation, timeline: Timeline) -> Assignment:
    """Yield the values of assignment, start, order and GPU use."""
    v = formulation.variables
    gpu, start = timeline.place.tolist(), timeline.start_us.tolist()
    for (task, g), literal in v.assign.items():
        yield literal, gpu[task] == g
    for task, variable in enumerate(v.start):
        yield variable, v.units.time(start[task])
    for (t, u), before in v.before.items():
        yield before, gpu[t] == gpu[u] and start[t] < start[u]
    first = {g: task for task, g in reversed([*enumerate(gpu)])}
    for (task, g), literal in v.used.items():
        yield literal, first.get(g, len(gpu)) <= task


class _Chains:
    """The residencies of a timeline as chains of needs, and the values that follow from them."""

    def __init__(self, formulation: MilpFormulation, timeline: Timeline) -> None:
        self.v, self.choices, self.timeline = formulation.variables, formulation.choices, timeline
        self.where = [int(timeline.place[task]) for task, _ in self.choices.needs]
        self.end = [int(timeline.end_us[task]) for task, _ in self.choices.needs]
        self.since = [0] * len(self.choices.needs)
        self.room = [0] * len(self.choices.needs)
        self.loads: set[int] = set()
        self.initial: set[int] = set()
        self.last: set[int] = set()
        self.hits: set[tuple[int, int]] = set()
        for residency, served in serving_chains(self.choices.instance, timeline):
            self._follow(residency, served)

    def _follow(self, residency: Residency, served: list[int]) -> None:
        (self.initial if residency.initial else self.loads).add(served[0])
        self.last.add(served[-1])
        self.hits.update(pairwise(served))
        self.since[served[0]] = residency.load_start_us
        for before, after in pairwise(served):
            self.since[after] = self.end[before]
        for need in served:
            self.room[need] = self.choices.room_of_slot(residency.gpu, residency.slot)

    def needs(self) -> Assignment:
        """Yield how each need is served, and since when its memory is held."""
        yield from ((literal, pair in self.hits) for pair, literal in self.v.hit.items())
        for literals, opening in ((self.v.miss, self.loads), (self.v.initial, self.initial)):
            for (need, g), literal in literals.items():
                yield literal, need in opening and self.where[need] == g
        for need, variable in enumerate(self.v.hold):
            yield variable, self.v.units.time(self.since[need])

    def orders(self) -> Assignment:
        """Yield which load comes before which other load, run or end of a residency."""
        for (u, w), before in self.v.load_before.items():
            yield before, self._load_earlier(u, w) and self.where[u] == self.where[w]
        for (u, w), later in self.v.later.items():
            if later is not self.v.load_before.get((u, w)):
                yield later, self._load_earlier(u, w) and self._same_room(u, w)
        for (u, w), closed in self.v.closed.items():
            ended = u in self.last and w in self.loads and self.end[u] <= self.since[w]
            yield closed, ended and self._same_room(u, w)
        gpu, start, end = self.timeline.place, self.timeline.start_us, self.timeline.end_us
        for (t, u), before in self.v.run_before_load.items():
            yield before, u in self.loads and bool(gpu[t] == self.where[u] and end[t] <= self.since[u])
        for (u, t), before in self.v.load_before_run.items():
            yield before, u in self.loads and bool(gpu[t] == self.where[u] and self.since[u] < start[t])

    def rooms(self) -> Assignment:
        """Yield where each residency sits."""
        for (need, g, k), literal in self.v.opened.items():
            yield literal, need in self.loads and (self.where[need], self.room[need]) == (g, k)
        for (need, g, k), literal in self.v.place.items():
            if literal is not self.v.assign[self.choices.needs[need][0], g]:
                yield literal, (self.where[need], self.room[need]) == (g, k)
        there = {(m, self.where[need], self.room[need]) for need, (_, m) in enumerate(self.choices.needs)}
        yield from ((literal, place in there) for place, literal in self.v.resident.items())

    def _load_earlier(self, first: int, second: int) -> bool:
        return first in self.loads and second in self.loads and self.since[first] < self.since[second]

    def _same_room(self, first: int, second: int) -> bool:
        """Say whether two needs compete: for one room, or, if of one model, for its replicas anywhere."""
        same_model = self.choices.needs[first][1] == self.choices.needs[second][1]
        same_gpu = self.where[first] == self.where[second]
        return same_model or (same_gpu and self.room[first] == self.room[second])


def read_timeline(formulation: MilpFormulation, value: Callable[[pulp.LpVariable], float]) -> Timeline:
    """Return the timeline of a solution in normal form, with the earliest times that its decisions allow.

    Parameters
    ----------
    value
        The solution's value of a variable.

    Raises
    ------
    ContradictoryOrderError
        If the decisions contradict each other.
    """
    return _Reading(formulation, value).timeline()


class _Reading:
    """The decisions of a solution, and the times that follow from them."""

    def __init__(self, formulation: MilpFormulation, value: Callable[[pulp.LpVariable], float]) -> None:
        self.formulation, self.value = formulation, value
        self.choices, self.instance = formulation.choices, formulation.choices.instance
        v = formulation.variables
        self.gpu = {task: g for (task, g), literal in v.assign.items() if self._yes(literal)}
        self.loads = {need: g for (need, g), literal in v.miss.items() if self._yes(literal)}
        self.initial = {need: g for (need, g), literal in v.initial.items() if self._yes(literal)}
        self.follower = {before: after for (before, after), literal in v.hit.items() if self._yes(literal)}
        self.room = {need: k for (need, _, k), literal in v.place.items() if self._yes(literal)}

    def timeline(self) -> Timeline:
        """Return the timeline."""
        start = self._earliest()
        end = {t: start["run", t] + self.instance.run_time(t, g) for t, g in self.gpu.items()}
        placements = [Placement(t, g, start["run", t], end[t]) for t, g in self.gpu.items()]
        chains = [
            Chain(
                self.choices.needs[need][1],
                g,
                start.get(("load", need), 0),
                need in self.initial,
                end[self.choices.needs[self._last(need)][0]],
                self.choices.rooms[g][self.room[need]].slots,
            )
            for need, g in (self.loads | self.initial).items()
        ]
        return normal_form(self.instance, placements, chains)

    def _yes(self, literal: pulp.LpVariable) -> bool:
        return self.value(literal) > 0.5

    def _last(self, need: int) -> int:
        """Return the last need of the residency that a need opens."""
        while need in self.follower:
            need = self.follower[need]
        return need

    def _earliest(self) -> dict[Operation, int]:
        """Return the earliest start of every operation after all that it waits for."""
        waits: dict[Operation, list[tuple[Operation, int]]] = {("run", task): [] for task in self.gpu}
        waits |= {("load", need): [] for need in self.loads}
        for before, after, gap in self._orders():
            if before in waits and after in waits:
                waits[after].append((before, gap))
        # Decisions of a solution within tolerances may still go round in a circle.
        graph = nx.DiGraph([(before, after) for after, row in waits.items() for before, _ in row])
        graph.add_nodes_from(waits)
        if not nx.is_directed_acyclic_graph(graph):
            raise ContradictoryOrderError(f"operations wait for each other: {nx.find_cycle(graph)}")
        start: dict[Operation, int] = {}
        for operation in nx.topological_sort(graph):
            kind, index = operation
            released = self.instance.earliest_start(index, self.gpu[index]) if kind == "run" else 0
            ready = [start[before] + self._duration(before) + gap for before, gap in waits[operation]]
            start[operation] = max([released, *ready])
        return start

    def _duration(self, operation: Operation) -> int:
        kind, index = operation
        if kind == "run":
            return self.instance.run_time(index, self.gpu[index])
        return self.instance.load_time(self.choices.needs[index][1], self.loads[index])

    def _orders(self) -> Iterator[tuple[Operation, Operation, int]]:
        """Yield pairs of operations of which the second starts after the first has ended, and how long after."""
        v, needs = self.formulation.variables, self.choices.needs
        for task in self.gpu:
            for source, edge in self.instance.task_inputs(task):
                gap = self.instance.gap_time(edge, self.gpu[source], self.gpu[task])
                yield ("run", source), ("run", task), gap
        for need in self.loads:
            yield ("load", need), ("run", needs[need][0]), 0
        for t, u in [(t, u) for t, u in self._chosen(v.before) if self.gpu[t] == self.gpu[u]]:
            yield ("run", t), ("run", u), 0
            for need in self.loads:
                if needs[need][0] == u and needs[need][1] in self.instance.task_needs(t):
                    yield ("run", t), ("load", need), 0
        # What the other literals chose is an order of two operations each.
        yield from ((("load", u), ("load", w), 0) for u, w in self._chosen(v.load_before))
        yield from ((("run", t), ("load", u), 0) for t, u in self._chosen(v.run_before_load))
        yield from ((("load", u), ("run", t), 0) for u, t in self._chosen(v.load_before_run))
        yield from ((("run", needs[u][0]), ("load", w), 0) for u, w in self._chosen(v.closed))
        for u, w in self._chosen(v.later):
            if u in self.loads and needs[u][1] == needs[w][1]:  # anywhere in the cluster: later by 1 us at least
                yield ("load", u), ("load", w), 1 - self._duration(("load", u))

    def _chosen(self, orders: dict[tuple[int, int], pulp.LpVariable]) -> list[tuple[int, int]]:
        return [pair for pair, literal in orders.items() if self._yes(literal)]
