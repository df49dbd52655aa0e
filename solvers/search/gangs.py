"""Plans of runs on several GPUs: simulated annealing over the order in which they are put where they end first."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from truenorth.models.features import Feature, Features, missing
from truenorth.models.instance import NEVER, Instance, Ints
from truenorth.models.objective import Objective, Term, charges
from truenorth.models.timeline import Timeline
from truenorth.solvers.compiled import random_state
from truenorth.solvers.incumbents import PlanOrigin
from truenorth.solvers.result import Search
from truenorth.solvers.search.gangs_kernel import FAR, GangPlan, GangTables, anneal, decode

SUPPORTS: Features = frozenset({Feature.GANGS, Feature.PLACES, Feature.MEMORY})
METHOD = "search"

_HOT, _COLD = 0.05, 0.0005
"""First and last temperature, as multiples of a job's average share of the cost."""
_SLICE_S, _FIRST_MOVES = 0.2, 4
"""How long moves are tried between two looks at the clock; how many at first."""
_MOST_TASKS, _MOST_INSTANTS = 20_000, 20_000_000
"""Larger windows keep the plans that they begin with."""
_WIDEST = 62
"""Sets of GPUs of a server fit a word."""


@dataclass(frozen=True, slots=True)
class _Servers:
    """The servers of a window, each with GPUs of one class."""

    gpus: tuple[tuple[int, ...], ...]
    position: dict[int, int]

    @classmethod
    def of(cls, instance: Instance) -> _Servers | None:
        """Return the servers; None where those of one differ, or places are listed one by one."""
        by_server: dict[int, list[int]] = {}
        for gpu, server in enumerate(instance.gpu_server.tolist()):
            by_server.setdefault(server, []).append(gpu)
        alike = all(len({int(instance.gpu_class[gpu]) for gpu in gpus}) == 1 for gpus in by_server.values())
        if not alike or not isinstance(instance.cluster.places, str) or max(map(len, by_server.values())) > _WIDEST:
            return None
        gpus = tuple(tuple(gpus) for gpus in by_server.values())
        return cls(gpus, {gpu: number for number, row in enumerate(gpus) for gpu in row})


def improve(search: Search, seed: int, workers: int, iterations: int | None = None) -> None:
    """Offer ever better plans until the time, or the number of moves, is used up; `search` has a plan to start from."""
    instance = search.instance
    servers = _Servers.of(instance)
    if search.timeline is None or servers is None or missing(instance, SUPPORTS):
        search.left_out[METHOD] = "it needs a first plan, and servers of equal GPUs whose places are not listed"
        return
    if instance.n_tasks > _MOST_TASKS or instance.n_tasks * len(servers.gpus) > _MOST_INSTANTS:
        search.left_out[METHOD] = f"{instance.n_tasks} tasks on {len(servers.gpus)} servers are too many for it"
        return
    tables = _tabulate(instance, search.objective, servers)
    if tables is None:
        search.left_out[METHOD] = "groups of servers differ in run times"
        return
    first = _by_start(search.timeline)
    walks = [_Walk(search, servers, tables, first, seed + number) for number in range(workers)]
    walks[0].offer(PlanOrigin.START)
    with ThreadPoolExecutor(workers) as pool:
        moves = None if iterations is None else -(-iterations // workers)
        for walking in [pool.submit(walk.anneal, moves) for walk in walks]:
            walking.result()


def begin(search: Search) -> None:
    """Offer the plans of some orders: by release, by run time, by GPU-time, each over the weight of its job."""
    instance = search.instance
    servers = _Servers.of(instance)
    tables = None if servers is None or missing(instance, SUPPORTS) else _tabulate(instance, search.objective, servers)
    if servers is None or tables is None or instance.n_tasks * len(servers.gpus) > _MOST_INSTANTS:
        return
    run = np.where(tables.wide_run >= 0, tables.wide_run, tables.run.max(axis=1)).astype(np.float64)
    worth = np.maximum(tables.weight[tables.job], 1e-300)
    for key in (tables.release, run / worth, run * tables.size / worth, -run * tables.size):
        plan = _new_plan(instance, servers, np.lexsort((tables.release, key)).astype(np.int64))
        decode(tables, plan)
        search.offer(timeline_of(instance, servers, tables, plan), PlanOrigin.START)


def _by_start(timeline: Timeline) -> Ints:
    return np.lexsort((timeline.end_us, timeline.start_us)).astype(np.int64)


class _Walk:
    """One annealing, from an order on."""

    def __init__(self, search: Search, servers: _Servers, tables: GangTables, first: Ints, seed: int) -> None:
        self._search, self._servers, self._tables = search, servers, tables
        self._random = random_state(seed)
        self._plan, self._best = _new_plan(search.instance, servers, first), first.copy()
        self._plan.cost[0] = self._least = decode(tables, self._plan)

    def offer(self, origin: PlanOrigin = PlanOrigin.SEARCH) -> None:
        """Offer the plan of the best order."""
        plan = _new_plan(self._search.instance, self._servers, self._best)
        decode(self._tables, plan)
        self._search.offer(timeline_of(self._search.instance, self._servers, self._tables, plan), origin)

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
            least = anneal(self._tables, self._plan, self._best, self._random, moves, temperature)
            clock.count(moves)
            done += moves
            if iterations is None:
                took_s = max(clock.elapsed_s - before_s, 1e-6)
                moves = max(1, min(2 * moves, int(moves * _SLICE_S / took_s)))
            if least < self._least:
                self._least = least
                self.offer()


def _tabulate(instance: Instance, objective: Objective, servers: _Servers) -> GangTables | None:
    """Return what runs take; None if groups of servers of one size differ in run times."""
    charged, template = charges(objective, instance), instance.task_template
    inside = np.full((len(instance.template_gpus), len(servers.gpus)), NEVER, np.int64)
    wide_run = np.full(len(instance.template_gpus), NEVER, np.int64)
    groups: dict[int, list[int]] = {}
    spans: dict[int, set[int]] = {}
    for place, gpus in enumerate(instance.places.gpus):
        row = instance.run_us[:, instance.place_class[place]]
        first, last = servers.position[gpus[0]], servers.position[gpus[-1]]
        if first == last:
            inside[:, first] = np.maximum(inside[:, first], row)
        else:
            groups.setdefault(len(gpus), []).append(first)
            spans.setdefault(len(gpus), set()).add(last - first + 1)
            wide = row != NEVER
            if ((wide_run[wide] != NEVER) & (wide_run[wide] != row[wide])).any():
                return None
            wide_run[wide] = row[wide]
    if any(len(each) > 1 for each in spans.values()):
        return None
    if any(
        (instance.run_us[instance.template_gpus == size][:, kind] == NEVER).any()
        for size in groups
        for kind in {int(instance.place_class[p]) for p, gpus in enumerate(instance.places.gpus) if len(gpus) == size}
    ):
        return None
    sorts = sorted(groups)
    sort_of = np.array([sorts.index(size) if size in groups else NEVER for size in instance.template_gpus.tolist()])
    weights = np.array([float(weight) for weight in charged.job_weights], np.float64)
    flags = (instance.cluster.places == "any", charged.term is Term.LATE, charged.is_sum)
    return GangTables(
        instance.task_job,
        instance.job_release_us[instance.task_job],
        instance.template_gpus[template],
        inside[template],
        wide_run[template],
        sort_of.astype(np.int64)[template],
        np.cumsum([0, *(len(groups[size]) for size in sorts)]).astype(np.int64),
        np.array([next(iter(spans[size])) for size in sorts], np.int64),
        np.array([first for size in sorts for first in groups[size]], np.int64),
        np.array([len(gpus) for gpus in servers.gpus], np.int64),
        weights,
        charged.due_us.astype(np.int64),
        *(np.array([int(flag)], np.int64) for flag in flags),
    )


def _new_plan(instance: Instance, servers: _Servers, order: Ints) -> GangPlan:
    n, instants = instance.n_tasks, 2 * instance.n_tasks + 2
    start, server, taken = (np.zeros(n, np.int64) for _ in range(3))
    instant, used = (np.zeros((len(servers.gpus), instants), np.int64) for _ in range(2))
    length, done = np.zeros(len(servers.gpus), np.int64), np.zeros(len(instance.jobs), np.int64)
    return GangPlan(order.copy(), start, server, taken, instant, used, length, done, np.full(1, float(FAR)))


def timeline_of(instance: Instance, servers: _Servers, tables: GangTables, plan: GangPlan) -> Timeline:
    """Return a plan as a timeline; where runs take any GPUs of a server, the lowest that are free, by start.

    As many are free at its start as a run needs, and stay so: which ones does not matter.
    """
    place, end_us = np.zeros(instance.n_tasks, np.int64), np.zeros(instance.n_tasks, np.int64)
    free_us = np.zeros(instance.n_gpus, np.int64)
    for task in np.argsort(plan.start, kind="stable").tolist():
        start, first = int(plan.start[task]), int(plan.server[task])
        sort = int(tables.wide[task])
        if sort >= 0:
            count = int(tables.group_servers[sort])
            gpus = tuple(gpu for server in range(first, first + count) for gpu in servers.gpus[server])
            end_us[task] = start + int(tables.wide_run[task])
        else:
            here, size = servers.gpus[first], int(tables.size[task])
            if tables.any_gpus[0]:
                gpus = tuple(gpu for gpu in here if free_us[gpu] <= start)[:size]
            else:
                gpus = tuple(gpu for bit, gpu in enumerate(here) if int(plan.taken[task]) >> bit & 1)
            end_us[task] = start + int(tables.run[task, first])
        free_us[list(gpus)] = end_us[task]
        place[task] = instance.places.number[gpus]
    return Timeline(place, plan.start.copy(), end_us, ())
