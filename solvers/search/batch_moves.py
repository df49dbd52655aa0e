"""Moves of the local search on batches: tasks join, leave, split, merge and fill them, and batches move as one.

Members of a batch share their start, so they lie together among the tasks of their GPU; a task that is put right
behind a batch and joins is its member. Whether the batch then starts later, because the inputs of the task come later,
the decoder says. Moves of single tasks are those of `neighbourhood`, with joining drawn beside.
"""

from __future__ import annotations

import numpy as np

from truenorth.models.instance import NONE
from truenorth.solvers.compiled import inlined, random_below, random_unit
from truenorth.solvers.search.current_plan import CurrentPlan, Neighbourhood, draw_other_gpu, keeps_order, may_run, take
from truenorth.solvers.search.decoder_state import Runs, Serving
from truenorth.solvers.search.decoder_tables import Service
from truenorth.solvers.search.neighbourhood import MOVES, SHIFT_REPLACE, propose, take_along

BATCH_MOVES = (
    *MOVES,
    "join a batch",
    "merge two batches",
    "fill a batch",
    "move a border",
    "move a batch",
)
"""The kinds of moves, in the order of their numbers."""

JOIN, MERGE, FILL, BORDER, MOVE = range(11, 16)

BATCHES_PASSED = 8
"""Most batches of a class that a task passes on its way to another one."""


@inlined
def propose_with_batches(around: Neighbourhood, serving: Serving, kind: int) -> bool:
    """Draw a move of a kind; say whether there is one. As `propose`, with what it decides about joining.

    Notes
    -----
    Invariant: `runs.flipped` lists every change of `joins` by the move, so that `undo_joins` takes all of it back;
    batches whose leader goes have another leader.
    Because: `joins` is written by `_set_joins` alone, which lists what it changes.
    Cost: O(tasks between the task and where it goes + members).
    If wrong: weaker, but for a `joins` that is not taken back: then plan and cost no longer belong together.
    """
    plan, runs = around.plan, serving.runs
    runs.flips[0] = 0
    task = plan.order[around.first + random_below(around.random, around.beyond - around.first)]
    if not _propose_kind(around, serving, kind, task):
        return False
    _lead_anew(serving, plan, around.beyond)
    return True


@inlined
def _propose_kind(around: Neighbourhood, serving: Serving, kind: int, task: int) -> bool:
    """Draw a move of a kind that begins with a task; say whether there is one."""
    plan, random = around.plan, around.random
    batch = serving.service.task_batch[task]
    if kind < JOIN or (kind == MOVE and batch == NONE):
        if not propose(around, SHIFT_REPLACE if kind == MOVE else kind):
            return False
        if plan.how_many[0] == 1 and random_below(random, 2) == 0:
            _set_joins(serving, plan.moved[0], random_below(random, 2))
        return True
    plan.how_many[0] = 0
    if batch == NONE:
        return False
    if kind == BORDER:
        _propose_border(around, serving, task)
        return True
    if kind == FILL:
        return _propose_fill(around, serving, task)
    if kind == MOVE:
        gpu = draw_other_gpu(around, task) if random_below(random, 2) == 0 else plan.gpu[task]
        return take_along(around, task, gpu) and _take_others(around, serving, task)
    target = _other_batch(around, serving, task)
    if target < 0 or not may_run(around.tables, task, plan.gpu[target]):
        return False
    take(plan, task, plan.gpu[target], plan.time[target] + 1)
    if kind == MERGE and not _take_others(around, serving, task):
        return False
    for at in range(plan.how_many[0]):
        _set_joins(serving, plan.moved[at], 1)
    return keeps_order(around.tables, plan, task)


@inlined
def _in_one_batch(service: Service, plan: CurrentPlan, task: int, other: int) -> bool:
    """Say whether two tasks are members of one batch of the current plan."""
    together = plan.gpu[other] == plan.gpu[task] and plan.time[other] == plan.time[task]
    return bool(together and service.task_batch[other] == service.task_batch[task])


@inlined
def _take_others(around: Neighbourhood, serving: Serving, task: int) -> bool:
    """Move the other members of a task's batch with it; say whether all may go there."""
    plan = around.plan
    gpu, time = plan.moved_gpu[0], plan.moved_time[0]
    own, place = plan.time[task], plan.position[task]
    while place > around.first and plan.time[plan.order[place - 1]] == own:
        place -= 1
    while place < around.beyond and plan.time[plan.order[place]] == own:
        other = plan.order[place]
        if other != task and _in_one_batch(serving.service, plan, task, other):
            if not may_run(around.tables, other, gpu):
                return False
            take(plan, other, gpu, time)
        place += 1
    for at in range(plan.how_many[0]):  # noqa: SIM110 (kernels know no generators)
        if not keeps_order(around.tables, plan, plan.moved[at]):
            return False
    return True


@inlined
def _other_batch(around: Neighbourhood, serving: Serving, task: int) -> int:
    """Return a task of another batch of the class, a near one more often; NONE if there is none in the window."""
    plan, service = around.plan, serving.service
    steps = int(np.exp(random_unit(around.random) * np.log(BATCHES_PASSED)))
    direction = 1 if random_below(around.random, 2) == 0 else -1
    gpu, time = plan.gpu[task], plan.time[task]
    place, found = plan.position[task] + direction, NONE
    while around.first <= place < around.beyond and steps > 0:
        other = plan.order[place]
        if service.task_batch[other] == service.task_batch[task] and not (
            plan.gpu[other] == gpu and plan.time[other] == time
        ):
            # The members of one batch count as one step.
            gpu, time = plan.gpu[other], plan.time[other]
            found = other
            steps -= 1
        place += direction
    return found


@inlined
def _propose_fill(around: Neighbourhood, serving: Serving, task: int) -> bool:
    """Let the next tasks of the class join a task's batch, as many as it takes or fewer."""
    tables, plan, service = around.tables, around.plan, serving.service
    gpu, time, batch = plan.gpu[task], plan.time[task], service.task_batch[task]
    wanted = service.largest[batch, tables.gpu_class[gpu]] - 1
    if wanted < 1:
        return False
    wanted = 1 + random_below(around.random, wanted)
    for place in range(plan.position[task] + 1, around.beyond):
        other = plan.order[place]
        if service.task_batch[other] != batch or not may_run(tables, other, gpu):
            continue
        if plan.gpu[other] == gpu and plan.time[other] == time:
            continue
        take(plan, other, gpu, time + 1)
        if not keeps_order(tables, plan, other):
            plan.how_many[0] -= 1
            continue
        _set_joins(serving, other, 1)
        if plan.how_many[0] == wanted:
            break
    return bool(plan.how_many[0] > 0)


@inlined
def _propose_border(around: Neighbourhood, serving: Serving, task: int) -> None:
    """Close a batch up to the one before it, or split it at a task; what is split off may join its neighbours.

    Of a batch that is split, the front may close up to the batch before; or the rest takes the batches behind it along,
    as full as they may be, so that one move carries a border through a row of full batches.
    """
    plan, random, runs = around.plan, around.random, serving.runs
    _set_joins(serving, task, 1 - runs.joins[task])
    if runs.joins[task] == 1:
        return
    step = 1 - random_below(random, 3)
    leaders = 0 if step == 0 else (1 if step < 0 else int(np.exp(random_unit(random) * np.log(BATCHES_PASSED))))
    place = plan.position[task] + step
    while leaders > 0 and around.first <= place < around.beyond:
        other = plan.order[place]
        if plan.gpu[other] == plan.gpu[task]:
            if serving.service.task_batch[other] != serving.service.task_batch[task]:
                break
            if runs.joins[other] == 0:
                _set_joins(serving, other, 1)
                leaders -= 1
        place += step


@inlined
def _lead_anew(serving: Serving, plan: CurrentPlan, beyond: int) -> None:
    """Where the first member of a batch goes, let the next one that stays lead: the rest is no part of the move."""
    for at in range(plan.how_many[0]):
        plan.mark[plan.moved[at]] = 1
    for at in range(plan.how_many[0]):
        task = plan.moved[at]
        place = plan.position[task] + 1
        led = serving.service.task_batch[task] != NONE and not _joined(serving.runs, task)
        while led and place < beyond and plan.time[plan.order[place]] == plan.time[task]:
            other = plan.order[place]
            if _in_one_batch(serving.service, plan, task, other) and plan.mark[other] == 0:
                _set_joins(serving, other, 0)
                led = False
            place += 1
    for at in range(plan.how_many[0]):
        plan.mark[plan.moved[at]] = 0


@inlined
def sort_members(serving: Serving, plan: CurrentPlan, first: int, last: int) -> None:
    """Sort the members of every batch by when their inputs arrive: what is split off at the front starts earlier.

    Notes
    -----
    Invariant: the order at positions [first, last) stays sorted by starts, and every batch keeps its members: which
    of its places leads, and which join, does not change.
    Because: only members of one batch change places, which start together, and they exchange what they decided.
    Cost: O(tasks that start together squared), as insertion sort.
    If wrong: weaker. Any order of the members decodes to the same batch.
    """
    service, runs = serving.service, serving.runs
    for place in range(first, last):
        at = place
        batch = service.task_batch[plan.order[place]]
        before = place - 1
        while batch != NONE and before >= first and plan.time[plan.order[before]] == plan.time[plan.order[at]]:
            task, other = plan.order[at], plan.order[before]
            if _in_one_batch(service, plan, task, other):
                if runs.arrived[other] <= runs.arrived[task]:
                    break
                plan.order[at], plan.order[before] = other, task
                plan.position[other], plan.position[task] = at, before
                # Which place leads and which join stays as it is.
                runs.joins[other], runs.joins[task] = runs.joins[task], runs.joins[other]
                at = before
            before -= 1


@inlined
def _joined(runs: Runs, task: int) -> bool:
    """Say whether a task joined before the move."""
    for at in range(runs.flips[0]):
        if runs.flipped[at] == task:
            return bool(runs.joins[task] == 0)
    return bool(runs.joins[task] == 1)


@inlined
def _set_joins(serving: Serving, task: int, joins: int) -> None:
    """Decide as part of the move whether a task joins."""
    runs = serving.runs
    if serving.service.task_batch[task] != NONE and runs.joins[task] != joins:
        runs.joins[task] = joins
        runs.flipped[runs.flips[0]] = task
        runs.flips[0] += 1


@inlined
def undo_joins(runs: Runs) -> None:
    """Take back what a move decided about joining."""
    for at in range(runs.flips[0]):
        task = runs.flipped[at]
        runs.joins[task] = 1 - runs.joins[task]
    runs.flips[0] = 0
