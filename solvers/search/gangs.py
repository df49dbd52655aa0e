"""Plans of runs on several GPUs: simulated annealing over the order in which they are put where they end first.

Beside the order, over the mode of each task that runs on one of several numbers of GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truenorth.models.features import MOLDABLE, missing
from truenorth.models.formulations.gangs import pools
from truenorth.models.instance import NEVER, NONE, Instance, Ints
from truenorth.models.objective import Objective, Term, charges
from truenorth.models.timeline import Timeline
from truenorth.solvers.compiled import random_state
from truenorth.solvers.incumbents import PlanOrigin
from truenorth.solvers.result import Search
from truenorth.solvers.search.gangs_kernel import FAR, GangPlan, GangTables, anneal, decode

SUPPORTS = MOLDABLE
METHOD = "search"

_HOT, _COLD = 0.05, 0.0005
"""First and last temperature, as multiples of a job's average share of the cost."""
_SPENT = (1.0, 1.25, 1.5, 2.0, 3.0, inf)
"""How many times its least GPU-time a task may take in the plans to begin with."""
_SLICE_S, _FIRST_MOVES = 0.2, 4
"""How long moves are tried between two looks at the clock; how many at first."""
_MOST_TASKS, _MOST_INSTANTS = 20_000, 20_000_000
"""Larger windows keep the plans that they begin with."""
_WIDEST = 62
"""Sets of GPUs of a server fit a word."""


class _Prepared(NamedTuple):
    """The GPUs of each server, and what runs take of them."""

    servers: tuple[tuple[int, ...], ...]
    tables: GangTables


def improve(search: Search, seed: int, workers: int, iterations: int | None = None) -> None:
    """Offer ever better plans until the time, or the number of moves, is used up; `search` has a plan to start from."""
    prepared = _prepare(search)
    if prepared is None or search.timeline is None:
        return
    first = _by_start(search.timeline), _modes_of(search.instance, prepared.tables, search.timeline)
    walks = [_Walk(search, prepared, first, seed + number) for number in range(workers)]
    walks[0].offer(PlanOrigin.START)
    with ThreadPoolExecutor(workers) as pool:
        moves = None if iterations is None else -(-iterations // workers)
        for walking in [pool.submit(walk.anneal, moves) for walk in walks]:
            walking.result()


def begin(search: Search) -> None:
    """Offer the plans of some orders: by release, by run time, by GPU-time, each over the weight of its job.

    What may choose takes the fastest of its modes that take at most so many times its least GPU-time, from few to any.
    """
    prepared = _prepare(search)
    if prepared is None:
        return
    tables = prepared.tables
    run_us = np.where(tables.wide_run >= 0, tables.wide_run, tables.run.max(axis=1))
    worth = np.maximum(tables.weight[tables.job], 1e-200)
    for mode in [_fastest(tables, run_us, most) for most in (_SPENT if tables.choosers.size else _SPENT[-1:])]:
        run, size = run_us[mode].astype(np.float64), tables.size[mode]
        for key in (tables.release, run / worth, run * size / worth, -run * size):
            order = np.lexsort((tables.release, key)).astype(np.int64)
            search.offer(_timeline(search.instance, prepared, order, mode), PlanOrigin.START)


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
    return _Prepared(gpus, tables)


def _by_start(timeline: Timeline) -> Ints:
    return np.lexsort((timeline.end_us, timeline.start_us)).astype(np.int64)


def _modes_of(instance: Instance, tables: GangTables, timeline: Timeline) -> Ints:
    """Return the mode of each task in a plan: that of as many GPUs as its place has."""
    taken = [len(instance.places.gpus[place]) for place in timeline.place.tolist()]
    modes = zip(tables.mode_from.tolist(), tables.mode_to.tolist(), taken, strict=True)
    return np.array([one + np.searchsorted(tables.size[one:end], gpus) for one, end, gpus in modes], np.int64)


def _fastest(tables: GangTables, run_us: Ints, most: float) -> Ints:
    """Return the fastest mode of each task, of those that take at most so many times its least GPU-time."""
    area, fastest = run_us * tables.size, []
    for one, end in zip(tables.mode_from.tolist(), tables.mode_to.tolist(), strict=True):
        spent, took = area[one:end], run_us[one:end]
        fastest.append(one + int(np.where(spent <= most * spent.min(), took, FAR).argmin()))
    return np.array(fastest, np.int64)


class _Walk:
    """One annealing, from an order and modes on."""

    def __init__(self, search: Search, prepared: _Prepared, first: tuple[Ints, Ints], seed: int) -> None:
        self._search, self._prepared, self._random = search, prepared, random_state(seed)
        self._plan, self._best = _new_plan(search.instance, prepared, *first), first[0].copy()
        self._best_mode = first[1].copy()
        self._plan.cost[0] = self._least = decode(prepared.tables, self._plan)

    def offer(self, origin: PlanOrigin = PlanOrigin.SEARCH) -> None:
        """Offer the plan of the best order."""
        self._search.offer(_timeline(self._search.instance, self._prepared, self._best, self._best_mode), origin)

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
            least = anneal(self._prepared.tables, self._plan, *best, self._random, moves, temperature)
            clock.count(moves)
            done += moves
            if iterations is None:
                took_s = max(clock.elapsed_s - before_s, 1e-6)
                moves = max(1, min(2 * moves, int(moves * _SLICE_S / took_s)))
            if least < self._least:
                self._least = least
                self.offer()


def _tabulate(instance: Instance, objective: Objective, servers: Sequence[tuple[int, ...]]) -> GangTables | None:
    """Return what runs take; None if groups of servers for as many GPUs differ in size, or in what runs how fast."""
    charged, template = charges(objective, instance), instance.task_template
    position = {gpu: number for number, gpus in enumerate(servers) for gpu in gpus}
    mode_template, mode_size = _modes(instance)
    inside = np.full((len(mode_size), len(servers)), NEVER, np.int64)
    wide_run = np.full(len(mode_size), NEVER, np.int64)
    source, target, edge = instance.edges()
    of_server = instance.gpu_class[[gpus[0] for gpus in servers]]
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
        alike &= not len(edge) or len(set(of_server[first : last + 1].tolist())) == 1
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
    given_us = instance.input_us[template]
    at_server = np.array([by_number.get(server, NONE) for server in instance.job_ingress.tolist()], np.int64)
    ingress = np.where(given_us > 0, at_server[instance.task_job], NONE)
    weights = np.array([float(weight) for weight in charged.job_weights], np.float64)
    flags = (instance.cluster.places == "any", charged.term is Term.LATE, charged.is_sum)
    return GangTables(
        instance.task_job,
        instance.job_release_us[instance.task_job],
        mode_from.astype(np.int64),
        mode_to.astype(np.int64),
        np.flatnonzero(mode_to - mode_from > 1).astype(np.int64),
        mode_size,
        inside,
        wide_run,
        sort_of.astype(np.int64),
        np.cumsum([0, *(len(groups[size]) for size in sorts)]).astype(np.int64),
        np.array([spans[size] for size in sorts], np.int64),
        np.array([first for size in sorts for first in groups[size]], np.int64),
        np.array([len(gpus) for gpus in servers], np.int64),
        of_server,
        ((np.bincount(target, minlength=instance.n_tasks) > 0) | (ingress >= 0)).astype(np.int64),
        np.searchsorted(target, np.arange(instance.n_tasks + 1)).astype(np.int64),
        source,
        edge,
        instance.transfer_us,
        instance.delay_us,
        ingress,
        given_us,
        weights,
        charged.due_us.astype(np.int64),
        *(np.array([int(flag)], np.int64) for flag in flags),
    )


def _modes(instance: Instance) -> tuple[Ints, Ints]:
    """Return template and number of GPUs of each mode that has a place; two arrays of one length, by template."""
    sizes = np.zeros(instance.run_us.shape[1], np.int64)
    for place, sort in enumerate(instance.place_class.tolist()):
        sizes[sort] = len(instance.places.gpus[place])
    found = [np.unique(sizes[row != NEVER]) for row in instance.run_us]
    template = np.repeat(np.arange(len(found), dtype=np.int64), [len(each) for each in found])
    return template, np.concatenate(found)


def _new_plan(instance: Instance, prepared: _Prepared, order: Ints, mode: Ints) -> GangPlan:
    n, instants = instance.n_tasks, 2 * instance.n_tasks + 2
    start, end, server, taken = (np.zeros(n, np.int64) for _ in range(4))
    instant, used = (np.zeros((len(prepared.servers), instants), np.int64) for _ in range(2))
    length, done = np.zeros(len(prepared.servers), np.int64), np.zeros(len(instance.jobs), np.int64)
    open_us = np.zeros((len(prepared.servers), int(prepared.tables.held.max()) + 1), np.int64)
    shaped = instant, used, length, open_us, done, np.full(1, float(FAR))
    return GangPlan(order.copy(), mode.copy(), start, end, server, taken, *shaped)


def _timeline(instance: Instance, prepared: _Prepared, order: Ints, mode: Ints) -> Timeline:
    """Return the plan of an order, and of modes."""
    servers, tables = prepared
    plan = _new_plan(instance, prepared, order, mode)
    decode(tables, plan)
    among: list[tuple[Sequence[int], int]] = []
    wide, size = tables.wide[mode], tables.size[mode]
    for task, (first, count) in enumerate(zip(plan.server.tolist(), size.tolist(), strict=True)):
        sort, here = int(wide[task]), servers[first]
        if sort >= 0:
            here = tuple(gpu for gpus in servers[first : first + int(tables.group_servers[sort])] for gpu in gpus)
        elif not tables.any_gpus[0]:
            here = tuple(gpu for bit, gpu in enumerate(here) if int(plan.taken[task]) >> bit & 1)
        among.append((here, count))
    return Timeline(instance.places.settle(plan.start, plan.end, among), plan.start, plan.end, ())
