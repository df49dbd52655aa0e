"""Batches inside a decode: who is a member, how long they run, when a share of the GPU and its memory are free.

A task that joins becomes a member of the batch before it on its GPU if both are of one class, the batch has room and
the inputs of the task are made by then; otherwise it leads a batch of its own. Batches of a GPU start in the order of
the list, each as early as its members' inputs, its models and what runs before it allow. Since starts do not fall,
what a GPU has free only grows from the latest start on: the first instant that fits is the right one.
"""

from __future__ import annotations

from truenorth.models.instance import NEVER, NONE
from truenorth.models.workload import WHOLE
from truenorth.solvers.compiled import inlined
from truenorth.solvers.search.decoder_loads import choose_victims, evict_marked, leaving_bytes
from truenorth.solvers.search.decoder_state import FAR, DecodedTasks, Decoding, Runs, Serving
from truenorth.solvers.search.decoder_tables import InstanceTables


@inlined
def _inputs_placed(tables: InstanceTables, runs: Runs, task: int) -> bool:
    """Say whether all predecessors of a task have their times."""
    template = tables.task_template[task]
    for entry in range(tables.input_first[template], tables.input_first[template + 1]):
        if runs.placed[task + tables.input_offset[entry]] == 0:
            return False
    return True


@inlined
def gather(tables: InstanceTables, serving: Serving, task: int, gpu: int) -> int:
    """List the batch that a task leads; return its size.

    Notes
    -----
    Invariant: members are of one class, run on one GPU, fit the largest size listed there, and wait for nobody that
    is not placed yet.
    Because: they are taken from the tasks behind the leader on its GPU for as long as each one joins and all this
    holds; the first that does not leads a batch of its own, and so does whoever joins behind it.
    Cost: O(members x inputs of a task).
    If wrong: loud. The checker refuses a batch of two classes, or one that starts before an input of a member.
    """
    service, runs = serving.service, serving.runs
    runs.members[0] = task
    size, batch = 1, service.task_batch[task]
    if batch != NONE:
        most = service.largest[batch, tables.gpu_class[gpu]]
        other = runs.next_on_gpu[task]
        while size < most and other != NONE and runs.joins[other] == 1:
            if service.task_batch[other] != batch or not _inputs_placed(tables, runs, other):
                break
            runs.members[size] = other
            size += 1
            other = runs.next_on_gpu[other]
    return size


@inlined
def run_length(tables: InstanceTables, serving: Serving | None, template: int, gpu: int, size: int) -> int:
    """Return how long a task, or a batch of a template's class, runs on a GPU; NEVER if it cannot."""
    gpu_class = tables.gpu_class[gpu]
    alone = tables.run_us[template, gpu_class]
    if serving is not None:
        batch = serving.service.batch[template]
        if batch != NONE and alone != NEVER:
            return int(serving.service.batch_us[batch, gpu_class, size])
    return int(alone)


@inlined
def first_fit(on: Decoding, serving: Serving, gpu: int, begin: int, share: int, left: int) -> int:
    """Return the first instant from `begin` and the latest start on at which a share of compute is free.

    At that instant batches hold at most `left` bytes.

    Notes
    -----
    Invariant: at every instant of the GPU the shares that run add up to one GPU at most.
    Because: nothing starts before the latest start, and from there on what runs only ends: only ends need be tried.
    Cost: O(batches that run then, squared).
    If wrong: loud where shares overlap, weaker where a share lies idle.
    """
    state, work, runs = on.state, on.work, serving.runs
    last = state.last_task[gpu]
    if not serving.service.side_by_side or last == NONE:
        return max(begin, int(state.compute_free[gpu]))
    begin = max(begin, work.start[last])
    while True:
        free, memory, next_end = WHOLE - share, left, FAR
        leader = last
        while leader != NONE and runs.until[leader] > begin:
            if work.end[leader] > begin:
                free -= serving.service.share[on.tables.task_template[leader]]
                memory -= runs.held[leader]
                next_end = min(next_end, work.end[leader])
            leader = work.previous[leader]
        if free >= 0 and memory >= 0:
            return begin
        begin = next_end


@inlined
def _step_aside(on: Decoding, serving: Serving, gpu: int, begin: int, batch: int) -> int:
    """Return `begin`, or 1 us later if another batch of the class starts then: the two would be one batch."""
    leader = on.state.last_task[gpu]
    while batch != NONE and leader != NONE and on.work.start[leader] == begin:
        if serving.service.task_batch[leader] == batch:
            return begin + 1
        leader = on.work.previous[leader]
    return begin


@inlined
def _held_at(work: DecodedTasks, runs: Runs, last: int, instant: int) -> int:
    """Return the bytes that batches up to the `last` of a GPU hold at an instant at or after the latest start."""
    held, leader = 0, last
    while leader != NONE and runs.until[leader] > instant:
        if work.end[leader] > instant:
            held += runs.held[leader]
        leader = work.previous[leader]
    return held


@inlined
def find_start(on: Decoding, serving: Serving, gpu: int, position: int, size: int, begin: int) -> int:
    """Return when the listed batch starts, at `begin` or later; NONE if its GPU never has room for it.

    Notes
    -----
    Invariant: from that instant to the batch's end its share of compute and its bytes are free, and the GPU is there.
    Because: `first_fit` finds both among what runs; models that must leave for its bytes leave at its start, and
    later loads count on what is left of that room.
    Cost: as `first_fit`, and as `choose_victims` where models leave.
    If wrong: loud. The checker adds up shares and bytes at every instant.
    """
    tables, state, service, runs = on.tables, on.state, serving.service, serving.runs
    leader = runs.members[0]
    template = tables.task_template[leader]
    held = size * service.memory[template]
    left = FAR
    if held > 0:
        if tables.limited:  # a replica that went elsewhere left its room no earlier than the copy engine is free
            begin = max(begin, state.copy_free[gpu])
        left = state.room[gpu] - held
        if left < 0:  # models leave at the start, and their bytes count from then on only
            begin = choose_victims(tables, state, gpu, held, position, begin)
            if begin == FAR:
                return NONE
            left += leaving_bytes(on, gpu)
    begin = first_fit(on, serving, gpu, begin, service.share[template], left)
    begin = _step_aside(on, serving, gpu, begin, service.batch[template])
    if begin + run_length(tables, serving, template, gpu, size) > service.goes_us[gpu]:
        return NONE
    if held > state.room[gpu]:
        evict_marked(on, gpu, begin)
        state.copy_free[gpu] = max(state.copy_free[gpu], begin)  # later loads count on what is left of that room
    runs.held[leader] = held
    beside = _held_at(on.work, runs, state.last_task[gpu], begin) if service.holds_memory else 0
    runs.level[leader] = held + beside if service.holds_memory else 0
    return int(begin)
