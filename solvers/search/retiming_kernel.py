"""Follow a move through the plan: where it begins to matter, what it changes, and how it becomes the plan."""

from __future__ import annotations

from models.instance import Ints
from solvers.compiled import inlined, kernel
from solvers.search.decoder_kernel import INFEASIBLE
from solvers.search.decoder_state import ABSENT, State, Work
from solvers.search.decoder_tables import Tables
from solvers.search.neighbourhood import Plan, accept
from solvers.search.retiming import (
    AFFECTED,
    AHEAD,
    ANCHOR,
    CHANGED,
    COMPLETED,
    DIFFERS,
    DIRTY,
    END,
    ENGINES,
    ESTIMATE,
    FOLLOWED,
    FOLLOWING,
    JOBS,
    LATE,
    LATEST,
    MOVED,
    NOTED,
    NOTHING,
    NOW,
    OLD_GPU,
    ONE,
    PLACED,
    PREVIOUS,
    REACH,
    RELINKED,
    ROW,
    SHIFTED,
    SINCE,
    STAMP,
    TOUCHED,
    TOUCHES,
    VICTIMS,
    WITH,
    WITHOUT,
    Retiming,
    is_as_noted,
    look,
    note,
    place,
    place_of,
    return_to,
)

HOPE = 0.5
"""How much of the time that a GPU is ahead of the current plan each of its later tasks is hoped to gain."""
REACHED = 40
"""Most later tasks per GPU that are hoped to gain."""


@kernel
def retime(
    retiming: Retiming,
    tables: Tables,
    state: State,
    work: Work,
    residencies: Ints,
    plan: Plan,
    before: Ints,
    lead: int,
    last: int,
    allowed: float,
    foreseen: float,
) -> float:
    """Time again what the move of `plan` changes; return by how much the summed cost then grows.

    Parameters
    ----------
    allowed
        Growth that would be accepted.
    foreseen
        Cost per microsecond that a task is late, to give up moves that already cost too much: what GPUs are ahead by
        may still be gained. 0: none is given up.
    """
    _begin(retiming, plan)
    position, grown = _find_start(retiming, tables, plan, lead, last), 0.0
    while position < last:
        if position == plan.old_range[0]:
            _follow_all(retiming, state, plan, position)
        task = plan.order[position]
        if _stands(retiming, state, plan, task, position):
            if position >= retiming.counts[REACH] and retiming.counts[DIRTY] == 0:
                break
            position += 1
            continue
        if retiming.gpus[plan.gpu[task], FOLLOWED] == 0:
            _follow(retiming, state, plan, plan.gpu[task], task, position)
        row = retiming.counts[PLACED]
        if not place(retiming, retiming.fresh, row, tables, state, work, residencies, plan, task, position):
            return INFEASIBLE
        retiming.placed[row] = task
        retiming.counts[PLACED] = row + 1
        if work.end[task] != retiming.tasks[task, END] or retiming.tasks[task, SHIFTED] == retiming.counts[STAMP]:
            _touch_followers(retiming, tables, plan, task, last)
            grown += _charge(retiming, tables, work, plan, before, task, lead, last)
        if position >= plan.old_range[1]:
            _measure(retiming, plan.gpu[task], work.end[task] - retiming.tasks[task, END])
            # Not before the GPUs of the move have come to a task behind it: until then nobody knows what they gain.
            known = foreseen > 0 and position >= plan.old_range[1] + tables.gpu_class.shape[0]
            if known and grown - _hope(retiming, tables, last - position) * foreseen > allowed:
                return INFEASIBLE
        position += 1
    return grown


@inlined
def _stands(retiming: Retiming, state: State, plan: Plan, task: int, position: int) -> bool:
    """Say whether a task stands as it is: its GPU is where it was before it, and its inputs come when they did."""
    gpu = plan.gpu[task]
    settled = position >= plan.old_range[1] or retiming.gpus[gpu, TOUCHES] == 0
    if retiming.gpus[gpu, FOLLOWED] == 1:
        if not settled or not is_as_noted(retiming.noted, retiming.tasks[task, ROW], state, gpu):
            return False
        _measure(retiming, gpu, 0)
        retiming.gpus[gpu, FOLLOWED] = 0
        retiming.counts[DIRTY] -= 1
    begins = not settled and position == retiming.gpus[gpu, SINCE]
    return bool(retiming.tasks[task, TOUCHED] != retiming.counts[STAMP] and not begins)


@inlined
def _touch_followers(retiming: Retiming, tables: Tables, plan: Plan, task: int, last: int) -> None:
    """Note that an input of a task's followers comes at another time or from elsewhere."""
    template = tables.task_template[task]
    for entry in range(tables.output_first[template], tables.output_first[template + 1]):
        follower = task + tables.output_offset[entry]
        retiming.tasks[follower, TOUCHED] = retiming.counts[STAMP]
        if plan.position[follower] < last:
            retiming.counts[REACH] = max(retiming.counts[REACH], plan.position[follower])


@inlined
def _measure(retiming: Retiming, gpu: int, late: int) -> None:
    """Note how much later than in the current plan a GPU is."""
    retiming.counts[AHEAD] += max(0, -late) - max(0, -retiming.gpus[gpu, LATE])
    retiming.gpus[gpu, LATE] = late


@inlined
def _hope(retiming: Retiming, tables: Tables, left: int) -> float:
    """Return the time that the tasks behind this one may gain, all together, as GPUs are ahead of the current plan."""
    return float(HOPE * retiming.counts[AHEAD] * min(REACHED, left // tables.gpu_class.shape[0]))


@inlined
def _follow_all(retiming: Retiming, state: State, plan: Plan, position: int) -> None:
    """Follow every GPU that the move touches, from the first place that it changes."""
    for at in range(retiming.counts[AFFECTED]):
        if retiming.gpus[retiming.affected[at], FOLLOWED] == 0:
            _follow(retiming, state, plan, retiming.affected[at], ABSENT, position)


@inlined
def _begin(retiming: Retiming, plan: Plan) -> None:
    """Forget the move before, and note which tasks this one moves and whose GPUs it touches."""
    for at in range(retiming.counts[AFFECTED]):
        retiming.gpus[retiming.affected[at], TOUCHES] = 0
    for gpu in range(retiming.gpus.shape[0]):
        retiming.gpus[gpu, FOLLOWED] = retiming.gpus[gpu, LATE] = 0
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
def _relink(retiming: Retiming, use: int, task: int) -> None:
    """Give a use of a model another next use, for the time of the move."""
    if retiming.pairs[use, MOVED] != task:
        retiming.pairs[use, MOVED] = task
        retiming.relinked[retiming.counts[RELINKED]] = use
        retiming.counts[RELINKED] += 1


@inlined
def _find_start(retiming: Retiming, tables: Tables, plan: Plan, lead: int, last: int) -> int:
    """Return the first position at which the move may change something; note next uses on the GPUs it touches."""
    low, high = plan.old_range[0], plan.old_range[1]
    models, stamp = retiming.models.shape[2], retiming.counts[STAMP]
    _look_behind(retiming, plan, high, last)
    for at in range(retiming.counts[AFFECTED]):
        gpu = retiming.affected[at]
        retiming.gpus[gpu, SINCE] = low
        for model in range(models):
            retiming.models[gpu, WITHOUT, model] = retiming.models[gpu, WITH, model]
    # What came first on each GPU before the move: `late` marks the GPUs that are known already.
    for position in range(low, high):
        task = plan.old_order[position]
        gpu = retiming.tasks[task, OLD_GPU] if retiming.tasks[task, SHIFTED] == stamp else plan.gpu[task]
        if retiming.gpus[gpu, TOUCHES] == 1 and retiming.gpus[gpu, LATE] == 0:
            retiming.gpus[gpu, LATE], retiming.gpus[gpu, ANCHOR] = 1, task
            for model in range(models):
                retiming.models[gpu, WITHOUT, model] = retiming.noted[retiming.tasks[task, ROW], FOLLOWING, model]
    for position in range(high - 1, low - 1, -1):
        task = plan.order[position]
        gpu, use, template = plan.gpu[task], tables.use_first[task], tables.task_template[task]
        if retiming.gpus[gpu, TOUCHES] == 1:
            for need in range(tables.need_first[template], tables.need_first[template + 1]):
                _relink(retiming, use, retiming.models[gpu, WITH, tables.need_model[need]])
                retiming.models[gpu, WITH, tables.need_model[need]] = task
                use += 1
    start = low
    for at in range(retiming.counts[AFFECTED]):
        gpu = retiming.affected[at]
        retiming.gpus[gpu, LATE] = 0
        if tables.evictable:
            start = min(start, _find_eviction(retiming, tables, plan, gpu, lead))
    return int(start)


@inlined
def _look_behind(retiming: Retiming, plan: Plan, high: int, last: int) -> None:
    """Note, per GPU that the move touches, the first task behind the move and the next uses from there on."""
    models, known = retiming.models.shape[2], 0
    for at in range(retiming.counts[AFFECTED]):
        retiming.gpus[retiming.affected[at], ANCHOR] = ABSENT
    for position in range(high, last):
        task = plan.order[position]
        gpu = plan.gpu[task]
        if retiming.gpus[gpu, TOUCHES] == 1 and retiming.gpus[gpu, ANCHOR] == ABSENT:
            retiming.gpus[gpu, ANCHOR] = task
            known += 1
            for model in range(models):
                retiming.models[gpu, WITH, model] = retiming.noted[retiming.tasks[task, ROW], FOLLOWING, model]
            if known == retiming.counts[AFFECTED]:
                break
    for at in range(retiming.counts[AFFECTED]):
        gpu = retiming.affected[at]
        if retiming.gpus[gpu, ANCHOR] == ABSENT:
            for model in range(models):
                retiming.models[gpu, WITH, model] = retiming.final[gpu, FOLLOWING, model]


@inlined
def _latest_before(retiming: Retiming, gpu: int) -> int:
    """Return the last task of a GPU before the move."""
    anchor = int(retiming.gpus[gpu, ANCHOR])
    if anchor == ABSENT:
        return int(retiming.final[gpu, ENGINES, LATEST])
    return int(retiming.noted[retiming.tasks[anchor, ROW], ENGINES, LATEST])


@inlined
def _find_eviction(retiming: Retiming, tables: Tables, plan: Plan, gpu: int, lead: int) -> int:
    """Return the position of the first eviction on a GPU that may now choose otherwise, that of the move if none.

    A model whose next use comes at another time matters to the evictions between its last use and the move.
    """
    still, only = 0, ABSENT
    for model in range(retiming.models.shape[2]):
        later = retiming.models[gpu, WITH, model]
        moved = later != ABSENT and retiming.tasks[later, SHIFTED] == retiming.counts[STAMP]
        retiming.models[gpu, DIFFERS, model] = int(later != retiming.models[gpu, WITHOUT, model] or moved)
        retiming.models[gpu, PREVIOUS, model] = ABSENT
        still += retiming.models[gpu, DIFFERS, model]
    task = _latest_before(retiming, gpu)
    while still > 0 and task != ABSENT and plan.position[task] >= lead:
        row, template, use = retiming.tasks[task, ROW], tables.task_template[task], tables.use_first[task]
        if retiming.noted[row, VICTIMS, 0] != NOTHING:
            if only == ABSENT or retiming.models[gpu, PREVIOUS, only] != ABSENT:
                only = _first_open(retiming, gpu)
            if still > 1 or _may_choose_otherwise(retiming, plan, gpu, only, row):
                retiming.gpus[gpu, SINCE] = plan.position[task]
        for need in range(tables.need_first[template], tables.need_first[template + 1]):
            model = tables.need_model[need]
            if retiming.models[gpu, DIFFERS, model] == 1 and retiming.models[gpu, PREVIOUS, model] == ABSENT:
                retiming.models[gpu, PREVIOUS, model] = task
                _relink(retiming, use, retiming.models[gpu, WITH, model])
                still -= 1
            use += 1
        task = int(retiming.noted[row, ENGINES, LATEST])
    return int(retiming.gpus[gpu, SINCE])


@inlined
def _first_open(retiming: Retiming, gpu: int) -> int:
    """Return the first model with another next use whose use before has not been found."""
    for model in range(retiming.models.shape[2]):
        if retiming.models[gpu, DIFFERS, model] == 1 and retiming.models[gpu, PREVIOUS, model] == ABSENT:
            return model
    return ABSENT


@inlined
def _may_choose_otherwise(retiming: Retiming, plan: Plan, gpu: int, model: int, row: int) -> bool:
    """Say whether the loads of a task might evict other models now that one has another next use."""
    soonest, furthest = retiming.noted[row, VICTIMS, 1], retiming.noted[row, VICTIMS, 2]
    place = place_of(plan, retiming.models[gpu, WITH, model])
    if retiming.noted[row, VICTIMS, 0] != ONE:
        return True
    if soonest == retiming.models[gpu, WITHOUT, model]:
        # It was the one to leave: it still is, as long as none that stayed is needed later.
        return bool(soonest == ABSENT or place <= place_of(plan, furthest))
    # It stayed: it still does, as long as it is needed sooner than the one that left.
    moved = soonest != ABSENT and retiming.tasks[soonest, SHIFTED] == retiming.counts[STAMP]
    return bool(place >= place_of(plan, soonest) or moved)


@inlined
def _follow(retiming: Retiming, state: State, plan: Plan, gpu: int, task: int, position: int) -> None:
    """Make a GPU's moment before a task the present one; before all that the move changes if it is no task."""
    low, high = plan.old_range[0], plan.old_range[1]
    if retiming.gpus[gpu, TOUCHES] == 1 and position < high:
        within = task == ABSENT or position >= low
        source = retiming.gpus[gpu, ANCHOR] if within else task
        if source == ABSENT:
            return_to(retiming, retiming.final, gpu, state, gpu)
        else:
            return_to(retiming, retiming.noted, retiming.tasks[source, ROW], state, gpu)
        for model in range(retiming.models.shape[2]):
            previous = retiming.models[gpu, PREVIOUS, model]
            if within or (
                retiming.models[gpu, DIFFERS, model] == 1 and (previous == ABSENT or plan.position[previous] < position)
            ):
                retiming.models[gpu, NOW, model] = retiming.models[gpu, WITH, model]
    else:
        return_to(retiming, retiming.noted, retiming.tasks[task, ROW], state, gpu)
    look(retiming, plan, state, gpu)
    retiming.gpus[gpu, FOLLOWED] = 1
    retiming.counts[DIRTY] += 1


@inlined
def _charge(
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


@kernel
def worst_of(retiming: Retiming, tables: Tables, plan: Plan, lead: int, last: int, worst: float) -> float:
    """Return the cost of the worst job after the move, of `worst` and those that have tasks in the window."""
    for position in range(lead, last):
        job = tables.task_job[plan.order[position]]
        completed = retiming.jobs[job, COMPLETED]
        if retiming.jobs[job, CHANGED] == retiming.counts[STAMP]:
            completed = retiming.jobs[job, ESTIMATE]
        worst = max(worst, tables.peak[job] * max(completed - tables.due_us[job], 0))
    return worst


@inlined
def forget(retiming: Retiming, plan: Plan, work: Work) -> None:
    """Take back what following a move has changed."""
    for at in range(retiming.counts[PLACED]):
        task = retiming.placed[at]
        work.start[task], work.end[task] = plan.time[task], retiming.tasks[task, END]
    for at in range(retiming.counts[RELINKED]):
        retiming.pairs[retiming.relinked[at], MOVED] = retiming.pairs[retiming.relinked[at], NOTED]


@kernel
def adopt(retiming: Retiming, tables: Tables, state: State, work: Work, plan: Plan, lead: int, last: int) -> None:
    """Make the move part of what is noted, and sort the order by the new starts."""
    if tables.evictable:
        for at in range(retiming.counts[AFFECTED]):
            _correct(retiming, tables, plan, retiming.affected[at], lead)
    for at in range(retiming.counts[PLACED]):
        task = retiming.placed[at]
        row = retiming.tasks[task, ROW]
        for part in range(5):
            for column in range(retiming.noted.shape[2]):
                retiming.noted[row, part, column] = retiming.fresh[at, part, column]
        retiming.tasks[task, END] = work.end[task]
    for at in range(retiming.counts[RELINKED]):
        retiming.pairs[retiming.relinked[at], NOTED] = retiming.pairs[retiming.relinked[at], MOVED]
    for at in range(retiming.counts[JOBS]):
        retiming.jobs[retiming.changed[at], COMPLETED] = retiming.jobs[retiming.changed[at], ESTIMATE]
    for gpu in range(tables.gpu_class.shape[0]):
        if retiming.gpus[gpu, FOLLOWED] == 1:
            note(retiming, retiming.final, gpu, state, gpu)
    accept(plan, work.start, lead, last)


@inlined
def _correct(retiming: Retiming, tables: Tables, plan: Plan, gpu: int, lead: int) -> None:
    """Correct next uses that were noted before the move, and with them where the choice of evictions ends."""
    task = _latest_before(retiming, gpu)
    while task != ABSENT and plan.position[task] >= lead:
        row, waiting = retiming.tasks[task, ROW], False
        for model in range(retiming.models.shape[2]):
            if retiming.models[gpu, DIFFERS, model] == 0:
                continue
            previous = retiming.models[gpu, PREVIOUS, model]
            if previous != ABSENT and plan.position[previous] >= plan.position[task]:
                continue
            waiting = True
            later = retiming.models[gpu, WITH, model]
            retiming.noted[row, FOLLOWING, model] = later
            if retiming.noted[row, VICTIMS, 0] == NOTHING:
                continue
            if (
                retiming.noted[row, VICTIMS, 0] == ONE
                and retiming.noted[row, VICTIMS, 1] == retiming.models[gpu, WITHOUT, model]
            ):
                retiming.noted[row, VICTIMS, 1] = later
            elif place_of(plan, later) > place_of(plan, retiming.noted[row, VICTIMS, 2]):
                retiming.noted[row, VICTIMS, 2] = later
            elif retiming.noted[row, VICTIMS, 2] == retiming.models[gpu, WITHOUT, model]:
                # Which of the others is needed furthest ahead is not known any more: none later than what left.
                retiming.noted[row, VICTIMS, 2] = retiming.noted[row, VICTIMS, 1]
        if not waiting:
            return
        task = int(retiming.noted[row, ENGINES, LATEST])
