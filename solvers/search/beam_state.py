"""The states of a beam search over start orders, and the buckets that hold the best of them.

A state is one row of numbers: the latest start, how many jobs are released and tasks started; per GPU when its engines
are free, its free memory, and per model when it was ready and last used; and per job that is released and not done
its stage and where and when its started tasks end. A bucket holds states by which the GPUs together are taken for
about as long.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from truenorth.models.instance import NONE, Ints
from truenorth.solvers.compiled import Floats, inlined
from truenorth.solvers.search.beam_guide import Guide
from truenorth.solvers.search.decoder_state import ClusterState

NOW, RELEASED, STARTED, ACTIVE, FIRST_GPU = range(5)
"""Where numbers of a state stand: time, jobs released, tasks started, jobs that are released and not done, GPUs."""
FREE, COPIED, ROOM, FIRST_MODEL = range(4)
"""Where numbers of a GPU stand: when its engines are free, free bytes, then per model when ready and when last used."""
JOB, STAGE, FIRST_END = range(3)
"""Where numbers of a job stand: itself, its stage, then by task when it ends, and on which GPU in the lowest bits."""
GPU_BITS = 12
JOINS = 1 << (GPU_BITS - 1)
"""A GPU's number is below it; in a trail it marks a task that joins the batch before it."""

_GOLDEN, _KNUTH = 7046029254386353131, 6364136223846793005
"""Odd numbers that mix bits: 2^64 less 2^64 / golden ratio, rounded down, and the multiplier of Knuth's MMIX."""

FREE_ROWS, TRAIL, NEAREST = range(3)
"""Where counts stand: rows without a state, entries of the trail, the bucket whose states come next."""

_AHEAD, _ROWS_PER_STATE, _MOST_ACTIVE = 128, 30, 200
"""So many buckets are open at a time, rows of states per state of a bucket, and jobs released and not done; what goes
beyond is left out."""
_SEED = 0


class Beam(NamedTuple):
    """What a beam search works on.

    Attributes
    ----------
    rows, paid, key, came, move
        Per state: its numbers; what jobs that are done have cost; a hash of the started tasks; the entry of the trail
        that it came from, and the task and GPU that were added to it, NONE if none.
    row, saved
        The state that is looked at, and room for a GPU of it.
    unused
        Rows without a state.
    counts
        Numbers by themselves; see FREE_ROWS.
    trail_from, trail_move
        Starts of all states that were looked at: the entry before, and task and GPU.
    bound, at, alike, states, most, find
        Per bucket: what its states cost by the guide, their rows, their hashes, their number, the bound from which
        on they are left out, and where to find a hash. Shapes [buckets, 2 x width], [buckets], [buckets, a power of 2].
    due_at
        The states that are looked at in turn.
    next_job, next_task, leads
        What can start next: offset of the job in the row, task of the job, and whether it may be the first of a batch.
    members
        Of the batch that starts: offset of the job in the row, task of the job, the job's stage before. Shape
        [largest, 3].
    taken
        Mask of the tasks per kind of jobs that have one that can start.
    sorted_us
        Room for a time per GPU.
    task_key
        Per task: a random number.
    best, best_end
        The least cost of a whole plan; the last entry of its trail, and its last start, NONE behind its last member.
    by_class, class_from
        The GPUs, those of a class together, and where those of its class begin there.
    grain_us, bucket_us
        States that differ by less than about the first in when GPUs are free count as alike; width of a bucket.
    first_job, gpu_stride, job_stride
        Where the jobs of a row begin, and how many numbers a GPU and a job have.
    part, parts
        Which part of a shared beam it is, and of how many: entry e of its trail is e x parts + part to all of them.
    """

    rows: Ints
    paid: Floats
    key: Ints
    came: Ints
    move: Ints
    row: Ints
    saved: Ints
    unused: Ints
    counts: Ints
    trail_from: Ints
    trail_move: Ints
    bound: Floats
    at: Ints
    alike: Ints
    states: Ints
    most: Floats
    find: Ints
    due_at: Ints
    next_job: Ints
    next_task: Ints
    leads: Ints
    members: Ints
    taken: Ints
    sorted_us: Ints
    task_key: Ints
    best: Floats
    best_end: Ints
    by_class: Ints
    class_from: Ints
    grain_us: int
    bucket_us: int
    first_job: int
    gpu_stride: int
    job_stride: int
    part: int
    parts: int


class Beginning(NamedTuple):
    """What a state has besides its row: the cost of jobs that are done, a hash of its tasks, and where it came from."""

    paid: float
    key: int
    came: int


def start(
    guide: Guide,
    origin: ClusterState,
    gpu_class: Ints,
    tasks: int,
    width: int,
    grain_us: int,
    bucket_us: int,
    part: int = 0,
    parts: int = 1,
    largest: int = 1,
) -> Beam:
    """Return a beam without states, but for what it looks at: the beginning, before the first release.

    Parameters
    ----------
    part, parts
        Which part of a beam it is, and of how many.
    largest
        Most tasks that start together.
    """
    gpus, models = origin.ready.shape
    first_job = FIRST_GPU + gpus * (FIRST_MODEL + 2 * models)
    active = min(len(guide.release_us), _MOST_ACTIVE)
    row = np.zeros(first_job + active * (FIRST_END + guide.following.shape[1]), np.int64)
    held = row[FIRST_GPU:first_job].reshape(gpus, FIRST_MODEL + 2 * models)
    # Both engines are free at 0, the zeros of the row; a model that is not there is ready at NONE.
    held[:, ROOM], held[:, FIRST_MODEL::2], held[:, FIRST_MODEL + 1 :: 2] = origin.room, origin.ready, origin.last_use
    # Twice the states that a bucket can hold, or more: probing stays short, and always ends at an empty place.
    rows, places = _ROWS_PER_STATE * width + 1000, 1 << (4 * width).bit_length()
    counts = np.zeros(3, np.int64)
    # `unused` is a stack: what was given back last is taken first, while it is still in the cache.
    counts[FREE_ROWS] = rows
    # Room for twice the width, so that a bucket is thinned out once per so many states and not at each.
    each = (_AHEAD, 2 * width)
    return Beam(
        rows=np.empty((rows, len(row)), np.int64),
        paid=np.zeros(rows + 1),
        key=np.zeros(rows + 1, np.int64),
        came=np.full(rows + 1, NONE, np.int64),
        move=np.full(rows + 1, NONE, np.int64),
        row=row,
        saved=np.zeros(FIRST_MODEL + 2 * models, np.int64),
        unused=np.arange(rows)[::-1].copy(),
        counts=counts,
        trail_from=np.empty(0, np.int64),
        trail_move=np.empty(0, np.int64),
        bound=np.empty(each),
        at=np.empty(each, np.int64),
        alike=np.empty(each, np.int64),
        states=np.zeros(_AHEAD, np.int64),
        most=np.full(_AHEAD, np.inf),
        find=np.full((_AHEAD, places), NONE, np.int64),
        due_at=np.empty(2 * width, np.int64),
        next_job=np.empty(active * guide.following.shape[1], np.int64),
        next_task=np.empty(active * guide.following.shape[1], np.int64),
        leads=np.empty(active * guide.following.shape[1], np.int64),
        members=np.empty((largest, 3), np.int64),
        taken=np.zeros(int(guide.kind.max()) + 1, np.int64),
        sorted_us=np.zeros(gpus, np.int64),
        # Seeded, so that equal arguments give equal plans; 62 bits, for keys are signed.
        task_key=np.random.default_rng(_SEED).integers(1, 1 << 62, tasks),
        best=np.full(1, np.inf),
        best_end=np.full(1 + largest, NONE, np.int64),
        # Stable, so that the GPUs of a class stay in the order in which they are named.
        by_class=np.argsort(gpu_class, kind="stable"),
        class_from=np.searchsorted(np.sort(gpu_class), np.sort(gpu_class)),
        grain_us=grain_us,
        bucket_us=bucket_us,
        first_job=first_job,
        gpu_stride=FIRST_MODEL + 2 * models,
        job_stride=FIRST_END + guide.following.shape[1],
        part=part,
        parts=parts,
    )


def with_room(beam: Beam, more: int) -> Beam:
    """Return a beam whose trail has room for so many more entries."""
    if int(beam.counts[TRAIL]) + more <= len(beam.trail_from):
        return beam
    empty = np.empty(len(beam.trail_from) + more, np.int64)
    return beam._replace(
        trail_from=np.concatenate((beam.trail_from, empty)), trail_move=np.concatenate((beam.trail_move, empty))
    )


@inlined
def order_by_bound(beam: Beam, bucket: int, count: int, best: int) -> None:
    """Bring the `best` states of a bucket to its front, by Hoare's quickselect.

    Notes
    -----
    Invariant: behind it the first `best` states of the bucket have the least bounds, in no order.
    Because: quickselect keeps everything left of `low` no dearer and everything right of `high` no cheaper.
    Cost: O(states) on average.
    If wrong: weaker. Others than the best would be kept.
    """
    low, high = 0, count - 1
    while low < high:
        pivot = beam.bound[bucket, (low + high) // 2]
        i, j = low, high
        while i <= j:
            # Strictly: equal bounds are swapped, which keeps the parts balanced where many are equal.
            while beam.bound[bucket, i] < pivot:
                i += 1
            while pivot < beam.bound[bucket, j]:
                j -= 1
            if i <= j:
                bound, at, known = beam.bound[bucket, i], beam.at[bucket, i], beam.alike[bucket, i]
                beam.bound[bucket, i], beam.at[bucket, i] = beam.bound[bucket, j], beam.at[bucket, j]
                beam.alike[bucket, i] = beam.alike[bucket, j]
                beam.bound[bucket, j], beam.at[bucket, j], beam.alike[bucket, j] = bound, at, known
                i += 1
                j -= 1
        # Only the part that the last of the best lies in is sorted on.
        if best - 1 <= j:
            high = j
        elif best - 1 >= i:
            low = i
        else:
            break


@inlined
def leave_out(beam: Beam, bucket: int, keep: int) -> None:
    """Keep so many of the best states of a bucket.

    Notes
    -----
    Invariant: the first `keep` states of the bucket are its best, `most` is the dearest of them, `find` finds just
    these, and the rows of the others are unused.
    Because: open addressing knows no deletion, so that the table of hashes is made anew.
    Cost: O(states + places of the table), paid for by as many states that came in.
    If wrong: weaker; a row given back twice would hold two states at once.
    """
    order_by_bound(beam, bucket, beam.states[bucket], keep)
    for place in range(keep, beam.states[bucket]):
        beam.unused[beam.counts[FREE_ROWS]] = beam.at[bucket, place]
        beam.counts[FREE_ROWS] += 1
    beam.states[bucket] = keep
    most = beam.bound[bucket, 0]
    for place in range(keep):
        most = max(most, beam.bound[bucket, place])
    beam.most[bucket] = most
    mask = beam.find.shape[1] - 1
    for place in range(mask + 1):
        beam.find[bucket, place] = NONE
    for place in range(keep):
        slot = beam.alike[bucket, place] & mask
        while beam.find[bucket, slot] != NONE:
            slot = (slot + 1) & mask
        beam.find[bucket, slot] = place


@inlined
def hash_state(beam: Beam, key: int) -> int:
    """Return a hash of the started tasks and of about when GPUs of each class are free, whichever is which.

    Notes
    -----
    Invariant: states that started the same tasks, and whose GPUs of each class, sorted, are free within the same
    grains, have the same hash.
    Because: the key is the exclusive or of a random number per started task, whatever their order; sorted times are
    mixed in one after the other by two multiplications and two shifts, as hash functions end (Steele, Lea, Flood
    2014).
    Cost: O(GPUs), for times are nearly sorted.
    If wrong: weaker. Two states that collide count as alike, and the dearer one is left out; plans are decoded and
    checked whatever was left out.
    """
    row, gpus = beam.row, len(beam.sorted_us)
    # An insertion sort within each class: one start moves one GPU, so that little is out of order.
    for index in range(gpus):
        free, k = max(row[FIRST_GPU + beam.by_class[index] * beam.gpu_stride + FREE], row[NOW]), index
        while k > beam.class_from[index] and beam.sorted_us[k - 1] > free:
            beam.sorted_us[k] = beam.sorted_us[k - 1]
            k -= 1
        beam.sorted_us[k] = free
    found = key
    for gpu in range(gpus):
        found ^= (beam.sorted_us[gpu] // beam.grain_us + 1) * _GOLDEN
        found = (found ^ (found >> 29)) * _KNUTH
        found ^= found >> 32
    return found


@inlined
def keep_state(beam: Beam, bound: float, beginning: Beginning, move: int) -> None:
    """Keep the state that is looked at if it is among the best of its bucket, or better than one that is alike.

    Notes
    -----
    Invariant: a bucket holds each hash once, with the least bound it came with, and no more than twice its width.
    Because: who comes in full buckets above `most` is refused; who is alike takes the place of the dearer one.
    Cost: O(GPUs + numbers of a state).
    If wrong: weaker. What is left out is never looked at; nothing invalid is kept.
    """
    row, gpus = beam.row, len(beam.sorted_us)
    taken_us = 0
    for gpu in range(gpus):
        # An idle GPU is taken until now: no later start can use what has passed.
        taken_us += max(row[FIRST_GPU + gpu * beam.gpu_stride + FREE], row[NOW])
    buckets, nearest = len(beam.states), beam.counts[NEAREST]
    # Buckets are a ring: what is too early or too late for it goes to the nearest end.
    bucket = min(max(taken_us // beam.bucket_us, nearest), nearest + buckets - 1) % buckets
    if bound >= beam.most[bucket]:  # the bucket was full of better ones when it was last thinned out
        return
    found, mask, place = hash_state(beam, beginning.key), beam.find.shape[1] - 1, NONE
    slot = found & mask
    while beam.find[bucket, slot] != NONE:
        if beam.alike[bucket, beam.find[bucket, slot]] == found:
            place = beam.find[bucket, slot]
            if bound >= beam.bound[bucket, place]:
                return
            break
        slot = (slot + 1) & mask
    if place == NONE:
        # No row is left for it; a beam that is so full leaves it out as it leaves out the dear ones.
        if beam.counts[FREE_ROWS] == 0:
            return
        beam.counts[FREE_ROWS] -= 1
        place = beam.states[bucket]
        beam.find[bucket, slot] = place
        beam.alike[bucket, place], beam.at[bucket, place] = found, beam.unused[beam.counts[FREE_ROWS]]
        beam.states[bucket] += 1
    at = beam.at[bucket, place]
    beam.bound[bucket, place] = bound
    # What stands behind the jobs that are open is left from other states and never read.
    for k in range(beam.first_job + row[ACTIVE] * beam.job_stride):
        beam.rows[at, k] = row[k]
    beam.paid[at], beam.key[at], beam.came[at], beam.move[at] = beginning.paid, beginning.key, beginning.came, move
    # Half of a full bucket leaves at once: so that each state costs a constant number of steps, on average.
    if beam.states[bucket] == beam.at.shape[1]:
        leave_out(beam, bucket, beam.at.shape[1] // 2)
