"""What a move changes is timed again, and nothing else.

Beside the current plan stands, per task, the moment of its GPU just before it: engines, models, next uses. A move is
followed from the first place where something may differ. That is the first moved task, or an earlier eviction that
would now choose otherwise, since evictions look ahead. From there the tasks of the GPUs it touches are placed again; a
GPU whose moment equals the noted one is left alone until an input of one of its tasks comes at another time. Once
nothing differs any more, the rest of the plan stands.

GPUs must not depend on each other but through inputs: `is_local` says where that holds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from truenorth.models.instance import NONE, Ints
from truenorth.solvers.compiled import inlined, kernel
from truenorth.solvers.search.current_plan import CurrentPlan, accept
from truenorth.solvers.search.decoder_kernel import append
from truenorth.solvers.search.decoder_state import FAR, ClusterState, Decoding, restore
from truenorth.solvers.search.decoder_tables import InstanceTables

STAMP, PLACED, RELINKED, JOBS, AFFECTED, DIRTY, REACH, AHEAD = range(8)
"""Places in `Retiming.counts`: the last two are the last position that a change reaches, and how far GPUs are ahead."""

ENGINES, READY, LAST_USE, FOLLOWING, LEAVES = range(5)
"""Parts of a moment; `LEAVES` says which models left for the loads of the task."""
COMPUTE, COPY, ROOM, LATEST, LEAVING = range(5)
"""When the engines are free, free bytes, the task placed last; how many models left for the loads of the task."""
ROW, END, TOUCHED, SHIFTED, OLD_GPU = range(5)
COMPLETED, ESTIMATE, CHANGED = range(3)
TOUCHES, FOLLOWED, SINCE, ANCHOR, LATE, FREE, COPIED = range(7)
NOW, WITHOUT, WITH, DIFFERS, PREVIOUS, LOADED = range(6)
NOTED, MOVED = range(2)
"""Columns of the tables of `Retiming`."""

HOPE = 0.5
"""How much of the time that a GPU is ahead of the current plan each of its later tasks is hoped to gain."""
REACHED = 40
"""Most later tasks per GPU that are hoped to gain."""


class Retiming(NamedTuple):
    """What is noted of the current plan of a window, and of the move under way. Next uses are told by task here.

    Attributes
    ----------
    noted, fresh, final
        Moments before each task of the window (`ROW`), before each task placed again (in the order of `placed`), and
        after the last task per GPU. Shape [rows, 5, most of models and 5]: `ENGINES`, then per model `READY`,
        `LAST_USE` and `FOLLOWING` (its next use), then `LEAVES`, whether it left for the loads of the task.
    tasks
        Per task `ROW`, `END` in the current plan, the number of the last move that changed an input of it (`TOUCHED`)
        or itself (`SHIFTED`), and in the latter case its `OLD_GPU`.
    jobs
        Per job its completion in the current plan (`COMPLETED`) and in the move, as far as known (`ESTIMATE`), if that
        is the last one in which it is `CHANGED`.
    gpus
        Per GPU whether the move `TOUCHES` it, the number of the move in which it is `FOLLOWED`, `SINCE` which position
        it must be, its first task at or behind the first change as the plan was before the move (`ANCHOR`), how much
        later its last task ends than noted (`LATE`), and in an estimate when it is `FREE` and loads end (`COPIED`).
    models
        Per GPU and model the next use from `NOW` on, and as seen from just before the move, `WITHOUT` it and `WITH` it,
        whether it `DIFFERS`, and the use before (`PREVIOUS`); in an estimate when it is `LOADED` for a moved task.
        Shape [gpus, 6, models].
    pairs
        Per (task, model) pair: the task that needs the model next on that GPU, in the current plan (`NOTED`) and in the
        move (`MOVED`).
    placed, relinked, changed, affected
        Tasks placed again, pairs with another next use, jobs with another completion, GPUs that the move touches.
    counts
        Number of the move, and how many entries the lists have.
    """

    noted: Ints
    fresh: Ints
    final: Ints
    tasks: Ints
    jobs: Ints
    gpus: Ints
    models: Ints
    pairs: Ints
    placed: Ints
    relinked: Ints
    changed: Ints
    affected: Ints
    counts: Ints


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
    on
        InstanceTables, and working memory; `on.work` shares order and gpu with the plan.
    origin
        The moment before the window's lead; kernels set its next uses.
    before
        `completed` of every job without the tasks of the window.
    retiming
        A row for each task of the window; none where every move is judged by a whole decode.
    """

    on: Decoding
    origin: ClusterState
    before: Ints
    retiming: Retiming


def new_retiming(tables: InstanceTables, rows: int) -> Retiming:
    """Return working memory for windows of up to so many tasks."""
    gpus, models = tables.gpu_class.shape[0], tables.weight_bytes.shape[0]
    tasks, jobs, pairs = len(tables.task_job), len(tables.due_us), int(tables.use_first[-1])

    def zeros(*shape: int) -> Ints:
        return np.zeros(shape, np.int64)

    return Retiming(
        noted=zeros(rows, 5, max(models, 5)),
        fresh=zeros(rows, 5, max(models, 5)),
        final=zeros(gpus, 5, max(models, 5)),
        tasks=zeros(tasks, 5),
        jobs=zeros(jobs, 3),
        gpus=zeros(gpus, 7),
        models=zeros(gpus, 6, models),
        pairs=zeros(pairs, 2),
        placed=zeros(rows),
        relinked=zeros(2 * pairs),
        changed=zeros(jobs),
        affected=zeros(gpus),
        counts=zeros(8),
    )


@inlined
def is_local(tables: InstanceTables) -> bool:
    """Say whether what a GPU does depends on other GPUs through inputs alone, and on its own past through its moment.

    Limited replicas tie GPUs together, loads that stop compute look for earlier gaps, and slots are not noted.
    """
    return tables.overlap_loads and not tables.limited and tables.slot_bytes.shape[1] == 0


@inlined
def place_of(plan: CurrentPlan, task: int) -> int:
    """Return the position of a task, FAR for none."""
    return FAR if task == NONE else plan.position[task]


@inlined
def note(retiming: Retiming, moments: Ints, row: int, state: ClusterState, gpu: int) -> None:
    """Copy the present moment of a GPU into a row."""
    moments[row, ENGINES, COMPUTE] = state.compute_free[gpu]
    moments[row, ENGINES, COPY] = state.copy_free[gpu]
    moments[row, ENGINES, ROOM] = state.room[gpu]
    moments[row, ENGINES, LATEST] = state.last_task[gpu]
    for model in range(state.ready.shape[1]):
        moments[row, READY, model] = state.ready[gpu, model]
        moments[row, LAST_USE, model] = state.last_use[gpu, model]
        moments[row, FOLLOWING, model] = retiming.models[gpu, NOW, model]


@inlined
def return_to(retiming: Retiming, moments: Ints, row: int, state: ClusterState, gpu: int) -> None:
    """Make a noted moment the present one of a GPU; the next uses are left to the caller."""
    state.compute_free[gpu] = moments[row, ENGINES, COMPUTE]
    state.copy_free[gpu] = moments[row, ENGINES, COPY]
    state.room[gpu] = moments[row, ENGINES, ROOM]
    state.last_task[gpu] = moments[row, ENGINES, LATEST]
    for model in range(state.ready.shape[1]):
        state.ready[gpu, model] = moments[row, READY, model]
        state.last_use[gpu, model] = moments[row, LAST_USE, model]
        retiming.models[gpu, NOW, model] = moments[row, FOLLOWING, model]


@inlined
def look(retiming: Retiming, plan: CurrentPlan, state: ClusterState, gpu: int) -> None:
    """Give a GPU's state the positions of its next uses."""
    for model in range(state.ready.shape[1]):
        state.upcoming[gpu, model] = place_of(plan, retiming.models[gpu, NOW, model])


@inlined
def is_as_noted(moments: Ints, row: int, state: ClusterState, gpu: int) -> bool:
    """Say whether a GPU is where it was before that task, so that what follows on it stays as it was.

    Notes
    -----
    Invariant: if so, and if inputs come when they did, every later task of the GPU starts and ends as noted.
    Because: a decode depends on engines, models and their last uses, which are compared, and on the next uses, which a
    move changes on the GPUs it touches alone; those are followed until behind the move.
    Cost: O(models).
    If wrong: weaker, for a move's cost would be false until its window is decoded anew.
    """
    if (
        state.compute_free[gpu] != moments[row, ENGINES, COMPUTE]
        or state.last_task[gpu] != moments[row, ENGINES, LATEST]
    ):
        return False
    if state.copy_free[gpu] != moments[row, ENGINES, COPY]:
        return False
    for model in range(state.ready.shape[1]):
        same = state.ready[gpu, model] == moments[row, READY, model]
        if not same or state.last_use[gpu, model] != moments[row, LAST_USE, model]:
            return False
    return True


@inlined
def place(scene: Scene, plan: CurrentPlan, moments: Ints, row: int, task: int, position: int) -> bool:
    """Note the moment of a task's GPU, run the task, and note what left for its loads; say whether it can run."""
    retiming, on = scene.retiming, scene.on
    tables, state = on.tables, on.state
    gpu, template, use = plan.gpu[task], tables.task_template[task], tables.use_first[task]
    note(retiming, moments, row, state, gpu)
    first, beyond = tables.need_first[template], tables.need_first[template + 1]
    for need in range(first, beyond):
        on.work.next_use[use + need - first] = place_of(plan, retiming.pairs[use + need - first, MOVED])
    # Rows of residencies are of no interest here, and need no more room than one decode does.
    loads = state.records[0]
    # By the decoder's own rule, so that both mean the same times.
    if not append(on, None, task, gpu, position, 1):
        return False
    moments[row, ENGINES, LEAVING] = 0
    if state.records[0] > loads:
        state.records[0] = loads
        _note_leaving(moments, row, state, gpu)
    for need in range(first, beyond):
        retiming.models[gpu, NOW, tables.need_model[need]] = retiming.pairs[use + need - first, MOVED]
    return True


@inlined
def _note_leaving(moments: Ints, row: int, state: ClusterState, gpu: int) -> None:
    """Note what left the GPU for the loads of a task: compare the moment before with the one after."""
    for model in range(state.ready.shape[1]):
        left = int(moments[row, READY, model] != NONE and state.ready[gpu, model] == NONE)
        moments[row, LEAVES, model] = left
        moments[row, ENGINES, LEAVING] += left


@kernel
def record(scene: Scene, plan: CurrentPlan, window: Window) -> bool:
    """Place the tasks of a window and note every moment; say whether all can run.

    Notes
    -----
    Invariant: row `position - lead` is the moment of the task's GPU just before it, with the next uses as the window
    has them, and `final` those after the last task of each GPU.
    Because: the window is decoded once from `scene.origin`, which has the next uses from `last` on; one pass backwards
    before has linked every use of a model with the next one on its GPU.
    Cost: O(tasks of the window x models).
    If wrong: weaker. Moves would be judged against moments that never were; the whole plan is decoded anew after each
    window, and checked when it is offered.
    """
    retiming, tables, state, work = scene.retiming, scene.on.tables, scene.on.state, scene.on.work
    restore(state, scene.origin)
    # A number of its own: nothing is part of a move yet.
    retiming.counts[STAMP] += 1
    for gpu in range(state.ready.shape[0]):
        for model in range(state.ready.shape[1]):
            later = scene.origin.upcoming[gpu, model]
            retiming.models[gpu, NOW, model] = NONE if later == FAR else plan.order[later]
    for position in range(window.last - 1, window.lead - 1, -1):
        task = plan.order[position]
        retiming.tasks[task, ROW] = position - window.lead
        retiming.jobs[tables.task_job[task], COMPLETED] = scene.before[tables.task_job[task]]
        gpu, use = plan.gpu[task], tables.use_first[task]
        for need in range(
            tables.need_first[tables.task_template[task]], tables.need_first[tables.task_template[task] + 1]
        ):
            model = tables.need_model[need]
            retiming.pairs[use, NOTED] = retiming.pairs[use, MOVED] = retiming.models[gpu, NOW, model]
            retiming.models[gpu, NOW, model] = task
            use += 1
    for gpu in range(state.ready.shape[0]):
        look(retiming, plan, state, gpu)
    for position in range(window.lead, window.last):
        task = plan.order[position]
        if not place(scene, plan, retiming.noted, position - window.lead, task, position):
            return False
        job = tables.task_job[task]
        finish = work.end[task] + tables.tail_us[tables.task_template[task]]
        retiming.jobs[job, COMPLETED] = max(retiming.jobs[job, COMPLETED], finish)
        retiming.tasks[task, END] = work.end[task]
    for gpu in range(state.ready.shape[0]):
        note(retiming, retiming.final, gpu, state, gpu)
    accept(plan, work.start, window.lead, window.last)
    return True


@inlined
def begin(retiming: Retiming, plan: CurrentPlan) -> None:
    """Forget the move before, and note which tasks this one moves and whose GPUs it touches."""
    for at in range(retiming.counts[AFFECTED]):
        retiming.gpus[retiming.affected[at], TOUCHES] = 0
    retiming.counts[STAMP] += 1
    retiming.counts[PLACED] = retiming.counts[RELINKED] = retiming.counts[JOBS] = 0
    retiming.counts[AFFECTED] = retiming.counts[DIRTY] = retiming.counts[AHEAD] = 0
    # At least the end of the move; inputs that change carry it on.
    retiming.counts[REACH] = plan.old_range[1]
    for at in range(plan.how_many[0]):
        task = plan.moved[at]
        retiming.tasks[task, SHIFTED] = retiming.counts[STAMP]
        retiming.tasks[task, OLD_GPU] = plan.old_gpu[at]
        # The GPU that it leaves changes as much as the one that it comes to.
        _affect(retiming, plan.old_gpu[at])
        _affect(retiming, plan.gpu[task])


@inlined
def _affect(retiming: Retiming, gpu: int) -> None:
    """Count a GPU among those that the move touches."""
    if retiming.gpus[gpu, TOUCHES] == 0:
        retiming.gpus[gpu, TOUCHES] = 1
        retiming.affected[retiming.counts[AFFECTED]] = gpu
        retiming.counts[AFFECTED] += 1


@inlined
def find_anchors(retiming: Retiming, plan: CurrentPlan, last: int) -> None:
    """Note, per GPU that the move touches, its first task at or behind the first change, as the plan was before."""
    low, high, stamp = plan.old_range[0], plan.old_range[1], retiming.counts[STAMP]
    missing = retiming.counts[AFFECTED]
    for at in range(missing):
        retiming.gpus[retiming.affected[at], ANCHOR] = NONE
    position = low
    while missing > 0 and position < last:
        # Behind the range of the move both orders are the same.
        task = plan.old_order[position] if position < high else plan.order[position]
        gpu = retiming.tasks[task, OLD_GPU] if retiming.tasks[task, SHIFTED] == stamp else plan.gpu[task]
        if retiming.gpus[gpu, TOUCHES] == 1 and retiming.gpus[gpu, ANCHOR] == NONE:
            retiming.gpus[gpu, ANCHOR] = task
            missing -= 1
        position += 1


@inlined
def touch_followers(retiming: Retiming, tables: InstanceTables, plan: CurrentPlan, task: int, last: int) -> None:
    """Note that an input of a task's followers comes at another time or from elsewhere."""
    template = tables.task_template[task]
    for entry in range(tables.output_first[template], tables.output_first[template + 1]):
        follower = task + tables.output_offset[entry]
        retiming.tasks[follower, TOUCHED] = retiming.counts[STAMP]
        if plan.position[follower] < last:
            retiming.counts[REACH] = max(retiming.counts[REACH], plan.position[follower])


@inlined
def charge(scene: Scene, plan: CurrentPlan, window: Window, task: int) -> float:
    """Return what the new end of a task costs: its job completes when the last of its tasks, as far as known, does.

    Notes
    -----
    Invariant: `ESTIMATE` of a job that the move changes is its completion with every new end that is known, and the
    old ends of the others; what has been charged for it is the difference to the current plan.
    Because: a later end can only be the new maximum; an earlier one of the task that the job waited for has all tasks
    of the job in the window looked through once more.
    Cost: O(1), or O(tasks of the job).
    If wrong: weaker. Windows are decoded exactly once their moves are done.
    """
    retiming, tables, work = scene.retiming, scene.on.tables, scene.on.work
    job, tail = tables.task_job[task], tables.tail_us[tables.task_template[task]]
    if retiming.jobs[job, CHANGED] != retiming.counts[STAMP]:
        retiming.jobs[job, CHANGED] = retiming.counts[STAMP]
        retiming.jobs[job, ESTIMATE] = retiming.jobs[job, COMPLETED]
        retiming.changed[retiming.counts[JOBS]] = job
        retiming.counts[JOBS] += 1
    old = retiming.jobs[job, ESTIMATE]
    new = max(old, work.end[task] + tail)
    if retiming.tasks[task, END] + tail == old and work.end[task] + tail < old:
        # The task that the job waited for is earlier: another one may now be the last.
        new, member = scene.before[job], task
        while member > 0 and tables.task_job[member - 1] == job:
            member -= 1
        while member < tables.task_job.shape[0] and tables.task_job[member] == job:
            if window.lead <= plan.position[member] < window.last:
                new = max(new, work.end[member] + tables.tail_us[tables.task_template[member]])
            member += 1
    retiming.jobs[job, ESTIMATE] = new
    early, late = max(old - tables.due_us[job], 0), max(new - tables.due_us[job], 0)
    return float(tables.linear[job] * (late - early) + tables.step[job] * (int(late > 0) - int(early > 0)))


@inlined
def measure(retiming: Retiming, gpu: int, late: int) -> None:
    """Note how much later than in the current plan a GPU is."""
    retiming.counts[AHEAD] += max(0, -late) - max(0, -retiming.gpus[gpu, LATE])
    retiming.gpus[gpu, LATE] = late


@inlined
def hope(retiming: Retiming, tables: InstanceTables, left: int) -> float:
    """Return the time that the tasks behind this one may gain, all together, as GPUs are ahead of the current plan."""
    return float(HOPE * retiming.counts[AHEAD] * min(REACHED, left // tables.gpu_class.shape[0]))
