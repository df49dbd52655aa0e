"""The current plan of a search and the move under way: how it is carried out, taken back, or made part of the plan.

The order is kept sorted by the start times of the current plan, so that "earlier" and "later" mean the same in the
list and on the clock. A move gives some tasks a new time and a new GPU; they are merged into the list again at that
time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from truenorth.models.instance import NEVER, Ints
from truenorth.solvers.compiled import RandomState, inlined, random_below, random_unit
from truenorth.solvers.search.decoder_tables import InstanceTables


class CurrentPlan(NamedTuple):
    """The current plan of a search and the move under way.

    Attributes
    ----------
    order, gpu
        The decisions, the move included. Shape [tasks] each.
    time, position
        Per task: its start in the current plan, its place in the order.
    moved, moved_gpu, moved_time, how_many
        The tasks of the move, where and when they go, and how many they are (shape [1]).
    old_gpu, old_order, old_range
        What it takes to undo it; the range of changed positions has shape [2].
    mark
        Per task: whether it is part of the move.
    """

    order: Ints
    gpu: Ints
    time: Ints
    position: Ints
    moved: Ints
    moved_gpu: Ints
    moved_time: Ints
    how_many: Ints
    old_gpu: Ints
    old_order: Ints
    old_range: Ints
    mark: Ints


class Neighbourhood(NamedTuple):
    """What moves are drawn from.

    Attributes
    ----------
    tables, plan
        The instance, and the plan that a move changes.
    random
        The random stream.
    first, beyond
        Positions [first, beyond) of the order, whose tasks alone may move.
    """

    tables: InstanceTables
    plan: CurrentPlan
    random: RandomState
    first: int
    beyond: int


def new_plan(order: Ints, gpu: Ints, time: Ints) -> CurrentPlan:
    """Return a plan of these decisions and start times, sorted by the latter."""
    tasks = len(order)
    by_time = order[np.argsort(time[order], kind="stable")]
    position = np.empty(tasks, np.int64)
    position[by_time] = np.arange(tasks)
    fresh = [np.zeros(tasks, np.int64) for _ in range(6)]
    return CurrentPlan(
        order=by_time,
        gpu=gpu.copy(),
        time=time.copy(),
        position=position,
        moved=fresh[0],
        moved_gpu=fresh[1],
        moved_time=fresh[2],
        how_many=np.zeros(1, np.int64),
        old_gpu=fresh[3],
        old_order=fresh[4],
        old_range=np.zeros(2, np.int64),
        mark=fresh[5],
    )


@inlined
def take(plan: CurrentPlan, task: int, gpu: int, time: int) -> None:
    """Make a task part of the move."""
    at = plan.how_many[0]
    plan.moved[at] = task
    plan.moved_gpu[at] = gpu
    plan.moved_time[at] = time
    plan.how_many[0] = at + 1


@inlined
def may_run(tables: InstanceTables, task: int, gpu: int) -> bool:
    """Say whether a task is eligible on a GPU."""
    return tables.run_us[tables.task_template[task], tables.gpu_class[gpu]] != NEVER


@inlined
def draw_distance(random: RandomState, size: int) -> int:
    """Return a distance in the order, small ones more often: its logarithm is uniform up to that of `size`."""
    return int(np.exp(random_unit(random) * np.log(size)))


@inlined
def draw_other_gpu(around: Neighbourhood, task: int) -> int:
    """Return a random GPU that can run a task, preferably another than its own."""
    gpus = around.tables.gpu_class.shape[0]
    gpu = random_below(around.random, gpus)
    for _ in range(gpus):
        if gpu != around.plan.gpu[task] and may_run(around.tables, task, gpu):
            return gpu
        # The next one rather than another draw: ends even where a single GPU is eligible.
        gpu = 0 if gpu + 1 == gpus else gpu + 1
    return around.plan.gpu[task]


@inlined
def keeps_order(tables: InstanceTables, plan: CurrentPlan, task: int) -> bool:
    """Say whether a task lies strictly between its predecessors and successors after the move."""
    template, time = tables.task_template[task], _new_time(plan, task)
    for entry in range(tables.input_first[template], tables.input_first[template + 1]):
        if _new_time(plan, task + tables.input_offset[entry]) >= time:
            return False
    for entry in range(tables.output_first[template], tables.output_first[template + 1]):
        if _new_time(plan, task + tables.output_offset[entry]) <= time:
            return False
    return True


@inlined
def _new_time(plan: CurrentPlan, task: int) -> int:
    """Return the time of a task after the move."""
    for at in range(plan.how_many[0]):
        if plan.moved[at] == task:
            return plan.moved_time[at]
    return plan.time[task]


@inlined
def apply(plan: CurrentPlan, first: int, beyond: int) -> None:
    """Carry a move out: merge the moved tasks into the order at their new times, and change their GPUs.

    Notes
    -----
    Invariant: the order stays sorted by time, the moved tasks by their new ones, and `position` is its inverse;
    `old_order` holds what `undo` needs.
    Because: two sorted lists are merged, the tasks that stay and those that move; at equal times the moved one goes
    first, as it took the time of the one that it passes.
    Cost: O(log tasks) per moved task, and O(1) per position between the first and the last change.
    If wrong: loud. A task before its predecessor has no inputs, which the checker refuses.
    """
    count = plan.how_many[0]
    # Only the stretch between the first and the last change is written again.
    low, high = beyond, first
    for at in range(count):
        task = plan.moved[at]
        place = plan.position[task]
        target = _first_at(plan, plan.moved_time[at], first, beyond)
        low = min(low, place, target)
        high = max(high, place + 1, target)
        # Marked tasks are skipped in their old places while the others are merged.
        plan.mark[task] = 1
        plan.old_gpu[at] = plan.gpu[task]
        plan.gpu[task] = plan.moved_gpu[at]
    plan.old_range[0], plan.old_range[1] = low, high
    _sort_moved(plan)
    for place in range(low, high):
        plan.old_order[place] = plan.order[place]
    at, to = 0, low
    for place in range(low, high):
        task = plan.old_order[place]
        if plan.mark[task] == 1:
            continue
        # A moved task goes before those that start at its new time: it took the time of the one it passes.
        while at < count and plan.moved_time[at] <= plan.time[task]:
            plan.order[to] = plan.moved[at]
            plan.position[plan.moved[at]] = to
            at += 1
            to += 1
        plan.order[to] = task
        plan.position[task] = to
        to += 1
    while at < count:
        plan.order[to] = plan.moved[at]
        plan.position[plan.moved[at]] = to
        at += 1
        to += 1
    for at in range(count):
        plan.mark[plan.moved[at]] = 0


@inlined
def undo(plan: CurrentPlan) -> None:
    """Take a move back."""
    for at in range(plan.how_many[0]):
        plan.gpu[plan.moved[at]] = plan.old_gpu[at]
    for place in range(plan.old_range[0], plan.old_range[1]):
        plan.order[place] = plan.old_order[place]
        plan.position[plan.order[place]] = place


@inlined
def accept(plan: CurrentPlan, start: Ints, first: int, last: int) -> None:
    """Make the decoded start times those of the current plan, and sort the order by them again.

    Notes
    -----
    Invariant: afterwards `time` is what was decoded at positions [first, last), and the order there is sorted by it.
    Because: tasks are brought forward one by one; a task never passes its predecessor, which starts before it.
    Cost: O(tasks + pairs that change places), few after one move.
    If wrong: weaker. Moves would speak of times that do not hold.
    """
    for place in range(first, last):
        plan.time[plan.order[place]] = start[plan.order[place]]
        _bring_forward(plan, place, first)


@inlined
def sort_again(plan: CurrentPlan, first: int, low: int, high: int, last: int) -> None:
    """Sort the order at positions [first, last) by time, where only the times at [low, high) have changed."""
    for place in range(low, last):
        if not _bring_forward(plan, place, first) and place >= high:
            # It starts no sooner than all before it, and those behind it are in order.
            return


@inlined
def _bring_forward(plan: CurrentPlan, place: int, first: int) -> bool:
    """Put a task before those in front of it that start later; say whether there are any."""
    task, at = plan.order[place], place
    time = plan.time[task]
    # Insertion sort: the order was sorted before the move, and few tasks change places.
    while at > first and plan.time[plan.order[at - 1]] > time:
        plan.order[at] = plan.order[at - 1]
        plan.position[plan.order[at]] = at
        at -= 1
    plan.order[at] = task
    plan.position[task] = at
    return at < place


@inlined
def _first_at(plan: CurrentPlan, time: int, first: int, beyond: int) -> int:
    """Return the first position in [first, beyond) whose task starts at or after a time, else `beyond`."""
    low, high = first, beyond
    while low < high:
        middle = (low + high) // 2
        if plan.time[plan.order[middle]] < time:
            low = middle + 1
        else:
            high = middle
    return low


@inlined
def _sort_moved(plan: CurrentPlan) -> None:
    """Sort the tasks of a move by their new times; equal times keep their place in the order."""
    # A move has a handful of tasks; no sort with a call of its own pays for them.
    for at in range(1, plan.how_many[0]):
        task, gpu, time, old = plan.moved[at], plan.moved_gpu[at], plan.moved_time[at], plan.old_gpu[at]
        to = at
        while to > 0 and (
            plan.moved_time[to - 1] > time
            or (plan.moved_time[to - 1] == time and plan.position[plan.moved[to - 1]] > plan.position[task])
        ):
            plan.moved[to] = plan.moved[to - 1]
            plan.moved_gpu[to] = plan.moved_gpu[to - 1]
            plan.moved_time[to] = plan.moved_time[to - 1]
            plan.old_gpu[to] = plan.old_gpu[to - 1]
            to -= 1
        plan.moved[to], plan.moved_gpu[to], plan.moved_time[to], plan.old_gpu[to] = task, gpu, time, old
