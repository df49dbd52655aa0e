"""The inner loop of simulated annealing: moves inside a window of the order, each decoded and judged.

The tasks before a window's `lead` stand; those in [first, beyond) move; the others up to `last` are only timed again,
those before `first` because evictions look ahead and change with what follows. The cost that would still be accepted
is drawn before a move is judged, so that judging stops once it is exceeded. Where GPUs depend on each other through
inputs alone only what a move changes is timed again (`retiming_kernel`), otherwise the whole window.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from truenorth.models.instance import Ints
from truenorth.solvers.compiled import Floats, RandomState, inlined, kernel, random_unit
from truenorth.solvers.search.batch_moves import propose_with_batches, sort_members, undo_joins
from truenorth.solvers.search.current_plan import CurrentPlan, Neighbourhood, accept, apply, undo
from truenorth.solvers.search.decoder_kernel import INFEASIBLE, Cost, decode, look_ahead
from truenorth.solvers.search.decoder_state import FAR, Decoding, Serving, restore
from truenorth.solvers.search.estimate import estimate
from truenorth.solvers.search.neighbourhood import propose
from truenorth.solvers.search.retiming import Scene, Window, is_local, record
from truenorth.solvers.search.retiming_kernel import adopt, forget, retime, worst_of

DOUBT = 1.0
"""Temperatures by which a move must look too dear to be given up on an estimate."""


class Schedule(NamedTuple):
    """How a window is annealed.

    Attributes
    ----------
    temperature, moves
        How hot it is, and how many moves are tried.
    chances
        Cumulated probabilities of the kinds of moves.
    random
        The random stream.
    counts
        Per kind of move: proposed, accepted, improving; counted up. Shape [kinds, 3].
    """

    temperature: float
    moves: int
    chances: Floats
    random: RandomState
    counts: Ints


class Standing(NamedTuple):
    """What the plan of a window costs before a move: all, its worst job, and a microsecond's delay per task."""

    cost: float
    worst: float
    foreseen: float


@kernel
def advance(scene: Scene, serving: Serving | None, at: int, to: int, cost: Cost) -> Cost:
    """Carry the moment `scene.origin` on over the tasks at positions [at, to), and with it `scene.before`.

    `cost` is that of what stands before `at`; return that before `to`.

    Notes
    -----
    Invariant: afterwards `origin` and `before` are those of a decode that has come to `to`.
    Because: it is that decode, continued; next uses are noted up to the end of the order, as it would.
    Cost: O(tasks from `at` to the end).
    If wrong: weaker. Windows would be judged from a past that the plan does not have.
    """
    tables, work = scene.on.tables, scene.on.work
    _note_next_uses(scene, serving, at)
    for position in range(at, to):
        job = tables.task_job[work.order[position]]
        work.completed[job] = scene.before[job]
    cost = decode(_at_origin(scene), serving, at, to, cost, INFEASIBLE)
    for position in range(at, to):
        job = tables.task_job[work.order[position]]
        scene.before[job] = work.completed[job]
    return cost


@inlined
def _at_origin(scene: Scene) -> Decoding:
    """Return a decode that begins, and ends, with the moment before the window."""
    return Decoding(scene.on.tables, scene.origin, scene.on.work, scene.on.residencies)


@kernel
def anneal_window(
    scene: Scene, serving: Serving | None, plan: CurrentPlan, window: Window, schedule: Schedule
) -> tuple[float, float, float]:
    """Try a number of moves in a window; return its cost before and after them, and the cost of the plan to its end.

    All in one call: to hand a scene over from outside takes as long as a hundred moves. Of batches the last cost is not
    told: what stands before a window evicts for what comes behind it, and there the plan is decoded from its beginning.
    """
    _note_next_uses(scene, serving, window.last)
    # What its moves are judged against.
    before = evaluate(scene, serving, window, INFEASIBLE)
    after = anneal(scene, serving, plan, window, schedule, before)
    if serving is not None:
        return before, after, INFEASIBLE
    tasks = plan.order.shape[0]
    _note_next_uses(scene, serving, tasks)
    # From the lead to the end of the order, with what was paid before it.
    rest = Window(window.lead, window.first, window.beyond, tasks, window.total, window.worst)
    return before, after, evaluate(scene, serving, rest, INFEASIBLE)


@inlined
def _note_next_uses(scene: Scene, serving: Serving | None, last: int) -> None:
    """Give the moment `scene.origin` the next uses of models from a position on."""
    for gpu in range(scene.origin.upcoming.shape[0]):
        for model in range(scene.origin.upcoming.shape[1]):
            # Nothing is to be used again, until looking ahead says so.
            scene.origin.upcoming[gpu, model] = FAR
    look_ahead(scene.on.tables, scene.origin, scene.on.work, serving, last, scene.on.work.order.shape[0])


@kernel
def anneal(
    scene: Scene, serving: Serving | None, plan: CurrentPlan, window: Window, schedule: Schedule, cost: float
) -> float:
    """Try a number of moves at a temperature; return the cost of the window that they lead to.

    Parameters
    ----------
    cost
        Cost of the plan up to the end of the window.

    Notes
    -----
    Invariant: at the top of the loop `plan` is the current plan, sorted by its starts, and `cost` what it costs up to
    the end of the window; nothing is left of moves that were refused.
    Because: a move is applied, judged, and either taken back (`undo`, `forget`, `undo_joins`) or made part of what is
    noted (`adopt`, `settle`); the draw that decides comes before the judging, so that equal seeds draw alike however
    the judging is done.
    Cost: `moves` times what `retime` takes, or a decode of the window.
    If wrong: weaker. What comes out is a list of decisions, which is decoded and checked when it is offered.
    """
    tables, retiming, work = scene.on.tables, scene.retiming, scene.on.work
    temperature, random = schedule.temperature, schedule.random
    around = Neighbourhood(tables, plan, random, window.first, window.beyond)
    local = is_local(tables)
    foreseen, worst = _foresee(scene, window), window.worst
    if serving is None and local:
        if not record(scene, plan, window):
            return cost
        worst = worst_of(retiming, tables, plan, window)
    for _ in range(schedule.moves):
        draw, kind = random_unit(random), 0
        # Few kinds: a walk is as fast as a search by halves.
        while schedule.chances[kind] < draw:
            kind += 1
        schedule.counts[kind, 0] += 1
        proposed = propose(around, kind) if serving is None else propose_with_batches(around, serving, kind)
        if not proposed:
            if serving is not None:
                undo_joins(serving.runs)
            continue
        apply(plan, window.first, window.beyond)
        # Metropolis with the draw first: exp(-(found - cost) / temperature) > u says the same as found < limit, and the
        # judging of a hopeless move ends at the limit instead of at the end of the window.
        limit = cost - temperature * np.log(random_unit(random))
        if serving is None and local:
            doubt = DOUBT * temperature
            found, then = _judge_move(scene, plan, window, Standing(cost, worst, foreseen), limit, doubt)
        else:
            found, then = evaluate(scene, serving, window, limit), worst
        if found > limit:
            if serving is None and local:
                forget(retiming, plan, work)
            undo(plan)
            if serving is not None:
                undo_joins(serving.runs)
            continue
        schedule.counts[kind, 1] += 1
        schedule.counts[kind, 2] += int(found < cost)
        # What is accepted re-sorts the order by the new starts, or moves would soon speak of times that do not hold.
        if serving is None and local:
            adopt(scene, plan, window)
        else:
            settle(plan, work.start, serving, window.lead, window.last)
        cost, worst = found, then
    return cost


@inlined
def _judge_move(
    scene: Scene, plan: CurrentPlan, window: Window, now: Standing, limit: float, doubt: float
) -> tuple[float, float]:
    """Return the cost of the plan up to the end of a window with the move, as `evaluate`, and that of the worst job."""
    allowed = limit - now.cost if now.foreseen > 0 else INFEASIBLE
    if now.foreseen > 0:
        # An estimate is off by some temperatures' worth: only what exceeds that is given up unseen.
        doubted = allowed + doubt
        more = estimate(scene, plan, window, doubted, now.foreseen)
        if more > doubted:
            return INFEASIBLE, now.worst
        # What the estimate noted must not be taken for what `retime` finds.
        forget(scene.retiming, plan, scene.on.work)
    more = retime(scene, plan, window, allowed, now.foreseen)
    # Steps and worst jobs cannot be foreseen; sums of delays have no worst job.
    if more < INFEASIBLE and now.foreseen == 0:
        then = worst_of(scene.retiming, scene.on.tables, plan, window)
        return now.cost + more + then - now.worst, then
    return now.cost + more, now.worst


@inlined
def _foresee(scene: Scene, window: Window) -> float:
    """Return what a microsecond of delay costs per task of a window; 0 where the cost has steps or a worst job."""
    tables, summed = scene.on.tables, 0.0
    for place in range(window.lead, window.last):
        job = tables.task_job[scene.on.work.order[place]]
        # One such job is enough: no slope holds for the whole window.
        if tables.step[job] > 0 or tables.peak[job] > 0:
            return 0.0
        summed += tables.linear[job]
    return summed / max(1, window.last - window.lead)


@kernel
def evaluate(scene: Scene, serving: Serving | None, window: Window, limit: float) -> float:
    """Return the cost of the plan up to the end of a window, or something above `limit` if it is above.

    Notes
    -----
    Invariant: what is returned is what `decode` of the whole order would have summed up behind `last`.
    Because: the decode continues from the moment before the window, with the completions that jobs had by then.
    Cost: O(tasks of the window), and what loads cost.
    If wrong: weaker, as with `decode`.
    """
    tables, work = scene.on.tables, scene.on.work
    first, last = window.lead, window.last
    # A job may have tasks before the window: its completion starts over from those alone.
    for place in range(first, last):
        job = tables.task_job[work.order[place]]
        work.completed[job] = scene.before[job]
    restore(scene.on.state, scene.origin)
    # Where everything fits nobody is evicted, and nobody asks for next uses; batches ask for the next task as well.
    if serving is not None or tables.evictable:
        look_ahead(tables, scene.on.state, work, serving, first, last)
    total, worst = decode(scene.on, serving, first, last, (window.total, window.worst), limit)
    return total + worst


@kernel
def settle(plan: CurrentPlan, start: Ints, serving: Serving | None, first: int, last: int) -> None:
    """Make the decoded start times of a stretch those of the plan, and sort it by them, batches by arrivals."""
    accept(plan, start, first, last)
    if serving is not None:
        sort_members(serving, plan, first, last)
