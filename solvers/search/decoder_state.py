"""What every GPU holds and when it is free, while a decoder walks along a list of tasks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from truenorth.models.instance import NONE, Instance, Ints
from truenorth.solvers.compiled import kernel
from truenorth.solvers.search.decoder_tables import InstanceTables, Service

FAR = np.iinfo(np.int64).max // 2
"""Position of a use that never comes."""

MODEL, GPU, SLOT, LOAD_START, READY, END, INITIAL = range(7)
"""Columns of a table of residencies; NONE stands there for "no slot" and "has no end"."""


class DecodedTasks(NamedTuple):
    """The decisions that a decoder reads, and what it writes about tasks and jobs.

    Attributes
    ----------
    order
        The tasks, every predecessor before its successors. Shape [tasks].
    gpu, start, end
        Per task; the first is a decision.
    previous
        Per task: the task decoded before it on its GPU.
    next_use
        Per (task, model) pair: list position of the next use of the model on that GPU.
    completed
        Per job: completion of what is decoded, with the fastest run times of what follows.
    """

    order: Ints
    gpu: Ints
    start: Ints
    end: Ints
    previous: Ints
    next_use: Ints
    completed: Ints


class ClusterState(NamedTuple):
    """A moment of a decode; NONE stands for "not resident", "no slot", "no task" and "not yet used".

    Attributes
    ----------
    compute_free, copy_free, room, last_task
        Per GPU: when its engines are free, free bytes after the latest load, the task decoded last.
    ready, last_use, upcoming, record, slot
        Per GPU and model: ready time (NONE if not resident), end of the latest use (NONE if unused), list
        position of the next use, row in the table of residencies, slot. Shape [gpus, models].
    slot_model
        Per GPU and slot: the model in it. Shape [gpus, most slots].
    replica_free, replica_gpu
        Per model and replica: since when it is free, or the GPU that has it. A model may be on k GPUs at a time
        if each of its residencies belongs to one of k replicas and those of a replica never overlap.
    records
        Rows used in the table of residencies. Shape [1].
    """

    compute_free: Ints
    copy_free: Ints
    room: Ints
    last_task: Ints
    ready: Ints
    last_use: Ints
    upcoming: Ints
    record: Ints
    slot: Ints
    slot_model: Ints
    replica_free: Ints
    replica_gpu: Ints
    records: Ints


class Runs(NamedTuple):
    """Which tasks join batches, and what a decode notes about batches. A batch is known by its first member.

    Attributes
    ----------
    joins
        Per task: 1 if it joins the batch before it on its GPU where that may take it; a decision.
    next_on_gpu, latest
        The task behind each one on its GPU; per GPU the one found last. NONE if there is none.
    placed
        Per task: 1 once it has its time.
    members
        The batch under way; its first entries count.
    arrived
        Per task: when its job was released and its inputs had arrived on its GPU.
    until
        Per batch: the latest end of all that runs on its GPU by then.
    held, level
        Per batch: bytes that it holds, bytes that all batches on its GPU hold when it starts.
    flipped, flips
        Tasks whose `joins` the move under way changed; their number (shape [1]).
    """

    joins: Ints
    next_on_gpu: Ints
    latest: Ints
    placed: Ints
    members: Ints
    arrived: Ints
    until: Ints
    held: Ints
    level: Ints
    flipped: Ints
    flips: Ints


class Serving(NamedTuple):
    """What kernels are handed where tasks run in batches, take shares of a GPU or hold memory; None where none does.

    Always an argument of its own: numba then compiles a kernel once for None and once for this, and what stands behind
    `if serving is not None` is no part of the former. Inside another tuple it would be looked up at run time.
    """

    service: Service
    runs: Runs


class Decoding(NamedTuple):
    """A decode: what it reads, where it stands, and what it writes.

    Attributes
    ----------
    tables
        The instance and its objective.
    state
        The moment it has come to.
    work, residencies
        Times of tasks, and the table of residencies with `state.records` rows in use.
    """

    tables: InstanceTables
    state: ClusterState
    work: DecodedTasks
    residencies: Ints


def new_runs(instance: Instance, joins: Ints) -> Runs:
    """Return fresh working arrays for some decisions to join."""
    tasks = instance.n_tasks
    fresh = [np.zeros(tasks, np.int64) for _ in range(7)]
    return Runs(
        joins=joins.copy(),
        next_on_gpu=fresh[0],
        latest=np.full(instance.n_gpus, NONE, np.int64),
        placed=fresh[1],
        members=np.zeros(max(1, int(instance.batch_largest.max(initial=1))), np.int64),
        arrived=fresh[2],
        until=fresh[3],
        held=fresh[4],
        level=fresh[5],
        flipped=fresh[6],
        flips=np.zeros(1, np.int64),
    )


def initial_state(instance: Instance, tables: InstanceTables) -> tuple[ClusterState, Ints]:
    """Return the state at time 0, and an empty table of residencies that is large enough for any decode."""
    gpus, models = instance.n_gpus, len(instance.models)
    slots = tables.slot_bytes.shape[1]
    most = max(0, int(tables.replicas.max())) if tables.limited else 0
    each = (gpus, models)
    state = ClusterState(
        compute_free=np.zeros(gpus, np.int64),
        copy_free=np.zeros(gpus, np.int64),
        room=tables.memory_bytes.copy(),
        last_task=np.full(gpus, NONE, np.int64),
        ready=np.full(each, NONE, np.int64),
        last_use=np.full(each, NONE, np.int64),
        upcoming=np.full(each, FAR, np.int64),
        record=np.full(each, NONE, np.int64),
        slot=np.full(each, NONE, np.int64),
        slot_model=np.full((gpus, slots), NONE, np.int64),
        replica_free=np.zeros((models, most), np.int64),
        replica_gpu=np.full((models, most), NONE, np.int64),
        records=np.zeros(1, np.int64),
    )
    # A task reloads at most the models it needs, and only those: one row per use, plus the initial ones.
    residencies = np.empty((int(tables.use_first[-1]) + len(instance.initial), 7), np.int64)
    for resident in instance.initial:
        _place_initial(tables, state, residencies, resident.gpu, resident.model, resident.slot)
    return state, residencies


def _place_initial(
    tables: InstanceTables, state: ClusterState, residencies: Ints, gpu: int, model: int, slot: int | None
) -> None:
    """Make a model resident at time 0, or leave it out if it already has all the replicas it may have."""
    if tables.replicas[model] != NONE:
        free = np.flatnonzero(state.replica_gpu[model, : tables.replicas[model]] == NONE)
        if not free.size:
            return
        state.replica_gpu[model, free[0]] = gpu
    where = NONE if slot is None else slot
    residencies[state.records[0]] = (model, gpu, where, 0, 0, NONE, 1)
    state.ready[gpu, model] = 0
    state.room[gpu] -= tables.weight_bytes[model]
    state.record[gpu, model] = state.records[0]
    state.slot[gpu, model] = where
    if slot is not None:
        state.slot_model[gpu, slot] = model
    state.records[0] += 1


def copy_of(state: ClusterState) -> ClusterState:
    """Return an independent copy of a state."""
    return ClusterState(*(array.copy() for array in state))


@kernel
def restore(target: ClusterState, source: ClusterState) -> None:
    """Make one state equal to another.

    Notes
    -----
    Invariant: afterwards every number of `target` is that of `source`, and no array is shared.
    Because: all fields are copied, entry by entry; a field that is added must be added here.
    Cost: O(GPUs x models), once a move where the whole window is timed again.
    If wrong: a move would be judged from another past than that of the window: plans would be worse, not invalid.
    """
    for gpu in range(target.room.shape[0]):
        target.compute_free[gpu] = source.compute_free[gpu]
        target.copy_free[gpu] = source.copy_free[gpu]
        target.room[gpu] = source.room[gpu]
        target.last_task[gpu] = source.last_task[gpu]
        for model in range(target.ready.shape[1]):
            target.ready[gpu, model] = source.ready[gpu, model]
            target.last_use[gpu, model] = source.last_use[gpu, model]
            target.upcoming[gpu, model] = source.upcoming[gpu, model]
            target.record[gpu, model] = source.record[gpu, model]
            target.slot[gpu, model] = source.slot[gpu, model]
        for slot in range(target.slot_model.shape[1]):
            target.slot_model[gpu, slot] = source.slot_model[gpu, slot]
    for model in range(target.replica_free.shape[0]):
        for replica in range(target.replica_free.shape[1]):
            target.replica_free[model, replica] = source.replica_free[model, replica]
            target.replica_gpu[model, replica] = source.replica_gpu[model, replica]
    target.records[0] = source.records[0]
