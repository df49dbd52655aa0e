"""Residencies in the MILP: chains of needs, loads one after the other, and memory as it is when a load starts.

What a room holds grows only when a load starts, so it is counted there: all residencies that open in the room, less
those that open later and those that have left. Each of the two is subtracted only if an order separates the times,
so a plan never holds more than is counted.
"""

from __future__ import annotations

from itertools import combinations

import pulp

from truenorth.models.formulations.choices import Choices
from truenorth.models.formulations.milp_variables import (
    MilpVariables,
    Pair,
    find_crowded_rooms,
    first_end,
    last_end,
    last_start,
    limited_models,
    loaded,
)


def serve_each_need(problem: pulp.LpProblem, v: MilpVariables, choices: Choices) -> None:
    """R3: a need hits, misses or is initial, and opens a residency only on its task's GPU.

    sum_u h_uv + sum_g (m_vg + i_vg) = 1;  m_vg + i_vg <= x_tg;  sum_v h_uv <= 1;
    redundant: sum_u (m_ug + i_ug) >= x_tg over the needs u of the same model.
    """
    incoming: list[list[pulp.LpVariable]] = [[] for _ in choices.needs]
    outgoing: list[list[pulp.LpVariable]] = [[] for _ in choices.needs]
    for (before, after), hit in v.hit.items():
        outgoing[before].append(hit)
        incoming[after].append(hit)
    for need, (task, _) in enumerate(choices.needs):
        opening = {g: pulp.lpSum(_openings(v, need, g)) for g in choices.gpus[task]}
        for g, here in opening.items():
            problem.addConstraint(here <= v.assign[task, g], f"opened_where_run[{need},{g}]")
        served = pulp.lpSum(incoming[need]) + pulp.lpSum(opening.values())
        problem.addConstraint(served == 1, f"served[{need}]")
        problem.addConstraint(pulp.lpSum(outgoing[need]) <= 1, f"one_follower[{need}]")
    _open_where_used(problem, v, choices)


def _open_where_used(problem: pulp.LpProblem, v: MilpVariables, choices: Choices) -> None:
    opened: dict[Pair, list[pulp.LpVariable]] = {}
    for (need, g), literal in [*v.miss.items(), *v.initial.items()]:
        opened.setdefault((choices.needs[need][1], g), []).append(literal)
    for need, (task, wanted) in enumerate(choices.needs):
        for g in choices.gpus[task]:
            anywhere = pulp.lpSum(opened[wanted, g])
            problem.addConstraint(anywhere >= v.assign[task, g], f"opened_if_used[{need},{g}]")


def _openings(v: MilpVariables, need: int, gpu: int) -> list[pulp.LpVariable]:
    """Return the literals that say how a need opens a residency on a GPU."""
    return [v.miss[need, gpu], *([v.initial[need, gpu]] if (need, gpu) in v.initial else [])]


def follow_on_the_same_gpu(problem: pulp.LpProblem, v: MilpVariables, choices: Choices) -> None:
    """R2, R3: a hit stays on the GPU and in the room of the need before it, and holds from that one's end.

    h_uv <= b_tw for their tasks t, w;  |x_tg - x_wg| <= 1 - h_uv;  |y_ugk - y_vgk| <= 1 - h_uv;
    q_v <= e_t + M (1 - h_uv).
    """
    for (u, w), hit in v.hit.items():
        (a, wanted), (b, _) = choices.needs[u], choices.needs[w]
        problem.addConstraint(hit <= v.before[a, b], f"in_order[{u},{w}]")
        apart = max(0, last_start(choices, b) - first_end(choices, a))
        held = v.hold[w] <= v.end[a] + v.units.time(apart) * (1 - hit)
        problem.addConstraint(held, f"held_since[{u},{w}]")
        for source, target in ((a, b), (b, a)):
            for g in choices.gpus[source]:
                there = v.assign[target, g] if g in choices.gpus[target] else 0
                problem.addConstraint(v.assign[source, g] + hit <= 1 + there, f"same_gpu[{u},{w},{source},{g}]")
        for g in set(choices.gpus[a]) & set(choices.gpus[b]):
            rooms = choices.rooms_of(wanted, g)
            for room in rooms if len(rooms) > 1 else ():
                same = v.place[u, g, room] + hit <= 1 + v.place[w, g, room]
                problem.addConstraint(same, f"same_room[{u},{w},{g},{room}]")


def load_before_start(problem: pulp.LpProblem, v: MilpVariables, choices: Choices) -> None:
    """R1, R3, R6: memory is held from the load on, and the task waits for it; an initial model is held from 0.

    s_t >= q_u + sum_g load_mg m_ug;  q_u <= M (1 - i_ug), in its room.
    """
    for need, (task, _) in enumerate(choices.needs):
        problem.addConstraint(v.start[task] >= loaded(v, choices, need), f"ready[{need}]")
    for (need, g), initial in v.initial.items():
        task, wanted = choices.needs[need]
        latest = v.units.time(last_start(choices, task))
        problem.addConstraint(v.hold[need] <= latest * (1 - initial), f"held_from_0[{need},{g}]")
        room = choices.initial_room(wanted, g)
        problem.addConstraint(initial <= v.place[need, g, room], f"initial_room[{need},{g}]")


def load_one_model_at_a_time(problem: pulp.LpProblem, v: MilpVariables, choices: Choices) -> None:
    """R1: the loads of a GPU do not overlap on its copy engine; those of one model do not by R4.

    l_uv + l_vu >= m_ug + m_vg - 1;  l_uv <= 1 - m_ug + m_vg;  q_v >= q_u + load_u - M (1 - l_uv).
    """
    for u, w in combinations(range(len(choices.needs)), 2):
        (a, first), (b, second) = choices.needs[u], choices.needs[w]
        order = [v.load_before[pair] for pair in ((u, w), (w, u)) if pair in v.load_before]
        for g in set(choices.gpus[a]) & set(choices.gpus[b]) if first != second else ():
            together = v.miss[u, g] + v.miss[w, g] - 1
            problem.addConstraint(pulp.lpSum(order) >= together, f"copy_engine[{u},{w},{g}]")
    for (u, w), before in v.load_before.items():
        task, other = choices.needs[u][0], choices.needs[w][0]
        earliest = loaded(v, choices, u) - v.units.time(last_start(choices, task)) * (1 - before)
        problem.addConstraint(v.hold[w] >= earliest, f"load_order[{u},{w}]")
        for g in choices.gpus[task]:
            there = v.miss[w, g] if g in choices.gpus[other] else 0
            problem.addConstraint(before + v.miss[u, g] <= 1 + there, f"same_copy_engine[{u},{w},{g}]")


def fit_memory(problem: pulp.LpProblem, v: MilpVariables, choices: Choices) -> None:
    """R2: a residency sits in one room, and rooms are not overfull when a load starts there.

    sum_k y_ugk = x_tg;  o_vgk >= m_vg + y_vgk - 1;  for the load of u into room k of g, over needs v of other models:
    demand_u + sum_v demand_v (o_vgk + i_vg - a_uv - c_vu) <= capacity + M (2 - m_ug - y_ugk).
    """
    for need, (task, wanted) in enumerate(choices.needs):
        for g in choices.gpus[task]:
            rooms = choices.rooms_of(wanted, g)
            if len(rooms) > 1:
                total = pulp.lpSum(v.place[need, g, room] for room in rooms)
                problem.addConstraint(total == v.assign[task, g], f"one_room[{need},{g}]")
    for (need, g, room), opened in v.opened.items():
        both = v.miss[need, g] + v.place[need, g, room] - 1
        problem.addConstraint(opened >= both, f"opened[{need},{g},{room}]")
    for (g, room), inside in find_crowded_rooms(choices).items():
        for need in inside:
            _fit_when_loaded(problem, v, choices, need, g, room, inside)
    _leave_the_room(problem, v, choices)


def _fit_when_loaded(
    problem: pulp.LpProblem, v: MilpVariables, choices: Choices, need: int, g: int, room: int, inside: list[int]
) -> None:
    """Count what a room holds when a need loads into it.

    Notes
    -----
    Invariant: what a room holds at the start of a load is at most what the row counts.
    Because: memory fills only when a load starts; every residency that ever opens there is counted, and taken off only
        by a literal that an order of times implies (`_leave_the_room`).
    Cost: a row per need and crowded room, of as many terms as needs.
    If wrong: loud if it counts too little (the checker refuses the plan), unsound if too much.
    """
    demand, capacity = choices.rooms[g][room].demand, choices.rooms[g][room].capacity
    wanted = choices.needs[need][1]
    others = {u: demand[choices.needs[u][1]] for u in inside if choices.needs[u][1] != wanted}
    # As much as all of them could overfill the room: what an idle row must forgive.
    most = demand[wanted] + sum(others.values()) - capacity
    if most <= 0:
        return
    held = []
    for u, size in others.items():
        held += [size * literal for literal in _opened_in(v, choices, u, g, room)]
        held += [-size * v.later[need, u]] if (need, u) in v.later else []
        held += [-size * v.closed[u, need]] if (u, need) in v.closed else []
    elsewhere = 1 - v.miss[need, g]
    # With one room the load alone says where; with several also the room.
    if (need, g, room) in v.opened:
        elsewhere += 1 - v.place[need, g, room]
    row = demand[wanted] + pulp.lpSum(held) <= capacity + most * elsewhere
    problem.addConstraint(row, f"memory[{g},{room},{need}]")


def _opened_in(v: MilpVariables, choices: Choices, need: int, g: int, room: int) -> list[pulp.LpVariable]:
    """Return the literals that say that a need opens a residency in a room."""
    load = v.opened.get((need, g, room), v.miss[need, g])
    here = (need, g) in v.initial and choices.initial_room(choices.needs[need][1], g) == room
    return [load, *([v.initial[need, g]] if here else [])]


def _leave_the_room(problem: pulp.LpProblem, v: MilpVariables, choices: Choices) -> None:
    """R2: a residency has left a room by a load, or opens in it after the load, only if times and rooms say so.

    c_uv <= 1 - sum_w h_uw;  q_v >= e_t - M (1 - c_uv);  for two models also c_uv, a_vu <= 1 - y_vgk + y_ugk.
    """
    # Who has a follower is not the last of its residency, and has not left.
    following: dict[int, list[pulp.LpVariable]] = {}
    for (before, _), hit in v.hit.items():
        following.setdefault(before, []).append(hit)
    for (u, w), closed in v.closed.items():
        task = choices.needs[u][0]
        problem.addConstraint(closed + pulp.lpSum(following.get(u, [])) <= 1, f"last[{u},{w}]")
        earliest = v.end[task] - v.units.time(last_end(choices, task)) * (1 - closed)
        problem.addConstraint(v.hold[w] >= earliest, f"closed[{u},{w}]")
        if choices.needs[u][1] != choices.needs[w][1]:
            _share_room(problem, v, choices, closed, u, w, "left")
    for (w, u), later in v.later.items():
        if later is not v.load_before.get((w, u)) and choices.needs[u][1] != choices.needs[w][1]:
            problem.addConstraint(later <= v.load_before[w, u], f"later[{w},{u}]")
            _share_room(problem, v, choices, later, u, w, "opens_later")


def _share_room(
    problem: pulp.LpProblem, v: MilpVariables, choices: Choices, literal: pulp.LpVariable, u: int, w: int, name: str
) -> None:
    """Let a literal imply that need u sits in the room of need w."""
    task, wanted = choices.needs[w]
    for g in choices.gpus[task]:
        for room in choices.rooms_of(wanted, g):
            there = v.place.get((u, g, room), 0)
            problem.addConstraint(literal + v.place[w, g, room] <= 1 + there, f"{name}[{u},{w},{g},{room}]")


def hold_one_copy_per_gpu(problem: pulp.LpProblem, v: MilpVariables, choices: Choices) -> None:
    """R4, R6: the pieces of a model on a GPU do not overlap, and at most one need is initial.

    q_v >= e_t - M (1 - b_tw) for the task t of another need of the model;  sum_u i_ug <= 1.
    """
    users: dict[int, list[int]] = {}
    for need, (_, m) in enumerate(choices.needs):
        users.setdefault(m, []).append(need)
    for m, needs in users.items():
        task_of = {need: choices.needs[need][0] for need in needs}
        for u in needs:
            for w in [w for w in needs if (task_of[u], task_of[w]) in v.before]:
                before = v.before[task_of[u], task_of[w]]
                earliest = v.end[task_of[u]] - v.units.time(last_end(choices, task_of[u])) * (1 - before)
                problem.addConstraint(v.hold[w] >= earliest, f"one_copy[{m},{u},{w}]")
    first: dict[Pair, list[pulp.LpVariable]] = {}
    for (need, g), initial in v.initial.items():
        first.setdefault((choices.needs[need][1], g), []).append(initial)
    for (m, g), literals in first.items():
        problem.addConstraint(pulp.lpSum(literals) <= 1, f"initial_once[{m},{g}]")


def limit_replicas(problem: pulp.LpProblem, v: MilpVariables, choices: Choices) -> None:
    """X: at no instant do more GPUs hold a model than the operator allows.

    Without swaps sum_gk z_mgk <= most. Otherwise sum i_ug <= most at time 0, and for the load of u, over needs v of
    the model: 1 + sum_v (sum_g (m_vg + i_vg) - a_uv - c_vu) <= most + M (1 - sum_g m_ug), where
    a_uv <= sum_g m_vg and q_v >= q_u + 1 us - M (1 - a_uv).

    Notes
    -----
    As rooms: the number of replicas grows only when a load starts, and is counted there. *Later* is by a microsecond,
    so that of two loads at the same instant each counts the other.
    If wrong: loud if it counts too few, unsound if too many.
    """
    instance = choices.instance
    for m, ml_model in enumerate(instance.models):
        if v.resident and ml_model.name in instance.restrictions.max_replicas:
            there = pulp.lpSum(z for (which, _, _), z in v.resident.items() if which == m)
            problem.addConstraint(there <= instance.restrictions.max_replicas[ml_model.name], f"replicas[{m}]")
    for m, most in limited_models(choices).items():
        users = [need for need, (_, wanted) in enumerate(choices.needs) if wanted == m]
        at_0 = pulp.lpSum(literal for (need, _), literal in v.initial.items() if need in users)
        problem.addConstraint(at_0 <= most, f"replicas[{m}]")
        for need in users:
            _limit_when_loaded(problem, v, choices, need, users, most)


def _limit_when_loaded(
    problem: pulp.LpProblem, v: MilpVariables, choices: Choices, need: int, users: list[int], most: int
) -> None:
    """Count the replicas of a model when a need loads it."""
    held = []
    for u in [u for u in users if u != need]:
        gpus = choices.gpus[choices.needs[u][0]]
        loads = pulp.lpSum(v.miss[u, g] for g in gpus)
        held += [literal for g in gpus for literal in _openings(v, u, g)]
        held += [-1 * v.later[need, u], *([-1 * v.closed[u, need]] if (u, need) in v.closed else [])]
        problem.addConstraint(v.later[need, u] <= loads, f"later_load[{need},{u}]")
        strictly = v.units.time(last_start(choices, choices.needs[need][0]) + 1) * (1 - v.later[need, u])
        earliest = v.hold[need] + v.units.time(1) - strictly
        problem.addConstraint(v.hold[u] >= earliest, f"later[{need},{u}]")
    elsewhere = 1 - pulp.lpSum(v.miss[need, g] for g in choices.gpus[choices.needs[need][0]])
    row = 1 + pulp.lpSum(held) <= most + max(0, len(users) - most) * elsewhere
    problem.addConstraint(row, f"replicas[{choices.needs[need][1]},{need}]")


def never_swap(problem: pulp.LpProblem, v: MilpVariables, choices: Choices) -> None:
    """X: without swaps a model opens at most one residency on a GPU, and its room is taken for ever.

    y_ugk <= z_mgk;  sum_k z_mgk <= 1;  sum_u (m_ug + i_ug) <= 1;  sum_m demand z_mgk <= capacity.
    """
    if not choices.instance.restrictions.no_swaps:
        return
    for (need, g, room), place in v.place.items():
        resident = v.resident[choices.needs[need][1], g, room]
        problem.addConstraint(place <= resident, f"stays[{need},{g},{room}]")
    opening: dict[Pair, list[pulp.LpVariable]] = {}
    for (need, g), literal in [*v.miss.items(), *v.initial.items()]:
        opening.setdefault((choices.needs[need][1], g), []).append(literal)
    for (m, g), literals in opening.items():
        problem.addConstraint(pulp.lpSum(literals) <= 1, f"opened_once[{m},{g}]")
        rooms = pulp.lpSum(z for (which, where, _), z in v.resident.items() if (which, where) == (m, g))
        problem.addConstraint(rooms <= 1, f"one_room_for_ever[{m},{g}]")
    for g, rooms_here in enumerate(choices.rooms):
        for index, part in enumerate(rooms_here):
            inside = {m: z for (m, where, k), z in v.resident.items() if (where, k) == (g, index)}
            taken = pulp.lpSum(part.demand[m] * z for m, z in inside.items())
            problem.addConstraint(taken <= part.capacity, f"memory_for_ever[{g},{index}]")
