"""The list decoder where tasks run in batches, take shares of a GPU and hold memory beside the models.

A task that joins becomes a member of the batch before it on its GPU if both are of one class, the batch has room and
the inputs of the task are made by then; otherwise it leads a batch of its own. Batches of a GPU start in the order of
the list, each as early as its members' inputs, its models and what runs before it allow. Since starts do not fall,
what a GPU has free only grows from the latest start on: the first instant that fits is the right one.
"""

from __future__ import annotations

from models.instance import NEVER, NONE, Ints
from models.workload import WHOLE
from solvers.compiled import inlined, kernel
from solvers.search.decoder_kernel import INFEASIBLE, arrival
from solvers.search.decoder_loads import LEAVING, begin_load, choose_victims, clear_slots, evict_marked, find_room
from solvers.search.decoder_state import ABSENT, FAR, State, Work
from solvers.search.decoder_tables import Tables
from solvers.search.serving_tables import Runs, Service


@kernel
def look_ahead_serving(tables: Tables, state: State, work: Work, runs: Runs, first: int, last: int) -> None:
    """Note the next use of every model and the next task of every GPU for the tasks at positions [first, last).

    `state.upcoming` holds the first uses from `last` on; afterwards those from `first` on. No batch crosses `last`.
    """
    for gpu in range(runs.latest.shape[0]):
        runs.latest[gpu] = ABSENT
    for position in range(last - 1, first - 1, -1):
        task = work.order[position]
        gpu, template = work.gpu[task], tables.task_template[task]
        runs.next_on_gpu[task] = runs.latest[gpu]
        runs.latest[gpu] = task
        runs.placed[task] = 0
        use = tables.use_first[task]
        for need in range(tables.need_first[template], tables.need_first[template + 1]):
            model = tables.need_model[need]
            work.next_use[use] = state.upcoming[gpu, model]
            state.upcoming[gpu, model] = position
            use += 1


@inlined
def _inputs_placed(tables: Tables, runs: Runs, task: int) -> bool:
    """Say whether all predecessors of a task have their times."""
    template = tables.task_template[task]
    for entry in range(tables.input_first[template], tables.input_first[template + 1]):
        if runs.placed[task + tables.input_offset[entry]] == 0:
            return False
    return True


@inlined
def _gather(tables: Tables, service: Service, runs: Runs, task: int, gpu: int) -> int:
    """List the batch that a task leads; return its size."""
    runs.members[0] = task
    size = 1
    batch = service.batch[tables.task_template[task]]
    if batch != NONE:
        most = service.largest[batch, tables.gpu_class[gpu]]
        other = runs.next_on_gpu[task]
        while size < most and other != ABSENT and runs.joins[other] == 1:
            if service.batch[tables.task_template[other]] != batch or not _inputs_placed(tables, runs, other):
                break
            runs.members[size] = other
            size += 1
            other = runs.next_on_gpu[other]
    return size


@inlined
def run_length(tables: Tables, service: Service, template: int, gpu: int, size: int) -> int:
    """Return how long a batch of a template's class runs on a GPU."""
    gpu_class, batch = tables.gpu_class[gpu], service.batch[template]
    if batch == NONE or tables.run_us[template, gpu_class] == NEVER:
        return int(tables.run_us[template, gpu_class])
    return int(service.batch_us[batch, gpu_class, size])


@inlined
def _memory_free(state: State, work: Work, spans: Work, runs: Runs, gpu: int, earliest: int, left: int) -> int:
    """Return from when on, at or after `earliest`, batches never again hold more than `left` bytes."""
    leader, later = state.last_task[gpu], FAR
    while leader != ABSENT and spans.end[leader] > earliest:
        if runs.level[leader] > left:
            earliest = max(earliest, min(spans.end[leader], later))
            break
        later = work.start[leader]
        leader = work.previous[leader]
    return earliest


@inlined
def _load(
    tables: Tables,
    service: Service,
    state: State,
    work: Work,
    spans: Work,
    runs: Runs,
    residencies: Ints,
    gpu: int,
    model: int,
    position: int,
) -> int:
    """Load a model beside what the batches hold; return when it is ready, ABSENT if it cannot be."""
    earliest, slot = find_room(tables, state, residencies, gpu, model, position)
    if earliest == FAR:
        return ABSENT
    if service.holds_memory:
        left = state.room[gpu] - tables.weight_bytes[model]
        for other in range(state.ready.shape[1]):
            left += tables.weight_bytes[other] * int(state.slot[gpu, other] == LEAVING)
        # No batch holds memory on a GPU with slots, whose room means nothing.
        earliest = _memory_free(state, work, spans, runs, gpu, earliest, max(left, 0))
    return begin_load(tables, state, spans, residencies, gpu, model, slot, earliest)


@inlined
def _models_ready(
    tables: Tables,
    service: Service,
    state: State,
    work: Work,
    spans: Work,
    runs: Runs,
    residencies: Ints,
    template: int,
    gpu: int,
    position: int,
) -> int:
    """Load what a batch still needs; return when all its models are ready, ABSENT if they cannot be."""
    first, beyond = tables.need_first[template], tables.need_first[template + 1]
    slotted = tables.slot_bytes.shape[1] > 0 and tables.slot_bytes[gpu, 0] > 0
    if slotted and beyond - first > 1 and not clear_slots(tables, state, residencies, gpu, template):
        return ABSENT
    ready = 0
    for need in range(first, beyond):
        model = tables.need_model[need]
        at = state.ready[gpu, model]
        if at == ABSENT:
            at = _load(tables, service, state, work, spans, runs, residencies, gpu, model, position)
            if at == ABSENT:
                return ABSENT
        ready = max(ready, at)
    return ready


@inlined
def first_fit(
    tables: Tables,
    service: Service,
    state: State,
    work: Work,
    spans: Work,
    runs: Runs,
    gpu: int,
    begin: int,
    share: int,
    left: int,
) -> int:
    """Return the first instant from `begin` and the latest start on at which a share of compute is free.

    At that instant batches hold at most `left` bytes.
    """
    last = state.last_task[gpu]
    if not service.side_by_side or last == ABSENT:
        return max(begin, int(state.compute_free[gpu]))
    begin = max(begin, work.start[last])
    while True:
        free, memory, next_end = WHOLE - share, left, FAR
        leader = last
        while leader != ABSENT and spans.end[leader] > begin:
            if work.end[leader] > begin:
                free -= service.share[tables.task_template[leader]]
                memory -= runs.held[leader]
                next_end = min(next_end, work.end[leader])
            leader = work.previous[leader]
        if free >= 0 and memory >= 0:
            return begin
        begin = next_end


@inlined
def _step_aside(tables: Tables, service: Service, state: State, work: Work, gpu: int, begin: int, template: int) -> int:
    """Return `begin`, or 1 us later if another batch of the class starts then: the two would be one batch."""
    batch, leader = service.batch[template], state.last_task[gpu]
    while batch != NONE and leader != ABSENT and work.start[leader] == begin:
        if service.batch[tables.task_template[leader]] == batch:
            return begin + 1
        leader = work.previous[leader]
    return begin


@inlined
def _held_at(state: State, work: Work, spans: Work, runs: Runs, gpu: int, instant: int) -> int:
    """Return the bytes that batches hold on a GPU at an instant at or after the latest start."""
    held, leader = 0, state.last_task[gpu]
    while leader != ABSENT and spans.end[leader] > instant:
        if work.end[leader] > instant:
            held += runs.held[leader]
        leader = work.previous[leader]
    return held


@inlined
def append_batch(
    tables: Tables,
    service: Service,
    state: State,
    work: Work,
    spans: Work,
    runs: Runs,
    residencies: Ints,
    gpu: int,
    position: int,
    size: int,
) -> bool:
    """Run the listed batch as early as possible after all that its GPU has started; say whether that is possible."""
    leader = runs.members[0]
    template = tables.task_template[leader]
    runtime = run_length(tables, service, template, gpu, size)
    if runtime == NEVER:
        return False
    begin = 0
    for at in range(size):
        arrived = arrival(tables, work, runs.members[at], gpu)
        runs.arrived[runs.members[at]] = arrived
        begin = max(begin, arrived)
    ready = _models_ready(tables, service, state, work, spans, runs, residencies, template, gpu, position)
    if ready == ABSENT:
        return False
    begin = max(begin, ready)
    held = size * service.memory[template]
    left = FAR
    if held > 0:
        if tables.limited:  # a replica that went elsewhere left its room no earlier than the copy engine is free
            begin = max(begin, state.copy_free[gpu])
        left = state.room[gpu] - held
        if left < 0:  # models leave at the start, and their bytes count from then on only
            begin = choose_victims(tables, state, gpu, held, position, begin)
            if begin == FAR:
                return False
            left = 0
            for other in range(state.ready.shape[1]):
                left += tables.weight_bytes[other] * int(state.slot[gpu, other] == LEAVING)
            left += state.room[gpu] - held
    begin = first_fit(tables, service, state, work, spans, runs, gpu, begin, service.share[template], left)
    begin = _step_aside(tables, service, state, work, gpu, begin, template)
    if begin + runtime > service.goes_us[gpu]:
        return False
    if held > state.room[gpu]:
        evict_marked(tables, state, residencies, gpu, begin)
        state.copy_free[gpu] = max(state.copy_free[gpu], begin)  # later loads count on what is left of that room
    runs.held[leader] = held
    runs.level[leader] = held + _held_at(state, work, spans, runs, gpu, begin) if service.holds_memory else 0
    _note(tables, state, work, spans, runs, gpu, begin, begin + runtime, size)
    return True


@inlined
def _note(
    tables: Tables, state: State, work: Work, spans: Work, runs: Runs, gpu: int, begin: int, finish: int, size: int
) -> None:
    """Write down when the listed batch runs, and that its GPU and models are in use until then."""
    leader, before = runs.members[0], state.last_task[gpu]
    for at in range(size):
        task = runs.members[at]
        template, use = tables.task_template[task], tables.use_first[task]
        for need in range(tables.need_first[template], tables.need_first[template + 1]):
            model = tables.need_model[need]
            state.last_use[gpu, model] = max(state.last_use[gpu, model], finish)
            state.upcoming[gpu, model] = work.next_use[use]
            use += 1
        work.gpu[task] = gpu
        work.start[task], work.end[task] = begin, finish
        runs.placed[task] = 1
    spans.end[leader] = finish if before == ABSENT else max(finish, spans.end[before])
    work.previous[leader] = before
    state.last_task[gpu] = leader
    state.compute_free[gpu] = max(state.compute_free[gpu], finish)


@kernel
def decode_serving(
    tables: Tables,
    service: Service,
    state: State,
    work: Work,
    spans: Work,
    runs: Runs,
    residencies: Ints,
    first: int,
    last: int,
    total: float,
    worst: float,
    limit: float,
) -> tuple[float, float]:
    """Place the tasks at positions [first, last) from a state; return summed and worst cost so far.

    As `decode`, after `look_ahead_serving`; `spans` is `work` with, per batch, the latest end on its GPU until then.
    """
    for position in range(first, last):
        leader = work.order[position]
        if runs.placed[leader] == 1:
            continue
        gpu = work.gpu[leader]
        size = _gather(tables, service, runs, leader, gpu)
        if not append_batch(tables, service, state, work, spans, runs, residencies, gpu, position, size):
            return INFEASIBLE, INFEASIBLE
        for at in range(size):
            task = runs.members[at]
            job = tables.task_job[task]
            finish = work.end[task] + tables.tail_us[tables.task_template[task]]
            before = work.completed[job]
            work.completed[job] = max(before, finish)
            early = max(before - tables.due_us[job], 0)
            late = max(finish - tables.due_us[job], early)
            total += tables.linear[job] * (late - early) + tables.step[job] * (int(late > 0) - int(early > 0))
            worst = max(worst, tables.peak[job] * late)
        if total + worst > limit:
            break
    return total, worst
