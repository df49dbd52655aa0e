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

from models.instance import Ints
from solvers.compiled import inlined, kernel
from solvers.search.current_plan import Plan, accept
from solvers.search.decoder_kernel import append
from solvers.search.decoder_state import ABSENT, FAR, State, Work, restore
from solvers.search.decoder_tables import Tables

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


def new_retiming(tables: Tables, rows: int) -> Retiming:
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
def is_local(tables: Tables) -> bool:
    """Say whether what a GPU does depends on other GPUs through inputs alone, and on its own past through its moment.

    Limited replicas tie GPUs together, loads that stop compute look for earlier gaps, and slots are not noted.
    """
    return tables.overlap_loads and not tables.limited and tables.slot_bytes.shape[1] == 0


@inlined
def place_of(plan: Plan, task: int) -> int:
    """Return the position of a task, FAR for none."""
    return FAR if task == ABSENT else plan.position[task]


@inlined
def note(retiming: Retiming, moments: Ints, row: int, state: State, gpu: int) -> None:
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
def return_to(retiming: Retiming, moments: Ints, row: int, state: State, gpu: int) -> None:
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
def look(retiming: Retiming, plan: Plan, state: State, gpu: int) -> None:
    """Give a GPU's state the positions of its next uses."""
    for model in range(state.ready.shape[1]):
        state.upcoming[gpu, model] = place_of(plan, retiming.models[gpu, NOW, model])


@inlined
def is_as_noted(moments: Ints, row: int, state: State, gpu: int) -> bool:
    """Say whether a GPU is where it was before that task, so that what follows on it stays as it was."""
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
def place(
    retiming: Retiming,
    moments: Ints,
    row: int,
    tables: Tables,
    state: State,
    work: Work,
    residencies: Ints,
    plan: Plan,
    task: int,
    position: int,
) -> bool:
    """Note the moment of a task's GPU, run the task, and note what left for its loads; say whether it can run."""
    gpu, template, use = plan.gpu[task], tables.task_template[task], tables.use_first[task]
    note(retiming, moments, row, state, gpu)
    first, beyond = tables.need_first[template], tables.need_first[template + 1]
    for need in range(first, beyond):
        work.next_use[use + need - first] = place_of(plan, retiming.pairs[use + need - first, MOVED])
    # Rows of residencies are of no interest here, and need no more room than one decode does.
    loads = state.records[0]
    if not append(tables, state, work, residencies, task, gpu, position):
        return False
    moments[row, ENGINES, LEAVING] = 0
    if state.records[0] > loads:
        state.records[0] = loads
        _note_leaving(moments, row, state, gpu)
    for need in range(first, beyond):
        retiming.models[gpu, NOW, tables.need_model[need]] = retiming.pairs[use + need - first, MOVED]
    return True


@inlined
def _note_leaving(moments: Ints, row: int, state: State, gpu: int) -> None:
    """Note what left the GPU for the loads of a task: compare the moment before with the one after."""
    for model in range(state.ready.shape[1]):
        left = int(moments[row, READY, model] != ABSENT and state.ready[gpu, model] == ABSENT)
        moments[row, LEAVES, model] = left
        moments[row, ENGINES, LEAVING] += left


@kernel
def record(
    retiming: Retiming,
    tables: Tables,
    origin: State,
    before: Ints,
    state: State,
    work: Work,
    residencies: Ints,
    plan: Plan,
    lead: int,
    last: int,
) -> bool:
    """Place the tasks at positions [lead, last) and note every moment; say whether all can run.

    `origin` is the moment before `lead` with the next uses from `last` on, `before` what jobs have completed by then.
    """
    restore(state, origin)
    # A number of its own: nothing is part of a move yet.
    retiming.counts[STAMP] += 1
    for gpu in range(state.ready.shape[0]):
        for model in range(state.ready.shape[1]):
            later = origin.upcoming[gpu, model]
            retiming.models[gpu, NOW, model] = ABSENT if later == FAR else plan.order[later]
    for position in range(last - 1, lead - 1, -1):
        task = plan.order[position]
        retiming.tasks[task, ROW] = position - lead
        retiming.jobs[tables.task_job[task], COMPLETED] = before[tables.task_job[task]]
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
    for position in range(lead, last):
        task = plan.order[position]
        if not place(
            retiming,
            retiming.noted,
            position - lead,
            tables,
            state,
            work,
            residencies,
            plan,
            task,
            position,
        ):
            return False
        job = tables.task_job[task]
        finish = work.end[task] + tables.tail_us[tables.task_template[task]]
        retiming.jobs[job, COMPLETED] = max(retiming.jobs[job, COMPLETED], finish)
        retiming.tasks[task, END] = work.end[task]
    for gpu in range(state.ready.shape[0]):
        note(retiming, retiming.final, gpu, state, gpu)
    accept(plan, work.start, lead, last)
    return True
