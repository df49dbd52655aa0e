"""Parts of a beam that several threads look at: their states are pooled and dealt out anew now and then.

Of each bucket as many are kept as a single beam of their widths together would keep, of those that are alike the best;
and every part gets its share of the good ones.
"""

from __future__ import annotations

import numpy as np

from models.instance import Ints
from solvers.search.beam_kernel import settle
from solvers.search.beam_state import ACTIVE, FREE_ROWS, NEAREST, Beam
from solvers.search.decoder_state import ABSENT

LAST = 1 << 62
"""No bucket is as late as this."""


def deal_out(beams: list[Beam], nearest: int, width: int) -> None:
    """Deal out the states of all parts of a beam.

    Parameters
    ----------
    nearest
        The first bucket with states.
    width
        States of a bucket that are kept.
    """
    places = [np.nonzero(np.arange(beam.at.shape[1]) < beam.states[:, None]) for beam in beams]
    ats = [beam.at[place] for beam, place in zip(beams, places, strict=True)]
    buckets = np.concatenate([place[0] for place in places])
    bound = np.concatenate([beam.bound[place] for beam, place in zip(beams, places, strict=True)])
    alike = np.concatenate([beam.alike[place] for beam, place in zip(beams, places, strict=True)])
    kept, rank = _choose(buckets, bound, alike, width)
    source = np.repeat(np.arange(len(beams)), [len(at) for at in ats])[kept]
    at = np.concatenate(ats)[kept]
    length = max((_length(beam, own) for beam, own in zip(beams, ats, strict=True)), default=0)
    rows = np.empty((len(kept), length), np.int64)
    paid, key, came, move = np.empty(len(kept)), *np.empty((3, len(kept)), np.int64)
    for part, beam in enumerate(beams):
        mine = source == part
        rows[mine] = beam.rows[at[mine], :length]
        paid[mine], key[mine] = beam.paid[at[mine]], beam.key[at[mine]]
        came[mine], move[mine] = beam.came[at[mine]], beam.move[at[mine]]
    most = np.full(len(beams[0].most), np.inf)
    full = rank == width - 1
    most[buckets[kept][full]] = bound[kept][full]
    for part, beam in enumerate(beams):
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
        beam.find[:] = ABSENT
        place = rank[mine] // len(beams)
        beam.states[:] = np.bincount(buckets[kept][mine], minlength=len(beam.states))
        beam.at[buckets[kept][mine], place] = np.arange(count)
        beam.bound[buckets[kept][mine], place] = bound[kept][mine]
        beam.alike[buckets[kept][mine], place] = alike[kept][mine]
        settle(beam)
        beam.most[:] = most


def _length(beam: Beam, at: Ints) -> int:
    """Return how many numbers of its rows are in use."""
    return beam.first_job + int(beam.rows[at, ACTIVE].max(initial=0)) * beam.job_stride


def _choose(buckets: Ints, bound: np.ndarray, alike: Ints, width: int) -> tuple[Ints, Ints]:
    """Return the best states of each bucket, of those that are alike one, and which of its bucket each is."""
    order = np.lexsort((bound, alike, buckets))
    new = np.ones(len(order), bool)
    new[1:] = (alike[order][1:] != alike[order][:-1]) | (buckets[order][1:] != buckets[order][:-1])
    order = order[new]
    order = order[np.lexsort((bound[order], buckets[order]))]
    first = np.searchsorted(buckets[order], buckets[order])
    rank = np.arange(len(order)) - first
    return order[rank < width], rank[rank < width]
