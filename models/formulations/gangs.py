"""Runs on several GPUs in CP-SAT: where each runs, and when; no inputs; for models see `gang_loads`.

Where runs take any GPUs of a server a server is one resource of as many units: which GPUs a run gets is settled
afterwards, by start (what is free then stays so). Else every GPU is a resource of one unit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from ortools.sat.python import cp_model

from truenorth.models.features import LOADED, require
from truenorth.models.formulations.gang_loads import Loads, add_load_hints, add_loads, read_loads
from truenorth.models.formulations.scale import ScaledObjective
from truenorth.models.instance import Instance
from truenorth.models.objective import Term, charges
from truenorth.models.timeline import Placement, Timeline

SUPPORTS = LOADED


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
    """

    place: int
    run_us: int
    takes: Mapping[int, int]


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


def formulate(
    instance: Instance, scaled: ScaledObjective, horizon_us: int, least: int = 0, most: int | None = None
) -> GangFormulation:
    """Return the model: minimise sum_j w_j T_j, or W >= w_j T_j, over plans that end by the horizon.

    Parameters
    ----------
    least
        Scaled value that no plan goes below.
    most
        Only plans of at most this scaled value count; None: any.

    Notes
    -----
    Invariant: every plan that ends by the horizon is a solution of the same scaled value, and every solution a plan.
    Because: a run takes the units of one option from its start to its end, and no resource gives more than it has; k of
        a server's G units that are free throughout a run are k GPUs, given by start (interval graphs are perfect).
    If wrong: unsound.
    """
    require(instance, "CP-SAT for runs on several GPUs", SUPPORTS)
    model, servers = cp_model.CpModel(), pools(instance)
    needy = any(instance.needs)
    pooled = servers is not None and instance.cluster.places == "any" and not needy  # models are on some of the GPUs
    held = dict.fromkeys(range(instance.n_gpus), 1)
    if servers is not None and pooled:
        held = {server: len(gpus) for server, gpus in servers.items()}
    use: dict[int, list[tuple[cp_model.IntervalVar, int]]] = {resource: [] for resource in held}
    every: list[tuple[cp_model.IntervalVar, cp_model.LinearExprT]] = []
    start, chosen, options, ends = [], [], [], []
    for task in range(instance.n_tasks):
        ways = list(options_of(instance, task, pooled))
        release_us = int(instance.job_release_us[instance.task_job[task]])
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
        options.append(ways)
        ends.append(end)
    for resource, pieces in use.items():
        if held[resource] == 1:
            model.add_no_overlap([piece for piece, _ in pieces]).with_name(f"one_at_a_time[{resource}]")
        else:
            model.add_cumulative([piece for piece, _ in pieces], [amount for _, amount in pieces], held[resource])
    # Redundant: all servers together hold no more GPUs than there are.
    model.add_cumulative([piece for piece, _ in every], [amount for _, amount in every], instance.n_gpus)
    loads = None
    if needy:
        each = zip(options, chosen, strict=True)
        taken_at = [[(way.place, at) for way, at in zip(ways, taken, strict=True)] for ways, taken in each]
        loads = add_loads(model, instance, start, ends, taken_at, horizon_us)
    cost = _add_up(model, instance, scaled, ends, horizon_us, least)
    if most is not None:
        model.add(cost <= most).with_name("within")
    model.minimize(cost)
    return GangFormulation(model, options, start, chosen, pooled, loads)


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
