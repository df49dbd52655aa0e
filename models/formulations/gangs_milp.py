"""Runs on several GPUs as a mixed-integer linear program: the twin of their CP-SAT formulation.

The same ways to run a task are chosen from. Where CP-SAT has intervals there is an order: of two runs that share a GPU
one ends before the other starts. In servers of which runs take any GPUs, which ones they are is a decision, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations

import networkx as nx
import numpy as np
import pulp

from truenorth.models.features import MOLDABLE, require
from truenorth.models.formulations.allowance import UNLIMITED, Allowance
from truenorth.models.formulations.equal_jobs import ordered_tasks, sort_equal_jobs
from truenorth.models.formulations.gangs import Option, Precedences, is_pooled, options_of, pools, starts_from
from truenorth.models.formulations.milp_plans import ContradictoryOrderError
from truenorth.models.formulations.milp_problem import MilpCosts, complete_jobs, minimise, new_problem, start_costs
from truenorth.models.formulations.scale import ScaledObjective
from truenorth.models.formulations.windows import horizon_us
from truenorth.models.instance import Instance, Ints
from truenorth.models.objective import Objective, timeline_value
from truenorth.models.timeline import Timeline

SUPPORTS = MOLDABLE


@dataclass(frozen=True, slots=True)
class JobWindows:
    """Times in microseconds between which jobs complete, in some best plan within a limit. Shape [jobs]."""

    completion_lower_us: Ints
    completion_upper_us: Ints


@dataclass(frozen=True, slots=True)
class GangChoices:
    """What the program decides over.

    Parameters
    ----------
    options
        Per task: the ways to run it.
    pooled
        Whether runs take any GPUs of a server.
    precedences
        What tasks wait for.
    """

    instance: Instance
    options: list[list[Option]]
    pooled: bool
    precedences: Precedences
    windows: JobWindows

    @classmethod
    def of(cls, instance: Instance, scaled: ScaledObjective, limit: int | None, horizon: int) -> GangChoices:
        """Return the choices in plans of at most a scaled value that end by a horizon.

        Notes
        -----
        Invariant: no such plan completes a job outside these times.
        Because: a job takes at least its longest way of shortest runs and gaps after its release, and every other one
            costs at least as much as that costs (`latest_completion_us`).
        If wrong: unsound.
        """
        pooled = is_pooled(instance)
        options = [list(options_of(instance, task, pooled)) for task in range(instance.n_tasks)]
        precedences = Precedences.of(instance, options)
        shortest = np.array([min(way.run_us for way in ways) for ways in options], np.int64)
        first = np.array(precedences.earliest_us, np.int64) + shortest
        lower = np.maximum.reduceat(first, instance.job_first_task[:-1])
        upper = np.full(len(instance.jobs), horizon, np.int64)
        if limit is not None:
            upper = np.minimum(upper, scaled.latest_completion_us(instance, lower, limit))
        return cls(instance, options, pooled, precedences, JobWindows(lower, np.maximum(lower, upper)))

    def on(self, task: int) -> dict[int, list[int]]:
        """Return the GPUs that a task can take, each with the positions of the ways that take, or may take, it."""
        found: dict[int, list[int]] = {}
        by_server = pools(self.instance) or {}
        for position, way in enumerate(self.options[task]):
            gpus = self.instance.places.gpus[way.place]
            inside = self.pooled and len(way.takes) == 1
            for gpu in by_server[next(iter(way.takes))] if inside else gpus:
                found.setdefault(gpu, []).append(position)
        return found

    def size(self, way: Option) -> int:
        """Return how many GPUs a way takes."""
        return len(self.instance.places.gpus[way.place])


class GangVariables(MilpCosts):
    """The variables; letters as in the constraints.

    Attributes
    ----------
    way
        (task, position of a way): the task runs so (x_to).
    on
        (task, GPU): it takes the GPU (g_ti), an expression where ways say which GPUs they take.
    start, end
        Per task (s_t, e_t); the end is an expression.
    before
        (task, task): both take some GPU, and the first has ended when the second starts (b_tu).
    """

    def __init__(self, problem: pulp.LpProblem, choices: GangChoices, scaled: ScaledObjective) -> None:
        super().__init__(problem, choices, scaled)
        instance, upper = choices.instance, choices.windows.completion_upper_us
        tasks = range(instance.n_tasks)
        self.way = {(t, at): self._binary(f"way[{t},{at}]") for t in tasks for at in range(len(choices.options[t]))}
        self.on = {
            (t, gpu): self._binary(f"on[{t},{gpu}]")
            if choices.pooled
            else pulp.lpSum(self.way[t, at] for at in positions)
            for t in tasks
            for gpu, positions in choices.on(t).items()
        }
        job = instance.task_job.tolist()
        self.first = [self.units.time(choices.precedences.earliest_us[t]) for t in tasks]
        self.last = [self.units.time(int(upper[job[t]])) for t in tasks]
        self.start = [problem.add_variable(f"start[{t}]", self.first[t], self.last[t]) for t in tasks]
        self.end = [
            self.start[t] + pulp.lpSum(self.units.time(way.run_us) * self.way[t, at] for at, way in enumerate(ways))
            for t, ways in enumerate(choices.options)
        ]
        self._declare_costs(choices, scaled)
        meeting = [set(choices.on(t)) for t in tasks]
        pairs = [pair for t, u in combinations(tasks, 2) if meeting[t] & meeting[u] for pair in ((t, u), (u, t))]
        self.before = {(t, u): self._binary(f"before[{t},{u}]") for t, u in pairs}


@dataclass(frozen=True, slots=True)
class GangProblem:
    """A built problem with what is needed to start it and to read its solutions.

    Parameters
    ----------
    incumbent
        Scaled value that every solution respects, or None.
    """

    problem: pulp.LpProblem
    variables: GangVariables
    choices: GangChoices
    objective: ScaledObjective
    incumbent: int | None


def formulate(
    instance: Instance,
    objective: Objective,
    known: Timeline | None = None,
    allowance: Allowance = UNLIMITED,
    most: Fraction | None = None,
) -> GangProblem:
    """Return the problem of a window; parameters as those of windows without such runs (`milp.formulate`).

    Raises
    ------
    GivenUpError
        If building it takes more than is allowed.

    Notes
    -----
    Invariant: some best plan within the limit is a solution, and the decisions of every solution make a plan.
    Because: of two runs on one GPU one precedes the other, and moved as early as the orders allow a plan costs no more.
    Cost: O(tasks^2 x GPUs) rows.
    If wrong: unsound.
    """
    require(instance, "the MILP for runs on several GPUs", SUPPORTS)
    horizon = max(horizon_us(instance), 0 if known is None else int(known.end_us.max()))
    scaled = ScaledObjective.of(objective, instance, horizon)
    within = None if most is None else scaled.floor(most)
    limit = within if known is None else scaled.floor(timeline_value(objective, instance, known))
    choices = GangChoices.of(instance, scaled, limit, horizon)
    problem = new_problem(allowance)
    v = GangVariables(problem, choices, scaled)
    _run_each_task_once(problem, v, choices)
    _run_one_task_at_a_time(problem, v, choices)
    _wait_for_inputs(problem, v, choices)
    _take_no_more_gpus_than_there_are(problem, v, choices)
    for earlier, later in ordered_tasks(instance, objective):
        problem.addConstraint(v.start[earlier] <= v.start[later], f"equal_jobs[{earlier},{later}]")
    complete_jobs(problem, v, choices)
    minimise(problem, v, choices, scaled, within)
    return GangProblem(problem, v, choices, scaled, limit)


def _run_each_task_once(problem: pulp.LpProblem, v: GangVariables, choices: GangChoices) -> None:
    """G1: a task runs in one way, and takes as many GPUs as that.

    sum_o x_to = 1;  e_t <= its latest;  in a pooled server S: sum_{i in S} g_ti = sum_o (GPUs of o in S) x_to.
    """
    servers = pools(choices.instance) or {}
    for task, ways in enumerate(choices.options):
        problem.addConstraint(pulp.lpSum(v.way[task, at] for at in range(len(ways))) == 1, f"one_way[{task}]")
        problem.addConstraint(v.end[task] <= v.last[task], f"latest[{task}]")
        for server, gpus in servers.items() if choices.pooled else ():
            taken = pulp.lpSum(way.takes.get(server, 0) * v.way[task, at] for at, way in enumerate(ways))
            on = pulp.lpSum(v.on[task, gpu] for gpu in gpus if (task, gpu) in v.on)
            problem.addConstraint(on == taken, f"takes[{task},{server}]")


def _run_one_task_at_a_time(problem: pulp.LpProblem, v: GangVariables, choices: GangChoices) -> None:
    """T3 on every GPU of a place: the runs on it do not overlap.

    b_tu + b_ut >= g_ti + g_ui - 1;  b_tu + b_ut <= 1;  s_u >= e_t - M (1 - b_tu).
    """
    for t, u in combinations(range(choices.instance.n_tasks), 2):
        if (t, u) not in v.before:
            continue
        order = v.before[t, u] + v.before[u, t]
        problem.addConstraint(order <= 1, f"one_order[{t},{u}]")
        for gpu in [gpu for task, gpu in v.on if task == t and (u, gpu) in v.on]:
            problem.addConstraint(order >= v.on[t, gpu] + v.on[u, gpu] - 1, f"one_at_a_time[{t},{u},{gpu}]")
    for (t, u), before in v.before.items():
        apart = max(0.0, v.last[t] - v.first[u])
        problem.addConstraint(v.start[u] >= v.end[t] - apart * (1 - before), f"run_order[{t},{u}]")


def _wait_for_inputs(problem: pulp.LpProblem, v: GangVariables, choices: GangChoices) -> None:
    """T2, G4: tasks start when their inputs are there.

    s_t >= sum_o (from when on it can start so) x_to;  s_u >= e_t + the least gap;
    s_u >= e_t + sum_o gap(o, p) x_to - M (1 - x_up) for each p of larger gaps.
    """
    time, precedences = v.units.time, choices.precedences
    for task, ways in enumerate(choices.options):
        from_us = starts_from(choices.instance, task, ways)
        if max(from_us) > min(from_us):
            begins = pulp.lpSum(time(each) * v.way[task, at] for at, each in enumerate(from_us))
            problem.addConstraint(v.start[task] >= begins, f"input[{task}]")
    for t, u, edge in precedences.arcs:
        gaps = precedences.gaps_us[edge]
        least_us = int(gaps.min())
        problem.addConstraint(v.start[u] >= v.end[t] + time(least_us), f"after[{t},{u}]")
        for at, by_way in enumerate(gaps.T.tolist()):
            if max(by_way) > least_us:
                gap = pulp.lpSum(time(each) * v.way[t, way] for way, each in enumerate(by_way))
                apart = max(0.0, v.last[t] + time(max(by_way)) - v.first[u])
                row = v.start[u] >= v.end[t] + gap - apart * (1 - v.way[u, at])
                problem.addConstraint(row, f"after[{t},{u},{at}]")


def _take_no_more_gpus_than_there_are(problem: pulp.LpProblem, v: GangVariables, choices: GangChoices) -> None:
    """Redundant: m GPUs do not do more work at a time than m.

    For tasks S that start from r on, each with at least the GPU-time a_t on at least k_t GPUs:
    sum_S a_t s_t >= r A + A^2 / (2 m) - sum_S a_t^2 / (2 k_t)  where  A = sum_S a_t.

    Notes
    -----
    Invariant: every plan satisfies it.
    Because: the first a_t of a run on k >= k_t GPUs take a_t / k from its start: their mean time is at most
        s_t + a_t / (2 k_t), and that of all of them is least if m GPUs never idle from r on.
    If wrong: unsound; without it the relaxation lets all tasks start at once.
    """
    areas = [min(choices.size(way) * way.run_us for way in ways) for ways in choices.options]
    sizes = [min(map(choices.size, ways)) for ways in choices.options]
    release = choices.instance.job_release_us[choices.instance.task_job].tolist()
    tasks, gpus = sorted(range(len(areas)), key=lambda task: release[task]), choices.instance.n_gpus
    for first, task in enumerate(tasks):
        if first and release[tasks[first - 1]] == release[task]:
            continue  # with all that start from then on, not some
        inside = tasks[first:]
        area = sum(areas[each] for each in inside)
        squares = sum((Fraction(areas[each] ** 2, 2 * sizes[each]) for each in inside), Fraction(0))
        least = release[task] + Fraction(area, 2 * gpus) - squares / area
        weighted = pulp.lpSum(areas[each] / area * v.start[each] for each in inside)
        # A hair lower, since the weights on the left are rounded.
        row = weighted >= float(least / 2**v.units.time_bits) - _HAIR
        problem.addConstraint(row, f"area[{first}]")


_HAIR = 1e-7


def start_values(formulation: GangProblem, timeline: Timeline) -> dict[str, float]:
    """Return a value for every variable, by name, from a feasible timeline no worse than the one built in."""
    instance, v = formulation.choices.instance, formulation.variables
    known = sort_equal_jobs(instance, formulation.objective.objective, timeline)
    return {variable.name: value for variable, value in _start(formulation, known)} | {
        variable.name: value for variable, value in start_costs(v, formulation.objective, instance, known)
    }


def _start(formulation: GangProblem, known: Timeline) -> Iterator[tuple[pulp.LpVariable, float]]:
    instance, choices, v = formulation.choices.instance, formulation.choices, formulation.variables
    gpus = [set(instance.places.gpus[place]) for place in known.place.tolist()]
    start, end = known.start_us.tolist(), known.end_us.tolist()
    for (task, at), literal in v.way.items():
        resources = [int(instance.gpu_server[gpu]) if choices.pooled else gpu for gpu in gpus[task]]
        yield literal, choices.options[task][at].takes == Counter(resources)
    for (task, gpu), literal in v.on.items() if choices.pooled else ():
        yield literal, gpu in gpus[task]
    for task, variable in enumerate(v.start):
        yield variable, v.units.time(start[task])
    for (t, u), literal in v.before.items():
        yield literal, bool(gpus[t] & gpus[u]) and end[t] <= start[u]


def read_timeline(formulation: GangProblem, value: Callable[[pulp.LpVariable], float]) -> Timeline:
    """Return the timeline of a solution, with the earliest times that its ways and orders allow.

    Parameters
    ----------
    value
        The solution's value of a variable.

    Raises
    ------
    ContradictoryOrderError
        If the decisions contradict each other.
    """
    choices, v = formulation.choices, formulation.variables
    instance, tasks = choices.instance, range(choices.instance.n_tasks)
    chosen = {task: choices.options[task][at] for (task, at), literal in v.way.items() if value(literal) > 0.5}
    gpus = [tuple(sorted(instance.places.gpus[chosen[task].place])) for task in tasks]
    if choices.pooled:
        gpus = [tuple(sorted(gpu for (t, gpu), on in v.on.items() if t == task and value(on) > 0.5)) for task in tasks]
    graph = nx.DiGraph([pair for pair, literal in v.before.items() if value(literal) > 0.5])
    graph.add_nodes_from(tasks)
    edges = {(t, u): edge for t, u, edge in choices.precedences.arcs}
    graph.add_edges_from(edges)
    if not nx.is_directed_acyclic_graph(graph) or any(each not in instance.places.number for each in gpus):
        raise ContradictoryOrderError("runs wait for each other, or take GPUs that are no place")
    place = np.array([instance.places.number[each] for each in gpus], np.int64)
    start_us = np.array([instance.earliest_start(task, int(place[task])) for task in tasks], np.int64)
    run_us = np.array([chosen[task].run_us for task in tasks], np.int64)
    for task in nx.topological_sort(graph):
        for before in graph.predecessors(task):
            edge = edges.get((before, task))
            gap_us = 0 if edge is None else instance.gap_time(edge, int(place[before]), int(place[task]))
            start_us[task] = max(start_us[task], start_us[before] + run_us[before] + gap_us)
    return Timeline(place, start_us, start_us + run_us, ())
