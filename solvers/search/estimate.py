"""What a move may cost, told without looking at evictions: most moves are far too dear, and need no closer look.

The moved tasks and those behind them are timed by what their GPUs and inputs allow, where models are as they were
before the move; a moved task loads what its new GPU did not hold there. Of a hundred moves that would be accepted fewer
than one is missed; nine in ten moves end here, at a fifth of what timing them again takes.
"""

from __future__ import annotations

from truenorth.models.instance import NONE
from truenorth.solvers.compiled import inlined
from truenorth.solvers.search.current_plan import CurrentPlan
from truenorth.solvers.search.decoder_kernel import arrival
from truenorth.solvers.search.retiming import (
    AFFECTED,
    ANCHOR,
    COMPUTE,
    COPIED,
    COPY,
    DIRTY,
    END,
    ENGINES,
    FOLLOWED,
    FREE,
    LATE,
    LOADED,
    OLD_GPU,
    PLACED,
    REACH,
    READY,
    ROW,
    SHIFTED,
    STAMP,
    TOUCHED,
    Retiming,
    Scene,
    Window,
    begin,
    charge,
    find_anchors,
    hope,
    measure,
    touch_followers,
)


@inlined
def estimate(scene: Scene, plan: CurrentPlan, window: Window, allowed: float, foreseen: float) -> float:
    """Return about by how much the summed cost grows with the move of `plan`; as in `retime`, which is exact.

    Only ends in `work` change, of tasks that are then listed as placed. The estimate ends early, at something above
    `allowed`, once there is no hope.

    Notes
    -----
    Invariant: as in `retime`, but that models are where they were before the move, or come by a load at once.
    Because: no eviction is looked at; a moved task loads what its new GPU did not hold before or behind it.
    Cost: O(tasks whose time changes), a fifth of what `retime` takes, as measured.
    If wrong: weaker. A good move is missed (fewer than one in a hundred, as measured); none is kept on an estimate.
    """
    retiming, tables, work, last = scene.retiming, scene.on.tables, scene.on.work, window.last
    begin(retiming, plan)
    find_anchors(retiming, plan, last)
    for at in range(retiming.counts[AFFECTED]):
        _follow_from_anchor(retiming, retiming.affected[at])
    stamp, high = retiming.counts[STAMP], plan.old_range[1]
    position, grown = plan.old_range[0], 0.0
    while position < last:
        task = plan.order[position]
        gpu, row = plan.gpu[task], retiming.tasks[task, ROW]
        if retiming.gpus[gpu, FOLLOWED] != stamp:
            if retiming.tasks[task, TOUCHED] != stamp:
                if position >= retiming.counts[REACH] and retiming.counts[DIRTY] == 0:
                    break
                position += 1
                continue
            _follow(retiming, gpu, retiming.noted[row, ENGINES, COMPUTE])
        elif (
            position >= high
            and retiming.tasks[task, TOUCHED] != stamp
            and retiming.gpus[gpu, FREE] == retiming.noted[row, ENGINES, COMPUTE]
        ):
            # The GPU is free when it was: what follows on it stands, as far as inputs come when they did.
            measure(retiming, gpu, 0)
            retiming.gpus[gpu, FOLLOWED] = 0
            retiming.counts[DIRTY] -= 1
            position += 1
            continue
        start = max(arrival(tables, work, task, gpu), retiming.gpus[gpu, FREE])
        start = max(start, _models_ready(scene, plan, task, position, last))
        end = start + tables.run_us[tables.task_template[task], tables.gpu_class[gpu]]
        retiming.gpus[gpu, FREE] = end
        if end != work.end[task] or retiming.tasks[task, SHIFTED] == stamp:
            work.end[task] = end
            retiming.placed[retiming.counts[PLACED]] = task
            retiming.counts[PLACED] += 1
            touch_followers(retiming, tables, plan, task, last)
            grown += charge(scene, plan, window, task)
        if position >= high:
            measure(retiming, gpu, end - retiming.tasks[task, END])
            known = position >= high + tables.gpu_class.shape[0]
            if known and grown - hope(retiming, tables, last - position) * foreseen > allowed:
                break
        position += 1
    return grown


@inlined
def _follow_from_anchor(retiming: Retiming, gpu: int) -> None:
    """Follow a GPU that the move touches from before the first change on; nothing is loaded on it for the move yet."""
    anchor = retiming.gpus[gpu, ANCHOR]
    if anchor == NONE:
        _follow(retiming, gpu, retiming.final[gpu, ENGINES, COMPUTE])
        retiming.gpus[gpu, COPIED] = retiming.final[gpu, ENGINES, COPY]
    else:
        row = retiming.tasks[anchor, ROW]
        _follow(retiming, gpu, retiming.noted[row, ENGINES, COMPUTE])
        retiming.gpus[gpu, COPIED] = retiming.noted[row, ENGINES, COPY]
    for model in range(retiming.models.shape[2]):
        retiming.models[gpu, LOADED, model] = NONE


@inlined
def _follow(retiming: Retiming, gpu: int, free_us: int) -> None:
    """Follow a GPU that is free from a time on."""
    retiming.gpus[gpu, FOLLOWED], retiming.gpus[gpu, FREE] = retiming.counts[STAMP], free_us
    retiming.gpus[gpu, LATE] = 0
    retiming.counts[DIRTY] += 1


@inlined
def _models_ready(scene: Scene, plan: CurrentPlan, task: int, position: int, last: int) -> int:
    """Return when the models of a task may be ready."""
    retiming, tables = scene.retiming, scene.on.tables
    template, gpu, ready = tables.task_template[task], plan.gpu[task], NONE
    comes = _comes(retiming, plan, task)
    for need in range(tables.need_first[template], tables.need_first[template + 1]):
        model = tables.need_model[need]
        if not comes:
            # Where it was loaded for this very task nothing is noted: it was there in time.
            at = retiming.noted[retiming.tasks[task, ROW], READY, model]
        else:
            if retiming.models[gpu, LOADED, model] == NONE:
                retiming.models[gpu, LOADED, model] = _arrive(scene, plan, gpu, model, position, last)
            at = retiming.models[gpu, LOADED, model]
        ready = max(ready, at)
    return ready


@inlined
def _arrive(scene: Scene, plan: CurrentPlan, gpu: int, model: int, position: int, last: int) -> int:
    """Return when a model may be ready for a task that comes to a GPU: it was there, or a load brings it.

    The sooner of what two moments of the GPU say: behind the task, and before the first change. Where two GPUs
    exchange their tasks the former is far off and says far too late.
    """
    retiming, tables = scene.retiming, scene.on.tables
    load_us, anchor = tables.load_us[model, tables.gpu_class[gpu]], retiming.gpus[gpu, ANCHOR]
    if anchor == NONE:
        sooner = retiming.final[gpu, READY, model]
    else:
        sooner = retiming.noted[retiming.tasks[anchor, ROW], READY, model]
    if sooner == NONE:
        retiming.gpus[gpu, COPIED] += load_us
        sooner = retiming.gpus[gpu, COPIED]
    behind = position + 1
    while behind < last and (plan.gpu[plan.order[behind]] != gpu or _comes(retiming, plan, plan.order[behind])):
        behind += 1
    if behind == last:
        later, copied = retiming.final[gpu, READY, model], retiming.final[gpu, ENGINES, COPY]
    else:
        row = retiming.tasks[plan.order[behind], ROW]
        later, copied = retiming.noted[row, READY, model], retiming.noted[row, ENGINES, COPY]
    return int(min(sooner, copied + load_us if later == NONE else later))


@inlined
def _comes(retiming: Retiming, plan: CurrentPlan, task: int) -> bool:
    """Say whether the move brings a task to its GPU."""
    shifted = retiming.tasks[task, SHIFTED] == retiming.counts[STAMP]
    return bool(shifted and retiming.tasks[task, OLD_GPU] != plan.gpu[task])
