"""What timing a move again and estimating it share: where it begins, whom it concerns, what it costs so far."""

from __future__ import annotations

from models.instance import Ints
from solvers.compiled import inlined
from solvers.search.current_plan import Plan
from solvers.search.decoder_state import ABSENT, Work
from solvers.search.decoder_tables import Tables
from solvers.search.retiming import (
    AFFECTED,
    AHEAD,
    ANCHOR,
    CHANGED,
    COMPLETED,
    DIRTY,
    END,
    ESTIMATE,
    JOBS,
    LATE,
    OLD_GPU,
    PLACED,
    REACH,
    RELINKED,
    SHIFTED,
    STAMP,
    TOUCHED,
    TOUCHES,
    Retiming,
)

HOPE = 0.5
"""How much of the time that a GPU is ahead of the current plan each of its later tasks is hoped to gain."""
REACHED = 40
"""Most later tasks per GPU that are hoped to gain."""


@inlined
def begin(retiming: Retiming, plan: Plan) -> None:
    """Forget the move before, and note which tasks this one moves and whose GPUs it touches."""
    for at in range(retiming.counts[AFFECTED]):
        retiming.gpus[retiming.affected[at], TOUCHES] = 0
    retiming.counts[STAMP] += 1
    retiming.counts[PLACED] = retiming.counts[RELINKED] = retiming.counts[JOBS] = 0
    retiming.counts[AFFECTED] = retiming.counts[DIRTY] = retiming.counts[AHEAD] = 0
    retiming.counts[REACH] = plan.old_range[1]
    for at in range(plan.how_many[0]):
        task = plan.moved[at]
        retiming.tasks[task, SHIFTED] = retiming.counts[STAMP]
        retiming.tasks[task, OLD_GPU] = plan.old_gpu[at]
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
def find_anchors(retiming: Retiming, plan: Plan, last: int) -> None:
    """Note, per GPU that the move touches, its first task at or behind the first change, as the plan was before."""
    low, high, stamp = plan.old_range[0], plan.old_range[1], retiming.counts[STAMP]
    missing = retiming.counts[AFFECTED]
    for at in range(missing):
        retiming.gpus[retiming.affected[at], ANCHOR] = ABSENT
    position = low
    while missing > 0 and position < last:
        task = plan.old_order[position] if position < high else plan.order[position]
        gpu = retiming.tasks[task, OLD_GPU] if retiming.tasks[task, SHIFTED] == stamp else plan.gpu[task]
        if retiming.gpus[gpu, TOUCHES] == 1 and retiming.gpus[gpu, ANCHOR] == ABSENT:
            retiming.gpus[gpu, ANCHOR] = task
            missing -= 1
        position += 1


@inlined
def touch_followers(retiming: Retiming, tables: Tables, plan: Plan, task: int, last: int) -> None:
    """Note that an input of a task's followers comes at another time or from elsewhere."""
    template = tables.task_template[task]
    for entry in range(tables.output_first[template], tables.output_first[template + 1]):
        follower = task + tables.output_offset[entry]
        retiming.tasks[follower, TOUCHED] = retiming.counts[STAMP]
        if plan.position[follower] < last:
            retiming.counts[REACH] = max(retiming.counts[REACH], plan.position[follower])


@inlined
def charge(
    retiming: Retiming, tables: Tables, work: Work, plan: Plan, before: Ints, task: int, lead: int, last: int
) -> float:
    """Return what the new end of a task costs: its job completes when the last of its tasks, as far as known, does."""
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
        new, member = before[job], task
        while member > 0 and tables.task_job[member - 1] == job:
            member -= 1
        while member < tables.task_job.shape[0] and tables.task_job[member] == job:
            if lead <= plan.position[member] < last:
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
def hope(retiming: Retiming, tables: Tables, left: int) -> float:
    """Return the time that the tasks behind this one may gain, all together, as GPUs are ahead of the current plan."""
    return float(HOPE * retiming.counts[AHEAD] * min(REACHED, left // tables.gpu_class.shape[0]))
