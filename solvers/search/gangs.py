"""Plans of runs on several GPUs: simulated annealing over the order in which they are put where they end first.

Beside the order, over the mode of each task that runs on one of several numbers of GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from truenorth.models.features import MOLDABLE, missing
from truenorth.models.formulations.gangs import pools
from truenorth.models.formulations.windows import horizon_us
from truenorth.models.instance import NEVER, NONE, Instance, Ints
from truenorth.models.objective import Charges, Objective, Term, charges
from truenorth.models.timeline import Timeline
from truenorth.solvers.compiled import Floats, RandomState, random_state
from truenorth.solvers.incumbents import PlanOrigin
from truenorth.solvers.result import Search
from truenorth.solvers.search.gang_loads_kernel import LoadPlan, LoadTables
from truenorth.solvers.search.gang_orders_kernel import anneal, decode
from truenorth.solvers.search.gangs_kernel import FAR, Away, GangPlan, GangTables, TaskTables

SUPPORTS = MOLDABLE
METHOD = "search"

_HOT, _COLD = 0.05, 0.0005
"""First and last temperature, as multiples of a job's average share of the cost."""
_SPENT = (1.0, 1.25, 1.5, 2.0, 3.0, inf)
"""How many times its least GPU-time a task may take in the plans to begin with."""
_WARM, _STEPS = 0.01, 8
"""The first temperature where plans are made anew, and in how many steps it falls to the last."""
_SLICE_S, _FIRST_MOVES = 0.2, 4
"""How long moves are tried between two looks at the clock; how many at first."""
_MOST_TASKS, _MOST_INSTANTS = 20_000, 20_000_000
"""Larger windows keep the plans that they begin with."""
_WIDEST = 62
"""Sets of GPUs of a server fit a word."""


Tables = TypeVar("Tables", GangTables, LoadTables)
Plan = TypeVar("Plan", GangPlan, LoadPlan)


class _Prepared(NamedTuple):
    """The GPUs of each server, what runs take of them, and when they are away."""

    servers: tuple[tuple[int, ...], ...]
    tables: GangTables
    away: Away


@dataclass(frozen=True)
class Orders(Generic[Tables, Plan]):
    """The orders of a window: what its runs take, when servers are away, and how an order becomes a plan.

    Where runs need models `loads` are the tables once more; `timeline` returns None where some run has no place.
    """

    tables: Tables
    away: Away | None
    loads: LoadTables | None
    new_plan: Callable[[Ints, Ints], Plan]
    timeline: Callable[[Plan], Timeline | None]

    def decoded(self, order: Ints, mode: Ints) -> Plan:
        """Return the plan of an order and modes."""
        plan = self.new_plan(order, mode)
        plan.cost[0] = decode(self.tables, self.away, self.loads, plan)
        return plan

    def offer(self, search: Search, order: Ints, mode: Ints, origin: PlanOrigin = PlanOrigin.START) -> None:
        """Offer the plan of an order and modes, if every run has a place."""
        timeline = self.timeline(self.decoded(order, mode))
        if timeline is not None:
            search.offer(timeline, origin)


def first_orders(tasks: TaskTables, run: Floats, area: Floats) -> list[Ints]:
    """Return some orders: by release, by run time, by GPU-time, each over the weight of its job."""
    worth = np.maximum(tasks.weight[tasks.job], 1e-200)
    keys = (tasks.release, run / worth, area / worth, -area)
    return [np.lexsort((tasks.release, key)).astype(np.int64) for key in keys]


def walk(
    search: Search,
    orders: Orders[Tables, Plan],
    first: tuple[Ints, Ints],
    seed: int,
    workers: int,
    iterations: int | None,
) -> None:
    """Offer ever better plans until the time, or the number of moves, is used up, from an order and modes on."""
    walks = [_Walk(search, orders, first, seed + number) for number in range(workers)]
    orders.offer(search, *first)
    with ThreadPoolExecutor(workers) as pool:
        moves = None if iterations is None else -(-iterations // workers)
        for walking in [pool.submit(walk.anneal, moves) for walk in walks]:
            walking.result()


def improve(search: Search, seed: int, workers: int, iterations: int | None = None) -> None:
    """Offer ever better plans until the time, or the number of moves, is used up, from the best one so far on."""
    prepared = _prepare(search)
    if prepared is not None:
        walk(search, _orders(search.instance, prepared), _first(search, prepared.tables), seed, workers, iterations)


def begin(search: Search) -> None:
    """Offer the plans of some orders.

    What may choose takes the fastest of its modes that take at most so many times its least GPU-time, from few to any.
    """
    prepared = _prepare(search)
    if prepared is None:
        return
    tables, orders = prepared.tables, _orders(search.instance, prepared)
    run_us = _run_us(tables)
    for mode in [_fastest(tables, run_us, most) for most in (_SPENT if tables.tasks.choosers.size else _SPENT[-1:])]:
        run = run_us[mode].astype(np.float64)
        for order in first_orders(tables.tasks, run, run * tables.size[mode]):
            orders.offer(search, order, mode)


class PlannedRun(NamedTuple):
    """A run that waits: when it is to start, and on how many of which GPUs."""

    start_us: int
    among: Sequence[int]
    takes: int


def plan_anew(
    search: Search, now_us: int, busy_us: Sequence[int], orders: Sequence[Ints], random: RandomState, moves: int
) -> list[PlannedRun] | None:
    """Return how those who wait are to run, from the best of some orders on; None where orders are not searched.

    Parameters
    ----------
    search
        Its window has the jobs that wait and no others; its GPUs stay.
    now_us, busy_us
        The time, and per GPU until when it is taken.
    orders
        Of the tasks. Each begins in its fastest modes.
    random, moves
        Moves that are tried.
    """
    prepared = _prepare(search)
    if prepared is None:
        return None
    tasks = prepared.tables.tasks
    tables = prepared.tables._replace(tasks=tasks._replace(release=np.maximum(tasks.release, now_us)))
    rows = _rows(_busy(search.instance, prepared.servers, busy_us, now_us))
    prepared = _Prepared(prepared.servers, tables, Away(*rows, prepared.away.left_out))
    anew = _orders(search.instance, prepared)
    mode = _fastest(tables, _run_us(tables), inf)
    plan = min((anew.decoded(order, mode) for order in orders), key=lambda plan: float(plan.cost[0]))
    best, best_mode, share = plan.order.copy(), plan.mode.copy(), plan.cost[0] / len(search.instance.jobs)
    for part in range(_STEPS):
        temperature = max(share * _WARM * (_COLD / _WARM) ** (part / _STEPS), 1e-300)
        anneal(tables, prepared.away, None, plan, best, best_mode, random, moves // _STEPS, temperature)
    plan = anew.decoded(best, best_mode)
    runs = zip(plan.start.tolist(), _among(prepared, plan), strict=True)
    return [PlannedRun(start_us, *among) for start_us, among in runs]


def _first(search: Search, tables: GangTables) -> tuple[Ints, Ints]:
    """Return an order and modes to begin with: those of the best plan, without one by release, each in its fastest."""
    if search.timeline is not None:
        return by_start(search.timeline), _modes_of(search.instance, tables, search.timeline)
    return np.argsort(tables.tasks.release, kind="stable").astype(np.int64), _fastest(tables, _run_us(tables), inf)


def _run_us(tables: GangTables) -> Ints:
    """Return the longest run time of each mode. Shape [modes]."""
    return np.where(tables.wide_run >= 0, tables.wide_run, tables.run.max(axis=1))


def _prepare(search: Search) -> _Prepared | None:
    """Return what runs take; None, with the reason noted, where orders are not searched."""
    instance, servers = search.instance, pools(search.instance)
    if missing(instance, SUPPORTS) or servers is None or not isinstance(instance.cluster.places, str):
        search.left_out[METHOD] = "it needs servers of equal GPUs, whose places are not listed"
        return None
    if instance.n_tasks > _MOST_TASKS or instance.n_tasks * len(servers) > _MOST_INSTANTS:
        search.left_out[METHOD] = f"{instance.n_tasks} tasks on {len(servers)} servers are too many for it"
        return None
    gpus = tuple(servers.values())
    tables = _tabulate(instance, search.objective, gpus) if max(map(len, gpus)) <= _WIDEST else None
    if tables is None:
        search.left_out[METHOD] = "servers are too large, or groups of them differ in what runs there, and how fast"
        return None
    return _Prepared(gpus, tables, _away(instance, search.objective, gpus))


def by_start(timeline: Timeline) -> Ints:
    """Return the tasks of a plan in the order in which they start."""
    return np.lexsort((timeline.end_us, timeline.start_us)).astype(np.int64)


def _modes_of(instance: Instance, tables: GangTables, timeline: Timeline) -> Ints:
    """Return the mode of each task in a plan: that of as many GPUs as its place has."""
    taken = [len(instance.places.gpus[place]) for place in timeline.place.tolist()]
    modes = zip(tables.tasks.mode_from.tolist(), tables.tasks.mode_to.tolist(), taken, strict=True)
    return np.array([one + np.searchsorted(tables.size[one:end], gpus) for one, end, gpus in modes], np.int64)


def _fastest(tables: GangTables, run_us: Ints, most: float) -> Ints:
    """Return the fastest mode of each task, of those that take at most so many times its least GPU-time."""
    area, fastest = run_us * tables.size, []
    for one, end in zip(tables.tasks.mode_from.tolist(), tables.tasks.mode_to.tolist(), strict=True):
        spent, took = area[one:end], run_us[one:end]
        fastest.append(one + int(np.where(spent <= most * spent.min(), took, FAR).argmin()))
    return np.array(fastest, np.int64)


class _Walk(Generic[Tables, Plan]):
    """One annealing, from an order and modes on."""

    def __init__(self, search: Search, orders: Orders[Tables, Plan], first: tuple[Ints, Ints], seed: int) -> None:
        self._search, self._random = search, random_state(seed)
        self._orders: Orders[Tables, Plan] = orders
        self._plan: Plan = orders.decoded(*first)
        self._best, self._best_mode = first[0].copy(), first[1].copy()
        self._least = float(self._plan.cost[0])

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
            before_s, best = clock.elapsed_s, (self._best, self._best_mode)
            tables = self._orders.tables, self._orders.away, self._orders.loads
            least = anneal(*tables, self._plan, *best, self._random, moves, temperature)
            clock.count(moves)
            done += moves
            if iterations is None:
                took_s = max(clock.elapsed_s - before_s, 1e-6)
                moves = max(1, min(2 * moves, int(moves * _SLICE_S / took_s)))
            if least < self._least:
                self._least = least
                self._orders.offer(search, *best, PlanOrigin.SEARCH)


def _tabulate(instance: Instance, objective: Objective, servers: Sequence[tuple[int, ...]]) -> GangTables | None:
    """Return what runs take; None if groups of servers for as many GPUs differ in size, or in what runs how fast."""
    template = instance.task_template
    position = {gpu: number for number, gpus in enumerate(servers) for gpu in gpus}
    mode_template, mode_size = _modes(instance)
    inside = np.full((len(mode_size), len(servers)), NEVER, np.int64)
    wide_run = np.full(len(mode_size), NEVER, np.int64)
    linked, of_server = len(instance.edges()[0]) > 0, instance.gpu_class[[gpus[0] for gpus in servers]]
    groups: dict[int, list[int]] = {}
    spans: dict[int, int] = {}
    # Places of one class are many, and alike.
    of_sort: dict[int, tuple[NDArray[np.bool_], Ints]] = {}
    for gpus, sort in zip(instance.places.gpus, instance.place_class.tolist(), strict=True):
        if sort not in of_sort:
            as_many = mode_size == len(gpus)
            of_sort[sort] = as_many, np.where(as_many, instance.run_us[mode_template, sort], NEVER)
        wide, row = of_sort[sort]
        first, last = position[gpus[0]], position[gpus[-1]]
        if first == last:
            inside[:, first] = np.maximum(inside[:, first], row)
            continue
        span = last - first + 1
        alike = spans.setdefault(len(gpus), span) == span
        # How far it is to a group is asked of its first server.
        alike &= not linked or len(set(of_server[first : last + 1].tolist())) == 1
        if not alike or (row[wide] == NEVER).any() or (len(gpus) in groups and (wide_run[wide] != row[wide]).any()):
            return None
        groups.setdefault(len(gpus), []).append(first)
        wide_run[wide] = row[wide]
    # As many GPUs in one server here and across servers there: orders would put all runs of that size in one of these.
    if (inside[wide_run != NEVER] != NEVER).any():
        return None
    sorts = sorted(groups)
    sort_of = np.array([sorts.index(size) if size in groups else NEVER for size in mode_size.tolist()])
    mode_from, mode_to = (np.searchsorted(mode_template, template, side=side) for side in ("left", "right"))
    by_number = {int(instance.gpu_server[gpus[0]]): number for number, gpus in enumerate(servers)}
    tasks = task_tables(instance, objective, mode_from.astype(np.int64), mode_to.astype(np.int64), by_number)
    fed = (np.diff(tasks.source_from) > 0) | (tasks.ingress >= 0)
    return GangTables(
        tasks,
        mode_size,
        inside,
        wide_run,
        sort_of.astype(np.int64),
        np.cumsum([0, *(len(groups[size]) for size in sorts)]).astype(np.int64),
        np.array([spans[size] for size in sorts], np.int64),
        np.array([first for size in sorts for first in groups[size]], np.int64),
        np.array([len(gpus) for gpus in servers], np.int64),
        of_server,
        fed.astype(np.int64),
        np.array([int(instance.cluster.places == "any")]),
    )


def task_tables(
    instance: Instance, objective: Objective, mode_from: Ints, mode_to: Ints, number_of: Mapping[int, int]
) -> TaskTables:
    """Return what orders know of tasks, given the modes of each, and how the servers are numbered."""
    charged, given_us = charges(objective, instance), instance.input_us[instance.task_template]
    source, target, edge = instance.edges()
    at_server = np.array([number_of.get(server, NONE) for server in instance.job_ingress.tolist()], np.int64)
    return TaskTables(
        instance.task_job,
        instance.job_release_us[instance.task_job],
        mode_from,
        mode_to,
        np.flatnonzero(mode_to - mode_from > 1).astype(np.int64),
        np.searchsorted(target, np.arange(instance.n_tasks + 1)).astype(np.int64),
        source,
        edge,
        instance.transfer_us,
        instance.delay_us,
        np.where(given_us > 0, at_server[instance.task_job], NONE),
        given_us,
        np.array([float(weight) for weight in charged.job_weights], np.float64),
        charged.due_us.astype(np.int64),
        *(np.array([int(flag)], np.int64) for flag in (charged.term is Term.LATE, charged.is_sum)),
    )


def _away(instance: Instance, objective: Objective, servers: Sequence[tuple[int, ...]]) -> Away:
    """Return which servers are away when."""
    rows = []
    for gpus in servers:
        taken = len(gpus) if instance.cluster.places == "any" else (1 << len(gpus)) - 1
        row = {0: 0}
        for gone, back in instance.cluster.gpus[gpus[0]].available.absences(FAR):
            row |= {gone: taken, back: 0}
        rows.append(row)
    return Away(*_rows(rows), np.array([_left_out(instance, charges(objective, instance))]))


def _busy(
    instance: Instance, servers: Sequence[tuple[int, ...]], busy_us: Sequence[int], now_us: int
) -> list[dict[int, int]]:
    """Return what is taken of each server from each instant on, where GPUs are taken until some time."""
    rows = []
    for gpus in servers:
        row = {0: 0}
        for until in sorted({now_us, *(busy_us[gpu] for gpu in gpus if busy_us[gpu] > now_us)}):
            left = [bit for bit, gpu in enumerate(gpus) if busy_us[gpu] > until]
            row[until] = len(left) if instance.cluster.places == "any" else sum(1 << bit for bit in left)
        rows.append(row)
    return rows


def _rows(rows: Sequence[Mapping[int, int]]) -> tuple[Ints, Ints, Ints]:
    """Return the instants of servers, what is taken from each on, and how many there are, as arrays."""
    length = np.array([len(row) for row in rows], np.int64)
    instant, used = np.zeros((2, len(rows), int(length.max())), np.int64)
    for server, row in enumerate(rows):
        instant[server, : len(row)], used[server, : len(row)] = list(row), list(row.values())
    return instant, used, length


def _left_out(instance: Instance, charged: Charges) -> float:
    """Return what a run without a place costs: more than any plan that ends when the last one may."""
    weights = np.array([float(weight) for weight in charged.job_weights], np.float64)
    beyond = np.maximum(0, horizon_us(instance) - charged.due_us)
    costs = weights * ((beyond > 0) if charged.term is Term.LATE else beyond)
    most = float(costs.sum() if charged.is_sum else costs.max())
    return 2 * most if most > 0 else 1.0


def _modes(instance: Instance) -> tuple[Ints, Ints]:
    """Return template and number of GPUs of each mode that has a place; two arrays of one length, by template."""
    sizes = np.zeros(instance.run_us.shape[1], np.int64)
    for place, sort in enumerate(instance.place_class.tolist()):
        sizes[sort] = len(instance.places.gpus[place])
    found = [np.unique(sizes[row != NEVER]) for row in instance.run_us]
    template = np.repeat(np.arange(len(found), dtype=np.int64), [len(each) for each in found])
    return template, np.concatenate(found)


def _orders(instance: Instance, prepared: _Prepared) -> Orders[GangTables, GangPlan]:
    new_plan, timeline = partial(_new_plan, instance, prepared), partial(_timeline, instance, prepared)
    return Orders(prepared.tables, prepared.away, None, new_plan, timeline)


def _new_plan(instance: Instance, prepared: _Prepared, order: Ints, mode: Ints) -> GangPlan:
    n, instants = instance.n_tasks, 2 * instance.n_tasks + 1 + prepared.away.instant.shape[1]
    start, end, server, taken = (np.zeros(n, np.int64) for _ in range(4))
    instant, used = (np.zeros((len(prepared.servers), instants), np.int64) for _ in range(2))
    length, done = np.zeros(len(prepared.servers), np.int64), np.zeros(len(instance.jobs), np.int64)
    open_us = np.zeros((len(prepared.servers), int(prepared.tables.held.max()) + 1), np.int64)
    shaped = instant, used, length, open_us, done, np.full(1, float(FAR))
    return GangPlan(order.copy(), mode.copy(), start, end, server, taken, *shaped)


def _timeline(instance: Instance, prepared: _Prepared, plan: GangPlan) -> Timeline | None:
    """Return a plan; None if some run has no place."""
    if (plan.start == FAR).any():
        return None
    place = instance.places.settle(plan.start, plan.end, _among(prepared, plan))
    return Timeline(place, plan.start, plan.end, ())


def _among(prepared: _Prepared, plan: GangPlan) -> list[tuple[Sequence[int], int]]:
    """Return per task the GPUs that it is given, and how many of them it takes."""
    servers, tables = prepared.servers, prepared.tables
    among: list[tuple[Sequence[int], int]] = []
    wide, size = tables.wide[plan.mode], tables.size[plan.mode]
    for task, (first, count) in enumerate(zip(plan.server.tolist(), size.tolist(), strict=True)):
        sort, here = int(wide[task]), servers[first]
        if sort >= 0:
            here = tuple(gpu for gpus in servers[first : first + int(tables.group_servers[sort])] for gpu in gpus)
        elif not tables.any_gpus[0]:
            here = tuple(gpu for bit, gpu in enumerate(here) if int(plan.taken[task]) >> bit & 1)
        among.append((here, count))
    return among
