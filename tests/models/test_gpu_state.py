"""What one GPU does at a time: each refusal on both sides of the fence, and whole timelines against the checker."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from tests import instances as make
from tests.models.random_timelines import mutant, serving_mutant, simple_timeline
from truenorth.models import IDLE, WHOLE, GPUState, Instance, Residency, Run, Timeline, check
from truenorth.models.timeline import batch_leaders

A, B, C = 0, 1, 2
END, READY, EVICT, LOAD, START = range(5)
SIZES = (4, 5, 6)


def state(overlap_loads: bool = True, slots: tuple[int, ...] = ()) -> GPUState:
    """Return an idle GPU of 10 bytes, models a, b and c of 4, 5 and 6 bytes, and a ready there."""
    made = GPUState(make.gpu(0, slots=slots, memory_bytes=sum(slots) or 10), SIZES, overlap_loads)
    made.begin_load(A, 4)
    made.end_load()
    return made


def test_shares_of_runs_add_up_to_the_gpu() -> None:
    gpu = state()
    gpu.begin_run(Run([3], 0, 8, share=6_000))
    assert gpu.refuse_run(Run([4], 0, 5, share=4_000)) is None
    assert (
        gpu.refuse_run(Run([4], 0, 5, share=4_001)) == "T3 s0/g0: runs tasks 3, 4000 of 10000 are free and 4001 needed"
    )
    gpu.begin_run(Run([4], 0, 5, share=3_000))
    assert [gpu.compute_free_us(share) for share in (1_000, 1_001, 4_000, 4_001, WHOLE)] == [0, 5, 5, 8, 8]
    assert gpu.end_run(4).end_us == 5
    assert (list(gpu.runs), gpu.free_share) == ([3], 4_000)


def test_a_run_needs_its_models_and_keeps_them() -> None:
    gpu = state()
    assert gpu.refuse_run(Run([0], 4, 9, models=[A, B])) == "R3 s0/g0: model 1 is not ready"
    gpu.begin_run(Run([0], 4, 9, models=[A]))
    assert gpu.refuse_eviction(A) == "R3 s0/g0: a running task uses model 0"
    gpu.end_run(0)
    assert gpu.refuse_eviction(A) is None
    assert gpu.refuse_eviction(B) == "R4 s0/g0: model 1 is not ready there, so it cannot be evicted"


def test_what_starts_together_is_one_batch() -> None:
    gpu = state()
    gpu.begin_run(Run([0, 2], 4, 9, batch=1, share=5_000))
    assert str(gpu.refuse_run(Run([1], 4, 9, batch=1, share=5_000))).startswith("T3b s0/g0")
    assert gpu.refuse_run(Run([1], 5, 9, batch=1, share=5_000)) is None
    assert gpu.refuse_run(Run([1], 4, 9, batch=0, share=5_000)) is None


def test_running_tasks_and_models_share_the_memory() -> None:
    gpu = state()
    assert gpu.refuse_run(Run([0], 4, 9, memory_bytes=7)) == (
        "R2 s0/g0: 7 bytes are needed beside the models, 6 are free"
    )
    gpu.begin_run(Run([0], 4, 9, memory_bytes=1))
    assert gpu.refuse_load(B) is None
    assert gpu.refuse_load(C) == "R2 s0/g0: model 2 needs 6 bytes, 5 are free"
    gpu.end_run(0)
    assert gpu.refuse_load(C) is None
    assert state(slots=(5, 5)).refuse_run(Run([0], 4, 9, memory_bytes=1)) == (
        "R2 s0/g0: has slots, so no memory for tasks"
    )


def test_one_load_at_a_time_and_its_room() -> None:
    gpu = state()
    assert gpu.begin_load(B, 9) is None
    assert (gpu.loading, gpu.load_end_us, gpu.memory.free_bytes, gpu.memory.ready) == (B, 9, 1, {A})
    assert gpu.refuse_load(C) == "R1 s0/g0: is loading model 1"
    assert gpu.end_load() == B
    assert (gpu.loading, gpu.memory.ready) == (IDLE, {A, B})
    assert gpu.refuse_load(B) == "R4 s0/g0: model 1 is there already"
    gpu.memory.drop_model(A)
    assert (gpu.memory.free_bytes, list(gpu.memory.residents)) == (5, [B])


def test_the_smallest_slot_that_fits() -> None:
    gpu = state(slots=(6, 4, 5))
    assert gpu.memory.residents == {A: 1}
    assert gpu.refuse_load(B, 1) == "R2 s0/g0: slot 1 is taken or too small for model 1"
    assert gpu.refuse_load(C, 2) == "R2 s0/g0: slot 2 is taken or too small for model 2"
    assert gpu.refuse_load(C, 3) == "R2 s0/g0: no empty slot is large enough for model 2"
    assert gpu.begin_load(B, 5) == 2
    assert gpu.memory.empty_slots == [6]
    assert state().refuse_load(B, 0) == "R2 s0/g0: has no slots, so no slot 0"


@pytest.mark.parametrize("overlap", [True, False])
def test_a_load_takes_the_compute_engine_only_without_overlap(overlap: bool) -> None:
    loading, running = state(overlap), state(overlap)
    loading.begin_load(B, 9)
    running.begin_run(Run([7], 4, 9, share=1))
    assert (loading.refuse_run(Run([0], 4, 5, share=1)) is None) is overlap
    assert (running.refuse_load(B) is None) is overlap


def follow(instance: Instance, timeline: Timeline) -> set[str]:
    """Live through a timeline event by event, ends before starts; return the rule of the first refusal."""
    gpus = [GPUState(gpu, instance.weight_bytes.tolist(), instance.overlap_loads) for gpu in instance.cluster.gpus]
    stays = {(r.gpu, r.model) for r in timeline.residencies if r.initial}
    for given in instance.initial:
        if (given.gpu, given.model) in stays:
            gpus[given.gpu].memory.hold_model(given.model, given.slot)
            gpus[given.gpu].memory.ready.add(given.model)
    events: list[tuple[int, int, int, int]] = []
    leaders = batch_leaders(instance, timeline).tolist()
    for task in sorted(set(leaders)):
        where = int(timeline.place[task])
        events += [(int(timeline.start_us[task]), START, where, task), (int(timeline.end_us[task]), END, where, task)]
    for index, r in enumerate(timeline.residencies):
        events += [] if r.initial else [(r.load_start_us, LOAD, r.gpu, index), (r.ready_us, READY, r.gpu, index)]
        events += [] if r.end_us is None else [(r.end_us, EVICT, r.gpu, index)]
    for _, kind, where, subject in sorted(events):
        gpu = gpus[where]
        if kind == START:
            members = [task for task, leader in enumerate(leaders) if leader == subject]
            refusal = begin(gpu, run_of(instance, timeline, members))
        elif kind in (LOAD, EVICT):
            refusal = (load if kind == LOAD else evict)(gpu, timeline.residencies[subject])
        else:
            refusal = None
            _ = gpu.end_run(subject) if kind == END else gpu.end_load()
        if refusal is not None:
            return {refusal.split()[0]}
    return set()


def begin(gpu: GPUState, run: Run) -> str | None:
    refusal = gpu.refuse_run(run)
    if refusal is None:
        gpu.begin_run(run)
    return refusal


def load(gpu: GPUState, residency: Residency) -> str | None:
    refusal = gpu.refuse_load(residency.model, residency.slot)
    if refusal is None:
        gpu.begin_load(residency.model, residency.ready_us, residency.slot)
    return refusal


def evict(gpu: GPUState, residency: Residency) -> str | None:
    refusal = gpu.refuse_eviction(residency.model)
    if refusal is None:
        gpu.memory.drop_model(residency.model)
    return refusal


def run_of(instance: Instance, timeline: Timeline, members: list[int]) -> Run:
    """Return the run of these members of a batch."""
    template = instance.task_template[members[0]]
    return Run(
        members,
        int(timeline.start_us[members[0]]),
        int(timeline.end_us[members[0]]),
        int(instance.template_batch[template]),
        instance.needs[template],
        int(instance.template_share[template]),
        int(instance.template_memory[template]) * len(members),
    )


@pytest.mark.parametrize("serving", [False, True])
def test_it_refuses_what_the_checker_finds(serving: bool) -> None:
    """Where a timeline breaks rules of an instant only, one of them is refused; where it breaks none, nothing is."""
    rng = random.Random(5)
    seen: Counter[str] = Counter()
    for _ in range(300):
        instance = make.random_serving_instance(rng, 6) if serving else make.random_instance(rng, 6)
        timeline = simple_timeline(rng, instance)
        assert follow(instance, timeline) == set()
        changed = replace((serving_mutant if serving else mutant)(rng, instance, timeline), realised=False)
        broken = {violation.rule for violation in check(instance, changed)}
        if not broken <= {"R2", "R3", "R4", "R5", "T3", "T3c"} or not proper(instance, changed):
            continue
        refused = follow(instance, changed)
        assert bool(refused) == bool(broken)
        assert {"T3c" if rule == "T3" and "T3c" in broken else rule for rule in refused} <= broken | {"R4"}
        seen.update(refused or {"feasible"})
    assert seen["feasible"] >= 40
    assert seen["T3"] >= 10


def proper(instance: Instance, timeline: Timeline) -> bool:
    """Say whether stays name slots where there are any, and initial ones stand once: a GPU is told of no others."""
    initial = [(r.gpu, r.model) for r in timeline.residencies if r.initial]
    return len(set(initial)) == len(initial) and all(
        (r.slot is None) != bool(instance.cluster.gpus[r.gpu].slots) for r in timeline.residencies
    )
