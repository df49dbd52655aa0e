"""Batches in CP-SAT: the lowest task of a batch leads it, and its length follows the number of members."""

from __future__ import annotations

from ortools.sat.python import cp_model

from truenorth.models.formulations.choices import Choices
from truenorth.models.formulations.cp_sat_variables import CpSatVariables, Pair
from truenorth.models.formulations.orders import batch_of, batch_times, led_by, share_of
from truenorth.models.instance import NONE
from truenorth.models.workload import WHOLE


def run_in_batches(model: cp_model.CpModel, v: CpSatVariables, choices: Choices) -> None:
    """T3b: a task leads its batch or joins one; members share GPU, start and end, and the length follows their number.

    sum_g c_bg + sum_a j_ab = 1;  c_bg <= x_bg;  sum_n k_an = sum_g c_ag;  sum_n n k_an = sum_g c_ag + sum_b j_ab;
    c_ag and k_an => p_a = time of n on g;  j_ab => s_a = s_b, e_a = e_b, x_ag = x_bg.

    Notes
    -----
    Invariant: every batch has one leader, its lowest task; engines, memory and residencies see leaders alone.
    Because: members start, end and stay together, so that one interval stands for them all; the lowest leads, or a
        batch of n would be n! models of the same plan.
    Cost: a literal per pair that can join, and per leader and size.
    If wrong: unsound if `joins` lacks a pair, loud if lengths do not follow the sizes.
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
            # Another GPU of its may take more of them at once.
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

    Notes
    -----
    Rule T3b tells batches of one class by their starts: two that start together on a GPU would be one batch, and
    longer.
    """
    classes: dict[Pair, list[cp_model.IntervalVar]] = {}
    for (task, g), literal in v.carry.items():
        batch = batch_of(choices.instance, task)
        if batch != NONE and 2 * share_of(choices.instance, task) <= WHOLE:
            instant = model.new_optional_fixed_size_interval_var(v.start[task], 1, literal, f"instant[{task},{g}]")
            classes.setdefault((batch, g), []).append(instant)
    for (batch, g), instants in classes.items():
        model.add_no_overlap(instants).with_name(f"starts_apart[{batch},{g}]")
