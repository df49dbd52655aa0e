"""Loads and evictions inside a decode: where the room for a model comes from, and when its load starts.

Loads of a GPU go in the order in which its tasks need them, each as soon as the copy engine is free and room
can be made. The future of the GPU is known, so the model that leaves is the one whose next use lies furthest
ahead (Belady's rule; for models of equal size it loads least), and a load never waits for the task it serves.
With `idle_first` the model that was used least recently leaves instead: its room is there sooner, and what a GPU does
depends on its past alone, so that a search may change late tasks without changing early loads.
"""

from __future__ import annotations

from truenorth.models.instance import NONE, Ints
from truenorth.solvers.compiled import inlined
from truenorth.solvers.search.decoder_state import (
    END,
    FAR,
    GPU,
    INITIAL,
    LOAD_START,
    MODEL,
    READY,
    SLOT,
    ClusterState,
    DecodedTasks,
    Decoding,
    Serving,
)
from truenorth.solvers.search.decoder_tables import InstanceTables


@inlined
def load(on: Decoding, serving: Serving | None, gpu: int, model: int, position: int) -> int:
    """Load a model on a GPU for the task at a list position; return when it is ready, NONE if it cannot be.

    Notes
    -----
    Invariant: the copy engine does one load at a time, and from its start on the model's bytes are free.
    Because: a load starts no earlier than the one before it ends, than the last use of what leaves for it ends, and
    than batches leave its bytes alone; tasks are appended, so nothing that was placed before is moved by it.
    Cost: O(models), or O(slots); with memory of tasks O(models + batches that hold memory then).
    If wrong: loud. The checker refuses a timeline that loads into room that is taken.
    """
    earliest, slot = find_room(on, gpu, model, position)
    if earliest == FAR:
        return NONE
    if serving is not None and serving.service.holds_memory:
        left = on.state.room[gpu] - on.tables.weight_bytes[model] + leaving_bytes(on, gpu)
        # No batch holds memory on a GPU with slots, whose room means nothing.
        earliest = _await_memory(on, serving, gpu, earliest, max(left, 0))
    return _begin_load(on, serving, gpu, model, slot, earliest)


@inlined
def find_room(on: Decoding, gpu: int, model: int, position: int) -> tuple[int, int]:
    """Mark what leaves for a load; return when the load may start (FAR if it cannot), and its slot or NONE.

    Models whose `upcoming` is not beyond `position` are needed by the task that the load is for, and stay.
    """
    tables, state = on.tables, on.state
    # Loads of a GPU go one after the other, in the order in which they are needed.
    earliest, slot = state.copy_free[gpu], NONE
    if tables.replicas[model] != NONE:
        earliest = max(earliest, _take_replica(on, gpu, model))
        if earliest == FAR:
            return FAR, NONE
    if tables.slot_bytes.shape[1] > 0 and tables.slot_bytes[gpu, 0] > 0:
        slot = _choose_slot(tables, state, gpu, model, position)
        if slot == NONE:
            return FAR, NONE
        if state.slot_model[gpu, slot] != NONE:
            # The model in the slot may still be in use by a task that was appended before.
            earliest = max(earliest, state.last_use[gpu, state.slot_model[gpu, slot]])
    elif state.room[gpu] < tables.weight_bytes[model]:
        earliest = choose_victims(tables, state, gpu, tables.weight_bytes[model], position, earliest)
    return earliest, slot


@inlined
def _begin_load(on: Decoding, serving: Serving | None, gpu: int, model: int, slot: int, earliest: int) -> int:
    """Load a model as soon as its room is there and, without overlap, compute idles; return when it is ready."""
    tables, state, residencies = on.tables, on.state, on.residencies
    duration = tables.load_us[model, tables.gpu_class[gpu]]
    if not tables.overlap_loads:
        ends = on.work.end if serving is None else serving.runs.until
        earliest = _compute_gap(state, on.work, ends, gpu, earliest, duration)
        # Tasks are appended: none slips in before this load any more.
        state.compute_free[gpu] = max(state.compute_free[gpu], earliest + duration)
    _make_room(on, gpu, model, slot, earliest)
    row = state.records[0]
    # One row per load; the end is written when the model leaves.
    state.records[0] += 1
    residencies[row, MODEL] = model
    residencies[row, GPU] = gpu
    residencies[row, SLOT] = slot
    residencies[row, LOAD_START] = earliest
    residencies[row, READY] = earliest + duration
    residencies[row, END] = NONE
    residencies[row, INITIAL] = 0
    state.copy_free[gpu] = earliest + duration
    state.ready[gpu, model] = earliest + duration
    # Not used yet, but it cannot leave before it has arrived.
    state.last_use[gpu, model] = earliest + duration
    state.record[gpu, model] = row
    state.slot[gpu, model] = slot
    state.room[gpu] -= tables.weight_bytes[model]
    if slot != NONE:
        state.slot_model[gpu, slot] = model
    return earliest + duration


LEAVING = -2
"""Marks, in `slot`, a model that leaves for the load under way (only where memory is shared by bytes)."""


@inlined
def leaving_bytes(on: Decoding, gpu: int) -> int:
    """Return the bytes of the models that are marked to leave a GPU."""
    left = 0
    for other in range(on.state.ready.shape[1]):
        left += on.tables.weight_bytes[other] * int(on.state.slot[gpu, other] == LEAVING)
    return left


@inlined
def choose_victims(
    tables: InstanceTables, state: ClusterState, gpu: int, needed: int, position: int, earliest: int
) -> int:
    """Mark the models that leave for so many bytes; return when the last is free to go, FAR if room cannot be made.

    Furthest next use first; among models that are never used again, the one that was used least recently. With
    `idle_first` the other way round. A marked model whose leaving turns out not to be necessary stays, the one that
    would leave last first.

    Notes
    -----
    Invariant: without any one of the marked models the room would be too small, and none of them is needed at
    `position`, the list position of the task that the room is for.
    Because: models are marked until the room suffices, then whatever is superfluous is spared; who may not leave is
    never chosen. The choice depends on what the GPU holds and on the order of next uses alone: moves ask it again.
    Cost: O(models x models that leave).
    If wrong: more loads than needed, so weaker; loud if a model leaves that a task in hand needs.
    """
    room = state.room[gpu]
    # The first to leave may be more than is needed once a large model has gone ...
    while room < needed:
        chosen = _first_to_leave(tables, state, gpu, position)
        if chosen == NONE:
            return FAR
        state.slot[gpu, chosen] = LEAVING
        room += tables.weight_bytes[chosen]
    while True:
        # ... so the marked ones that the rest makes superfluous stay.
        spared = NONE
        for other in range(state.ready.shape[1]):
            dispensable = state.slot[gpu, other] == LEAVING and room - tables.weight_bytes[other] >= needed
            if dispensable and (spared == NONE or _leaves_before(tables, state, gpu, spared, other)):
                spared = other
        if spared == NONE:
            break
        state.slot[gpu, spared] = NONE
        room -= tables.weight_bytes[spared]
    for other in range(state.ready.shape[1]):
        if state.slot[gpu, other] == LEAVING:
            earliest = max(earliest, state.last_use[gpu, other])
    return earliest


@inlined
def _leaves_before(tables: InstanceTables, state: ClusterState, gpu: int, model: int, other: int) -> bool:
    """Say whether the rule of evictions prefers that a model leaves to that another does."""
    ahead = state.upcoming[gpu, model] - state.upcoming[gpu, other]
    idle = state.last_use[gpu, other] - state.last_use[gpu, model]
    if tables.idle_first:
        # Equal where neither has been used yet.
        return bool(idle > 0 or (idle == 0 and ahead > 0))
    # Equal where neither is used again: then the one idle for longest can go earliest.
    return bool(ahead > 0 or (ahead == 0 and idle > 0))


@inlined
def _first_to_leave(tables: InstanceTables, state: ClusterState, gpu: int, position: int) -> int:
    """Return the resident model that leaves first, NONE if none may leave."""
    chosen = NONE
    for other in range(state.ready.shape[1]):
        if state.ready[gpu, other] == NONE or state.slot[gpu, other] == LEAVING:
            continue
        if state.upcoming[gpu, other] <= position or (tables.no_swaps and state.last_use[gpu, other] != NONE):
            continue
        if chosen == NONE or _leaves_before(tables, state, gpu, other, chosen):
            chosen = other
    return chosen


@inlined
def _choose_slot(tables: InstanceTables, state: ClusterState, gpu: int, model: int, position: int) -> int:
    """Return the slot that a load takes: an empty one, else the one whose model is needed furthest ahead.

    Equal choices go to the smallest slot. NONE if every slot that is large enough must keep its model.
    """
    chosen, chosen_use = NONE, NONE
    for slot in range(tables.slot_bytes.shape[1]):
        if tables.slot_bytes[gpu, slot] < tables.weight_bytes[model]:
            continue
        occupant = state.slot_model[gpu, slot]
        # An empty slot is better than any that somebody has to leave.
        use = FAR + 1
        if occupant != NONE:
            use = state.upcoming[gpu, occupant]
            if use <= position or (tables.no_swaps and state.last_use[gpu, occupant] != NONE):
                continue
        if use > chosen_use or (use == chosen_use and tables.slot_bytes[gpu, slot] < tables.slot_bytes[gpu, chosen]):
            chosen, chosen_use = slot, use
    return chosen


@inlined
def _make_room(on: Decoding, gpu: int, model: int, slot: int, instant: int) -> None:
    """Evict what was marked, or what sits in the slot, at the start of the load."""
    state = on.state
    if slot != NONE:
        if state.slot_model[gpu, slot] != NONE:
            _evict(on, gpu, state.slot_model[gpu, slot], instant)
    elif state.room[gpu] < on.tables.weight_bytes[model]:
        evict_marked(on, gpu, instant)


@inlined
def evict_marked(on: Decoding, gpu: int, instant: int) -> None:
    """Evict what was marked."""
    for other in range(on.state.ready.shape[1]):
        if on.state.slot[gpu, other] == LEAVING:
            _evict(on, gpu, other, instant)


@inlined
def _evict(on: Decoding, gpu: int, model: int, instant: int) -> None:
    """End a residency; one that began at time 0 and was never used vanishes from the table."""
    tables, state = on.tables, on.state
    on.residencies[state.record[gpu, model], END] = instant
    if state.last_use[gpu, model] == NONE:
        # Holding it was of no use to anybody; the timeline leaves the row out.
        on.residencies[state.record[gpu, model], LOAD_START] = NONE
    if state.slot[gpu, model] >= 0:
        state.slot_model[gpu, state.slot[gpu, model]] = NONE
    state.slot[gpu, model] = NONE
    state.ready[gpu, model] = NONE
    state.last_use[gpu, model] = NONE
    state.room[gpu] += tables.weight_bytes[model]
    if tables.replicas[model] != NONE:
        for replica in range(tables.replicas[model]):
            if state.replica_gpu[model, replica] == gpu:
                state.replica_gpu[model, replica] = NONE
                state.replica_free[model, replica] = instant


@inlined
def _take_replica(on: Decoding, gpu: int, model: int) -> int:
    """Give the GPU a replica of a limited model; return since when it is free, FAR if there is none.

    A replica that is free, the earliest first; else that of the GPU which needs the model furthest ahead.

    Notes
    -----
    Invariant: residencies of one replica never overlap, so that no more GPUs hold the model than it has replicas.
    Because: a replica is handed on at the instant its residency ends, and its next load starts no earlier.
    Cost: O(replicas).
    If wrong: loud. The checker counts the GPUs that hold a limited model.
    """
    tables, state = on.tables, on.state
    free, held, held_use = NONE, NONE, NONE
    for replica in range(tables.replicas[model]):
        holder = state.replica_gpu[model, replica]
        if holder == NONE:
            # Equal ones go to the lowest number.
            if free == NONE or state.replica_free[model, replica] < state.replica_free[model, free]:
                free = replica
        elif state.upcoming[holder, model] > held_use and not (
            tables.no_swaps and state.last_use[holder, model] != NONE
        ):
            # As with victims: whoever needs it furthest ahead misses it least.
            held, held_use = replica, state.upcoming[holder, model]
    if free == NONE:
        if held == NONE:
            return FAR
        holder = state.replica_gpu[model, held]
        # NONE, that is -1, if it was never used: then it may leave at once.
        instant = max(state.last_use[holder, model], 0)
        _evict(on, holder, model, instant)
        # Later loads of the holder count on the room, so they must not start before it is there.
        state.copy_free[holder] = max(state.copy_free[holder], instant)
        free = held
    state.replica_gpu[model, free] = gpu
    return state.replica_free[model, free]


@inlined
def clear_slots(on: Decoding, gpu: int, template: int) -> bool:
    """Free the slots of the models a task needs if they keep the others it needs out; say whether it can run.

    Notes
    -----
    Invariant: afterwards every model that is missing finds a slot of its own, if loads go from the largest on.
    Because: the k largest missing models need k slots of their size that hold no other model of the task (Hall's
    condition for slots that are nested by size); where some k has fewer, all models of the task leave their slots.
    Cost: O(models of the task squared x slots).
    If wrong: tasks that could run are refused, so weaker; loud if one runs with a model missing.
    """
    tables, state = on.tables, on.state
    first, beyond = tables.need_first[template], tables.need_first[template + 1]
    missing, conflict = 0, False
    for need in range(first, beyond):
        if state.ready[gpu, tables.need_model[need]] != NONE:
            continue
        missing += 1
        open_slots = 0
        for slot in range(tables.slot_bytes.shape[1]):
            if tables.slot_bytes[gpu, slot] >= tables.weight_bytes[tables.need_model[need]]:
                open_slots += 1
                for other in range(first, beyond):
                    if state.slot_model[gpu, slot] == tables.need_model[other]:
                        open_slots -= 1
        # Needs are in order of size, so the k-th missing one finds k - 1 of its slots taken by larger ones.
        conflict = conflict or open_slots < missing
    if conflict:
        for need in range(first, beyond):
            model = tables.need_model[need]
            if state.ready[gpu, model] != NONE:
                if tables.no_swaps and state.last_use[gpu, model] != NONE:
                    return False
                instant = max(state.last_use[gpu, model], 0)
                _evict(on, gpu, model, instant)
                state.copy_free[gpu] = max(state.copy_free[gpu], instant)
    return True


@inlined
def _compute_gap(state: ClusterState, work: DecodedTasks, ends: Ints, gpu: int, earliest: int, duration: int) -> int:
    """Return the first time from `earliest` on at which the compute engine idles for `duration`.

    Notes
    -----
    Invariant: from then on no task of the GPU runs for so long.
    Because: earlier loads lie before `earliest`, so only tasks stand in the way; the walk goes backwards through them.
    `ends` is the latest end up to each task: where several run at a time the last to start need not end last.
    Cost: O(tasks that end after `earliest`).
    If wrong: loud. The checker refuses a load that overlaps a task where loads stop compute.
    """
    found = max(earliest, state.compute_free[gpu])
    task = state.last_task[gpu]
    # Backwards: the earliest gap is the last that is found.
    while task != NONE and ends[task] > earliest:
        before = work.previous[task]
        # The gap between this task and the one before it, as far as it lies beyond `earliest`.
        begin = earliest if before == NONE else max(earliest, ends[before])
        if work.start[task] - begin >= duration:
            found = begin
        task = before
    return found


@inlined
def _await_memory(on: Decoding, serving: Serving, gpu: int, earliest: int, left: int) -> int:
    """Return from when on, at or after `earliest`, batches never again hold more than `left` bytes.

    Notes
    -----
    Invariant: from the instant on batches that have been placed hold at most `left` bytes.
    Because: starts do not fall, so between two starts what is held only gets less: its level at each start is noted,
    and the last start with a level above `left` is where the walk backwards ends.
    Cost: O(batches that end after `earliest`).
    If wrong: loud. The checker adds up what is held at every instant.
    """
    state, work, runs = on.state, on.work, serving.runs
    leader, later = state.last_task[gpu], FAR
    while leader != NONE and runs.until[leader] > earliest:
        if runs.level[leader] > left:
            # It is over once they have ended, or at the next start, whose level is low enough.
            earliest = max(earliest, min(runs.until[leader], later))
            break
        later = work.start[leader]
        leader = work.previous[leader]
    return earliest
