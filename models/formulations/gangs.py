"""Runs on several GPUs in CP-SAT: where each runs, and when; for models see `gang_loads`.

Where runs take any GPUs of a server a server is one resource of as many units: which GPUs a run gets is settled
afterwards, by start (what is free then stays so). Else every GPU is a resource of one unit: also where outputs take
time inside a server, since then it matters whether two runs share a GPU. While it is away all of a resource is taken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from ortools.sat.python import cp_model

from truenorth.models.cluster import ALWAYS, Availability, Interval
from truenorth.models.features import LOADED, Feature, require
from truenorth.models.formulations.allowance import UNLIMITED, Allowance
from truenorth.models.formulations.gang_loads import Loads, add_load_hints, add_loads, read_loads
from truenorth.models.formulations.scale import ScaledObjective
from truenorth.models.formulations.windows import gap_matrix
from truenorth.models.instance import Instance, Ints
from truenorth.models.objective import Term, charges
from truenorth.models.timeline import Placement, Timeline

SUPPORTS = LOADED | {Feature.REPLICAS, Feature.NO_SWAPS}
_TERM_BYTES, _TERM_S = 200, 2e-6
"""What a way between two places takes in memory and time, to build and to hand over."""


@dataclass(frozen=True, slots=True)
class Option:
    """One way to run a task: at a place, or on any GPUs of its server where `place` is the first of as many.

    Parameters
    ----------
    place
        The place.
    run_us
        How long it takes.
    takes
        Units by resource.
    visit
        It runs while its GPUs are there from then until then; in CP-SAT resources say when.
    """

    place: int
    run_us: int
    takes: Mapping[int, int]
    visit: Interval = ALWAYS.intervals[0]


@dataclass(frozen=True, slots=True)
class GangFormulation:
    """A built model, and what its solutions are read by.

    Parameters
    ----------
    options
        Per task: the ways to run it.
    start, chosen
        Per task: its start, and per option whether it is taken.
    pooled
        Whether servers are the resources.
    loads
        How models are loaded; None where no run needs any.
    incumbent
        None: every plan is a solution.
    """

    model: cp_model.CpModel
    options: list[list[Option]]
    start: list[cp_model.IntVar]
    chosen: list[list[cp_model.IntVar]]
    pooled: bool
    loads: Loads | None = None
    incumbent: None = None


def options_of(instance: Instance, task: int, pooled: bool) -> Iterator[Option]:
    """Yield the ways to run a task; of places in a server the first of each size where servers are pools of GPUs."""
    seen = set[tuple[int, int]]()
    for place in instance.eligible_places(task):
        gpus = instance.places.gpus[place]
        if not pooled:
            yield Option(place, instance.run_time(task, place), dict.fromkeys(gpus, 1))
            continue
        takes: dict[int, int] = {}
        for gpu in gpus:
            server = int(instance.gpu_server[gpu])
            takes[server] = takes.get(server, 0) + 1
        if len(takes) > 1 or not seen.issuperset(takes.items()):
            seen.update(takes.items() if len(takes) == 1 else ())
            yield Option(place, instance.run_time(task, place), takes)


def pools(instance: Instance) -> dict[int, tuple[int, ...]] | None:
    """Return the GPUs of each server where those of one are alike to every run; None where they are not."""
    by_server: dict[int, list[int]] = {}
    for gpu, server in enumerate(instance.gpu_server.tolist()):
        by_server.setdefault(server, []).append(gpu)
    if any(len({int(instance.gpu_class[gpu]) for gpu in gpus}) > 1 for gpus in by_server.values()):
        return None
    return {server: tuple(gpus) for server, gpus in by_server.items()}


def is_pooled(instance: Instance) -> bool:
    """Say whether runs take any GPUs of a server, and nothing depends on which."""
    if any(instance.needs) or instance.transfer_us[..., 1].any():  # models are on some of the GPUs
        return False
    return instance.cluster.places == "any" and pools(instance) is not None


@dataclass(frozen=True, slots=True)
class Precedences:
    """What runs wait for: delays and transfers between the ways to run two tasks (rules T2 and G4).

    Parameters
    ----------
    arcs
        Per precedence: the earlier task, the later one, and the edge.
    gaps_us
        Per edge: what passes between the end of the earlier task and the start of the later one at least, by the ways
        to run them. Shape [ways, ways].
    earliest_us
        Per task: it cannot start before, however it runs. Shape [tasks].
    """

    arcs: Sequence[tuple[int, int, int]]
    gaps_us: Mapping[int, Ints]
    earliest_us: Sequence[int]

    @classmethod
    def of(cls, instance: Instance, options: Sequence[Sequence[Option]]) -> Precedences:
        """Return the precedences of a window whose tasks have these ways to run."""
        arcs = list(zip(*(column.tolist() for column in instance.edges()), strict=True))
        gaps_us: dict[int, Ints] = {}
        for before, task, edge in arcs:
            if edge not in gaps_us:
                ways = ([way.place for way in options[each]] for each in (before, task))
                gaps_us[edge] = place_gaps(instance, edge, *ways)
        shortest = [min(way.run_us for way in ways) for ways in options]
        earliest = [min(starts_from(instance, task, ways)) for task, ways in enumerate(options)]
        for job, workflow in enumerate(instance.job_workflow.tolist()):
            for position in instance.workflows[workflow].topological:
                task = int(instance.job_first_task[job]) + position
                for before, edge in instance.task_inputs(task):
                    arrives_us = earliest[before] + shortest[before] + int(gaps_us[edge].min())
                    earliest[task] = max(earliest[task], arrives_us)
        return cls(arcs, gaps_us, earliest)

    @property
    def terms(self) -> int:
        """How many pairs of ways there are."""
        return sum(self.gaps_us[edge].size for _, _, edge in self.arcs)


def starts_from(instance: Instance, task: int, ways: Sequence[Option]) -> list[int]:
    """Return when a task's job is released, and its input bytes are there, by the ways to run it."""
    if not instance.input_us[instance.task_template[task]]:
        return [int(instance.job_release_us[instance.task_job[task]])] * len(ways)
    return [instance.earliest_start(task, way.place) for way in ways]


def place_gaps(instance: Instance, edge: int, source: Sequence[int], target: Sequence[int]) -> Ints:
    """Return delay and transfer time of an edge between places, the least over pairs of their GPUs (rule G4).

    Shape [source, target].
    """
    gaps = gap_matrix(instance, edge)
    for places in (source, target):
        each, gpus = instance.places.members(np.array(places, np.int64))
        gaps = np.minimum.reduceat(gaps[gpus], np.searchsorted(each, np.arange(len(places))), axis=0).T
    return gaps


def formulate(
    instance: Instance,
    scaled: ScaledObjective,
    horizon_us: int,
    least: int = 0,
    most: int | None = None,
    allowance: Allowance = UNLIMITED,
) -> GangFormulation:
    """Return the model: minimise sum_j w_j T_j, or W >= w_j T_j, over plans that end by the horizon.

    Parameters
    ----------
    least
        Scaled value that no plan goes below.
    most
        Only plans of at most this scaled value count; None: any.
    allowance
        What ways between places may take.

    Raises
    ------
    GivenUpError
        If they take more.

    Notes
    -----
    Invariant: every plan that ends by the horizon is a solution of the same scaled value, and every solution a plan.
    Because: a run takes the units of one option from its start to its end, and no resource gives more than it has; k of
        a server's G units that are free throughout a run are k GPUs, given by start (interval graphs are perfect).
        Where servers are such resources the options of two runs say what lies between them.
    If wrong: unsound.
    """
    require(instance, "CP-SAT for runs on several GPUs", SUPPORTS)
    model, servers, pooled = cp_model.CpModel(), pools(instance), is_pooled(instance)
    held = dict.fromkeys(range(instance.n_gpus), 1)
    there = dict(enumerate(gpu.available for gpu in instance.cluster.gpus))
    if servers is not None and pooled:
        held = {server: len(gpus) for server, gpus in servers.items()}
        there = {server: there[gpus[0]] for server, gpus in servers.items()}  # the others are of its class
    use: dict[int, list[tuple[cp_model.IntervalVar, int]]] = {resource: [] for resource in held}
    every: list[tuple[cp_model.IntervalVar, cp_model.LinearExprT]] = []
    start, chosen, ends = [], [], []
    options = [list(options_of(instance, task, pooled)) for task in range(instance.n_tasks)]
    precedences = Precedences.of(instance, options)
    allowance.fit(precedences.terms, _TERM_BYTES, _TERM_S)
    for task, ways in enumerate(options):
        release_us = precedences.earliest_us[task]
        times = sorted({way.run_us for way in ways})
        begin = model.new_int_var(release_us, horizon_us, f"start[{task}]")
        run = model.new_int_var_from_domain(cp_model.Domain.from_values(times), f"run[{task}]")
        end = model.new_int_var(release_us, horizon_us, f"end[{task}]")
        widths = [len(instance.places.gpus[way.place]) for way in ways]
        width: cp_model.LinearExprT = widths[0]
        if len(set(widths)) > 1:
            width = model.new_int_var_from_domain(cp_model.Domain.from_values(sorted(set(widths))), f"width[{task}]")
        every.append((model.new_interval_var(begin, run, end, f"runs[{task}]"), width))
        taken = [model.new_bool_var(f"at[{task},{way.place}]") for way in ways]
        model.add_exactly_one(taken).with_name(f"somewhere[{task}]")
        model.add(run == sum(way.run_us * at for way, at in zip(ways, taken, strict=True))).with_name(f"length[{task}]")
        if len(set(widths)) > 1:
            model.add(width == cp_model.LinearExpr.weighted_sum(taken, widths)).with_name(f"width[{task}]")
        for way, at in zip(ways, taken, strict=True):
            piece = model.new_optional_interval_var(begin, way.run_us, end, at, f"runs[{task},{way.place}]")
            for resource, amount in way.takes.items():
                use[resource].append((piece, amount))
        start.append(begin)
        chosen.append(taken)
        ends.append(end)
        for at, from_us in zip(taken, starts_from(instance, task, ways), strict=True):
            if from_us > release_us:
                model.add(begin >= from_us).only_enforce_if(at)
    _wait_for_inputs(model, precedences, start, ends, chosen)
    _share_out(model, use, every, held, there, horizon_us)
    loads = _load(model, instance, options, start, ends, chosen, horizon_us) if any(instance.needs) else None
    cost = _add_up(model, instance, scaled, ends, horizon_us, least)
    if most is not None:
        model.add(cost <= most).with_name("within")
    model.minimize(cost)
    return GangFormulation(model, options, start, chosen, pooled, loads)


def _load(
    model: cp_model.CpModel,
    instance: Instance,
    options: Sequence[Sequence[Option]],
    start: Sequence[cp_model.IntVar],
    ends: Sequence[cp_model.IntVar],
    chosen: Sequence[Sequence[cp_model.IntVar]],
    horizon_us: int,
) -> Loads:
    """Have the models of tasks loaded where these run; each option is a place of its own."""
    each = zip(options, chosen, strict=True)
    ways = [[(way.place, at) for way, at in zip(some, taken, strict=True)] for some, taken in each]
    return add_loads(model, instance, start, ends, ways, horizon_us)


def _share_out(
    model: cp_model.CpModel,
    use: Mapping[int, list[tuple[cp_model.IntervalVar, int]]],
    every: list[tuple[cp_model.IntervalVar, cp_model.LinearExprT]],
    held: Mapping[int, int],
    there: Mapping[int, Availability],
    horizon_us: int,
) -> None:
    """Have no resource give more than it has, and nothing while it is away."""
    for resource, pieces in use.items():
        for gone, back in there[resource].absences(horizon_us):
            away = model.new_fixed_size_interval_var(gone, back - gone, f"away[{resource},{gone}]")
            pieces.append((away, held[resource]))
            every.append((away, held[resource]))
        if held[resource] == 1:
            model.add_no_overlap([piece for piece, _ in pieces]).with_name(f"one_at_a_time[{resource}]")
        else:
            model.add_cumulative([piece for piece, _ in pieces], [amount for _, amount in pieces], held[resource])
    # Redundant: all servers together hold no more GPUs than there are.
    model.add_cumulative([piece for piece, _ in every], [amount for _, amount in every], sum(held.values()))


def _wait_for_inputs(
    model: cp_model.CpModel,
    precedences: Precedences,
    start: Sequence[cp_model.IntVar],
    ends: Sequence[cp_model.IntVar],
    chosen: Sequence[Sequence[cp_model.IntVar]],
) -> None:
    """Have tasks start when their inputs are there: for each way to run the later one, by the way of the earlier one.

    start_u >= end_t + sum_o gap(o, p) x_to if x_up; whatever p, start_u >= end_t + the least gap.
    """
    for before, task, edge in precedences.arcs:
        gaps = precedences.gaps_us[edge]
        least_us = int(gaps.min())
        model.add(start[task] >= ends[before] + least_us).with_name(f"after[{before},{task}]")
        for at, by_way in zip(chosen[task], gaps.T, strict=True):
            if by_way.max() > least_us:
                gap = cp_model.LinearExpr.weighted_sum(chosen[before], by_way.tolist())
                model.add(start[task] >= ends[before] + gap).only_enforce_if(at)


def _add_up(
    model: cp_model.CpModel,
    instance: Instance,
    scaled: ScaledObjective,
    ends: list[cp_model.IntVar],
    horizon_us: int,
    least: int,
) -> cp_model.LinearExprT:
    """Bind the terms to the ends of tasks; return the scaled value, at least."""
    due_us = charges(scaled.objective, instance).due_us.tolist()
    costs: list[cp_model.LinearExprT] = []
    for job, weight in enumerate(scaled.weights):
        if not weight:
            continue
        tasks = instance.tasks_of(job)
        if scaled.term is Term.LATE:
            late = model.new_bool_var(f"late[{job}]")
            for task in tasks:
                model.add(ends[task] <= due_us[job]).only_enforce_if(late.negated())
            costs.append(weight * late)
            continue
        beyond = model.new_int_var(0, horizon_us, f"term[{job}]")
        for task in tasks:
            model.add(beyond >= ends[task] - due_us[job]).with_name(f"term[{job},{task}]")
        costs.append(weight * beyond)
    if scaled.objective.is_sum:
        model.add(sum(costs) >= least).with_name("least")
        return sum(costs)
    worst = model.new_int_var(least, (1 << 61), "worst")
    for cost in costs:
        model.add(worst >= cost)
    return worst


def add_hint(formulation: GangFormulation, instance: Instance, known: Timeline) -> None:
    """Hint a known plan."""
    for task, ways in enumerate(formulation.options):
        formulation.model.add_hint(formulation.start[task], int(known.start_us[task]))
        place = int(known.place[task])
        taken = Counter(instance.gpu_server[list(instance.places.gpus[place])].tolist())
        for way, at in zip(ways, formulation.chosen[task], strict=True):
            here = way.takes == taken if formulation.pooled else way.place == place
            formulation.model.add_hint(at, int(here))
    if formulation.loads is not None:
        add_load_hints(formulation.model, formulation.loads, instance, known)


def read_timeline(formulation: GangFormulation, instance: Instance, values: list[int]) -> Timeline:
    """Return a solution as a timeline; in pooled servers runs take the lowest GPUs that are free, by start."""
    start_us = np.array([values[var.index] for var in formulation.start], np.int64)
    if formulation.loads is not None:
        each = zip(formulation.options, formulation.chosen, start_us.tolist(), strict=True)
        runs = [
            Placement(task, way.place, begin, begin + way.run_us)
            for task, (ways, chosen, begin) in enumerate(each)
            for way, at in zip(ways, chosen, strict=True)
            if values[at.index]
        ]
        return read_loads(formulation.loads, instance, runs, lambda var: values[var.index])
    servers, among, run_us = pools(instance), [], []
    for ways, chosen in zip(formulation.options, formulation.chosen, strict=True):
        way = next(way for way, at in zip(ways, chosen, strict=True) if values[at.index])
        gpus = instance.places.gpus[way.place]
        inside = servers is not None and formulation.pooled and len(way.takes) == 1
        among.append((servers[next(iter(way.takes))] if servers is not None and inside else gpus, len(gpus)))
        run_us.append(way.run_us)
    end_us = start_us + np.array(run_us, np.int64)
    return Timeline(instance.places.settle(start_us, end_us, among), start_us, end_us, ())
