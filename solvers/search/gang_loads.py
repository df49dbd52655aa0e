"""Plans where runs on several GPUs need models: annealing over orders as without, but nobody chooses a mode.

A run goes where it ends first, whatever number of GPUs that takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from truenorth.models.features import LOADED, Feature, missing
from truenorth.models.formulations.normal_form import Chain, normal_form
from truenorth.models.instance import NONE, Instance, Ints
from truenorth.models.objective import Objective
from truenorth.models.timeline import Placement, Timeline
from truenorth.solvers.result import Search
from truenorth.solvers.search.gang_loads_kernel import LoadPlan, LoadTables
from truenorth.solvers.search.gangs import METHOD, Orders, by_start, first_orders, task_tables, walk

SUPPORTS = LOADED - {Feature.ABSENCES}

_MOST_TASKS, _MOST_LOOKS = 20_000, 20_000_000
"""Larger windows keep the plans that they begin with: tasks, and tasks times GPUs of places where they can run."""


def begin(search: Search) -> None:
    """Offer the plans of some orders, each run where it ends first."""
    orders = _prepare(search)
    if orders is None:
        return
    tasks, tables = orders.tables.tasks, orders.tables
    run = tables.option_run.astype(np.float64)
    area = run * np.diff(tables.member_from)[tables.option_place]
    least = (np.minimum.reduceat(value, tables.option_from[:-1])[tables.template] for value in (run, area))
    for order in first_orders(tasks, *least):
        orders.offer(search, order, tasks.mode_from)


def improve(search: Search, seed: int, workers: int, iterations: int | None = None) -> None:
    """Offer ever better plans until the time, or the number of moves, is used up, from the best one so far on."""
    orders = _prepare(search)
    if orders is None or search.timeline is None:
        return
    first = by_start(search.timeline), orders.tables.tasks.mode_from
    walk(search, orders, first, seed, workers, iterations)


def _prepare(search: Search) -> Orders[LoadTables, LoadPlan] | None:
    """Return the orders of a window; None, with the reason noted, where they are not searched."""
    instance = search.instance
    if lacking := missing(instance, SUPPORTS):
        search.left_out[METHOD] = f"it has no support for {', '.join(lacking)}"
        return None
    looks = sum(
        len(instance.places.gpus[place]) for task in range(instance.n_tasks) for place in instance.eligible_places(task)
    )
    if instance.n_tasks > _MOST_TASKS or looks > _MOST_LOOKS:
        search.left_out[METHOD] = f"{instance.n_tasks} tasks at {len(instance.places.gpus)} places are too many for it"
        return None
    tables = _tabulate(instance, search.objective)
    return Orders(tables, None, tables, partial(_new_plan, tables), partial(_timeline, instance, tables))


def _tabulate(instance: Instance, objective: Objective) -> LoadTables:
    template, places = instance.task_template, instance.places.gpus
    first_task = np.unique(template, return_index=True)[1].tolist()
    options = [np.array(instance.eligible_places(task), np.int64) for task in first_task]
    sorts = [instance.place_class[each] for each in options]
    numbers = range(len(options))
    own = np.arange(len(places)) < instance.n_gpus
    split = [instance.split[number][sorts[number]] | own[options[number]] for number in numbers]
    size = np.array([len(gpus) for gpus in places], np.int64)
    none = np.zeros(instance.n_tasks, np.int64)
    servers = {server: server for server in set(instance.gpu_server.tolist())}
    return LoadTables(
        task_tables(instance, objective, none, none, servers),
        template,
        _first(options),
        np.concatenate(options),
        np.concatenate([instance.run_us[number][sorts[number]] for number in numbers]),
        np.concatenate(split).astype(np.int64),
        _first(instance.needs),
        np.array([model for needs in instance.needs for model in needs], np.int64),
        instance.template_memory,
        _first(places),
        np.array([gpu for gpus in places for gpu in gpus], np.int64),
        instance.load_us[:, instance.place_class],
        -(-instance.weight_bytes[:, None] // size[None, :]),
        np.array([gpu.memory_bytes for gpu in instance.cluster.gpus], np.int64),
        instance.gpu_class,
        instance.gpu_server,
        np.array([resident.model for resident in instance.initial], np.int64),
        np.array([resident.gpu for resident in instance.initial], np.int64),
    )


def _first(rows: Sequence[Sequence[object] | Ints]) -> Ints:
    """Return where each row begins in all of them, and at last where they end."""
    return np.cumsum([0, *map(len, rows)])


def _new_plan(tables: LoadTables, order: Ints, mode: Ints) -> LoadPlan:
    n, gpus, models = len(order), len(tables.room), len(tables.load)
    widest = int(np.diff(tables.member_from)[tables.option_place].max())
    needs = int(np.diff(tables.need_from).max())
    # A run loads each of its models once at its place, or a copy on each GPU.
    stays = len(tables.initial_model) + n * needs * widest
    start, end, option = np.zeros((3, n), np.int64)
    begun, free, held, loading = np.zeros((4, gpus), np.int64)
    model, place, loads, until = np.zeros((4, stays), np.int64)
    return LoadPlan(
        order.copy(),
        mode.copy(),
        start,
        end,
        option,
        begun,
        free,
        held,
        loading,
        np.full((gpus, models), NONE),
        model,
        place,
        loads,
        until,
        np.zeros(1, np.int64),
        np.zeros(models, np.int64),
        np.zeros(models, np.int64),
        np.zeros((n, needs), np.int64),
        np.zeros(int(tables.tasks.job.max()) + 1, np.int64),
        np.zeros(1),
    )


def _timeline(instance: Instance, tables: LoadTables, plan: LoadPlan) -> Timeline:
    """Return a plan, its models in normal form."""
    place = tables.option_place[plan.option]
    rows = zip(place.tolist(), plan.start.tolist(), plan.end.tolist(), strict=True)
    runs = [Placement(task, *row) for task, row in enumerate(rows)]
    columns = (plan.model, plan.place, plan.loads, plan.until)
    stays = zip(*(column[: int(plan.stays[0])].tolist() for column in columns), strict=True)
    # What was there and serves nothing is left out.
    chains = [Chain(model, where, max(0, loads), loads < 0, until) for model, where, loads, until in stays if until > 0]
    return normal_form(instance, runs, chains)
