"""Moves of the local search on batches: tasks join, leave, split, merge and fill them, and batches move as one.

Members of a batch share their start, so they lie together among the tasks of their GPU; a task that is put right
behind a batch and joins is its member. Whether the batch then starts later, because the inputs of the task come later,
the decoder says. Moves of single tasks are those of `neighbourhood`, with joining drawn beside.
"""

from __future__ import annotations

import numpy as np

from models.instance import NONE
from solvers.compiled import RandomState, inlined, random_below, random_unit
from solvers.search.current_plan import Plan, keeps_order, may_run, take
from solvers.search.decoder_tables import Tables
from solvers.search.draws import draw_other_gpu
from solvers.search.neighbourhood import MOVES, SHIFT_REPLACE, propose, take_along
from solvers.search.serving_tables import Runs, Service

SERVING_MOVES = (
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
def propose_serving(
    tables: Tables, service: Service, plan: Plan, runs: Runs, random: RandomState, kind: int, first: int, beyond: int
) -> bool:
    """Draw a move of a kind among the tasks at positions [first, beyond); say whether there is one."""
    runs.flips[0] = 0
    task = plan.order[first + random_below(random, beyond - first)]
    batch = service.batch[tables.task_template[task]]
    if not _propose_kind(tables, service, plan, runs, random, kind, task, batch, first, beyond):
        return False
    _lead_anew(tables, service, plan, runs, beyond)
    return True


@inlined
def _propose_kind(
    tables: Tables,
    service: Service,
    plan: Plan,
    runs: Runs,
    random: RandomState,
    kind: int,
    task: int,
    batch: int,
    first: int,
    beyond: int,
) -> bool:
    """Draw a move of a kind that begins with a task; say whether there is one."""
    if kind < JOIN or (kind == MOVE and batch == NONE):
        if not propose(tables, plan, random, SHIFT_REPLACE if kind == MOVE else kind, first, beyond):
            return False
        if plan.how_many[0] == 1 and random_below(random, 2) == 0:
            _set_joins(service, tables, runs, plan.moved[0], random_below(random, 2))
        return True
    plan.how_many[0] = 0
    if batch == NONE:
        return False
    if kind == BORDER:
        _propose_border(tables, service, plan, runs, random, task, first, beyond)
        return True
    if kind == FILL:
        return _propose_fill(tables, service, plan, runs, random, task, batch, first, beyond)
    if kind == MOVE:
        gpu = draw_other_gpu(tables, plan, random, task) if random_below(random, 2) == 0 else plan.gpu[task]
        return take_along(plan, random, task, gpu, first, beyond) and _take_others(
            tables, service, plan, task, batch, first, beyond
        )
    target = _other_batch(tables, service, plan, random, task, batch, first, beyond)
    if target < 0 or not may_run(tables, task, plan.gpu[target]):
        return False
    take(plan, task, plan.gpu[target], plan.time[target] + 1)
    if kind == MERGE and not _take_others(tables, service, plan, task, batch, first, beyond):
        return False
    for at in range(plan.how_many[0]):
        _set_joins(service, tables, runs, plan.moved[at], 1)
    return keeps_order(tables, plan, task)


@inlined
def _in_batch(tables: Tables, service: Service, plan: Plan, task: int, batch: int, gpu: int, time: int) -> bool:
    """Say whether a task belongs to the batch of a class that starts then on a GPU."""
    there = plan.gpu[task] == gpu and plan.time[task] == time
    return bool(there and service.batch[tables.task_template[task]] == batch)


@inlined
def _take_others(tables: Tables, service: Service, plan: Plan, task: int, batch: int, first: int, beyond: int) -> bool:
    """Move the other members of a task's batch with it; say whether all may go there."""
    gpu, time = plan.moved_gpu[0], plan.moved_time[0]
    own, place = plan.time[task], plan.position[task]
    while place > first and plan.time[plan.order[place - 1]] == own:
        place -= 1
    while place < beyond and plan.time[plan.order[place]] == own:
        other = plan.order[place]
        if other != task and _in_batch(tables, service, plan, other, batch, plan.gpu[task], own):
            if not may_run(tables, other, gpu):
                return False
            take(plan, other, gpu, time)
        place += 1
    for at in range(plan.how_many[0]):  # noqa: SIM110 (kernels know no generators)
        if not keeps_order(tables, plan, plan.moved[at]):
            return False
    return True


@inlined
def _other_batch(
    tables: Tables,
    service: Service,
    plan: Plan,
    random: RandomState,
    task: int,
    batch: int,
    first: int,
    beyond: int,
) -> int:
    """Return a task of another batch of the class, a near one more often; -1 if there is none in the window."""
    steps = int(np.exp(random_unit(random) * np.log(BATCHES_PASSED)))
    direction = 1 if random_below(random, 2) == 0 else -1
    gpu, time = plan.gpu[task], plan.time[task]
    place, found = plan.position[task] + direction, -1
    while first <= place < beyond and steps > 0:
        other = plan.order[place]
        if service.batch[tables.task_template[other]] == batch and not (
            plan.gpu[other] == gpu and plan.time[other] == time
        ):
            gpu, time = plan.gpu[other], plan.time[other]
            found = other
            steps -= 1
        place += direction
    return found


@inlined
def _propose_fill(
    tables: Tables,
    service: Service,
    plan: Plan,
    runs: Runs,
    random: RandomState,
    task: int,
    batch: int,
    first: int,
    beyond: int,
) -> bool:
    """Let the next tasks of the class join a task's batch, as many as it takes or fewer."""
    gpu, time = plan.gpu[task], plan.time[task]
    wanted = service.largest[batch, tables.gpu_class[gpu]] - 1
    if wanted < 1:
        return False
    wanted = 1 + random_below(random, wanted)
    for place in range(plan.position[task] + 1, beyond):
        other = plan.order[place]
        if service.batch[tables.task_template[other]] != batch or not may_run(tables, other, gpu):
            continue
        if plan.gpu[other] == gpu and plan.time[other] == time:
            continue
        take(plan, other, gpu, time + 1)
        if not keeps_order(tables, plan, other):
            plan.how_many[0] -= 1
            continue
        _set_joins(service, tables, runs, other, 1)
        if plan.how_many[0] == wanted:
            break
    return bool(plan.how_many[0] > 0)


@inlined
def _propose_border(
    tables: Tables, service: Service, plan: Plan, runs: Runs, random: RandomState, task: int, first: int, beyond: int
) -> None:
    """Close a batch up to the one before it, or split it at a task; what is split off may join its neighbours.

    Of a batch that is split, the front may close up to the batch before; or the rest takes the batches behind it along,
    as full as they may be, so that one move carries a border through a row of full batches.
    """
    _set_joins(service, tables, runs, task, 1 - runs.joins[task])
    if runs.joins[task] == 1:
        return
    gpu, batch = plan.gpu[task], service.batch[tables.task_template[task]]
    step = 1 - random_below(random, 3)
    leaders = 0 if step == 0 else (1 if step < 0 else int(np.exp(random_unit(random) * np.log(BATCHES_PASSED))))
    place = plan.position[task] + step
    while leaders > 0 and first <= place < beyond:
        other = plan.order[place]
        if plan.gpu[other] == gpu:
            if service.batch[tables.task_template[other]] != batch:
                break
            if runs.joins[other] == 0:
                _set_joins(service, tables, runs, other, 1)
                leaders -= 1
        place += step


@inlined
def _lead_anew(tables: Tables, service: Service, plan: Plan, runs: Runs, beyond: int) -> None:
    """Where the first member of a batch goes, let the next one that stays lead: the rest is no part of the move."""
    for at in range(plan.how_many[0]):
        plan.mark[plan.moved[at]] = 1
    for at in range(plan.how_many[0]):
        task = plan.moved[at]
        batch = service.batch[tables.task_template[task]]
        place = plan.position[task] + 1
        led = batch != NONE and not _joined(runs, task)
        while led and place < beyond and plan.time[plan.order[place]] == plan.time[task]:
            other = plan.order[place]
            if (
                _in_batch(tables, service, plan, other, batch, plan.gpu[task], plan.time[task])
                and plan.mark[other] == 0
            ):
                _set_joins(service, tables, runs, other, 0)
                led = False
            place += 1
    for at in range(plan.how_many[0]):
        plan.mark[plan.moved[at]] = 0


@inlined
def sort_members(tables: Tables, service: Service, plan: Plan, runs: Runs, first: int, last: int) -> None:
    """Sort the members of every batch by when their inputs arrive: what is split off at the front starts earlier.

    The order at positions [first, last) is sorted by starts already.
    """
    for place in range(first, last):
        at = place
        batch = service.batch[tables.task_template[plan.order[place]]]
        before = place - 1
        while batch != NONE and before >= first and plan.time[plan.order[before]] == plan.time[plan.order[at]]:
            task, other = plan.order[at], plan.order[before]
            if _in_batch(tables, service, plan, other, batch, plan.gpu[task], plan.time[task]):
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
def _set_joins(service: Service, tables: Tables, runs: Runs, task: int, joins: int) -> None:
    """Decide as part of the move whether a task joins."""
    if service.batch[tables.task_template[task]] != NONE and runs.joins[task] != joins:
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
