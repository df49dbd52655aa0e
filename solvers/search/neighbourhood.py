"""Moves of the local search: which tasks change GPU, and where in the order they go.

Moves never put a task before its predecessors. Long tasks of a good plan lie so that a GPU becomes free just when a
short job can use it; a move that changes when a stretch ends disturbs all that follows. So some exchange stretches
that take about as long (`alignment`).
"""

from __future__ import annotations

from truenorth.models.instance import NONE
from truenorth.solvers.compiled import inlined, random_below, random_unit
from truenorth.solvers.search.alignment import propose_as_long, propose_rest, propose_stretches
from truenorth.solvers.search.current_plan import (
    CurrentPlan,
    Neighbourhood,
    draw_distance,
    draw_other_gpu,
    keeps_order,
    may_run,
    take,
)
from truenorth.solvers.search.decoder_tables import InstanceTables

MOVES = (
    "replace a task",
    "shift a task",
    "shift and replace a task",
    "exchange two tasks",
    "shift a job",
    "shift and replace a job",
    "move a model's tasks",
    "exchange two GPUs",
    "exchange stretches that end together",
    "exchange stretches that take as long",
    "exchange the rest of two GPUs",
)
"""The kinds of moves, in the order of their numbers."""

REPLACE, SHIFT, SHIFT_REPLACE, EXCHANGE, JOB_SHIFT, JOB_REPLACE, MODEL_MOVE, GPU_EXCHANGE = range(8)
STRETCHES, AS_LONG, REST = range(8, 11)

REACH = 16
"""Most tasks of a GPU that another one passes when it is shifted."""


@inlined
def propose(around: Neighbourhood, kind: int) -> bool:
    """Draw a move of a kind; say whether there is one.

    Notes
    -----
    Invariant: a move that is proposed puts every task strictly between its predecessors and its successors, or gives
    it a time that merging keeps there, on a GPU that can run it; nothing but the lists of the move is written.
    Because: single tasks are clipped to what their workflow allows, several are asked afterwards; jobs keep their own
    order, being shifted as a whole.
    Cost: O(1) to O(tasks of the window), by its kind.
    If wrong: loud for an order that breaks precedence, weaker where good moves are refused.
    """
    tables, plan, random = around.tables, around.plan, around.random
    plan.how_many[0] = 0
    size = around.beyond - around.first
    task = plan.order[around.first + random_below(random, size)]
    if kind == REPLACE:
        gpu = draw_other_gpu(around, task)
        take(plan, task, gpu, plan.time[task])
        return gpu != plan.gpu[task]
    if kind in (SHIFT, SHIFT_REPLACE):
        gpu = plan.gpu[task] if kind == SHIFT else draw_other_gpu(around, task)
        if not take_along(around, task, gpu):
            return False
        return _keep_precedence(tables, plan, task)
    if kind == EXCHANGE:
        distance = draw_distance(random, size)
        place = plan.position[task] + distance
        if place >= around.beyond:
            return False
        other = plan.order[place]
        if not may_run(tables, task, plan.gpu[other]) or not may_run(tables, other, plan.gpu[task]):
            return False
        take(plan, task, plan.gpu[other], plan.time[other])
        take(plan, other, plan.gpu[task], plan.time[task])
        return keeps_order(tables, plan, task) and keeps_order(tables, plan, other)
    if kind in (JOB_SHIFT, JOB_REPLACE):
        return _propose_job(around, task, kind == JOB_REPLACE)
    if kind == MODEL_MOVE:
        return _propose_model(around, task)
    if kind == STRETCHES:
        return propose_stretches(around, task)
    if kind == AS_LONG:
        return propose_as_long(around, task)
    if kind == REST:
        return propose_rest(around, task)
    return _propose_gpus(around, task)


@inlined
def _propose_job(around: Neighbourhood, task: int, replace: bool) -> bool:
    """Shift all tasks of a job by the same time; if asked, each goes to a random GPU with some probability."""
    tables, plan = around.tables, around.plan
    job = tables.task_job[task]
    # The job keeps its own rhythm: what is exchanged with others is only when it happens.
    by = _other_time(around, task) - plan.time[task]
    # Drawn once per move, so that jobs are moved whole and in part equally often.
    each = random_unit(around.random)
    member = task
    # Tasks are numbered job by job: the others lie around this one.
    while member > 0 and tables.task_job[member - 1] == job:
        member -= 1
    while member < tables.task_job.shape[0] and tables.task_job[member] == job:
        if around.first <= plan.position[member] < around.beyond:
            gpu = plan.gpu[member]
            if replace and random_unit(around.random) < each:
                gpu = draw_other_gpu(around, member)
            take(plan, member, gpu, plan.time[member] + by)
        member += 1
    return True


@inlined
def _propose_model(around: Neighbourhood, task: int) -> bool:
    """Move the tasks of one model on one GPU, over a stretch of the order, to another GPU."""
    tables, plan = around.tables, around.plan
    template = tables.task_template[task]
    if tables.need_first[template] == tables.need_first[template + 1]:
        return False
    model, source = tables.need_model[tables.need_first[template]], plan.gpu[task]
    target = draw_other_gpu(around, task)
    # It runs on no other GPU.
    if target == source:
        return False
    place = plan.position[task]
    # Residency pays over stretches: longer ones than other moves reach.
    stretch = draw_distance(around.random, around.beyond - around.first) * 4
    for at in range(place, min(around.beyond, place + stretch)):
        other = plan.order[at]
        if plan.gpu[other] == source and _needs(tables, other, model) and may_run(tables, other, target):
            take(plan, other, target, plan.time[other])
    return True


@inlined
def _propose_gpus(around: Neighbourhood, task: int) -> bool:
    """Exchange the tasks of two GPUs over a stretch of the order, or to its end."""
    tables, plan = around.tables, around.plan
    source, target = plan.gpu[task], draw_other_gpu(around, task)
    if source == target:
        return False
    place = plan.position[task]
    stop = around.beyond
    # To the end swaps all that two GPUs hold from here on; a stretch pays two more changes of models.
    if random_below(around.random, 2) == 0:
        stop = min(stop, place + 4 * draw_distance(around.random, around.beyond - around.first))
    for at in range(place, stop):
        other = plan.order[at]
        if plan.gpu[other] == source and may_run(tables, other, target):
            take(plan, other, target, plan.time[other])
        elif plan.gpu[other] == target and may_run(tables, other, source):
            take(plan, other, source, plan.time[other])
    return True


@inlined
def _other_time(around: Neighbourhood, task: int) -> int:
    """Return the time of another task in the window, one that is near more often."""
    plan = around.plan
    distance = draw_distance(around.random, around.beyond - around.first)
    if random_below(around.random, 2) == 0:
        return plan.time[plan.order[max(around.first, plan.position[task] - distance)]]
    # A microsecond behind, so that the merge puts it after that task and not before.
    return plan.time[plan.order[min(around.beyond - 1, plan.position[task] + distance)]] + 1


@inlined
def take_along(around: Neighbourhood, task: int, gpu: int) -> bool:
    """Put a task before an earlier, or behind a later task of a GPU; say whether that GPU has such a task."""
    plan = around.plan
    steps = draw_distance(around.random, REACH)
    direction = 1 if random_below(around.random, 2) == 0 else -1
    place, found = plan.position[task] + direction, NONE
    while around.first <= place < around.beyond and steps > 0:
        # Only passing tasks of the same GPU changes what that GPU does.
        if plan.gpu[plan.order[place]] == gpu:
            found = place
            steps -= 1
        place += direction
    if found >= 0:
        # A microsecond behind a later one, at the time of an earlier one: the merge puts it on the right side.
        take(plan, task, gpu, plan.time[plan.order[found]] + int(direction > 0))
    return found >= 0


@inlined
def _needs(tables: InstanceTables, task: int, model: int) -> bool:
    """Say whether a task needs a model."""
    template = tables.task_template[task]
    for need in range(tables.need_first[template], tables.need_first[template + 1]):
        if tables.need_model[need] == model:
            return True
    return False


@inlined
def _keep_precedence(tables: InstanceTables, plan: CurrentPlan, task: int) -> bool:
    """Clip the new time of the only moved task to what its neighbours in the workflow allow; say if it moves."""
    template = tables.task_template[task]
    time = plan.moved_time[0]
    for entry in range(tables.input_first[template], tables.input_first[template + 1]):
        # Strictly behind what it needs, at the latest right before what needs it.
        time = max(time, plan.time[task + tables.input_offset[entry]] + 1)
    for entry in range(tables.output_first[template], tables.output_first[template + 1]):
        time = min(time, plan.time[task + tables.output_offset[entry]])
    plan.moved_time[0] = time
    return time != plan.time[task] or plan.moved_gpu[0] != plan.gpu[task]
