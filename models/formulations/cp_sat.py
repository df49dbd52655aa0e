"""The joint problem in CP-SAT: placement, order, loads, residencies and evictions in one model.

Per task and GPU there is an optional interval. Residencies are chains of needs: a need *misses* (its memory is held
from the start of a load), is *initial* (held from time 0) or *hits* (held from the end of the need before it).
Each need so holds a piece of memory that lasts until its task ends, and the pieces of a residency join seamlessly.
The lowest task of a batch leads it; only the leader has needs, and its length follows the number of members. Where
shares let tasks run beside each other, needs follow one another by their starts, and a piece lasts at least until its
task ends, maybe for no time.

What is proved elsewhere stands in the model, too: a bound, floors of the first jobs, and surcharges above a bound. The
objective alone notices that a job waits only once nearly all orders are fixed. A bound from elsewhere knows what
waiting costs; what a plan pays above it tells much earlier that the plan cannot be good enough.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby, pairwise
from math import gcd

from ortools.sat.python import cp_model

from truenorth.models.features import SEVERAL_AT_A_TIME, Feature, require
from truenorth.models.formulations.allowance import UNLIMITED, Allowance
from truenorth.models.formulations.choices import Choices
from truenorth.models.formulations.cp_sat_residency import (
    fit_memory,
    follow_on_the_same_gpu,
    hold_one_copy_per_gpu,
    limit_replicas,
    load_before_start,
    load_one_model_at_a_time,
    never_swap,
    serve_each_need,
)
from truenorth.models.formulations.cp_sat_variables import CpSatVariables, Pair
from truenorth.models.formulations.equal_jobs import ordered_tasks
from truenorth.models.formulations.orders import batch_of, batch_times, led_by, overlapping, share_of
from truenorth.models.formulations.scale import ScaledObjective
from truenorth.models.formulations.windows import Limits, Surcharges, Windows, gap_matrix, horizon_us, time_windows
from truenorth.models.instance import NONE, Instance
from truenorth.models.objective import Objective, Term, charges, timeline_value
from truenorth.models.timeline import Timeline
from truenorth.models.workload import WHOLE

SUPPORTS = SEVERAL_AT_A_TIME | {Feature.DELAYS}

_TERM_BYTES, _TERM_S = 1_500, 1.5e-5
"""What a variable or constraint takes to build and to hand over, and in the solver, as measured."""


@dataclass(frozen=True, slots=True)
class CpSatFormulation:
    """A built model with what is needed to hint it and to read its solutions.

    Parameters
    ----------
    incumbent
        Scaled value that every solution respects, or None.
    surcharges
        What the model knows of a bound from elsewhere, or None.
    """

    model: cp_model.CpModel
    variables: CpSatVariables
    choices: Choices
    objective: ScaledObjective
    incumbent: int | None
    surcharges: Surcharges | None


def formulate(instance: Instance, objective: Objective, known: Timeline | None = None) -> CpSatFormulation:
    """Return the model of an instance.

    Parameters
    ----------
    known
        A feasible timeline: the model then holds only plans no worse than it, and what it proves is
        min(bound, value of that timeline).
    """
    scaled = scaled_objective(instance, objective, known)
    limit = None if known is None else scaled.floor(timeline_value(objective, instance, known))
    return formulate_scaled(instance, scaled, limit, known)


def scaled_objective(instance: Instance, objective: Objective, known: Timeline | None) -> ScaledObjective:
    """Return an objective in whole numbers that hold every plan up to the horizon."""
    return ScaledObjective.of(objective, instance, _horizon_us(instance, known))


def formulate_scaled(
    instance: Instance,
    scaled: ScaledObjective,
    limit: int | None,
    known: Timeline | None,
    floors: Sequence[int] = (),
    limits: Limits | None = None,
    least: int = 0,
    allowance: Allowance = UNLIMITED,
) -> CpSatFormulation:
    """Return the model of an instance for an objective in whole numbers.

    Parameters
    ----------
    limit
        Scaled value that no plan exceeds; None: any.
    known
        A feasible timeline within the limit, or None.
    floors
        Scaled sums that the first 0, 1, 2, ... jobs cannot go below.
    limits
        Further limits on plans within the limit.
    least
        Scaled value that no plan goes below, if the objective is a maximum.
    allowance
        What building it may take.

    Raises
    ------
    GivenUpError
        If it takes more.

    Notes
    -----
    Invariant: with a limit the model holds all plans of at most that value, and no proof says more than min(bound,
        limit).
    Because: windows, floors, limits and surcharges are consequences of the limit, never of the search.
    If wrong: unsound. `solvers/exact/cp_sat.py` reports what is proved as a bound of the instance.
    """
    windows = time_windows(instance, scaled, limit, _horizon_us(instance, known), floors, limits)
    surcharges = None if limits is None else limits.surcharges
    model, variables, choices = _constrain(instance, windows, scaled, surcharges, allowance)
    respect_floors(model, variables, scaled, floors)
    respect_bound(model, variables, least)
    add_up_lengths(model, variables, scaled, choices)
    pay_surcharges(model, variables, scaled, surcharges)
    model.minimize(_add_up(model, variables, choices, scaled))
    return CpSatFormulation(model, variables, choices, scaled, limit, surcharges)


def formulate_within(
    instance: Instance, objective: Objective, most: Fraction | None, allowance: Allowance = UNLIMITED
) -> CpSatFormulation:
    """Return the model of all plans of at most some value, with nothing to minimise and nothing redundant about costs.

    Parameters
    ----------
    most
        The value, for which the windows leave room; None: any.
    allowance
        What building it may take.

    Raises
    ------
    GivenUpError
        If it takes more.
    """
    scaled = scaled_objective(instance, objective, None)
    limit = None if most is None else scaled.floor(most)
    windows = time_windows(instance, scaled, limit, horizon_us(instance))
    model, variables, choices = _constrain(instance, windows, scaled, None, allowance)
    cost = _add_up(model, variables, choices, scaled)
    if limit is not None:
        model.add(cost <= limit).with_name("within")
    return CpSatFormulation(model, variables, choices, scaled, limit, None)


def _constrain(
    instance: Instance, windows: Windows, scaled: ScaledObjective, surcharges: Surcharges | None, allowance: Allowance
) -> tuple[cp_model.CpModel, CpSatVariables, Choices]:
    """Return a model of all plans inside the windows."""
    require(instance, "CP-SAT", SUPPORTS)
    choices = Choices.of(instance, windows, allowance)
    allowance.fit(count_terms(choices), _TERM_BYTES, _TERM_S)
    model = cp_model.CpModel()
    variables = CpSatVariables(model, choices, scaled, surcharges)
    # One family may take long on a large window: the clock is looked at between them.
    for constrain in CONSTRAINTS:
        allowance.go_on()
        constrain(model, variables, choices)
    order_equal_jobs(model, variables, instance, scaled.objective)
    return model, variables, choices


def count_terms(choices: Choices) -> int:
    """Return about how many variables and constraints a model will have: ways to run, to receive inputs, to follow."""
    gpus = [len(row) for row in choices.gpus]
    runs = sum(gpus) + sum(gpus[task] for task, _ in choices.needs)
    pairs = [(choices.needs[a][0], choices.needs[b][0]) for a, b in choices.follows] + [*choices.joins]
    beside = sum(2 + gpus[a] + gpus[b] for a, b in pairs)
    inputs = (
        2 + gpus[before] * (1 + gpus[task])
        for task in range(choices.instance.n_tasks)
        for before, _ in choices.instance.task_inputs(task)
    )
    return 8 * runs + beside + sum(inputs)


def _horizon_us(instance: Instance, known: Timeline | None) -> int:
    return max(horizon_us(instance), 0 if known is None else int(known.end_us.max()))


def run_each_task_once(model: cp_model.CpModel, v: CpSatVariables, choices: Choices) -> None:
    """T1: a task runs on one GPU, inside its window there.

    sum_g x_tg = 1;  x_tg => earliest_tg <= s_t,  e_t <= latest_tg.
    """
    windows = choices.windows
    for task, gpus in enumerate(choices.gpus):
        model.add_exactly_one(v.assign[task, g] for g in gpus).with_name(f"one_gpu[{task}]")
        first = min(int(windows.earliest_start_us[task, g]) for g in gpus)
        last = max(int(windows.latest_end_us[task, g]) for g in gpus)
        for g in gpus:
            earliest, latest = int(windows.earliest_start_us[task, g]), int(windows.latest_end_us[task, g])
            # The variable's own bounds say the rest: a literal is only spent where GPUs differ.
            if earliest > first:
                named = model.add(v.start[task] >= earliest).with_name(f"earliest[{task},{g}]")
                named.only_enforce_if(v.assign[task, g])
            if latest < last:
                named = model.add(v.end[task] <= latest).with_name(f"latest[{task},{g}]")
                named.only_enforce_if(v.assign[task, g])


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


def run_one_task_at_a_time(model: cp_model.CpModel, v: CpSatVariables, choices: Choices) -> None:
    """T3, R5: the runs on a GPU do not overlap; without overlap of loads and compute neither do runs and loads.

    no_overlap_t run_tg;  with shares (T3c) cumulative_t run_tg, demand the share, a load's all, capacity 1.
    """
    for g in range(choices.instance.n_gpus):
        runs = {task: interval for (task, where), interval in v.run.items() if where == g}
        loads = [] if choices.instance.overlap_loads else [load for (_, where), load in v.load.items() if where == g]
        if not overlapping(choices.instance):
            model.add_no_overlap([*runs.values(), *loads]).with_name(f"compute_engine[{g}]")
            continue
        demands = [share_of(choices.instance, task) for task in runs] + [WHOLE] * len(loads)
        # Demands as small as can be: the solver multiplies them with microseconds.
        unit = gcd(WHOLE, *demands)
        engine = model.add_cumulative([*runs.values(), *loads], [share // unit for share in demands], WHOLE // unit)
        engine.with_name(f"compute_engine[{g}]")


def run_no_more_tasks_than_gpus(model: cp_model.CpModel, v: CpSatVariables, choices: Choices) -> None:
    """Redundant: tasks that may run on a set of GPUs only never outnumber it; nothing is said of batch classes.

    cumulative over the tasks t whose GPUs lie in G: [s_t, s_t + shortest run time), demand the share, capacity |G|.

    Notes
    -----
    Invariant: every plan satisfies it, so it cuts off none.
    Because: at an instant the tasks of a pool run on its GPUs alone, each for at least its shortest time; batches share
        a run, and are left out.
    Cost: one cumulative per set of GPUs; its relaxation is what CP-SAT knows of load before it has placed anything.
    If wrong: unsound; without it weaker (the objective notices queues only once tasks are placed).
    """
    alone = [batch_of(choices.instance, task) == NONE for task in range(choices.instance.n_tasks)]
    unit = gcd(WHOLE, *choices.instance.template_share.tolist())
    shortest = [min(choices.instance.run_time(t, g) for g in gpus) for t, gpus in enumerate(choices.gpus)]
    for pool in sorted({gpus for gpus in choices.gpus if len(gpus) > 1}):
        tasks = [task for task, gpus in enumerate(choices.gpus) if set(gpus) <= set(pool) and alone[task]]
        demands = [share_of(choices.instance, task) // unit for task in tasks]
        # Where all of them fit at once the constraint would say nothing.
        if sum(demands) > len(pool) * WHOLE // unit:
            runs = [model.new_fixed_size_interval_var(v.start[t], shortest[t], f"pooled[{t},{pool}]") for t in tasks]
            model.add_cumulative(runs, demands, len(pool) * WHOLE // unit).with_name(f"pool{list(pool)}")


def wait_for_inputs(model: cp_model.CpModel, v: CpSatVariables, choices: Choices) -> None:
    """T2: a task starts after each predecessor p has ended, the delay has passed and its output has arrived.

    s_t >= e_p + min over GPUs;  x_pg and not x_tg => s_t >= e_p + min over other GPUs;
    x_pg and x_th => s_t >= e_p + gap_gh where that is longer. A gap is delay and transfer; on one GPU the delay alone.
    """
    for task, targets in enumerate(choices.gpus):
        for before, edge in choices.instance.task_inputs(task):
            gap = gap_matrix(choices.instance, edge)
            sources = choices.gpus[before]
            # From the weakest to the strongest, each only where it says more.
            least = min(int(gap[g, h]) for g in sources for h in targets)
            model.add(v.start[task] >= v.end[before] + least).with_name(f"precedence[{before},{task}]")
            for g in sources:
                others = [h for h in targets if h != g]
                apart = min((int(gap[g, h]) for h in others), default=0)
                away = [v.assign[before, g], *([v.assign[task, g].negated()] if g in targets else [])]
                if apart > least:
                    named = model.add(v.start[task] >= v.end[before] + apart).with_name(
                        f"transfer[{before},{task},{g}]"
                    )
                    named.only_enforce_if(*away)
                for h in others:
                    if gap[g, h] > max(apart, least):
                        both = [v.assign[before, g], v.assign[task, h]]
                        arrival = v.end[before] + int(gap[g, h])
                        named = model.add(v.start[task] >= arrival).with_name(f"transfer[{before},{task},{g},{h}]")
                        named.only_enforce_if(*both)


def number_equal_gpus(model: cp_model.CpModel, v: CpSatVariables, choices: Choices) -> None:
    """Symmetry: a task runs on the next of equal GPUs only if an earlier task runs on the one before.

    f_tg = f_(t-1)g or x_tg;  x_t(g+1) <= f_(t-1)g.

    Notes
    -----
    Invariant: of the plans that differ by names of equal GPUs exactly one is left.
    Because: sort the GPUs of a group by the first task that runs on each; `renumber` does it to every plan that is
        hinted.
    Cost: tasks x (GPUs of the group) literals.
    If wrong: unsound together with `interchangeable_gpus`; without it slower, by the factorial of the group.
    """
    for group in choices.equal_gpus:
        for g, following in pairwise(group):
            for task in range(choices.instance.n_tasks):
                ran = [v.used[task - 1, g]] if task else []
                here = [v.assign[task, g]] if (task, g) in v.assign else []
                model.add_bool_or(v.used[task, g].negated(), *ran, *here).with_name(f"used[{task},{g}]")
                for literal in ran + here:
                    model.add_implication(literal, v.used[task, g]).with_name(f"used[{task},{g}]")
                if (task, following) in v.assign:
                    ordered = model.add_bool_or(v.assign[task, following].negated(), *ran)
                    ordered.with_name(f"numbered[{task},{following}]")


def order_equal_jobs(model: cp_model.CpModel, v: CpSatVariables, instance: Instance, objective: Objective) -> None:
    """Symmetry: the first tasks of equal jobs start in the order of the jobs.

    s_t <= s_u for the first tasks t, u of two equal jobs, one after the other.

    Notes
    -----
    Invariant: of the plans that differ by names of equal jobs at least one is left, under any names of its GPUs.
    Because: sorting equal jobs by these starts changes no time, so that GPUs can be numbered afterwards, and floors,
        windows and surcharges hold for every plan, so for the sorted one; hints are sorted alike.
    If wrong: unsound together with `equal_jobs`; without it slower, by the factorial of a group.
    """
    for earlier, later in ordered_tasks(instance, objective):
        model.add(v.start[earlier] <= v.start[later]).with_name(f"equal_jobs[{earlier},{later}]")


def complete_jobs(model: cp_model.CpModel, v: CpSatVariables, choices: Choices) -> None:
    """Complete a job when its last tasks have ended.

    C_j >= e_t for the tasks without successors.
    """
    for job, completion in enumerate(v.completion):
        for task in choices.instance.tasks_of(job):
            if not any(True for _ in choices.instance.task_outputs(task)) and completion is not v.end[task]:
                model.add(completion >= v.end[task]).with_name(f"completion[{job},{task}]")


CONSTRAINTS: tuple[Callable[[cp_model.CpModel, CpSatVariables, Choices], None], ...] = (
    run_each_task_once,
    run_in_batches,
    start_batches_apart,
    run_one_task_at_a_time,
    run_no_more_tasks_than_gpus,
    wait_for_inputs,
    serve_each_need,
    follow_on_the_same_gpu,
    load_before_start,
    load_one_model_at_a_time,
    fit_memory,
    hold_one_copy_per_gpu,
    limit_replicas,
    never_swap,
    number_equal_gpus,
    complete_jobs,
)


def _add_up(
    model: cp_model.CpModel, v: CpSatVariables, choices: Choices, scaled: ScaledObjective
) -> cp_model.LinearExprT:
    """Bind the terms to the completions and return the objective.

    T_j >= C_j - r_j - deadline_j, or C_j <= r_j + deadline_j unless late;  sum_j w_j T_j, or W with W >= w_j T_j.
    """
    due_us = charges(scaled.objective, choices.instance).due_us.tolist()
    for job, (completion, term) in enumerate(zip(v.completion, v.term, strict=True)):
        # Other terms are expressions of the completion already, and a job without weight has none.
        if not isinstance(term, cp_model.IntVar) or scaled.term not in (Term.TARDINESS, Term.LATE):
            continue
        if scaled.term is Term.TARDINESS:
            model.add(term >= completion - due_us[job]).with_name(f"tardiness[{job}]")
        else:
            model.add(completion <= due_us[job]).with_name(f"in_time[{job}]").only_enforce_if(term.negated())
    weighted = [weight * term for weight, term in zip(scaled.weights, v.term, strict=True)]
    if v.worst is None:
        return sum(weighted)
    # Only from below: minimising does the rest.
    for job, cost in enumerate(weighted):
        model.add(v.worst >= cost).with_name(f"worst[{job}]")
    return v.worst


def respect_floors(model: cp_model.CpModel, v: CpSatVariables, scaled: ScaledObjective, floors: Sequence[int]) -> None:
    """Redundant: the first jobs cost no less than they do without the others.

    sum_(j < k) w_j T_j >= floor_k.

    Notes
    -----
    Invariant: every plan satisfies it: jobs that come later take room, they give none.
    Because: a plan of all jobs contains one of the first k, in normal form at no later times (`normal_form.restrict`).
    If wrong: unsound. Floors are proved one after the other, each inside the model with those before.
    """
    for count, floor in enumerate(floors[: len(v.term)]):
        if count > 1:
            cost = sum(weight * term for weight, term in zip(scaled.weights, v.term[:count], strict=False))
            model.add(cost >= floor).with_name(f"floor[{count}]")


def respect_bound(model: cp_model.CpModel, v: CpSatVariables, least: int) -> None:
    """Redundant: the largest weighted term is no less than a bound from elsewhere.

    W >= least.
    """
    if v.worst is not None and least > 0:
        model.add(v.worst >= least).with_name("least")


def add_up_lengths(model: cp_model.CpModel, v: CpSatVariables, scaled: ScaledObjective, choices: Choices) -> None:
    """Redundant, for a maximum: ends by lengths and, for the makespan, GPUs by what they run, where GPUs differ.

    e_t = s_t + sum_g p_tg x_tg;  W >= w (first_g + sum_t p_tg x_tg), first_g <= W / w;  t runs alone, by itself.

    Notes
    -----
    Invariant: every plan satisfies them.
    Because: a task runs on one GPU; the last one on a GPU ends no sooner than all are run in a row from the earliest.
        Where none runs, nothing but some job's completion bounds W, which is why first_g is no later than any plan's W.
    Cost: a row per task, and per GPU. Without them `max_lp` proves unrelated machines late or not at all; of sums
        neither is proved sooner, and forks are later.
    If wrong: unsound.
    """
    if v.worst is None:
        return
    instance, windows = choices.instance, choices.windows
    sociable = {task for pair in v.join for task in pair}
    differing = [t for t, end in enumerate(v.end) if isinstance(end, cp_model.IntVar) and t not in sociable]
    for task in differing:
        lasts = sum(instance.run_time(task, g) * v.assign[task, g] for g in choices.gpus[task])
        model.add(v.end[task] == v.start[task] + lasts).with_name(f"length[{task}]")
    if scaled.objective is not Objective.MAKESPAN or overlapping(instance):
        return
    least = int(windows.completion_lower_us.max())
    for g in range(instance.n_gpus):
        tasks = [task for task in differing if g in choices.gpus[task]]
        if tasks:
            first = min(least, *(int(windows.earliest_start_us[task, g]) for task in tasks))
            work = sum(instance.run_time(task, g) * v.assign[task, g] for task in tasks)
            model.add(v.worst >= scaled.weights[0] * (first + work)).with_name(f"work[{g}]")


def pay_surcharges(
    model: cp_model.CpModel, v: CpSatVariables, scaled: ScaledObjective, surcharges: Surcharges | None
) -> None:
    """Redundant: the objective is at least the bound and what the jobs pay above it.

    l_tk <=> s_t on step k;  R_j >= sum_k (least_tk - least_t(k-1)) l_tk;  sum_j R_j <= spare;
    sum_j w_j T_j >= base + sum_j R_j.

    Notes
    -----
    Invariant: every plan within the limit satisfies it.
    Because: base and steps come from a Lagrangian bound: with its prices a plan costs at least the base, and a task
        that starts on a step at least that much more; each direction of a task is a staircase, of which the highest
        step counts.
    Cost: two reified bounds per step.
    If wrong: unsound, since `spare` then forbids plans that are good enough; without it the objective is blind to
        orders.
    """
    if surcharges is None:
        return
    for step, literal in v.step.items():
        start, time, name = v.start[step.task], step.time_us, f"step[{step.task},{step.time_us}]"
        # Both ways, or a step could be left untaken for nothing.
        on, off = (start >= time, start < time) if step.late else (start <= time, start > time)
        model.add(on).with_name(name).only_enforce_if(literal)
        model.add(off).with_name(name).only_enforce_if(literal.negated())
    for job, surcharge in v.surcharge.items():
        for (task, late), steps in groupby(surcharges.steps[job], key=lambda step: (step.task, step.late)):
            # Steps grow outwards, so what is paid on one is what it adds to those below.
            climbed, paid = 0, []
            for step in steps:
                paid.append((step.least - climbed) * v.step[step])
                climbed = step.least
            model.add(surcharge >= sum(paid)).with_name(f"paid[{task},{late}]")
    total = sum(v.surcharge.values())
    model.add(total <= surcharges.spare).with_name("spare")
    cost = sum(weight * term for weight, term in zip(scaled.weights, v.term, strict=True))
    model.add(cost >= surcharges.base + total).with_name("surcharged")
