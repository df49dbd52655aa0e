"""The inner loop of simulated annealing: moves inside a window of the order, each decoded and judged.

The tasks before a window's `lead` stand; those in [first, beyond) move; the others up to `last` are only timed again,
those before `first` because evictions look ahead and change with what follows. The cost that would still be accepted
is drawn before a move is decoded, so that a decode stops once it is exceeded.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from models.instance import Ints
from solvers.compiled import Floats, RandomState, kernel, random_unit
from solvers.search.decoder_kernel import decode, look_ahead
from solvers.search.decoder_state import State, Work, restore
from solvers.search.decoder_tables import Tables
from solvers.search.neighbourhood import Plan, accept, apply, propose, undo


class Window(NamedTuple):
    """The stretch of the order that moves.

    Attributes
    ----------
    lead, first, beyond, last
        Tasks at positions [first, beyond) move, the others in [lead, last) are timed again.
    total, worst
        Summed and worst cost of what stands before `lead`.
    """

    lead: int
    first: int
    beyond: int
    last: int
    total: float
    worst: float


class Scene(NamedTuple):
    """What the judging of a window reads, and its working memory.

    Attributes
    ----------
    tables
        The instance and its objective.
    origin
        The moment before the window's lead, with the next uses from its `last` on.
    before
        `completed` of every job without the tasks of the window.
    state, work, residencies
        Working memory; `work` shares order and gpu with the plan.
    """

    tables: Tables
    origin: State
    before: Ints
    state: State
    work: Work
    residencies: Ints


@kernel
def anneal(
    scene: Scene,
    plan: Plan,
    window: Window,
    cost: float,
    temperature: float,
    moves: int,
    chances: Floats,
    random: RandomState,
    counts: Ints,
) -> float:
    """Try a number of moves at a temperature; return the cost of the window that they lead to.

    Parameters
    ----------
    cost
        Cost of the plan up to the end of the window.
    chances
        Cumulated probabilities of the kinds of moves.
    counts
        Per kind of move: proposed, accepted, improving; counted up. Shape [kinds, 3].
    """
    for _ in range(moves):
        draw, kind = random_unit(random), 0
        while chances[kind] < draw:
            kind += 1
        counts[kind, 0] += 1
        if not propose(scene.tables, plan, random, kind, window.first, window.beyond):
            continue
        apply(plan, window.first, window.beyond)
        # Metropolis with the draw first: exp(-(found - cost) / temperature) > u says the same as found < limit, and the
        # decode of a hopeless move ends at the limit instead of at the end of the window.
        limit = cost - temperature * np.log(random_unit(random))
        found = evaluate(scene, window, limit)
        if found > limit:
            undo(plan)
            continue
        # What is accepted re-sorts the order by the new starts, or moves would soon speak of times that do not hold.
        counts[kind, 1] += 1
        counts[kind, 2] += int(found < cost)
        accept(plan, scene.work.start, window.lead, window.last)
        cost = found
    return cost


@kernel
def evaluate(scene: Scene, window: Window, limit: float) -> float:
    """Return the cost of the plan up to the end of a window, or something above `limit` if it is above."""
    first, last = window.lead, window.last
    # A job may have tasks before the window: its completion starts over from those alone.
    for place in range(first, last):
        job = scene.tables.task_job[scene.work.order[place]]
        scene.work.completed[job] = scene.before[job]
    restore(scene.state, scene.origin)
    # Where everything fits nobody is evicted, and nobody asks for next uses.
    if scene.tables.evictable:
        look_ahead(scene.tables, scene.state, scene.work, first, last)
    total, worst = decode(
        scene.tables,
        scene.state,
        scene.work,
        scene.residencies,
        first,
        last,
        window.total,
        window.worst,
        limit,
    )
    return total + worst


@kernel
def settle(plan: Plan, start: Ints, first: int, last: int) -> None:
    """Make the decoded start times of a stretch those of the plan, and sort it by them."""
    accept(plan, start, first, last)
