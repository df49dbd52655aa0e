"""The kernels of the beam search over start orders: what can start next after a state, and what that is worth."""

from __future__ import annotations

import numpy as np

from models.tables import NEVER, NONE
from solvers.compiled import inlined, kernel
from solvers.search.beam_guide import Guide, cost_from, price_until
from solvers.search.beam_state import (
    ACTIVE,
    COPIED,
    FIRST_END,
    FIRST_GPU,
    FIRST_MODEL,
    FREE,
    FREE_ROWS,
    GPU_BITS,
    JOB,
    NEAREST,
    NOW,
    RELEASED,
    ROOM,
    STAGE,
    STARTED,
    TRAIL,
    Beam,
    keep_state,
    leave_out,
)
from solvers.search.decoder_state import FAR
from solvers.search.decoder_tables import InstanceTables


@kernel
def keep_first(guide: Guide, beam: Beam) -> None:
    """Keep the state in which nothing has started."""
    _go_to(guide, beam, 0)
    keep_state(beam, 0.0, 0.0, 0, NONE, NONE)


@kernel
def look_on(tables: InstanceTables, guide: Guide, beam: Beam, most: int, until: int) -> bool:
    """Look at about so many states before a bucket, in order of time; say whether there are more to look at.

    Many at a time: to hand a beam over from outside takes as long as ten states.
    """
    looked, empty = 0, 0
    while looked < most and empty < len(beam.states) and beam.counts[NEAREST] < until:
        bucket = beam.counts[NEAREST] % len(beam.states)
        if beam.states[bucket] == 0:
            beam.counts[NEAREST] += 1
            empty += 1
        else:
            looked += _look_at(tables, guide, beam, bucket)
            empty = 0
    return bool(empty < len(beam.states)) and beam.counts[NEAREST] < until


@inlined
def _look_at(tables: InstanceTables, guide: Guide, beam: Beam, bucket: int) -> int:
    """Keep what can follow the best states of a bucket, and empty it; what follows may come into it again.

    Return the number of these states.
    """
    width = beam.at.shape[1] // 2
    if beam.states[bucket] > width:
        leave_out(beam, bucket, width)
    count = beam.states[bucket]
    for k in range(count):
        beam.due_at[k] = beam.at[bucket, k]
    for place in range(beam.find.shape[1]):
        beam.find[bucket, place] = NONE
    beam.states[bucket], beam.most[bucket] = 0, np.inf
    for k in range(count):
        at = beam.due_at[k]
        _take_up(guide, beam, at)
        paid, key = beam.paid[at], beam.key[at]
        came = beam.came[at]
        if beam.move[at] != NONE:
            entry = beam.counts[TRAIL]
            beam.trail_from[entry], beam.trail_move[entry] = beam.came[at], beam.move[at]
            beam.counts[TRAIL] += 1
            came = entry * beam.parts + beam.part
        beam.unused[beam.counts[FREE_ROWS]] = at
        beam.counts[FREE_ROWS] += 1
        _start_tasks(tables, guide, beam, paid, key, came)
        _wait(tables, guide, beam, paid, key, came)
    return int(count)


@inlined
def _take_up(guide: Guide, beam: Beam, at: int) -> None:
    """Look at a state, without the jobs all of whose tasks have started."""
    row = beam.row
    for k in range(beam.first_job):
        row[k] = beam.rows[at, k]
    to = beam.first_job
    for index in range(row[ACTIVE]):
        job = beam.first_job + index * beam.job_stride
        if guide.longest_us[beam.rows[at, job + STAGE]] == 0:
            continue
        for k in range(beam.job_stride):
            row[to + k] = beam.rows[at, job + k]
        to += beam.job_stride
    row[ACTIVE] = (to - beam.first_job) // beam.job_stride


@inlined
def _go_to(guide: Guide, beam: Beam, instant: int) -> bool:
    """Let time pass; return whether there was room for all jobs that are then released."""
    row, released = beam.row, beam.row[RELEASED]
    row[NOW] = instant
    while released < len(guide.by_release) and guide.release_us[guide.by_release[released]] <= instant:
        at = beam.first_job + row[ACTIVE] * beam.job_stride
        if at >= len(row):
            return False
        job = guide.by_release[released]
        row[at + JOB], row[at + STAGE] = job, guide.first_stage[job]
        for k in range(FIRST_END, beam.job_stride):
            row[at + k] = 0
        row[ACTIVE] += 1
        released += 1
    row[RELEASED] = released
    return True


@inlined
def _latest_end(beam: Beam, job: int, tasks: int) -> int:
    """Return the latest end of some tasks of a job, given as a mask."""
    latest, k = 0, job + FIRST_END
    while tasks:
        if tasks & 1:
            latest = max(latest, beam.row[k] >> GPU_BITS)
        tasks >>= 1
        k += 1
    return latest


@inlined
def _rests(tables: InstanceTables, guide: Guide, beam: Beam) -> float:
    """Return what all jobs that are not done still cost by the guide, less what the GPUs offer from now on."""
    row, prices = beam.row, guide.prices
    total, now = guide.later[row[RELEASED]], row[NOW]
    for index in range(row[ACTIVE]):
        job = beam.first_job + index * beam.job_stride
        stage = row[job + STAGE]
        if guide.longest_us[stage] == 0:
            continue
        begin, line = now, guide.line[stage]
        if guide.awaited[stage]:
            begin = max(begin, _latest_end(beam, job, guide.awaited[stage]))
        if guide.beside[stage]:
            late_us = _latest_end(beam, job, guide.beside[stage]) - begin - guide.longest_us[stage]
            if late_us > 0:
                line += min((late_us + guide.step_us // 2) // guide.step_us, guide.lines[stage] - 1)
        total += cost_from(guide.cost, line, guide.weight[stage], prices.column_us, begin)
    for gpu in range(len(beam.sorted_us)):
        total += price_until(prices, tables.gpu_class[gpu], max(now, row[FIRST_GPU + gpu * beam.gpu_stride + FREE]))
    return float(total)


@inlined
def _find_next(tables: InstanceTables, guide: Guide, beam: Beam) -> int:
    """Write what can start now, of each task of a kind of jobs that of the job released first; return their number."""
    row, count = beam.row, 0
    for kind in range(len(beam.taken)):
        beam.taken[kind] = 0
    for index in range(row[ACTIVE]):
        job = beam.first_job + index * beam.job_stride
        stage, kind = row[job + STAGE], guide.kind[row[job + JOB]]
        for task in range(guide.following.shape[1]):
            if guide.following[stage, task] < 0 or beam.taken[kind] >> task & 1:
                continue
            template, waits = tables.task_template[guide.first_task[row[job + JOB]] + task], False
            for entry in range(tables.input_first[template], tables.input_first[template + 1]):
                waits |= row[job + FIRST_END + task + tables.input_offset[entry]] >> GPU_BITS > row[NOW]
            if not waits:
                beam.taken[kind] |= 1 << task
                beam.next_job[count], beam.next_task[count] = job, task
                count += 1
    return count


@inlined
def _holds_the_same(beam: Beam, one: int, other: int) -> bool:
    """Say whether two GPUs of a row hold the same models."""
    for k in range(FIRST_MODEL, beam.gpu_stride, 2):  # noqa: SIM110 - no generator compiles
        if (beam.row[one + k] < 0) != (beam.row[other + k] < 0):
            return False
    return True


@inlined
def _is_first(tables: InstanceTables, beam: Beam, gpu: int) -> bool:
    """Say whether no idle GPU of the class before this one holds the same models."""
    at = FIRST_GPU + gpu * beam.gpu_stride
    for other in range(gpu):
        if tables.gpu_class[other] == tables.gpu_class[gpu]:
            before = FIRST_GPU + other * beam.gpu_stride
            if beam.row[before + FREE] <= beam.row[NOW] and _holds_the_same(beam, before, at):
                return False
    return True


@inlined
def _load(tables: InstanceTables, beam: Beam, at: int, gpu_class: int, model: int, needed: int) -> bool:
    """Load a model on the GPU at some place of the row; models leave by least recent use. Return whether it fits."""
    row, models = beam.row, tables.weight_bytes.shape[0]
    earliest, room, size, leaving = row[at + COPIED], row[at + ROOM], tables.weight_bytes[model], 0
    while room < size:
        chosen, first_use = NONE, FAR
        for other in range(models):
            k = at + FIRST_MODEL + 2 * other
            if row[k] >= 0 and not (leaving | needed) >> other & 1 and row[k + 1] < first_use:
                chosen, first_use = other, row[k + 1]
        if chosen == NONE:
            return False
        leaving |= 1 << chosen
        room += tables.weight_bytes[chosen]
    for other in range(models):
        if leaving >> other & 1 and room - tables.weight_bytes[other] >= size:
            leaving ^= 1 << other
            room -= tables.weight_bytes[other]
    for other in range(models):
        if leaving >> other & 1:
            k = at + FIRST_MODEL + 2 * other
            earliest = max(earliest, row[k + 1])
            row[k], row[k + 1] = NONE, NONE
    k, ready = at + FIRST_MODEL + 2 * model, earliest + tables.load_us[model, gpu_class]
    row[at + COPIED], row[at + ROOM], row[k], row[k + 1] = ready, room - size, ready, ready
    return True


@inlined
def _run(tables: InstanceTables, beam: Beam, at: int, gpu: int, job: int, first: int, task: int) -> int:
    """Run a task of a job on a GPU as early as it can; return when it ends, FAR if its models do not fit."""
    row, template, here = beam.row, tables.task_template[first + task], tables.gpu_class[gpu]
    begin, needed = row[NOW], 0
    for entry in range(tables.input_first[template], tables.input_first[template + 1]):
        came = row[job + FIRST_END + task + tables.input_offset[entry]]
        source = came & ((1 << GPU_BITS) - 1)
        close = int(tables.gpu_server[source] == tables.gpu_server[gpu]) + int(source == gpu)
        begin = max(
            begin,
            (came >> GPU_BITS) + tables.transfer_us[tables.input_edge[entry], tables.gpu_class[source], here, close],
        )
    for need in range(tables.need_first[template], tables.need_first[template + 1]):
        needed |= 1 << tables.need_model[need]
    for need in range(tables.need_first[template], tables.need_first[template + 1]):
        k = at + FIRST_MODEL + 2 * tables.need_model[need]
        if row[k] < 0 and not _load(tables, beam, at, here, tables.need_model[need], needed):
            return FAR
        begin = max(begin, row[k])
    end = begin + tables.run_us[template, here]
    for need in range(tables.need_first[template], tables.need_first[template + 1]):
        row[at + FIRST_MODEL + 2 * tables.need_model[need] + 1] = end
    row[at + FREE] = end
    return int(end)


@inlined
def _start_tasks(tables: InstanceTables, guide: Guide, beam: Beam, paid: float, key: int, came: int) -> None:
    """Keep what the state becomes when a task starts next on an idle GPU."""
    row, count = beam.row, _find_next(tables, guide, beam)
    now, released, active = row[NOW], row[RELEASED], row[ACTIVE]
    for gpu in range(len(beam.sorted_us)):
        at = FIRST_GPU + gpu * beam.gpu_stride
        if row[at + FREE] > now or not _is_first(tables, beam, gpu):
            continue
        for k in range(beam.gpu_stride):
            beam.saved[k] = row[at + k]
        for index in range(count):
            job, task = beam.next_job[index], beam.next_task[index]
            stage, first = row[job + STAGE], guide.first_task[row[job + JOB]]
            if tables.run_us[tables.task_template[first + task], tables.gpu_class[gpu]] == NEVER:
                continue
            end = _run(tables, beam, at, gpu, job, first, task)
            if end < FAR:
                row[job + STAGE] = guide.following[stage, task]
                row[job + FIRST_END + task] = end << GPU_BITS | gpu
                row[STARTED] += 1
                cost = paid
                if guide.longest_us[row[job + STAGE]] == 0:
                    latest = _latest_end(beam, job, (1 << (beam.job_stride - FIRST_END)) - 1)
                    cost += guide.weight[stage] * max(0, latest - guide.due_us[row[job + JOB]])
                _offer(
                    tables, guide, beam, cost, key ^ beam.task_key[first + task], came, (first + task) << GPU_BITS | gpu
                )
                row[NOW], row[RELEASED], row[ACTIVE] = now, released, active
                row[STARTED] -= 1
                row[job + STAGE], row[job + FIRST_END + task] = stage, 0
            for k in range(beam.gpu_stride):
                row[at + k] = beam.saved[k]


@inlined
def _offer(tables: InstanceTables, guide: Guide, beam: Beam, paid: float, key: int, came: int, move: int) -> None:
    """Keep the state that is looked at, or note the whole plan that it is."""
    row = beam.row
    if row[STARTED] == len(beam.task_key):
        if paid < beam.best[0]:
            beam.best[0], beam.best_end[0], beam.best_end[1] = paid, came, move
        return
    idle_from = row[FIRST_GPU + FREE]
    for gpu in range(1, len(beam.sorted_us)):
        idle_from = min(idle_from, row[FIRST_GPU + gpu * beam.gpu_stride + FREE])
    if idle_from <= row[NOW] or _go_to(guide, beam, idle_from):
        keep_state(beam, paid + _rests(tables, guide, beam), paid, key, came, move)


@inlined
def _wait(tables: InstanceTables, guide: Guide, beam: Beam, paid: float, key: int, came: int) -> None:
    """Keep what the state becomes when nothing starts until the next job is released or the next GPU is free."""
    row, until = beam.row, FAR
    if row[RELEASED] < len(guide.by_release):
        until = guide.release_us[guide.by_release[row[RELEASED]]]
    for gpu in range(len(beam.sorted_us)):
        free = row[FIRST_GPU + gpu * beam.gpu_stride + FREE]
        if free > row[NOW]:
            until = min(until, free)
    if until < FAR and _go_to(guide, beam, until):
        keep_state(beam, paid + _rests(tables, guide, beam), paid, key, came, NONE)


@kernel
def settle(beam: Beam) -> None:
    """Make the states that were written into the buckets known to them."""
    for bucket in range(len(beam.states)):
        if beam.states[bucket]:
            leave_out(beam, bucket, beam.states[bucket])
