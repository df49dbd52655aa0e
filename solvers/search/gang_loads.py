"""Plans where runs on several GPUs need models: simulated annealing over the order in which they are put at places.

Beside the order, over where single runs go in place of where they end first.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from truenorth.models.features import LOADED, missing
from truenorth.models.formulations.normal_form import Chain, normal_form
from truenorth.models.instance import NONE, Instance, Ints
from truenorth.models.objective import Objective, Term, charges
from truenorth.models.timeline import Placement, Timeline
from truenorth.solvers.compiled import random_state
from truenorth.solvers.incumbents import PlanOrigin
from truenorth.solvers.result import Search
from truenorth.solvers.search.gang_loads_kernel import LoadPlan, LoadTables, anneal, decode

SUPPORTS = LOADED
METHOD = "search"

_HOT, _COLD = 0.05, 0.0005
"""First and last temperature, as multiples of a job's average share of the cost."""
_SLICE_S, _FIRST_MOVES = 0.2, 4
"""How long moves are tried between two looks at the clock; how many at first."""
_MOST_TASKS, _MOST_LOOKS = 20_000, 20_000_000
"""Larger windows keep the plans that they begin with: tasks, and tasks times GPUs of places where they can run."""


class _Start(NamedTuple):
    """An order, and where its tasks have to go: -1 where they end first."""

    order: Ints
    told: Ints


def begin(search: Search) -> None:
    """Offer the plans of some orders: by release, by run time, by GPU-time, each over the weight of its job."""
    tables = _prepare(search)
    if tables is None:
        return
    for start in _starts(search.instance, tables):
        plan = _new_plan(tables, start)
        decode(tables, plan)
        search.offer(_timeline(search.instance, tables, plan), PlanOrigin.START)


def improve(search: Search, seed: int, workers: int, iterations: int | None = None) -> None:
    """Offer ever better plans until the time, or the number of moves, is used up, from the best one so far on."""
    tables = _prepare(search)
    if tables is None:
        return
    starts = _starts(search.instance, tables)
    if search.timeline is not None:
        order = np.lexsort((search.timeline.end_us, search.timeline.start_us)).astype(np.int64)
        starts += [_Start(order, np.full(len(order), NONE)), _Start(order, _places_of(tables, search.timeline))]
    plans = [_new_plan(tables, start) for start in starts]
    for plan in plans:
        plan.cost[0] = decode(tables, plan)
    plans.sort(key=lambda plan: float(plan.cost[0]))
    # The others begin where the next best do.
    first = [plans[number % len(plans)] for number in range(workers)]
    walks = [_Walk(search, tables, plan, seed + number) for number, plan in enumerate(first)]
    walks[0].offer()
    with ThreadPoolExecutor(workers) as pool:
        moves = None if iterations is None else -(-iterations // workers)
        for walking in [pool.submit(walk.anneal, moves) for walk in walks]:
            walking.result()


class _Walk:
    """One annealing, from a plan on."""

    def __init__(self, search: Search, tables: LoadTables, plan: LoadPlan, seed: int) -> None:
        self._search, self._tables, self._random = search, tables, random_state(seed)
        self._plan, self._best = _new_plan(tables, _Start(plan.order, plan.told)), _copy(plan)
        self._plan.cost[0] = self._least = decode(tables, self._plan)

    def offer(self) -> None:
        """Offer the plan of the best order."""
        plan = _new_plan(self._tables, self._best)
        decode(self._tables, plan)
        self._search.offer(_timeline(self._search.instance, self._tables, plan), PlanOrigin.SEARCH)

    def anneal(self, iterations: int | None) -> None:
        """Try moves, ever cooler, and offer what is better than all before, at the end of a slice."""
        search, share = self._search, self._least / len(self._search.instance.jobs)
        clock, done, moves = search.clock.child(), 0, _FIRST_MOVES
        while clock.left_s > 0 and not search.proved:
            if iterations is not None:
                moves = min(moves, iterations - done)
                if moves <= 0:
                    break
            passed = clock.passed if iterations is None else done / iterations
            temperature = max(share * _HOT * (_COLD / _HOT) ** passed, 1e-300)
            before_s = clock.elapsed_s
            least = anneal(self._tables, self._plan, *self._best, self._random, moves, temperature)
            clock.count(moves)
            done += moves
            if iterations is None:
                took_s = max(clock.elapsed_s - before_s, 1e-6)
                moves = max(1, min(2 * moves, int(moves * _SLICE_S / took_s)))
            if least < self._least:
                self._least = least
                self.offer()


def _copy(plan: LoadPlan) -> _Start:
    return _Start(plan.order.copy(), plan.told.copy())


def _prepare(search: Search) -> LoadTables | None:
    """Return what runs take; None, with the reason noted, where orders are not searched."""
    instance = search.instance
    if missing(instance, SUPPORTS):
        search.left_out[METHOD] = "it knows no such windows"
        return None
    looks = sum(
        len(instance.places.gpus[place]) for task in range(instance.n_tasks) for place in instance.eligible_places(task)
    )
    if instance.n_tasks > _MOST_TASKS or looks > _MOST_LOOKS:
        search.left_out[METHOD] = f"{instance.n_tasks} tasks at {len(instance.places.gpus)} places are too many for it"
        return None
    return _tabulate(instance, search.objective)


def _starts(instance: Instance, tables: LoadTables) -> list[_Start]:
    """Return some orders: by release, by run time, by GPU-time, each over the weight of its job."""
    size = np.diff(tables.member_from)[tables.option_place]
    run, area = (
        np.minimum.reduceat(value, tables.option_from[:-1])[tables.template].astype(np.float64)
        for value in (tables.option_run, tables.option_run * size)
    )
    worth = np.maximum(tables.weight[tables.job], 1e-200)
    keys = (tables.release.astype(np.float64), run / worth, area / worth, -area)
    orders = (np.lexsort((tables.release, key)).astype(np.int64) for key in keys)
    return [_Start(order, np.full(instance.n_tasks, NONE)) for order in orders]


def _places_of(tables: LoadTables, timeline: Timeline) -> Ints:
    """Return the option that each task takes in a plan."""
    found = []
    for template, place in zip(tables.template.tolist(), timeline.place.tolist(), strict=True):
        first, beyond = tables.option_from[template : template + 2].tolist()
        found.append(first + int(np.flatnonzero(tables.option_place[first:beyond] == place)[0]))
    return np.array(found, np.int64)


def _tabulate(instance: Instance, objective: Objective) -> LoadTables:
    charged, template, places = charges(objective, instance), instance.task_template, instance.places.gpus
    first_task = np.unique(template, return_index=True)[1].tolist()
    options = [np.array(instance.eligible_places(task), np.int64) for task in first_task]
    sorts = [instance.place_class[each] for each in options]
    numbers = range(len(options))
    own = np.arange(len(places)) < instance.n_gpus
    split = [instance.split[number][sorts[number]] | own[options[number]] for number in numbers]
    size = np.array([len(gpus) for gpus in places], np.int64)
    source, target, edge = instance.edges()
    given_us = instance.input_us[template]
    flags = (charged.term is Term.LATE, charged.is_sum)
    return LoadTables(
        instance.task_job,
        instance.job_release_us[instance.task_job],
        template,
        _first(options),
        np.concatenate(options),
        np.concatenate([instance.run_us[number][sorts[number]] for number in numbers]),
        np.concatenate(split).astype(np.int64),
        _first(instance.needs),
        np.array([model for needs in instance.needs for model in needs], np.int64),
        instance.template_memory,
        np.cumsum([0, *size.tolist()]),
        np.array([gpu for gpus in places for gpu in gpus], np.int64),
        instance.load_us[:, instance.place_class],
        -(-instance.weight_bytes[:, None] // size[None, :]),
        np.array([gpu.memory_bytes for gpu in instance.cluster.gpus], np.int64),
        instance.gpu_class,
        instance.gpu_server,
        np.searchsorted(target, np.arange(instance.n_tasks + 1)).astype(np.int64),
        source,
        edge,
        instance.transfer_us,
        instance.delay_us,
        np.where(given_us > 0, instance.job_ingress[instance.task_job], NONE),
        given_us,
        np.array([resident.model for resident in instance.initial], np.int64),
        np.array([resident.gpu for resident in instance.initial], np.int64),
        np.array([float(weight) for weight in charged.job_weights], np.float64),
        charged.due_us.astype(np.int64),
        *(np.array([int(flag)], np.int64) for flag in flags),
    )


def _first(rows: Sequence[Sequence[int] | Ints]) -> Ints:
    """Return where each row begins in all of them, and at last where they end."""
    return np.cumsum([0, *map(len, rows)])


def _new_plan(tables: LoadTables, start: _Start) -> LoadPlan:
    n, gpus, models = len(start.order), len(tables.room), len(tables.load)
    widest = int(np.diff(tables.member_from)[tables.option_place].max())
    needs = int(np.diff(tables.need_from).max())
    start_us, end_us, option = np.zeros((3, n), np.int64)
    by_gpu = np.zeros((8, gpus), np.int64)
    # A run loads each of its models once at its place, or a copy on each GPU.
    most = len(tables.initial_model) + n * needs * widest
    stays = np.zeros((5, most), np.int64)
    return LoadPlan(
        start.order.copy(),
        start.told.copy(),
        start_us,
        end_us,
        option,
        *by_gpu,
        np.full((gpus, models), NONE),
        np.zeros((gpus, models), np.int64),
        *stays,
        np.zeros(1, np.int64),
        np.zeros(needs * widest, np.int64),
        *np.zeros((2, models), np.int64),
        np.zeros((n, needs), np.int64),
        np.zeros(len(tables.weight), np.int64),
        np.zeros(1),
    )


def _timeline(instance: Instance, tables: LoadTables, plan: LoadPlan) -> Timeline:
    """Return a plan, its models in normal form."""
    place = tables.option_place[plan.option]
    rows = zip(place.tolist(), plan.start.tolist(), plan.end.tolist(), strict=True)
    runs = [Placement(task, *row) for task, row in enumerate(rows)]
    count = int(plan.stays[0])
    columns = (plan.model, plan.place, plan.loads, plan.until)
    stays = zip(*(column[:count].tolist() for column in columns), strict=True)
    # What was there and serves nothing is left out.
    chains = [Chain(model, where, max(0, loads), loads < 0, until) for model, where, loads, until in stays if until > 0]
    return normal_form(instance, runs, chains)
