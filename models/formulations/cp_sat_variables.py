"""The variables of the CP-SAT formulation: a record, and how they are declared inside their time windows."""

from __future__ import annotations

from dataclasses import dataclass

from ortools.sat.python import cp_model

from truenorth.models.formulations.choices import Choices
from truenorth.models.formulations.cp_sat_batches import (
    BatchVariables,
    declare_batches,
    declare_stays,
    declare_work,
    declare_working,
)
from truenorth.models.formulations.orders import overlapping
from truenorth.models.formulations.scale import ScaledObjective
from truenorth.models.formulations.windows import Step, Surcharges
from truenorth.models.objective import Term, charges


@dataclass(frozen=True, slots=True)
class CpSatVariables:
    """The decisions; needs are numbered as in `Choices`, letters as in the constraints.

    Parameters
    ----------
    assign
        (task, GPU): the task runs there (x_tg).
    start, end
        Per task, in microseconds (s_t, e_t).
    run
        (task, GPU): the task's interval there, present if x_tg; that of its batch, present if c_tg.
    carry
        (task, GPU): the task leads its batch there (c_tg); x_tg itself where no other task can lead it.
    join
        (leader, member): the second task runs in the batch of the first (j_ab).
    size
        (task, members): the task leads a batch of so many (k_an); only where it can lead others.
    length
        Per task that can lead others: how long its batch runs (p_a).
    working
        Per task that holds memory of its own: for how long (e_t - s_t).
    work
        (task, GPU): the interval in which the task holds memory of its own, present if x_tg.
    hit
        (before, after): a need follows another in the same residency (h_uv).
    miss
        (need, GPU): the need opens a residency by a load (m_ug).
    initial
        (need, GPU): the need opens an initial residency (i_ug).
    hold
        Per need: since when its memory is held for it (q_u).
    until
        Per need: up to when it holds it (r_u): the end of its task, or a later one where tasks overlap.
    span
        Per need: how long it holds it (r_u - q_u).
    load
        (need, GPU): the load's interval, present if m_ug.
    place
        (need, GPU, room): the residency sits in this room (y_ugk); x_tg itself where there is one room.
    piece
        (need, GPU, room): its interval [q_u, r_u), present if y_ugk.
    resident
        (model, GPU, room): the model is ever there (z_mgk); only without swaps.
    stay
        (model, GPU, room): its start, length and interval, from the load on as long as the GPU is there, present if
        z_mgk; only without swaps, where tasks hold memory or GPUs come and go.
    used
        (task, GPU): this task or one before it runs there (f_tg); only for interchangeable GPUs.
    completion
        Per job (C_j).
    term
        Per job: the term that its weight multiplies (T_j).
    worst
        The largest weighted term, if the objective is a maximum (W).
    surcharge
        Per job that can pay one: what it pays above the bound that the model was given (R_j).
    step
        Per step of the surcharges: the task's start lies on it (l_tk).
    """

    assign: dict[tuple[int, int], cp_model.IntVar]
    start: list[cp_model.IntVar]
    end: list[cp_model.LinearExprT]
    run: dict[tuple[int, int], cp_model.IntervalVar]
    carry: dict[tuple[int, int], cp_model.IntVar]
    join: dict[tuple[int, int], cp_model.IntVar]
    size: dict[tuple[int, int], cp_model.IntVar]
    length: dict[int, cp_model.IntVar]
    working: dict[int, cp_model.IntVar]
    work: dict[tuple[int, int], cp_model.IntervalVar]
    hit: dict[tuple[int, int], cp_model.IntVar]
    miss: dict[tuple[int, int], cp_model.IntVar]
    initial: dict[tuple[int, int], cp_model.IntVar]
    hold: list[cp_model.IntVar]
    until: list[cp_model.LinearExprT]
    span: list[cp_model.IntVar]
    load: dict[tuple[int, int], cp_model.IntervalVar]
    place: dict[tuple[int, int, int], cp_model.IntVar]
    piece: dict[tuple[int, int, int], cp_model.IntervalVar]
    resident: dict[tuple[int, int, int], cp_model.IntVar]
    stay: dict[tuple[int, int, int], tuple[cp_model.IntVar, cp_model.IntVar, cp_model.IntervalVar]]
    used: dict[tuple[int, int], cp_model.IntVar]
    completion: list[cp_model.LinearExprT]
    term: list[cp_model.LinearExprT]
    worst: cp_model.IntVar | None
    surcharge: dict[int, cp_model.IntVar]
    step: dict[Step, cp_model.IntVar]


def declare(
    model: cp_model.CpModel, choices: Choices, scaled: ScaledObjective, surcharges: Surcharges | None
) -> CpSatVariables:
    """Return the variables of a formulation."""
    steps = () if surcharges is None else surcharges.steps
    spare = 0 if surcharges is None else surcharges.spare
    assign = {(t, g): model.new_bool_var(f"assign[{t},{g}]") for t, row in enumerate(choices.gpus) for g in row}
    batches = declare_batches(model, choices, assign)
    start, end, run = _declare_runs(model, choices, assign, batches)
    hold, until, span = _declare_pieces(model, choices, end)
    miss = {
        (need, g): model.new_bool_var(f"miss[{need},{g}]")
        for need, (task, _) in enumerate(choices.needs)
        for g in choices.gpus[task]
    }
    place = _declare_places(model, choices, batches.carry)
    completion, term, worst = _declare_costs(model, choices, scaled, end)
    return CpSatVariables(
        assign,
        start,
        end,
        run,
        batches.carry,
        batches.join,
        batches.size,
        batches.length,
        (working := declare_working(model, choices, start, end)),
        declare_work(model, choices, assign, working, start, end),
        {(a, b): model.new_bool_var(f"hit[{a},{b}]") for a, b in choices.follows},
        miss,
        {(need, g): model.new_bool_var(f"initial[{need},{g}]") for need, g in choices.initial},
        hold,
        until,
        span,
        {
            (need, g): model.new_optional_fixed_size_interval_var(
                hold[need], choices.instance.load_time(choices.needs[need][1], g), present, f"load[{need},{g}]"
            )
            for (need, g), present in miss.items()
        },
        place,
        {
            (need, g, room): model.new_optional_interval_var(
                hold[need], span[need], until[need], present, f"piece[{need},{g},{room}]"
            )
            for (need, g, room), present in place.items()
        },
        (resident := _declare_residents(model, choices)),
        declare_stays(model, choices, resident),
        {
            (task, g): model.new_bool_var(f"used[{task},{g}]")
            for group in choices.equal_gpus
            for g in group[:-1]
            for task in range(choices.instance.n_tasks)
        },
        completion,
        term,
        worst,
        {job: model.new_int_var(0, spare, f"surcharge[{job}]") for job, own in enumerate(steps) if own},
        {
            step: model.new_bool_var(f"{'late' if step.late else 'soon'}[{step.task},{step.time_us}]")
            for own in steps
            for step in own
        },
    )


def _declare_runs(
    model: cp_model.CpModel,
    choices: Choices,
    assign: dict[tuple[int, int], cp_model.IntVar],
    batches: BatchVariables,
) -> tuple[list[cp_model.IntVar], list[cp_model.LinearExprT], dict[tuple[int, int], cp_model.IntervalVar]]:
    """Return starts, ends and intervals; an end is an expression where every GPU takes equally long."""
    sociable = {task for pair in batches.join for task in pair}
    windows, instance = choices.windows, choices.instance
    starts: list[cp_model.IntVar] = []
    ends: list[cp_model.LinearExprT] = []
    run = {}
    for task, gpus in enumerate(choices.gpus):
        times = [instance.run_time(task, g) for g in gpus]
        earliest = [int(windows.earliest_start_us[task, g]) for g in gpus]
        latest = [int(windows.latest_end_us[task, g]) for g in gpus]
        start = model.new_int_var(
            min(earliest), max(end - time for end, time in zip(latest, times, strict=True)), f"start[{task}]"
        )
        end: cp_model.LinearExprT = start + times[0]
        if len(set(times)) > 1 or task in sociable:
            first = min(begin + time for begin, time in zip(earliest, times, strict=True))
            end = model.new_int_var(first, max(latest), f"end[{task}]")
        for g, time in zip(gpus, times, strict=True):
            lasts, present = batches.length.get(task, time), batches.carry[task, g]
            run[task, g] = model.new_optional_interval_var(start, lasts, end, present, f"run[{task},{g}]")
        starts.append(start)
        ends.append(end)
    return starts, ends, run


def _declare_pieces(
    model: cp_model.CpModel, choices: Choices, end: list[cp_model.LinearExprT]
) -> tuple[list[cp_model.IntVar], list[cp_model.LinearExprT], list[cp_model.IntVar]]:
    """Return since when each need holds its memory, until when, and for how long."""
    if overlapping(choices.instance):
        last = int(choices.windows.latest_end_us.max())
        names = range(len(choices.needs))
        until: list[cp_model.LinearExprT] = [model.new_int_var(0, last, f"until[{need}]") for need in names]
        hold = [model.new_int_var(0, last, f"hold[{need}]") for need in names]
        return hold, until, [model.new_int_var(0, last, f"span[{need}]") for need in names]
    hold, span = [], []
    for need, (task, _) in enumerate(choices.needs):
        gpus = choices.gpus[task]
        shortest = min(choices.instance.run_time(task, g) for g in gpus)
        latest_end = max(int(choices.windows.latest_end_us[task, g]) for g in gpus)
        hold.append(model.new_int_var(0, latest_end - shortest, f"hold[{need}]"))
        span.append(model.new_int_var(shortest, latest_end, f"span[{need}]"))
    return hold, [end[task] for task, _ in choices.needs], span


def _declare_places(
    model: cp_model.CpModel, choices: Choices, carry: dict[tuple[int, int], cp_model.IntVar]
) -> dict[tuple[int, int, int], cp_model.IntVar]:
    place = {}
    for need, (task, wanted) in enumerate(choices.needs):
        for g in choices.gpus[task]:
            rooms = choices.rooms_of(wanted, g)
            for room in rooms:
                only = len(rooms) == 1
                place[need, g, room] = carry[task, g] if only else model.new_bool_var(f"place[{need},{g},{room}]")
    return place


def _declare_residents(model: cp_model.CpModel, choices: Choices) -> dict[tuple[int, int, int], cp_model.IntVar]:
    if not choices.instance.restrictions.no_swaps:
        return {}
    places = {
        (wanted, g, room)
        for task, wanted in choices.needs
        for g in choices.gpus[task]
        for room in choices.rooms_of(wanted, g)
    }
    return {(m, g, room): model.new_bool_var(f"resident[{m},{g},{room}]") for m, g, room in sorted(places)}


def _declare_costs(
    model: cp_model.CpModel, choices: Choices, scaled: ScaledObjective, end: list[cp_model.LinearExprT]
) -> tuple[list[cp_model.LinearExprT], list[cp_model.LinearExprT], cp_model.IntVar | None]:
    """Return completions, terms and the largest weighted term; an expression wherever no variable is needed."""
    instance, windows = choices.instance, choices.windows
    least = scaled.terms(instance, windows.completion_lower_us)
    most = scaled.terms(instance, windows.completion_upper_us)
    completion: list[cp_model.LinearExprT] = []
    terms: list[cp_model.LinearExprT] = []
    for job, due in enumerate(charges(scaled.objective, instance).due_us.tolist()):
        sinks = [task for task in instance.tasks_of(job) if not any(True for _ in instance.task_outputs(task))]
        first, last = int(windows.completion_lower_us[job]), int(windows.completion_upper_us[job])
        done = end[sinks[0]] if len(sinks) == 1 else model.new_int_var(first, last, f"completion[{job}]")
        completion.append(done)
        if scaled.term in (Term.COMPLETION, Term.LATENCY):  # nothing completes before these due times
            terms.append(done - due)
        elif scaled.weights[job] == 0:
            terms.append(0)
        elif scaled.term is Term.TARDINESS:
            terms.append(model.new_int_var(least[job], most[job], f"tardiness[{job}]"))
        else:
            terms.append(model.new_bool_var(f"late[{job}]"))
    if scaled.objective.is_sum:
        return completion, terms, None
    worst = model.new_int_var(scaled.combine(least), scaled.combine(most), "worst")
    return completion, terms, worst
