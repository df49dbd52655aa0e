"""The list decoder: an order of the tasks and a GPU for each become start times, loads and a cost.

Tasks are taken in list order and appended to their GPU, each as early as its inputs, the GPU and its models
allow. The tasks of every GPU are thus known in advance, and loads and evictions look ahead (`decoder_loads`).
One pass backwards notes the next use of every model, one pass forwards places the tasks; both are linear.
Where tasks run in batches, a batch is placed when its first member is met (`batches`).
"""

from __future__ import annotations

from truenorth.models.instance import NEVER, NONE, Ints
from truenorth.solvers.compiled import inlined, kernel
from truenorth.solvers.search.batches import find_start, gather, run_length
from truenorth.solvers.search.decoder_loads import clear_slots, load
from truenorth.solvers.search.decoder_state import ClusterState, DecodedTasks, Decoding, Serving
from truenorth.solvers.search.decoder_tables import InstanceTables

INFEASIBLE = float("inf")
"""Cost of decisions that lead to no plan."""

Cost = tuple[float, float]
"""What jobs cost together, and the worst of them; a plan pays the sum of the two."""


@kernel
def look_ahead(
    tables: InstanceTables, state: ClusterState, work: DecodedTasks, serving: Serving | None, first: int, last: int
) -> None:
    """Note the next use of every model that tasks at positions [first, last) need, and the next task of every GPU.

    `state.upcoming` holds the first uses from `last` on; afterwards those from `first` on. No batch crosses `last`.

    Notes
    -----
    Invariant: afterwards `work.next_use` of a (task, model) pair is the position of the next task on the same GPU
    that needs the model, FAR if there is none.
    Because: the walk goes backwards, and `upcoming` holds at each position the first use behind it.
    Cost: O(tasks x models of a task).
    If wrong: weaker. Other models leave than those needed furthest ahead; what is placed stays feasible.
    """
    if serving is not None:
        for gpu in range(serving.runs.latest.shape[0]):
            serving.runs.latest[gpu] = NONE
    # Backwards, so that what was noted last is what comes next.
    for position in range(last - 1, first - 1, -1):
        task = work.order[position]
        gpu, template = work.gpu[task], tables.task_template[task]
        if serving is not None:
            serving.runs.next_on_gpu[task] = serving.runs.latest[gpu]
            serving.runs.latest[gpu] = task
            # Batches are formed anew in each decode.
            serving.runs.placed[task] = 0
        use = tables.use_first[task]
        for need in range(tables.need_first[template], tables.need_first[template + 1]):
            model = tables.need_model[need]
            work.next_use[use] = state.upcoming[gpu, model]
            state.upcoming[gpu, model] = position
            use += 1


@inlined
def arrival(tables: InstanceTables, work: DecodedTasks, task: int, gpu: int) -> int:
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
def _inputs_arrive(
    tables: InstanceTables, work: DecodedTasks, serving: Serving | None, task: int, gpu: int, size: int
) -> int:
    """Return when the inputs of a task, or of all members of the listed batch, have arrived on a GPU."""
    if serving is None:
        return arrival(tables, work, task, gpu)
    latest = 0
    for at in range(size):
        member = serving.runs.members[at]
        arrived = arrival(tables, work, member, gpu)
        serving.runs.arrived[member] = arrived
        latest = max(latest, arrived)
    return latest


@inlined
def _models_ready(on: Decoding, serving: Serving | None, template: int, gpu: int, position: int) -> int:
    """Load what a task still needs; return when all its models are ready, NONE if they cannot be."""
    tables, state = on.tables, on.state
    first, beyond = tables.need_first[template], tables.need_first[template + 1]
    slotted = tables.slot_bytes.shape[1] > 0 and tables.slot_bytes[gpu, 0] > 0
    # One missing model finds a slot wherever it can leave; only several can keep each other out.
    if slotted and beyond - first > 1 and not clear_slots(on, gpu, template):
        return NONE
    ready = 0
    for need in range(first, beyond):
        model = tables.need_model[need]
        at = state.ready[gpu, model]
        # Appending in list order is what makes this the next load of the GPU: nothing later can come before it.
        if at == NONE:
            at = load(on, serving, gpu, model, position)
            if at == NONE:
                return NONE
        ready = max(ready, at)
    return ready


@inlined
def append(on: Decoding, serving: Serving | None, task: int, gpu: int, position: int, size: int) -> bool:
    """Run a task, or the listed batch that it leads, as early as possible after all that its GPU has started.

    Return whether that is possible.

    Notes
    -----
    Invariant: `work` and `state` say of everything placed so far where and when it runs, and of every GPU when it is
    free and what it holds, as if nothing came after.
    Because: a task starts at the latest of four times (inputs, models, engine, release), all known by now, since
    predecessors come before it in the list and its GPU takes tasks in that order.
    Cost: O(inputs + models), and what loads cost.
    If wrong: loud. The checker computes arrivals, loads and overlaps anew.
    """
    tables, state, work = on.tables, on.state, on.work
    template = tables.task_template[task]
    runtime = run_length(tables, serving, template, gpu, size)
    # Whoever proposes a GPU need not know whether it can run the task.
    if runtime == NEVER:
        return False
    begin = _inputs_arrive(tables, work, serving, task, gpu, size)
    ready = _models_ready(on, serving, template, gpu, position)
    if ready == NONE:
        return False
    if serving is None:
        begin = max(begin, ready, state.compute_free[gpu])
    else:
        begin = find_start(on, serving, gpu, position, size, max(begin, ready))
        if begin == NONE:
            return False
    finish = begin + runtime
    for at in range(size):
        member = task if serving is None else serving.runs.members[at]
        # From now on the next use of its models is the one behind this task.
        template, use = tables.task_template[member], tables.use_first[member]
        for need in range(tables.need_first[template], tables.need_first[template + 1]):
            model = tables.need_model[need]
            # One at a time, who starts last ends last.
            state.last_use[gpu, model] = finish if serving is None else max(state.last_use[gpu, model], finish)
            state.upcoming[gpu, model] = work.next_use[use]
            use += 1
        work.gpu[member] = gpu
        work.start[member], work.end[member] = begin, finish
        if serving is not None:
            serving.runs.placed[member] = 1
    before = state.last_task[gpu]
    if serving is not None:
        serving.runs.until[task] = finish if before == NONE else max(finish, serving.runs.until[before])
    # A list per GPU, backwards, by which gaps and held memory are found.
    work.previous[task] = before
    state.last_task[gpu] = task
    state.compute_free[gpu] = finish if serving is None else max(state.compute_free[gpu], finish)
    return True


@kernel
def decode(on: Decoding, serving: Serving | None, first: int, last: int, cost: Cost, limit: float) -> Cost:
    """Place the tasks at positions [first, last) from a state; return summed and worst cost so far.

    Parameters
    ----------
    on
        Its state is the moment before `first`, with `upcoming` as `look_ahead` leaves it; advanced in place.
    cost
        Summed and worst cost of the jobs as `work.completed` has them before.
    limit
        Once the two together exceed it the decode ends early: costs only grow, so they are then lower bounds.

    Returns
    -------
    tuple
        The two parts of the cost; INFEASIBLE for both if a task cannot run where it is placed.

    Notes
    -----
    Invariant: the sum is what jobs cost at least, as far as they are placed: `work.completed` counts the fastest runs
    of what follows.
    Because: a job pays the difference whenever one of its tasks ends later than was known, and never gets it back.
    Cost: O(tasks), and what loads cost; ends at the limit.
    If wrong: weaker. Plans that are kept are measured anew (`Search.offer`); a false cost only misleads the search.
    """
    tables, work = on.tables, on.work
    total, worst = cost
    for position in range(first, last):
        task, size = work.order[position], 1
        if serving is not None:
            if serving.runs.placed[task] == 1:
                continue  # with the batch that it joined
            size = gather(tables, serving, task, work.gpu[task])
        if not append(on, serving, task, work.gpu[task], position, size):
            return INFEASIBLE, INFEASIBLE
        for at in range(size):
            member = task if serving is None else serving.runs.members[at]
            job = tables.task_job[member]
            # Counting the tail makes the cost of a job known long before its last task, and only ever growing.
            finish = work.end[member] + tables.tail_us[tables.task_template[member]]
            before = work.completed[job]
            work.completed[job] = max(before, finish)
            # Jobs come back task by task: what they have paid already is taken off.
            early = max(before - tables.due_us[job], 0)
            late = max(finish - tables.due_us[job], early)
            total += tables.linear[job] * (late - early) + tables.step[job] * (int(late > 0) - int(early > 0))
            worst = max(worst, tables.peak[job] * late)
        # Asked at each task: most moves of an annealing are too dear long before the end.
        if total + worst > limit:
            break
    return total, worst


@kernel
def cost_so_far(tables: InstanceTables, completed: Ints) -> Cost:
    """Return summed and worst cost of jobs that complete at these times."""
    total, worst = 0.0, 0.0
    for job in range(completed.shape[0]):
        late = completed[job] - tables.due_us[job]
        if late > 0:
            total += tables.linear[job] * late + tables.step[job]
            worst = max(worst, tables.peak[job] * late)
    return total, worst
