"""Moves of an order of runs on several GPUs, each in a mode: one changes either, and all is planned anew."""

from __future__ import annotations

from math import log
from typing import Any

from truenorth.models.instance import Ints
from truenorth.solvers.compiled import RandomState, inlined, kernel, random_below, random_unit
from truenorth.solvers.search import gang_loads_kernel, gangs_kernel
from truenorth.solvers.search.gang_loads_kernel import LoadPlan, LoadTables
from truenorth.solvers.search.gangs_kernel import Away, GangPlan, GangTables, TaskTables

_NEAR = 16
"""Half of the moves go so many places at most, the others anywhere."""


@kernel
def decode(tables: Any, away: Away | None, loads: LoadTables | None, plan: Any) -> float:
    """Plan the runs in their order; return what the plan costs: with `loads`, the tables, where runs need models.

    Else `away` is given. What is None is left out of what is compiled, and the plan is of the sort that is left.
    """
    cost = 0.0
    if loads is not None:
        cost = gang_loads_kernel.decode(loads, plan)
    if away is not None:
        cost = gangs_kernel.decode(tables, away, plan)
    return cost


@inlined
def _shift(order: Ints, source: int, target: int) -> None:
    """Take a task out of the order, and put it in at another place."""
    task = order[source]
    if source < target:
        for at in range(source, target):
            order[at] = order[at + 1]
    else:
        for at in range(source, target, -1):
            order[at] = order[at - 1]
    order[target] = task


@inlined
def _other_mode(tasks: TaskTables, mode: Ints, task: int, random: RandomState) -> None:
    """Have a task run in another of its modes."""
    first, count = tasks.mode_from[task], tasks.mode_to[task] - tasks.mode_from[task]
    mode[task] = first + (mode[task] - first + 1 + random_below(random, count - 1)) % count


@kernel
def anneal(
    tables: GangTables | LoadTables,
    away: Away | None,
    loads: LoadTables | None,
    plan: GangPlan | LoadPlan,
    best: Ints,
    best_mode: Ints,
    random: RandomState,
    moves: int,
    temperature: float,
) -> float:
    """Try moves; keep the best order and modes in `best` and `best_mode`; `plan.cost` is that of the order.

    Returns
    -------
    float
        What the best costs.
    """
    tasks, n, least = tables.tasks, len(plan.order), plan.cost[0]
    for _ in range(moves):
        # Where some task chooses its mode every other move is of that sort.
        chooser, before, source, target = -1, 0, 0, 0
        if len(tasks.choosers) > 0 and random_below(random, 2) == 0:
            chooser = tasks.choosers[random_below(random, len(tasks.choosers))]
            before = plan.mode[chooser]
            _other_mode(tasks, plan.mode, chooser, random)
        else:
            source = random_below(random, n)
            if random_below(random, 2) == 0:
                target = min(n - 1, max(0, source + random_below(random, 2 * _NEAR + 1) - _NEAR))
            else:
                target = random_below(random, n)
            if source == target:
                continue
            _shift(plan.order, source, target)
        cost = decode(tables, away, loads, plan)
        if cost <= plan.cost[0] - temperature * log(random_unit(random)):
            plan.cost[0] = cost
            if cost < least:
                least = cost
                for at in range(n):
                    best[at], best_mode[at] = plan.order[at], plan.mode[at]
        elif chooser >= 0:
            plan.mode[chooser] = before
        else:
            _shift(plan.order, target, source)
    return float(least)
