"""Makespan of tasks without models on equal GPUs, as bin packing: capacities are refuted until one holds all.

The lowest capacity that is not refuted is tried first, so the first packing found is optimal. CP-SAT decides each
capacity on the arc-flow formulation, in whole numbers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from fractions import Fraction
from math import ceil, floor, inf

from truenorth.models import Instance, Objective, Placement, Timeline
from truenorth.models.features import NO_RULES, Feature, missing
from truenorth.models.formulations.arc_flow import formulate, read_bins
from truenorth.solvers.exact.cp_sat import new_solver, solve_until
from truenorth.solvers.result import Search
from truenorth.solvers.trust import ARC_FLOW

METHOD = ARC_FLOW
"""Name of the bounds that refuted capacities prove."""
SUPPORTS = NO_RULES | {Feature.SLOTS, Feature.SERIAL_LOADS}


def applies(instance: Instance, objective: Objective) -> bool:
    """Say whether a makespan is a matter of packing: single tasks without models, released at 0, GPUs alike."""
    return (
        objective is Objective.MAKESPAN
        and not missing(instance, SUPPORTS)
        and not instance.earliest_starts().any()
        and len({gpu.kind for gpu in instance.cluster.gpus}) == 1
    )


def improve(search: Search, workers: int = 2, seed: int = 0, limit_s: float = inf) -> None:
    """Refute one makespan after the other, from the bound upwards, until one is reached or time is up.

    Parameters
    ----------
    limit_s
        Seconds from now.
    """
    clock = search.clock.child(limit_s)
    sizes = [search.instance.run_time(task, 0) for task in range(search.instance.n_tasks)]
    gpus = search.instance.n_gpus
    while not search.proved and not clock.is_set():
        # Never below what is refuted: so the first capacity that holds everything is the least.
        makespan = max(max(sizes), ceil(search.bound or 0))
        decided, packed = pack(sizes, gpus, makespan, clock.left_s, workers, seed, clock.is_set)
        if packed is not None:
            search.offer(timeline(search.instance, packed))
        if not decided:
            return
        search.offer_bound(Fraction(makespan if packed is not None else makespan + 1), METHOD)


def look_within(search: Search, most: Fraction | None, workers: int, seed: int) -> None:
    """Look for a plan of at most some makespan, or deny that there is one, in other words than `improve`."""
    sizes = [search.instance.run_time(task, 0) for task in range(search.instance.n_tasks)]
    capacity = sum(sizes) if most is None else floor(most)
    gpus, clock = search.instance.n_gpus, search.clock
    decided, packed = pack(sizes, gpus, capacity, clock.left_s, workers, seed, clock.is_set, presolve=False)
    if packed is not None:
        search.offer(timeline(search.instance, packed))
    elif decided:
        search.deny(METHOD)


def pack(
    sizes: Sequence[int],
    bins: int,
    capacity: int,
    time_limit_s: float,
    workers: int = 2,
    seed: int = 0,
    over: Callable[[], bool] = lambda: False,
    presolve: bool = True,
) -> tuple[bool, list[list[int]] | None]:
    """Say whether items fit into bins.

    Parameters
    ----------
    over
        Asked again and again whether to give up.
    presolve
        Whether the solver may rewrite the model first.

    Returns
    -------
    bool
        Whether the question was decided.
    list of list of int or None
        The sizes in each bin; None if they do not fit or nothing was decided.
    """
    # A piece larger than a bin needs no solver, and has no arc.
    formulation = formulate(sizes, bins, capacity) if max(sizes, default=0) <= capacity else None
    if formulation is None:
        return max(sizes, default=0) > capacity, None
    solver = new_solver(workers, seed, time_limit_s)
    solver.parameters.cp_model_presolve = presolve
    status = solve_until(over, solver, formulation.model)
    if status in ("OPTIMAL", "FEASIBLE"):
        return True, read_bins(formulation, solver)
    return status == "INFEASIBLE", None


def timeline(instance: Instance, packed: Sequence[Sequence[int]]) -> Timeline:
    """Return the plan that runs the items of each bin one after the other."""
    # The flow knows sizes only; tasks of equal size are the same to it and to the makespan.
    waiting = defaultdict[int, list[int]](list)
    for task in range(instance.n_tasks):
        waiting[instance.run_time(task, 0)].append(task)
    placements = list[Placement]()
    for gpu, contents in enumerate(packed):
        at = 0
        for size in contents:
            placements.append(Placement(waiting[size].pop(), gpu, at, at + size))
            at += size
    return Timeline.build(instance.n_tasks, placements, ())
