"""The decisions of the MILP: those of the CP-SAT twin, and an order wherever that one has intervals."""

from __future__ import annotations

from dataclasses import dataclass

import pulp

from models.formulations.choices import Choices
from models.formulations.milp_costs import declare_costs
from models.formulations.milp_pairs import Pair, Pairs, find_crowded_rooms, first_start, last_start
from models.formulations.milp_units import Units
from models.formulations.scale import ScaledObjective


@dataclass(frozen=True, slots=True)
class Variables:
    """The decisions; needs are numbered as in `Choices`, letters as in the constraints.

    Parameters
    ----------
    units
        What one unit of a time, weight or term stands for.
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
    completion
        Per job that counts (C_j).
    term
        Per job that counts: the term that its weight multiplies (T_j).
    worst
        The largest weighted term, if the objective is a maximum (W).
    """

    units: Units
    assign: dict[Pair, pulp.LpVariable]
    start: list[pulp.LpVariable]
    end: list[pulp.LpAffineExpression]
    before: dict[Pair, pulp.LpVariable]
    hit: dict[Pair, pulp.LpVariable]
    miss: dict[Pair, pulp.LpVariable]
    initial: dict[Pair, pulp.LpVariable]
    hold: list[pulp.LpVariable]
    load_before: dict[Pair, pulp.LpVariable]
    run_before_load: dict[Pair, pulp.LpVariable]
    load_before_run: dict[Pair, pulp.LpVariable]
    closed: dict[Pair, pulp.LpVariable]
    later: dict[Pair, pulp.LpVariable]
    opened: dict[tuple[int, int, int], pulp.LpVariable]
    place: dict[tuple[int, int, int], pulp.LpVariable]
    resident: dict[tuple[int, int, int], pulp.LpVariable]
    used: dict[Pair, pulp.LpVariable]
    completion: dict[int, pulp.LpAffineExpression]
    term: dict[int, pulp.LpVariable]
    worst: pulp.LpVariable | None


def declare(problem: pulp.LpProblem, choices: Choices, scaled: ScaledObjective) -> Variables:
    """Return the variables of a formulation."""
    return _Declaration(problem, choices, scaled).variables()


def loaded(v: Variables, choices: Choices, need: int) -> pulp.LpAffineExpression:
    """Return when a need's model is ready: after its load, or as soon as it is held if it needs none (q_u + load_u)."""
    task, wanted = choices.needs[need]
    times = {g: v.units.time(choices.instance.load_time(wanted, g)) for g in choices.gpus[task]}
    return v.hold[need] + pulp.lpSum(time * v.miss[need, g] for g, time in times.items())


class _Declaration:
    """Declares the variables one group after the other."""

    def __init__(self, problem: pulp.LpProblem, choices: Choices, scaled: ScaledObjective) -> None:
        self.problem, self.choices, self.scaled = problem, choices, scaled
        self.units = Units.of(choices, scaled)
        self.pairs = Pairs.of(choices)

    def variables(self) -> Variables:
        """Return all variables."""
        choices = self.choices
        tasks, needs = range(choices.instance.n_tasks), range(len(choices.needs))
        assign = {(t, g): self._binary(f"assign[{t},{g}]") for t in tasks for g in choices.gpus[t]}
        start = [self._time(f"start[{t}]", first_start(choices, t), last_start(choices, t)) for t in tasks]
        load_before = {(u, v): self._binary(f"load_before[{u},{v}]") for u, v in self.pairs.loads()}
        place = self._place(assign)
        completion, term, worst = declare_costs(self.problem, choices, self.scaled, self.units)
        return Variables(
            self.units,
            assign,
            start,
            [self._end(t, start[t], assign) for t in tasks],
            {(t, u): self._binary(f"before[{t},{u}]") for t, u in self.pairs.runs()},
            {(u, v): self._binary(f"hit[{u},{v}]") for u, v in choices.follows},
            {(u, g): self._binary(f"miss[{u},{g}]") for u in needs for g in choices.gpus[choices.needs[u][0]]},
            {(u, g): self._binary(f"initial[{u},{g}]") for u, g in choices.initial},
            [self._time(f"hold[{u}]", 0, last_start(choices, choices.needs[u][0])) for u in needs],
            load_before,
            {(t, u): self._binary(f"run_before_load[{t},{u}]") for t, u in self.pairs.runs_before_loads()},
            {(u, t): self._binary(f"load_before_run[{u},{t}]") for u, t in self.pairs.loads_before_runs()},
            {(u, v): self._binary(f"closed[{u},{v}]") for u, v in self.pairs.closings()},
            self._later(load_before),
            self._opened(),
            place,
            self._resident(place),
            {(t, g): self._share(f"used[{t},{g}]") for group in choices.equal_gpus for g in group[:-1] for t in tasks},
            completion,
            term,
            worst,
        )

    def _binary(self, name: str) -> pulp.LpVariable:
        return self.problem.add_variable(name, cat=pulp.LpBinary)

    def _share(self, name: str) -> pulp.LpVariable:
        """Return a variable from 0 to 1 that other variables make whole."""
        return self.problem.add_variable(name, 0, 1)

    def _time(self, name: str, first: int, last: int) -> pulp.LpVariable:
        return self.problem.add_variable(name, self.units.time(first), self.units.time(last))

    def _end(self, task: int, start: pulp.LpVariable, assign: dict[Pair, pulp.LpVariable]) -> pulp.LpAffineExpression:
        times = {g: self.units.time(self.choices.instance.run_time(task, g)) for g in self.choices.gpus[task]}
        if len(set(times.values())) == 1:
            return start + next(iter(times.values()))
        return start + pulp.lpSum(time * assign[task, g] for g, time in times.items())

    def _later(self, load_before: dict[Pair, pulp.LpVariable]) -> dict[Pair, pulp.LpVariable]:
        several = any(len(rooms) > 1 for rooms in self.choices.rooms)
        later = {
            (u, v): self._share(f"later[{u},{v}]") if several else load_before[u, v]
            for u, v in self.pairs.room_mates()
            if (u, v) in load_before
        }
        return later | {(u, v): self._binary(f"later[{u},{v}]") for u, v in self.pairs.replicas()}

    def _opened(self) -> dict[tuple[int, int, int], pulp.LpVariable]:
        return {
            (u, g, room): self._share(f"opened[{u},{g},{room}]")
            for (g, room), inside in find_crowded_rooms(self.choices).items()
            for u in inside
            if len(self.choices.rooms_of(self.choices.needs[u][1], g)) > 1
        }

    def _place(self, assign: dict[Pair, pulp.LpVariable]) -> dict[tuple[int, int, int], pulp.LpVariable]:
        place = {}
        for u, (task, wanted) in enumerate(self.choices.needs):
            for g in self.choices.gpus[task]:
                rooms = self.choices.rooms_of(wanted, g)
                for room in rooms:
                    place[u, g, room] = assign[task, g] if len(rooms) == 1 else self._binary(f"place[{u},{g},{room}]")
        return place

    def _resident(
        self, place: dict[tuple[int, int, int], pulp.LpVariable]
    ) -> dict[tuple[int, int, int], pulp.LpVariable]:
        if not self.choices.instance.restrictions.no_swaps:
            return {}
        places = {(self.choices.needs[u][1], g, room) for u, g, room in place}
        return {(m, g, room): self._binary(f"resident[{m},{g},{room}]") for m, g, room in sorted(places)}
