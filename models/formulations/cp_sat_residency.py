"""Residencies in CP-SAT: chains of needs, their loads, and the memory they fill; constraint families of `cp_sat`."""

from __future__ import annotations

from ortools.sat.python import cp_model

from truenorth.models.formulations.choices import Choices
from truenorth.models.formulations.cp_sat_variables import CpSatVariables
from truenorth.models.formulations.orders import memory_of, overlapping


def serve_each_need(model: cp_model.CpModel, v: CpSatVariables, choices: Choices) -> None:
    """R3: a need hits, misses or is initial, and opens a residency only on its task's GPU.

    sum_u h_uv + sum_g (m_vg + i_vg) = 1;  m_vg + i_vg <= x_tg;  sum_v h_uv <= 1;
    of a task that can join a batch = sum_g c_tg in place of 1, c_tg in place of x_tg.
    """
    members = {member for _, member in v.join}
    incoming: list[list[cp_model.IntVar]] = [[] for _ in choices.needs]
    outgoing: list[list[cp_model.IntVar]] = [[] for _ in choices.needs]
    for (before, after), hit in v.hit.items():
        outgoing[before].append(hit)
        incoming[after].append(hit)
    for need, (task, _) in enumerate(choices.needs):
        opening = []
        for g in choices.gpus[task]:
            here = [v.miss[need, g], *([v.initial[need, g]] if (need, g) in v.initial else [])]
            opening += here
            for literal in here:
                model.add_implication(literal, v.carry[task, g]).with_name(f"opened_where_run[{need},{g}]")
        # Who may join another's batch needs nothing of its own there; exactly-one is stronger where that cannot be.
        if task not in members:
            model.add_exactly_one(incoming[need] + opening).with_name(f"served[{need}]")
            model.add_at_most_one(outgoing[need]).with_name(f"one_follower[{need}]")
            continue
        leads = sum(v.carry[task, g] for g in choices.gpus[task])
        model.add(sum(incoming[need] + opening) == leads).with_name(f"served[{need}]")
        model.add(sum(outgoing[need]) <= leads).with_name(f"one_follower[{need}]")


def follow_on_the_same_gpu(model: cp_model.CpModel, v: CpSatVariables, choices: Choices) -> None:
    """R2, R3: a hit stays on the GPU and in the room of the need before it, and holds from that one's end.

    h_uv => x_ug = x_vg,  y_ugk = y_vgk,  q_v = r_u;  where tasks overlap also s_u <= s_v, < if u > v.

    Notes
    -----
    Pieces of a residency join without a gap, so that memory and copies need nothing but intervals. Where tasks run
    beside each other a piece may last for no time, and needs of equal starts would follow each other in a circle: the
    order of their numbers breaks it.
    If wrong: loud where a gap is let in (the checker misses a ready model); unsound where a chain that exists is
        forbidden.
    """
    beside = overlapping(choices.instance)
    for (before, after), hit in v.hit.items():
        a, b = choices.needs[before][0], choices.needs[after][0]
        named = model.add(v.hold[after] == v.until[before]).with_name(f"held_since[{before},{after}]")
        named.only_enforce_if(hit)
        if beside:
            in_order = model.add(v.start[b] >= v.start[a] + int(before > after))
            in_order.with_name(f"in_order[{before},{after}]").only_enforce_if(hit)
        # Both ways: a hit also forbids the follower to run where its predecessor does not.
        for source, target in ((a, b), (b, a)):
            for g in choices.gpus[source]:
                there = [v.assign[target, g]] if g in choices.gpus[target] else []
                same = model.add_bool_or(hit.negated(), v.assign[source, g].negated(), *there)
                same.with_name(f"same_gpu[{before},{after},{g}]")
        wanted = choices.needs[before][1]
        for g in choices.gpus[a]:
            rooms = choices.rooms_of(wanted, g)
            for room in rooms if len(rooms) > 1 and g in choices.gpus[b] else ():
                same = model.add_bool_or(hit.negated(), v.place[before, g, room].negated(), v.place[after, g, room])
                same.with_name(f"same_room[{before},{after},{g},{room}]")


def load_before_start(model: cp_model.CpModel, v: CpSatVariables, choices: Choices) -> None:
    """R1, R3, R6: memory is held from the load on, and the task waits for it; an initial model is held from 0.

    m_ug => s_t >= q_u + load_mg, q_u >= when g comes;  i_ug => q_u = 0 in its room;  s_t >= q_u;  span_u = r_u - q_u;
    where tasks overlap r_u >= e_t in place of s_t >= q_u.

    Notes
    -----
    Invariant: memory is held from the first microsecond of a load, and a task waits for the last.
    Because: rules R1 and R2; an initial model was there before time 0, so its piece begins with the window.
    If wrong: loud; the checker refuses tasks on models that are not ready, and rooms that are overfull.
    """
    beside = overlapping(choices.instance)
    for (need, g), miss in v.miss.items():
        task, wanted = choices.needs[need]
        duration = choices.instance.load_time(wanted, g)
        named = model.add(v.start[task] >= v.hold[need] + duration).with_name(f"ready[{need},{g}]")
        named.only_enforce_if(miss)
        comes_us = choices.instance.cluster.gpus[g].available.intervals[0][0]
        if comes_us:  # A1
            model.add(v.hold[need] >= comes_us).with_name(f"comes[{need},{g}]").only_enforce_if(miss)
    for (need, g), initial in v.initial.items():
        model.add(v.hold[need] == 0).with_name(f"held_from_0[{need},{g}]").only_enforce_if(initial)
        room = choices.initial_room(choices.needs[need][1], g)
        model.add_implication(initial, v.place[need, g, room]).with_name(f"initial_room[{need},{g}]")
    for need, (task, _) in enumerate(choices.needs):
        if beside:
            model.add(v.until[need] >= v.end[task]).with_name(f"held_at_end[{need}]")
        else:
            model.add(v.start[task] >= v.hold[need]).with_name(f"held_at_start[{need}]")
        model.add(v.span[need] + v.hold[need] == v.until[need]).with_name(f"span[{need}]")


def load_one_model_at_a_time(model: cp_model.CpModel, v: CpSatVariables, choices: Choices) -> None:
    """R1: the loads of a GPU do not overlap on its copy engine.

    no_overlap_u load_ug.
    """
    for g in range(choices.instance.n_gpus):
        loads = [load for (_, where), load in v.load.items() if where == g]
        model.add_no_overlap(loads).with_name(f"copy_engine[{g}]")


def fit_memory(model: cp_model.CpModel, v: CpSatVariables, choices: Choices) -> None:
    """R2: a residency sits in one room, and rooms are not overfull.

    sum_k y_ugk = c_tg;  cumulative over needs u: piece_ugk, demand of the model, and over tasks: work_tg, what each
    holds; capacity of room k. Without swaps stays take the place of pieces beside tasks that hold memory.
    """
    for need, (task, wanted) in enumerate(choices.needs):
        for g in choices.gpus[task]:
            rooms = choices.rooms_of(wanted, g)
            if len(rooms) > 1:
                total = sum(v.place[need, g, room] for room in rooms)
                model.add(total == v.carry[task, g]).with_name(f"one_room[{need},{g}]")
    for g, rooms_here in enumerate(choices.rooms):
        for index, room in enumerate(rooms_here):
            inside = [(choices.needs[u][1], p) for (u, where, k), p in v.piece.items() if (where, k) == (g, index)]
            if v.stay:
                inside = [(m, stay) for (m, where, k), (_, _, stay) in v.stay.items() if (where, k) == (g, index)]
            working = {task: work for (task, where), work in v.work.items() if where == g}
            held = [memory_of(choices.instance, task) // room.unit for task in working]
            # A model counts once, however many needs it has: R4 keeps its pieces apart.
            if sum(room.demand[m] for m in {m for m, _ in inside}) + sum(held) > room.capacity:
                demands = [room.demand[m] for m, _ in inside] + held
                intervals = [*(piece for _, piece in inside), *working.values()]
                model.add_cumulative(intervals, demands, room.capacity).with_name(f"memory[{g},{index}]")


def hold_one_copy_per_gpu(model: cp_model.CpModel, v: CpSatVariables, choices: Choices) -> None:
    """R4, R6: the pieces of a model on a GPU do not overlap, and at most one need is initial.

    no_overlap_u [q_u, e_t) on g;  sum_u i_ug <= 1.
    """
    copies: dict[tuple[int, int], list[cp_model.IntervalVar]] = {}
    for (need, g, _), piece in v.piece.items():
        copies.setdefault((choices.needs[need][1], g), []).append(piece)
    for (m, g), pieces in copies.items():
        model.add_no_overlap(pieces).with_name(f"one_copy[{m},{g}]")
    first: dict[tuple[int, int], list[cp_model.IntVar]] = {}
    for (need, g), initial in v.initial.items():
        first.setdefault((choices.needs[need][1], g), []).append(initial)
    for (m, g), literals in first.items():
        model.add_at_most_one(literals).with_name(f"initial_once[{m},{g}]")


def limit_replicas(model: cp_model.CpModel, v: CpSatVariables, choices: Choices) -> None:
    """X: at no instant do more GPUs hold a model than the operator allows.

    cumulative over needs u of the model: [q_u, e_t), demand 1, capacity most;  without swaps sum_gk z_mgk <= most,
    or, where GPUs go and what they hold with them, cumulative over the stays in place of that sum.

    Notes
    -----
    Without swaps a model that is ever somewhere stays for good, so that a sum over places counts what a cumulative
    would. Where GPUs go they take what they hold along, and the sum would count what is no longer there: unsound.
    """
    instance = choices.instance
    for m, ml_model in enumerate(instance.models):
        most = instance.restrictions.max_replicas.get(ml_model.name)
        if most is None:
            continue
        if v.resident and instance.always_available:
            there = [z for (which, _, _), z in v.resident.items() if which == m]
            model.add(sum(there) <= most).with_name(f"replicas[{m}]")
            continue
        pieces = [piece for (need, _, _), piece in v.piece.items() if choices.needs[need][1] == m]
        if v.resident:
            pieces = [stay for (which, _, _), (_, _, stay) in v.stay.items() if which == m]
        elif instance.one_at_a_time:  # every need holds its model then: fewer intervals, none of them optional
            pieces = [
                model.new_interval_var(v.hold[need], v.span[need], v.end[task], f"held[{need}]")
                for need, (task, wanted) in enumerate(choices.needs)
                if wanted == m
            ]
        model.add_cumulative(pieces, [1] * len(pieces), most).with_name(f"replicas[{m}]")


def never_swap(model: cp_model.CpModel, v: CpSatVariables, choices: Choices) -> None:
    """X: without swaps a model opens at most one residency on a GPU, and its room is taken for ever.

    y_ugk <= z_mgk;  sum_k z_mgk <= 1;  sum_u (m_ug + i_ug) <= 1;  sum_m demand z_mgk <= capacity;
    m_ug, i_ug and y_ugk => the stay begins at q_u.

    Notes
    -----
    A residency is then a place, not an interval: one literal per model, GPU and room in place of pieces that join.
    If wrong: unsound if places are missing (rooms count too much), loud if a room is overfull.
    """
    if not choices.instance.restrictions.no_swaps:
        return
    for (need, g, room), place in v.place.items():
        resident = v.resident[choices.needs[need][1], g, room]
        model.add_implication(place, resident).with_name(f"stays[{need},{g},{room}]")
        for literal in [v.miss[need, g], *([v.initial[need, g]] if (need, g) in v.initial else [])] if v.stay else ():
            since = model.add(v.stay[choices.needs[need][1], g, room][0] == v.hold[need])
            since.with_name(f"stays_since[{need},{g},{room}]").only_enforce_if(literal, place)
    opening: dict[tuple[int, int], list[cp_model.IntVar]] = {}
    for (need, g), literal in [*v.miss.items(), *v.initial.items()]:
        opening.setdefault((choices.needs[need][1], g), []).append(literal)
    for (m, g), literals in opening.items():
        model.add_at_most_one(literals).with_name(f"opened_once[{m},{g}]")
        one_room = model.add_at_most_one(z for (which, where, _), z in v.resident.items() if (which, where) == (m, g))
        one_room.with_name(f"one_room_for_ever[{m},{g}]")
    for g, rooms_here in enumerate(choices.rooms):
        for index, part in enumerate(rooms_here):
            inside = {m: z for (m, where, k), z in v.resident.items() if (where, k) == (g, index)}
            taken = cp_model.LinearExpr.weighted_sum([*inside.values()], [part.demand[m] for m in inside])
            model.add(taken <= part.capacity).with_name(f"memory_for_ever[{g},{index}]")
