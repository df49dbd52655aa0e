"""Loads and evictions inside a decode: where the room for a model comes from, and when its load starts.

Loads of a GPU go in the order in which its tasks need them, each as soon as the copy engine is free and room
can be made. The future of the GPU is known, so the model that leaves is the one whose next use lies furthest
ahead (Belady's rule; for models of equal size it loads least), and a load never waits for the task it serves.
With `idle_first` the model that was used least recently leaves instead: its room is there sooner, and what a GPU does
depends on its past alone, so that a search may change late tasks without changing early loads.
"""

from __future__ import annotations

from models.instance import Ints
from solvers.compiled import inlined
from solvers.search.decoder_state import ABSENT, END, FAR, GPU, INITIAL, LOAD_START, MODEL, READY, SLOT, State, Work
from solvers.search.decoder_tables import UNLIMITED, Tables


@inlined
def load(tables: Tables, state: State, work: Work, residencies: Ints, gpu: int, model: int, position: int) -> int:
    """Load a model on a GPU for the task at a list position; return when it is ready, ABSENT if it cannot be."""
    earliest, slot = find_room(tables, state, residencies, gpu, model, position)
    if earliest == FAR:
        return ABSENT
    return begin_load(tables, state, work, residencies, gpu, model, slot, earliest)


@inlined
def find_room(tables: Tables, state: State, residencies: Ints, gpu: int, model: int, position: int) -> tuple[int, int]:
    """Mark what leaves for a load; return when the load may start (FAR if it cannot), and its slot or ABSENT.

    Models whose `upcoming` is not beyond `position` are needed by the task that the load is for, and stay.
    """
    earliest, slot = state.copy_free[gpu], ABSENT
    if tables.replicas[model] != UNLIMITED:
        earliest = max(earliest, _take_replica(tables, state, residencies, gpu, model))
        if earliest == FAR:
            return FAR, ABSENT
    if tables.slot_bytes.shape[1] > 0 and tables.slot_bytes[gpu, 0] > 0:
        slot = _choose_slot(tables, state, gpu, model, position)
        if slot == ABSENT:
            return FAR, ABSENT
        if state.slot_model[gpu, slot] != ABSENT:
            # The model in the slot may still be in use by a task that was appended before.
            earliest = max(earliest, state.last_use[gpu, state.slot_model[gpu, slot]])
    elif state.room[gpu] < tables.weight_bytes[model]:
        earliest = choose_victims(tables, state, gpu, tables.weight_bytes[model], position, earliest)
    return earliest, slot


@inlined
def begin_load(
    tables: Tables, state: State, work: Work, residencies: Ints, gpu: int, model: int, slot: int, earliest: int
) -> int:
    """Load a model as soon as its room is there and, without overlap, compute idles; return when it is ready."""
    duration = tables.load_us[model, tables.gpu_class[gpu]]
    if not tables.overlap_loads:
        earliest = _compute_gap(state, work, gpu, earliest, duration)
        # Tasks are appended: none slips in before this load any more.
        state.compute_free[gpu] = max(state.compute_free[gpu], earliest + duration)
    _make_room(tables, state, residencies, gpu, model, slot, earliest)
    row = state.records[0]
    state.records[0] += 1
    residencies[row, MODEL] = model
    residencies[row, GPU] = gpu
    residencies[row, SLOT] = slot
    residencies[row, LOAD_START] = earliest
    residencies[row, READY] = earliest + duration
    residencies[row, END] = ABSENT
    residencies[row, INITIAL] = 0
    state.copy_free[gpu] = earliest + duration
    state.ready[gpu, model] = earliest + duration
    # Not used yet, but it cannot leave before it has arrived.
    state.last_use[gpu, model] = earliest + duration
    state.record[gpu, model] = row
    state.slot[gpu, model] = slot
    state.room[gpu] -= tables.weight_bytes[model]
    if slot != ABSENT:
        state.slot_model[gpu, slot] = model
    return earliest + duration


LEAVING = -2
"""Marks, in `slot`, a model that leaves for the load under way (only where memory is shared by bytes)."""


@inlined
def choose_victims(tables: Tables, state: State, gpu: int, needed: int, position: int, earliest: int) -> int:
    """Mark the models that leave for so many bytes; return when the last is free to go, FAR if room cannot be made.

    Furthest next use first; among models that are never used again, the one that was used least recently. With
    `idle_first` the other way round. A marked model whose leaving turns out not to be necessary stays, the one that
    would leave last first.
    """
    room = state.room[gpu]
    # The first to leave may be more than is needed once a large model has gone ...
    while room < needed:
        chosen = _first_to_leave(tables, state, gpu, position)
        if chosen == ABSENT:
            return FAR
        state.slot[gpu, chosen] = LEAVING
        room += tables.weight_bytes[chosen]
    while True:
        # ... so the marked ones that the rest makes superfluous stay.
        spared = ABSENT
        for other in range(state.ready.shape[1]):
            dispensable = state.slot[gpu, other] == LEAVING and room - tables.weight_bytes[other] >= needed
            if dispensable and (spared == ABSENT or _leaves_before(tables, state, gpu, spared, other)):
                spared = other
        if spared == ABSENT:
            break
        state.slot[gpu, spared] = ABSENT
        room -= tables.weight_bytes[spared]
    for other in range(state.ready.shape[1]):
        if state.slot[gpu, other] == LEAVING:
            earliest = max(earliest, state.last_use[gpu, other])
    return earliest


@inlined
def _leaves_before(tables: Tables, state: State, gpu: int, model: int, other: int) -> bool:
    """Say whether the rule of evictions prefers that a model leaves to that another does."""
    ahead = state.upcoming[gpu, model] - state.upcoming[gpu, other]
    idle = state.last_use[gpu, other] - state.last_use[gpu, model]
    if tables.idle_first:
        # Equal where neither has been used yet.
        return bool(idle > 0 or (idle == 0 and ahead > 0))
    # Equal where neither is used again: then the one idle for longest can go earliest.
    return bool(ahead > 0 or (ahead == 0 and idle > 0))


@inlined
def _first_to_leave(tables: Tables, state: State, gpu: int, position: int) -> int:
    """Return the resident model that leaves first, ABSENT if none may leave."""
    chosen = ABSENT
    for other in range(state.ready.shape[1]):
        if state.ready[gpu, other] == ABSENT or state.slot[gpu, other] == LEAVING:
            continue
        if state.upcoming[gpu, other] <= position or (tables.no_swaps and state.last_use[gpu, other] != ABSENT):
            continue
        if chosen == ABSENT or _leaves_before(tables, state, gpu, other, chosen):
            chosen = other
    return chosen


@inlined
def _choose_slot(tables: Tables, state: State, gpu: int, model: int, position: int) -> int:
    """Return the slot that a load takes: an empty one, else the one whose model is needed furthest ahead.

    Equal choices go to the smallest slot. ABSENT if every slot that is large enough must keep its model.
    """
    chosen, chosen_use = ABSENT, ABSENT
    for slot in range(tables.slot_bytes.shape[1]):
        if tables.slot_bytes[gpu, slot] < tables.weight_bytes[model]:
            continue
        occupant = state.slot_model[gpu, slot]
        # An empty slot is better than any that somebody has to leave.
        use = FAR + 1
        if occupant != ABSENT:
            use = state.upcoming[gpu, occupant]
            if use <= position or (tables.no_swaps and state.last_use[gpu, occupant] != ABSENT):
                continue
        if use > chosen_use or (use == chosen_use and tables.slot_bytes[gpu, slot] < tables.slot_bytes[gpu, chosen]):
            chosen, chosen_use = slot, use
    return chosen


@inlined
def _make_room(tables: Tables, state: State, residencies: Ints, gpu: int, model: int, slot: int, instant: int) -> None:
    """Evict what was marked, or what sits in the slot, at the start of the load."""
    if slot != ABSENT:
        if state.slot_model[gpu, slot] != ABSENT:
            evict(tables, state, residencies, gpu, state.slot_model[gpu, slot], instant)
    elif state.room[gpu] < tables.weight_bytes[model]:
        evict_marked(tables, state, residencies, gpu, instant)


@inlined
def evict_marked(tables: Tables, state: State, residencies: Ints, gpu: int, instant: int) -> None:
    """Evict what was marked."""
    for other in range(state.ready.shape[1]):
        if state.slot[gpu, other] == LEAVING:
            evict(tables, state, residencies, gpu, other, instant)


@inlined
def evict(tables: Tables, state: State, residencies: Ints, gpu: int, model: int, instant: int) -> None:
    """End a residency; one that began at time 0 and was never used vanishes from the table."""
    residencies[state.record[gpu, model], END] = instant
    if state.last_use[gpu, model] == ABSENT:
        # Holding it was of no use to anybody; the timeline leaves the row out.
        residencies[state.record[gpu, model], LOAD_START] = ABSENT
    if state.slot[gpu, model] >= 0:
        state.slot_model[gpu, state.slot[gpu, model]] = ABSENT
    state.slot[gpu, model] = ABSENT
    state.ready[gpu, model] = ABSENT
    state.last_use[gpu, model] = ABSENT
    state.room[gpu] += tables.weight_bytes[model]
    if tables.replicas[model] != UNLIMITED:
        for replica in range(tables.replicas[model]):
            if state.replica_gpu[model, replica] == gpu:
                state.replica_gpu[model, replica] = ABSENT
                state.replica_free[model, replica] = instant


@inlined
def _take_replica(tables: Tables, state: State, residencies: Ints, gpu: int, model: int) -> int:
    """Give the GPU a replica of a limited model; return since when it is free, FAR if there is none.

    A replica that is free, the earliest first; else that of the GPU which needs the model furthest ahead.
    """
    free, held, held_use = ABSENT, ABSENT, ABSENT
    for replica in range(tables.replicas[model]):
        holder = state.replica_gpu[model, replica]
        if holder == ABSENT:
            if free == ABSENT or state.replica_free[model, replica] < state.replica_free[model, free]:
                free = replica
        elif state.upcoming[holder, model] > held_use and not (
            tables.no_swaps and state.last_use[holder, model] != ABSENT
        ):
            held, held_use = replica, state.upcoming[holder, model]
    if free == ABSENT:
        if held == ABSENT:
            return FAR
        holder = state.replica_gpu[model, held]
        instant = max(state.last_use[holder, model], 0)
        evict(tables, state, residencies, holder, model, instant)
        # Later loads of the holder count on the room, so they must not start before it is there.
        state.copy_free[holder] = max(state.copy_free[holder], instant)
        free = held
    state.replica_gpu[model, free] = gpu
    return state.replica_free[model, free]


@inlined
def clear_slots(tables: Tables, state: State, residencies: Ints, gpu: int, template: int) -> bool:
    """Free the slots of the models a task needs if they keep the others it needs out; say whether it can run.

    The k largest missing models need k slots of their size that hold no other model of the task.
    """
    first, beyond = tables.need_first[template], tables.need_first[template + 1]
    missing, conflict = 0, False
    for need in range(first, beyond):
        if state.ready[gpu, tables.need_model[need]] != ABSENT:
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
            if state.ready[gpu, model] != ABSENT:
                if tables.no_swaps and state.last_use[gpu, model] != ABSENT:
                    return False
                instant = max(state.last_use[gpu, model], 0)
                evict(tables, state, residencies, gpu, model, instant)
                state.copy_free[gpu] = max(state.copy_free[gpu], instant)
    return True


@inlined
def _compute_gap(state: State, work: Work, gpu: int, earliest: int, duration: int) -> int:
    """Return the first time from `earliest` on at which the compute engine idles for `duration`.

    Earlier loads lie before `earliest`, so only tasks stand in the way; the walk goes backwards through them.
    """
    found = max(earliest, state.compute_free[gpu])
    task = state.last_task[gpu]
    while task != ABSENT and work.end[task] > earliest:
        before = work.previous[task]
        # The gap between this task and the one before it, as far as it lies beyond `earliest`.
        begin = earliest if before == ABSENT else max(earliest, work.end[before])
        if work.start[task] - begin >= duration:
            found = begin
        task = before
    return found
