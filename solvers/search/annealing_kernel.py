"""The inner loop of simulated annealing: moves inside a window of the order, each decoded and judged.

The tasks before a window's `lead` stand; those in [first, beyond) move; the others up to `last` are only timed again,
those before `first` because evictions look ahead and change with what follows. The cost that would still be accepted
is drawn before a move is judged, so that judging stops once it is exceeded. Where GPUs depend on each other through
inputs alone only what a move changes is timed again (`retiming_kernel`), otherwise the whole window.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from models.instance import Ints
from solvers.compiled import Floats, RandomState, inlined, kernel, random_unit
from solvers.search.current_plan import Plan, accept, apply, undo
from solvers.search.decoder_kernel import INFEASIBLE, decode, look_ahead
from solvers.search.decoder_state import FAR, State, Work, restore
from solvers.search.decoder_tables import Tables
from solvers.search.estimate import estimate
from solvers.search.neighbourhood import propose
from solvers.search.retiming import Retiming, is_local, record
from solvers.search.retiming_kernel import adopt, forget, retime, worst_of

DOUBT = 1.0
"""Temperatures by which a move must look too dear to be given up on an estimate."""


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
        The moment before the window's lead; kernels set its next uses.
    before
        `completed` of every job without the tasks of the window.
    state, work, residencies, retiming
        Working memory; `work` shares order and gpu with the plan, `retiming` has a row for each task of the window.
    """

    tables: Tables
    origin: State
    before: Ints
    state: State
    work: Work
    residencies: Ints
    retiming: Retiming


@kernel
def advance(scene: Scene, at: int, to: int, total: float, worst: float) -> tuple[float, float]:
    """Carry the moment `scene.origin` on over the tasks at positions [at, to), and with it `scene.before`.

    `total` and `worst` are summed and worst cost of what stands before `at`; return those before `to`.
    """
    tables, work = scene.tables, scene.work
    _note_next_uses(scene, at)
    for position in range(at, to):
        job = tables.task_job[work.order[position]]
        work.completed[job] = scene.before[job]
    total, worst = decode(tables, scene.origin, work, scene.residencies, at, to, total, worst, INFEASIBLE)
    for position in range(at, to):
        job = tables.task_job[work.order[position]]
        scene.before[job] = work.completed[job]
    return total, worst


@kernel
def anneal_window(
    scene: Scene,
    plan: Plan,
    window: Window,
    temperature: float,
    moves: int,
    chances: Floats,
    random: RandomState,
    counts: Ints,
) -> tuple[float, float, float]:
    """Try a number of moves in a window; return its cost before and after them, and the cost of the plan to its end.

    All in one call: to hand a scene over from outside takes as long as a hundred moves.
    """
    _note_next_uses(scene, window.last)
    before = evaluate(scene, window, INFEASIBLE)
    after = _anneal(scene, plan, window, before, temperature, moves, chances, random, counts)
    tasks = plan.order.shape[0]
    _note_next_uses(scene, tasks)
    rest = Window(window.lead, window.first, window.beyond, tasks, window.total, window.worst)
    return before, after, evaluate(scene, rest, INFEASIBLE)


@inlined
def _note_next_uses(scene: Scene, last: int) -> None:
    """Give the moment `scene.origin` the next uses of models from a position on."""
    for gpu in range(scene.origin.upcoming.shape[0]):
        for model in range(scene.origin.upcoming.shape[1]):
            scene.origin.upcoming[gpu, model] = FAR
    look_ahead(scene.tables, scene.origin, scene.work, last, scene.work.order.shape[0])


@kernel
def _anneal(
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
    tables, retiming, work = scene.tables, scene.retiming, scene.work
    local = is_local(tables)
    foreseen, worst = _foresee(scene, window), window.worst
    if local:
        possible = record(
            retiming,
            tables,
            scene.origin,
            scene.before,
            scene.state,
            work,
            scene.residencies,
            plan,
            window.lead,
            window.last,
        )
        if not possible:
            return cost
        worst = worst_of(retiming, tables, plan, window.lead, window.last, window.worst)
    for _ in range(moves):
        draw, kind = random_unit(random), 0
        while chances[kind] < draw:
            kind += 1
        counts[kind, 0] += 1
        if not propose(tables, plan, random, kind, window.first, window.beyond):
            continue
        apply(plan, window.first, window.beyond)
        # Metropolis with the draw first: exp(-(found - cost) / temperature) > u says the same as found < limit, and the
        # judging of a hopeless move ends at the limit instead of at the end of the window.
        limit = cost - temperature * np.log(random_unit(random))
        if local:
            found, then = _judge_move(scene, plan, window, cost, worst, limit, temperature, foreseen)
        else:
            found, then = evaluate(scene, window, limit), worst
        if found > limit:
            if local:
                forget(retiming, plan, work)
            undo(plan)
            continue
        counts[kind, 1] += 1
        counts[kind, 2] += int(found < cost)
        # What is accepted re-sorts the order by the new starts, or moves would soon speak of times that do not hold.
        if local:
            adopt(retiming, tables, scene.state, work, plan, window.lead, window.last)
        else:
            accept(plan, work.start, window.lead, window.last)
        cost, worst = found, then
    return cost


@inlined
def _judge_move(
    scene: Scene,
    plan: Plan,
    window: Window,
    cost: float,
    worst: float,
    limit: float,
    temperature: float,
    foreseen: float,
) -> tuple[float, float]:
    """Return the cost of the plan up to the end of a window with the move, as `evaluate`, and that of the worst job."""
    tables, retiming = scene.tables, scene.retiming
    allowed = limit - cost if foreseen > 0 else INFEASIBLE
    if foreseen > 0:
        doubted = allowed + DOUBT * temperature
        more = estimate(retiming, tables, scene.work, plan, scene.before, window.lead, window.last, doubted, foreseen)
        if more > doubted:
            return INFEASIBLE, worst
        forget(retiming, plan, scene.work)
    more = retime(
        retiming,
        tables,
        scene.state,
        scene.work,
        scene.residencies,
        plan,
        scene.before,
        window.lead,
        window.last,
        allowed,
        foreseen,
    )
    # Steps and worst jobs cannot be foreseen; sums of delays have no worst job.
    if more < INFEASIBLE and foreseen == 0:
        then = worst_of(retiming, tables, plan, window.lead, window.last, window.worst)
        return cost + more + then - worst, then
    return cost + more, worst


@inlined
def _foresee(scene: Scene, window: Window) -> float:
    """Return what a microsecond of delay costs per task of a window; 0 where the cost has steps or a worst job."""
    summed = 0.0
    for place in range(window.lead, window.last):
        job = scene.tables.task_job[scene.work.order[place]]
        if scene.tables.step[job] > 0 or scene.tables.peak[job] > 0:
            return 0.0
        summed += scene.tables.linear[job]
    return summed / max(1, window.last - window.lead)


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
