"""Simulated annealing over the decisions of the list decoder, in compiled slices.

A slice tries some thousand moves inside a window of the order: the tasks before it stand, those up to its `beyond`
move, those after it up to `last` are only timed again. The cost that would still be accepted is drawn before a move
is decoded, so that a decode stops as soon as it is exceeded.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from models.instance import Ints
from solvers.compiled import Floats, RandomState, kernel, random_unit
from solvers.decoder_kernel import decode, look_ahead
from solvers.decoder_state import State, Work, restore
from solvers.decoder_tables import Tables
from solvers.neighbourhood import MOVES, Plan, accept, apply, propose, undo


class Window(NamedTuple):
    """The stretch of the order that a slice works on.

    Attributes
    ----------
    first, beyond, last
        Tasks at positions [first, beyond) move, those at [beyond, last) are timed again.
    total, worst
        Summed and worst cost of what stands before `first`.
    """

    first: int
    beyond: int
    last: int
    total: float
    worst: float


@kernel
def anneal(
    tables: Tables,
    origin: State,
    state: State,
    plan: Plan,
    work: Work,
    residencies: Ints,
    before: Ints,
    window: Window,
    best_order: Ints,
    best_gpu: Ints,
    costs: Floats,
    chances: Floats,
    hot: float,
    cold: float,
    moves: int,
    random: RandomState,
    counts: Ints,
) -> None:
    """Try a number of moves while the temperature falls geometrically from `hot` to `cold`.

    Parameters
    ----------
    origin
        The moment before the window, with the next uses from `window.last` on.
    state, work, residencies
        Working memory; `work` shares order and gpu with the plan.
    before
        `completed` of every job without the tasks of the window.
    best_order, best_gpu
        Take the best decisions met.
    costs
        Cost of the current plan and of the best one; changed in place.
    chances
        Cumulated probabilities of the kinds of moves.
    counts
        Per kind of move: proposed, accepted, improving the best. Shape [moves, 3].
    """
    first, beyond, last = window.first, window.beyond, window.last
    cooling = (cold / hot) ** (1.0 / max(moves, 1))
    temperature = hot
    for _ in range(moves):
        temperature *= cooling
        draw, kind = random_unit(random), 0
        while chances[kind] < draw:
            kind += 1
        counts[kind, 0] += 1
        if not propose(tables, plan, random, kind, first, beyond):
            continue
        apply(plan, first, beyond)
        limit = costs[0] - temperature * np.log(random_unit(random))
        for place in range(first, last):
            job = tables.task_job[plan.order[place]]
            work.completed[job] = before[job]
        restore(state, origin)
        if tables.evictable:
            look_ahead(tables, state, work, first, last)
        total, worst = decode(tables, state, work, residencies, first, last, window.total, window.worst, limit)
        cost = total + worst
        if cost > limit:
            undo(plan)
            continue
        counts[kind, 1] += 1
        accept(plan, work.start, first, last)
        costs[0] = cost
        if cost < costs[1] - 1e-9 * abs(costs[1]):
            counts[kind, 2] += 1
            costs[1] = cost
            for place in range(first, last):
                task = plan.order[place]
                best_order[place] = task
                best_gpu[task] = plan.gpu[task]


__all__ = ["MOVES", "Window", "anneal"]
