"""Batches in CP-SAT: the lowest task of a batch leads it, and its length follows the number of members."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ortools.sat.python import cp_model

from truenorth.models.formulations.choices import Choices
from truenorth.models.formulations.orders import batch_of, batch_times, led_by, memory_of, share_of
from truenorth.models.instance import NONE
from truenorth.models.workload import WHOLE

if TYPE_CHECKING:
    from truenorth.models.formulations.cp_sat_variables import CpSatVariables

Key = tuple[int, int]


@dataclass(frozen=True, slots=True)
class BatchVariables:
    """The decisions about batches; see `cp_sat_variables.Variables`."""

    carry: dict[Key, cp_model.IntVar]
    join: dict[Key, cp_model.IntVar]
    size: dict[Key, cp_model.IntVar]
    length: dict[int, cp_model.IntVar]


def declare_batches(model: cp_model.CpModel, choices: Choices, assign: dict[Key, cp_model.IntVar]) -> BatchVariables:
    """Return who leads and joins; where nobody can lead a task, it leads wherever it is assigned."""
    members = {member for _, member in choices.joins}
    carry = {
        (task, g): model.new_bool_var(f"carry[{task},{g}]") if task in members else literal
        for (task, g), literal in assign.items()
    }
    size: dict[Key, cp_model.IntVar] = {}
    length: dict[int, cp_model.IntVar] = {}
    for task, followers in led_by(choices.joins).items():
        most = choices.most_with(task, len(followers))
        times = [time for g in choices.gpus[task] for time in batch_times(choices.instance, task, g, most)]
        size |= {(task, count): model.new_bool_var(f"size[{task},{count}]") for count in range(1, most + 1)}
        length[task] = model.new_int_var(min(times), max(times), f"length[{task}]")
    join = {(a, b): model.new_bool_var(f"join[{a},{b}]") for a, b in choices.joins}
    return BatchVariables(carry, join, size, length)


def declare_working(
    model: cp_model.CpModel, choices: Choices, start: list[cp_model.IntVar], end: list[cp_model.LinearExprT]
) -> dict[int, cp_model.IntVar]:
    """Return for how long tasks hold memory of their own."""
    last = int(choices.windows.latest_end_us.max())
    holding = [task for task in range(choices.instance.n_tasks) if memory_of(choices.instance, task)]
    working = {task: model.new_int_var(1, last, f"working[{task}]") for task in holding}
    for task, lasts in working.items():
        model.add(lasts + start[task] == end[task]).with_name(f"working[{task}]")
    return working


def declare_work(
    model: cp_model.CpModel,
    choices: Choices,
    assign: dict[Key, cp_model.IntVar],
    working: dict[int, cp_model.IntVar],
    start: list[cp_model.IntVar],
    end: list[cp_model.LinearExprT],
) -> dict[Key, cp_model.IntervalVar]:
    """Return the intervals in which tasks hold memory of their own."""
    return {
        (task, g): model.new_optional_interval_var(start[task], lasts, end[task], assign[task, g], f"work[{task},{g}]")
        for task, lasts in working.items()
        for g in choices.gpus[task]
    }


def declare_stays(
    model: cp_model.CpModel, choices: Choices, resident: dict[tuple[int, int, int], cp_model.IntVar]
) -> dict[tuple[int, int, int], tuple[cp_model.IntVar, cp_model.IntVar, cp_model.IntervalVar]]:
    """Return from when on a model stays as long as its GPU, where tasks hold memory beside it or GPUs go."""
    if choices.instance.always_available and not choices.instance.template_memory.any():
        return {}
    stays = {}
    for place, literal in resident.items():
        name, last = ",".join(map(str, place)), choices.last_us(place[1])
        since = model.new_int_var(0, last, f"since[{name}]")
        lasts = model.new_int_var(0, last, f"lasts[{name}]")
        stays[place] = since, lasts, model.new_optional_interval_var(since, lasts, last, literal, f"stay[{name}]")
    return stays


def run_in_batches(model: cp_model.CpModel, v: CpSatVariables, choices: Choices) -> None:
    """T3b: a task leads its batch or joins one; members share GPU, start and end, and the length follows their number.

    sum_g c_bg + sum_a j_ab = 1;  c_bg <= x_bg;  sum_n k_an = sum_g c_ag;  sum_n n k_an = sum_g c_ag + sum_b j_ab;
    c_ag and k_an => p_a = time of n on g;  j_ab => s_a = s_b, e_a = e_b, x_ag = x_bg.
    """
    joining: dict[int, list[cp_model.IntVar]] = {}
    for (_, member), literal in v.join.items():
        joining.setdefault(member, []).append(literal)
    for b, joined in sorted(joining.items()):
        leading = [v.carry[b, g] for g in choices.gpus[b]]
        model.add_exactly_one(leading + joined).with_name(f"leads_or_joins[{b}]")
        for g in choices.gpus[b]:
            model.add_implication(v.carry[b, g], v.assign[b, g]).with_name(f"leads_where_run[{b},{g}]")
    for a, members in led_by(choices.joins).items():
        leads = sum(v.carry[a, g] for g in choices.gpus[a])
        counts = range(1, choices.most_with(a, len(members)) + 1)
        model.add(sum(v.size[a, n] for n in counts) == leads).with_name(f"one_size[{a}]")
        followers = sum(v.join[a, b] for b in members)
        model.add(sum(n * v.size[a, n] for n in counts) == leads + followers).with_name(f"size[{a}]")
        for g in choices.gpus[a]:
            times = batch_times(choices.instance, a, g, counts[-1])
            lasts = sum(time * v.size[a, n] for n, time in enumerate(times, 1))
            model.add(v.length[a] == lasts).with_name(f"length[{a},{g}]").only_enforce_if(v.carry[a, g])
            for n in counts[len(times) :]:
                model.add_bool_or(v.carry[a, g].negated(), v.size[a, n].negated()).with_name(f"fits[{a},{g},{n}]")
    for (a, b), join in v.join.items():
        model.add(v.start[a] == v.start[b]).with_name(f"together[{a},{b}]").only_enforce_if(join)
        model.add(v.end[a] == v.end[b]).with_name(f"end_together[{a},{b}]").only_enforce_if(join)
        for one, other in ((a, b), (b, a)):
            for g in choices.gpus[one]:
                there = [v.assign[other, g]] if g in choices.gpus[other] else []
                same = model.add_bool_or(join.negated(), v.assign[one, g].negated(), *there)
                same.with_name(f"batch_on_one_gpu[{a},{b},{g}]")


def start_batches_apart(model: cp_model.CpModel, v: CpSatVariables, choices: Choices) -> None:
    """T3b: batches of one class that can run beside each other start at least 1 us apart.

    no_overlap over leaders t of the class: [s_t, s_t + 1) if c_tg.
    """
    classes: dict[Key, list[cp_model.IntervalVar]] = {}
    for (task, g), literal in v.carry.items():
        batch = batch_of(choices.instance, task)
        if batch != NONE and 2 * share_of(choices.instance, task) <= WHOLE:
            instant = model.new_optional_fixed_size_interval_var(v.start[task], 1, literal, f"instant[{task},{g}]")
            classes.setdefault((batch, g), []).append(instant)
    for (batch, g), instants in classes.items():
        model.add_no_overlap(instants).with_name(f"starts_apart[{batch},{g}]")
