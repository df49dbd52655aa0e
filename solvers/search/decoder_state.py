"""What every GPU holds and when it is free, while a decoder walks along a list of tasks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from models.instance import Instance, Ints
from solvers.compiled import kernel
from solvers.search.decoder_tables import UNLIMITED, Tables

ABSENT = -1
"""Stands for "not resident", "no slot", "no task", "not yet used" and "has no end"."""

FAR = np.iinfo(np.int64).max // 2
"""Position of a use that never comes."""

MODEL, GPU, SLOT, LOAD_START, READY, END, INITIAL = range(7)
"""Columns of a table of residencies."""


class Work(NamedTuple):
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


class State(NamedTuple):
    """A moment of a decode.

    Attributes
    ----------
    compute_free, copy_free, room, last_task
        Per GPU: when its engines are free, free bytes after the latest load, the task decoded last.
    ready, last_use, upcoming, record, slot
        Per GPU and model: ready time (ABSENT if not resident), end of the latest use (ABSENT if unused), list
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


def initial_state(instance: Instance, tables: Tables) -> tuple[State, Ints]:
    """Return the state at time 0, and an empty table of residencies that is large enough for any decode."""
    gpus, models = instance.n_gpus, len(instance.models)
    slots = tables.slot_bytes.shape[1]
    most = max(0, int(tables.replicas.max())) if tables.limited else 0
    each = (gpus, models)
    state = State(
        compute_free=np.zeros(gpus, np.int64),
        copy_free=np.zeros(gpus, np.int64),
        room=tables.memory_bytes.copy(),
        last_task=np.full(gpus, ABSENT, np.int64),
        ready=np.full(each, ABSENT, np.int64),
        last_use=np.full(each, ABSENT, np.int64),
        upcoming=np.full(each, FAR, np.int64),
        record=np.full(each, ABSENT, np.int64),
        slot=np.full(each, ABSENT, np.int64),
        slot_model=np.full((gpus, slots), ABSENT, np.int64),
        replica_free=np.zeros((models, most), np.int64),
        replica_gpu=np.full((models, most), ABSENT, np.int64),
        records=np.zeros(1, np.int64),
    )
    # A task reloads at most the models it needs, and only those: one row per use, plus the initial ones.
    residencies = np.empty((int(tables.use_first[-1]) + len(instance.initial), 7), np.int64)
    for resident in instance.initial:
        _place_initial(tables, state, residencies, resident.gpu, resident.model, resident.slot)
    return state, residencies


def _place_initial(tables: Tables, state: State, residencies: Ints, gpu: int, model: int, slot: int | None) -> None:
    """Make a model resident at time 0, or leave it out if it already has all the replicas it may have."""
    if tables.replicas[model] != UNLIMITED:
        free = np.flatnonzero(state.replica_gpu[model, : tables.replicas[model]] == ABSENT)
        if not free.size:
            return
        state.replica_gpu[model, free[0]] = gpu
    where = ABSENT if slot is None else slot
    residencies[state.records[0]] = (model, gpu, where, 0, 0, ABSENT, 1)
    state.ready[gpu, model] = 0
    state.room[gpu] -= tables.weight_bytes[model]
    state.record[gpu, model] = state.records[0]
    state.slot[gpu, model] = where
    if slot is not None:
        state.slot_model[gpu, slot] = model
    state.records[0] += 1


def copy_of(state: State) -> State:
    """Return an independent copy of a state."""
    return State(*(array.copy() for array in state))


@kernel
def restore(target: State, source: State) -> None:
    """Make one state equal to another."""
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
