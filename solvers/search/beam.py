"""A beam search over start orders, guided by the prices of the Lagrangian.

Plans are built start by start in order of time: on a GPU that is idle starts one of the tasks that can, or nothing
does until the next release or end. Of all beginnings by which the GPUs are taken for about as long, the few are kept
that cost least by the guide (`beam_guide`): what is done has cost, what the rests of jobs cost at the prices of
compute, less the price of what the GPUs still offer. Of those that have started the same tasks and whose GPUs are free
at about the same times one is kept. Beam search goes back to Lowerre (The Harpy speech recognition system, 1976); in
scheduling Ow and Morton (International Journal of Production Research 26, 1988).

Several threads look at parts of one beam, whose states are pooled and dealt out anew now and then. Of each bucket as
many are kept as a single beam of their widths together would keep, of those that are alike the best; and every part
gets its share of the good ones.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

from truenorth.models.features import NO_RULES, Feature, missing
from truenorth.models.instance import NONE, Instance, Ints
from truenorth.models.objective import Objective, Term, charges
from truenorth.models.timeline import Timeline
from truenorth.solvers.bounds.lagrangian.improve import Priced
from truenorth.solvers.result import Search
from truenorth.solvers.search.beam_guide import Guide, tabulate
from truenorth.solvers.search.beam_kernel import keep_first, look_on, settle
from truenorth.solvers.search.beam_state import (
    ACTIVE,
    FREE_ROWS,
    GPU_BITS,
    JOINS,
    NEAREST,
    TRAIL,
    Beam,
    start,
    with_room,
)
from truenorth.solvers.search.decoder import Decisions, Decoder

MOST_GPUS, MOST_MODELS = 64, 60
"""A state holds a few numbers for each model on each GPU."""
MOST_DUE = 400
"""Jobs that are due at times of their own have tables of their own: of more jobs these would be too coarse."""

_BUCKETS_PER_TASK = 3
"""Buckets that a task fills on average, so that few starts stay within one; not measured."""
_GRAINS = (6, 12, 4, 9)
"""GPUs that differ in when they are free by less than the mean critical path over this are alike, search by search."""
_FIRST_WIDTH, _MOST_WIDTH, _GROWTH = 50, 2000, 2
"""States of a bucket at first and at most, and how many times as many the next beam has; not measured one by one."""
_S_PER_STATE, _FIRST_SHARE = 2.5e-5, 0.5
"""What a state of the width and a task take, as measured, and the share of the time that the first plan may take."""
_AT_ONCE = 5000
"""States between two looks at the clock: about a tenth of a second."""
_FIRST_ALONE, _TOGETHER = 10, 100
"""Buckets that the first of several threads looks at alone, for there are few states until then; and buckets between
two moments at which all of them deal out their states anew. Every 10 took 5.7 s for 4, and found no better plan."""
LAST = 1 << 62
"""No bucket is as late as this."""
_TRIES = 3
"""If so many beams find no better plan than what was known, no more are tried."""
_MISSES = 2
"""With batches, where the guide is weaker, no more are tried after so many in a row that gain nothing."""


SUPPORTS = NO_RULES | {Feature.WORKFLOWS, Feature.MODELS, Feature.PLACES, Feature.BATCHES}


def applies(instance: Instance, objective: Objective) -> bool:
    """Say whether a window is small enough, and jobs cost by how long they end after a due time."""
    charged = charges(objective, instance)
    if not charged.is_sum or charged.term is Term.LATE or missing(instance, SUPPORTS):
        return False
    few = instance.n_gpus <= MOST_GPUS and len(instance.models) <= MOST_MODELS
    due_later = charged.due_us > instance.job_release_us + instance.job_critical_us
    return few and int(due_later.sum()) <= MOST_DUE


def guide_of(search: Search, priced: Priced) -> Guide | None:
    """Return what guides the beams of a search at prices of the Lagrangian; None if that would be too large."""
    rate = priced.prices.compute / priced.relaxation.scale
    return tabulate(search.instance, search.objective, rate, priced.relaxation.slot_us)


def improve(search: Search, guide: Guide, limit_s: float, seed: int = 0, threads: int = 1) -> None:
    """Offer the plans of ever wider beams until the time is up, or the first ones are no better than what is known.

    The widest are tried once for each way in which states count as alike: again they would find the same. A first one
    that leaves no time for a wider one is the only one.

    Parameters
    ----------
    limit_s
        Seconds from now.
    seed
        Which states count as alike first.
    threads
        So many look at a part of each beam.
    """
    clock = search.clock.child(limit_s, lambda: search.proved)
    decoder, turn, known = Decoder(search.instance, search.objective, idle_first=True), 0, search.value
    # A first beam that is cut off has no plan at all: its width is what half the time is good for.
    affordable = int(threads * _FIRST_SHARE * limit_s / (_S_PER_STATE * search.instance.n_tasks))
    width, most = max(1, min(_FIRST_WIDTH, affordable)), len(_GRAINS)
    widest = misses = 0
    patience = _MISSES if (search.instance.template_batch != NONE).any() else LAST
    # Three that gain nothing say that wider ones will hardly either.
    while not clock.is_set() and (turn < _TRIES or search.value != known) and widest < most and misses < patience:
        begun_s, before = clock.elapsed_s, search.value
        timeline = plan(decoder, guide, width, _GRAINS[(seed + turn) % most], clock.is_set, threads, clock.count)
        if timeline is not None:
            search.offer(timeline)
        misses = 0 if search.value != before else misses + 1
        # Another grain each time: what counts as alike differs, and with it which states survive.
        turn += 1
        took_s = clock.elapsed_s - begun_s
        grown = min(threads * _MOST_WIDTH, _GROWTH * width)
        # Counted once the width has stopped growing.
        widest += grown == width
        if clock.elapsed_s + took_s * grown / width <= limit_s:
            width = grown
        elif turn == 1 or clock.elapsed_s + took_s > limit_s:
            return  # after a first one that takes so long annealing gains more than a second


def plan(
    decoder: Decoder,
    guide: Guide,
    width: int,
    grains: int,
    enough: Callable[[], bool],
    threads: int = 1,
    count: Callable[[int], None] = lambda states: None,
) -> Timeline | None:
    """Return the best plan of a beam of some width, None if it finds none before it is enough.

    Parameters
    ----------
    decoder
        One by whose rule the model that has been idle for longest leaves, as in the states of a beam.
    grains
        GPUs that differ in when they are free by less than the mean critical path over this are alike.
    threads
        So many look at a part of the states each, and deal them out anew now and then.
    count
        Told of so many more starts that were looked at; each takes about as long as a move of local search.
    """
    instance = decoder.instance
    work_us = int(decoder.tables.fastest_us[instance.task_template].sum())
    bucket_us = max(1, work_us // (_BUCKETS_PER_TASK * instance.n_tasks))
    grain_us = max(1, int(instance.job_critical_us.mean()) // grains)
    # Rounded up: parts together keep no fewer than one beam would.
    each, largest = -(-width // threads), int(instance.batch_largest.max(initial=1))
    sizes = instance.n_tasks, each, grain_us, bucket_us
    beams = [
        start(guide, decoder.origin, instance.gpu_class, *sizes, part, threads, largest) for part in range(threads)
    ]
    keep_first(guide, beams[0])
    # Kernels release the lock of the interpreter, so that threads suffice.
    until = _FIRST_ALONE if threads > 1 else LAST
    with ThreadPoolExecutor(threads) as pool:
        while any(beam.states.any() for beam in beams):
            look = partial(_look_until, decoder, guide, until, enough, count)
            beams = list(pool.map(look, beams))
            # Cut off; once no states are left the plan is whole, whatever the clock says.
            if enough() and any(beam.states.any() for beam in beams):
                return None
            if threads > 1:
                deal_out(beams, until, width)
                until += _TOGETHER
    return _timeline(decoder, beams)


def _look_until(
    decoder: Decoder, guide: Guide, until: int, enough: Callable[[], bool], count: Callable[[int], None], beam: Beam
) -> Beam:
    """Look on at the states of a beam before a bucket, unless it is enough."""
    more = True
    while more and not enough():
        # A kernel cannot grow arrays: room for the states of one call, and those of its last bucket.
        beam = with_room(beam, (_AT_ONCE + beam.at.shape[1]) * len(beam.members))
        before = int(beam.counts[TRAIL])
        more = look_on(decoder.tables, decoder.service, guide, beam, _AT_ONCE, until)
        count(int(beam.counts[TRAIL]) - before)
    return beam


def _timeline(decoder: Decoder, beams: list[Beam]) -> Timeline | None:
    """Return the best plan that a beam, or any of its parts, came to."""
    best = min(beams, key=lambda beam: float(beam.best[0]))
    if best.best_end[1] == NONE:
        return None
    came, *last = best.best_end.tolist()
    moves = [move for move in last if move != NONE][::-1]
    while came != NONE:
        # The trail of a state leads through the parts that held it, from the last start back to the first.
        entry, part = divmod(came, len(beams))
        moves.append(int(beams[part].trail_move[entry]))
        came = int(beams[part].trail_from[entry])
    moved = np.array(moves[::-1], np.int64)
    order = moved >> GPU_BITS
    gpu, joins = np.empty((2, len(order)), np.int64)
    gpu[order], joins[order] = moved & (JOINS - 1), (moved & JOINS) // JOINS
    return decoder.timeline(Decisions(order, gpu, joins))


def deal_out(beams: list[Beam], nearest: int, width: int) -> None:
    """Deal out the states of all parts of a beam.

    Parameters
    ----------
    nearest
        The first bucket with states.
    width
        States of a bucket that are kept.
    """
    # In order of buckets: `_choose` sorts within them alone.
    places = [np.nonzero(np.arange(beam.at.shape[1]) < beam.states[:, None]) for beam in beams]
    ats = [beam.at[place] for beam, place in zip(beams, places, strict=True)]
    buckets = np.concatenate([place[0] for place in places])
    bound = np.concatenate([beam.bound[place] for beam, place in zip(beams, places, strict=True)])
    alike = np.concatenate([beam.alike[place] for beam, place in zip(beams, places, strict=True)])
    kept, rank = _choose(buckets, bound, alike, width)
    source = np.repeat(np.arange(len(beams)), [len(at) for at in ats])[kept]
    at = np.concatenate(ats)[kept]
    length = max((_length(beam, own) for beam, own in zip(beams, ats, strict=True)), default=0)
    # As long as the longest row in use; most have few open jobs.
    rows = np.empty((len(kept), length), np.int64)
    paid, key, came, move = np.empty(len(kept)), *np.empty((3, len(kept)), np.int64)
    for part, beam in enumerate(beams):
        mine = source == part
        rows[mine] = beam.rows[at[mine], :length]
        paid[mine], key[mine] = beam.paid[at[mine]], beam.key[at[mine]]
        came[mine], move[mine] = beam.came[at[mine]], beam.move[at[mine]]
    most = np.full(len(beams[0].most), np.inf)
    # The last that is kept of a full bucket is what later ones must beat, in every part.
    full = rank == width - 1
    most[buckets[kept][full]] = bound[kept][full]
    for part, beam in enumerate(beams):
        # Dealt like cards, best first: every part gets its share of the good ones.
        mine = np.flatnonzero(rank % len(beams) == part)[: len(beam.unused)]  # the others have no row
        count = len(mine)
        beam.rows[:count, :length] = rows[mine]
        beam.paid[:count], beam.key[:count], beam.came[:count], beam.move[:count] = (
            paid[mine],
            key[mine],
            came[mine],
            move[mine],
        )
        beam.unused[:] = np.arange(len(beam.unused))[::-1]
        beam.counts[FREE_ROWS], beam.counts[NEAREST] = len(beam.unused) - count, nearest
        beam.find[:] = NONE
        place = rank[mine] // len(beams)
        beam.states[:] = np.bincount(buckets[kept][mine], minlength=len(beam.states))
        beam.at[buckets[kept][mine], place] = np.arange(count)
        beam.bound[buckets[kept][mine], place] = bound[kept][mine]
        beam.alike[buckets[kept][mine], place] = alike[kept][mine]
        # Places were written behind the back of the tables of hashes: they are made anew.
        settle(beam)
        beam.most[:] = most


def _length(beam: Beam, at: Ints) -> int:
    """Return how many numbers of its rows are in use."""
    return beam.first_job + int(beam.rows[at, ACTIVE].max(initial=0)) * beam.job_stride


def _choose(buckets: Ints, bound: np.ndarray, alike: Ints, width: int) -> tuple[Ints, Ints]:
    """Return the best states of each bucket, of those that are alike one, and which of its bucket each is."""
    # The last key counts first: by bucket, then by hash, then by bound.
    order = np.lexsort((bound, alike, buckets))
    # The first of each run of equal hashes is its cheapest.
    new = np.ones(len(order), bool)
    new[1:] = (alike[order][1:] != alike[order][:-1]) | (buckets[order][1:] != buckets[order][:-1])
    order = order[new]
    order = order[np.lexsort((bound[order], buckets[order]))]
    first = np.searchsorted(buckets[order], buckets[order])
    rank = np.arange(len(order)) - first
    return order[rank < width], rank[rank < width]
