"""The decoders' arrays against the one home of what a GPU does: both live through the same decodes, cut anywhere."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.instances import random_instance, random_serving_instance
from tests.white_box.solvers.test_decoder import random_decisions
from truenorth.models import WHOLE, GPUState, Instance, Objective, Run
from truenorth.models.instance import NONE, Ints
from truenorth.solvers.search.decoder import Decisions, Decoder
from truenorth.solvers.search.decoder_kernel import INFEASIBLE, cost_so_far, decode, look_ahead
from truenorth.solvers.search.decoder_state import (
    END,
    GPU,
    INITIAL,
    LOAD_START,
    MODEL,
    READY,
    SLOT,
    ClusterState,
    DecodedTasks,
    Decoding,
    copy_of,
)

STOP, READIED, EVICT, LOAD, START = range(5)


def decode_some(decoder: Decoder, decisions: Decisions, tasks: int) -> tuple[ClusterState, DecodedTasks, Ints]:
    """Decode the first tasks of a list; return the state then, the working arrays, and the residencies."""
    work, state, rows = decoder.work(decisions), copy_of(decoder.origin), decoder.residencies
    serving, so_far = decoder.serving(decisions), cost_so_far(decoder.tables, work.completed)
    look_ahead(decoder.tables, state, work, serving, 0, len(decisions.order))
    decode(Decoding(decoder.tables, state, work, rows), serving, 0, tasks, so_far, INFEASIBLE)
    return state, work, rows[: state.records[0]]


def runs_on(of: Instance, work: DecodedTasks, latest: int) -> list[Run]:
    """Return the batches that a decoder chained up on a GPU, latest first."""
    runs, leader = [], latest
    while leader != NONE:
        template, start_us = int(of.task_template[leader]), int(work.start[leader])
        batch = int(of.template_batch[template])
        alike = (
            (work.start == start_us) & (work.gpu == work.gpu[leader]) & (of.template_batch[of.task_template] == batch)
        )
        members = np.flatnonzero(alike & (work.end > 0)).tolist() if batch != NONE else [leader]
        share, held = int(of.template_share[template]), int(of.template_memory[template]) * len(members)
        runs.append(Run([leader], start_us, int(work.end[leader]), batch, of.needs[template], share, held))
        leader = int(work.previous[leader])
    return runs


def live(of: Instance, gpu: int, runs: list[Run], rows: Ints) -> GPUState:
    """Live through a decode up to the start of its latest run on a GPU; refuse nothing on the way."""
    state = GPUState(of.cluster.gpus[gpu], of.weight_bytes.tolist(), of.overlap_loads)
    events = [(run.start_us, START, number) for number, run in enumerate(runs)]
    events += [(run.end_us, STOP, number) for number, run in enumerate(runs)]
    for number, row in enumerate(rows.tolist()):
        if row[INITIAL]:
            state.memory.hold_model(row[MODEL], None if row[SLOT] == NONE else row[SLOT])
            state.memory.ready.add(row[MODEL])
        else:
            events += [(row[LOAD_START], LOAD, number), (row[READY], READIED, number)]
        events += [] if row[END] == NONE else [(row[END], EVICT, number)]
    for _, kind, number in sorted(event for event in events if event <= (runs[0].start_us, START, len(runs))):
        if kind == START:
            assert state.refuse_run(runs[number]) is None
            state.begin_run(runs[number])
        elif kind == STOP:
            state.end_run(runs[number].tasks[0])
        elif kind == LOAD:
            slot = None if rows[number, SLOT] == NONE else int(rows[number, SLOT])
            assert state.refuse_load(int(rows[number, MODEL]), slot) is None
            state.begin_load(int(rows[number, MODEL]), int(rows[number, READY]), slot)
        elif kind == READIED:
            state.end_load()
        else:
            assert state.refuse_eviction(int(rows[number, MODEL])) is None
            state.memory.drop_model(int(rows[number, MODEL]))
    return state


@pytest.mark.parametrize("serving", [False, True])
def test_both_say_the_same_of_runs_loads_memory_and_free_compute(serving: bool) -> None:
    rng = random.Random(f"state {serving}")
    running: set[int] = set()
    for _ in range(400):  # three runs at once are rare
        of = random_serving_instance(rng, 8) if serving else random_instance(rng, 8)
        decisions, tasks = random_decisions(rng, of), rng.randint(1, of.n_tasks)
        if serving:
            joins = np.array([rng.randrange(2) for _ in range(of.n_tasks)])
            joins[decisions.order[tasks:]] = 0  # nobody joins whom the cut leaves out
            decisions = Decisions(decisions.order, decisions.gpu, joins)
        decoder = Decoder(of, Objective.MEAN_LATENCY)
        state, work, rows = decode_some(decoder, decisions, tasks)
        for gpu in range(of.n_gpus):
            if state.last_task[gpu] != NONE:
                runs = runs_on(of, work, int(state.last_task[gpu]))
                lived = live(of, gpu, runs, rows[rows[:, GPU] == gpu])
                compare(of, lived, state, gpu, runs)
                running.add(len(lived.runs))
    assert running >= ({1, 2, 3} if serving else {1})


def compare(of: Instance, lived: GPUState, state: ClusterState, gpu: int, runs: list[Run]) -> None:
    now = runs[0].start_us
    beside = {run.tasks[0]: run for run in runs if run.end_us > now}
    assert lived.runs == beside
    assert lived.free_share == WHOLE - sum(run.share for run in beside.values())
    assert set(lived.memory.residents) == set(np.flatnonzero(state.ready[gpu] != NONE).tolist())
    if lived.memory.slots:
        held_by = [lived.memory.holder(slot) for slot in range(len(lived.memory.slots))]
        assert [NONE if model is None else model for model in held_by] == state.slot_model[gpu, : len(held_by)].tolist()
    else:
        assert lived.memory.free_bytes == state.room[gpu] - sum(run.memory_bytes for run in beside.values())
    if not of.template_memory.any():  # otherwise a run that evicts keeps the copy engine from its room, too
        assert lived.load_end_us == state.copy_free[gpu]
    blocked_us = 0 if of.overlap_loads else lived.load_end_us
    assert max(lived.compute_free_us(), blocked_us) == state.compute_free[gpu]
