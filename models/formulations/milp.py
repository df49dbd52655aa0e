"""The joint problem as a mixed-integer linear program: the twin of the CP-SAT formulation, family by family.

The same decisions carry the same names, and every function stands for the constraint of its name there. Where CP-SAT
has intervals there is an order: of runs, of loads, of the end of a residency and a load. An order that is chosen
separates two times; one that is not is made void by a bound on their difference, as small as the time windows
allow. For fixed orders only differences of times are left, so whole microseconds lose nothing.

PuLP writes underscores for brackets: ``one_gpu[3]`` is ``one_gpu_3_`` in a dump.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, pairwise

import pulp

from truenorth.models.features import ONE_AT_A_TIME, Feature, require
from truenorth.models.formulations.allowance import UNLIMITED, Allowance
from truenorth.models.formulations.choices import Choices
from truenorth.models.formulations.equal_jobs import ordered_tasks
from truenorth.models.formulations.milp_problem import complete_jobs, minimise, new_problem
from truenorth.models.formulations.milp_residency import (
    fit_memory,
    follow_on_the_same_gpu,
    hold_one_copy_per_gpu,
    limit_replicas,
    load_before_start,
    load_one_model_at_a_time,
    never_swap,
    serve_each_need,
)
from truenorth.models.formulations.milp_variables import MilpVariables, Pairs, first_start, last_end, last_start, loaded
from truenorth.models.formulations.scale import ScaledObjective
from truenorth.models.formulations.windows import gap_matrix, horizon_us, time_windows
from truenorth.models.instance import Instance
from truenorth.models.objective import Objective, timeline_value
from truenorth.models.timeline import Timeline

SUPPORTS = ONE_AT_A_TIME | {Feature.DELAYS}
"""Orders of pairs say little about what runs beside what."""


@dataclass(frozen=True, slots=True)
class MilpFormulation:
    """A built problem with what is needed to start it and to read its solutions.

    Parameters
    ----------
    incumbent
        Scaled value that every solution respects, or None.
    """

    problem: pulp.LpProblem
    variables: MilpVariables
    choices: Choices
    objective: ScaledObjective
    incumbent: int | None


def formulate(
    instance: Instance,
    objective: Objective,
    known: Timeline | None = None,
    allowance: Allowance = UNLIMITED,
    most: Fraction | None = None,
) -> MilpFormulation:
    """Return the problem of an instance.

    Parameters
    ----------
    known
        A feasible timeline: the problem then holds only plans no worse than it, and what it proves is
        min(bound, value of that timeline).
    allowance
        What building it may take.
    most
        In place of that plan: the problem holds only plans of at most this value, for which the windows leave room.

    Raises
    ------
    GivenUpError
        If it takes more.
    """
    require(instance, "the MILP", SUPPORTS)
    horizon = max(horizon_us(instance), 0 if known is None else int(known.end_us.max()))
    scaled = ScaledObjective.of(objective, instance, horizon)
    within = None if most is None else scaled.floor(most)
    limit = within if known is None else scaled.floor(timeline_value(objective, instance, known))
    choices = Choices.of(instance, time_windows(instance, scaled, limit, horizon), allowance)
    problem = new_problem(allowance)
    variables = MilpVariables(problem, choices, scaled)
    for constrain in CONSTRAINTS:
        constrain(problem, variables, choices)
    order_equal_jobs(problem, variables, instance, objective)
    minimise(problem, variables, choices, scaled, within)
    return MilpFormulation(problem, variables, choices, scaled, limit)


def order_equal_jobs(problem: pulp.LpProblem, v: MilpVariables, instance: Instance, objective: Objective) -> None:
    """Symmetry: the first tasks of equal jobs start in the order of the jobs.

    s_t <= s_u for the first tasks t, u of two equal jobs, one after the other.
    """
    for earlier, later in ordered_tasks(instance, objective):
        problem.addConstraint(v.start[earlier] <= v.start[later], f"equal_jobs[{earlier},{later}]")


def run_each_task_once(problem: pulp.LpProblem, v: MilpVariables, choices: Choices) -> None:
    """T1: a task runs on one GPU, inside its window there.

    sum_g x_tg = 1;  sum_g earliest_tg x_tg <= s_t;  e_t <= sum_g latest_tg x_tg.
    """
    windows = choices.windows
    for task, gpus in enumerate(choices.gpus):
        earliest = {g: v.units.time(int(windows.earliest_start_us[task, g])) for g in gpus}
        latest = {g: v.units.time(int(windows.latest_end_us[task, g])) for g in gpus}
        problem.addConstraint(pulp.lpSum(v.assign[task, g] for g in gpus) == 1, f"one_gpu[{task}]")
        first = pulp.lpSum(time * v.assign[task, g] for g, time in earliest.items())
        problem.addConstraint(v.start[task] >= first, f"earliest[{task}]")
        last = pulp.lpSum(time * v.assign[task, g] for g, time in latest.items())
        problem.addConstraint(v.end[task] <= last, f"latest[{task}]")


def run_one_task_at_a_time(problem: pulp.LpProblem, v: MilpVariables, choices: Choices) -> None:
    """T3, R5: the runs on a GPU do not overlap; without overlap of loads and compute neither do runs and loads.

    b_tu + b_ut >= x_tg + x_ug - 1;  b_tu + b_ut <= 1;  s_u >= e_t - M (1 - b_tu).
    """
    pairs = Pairs.of(choices)
    for t, u in combinations(range(choices.instance.n_tasks), 2):
        order = [v.before[pair] for pair in ((t, u), (u, t)) if pair in v.before]
        # Inputs or windows order them already; where no order is left they may not share a GPU.
        if not order and (pairs.keeps_apart(t, u) or pairs.keeps_apart(u, t)):
            continue
        for g in set(choices.gpus[t]) & set(choices.gpus[u]):
            together = v.assign[t, g] + v.assign[u, g] - 1
            problem.addConstraint(pulp.lpSum(order) >= together, f"compute_engine[{t},{u},{g}]")
        if len(order) > 1:
            problem.addConstraint(pulp.lpSum(order) <= 1, f"one_order[{t},{u}]")
    for (t, u), before in v.before.items():
        # The widest that windows let the second start before the first ends: any larger number weakens the relaxation.
        if not pairs.keeps_apart(t, u):
            apart = last_end(choices, t) - first_start(choices, u)
            earliest = v.end[t] - v.units.time(apart) * (1 - before)
            problem.addConstraint(v.start[u] >= earliest, f"run_order[{t},{u}]")
    _run_or_load(problem, v, choices)


def _run_or_load(problem: pulp.LpProblem, v: MilpVariables, choices: Choices) -> None:
    """R5: a run and a load that share a compute engine do not overlap.

    d_tu + d_ut >= x_tg + m_ug - 1;  q_u >= e_t - M (1 - d_tu);  s_t >= q_u + load_u - M (1 - d_ut).
    """
    for t, u in Pairs.of(choices).blocking():
        order = [v.run_before_load[t, u]] if (t, u) in v.run_before_load else []
        order += [v.load_before_run[u, t]] if (u, t) in v.load_before_run else []
        for g in set(choices.gpus[t]) & set(choices.gpus[choices.needs[u][0]]):
            together = v.assign[t, g] + v.miss[u, g] - 1
            problem.addConstraint(pulp.lpSum(order) >= together, f"run_or_load[{t},{u},{g}]")
    for (t, u), before in v.run_before_load.items():
        earliest = v.end[t] - v.units.time(last_end(choices, t)) * (1 - before)
        problem.addConstraint(v.hold[u] >= earliest, f"run_before_load[{t},{u}]")
    # Where windows leave nothing to bridge, the order says nothing.
    for (u, t), before in v.load_before_run.items():
        apart = last_start(choices, choices.needs[u][0]) - first_start(choices, t)
        if apart > 0:
            earliest = loaded(v, choices, u) - v.units.time(apart) * (1 - before)
            problem.addConstraint(v.start[t] >= earliest, f"load_before_run[{u},{t}]")


def run_no_more_tasks_than_gpus(problem: pulp.LpProblem, v: MilpVariables, choices: Choices) -> None:
    """Redundant: tasks that may run on a set of GPUs only never outnumber it.

    For tasks S that start from r on and may run on m GPUs only, with shortest run times p (Queyranne's inequality):
    sum_S p_t s_t >= r P + P^2 / (2 m) - sum_S p_t^2 / 2  where  P = sum_S p_t.
    Sets S are those whose earliest starts lie in an interval; rows that the earliest starts imply are left out.

    Notes
    -----
    Invariant: every plan satisfies it.
    Because: on m machines the work P of tasks that start from r on cannot be done sooner than m machines that begin at
        r and never idle do it; weighted starts are then least (Queyranne 1993, Schulz 1996).
    Cost: a row per interval of earliest starts, of which only those are added that say more than the starts do.
    If wrong: unsound; without it the relaxation lets all tasks start at once.
    """
    shortest = [min(choices.instance.run_time(t, g) for g in gpus) for t, gpus in enumerate(choices.gpus)]
    earliest = [first_start(choices, t) for t in range(choices.instance.n_tasks)]
    for pool in sorted({gpus for gpus in choices.gpus if len(gpus) > 1}):
        tasks = [task for task, gpus in enumerate(choices.gpus) if set(gpus) <= set(pool)]
        tasks.sort(key=lambda task: (earliest[task], task))
        for first in range(len(tasks) - len(pool)):
            work = squares = known = 0
            for last in range(first, len(tasks)):
                run = shortest[tasks[last]]
                work, squares, known = work + run, squares + run**2, known + run * earliest[tasks[last]]
                least = Fraction(work**2, 2 * len(pool)) + earliest[tasks[first]] * work - Fraction(squares, 2)
                if least > known:
                    inside = tasks[first : last + 1]
                    weighted = pulp.lpSum(shortest[task] / work * v.start[task] for task in inside)
                    row = weighted >= float(least / work / 2**v.units.time_bits)
                    problem.addConstraint(row, f"pool{list(pool)}[{first},{last}]")


def wait_for_inputs(problem: pulp.LpProblem, v: MilpVariables, choices: Choices) -> None:
    """T2: a task starts after each predecessor p has ended, the delay has passed and its output has arrived.

    For every GPU g of p:  s_t >= e_p + sum_h gap_gh x_th - sum_k x_pk max_h (gap_gh - gap_kh).
    """
    for task, targets in enumerate(choices.gpus):
        for before, edge in choices.instance.task_inputs(task):
            gap = gap_matrix(choices.instance, edge)
            for g in choices.gpus[before]:
                arrival = [v.units.time(int(gap[g, h])) * v.assign[task, h] for h in targets]
                # If another GPU than g ran it, the row must not ask for more than that one's transfer.
                excess = [
                    v.units.time(max(int(gap[g, h] - gap[k, h]) for h in targets)) * v.assign[before, k]
                    for k in choices.gpus[before]
                    if k != g
                ]
                earliest = v.end[before] + pulp.lpSum(arrival) - pulp.lpSum(excess)
                problem.addConstraint(v.start[task] >= earliest, f"transfer[{before},{task},{g}]")


def number_equal_gpus(problem: pulp.LpProblem, v: MilpVariables, choices: Choices) -> None:
    """Symmetry: a task runs on the next of equal GPUs only if an earlier task runs on the one before.

    f_tg <= f_(t-1)g + x_tg;  f_tg >= f_(t-1)g, x_tg;  x_t(g+1) <= f_(t-1)g.
    """
    for group in choices.equal_gpus:
        for g, following in pairwise(group):
            for task in range(choices.instance.n_tasks):
                ran = [v.used[task - 1, g]] if task else []
                here = [v.assign[task, g]] if (task, g) in v.assign else []
                problem.addConstraint(v.used[task, g] <= pulp.lpSum(ran + here), f"used[{task},{g}]")
                for why, literal in [*(("ran", r) for r in ran), *(("here", h) for h in here)]:
                    problem.addConstraint(v.used[task, g] >= literal, f"used_{why}[{task},{g}]")
                if (task, following) in v.assign:
                    numbered = v.assign[task, following] <= pulp.lpSum(ran)
                    problem.addConstraint(numbered, f"numbered[{task},{following}]")


CONSTRAINTS: tuple[Callable[[pulp.LpProblem, MilpVariables, Choices], None], ...] = (
    run_each_task_once,
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
