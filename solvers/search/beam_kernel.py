"""The kernels of the beam search over start orders: what can start next after a state, and what that is worth."""

from __future__ import annotations

import numpy as np

from truenorth.models.tables import NEVER, NONE
from truenorth.solvers.compiled import inlined, kernel
from truenorth.solvers.search.beam_guide import Guide, cost_from, price_until
from truenorth.solvers.search.beam_state import (
    ACTIVE,
    COPIED,
    FIRST_END,
    FIRST_GPU,
    FIRST_MODEL,
    FREE,
    FREE_ROWS,
    GPU_BITS,
    JOB,
    JOINS,
    NEAREST,
    NOW,
    RELEASED,
    ROOM,
    STAGE,
    STARTED,
    TRAIL,
    Beam,
    Beginning,
    keep_state,
    leave_out,
)
from truenorth.solvers.search.decoder_state import FAR
from truenorth.solvers.search.decoder_tables import InstanceTables, Service


@kernel
def keep_first(guide: Guide, beam: Beam) -> None:
    """Keep the state in which nothing has started."""
    _go_to(guide, beam, 0)
    keep_state(beam, 0.0, Beginning(0.0, 0, NONE), NONE)


@kernel
def look_on(tables: InstanceTables, service: Service | None, guide: Guide, beam: Beam, most: int, until: int) -> bool:
    """Look at about so many states before a bucket, in order of time; say whether there are more to look at.

    Many at a time: to hand a beam over from outside takes as long as ten states.

    Notes
    -----
    Invariant: no bucket before `NEAREST` has states; what is kept from a state lies in its own bucket or a later one.
    Because: a start takes a GPU for longer and time does not fall, so what GPUs are taken for together only grows.
    Cost: O(states x what `_look_at` costs); it ends after about `most` of them, for the clock.
    If wrong: weaker. States that were passed over are never looked at.
    """
    looked, empty = 0, 0
    while looked < most and empty < len(beam.states) and beam.counts[NEAREST] < until:
        bucket = beam.counts[NEAREST] % len(beam.states)
        if beam.states[bucket] == 0:
            beam.counts[NEAREST] += 1
            empty += 1
        else:
            looked += _look_at(tables, service, guide, beam, bucket)
            empty = 0
    return bool(empty < len(beam.states)) and beam.counts[NEAREST] < until


@inlined
def _look_at(tables: InstanceTables, service: Service | None, guide: Guide, beam: Beam, bucket: int) -> int:
    """Keep what can follow the best states of a bucket, and empty it; what follows may come into it again.

    Return the number of these states.

    Notes
    -----
    Invariant: behind it the bucket holds only what came into it from its own states; their rows are unused again, and
    the trail has one entry for each task that they started.
    Because: the best `width` are listed before the bucket is emptied, and each row is copied to `beam.row` before it is
    given back: what follows may be written over it.
    Cost: O(width x (starts that are possible x numbers of a state)).
    If wrong: weaker, or loud where a trail does not lead back to the beginning: its order is decoded and checked.
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
        came = _leave_trail(service, guide, beam, at)
        beam.unused[beam.counts[FREE_ROWS]] = at
        beam.counts[FREE_ROWS] += 1
        beginning = Beginning(paid, key, came)
        _start_tasks(tables, service, guide, beam, beginning)
        _wait(tables, guide, beam, beginning)
    return int(count)


@inlined
def _leave_trail(service: Service | None, guide: Guide, beam: Beam, at: int) -> int:
    """Write what a state has started last into the trail; return the last entry that leads to it.

    Notes
    -----
    Invariant: of a batch its leader stands first, then one entry for each task that joins it.
    Because: who runs on a GPU until it is free is the batch that started there last, and its row still has all of them.
    Cost: O(1), with batches O(jobs under way x tasks of a job).
    If wrong: loud. A plan would lack a task, or have one twice.
    """
    move = beam.move[at]
    if move == NONE:
        return int(beam.came[at])
    came = _enter(beam, beam.came[at], move)
    if service is not None:
        gpu = move & (JOINS - 1)
        end = beam.rows[at, FIRST_GPU + gpu * beam.gpu_stride + FREE] << GPU_BITS | gpu
        for index in range(beam.rows[at, ACTIVE]):
            job = beam.first_job + index * beam.job_stride
            first = guide.first_task[beam.rows[at, job + JOB]]
            for task in range(beam.job_stride - FIRST_END):
                if beam.rows[at, job + FIRST_END + task] == end and first + task != move >> GPU_BITS:
                    came = _enter(beam, came, (first + task) << GPU_BITS | JOINS | gpu)
    return came


@inlined
def _enter(beam: Beam, came: int, move: int) -> int:
    """Add a start to the trail; return its entry."""
    entry = beam.counts[TRAIL]
    beam.trail_from[entry], beam.trail_move[entry] = came, move
    beam.counts[TRAIL] += 1
    return int(entry * beam.parts + beam.part)


@inlined
def _take_up(guide: Guide, beam: Beam, at: int) -> None:
    """Look at a state, without the jobs all of whose tasks have started.

    Notes
    -----
    Invariant: `beam.row` is the state without jobs of which nothing is left to start; they have paid in `paid`.
    Because: a stage without a longest run has no task left.
    Cost: O(numbers of a state).
    If wrong: weaker, or a row overflows, which `_go_to` refuses.
    """
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
    # Jobs enter in order of release, which `_find_next` relies on.
    while released < len(guide.by_release) and guide.release_us[guide.by_release[released]] <= instant:
        at = beam.first_job + row[ACTIVE] * beam.job_stride
        # More jobs are open than a row holds: such a state cannot be written, and is left out.
        if at >= len(row):
            return False
        job = guide.by_release[released]
        row[at + JOB], row[at + STAGE] = job, guide.first_stage[job]
        for k in range(FIRST_END, beam.job_stride):
            # End 0 on GPU 0: what has not started holds nobody up.
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
    """Return what all jobs that are not done still cost by the guide, less what the GPUs offer from now on.

    Notes
    -----
    Invariant: what a state still costs, told by tables for each unfinished job and each GPU alone.
    Because: at prices of compute jobs do not compete: each pays for its runs, and GPUs sell what is left of them; the
    sum of the two is Lagrange's, but that outputs awaited by a part of what follows count in steps.
    Cost: O(jobs under way + GPUs).
    If wrong: weaker. A guide is no bound; it only chooses which states are kept.
    """
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
        # Who ends beside the next tasks delays only what follows both: told in steps, rounded to the nearest.
        if guide.beside[stage]:
            late_us = _latest_end(beam, job, guide.beside[stage]) - begin - guide.longest_us[stage]
            if late_us > 0:
                line += min((late_us + guide.step_us // 2) // guide.step_us, guide.lines[stage] - 1)
        total += cost_from(guide.cost, line, guide.weight[stage], prices.column_us, begin)
    for gpu in range(len(beam.sorted_us)):
        # A state that has used compute up pays for it, or those that waited would look dear.
        total += price_until(prices, tables.gpu_class[gpu], max(now, row[FIRST_GPU + gpu * beam.gpu_stride + FREE]))
    return float(total)


@inlined
def _find_next(tables: InstanceTables, service: Service | None, guide: Guide, beam: Beam) -> int:
    """Write what can start now; return its number.

    Notes
    -----
    Invariant: of each task that can start now and of each kind of jobs that of the job released first is listed and
    `leads`; tasks of classes are all listed, in the order of their jobs' releases.
    Because: jobs of a kind are alike but for their release, so who came first had better go first; `active` jobs stand
    in order of release. The others may be taken along.
    Cost: O(jobs under way x tasks of a job).
    If wrong: weaker. Starts that are not tried are not found.
    """
    row, count = beam.row, 0
    for kind in range(len(beam.taken)):
        beam.taken[kind] = 0
    for index in range(row[ACTIVE]):
        job = beam.first_job + index * beam.job_stride
        stage, kind = row[job + STAGE], guide.kind[row[job + JOB]]
        for task in range(guide.following.shape[1]):
            follows = beam.taken[kind] >> task & 1
            # It has started, or waits for a task that has not.
            if guide.following[stage, task] < 0 or (service is None and follows):
                continue
            here = guide.first_task[row[job + JOB]] + task
            if service is not None and follows and service.task_batch[here] == NONE:
                continue
            template, waits = tables.task_template[here], False
            for entry in range(tables.input_first[template], tables.input_first[template + 1]):
                # Inputs that are made count as there: how long they travel depends on the GPU, which `_run` knows.
                waits |= row[job + FIRST_END + task + tables.input_offset[entry]] >> GPU_BITS > row[NOW]
            if not waits:
                beam.taken[kind] |= 1 << task
                beam.next_job[count], beam.next_task[count], beam.leads[count] = job, task, 1 - follows
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
        # GPUs that are alike in all this lead to the same states: one of them is enough.
        if tables.gpu_class[other] == tables.gpu_class[gpu]:
            before = FIRST_GPU + other * beam.gpu_stride
            if beam.row[before + FREE] <= beam.row[NOW] and _holds_the_same(beam, before, at):
                return False
    return True


@inlined
def _load(tables: InstanceTables, beam: Beam, at: int, gpu_class: int, model: int, needed: int) -> bool:
    """Load a model on the GPU at some place of the row; models leave by least recent use. Return whether it fits.

    Notes
    -----
    Invariant: as `decoder_loads` with `idle_first`: the same model leaves, the load starts when it would there.
    Because: least recent use first, those spared that the rest makes superfluous; needed ones stay.
    Cost: O(models x models that leave).
    If wrong: weaker. The order that is found is decoded anew, to other times than the beam believed.
    """
    row, models = beam.row, tables.weight_bytes.shape[0]
    earliest, room, size, leaving = row[at + COPIED], row[at + ROOM], tables.weight_bytes[model], 0
    while room < size:
        chosen, first_use = NONE, FAR
        for other in range(models):
            k = at + FIRST_MODEL + 2 * other
            # The lowest number wins a tie.
            if row[k] >= 0 and not (leaving | needed) >> other & 1 and row[k + 1] < first_use:
                chosen, first_use = other, row[k + 1]
        if chosen == NONE:
            return False
        leaving |= 1 << chosen
        room += tables.weight_bytes[chosen]
    for other in range(models):
        # What a later, larger victim made superfluous stays.
        if leaving >> other & 1 and room - tables.weight_bytes[other] >= size:
            leaving ^= 1 << other
            room -= tables.weight_bytes[other]
    for other in range(models):
        if leaving >> other & 1:
            k = at + FIRST_MODEL + 2 * other
            # A load waits for the end of the last use of what it replaces.
            earliest = max(earliest, row[k + 1])
            row[k], row[k + 1] = NONE, NONE
    k, ready = at + FIRST_MODEL + 2 * model, earliest + tables.load_us[model, gpu_class]
    row[at + COPIED], row[at + ROOM], row[k], row[k + 1] = ready, room - size, ready, ready
    return True


@inlined
def _arrival(tables: InstanceTables, beam: Beam, gpu: int, job: int, first: int, task: int) -> int:
    """Return when the inputs of a task of a job have arrived on a GPU, or now if they have."""
    row, template, here = beam.row, tables.task_template[first + task], tables.gpu_class[gpu]
    arrived = row[NOW]
    for entry in range(tables.input_first[template], tables.input_first[template + 1]):
        came = row[job + FIRST_END + task + tables.input_offset[entry]]
        source = came & ((1 << GPU_BITS) - 1)
        # 0: another server, 1: the same server, 2: the same GPU, as `transfer_us` has them.
        close = int(tables.gpu_server[source] == tables.gpu_server[gpu]) + int(source == gpu)
        arrived = max(
            arrived,
            (came >> GPU_BITS) + tables.transfer_us[tables.input_edge[entry], tables.gpu_class[source], here, close],
        )
    return int(arrived)


@inlined
def _run(tables: InstanceTables, beam: Beam, gpu: int, template: int, begin: int, run_us: int) -> int:
    """Run a task or a batch of its class as early as a GPU can; return when it ends, FAR if its models do not fit.

    Parameters
    ----------
    begin, run_us
        When all inputs are there, and how long it takes.

    Notes
    -----
    Invariant: start and end are those that the list decoder gives the task behind all that has started.
    Because: it waits for the same: inputs with their transfers, loads, its GPU.
    Cost: O(models), and what loads cost.
    If wrong: weaker, as with `_load`.
    """
    row, here, needed = beam.row, tables.gpu_class[gpu], 0
    at = FIRST_GPU + gpu * beam.gpu_stride
    for need in range(tables.need_first[template], tables.need_first[template + 1]):
        needed |= 1 << tables.need_model[need]
    for need in range(tables.need_first[template], tables.need_first[template + 1]):
        k = at + FIRST_MODEL + 2 * tables.need_model[need]
        if row[k] < 0 and not _load(tables, beam, at, here, tables.need_model[need], needed):
            return FAR
        begin = max(begin, row[k])
    end = begin + run_us
    for need in range(tables.need_first[template], tables.need_first[template + 1]):
        row[at + FIRST_MODEL + 2 * tables.need_model[need] + 1] = end
    row[at + FREE] = end
    return int(end)


@inlined
def _start_tasks(
    tables: InstanceTables, service: Service | None, guide: Guide, beam: Beam, beginning: Beginning
) -> None:
    """Keep what the state becomes when a task starts next on an idle GPU, or a batch of any size that waits.

    Notes
    -----
    Invariant: behind it `beam.row` is the state that it was: every start is taken back once what follows is kept.
    Because: a start changes one GPU, the jobs of its members, four numbers; the GPU is saved before, the others are
    written back.
    Cost: O(idle GPUs that differ x tasks that can start x what `_rests` costs), with batches times their sizes.
    If wrong: weaker. Later states would have starts that no trail knows, and their orders decode to other plans.
    """
    row, count = beam.row, _find_next(tables, service, guide, beam)
    for gpu in range(len(beam.sorted_us)):
        at = FIRST_GPU + gpu * beam.gpu_stride
        if row[at + FREE] > row[NOW] or not _is_first(tables, beam, gpu):
            continue
        # To save one GPU is cheaper than to copy the whole state, most of which a start leaves alone.
        for k in range(beam.gpu_stride):
            beam.saved[k] = row[at + k]
        for index in range(count):
            job, task = beam.next_job[index], beam.next_task[index]
            first = guide.first_task[row[job + JOB]]
            alone = tables.run_us[tables.task_template[first + task], tables.gpu_class[gpu]]
            if beam.leads[index] == 0 or alone == NEVER:
                continue
            beam.members[0, 0], beam.members[0, 1] = job, task
            begin = _arrival(tables, beam, gpu, job, first, task)
            _start(tables, guide, beam, beginning, gpu, 1, begin, alone)
            if service is not None and service.task_batch[first + task] != NONE:
                _start_batches(tables, service, guide, beam, beginning, gpu, index, count, begin)


@inlined
def _start_batches(
    tables: InstanceTables,
    service: Service,
    guide: Guide,
    beam: Beam,
    beginning: Beginning,
    gpu: int,
    leader: int,
    count: int,
    begin: int,
) -> None:
    """Keep what the state becomes when a batch starts on a GPU, in every size from two on that what waits allows.

    Parameters
    ----------
    leader, count
        Which of so many tasks that can start leads it.
    begin
        When the inputs of the leader are there.

    Notes
    -----
    Invariant: members are of one class, those of jobs that came first, and no more than the GPU takes.
    Because: what can start is listed in order of release.
    Cost: O(tasks that can start + largest size x what `_rests` costs + largest size squared).
    If wrong: loud. The checker refuses a batch of two classes or one that is too large.
    """
    row, gpu_class, size = beam.row, tables.gpu_class[gpu], 1
    batch = service.task_batch[guide.first_task[row[beam.next_job[leader] + JOB]] + beam.next_task[leader]]
    most = service.largest[batch, gpu_class]
    for other in range(count):
        job, task = beam.next_job[other], beam.next_task[other]
        first = guide.first_task[row[job + JOB]]
        if size == most:
            break
        if other == leader or service.task_batch[first + task] != batch:
            continue
        beam.members[size, 0], beam.members[size, 1] = job, task
        begin = max(begin, _arrival(tables, beam, gpu, job, first, task))
        size += 1
        _start(tables, guide, beam, beginning, gpu, size, begin, service.batch_us[batch, gpu_class, size])


@inlined
def _start(
    tables: InstanceTables,
    guide: Guide,
    beam: Beam,
    beginning: Beginning,
    gpu: int,
    size: int,
    begin: int,
    run_us: int,
) -> None:
    """Keep what the state becomes when the first so many listed members start together, and take them back.

    Notes
    -----
    Invariant: behind it `beam.row` is what it was, but for the GPU's place if `saved` was not.
    Because: everything that is written is written back, in reverse order: a job may have several members.
    Cost: O(members x tasks of a job + numbers of a GPU + what `_offer` costs).
    If wrong: weaker, as with `_start_tasks`.
    """
    row, at = beam.row, FIRST_GPU + gpu * beam.gpu_stride
    now, released, active = row[NOW], row[RELEASED], row[ACTIVE]
    leader = guide.first_task[row[beam.members[0, 0] + JOB]] + beam.members[0, 1]
    end = _run(tables, beam, gpu, tables.task_template[leader], begin, run_us)
    if end < FAR:
        cost, key = beginning.paid, beginning.key
        for k in range(size):
            job, task = beam.members[k, 0], beam.members[k, 1]
            stage = row[job + STAGE]
            beam.members[k, 2] = stage
            row[job + STAGE] = guide.following[stage, task]
            row[job + FIRST_END + task] = end << GPU_BITS | gpu
            key ^= beam.task_key[guide.first_task[row[job + JOB]] + task]
            if guide.longest_us[row[job + STAGE]] == 0:
                latest = _latest_end(beam, job, (1 << (beam.job_stride - FIRST_END)) - 1)
                # A job pays once, when its last task has started: then its completion is known.
                cost += guide.weight[stage] * max(0, latest - guide.due_us[row[job + JOB]])
        row[STARTED] += size
        # It may let time pass, hence the three numbers that are put back behind it.
        _offer(tables, guide, beam, Beginning(cost, key, beginning.came), leader << GPU_BITS | gpu, size)
        row[NOW], row[RELEASED], row[ACTIVE] = now, released, active
        row[STARTED] -= size
        for k in range(size - 1, -1, -1):
            job, task = beam.members[k, 0], beam.members[k, 1]
            row[job + STAGE], row[job + FIRST_END + task] = beam.members[k, 2], 0
    for k in range(beam.gpu_stride):
        row[at + k] = beam.saved[k]


@inlined
def _offer(tables: InstanceTables, guide: Guide, beam: Beam, beginning: Beginning, move: int, size: int) -> None:
    """Keep the state that is looked at, or note the whole plan that it is.

    Notes
    -----
    Invariant: a state is kept at the first instant at which some GPU is idle; whole plans are noted, the cheapest
    stays.
    Because: nothing can start before; that all have started is told by their number.
    Cost: O(GPUs + what `keep_state` costs).
    If wrong: weaker.
    """
    row = beam.row
    if row[STARTED] == len(beam.task_key):
        if beginning.paid < beam.best[0]:
            beam.best[0], beam.best_end[0], beam.best_end[1] = beginning.paid, beginning.came, move
            for k in range(1, len(beam.members)):
                beam.best_end[1 + k] = NONE
                if k < size:
                    task = guide.first_task[row[beam.members[k, 0] + JOB]] + beam.members[k, 1]
                    beam.best_end[1 + k] = task << GPU_BITS | JOINS | (move & (JOINS - 1))
        return
    idle_from = row[FIRST_GPU + FREE]
    for gpu in range(1, len(beam.sorted_us)):
        idle_from = min(idle_from, row[FIRST_GPU + gpu * beam.gpu_stride + FREE])
    if idle_from <= row[NOW] or _go_to(guide, beam, idle_from):
        keep_state(beam, beginning.paid + _rests(tables, guide, beam), beginning, move)


@inlined
def _wait(tables: InstanceTables, guide: Guide, beam: Beam, beginning: Beginning) -> None:
    """Keep what the state becomes when nothing starts until the next job is released or the next GPU is free.

    Notes
    -----
    Invariant: time passes to the first instant at which something else than now can start.
    Because: only a release or a GPU that becomes free adds a possible start.
    Cost: O(GPUs + jobs released).
    If wrong: weaker, or endless if time did not pass.
    """
    row, until = beam.row, FAR
    if row[RELEASED] < len(guide.by_release):
        # Whoever waits for longer waits again from there.
        until = guide.release_us[guide.by_release[row[RELEASED]]]
    for gpu in range(len(beam.sorted_us)):
        free = row[FIRST_GPU + gpu * beam.gpu_stride + FREE]
        if free > row[NOW]:
            until = min(until, free)
    if until < FAR and _go_to(guide, beam, until):
        keep_state(beam, beginning.paid + _rests(tables, guide, beam), beginning, NONE)


@kernel
def settle(beam: Beam) -> None:
    """Make the states that were written into the buckets known to them."""
    for bucket in range(len(beam.states)):
        if beam.states[bucket]:
            leave_out(beam, bucket, beam.states[bucket])
