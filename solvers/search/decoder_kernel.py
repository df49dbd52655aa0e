"""The list decoder: an order of the tasks and a GPU for each become start times, loads and a cost.

Tasks are taken in list order and appended to their GPU, each as early as its inputs, the GPU and its models
allow. The tasks of every GPU are thus known in advance, and loads and evictions look ahead (`decoder_loads`).
One pass backwards notes the next use of every model, one pass forwards places the tasks; both are linear.
"""

from __future__ import annotations

from models.instance import NEVER, NONE, Ints
from solvers.compiled import inlined, kernel
from solvers.search.decoder_loads import clear_slots, load
from solvers.search.decoder_state import ABSENT, State, Work
from solvers.search.decoder_tables import Tables

INFEASIBLE = float("inf")
"""Cost of decisions that lead to no plan."""


@kernel
def look_ahead(tables: Tables, state: State, work: Work, first: int, last: int) -> None:
    """Note the next use of every model that tasks at positions [first, last) need.

    `state.upcoming` holds the first uses from `last` on; afterwards those from `first` on.
    """
    for position in range(last - 1, first - 1, -1):
        task = work.order[position]
        gpu, template = work.gpu[task], tables.task_template[task]
        use = tables.use_first[task]
        for need in range(tables.need_first[template], tables.need_first[template + 1]):
            model = tables.need_model[need]
            work.next_use[use] = state.upcoming[gpu, model]
            state.upcoming[gpu, model] = position
            use += 1


@inlined
def arrival(tables: Tables, work: Work, task: int, gpu: int) -> int:
    """Return when a task's job is released and its inputs have arrived on a GPU."""
    template, job = tables.task_template[task], tables.task_job[task]
    ready = tables.release_us[job]
    # Input bytes lie at the ingress server; most jobs name none, so that this is seldom looked into.
    if tables.job_ingress[job] != NONE and tables.job_ingress[job] != tables.gpu_server[gpu]:
        ready += tables.input_us[template]
    for entry in range(tables.input_first[template], tables.input_first[template + 1]):
        source = task + tables.input_offset[entry]
        other = work.gpu[source]
        available = work.end[source]
        # How close the two GPUs are: 0 two servers, 1 one server, 2 the same GPU. No branch: it could not be predicted.
        close = int(tables.gpu_server[other] == tables.gpu_server[gpu]) + int(other == gpu)
        available += tables.transfer_us[tables.input_edge[entry], tables.gpu_class[other], tables.gpu_class[gpu], close]
        ready = max(ready, available)
    return ready


@inlined
def models_ready(
    tables: Tables, state: State, work: Work, residencies: Ints, task: int, gpu: int, position: int
) -> int:
    """Load what a task still needs; return when all its models are ready, ABSENT if they cannot be."""
    template = tables.task_template[task]
    first, beyond = tables.need_first[template], tables.need_first[template + 1]
    slotted = tables.slot_bytes.shape[1] > 0 and tables.slot_bytes[gpu, 0] > 0
    if slotted and beyond - first > 1 and not clear_slots(tables, state, residencies, gpu, template):
        return ABSENT
    ready = 0
    for need in range(first, beyond):
        model = tables.need_model[need]
        at = state.ready[gpu, model]
        # Appending in list order is what makes this the next load of the GPU: nothing later can come before it.
        if at == ABSENT:
            at = load(tables, state, work, residencies, gpu, model, position)
            if at == ABSENT:
                return ABSENT
        ready = max(ready, at)
    return ready


@inlined
def append(tables: Tables, state: State, work: Work, residencies: Ints, task: int, gpu: int, position: int) -> bool:
    """Run a task as early as possible after all that its GPU already does; say whether that is possible."""
    template = tables.task_template[task]
    runtime = tables.run_us[template, tables.gpu_class[gpu]]
    if runtime == NEVER:
        return False
    begin = arrival(tables, work, task, gpu)
    ready = models_ready(tables, state, work, residencies, task, gpu, position)
    if ready == ABSENT:
        return False
    begin = max(begin, ready, state.compute_free[gpu])
    finish = begin + runtime
    # From now on the next use of its models is the one behind this task.
    use = tables.use_first[task]
    for need in range(tables.need_first[template], tables.need_first[template + 1]):
        state.last_use[gpu, tables.need_model[need]] = finish
        state.upcoming[gpu, tables.need_model[need]] = work.next_use[use]
        use += 1
    work.gpu[task] = gpu
    work.start[task], work.end[task] = begin, finish
    work.previous[task] = state.last_task[gpu]
    state.last_task[gpu] = task
    state.compute_free[gpu] = finish
    return True


@kernel
def decode(
    tables: Tables,
    state: State,
    work: Work,
    residencies: Ints,
    first: int,
    last: int,
    total: float,
    worst: float,
    limit: float,
) -> tuple[float, float]:
    """Place the tasks at positions [first, last) from a state; return summed and worst cost so far.

    Parameters
    ----------
    state
        The moment before `first`, with `upcoming` as `look_ahead` leaves it; advanced in place.
    total, worst
        Summed and worst cost of the jobs as `work.completed` has them before.
    limit
        Once total + worst exceed it the decode ends early: costs only grow, so they are then lower bounds.

    Returns
    -------
    tuple
        The two parts of the cost; INFEASIBLE for both if a task cannot run where it is placed.
    """
    for position in range(first, last):
        task = work.order[position]
        if not append(tables, state, work, residencies, task, work.gpu[task], position):
            return INFEASIBLE, INFEASIBLE
        job = tables.task_job[task]
        # Counting the tail makes the cost of a job known long before its last task, and only ever growing.
        finish = work.end[task] + tables.tail_us[tables.task_template[task]]
        before = work.completed[job]
        work.completed[job] = max(before, finish)
        # Jobs come back task by task: what they have paid already is taken off.
        early = max(before - tables.due_us[job], 0)
        late = max(finish - tables.due_us[job], early)
        total += tables.linear[job] * (late - early) + tables.step[job] * (int(late > 0) - int(early > 0))
        worst = max(worst, tables.peak[job] * late)
        if total + worst > limit:
            break
    return total, worst


@kernel
def cost_so_far(tables: Tables, completed: Ints) -> tuple[float, float]:
    """Return summed and worst cost of jobs that complete at these times."""
    total, worst = 0.0, 0.0
    for job in range(completed.shape[0]):
        late = completed[job] - tables.due_us[job]
        if late > 0:
            total += tables.linear[job] * late + tables.step[job]
            worst = max(worst, tables.peak[job] * late)
    return total, worst
