"""Follow a move through the plan: where it begins to matter, what it changes, and how it becomes the plan."""

from __future__ import annotations

from truenorth.models.instance import NONE
from truenorth.solvers.compiled import inlined, kernel
from truenorth.solvers.search.current_plan import CurrentPlan, sort_again
from truenorth.solvers.search.decoder_kernel import INFEASIBLE
from truenorth.solvers.search.decoder_loads import LEAVING as MARKED
from truenorth.solvers.search.decoder_loads import choose_victims
from truenorth.solvers.search.decoder_state import ClusterState, DecodedTasks
from truenorth.solvers.search.decoder_tables import InstanceTables
from truenorth.solvers.search.retiming import (
    AFFECTED,
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
    LAST_USE,
    LATE,
    LATEST,
    LEAVES,
    LEAVING,
    MOVED,
    NOTED,
    NOW,
    PLACED,
    PREVIOUS,
    REACH,
    READY,
    RELINKED,
    ROOM,
    ROW,
    SHIFTED,
    SINCE,
    STAMP,
    TOUCHED,
    TOUCHES,
    WITH,
    WITHOUT,
    Retiming,
    Scene,
    Window,
    begin,
    charge,
    find_anchors,
    hope,
    is_as_noted,
    look,
    measure,
    note,
    place,
    place_of,
    return_to,
    touch_followers,
)


@inlined
def retime(scene: Scene, plan: CurrentPlan, window: Window, allowed: float, foreseen: float) -> float:
    """Time again what the move of `plan` changes; return by how much the summed cost then grows.

    Parameters
    ----------
    allowed
        Growth that would be accepted.
    foreseen
        Cost per microsecond that a task is late, to give up moves that already cost too much: what GPUs are ahead by
        may still be gained. 0: none is given up.

    Notes
    -----
    Invariant: behind `position` a GPU is either followed, its state being what a decode of the whole window would
    have, or it is where the noted moments say; `grown` is the cost of the new ends up to there.
    Because: where `is_local` holds a GPU depends on others through inputs alone, so a task stands unless its GPU
    is followed, the move begins on it, or an input of it has moved (`_stands`); evictions before the move that would
    now choose otherwise are found first (`_find_start`).
    Cost: O(tasks whose time changes x models), and O(1) per task that stands between them.
    If wrong: weaker. Of a false cost a worse move is kept; the window is decoded exactly behind its moves.
    """
    retiming, tables, state, work = scene.retiming, scene.on.tables, scene.on.state, scene.on.work
    last = window.last
    begin(retiming, plan)
    find_anchors(retiming, plan, last)
    position, grown = _find_start(retiming, tables, state, plan, window.lead, last), 0.0
    while position < last:
        # Here the move begins; until then only evictions that look ahead could differ.
        if position == plan.old_range[0]:
            _follow_all(retiming, state, plan, position)
        task = plan.order[position]
        if _stands(retiming, state, plan, task, position):
            # No GPU differs from what is noted, and nobody awaits another input: the rest stands.
            if position >= retiming.counts[REACH] and retiming.counts[DIRTY] == 0:
                break
            position += 1
            continue
        if retiming.gpus[plan.gpu[task], FOLLOWED] != retiming.counts[STAMP]:
            _follow(retiming, state, plan, plan.gpu[task], task, position)
        # Written beside the noted moments: a move that is refused leaves those as they are.
        row = retiming.counts[PLACED]
        if not place(scene, plan, retiming.fresh, row, task, position):
            return INFEASIBLE
        retiming.placed[row] = task
        retiming.counts[PLACED] = row + 1
        # Followers wait for another end, or for the same from another GPU.
        if work.end[task] != retiming.tasks[task, END] or retiming.tasks[task, SHIFTED] == retiming.counts[STAMP]:
            touch_followers(retiming, tables, plan, task, last)
            grown += charge(scene, plan, window, task)
        # Inside the move the old ends say nothing about who is late.
        if position >= plan.old_range[1]:
            measure(retiming, plan.gpu[task], work.end[task] - retiming.tasks[task, END])
            # Not before the GPUs of the move have come to a task behind it: until then nobody knows what they gain.
            known = foreseen > 0 and position >= plan.old_range[1] + tables.gpu_class.shape[0]
            if known and grown - hope(retiming, tables, last - position) * foreseen > allowed:
                return INFEASIBLE
        position += 1
    return grown


@inlined
def _stands(retiming: Retiming, state: ClusterState, plan: CurrentPlan, task: int, position: int) -> bool:
    """Say whether a task stands as it is: its GPU is where it was before it, and its inputs come when they did."""
    gpu = plan.gpu[task]
    settled = position >= plan.old_range[1] or retiming.gpus[gpu, TOUCHES] == 0
    if retiming.gpus[gpu, FOLLOWED] == retiming.counts[STAMP]:
        if not settled or not is_as_noted(retiming.noted, retiming.tasks[task, ROW], state, gpu):
            return False
        measure(retiming, gpu, 0)
        # It has caught up with what is noted: from here on it costs nothing.
        retiming.gpus[gpu, FOLLOWED] = 0
        retiming.counts[DIRTY] -= 1
    begins = not settled and position == retiming.gpus[gpu, SINCE]
    return bool(retiming.tasks[task, TOUCHED] != retiming.counts[STAMP] and not begins)


@inlined
def _follow_all(retiming: Retiming, state: ClusterState, plan: CurrentPlan, position: int) -> None:
    """Follow every GPU that the move touches, from the first place that it changes."""
    for at in range(retiming.counts[AFFECTED]):
        if retiming.gpus[retiming.affected[at], FOLLOWED] != retiming.counts[STAMP]:
            _follow(retiming, state, plan, retiming.affected[at], NONE, position)


@inlined
def _relink(retiming: Retiming, use: int, task: int) -> None:
    """Give a use of a model another next use, for the time of the move."""
    # Listed, so that `forget` need not look at all pairs.
    if retiming.pairs[use, MOVED] != task:
        retiming.pairs[use, MOVED] = task
        retiming.relinked[retiming.counts[RELINKED]] = use
        retiming.counts[RELINKED] += 1


@inlined
def _find_start(
    retiming: Retiming, tables: InstanceTables, state: ClusterState, plan: CurrentPlan, lead: int, last: int
) -> int:
    """Return the first position at which the move may change something; note next uses on the GPUs it touches."""
    low, high = plan.old_range[0], plan.old_range[1]
    _look_behind(retiming, plan, high, last)
    for at in range(retiming.counts[AFFECTED]):
        gpu = retiming.affected[at]
        anchor = retiming.gpus[gpu, ANCHOR]
        retiming.gpus[gpu, SINCE] = low
        for model in range(retiming.models.shape[2]):
            # No task of it comes behind the move: what it is left with counts.
            if anchor == NONE:
                retiming.models[gpu, WITHOUT, model] = retiming.final[gpu, FOLLOWING, model]
            else:
                retiming.models[gpu, WITHOUT, model] = retiming.noted[retiming.tasks[anchor, ROW], FOLLOWING, model]
    # Backwards: the next use of a model is the one seen last.
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
        # Where everything fits nobody is evicted, and early tasks cannot change.
        if tables.evictable:
            start = min(start, _find_eviction(retiming, tables, state, plan, retiming.affected[at], lead))
    return int(start)


@inlined
def _look_behind(retiming: Retiming, plan: CurrentPlan, high: int, last: int) -> None:
    """Note, per GPU that the move touches, the next uses from the first position behind the move on."""
    # Ends once each touched GPU has been seen: a few tasks on, as a rule.
    missing = retiming.counts[AFFECTED]
    for at in range(missing):
        gpu = retiming.affected[at]
        retiming.gpus[gpu, SINCE] = NONE
        for model in range(retiming.models.shape[2]):
            retiming.models[gpu, WITH, model] = retiming.final[gpu, FOLLOWING, model]
    position = high
    while missing > 0 and position < last:
        task = plan.order[position]
        gpu = plan.gpu[task]
        if retiming.gpus[gpu, TOUCHES] == 1 and retiming.gpus[gpu, SINCE] == NONE:
            # Told apart by any position: where it must be followed from is not known yet.
            retiming.gpus[gpu, SINCE] = position
            missing -= 1
            for model in range(retiming.models.shape[2]):
                retiming.models[gpu, WITH, model] = retiming.noted[retiming.tasks[task, ROW], FOLLOWING, model]
        position += 1


@inlined
def _latest_before(retiming: Retiming, gpu: int) -> int:
    """Return the last task of a GPU before the move."""
    anchor = int(retiming.gpus[gpu, ANCHOR])
    if anchor == NONE:
        return int(retiming.final[gpu, ENGINES, LATEST])
    return int(retiming.noted[retiming.tasks[anchor, ROW], ENGINES, LATEST])


@inlined
def _find_eviction(
    retiming: Retiming, tables: InstanceTables, state: ClusterState, plan: CurrentPlan, gpu: int, lead: int
) -> int:
    """Return the position of the first eviction on a GPU that now chooses otherwise, that of the move if none.

    A model whose next use comes at another time matters to the evictions between its last use and the move.

    Notes
    -----
    Invariant: before the position that is returned no eviction on the GPU has another outcome with the move.
    Because: evictions look at next uses alone, and only those of models whose next use `DIFFERS` changed; the walk
    backwards asks the rule itself at each eviction, until the last use before the move of every such model is found.
    Cost: O(tasks of the GPU back to those uses x models).
    If wrong: weaker. The move would be judged as if an early load had stayed as it was.
    """
    still = 0
    for model in range(retiming.models.shape[2]):
        later = retiming.models[gpu, WITH, model]
        moved = later != NONE and retiming.tasks[later, SHIFTED] == retiming.counts[STAMP]
        retiming.models[gpu, DIFFERS, model] = int(later != retiming.models[gpu, WITHOUT, model] or moved)
        retiming.models[gpu, PREVIOUS, model] = NONE
        still += retiming.models[gpu, DIFFERS, model]
    task = _latest_before(retiming, gpu)
    # What stands before the window stands.
    while still > 0 and task != NONE and plan.position[task] >= lead:
        row, template, use = retiming.tasks[task, ROW], tables.task_template[task], tables.use_first[task]
        if retiming.noted[row, ENGINES, LEAVING] > 0 and _chooses_otherwise(retiming, tables, state, plan, gpu, task):
            retiming.gpus[gpu, SINCE] = plan.position[task]
        for need in range(tables.need_first[template], tables.need_first[template + 1]):
            model = tables.need_model[need]
            if _is_open(retiming, gpu, model):
                retiming.models[gpu, PREVIOUS, model] = task
                _relink(retiming, use, retiming.models[gpu, WITH, model])
                still -= 1
            use += 1
        task = int(retiming.noted[row, ENGINES, LATEST])
    return int(retiming.gpus[gpu, SINCE])


@inlined
def _is_open(retiming: Retiming, gpu: int, model: int) -> bool:
    """Say whether a model has another next use, while the use before it has not been found."""
    return bool(retiming.models[gpu, DIFFERS, model] == 1 and retiming.models[gpu, PREVIOUS, model] == NONE)


@inlined
def _chooses_otherwise(
    retiming: Retiming, tables: InstanceTables, state: ClusterState, plan: CurrentPlan, gpu: int, task: int
) -> bool:
    """Say whether other models leave for the loads of a task, now that some have another next use."""
    row, template, concerned = retiming.tasks[task, ROW], tables.task_template[task], False
    for model in range(retiming.models.shape[2]):
        held = retiming.noted[row, READY, model] != NONE
        concerned = concerned or (held and _is_open(retiming, gpu, model))
    if not concerned:
        return False
    if tables.need_first[template + 1] - tables.need_first[template] > 1:
        # What leaves for the second load depends on the first; to place the task again is simpler than to tell.
        return True
    # The GPU is not followed yet: its part of the state is free to ask the rule itself.
    state.room[gpu] = retiming.noted[row, ENGINES, ROOM]
    for model in range(retiming.models.shape[2]):
        later = retiming.noted[row, FOLLOWING, model]
        if _is_open(retiming, gpu, model):
            later = retiming.models[gpu, WITH, model]
        state.ready[gpu, model] = retiming.noted[row, READY, model]
        state.last_use[gpu, model] = retiming.noted[row, LAST_USE, model]
        state.upcoming[gpu, model] = place_of(plan, later)
    needed = tables.weight_bytes[tables.need_model[tables.need_first[template]]]
    choose_victims(tables, state, gpu, needed, plan.position[task], 0)
    otherwise = False
    for model in range(retiming.models.shape[2]):
        otherwise = otherwise or (state.slot[gpu, model] == MARKED) != (retiming.noted[row, LEAVES, model] == 1)
        state.slot[gpu, model] = NONE
    return otherwise


@inlined
def _follow(retiming: Retiming, state: ClusterState, plan: CurrentPlan, gpu: int, task: int, position: int) -> None:
    """Make a GPU's moment before a task the present one; before all that the move changes if it is no task."""
    low, high = plan.old_range[0], plan.old_range[1]
    if retiming.gpus[gpu, TOUCHES] == 1 and position < high:
        within = task == NONE or position >= low
        source = retiming.gpus[gpu, ANCHOR] if within else task
        if source == NONE:
            return_to(retiming, retiming.final, gpu, state, gpu)
        else:
            return_to(retiming, retiming.noted, retiming.tasks[source, ROW], state, gpu)
        for model in range(retiming.models.shape[2]):
            previous = retiming.models[gpu, PREVIOUS, model]
            if within or (
                retiming.models[gpu, DIFFERS, model] == 1 and (previous == NONE or plan.position[previous] < position)
            ):
                retiming.models[gpu, NOW, model] = retiming.models[gpu, WITH, model]
    else:
        # It was as noted until now.
        return_to(retiming, retiming.noted, retiming.tasks[task, ROW], state, gpu)
    look(retiming, plan, state, gpu)
    retiming.gpus[gpu, FOLLOWED], retiming.gpus[gpu, LATE] = retiming.counts[STAMP], 0
    retiming.counts[DIRTY] += 1


@kernel
def worst_of(retiming: Retiming, tables: InstanceTables, plan: CurrentPlan, window: Window) -> float:
    """Return the cost of the worst job after the move, of those before a window and those that have tasks in it."""
    worst = window.worst
    for position in range(window.lead, window.last):
        job = tables.task_job[plan.order[position]]
        completed = retiming.jobs[job, COMPLETED]
        if retiming.jobs[job, CHANGED] == retiming.counts[STAMP]:
            completed = retiming.jobs[job, ESTIMATE]
        worst = max(worst, tables.peak[job] * max(completed - tables.due_us[job], 0))
    return worst


@inlined
def forget(retiming: Retiming, plan: CurrentPlan, work: DecodedTasks) -> None:
    """Take back what following a move has changed."""
    for at in range(retiming.counts[PLACED]):
        task = retiming.placed[at]
        work.start[task], work.end[task] = plan.time[task], retiming.tasks[task, END]
    for at in range(retiming.counts[RELINKED]):
        retiming.pairs[retiming.relinked[at], MOVED] = retiming.pairs[retiming.relinked[at], NOTED]


@inlined
def adopt(scene: Scene, plan: CurrentPlan, window: Window) -> None:
    """Make the move part of what is noted, and sort the order by the new starts.

    Notes
    -----
    Invariant: as behind `record`: every row is the moment before its task in what is now the current plan.
    Because: rows of tasks that were placed again are overwritten, next uses that were noted before the move are
    corrected as far back as they are wrong, and all else stood.
    Cost: O(tasks placed again x models + tasks that change places).
    If wrong: weaker, and worse with every move that is kept; `record` notes all anew for the next window.
    """
    retiming, work = scene.retiming, scene.on.work
    if scene.on.tables.evictable:
        for at in range(retiming.counts[AFFECTED]):
            _correct(retiming, plan, retiming.affected[at], window.lead)
    low, high = plan.old_range[0], plan.old_range[1]
    for at in range(retiming.counts[PLACED]):
        task = retiming.placed[at]
        low, high = min(low, plan.position[task]), max(high, plan.position[task] + 1)
        plan.time[task] = work.start[task]
        row = retiming.tasks[task, ROW]
        for part in range(5):
            for column in range(retiming.noted.shape[2]):
                retiming.noted[row, part, column] = retiming.fresh[at, part, column]
        retiming.tasks[task, END] = work.end[task]
    for at in range(retiming.counts[RELINKED]):
        retiming.pairs[retiming.relinked[at], NOTED] = retiming.pairs[retiming.relinked[at], MOVED]
    for at in range(retiming.counts[JOBS]):
        retiming.jobs[retiming.changed[at], COMPLETED] = retiming.jobs[retiming.changed[at], ESTIMATE]
    for gpu in range(scene.on.tables.gpu_class.shape[0]):
        if retiming.gpus[gpu, FOLLOWED] == retiming.counts[STAMP]:
            note(retiming, retiming.final, gpu, scene.on.state, gpu)
    sort_again(plan, window.lead, low, high, window.last)


@inlined
def _correct(retiming: Retiming, plan: CurrentPlan, gpu: int, lead: int) -> None:
    """Correct next uses that were noted before the move."""
    task = _latest_before(retiming, gpu)
    while task != NONE and plan.position[task] >= lead:
        row, waiting = retiming.tasks[task, ROW], False
        for model in range(retiming.models.shape[2]):
            if retiming.models[gpu, DIFFERS, model] == 0:
                continue
            previous = retiming.models[gpu, PREVIOUS, model]
            if previous != NONE and plan.position[previous] >= plan.position[task]:
                continue
            waiting = True
            retiming.noted[row, FOLLOWING, model] = retiming.models[gpu, WITH, model]
        if not waiting:
            return
        task = int(retiming.noted[row, ENGINES, LATEST])
