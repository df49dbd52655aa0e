"""The best residencies of one model on one GPU at given prices: a shortest path through off, loading and on.

Being on costs memory and earns what tasks pay for running with the model; loading costs memory and the copy engine
(and compute, where loads do not overlap it). Both are piecewise linear in the instants of change, so those can be
taken at the edges of slots, a load beginning or ending there: the path is exact in continuous time.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from truenorth.solvers.bounds.lagrangian.job_paths import FAR, Numbers
from truenorth.solvers.compiled import Floats, allocating_kernel

Codes = NDArray[np.int8]
Flags = NDArray[np.bool_]

STAY, READY_AT_EDGE, BEGUN_AT_EDGE = 0, 1, 2


@allocating_kernel
def _until(prefix: Numbers, rate: Numbers, instant: int, slot_us: int) -> float:
    """Return the price from time 0 to an instant."""
    price: float = prefix[instant // slot_us] + rate[instant // slot_us] * (instant % slot_us)
    return price


@allocating_kernel
def best_residencies(
    on_rate: Numbers,
    load_prefix: Numbers,
    load_rate: Numbers,
    load_us: int,
    slot_us: int,
    starts_on: bool,
    on_by: Codes,
    off_by: Flags,
) -> float:
    """Return the cost (at most 0) of the best residencies; write how each state was reached.

    Parameters
    ----------
    on_rate
        Cost per microsecond of being resident, per slot. Shape [slots].
    load_prefix, load_rate
        Cost of loading: from 0 to the beginning of each slot, and per microsecond in it. Shape [slots + 1].
    starts_on
        Whether the model is resident at 0 (it may be dropped there for nothing).
    on_by
        How "on" was reached at the beginning of each slot: STAY, READY_AT_EDGE or BEGUN_AT_EDGE (the load).
    off_by
        Whether "off" was reached by an eviction there.
    """
    slots = len(on_rate)
    on, off = np.empty(slots + 1, load_prefix.dtype), np.zeros(slots + 1, load_prefix.dtype)
    # Initially resident models are on at no cost; they may be dropped in the first step.
    on[0] = 0 if starts_on else FAR
    on_by[:], off_by[:] = STAY, False
    # An optimal load begins or ends at the edge of a slot, so two candidates per slot suffice.
    reach, within = load_us // slot_us, load_us % slot_us
    for k in range(slots + 1):
        if k:
            on[k] = on[k - 1] + on_rate[k - 1] * slot_us
        begin = k * slot_us - load_us
        if begin >= 0:
            cost = load_prefix[k] - _until(load_prefix, load_rate, begin, slot_us) + off[begin // slot_us]
            if cost < on[k]:
                on[k], on_by[k] = cost, READY_AT_EDGE
        begun = k - 1 - reach
        if within and begun >= 0:
            cost = _until(load_prefix, load_rate, begun * slot_us + load_us, slot_us) - load_prefix[begun]
            cost += off[begun] + on_rate[k - 1] * (slot_us - within)
            if cost < on[k]:
                on[k], on_by[k] = cost, BEGUN_AT_EDGE
        if k:
            off[k] = off[k - 1]
        # Evicting is free at any instant.
        if on[k] < off[k]:
            off[k], off_by[k] = on[k], True
    least: float = off[slots]
    return least


@allocating_kernel
def spread(usage: Floats, begin: int, end: int, slot_us: int, amount: float) -> None:
    """Add `amount` times the microseconds of [begin, end) that lie in each slot."""
    slot, last = begin // slot_us, end // slot_us
    if slot == last:
        usage[slot] += amount * (end - begin)
        return
    usage[slot] += amount * ((slot + 1) * slot_us - begin)
    for u in range(slot + 1, last):
        usage[u] += amount * slot_us
    if end > last * slot_us:
        usage[last] += amount * (end - last * slot_us)


@allocating_kernel
def trace_residencies(
    load_us: int, slot_us: int, on_by: Codes, off_by: Flags, copies: int, on_usage: Floats, load_usage: Floats
) -> None:
    """Add the time on and the time loading, per slot, of the path that `best_residencies` found, `copies` times."""
    k = len(on_by) - 1
    # The path ends off: the last stay on is the one that was given up last.
    while k > 0 and not off_by[k]:
        k -= 1
    while k > 0:
        if on_by[k] == STAY:
            on_usage[k - 1] += copies * slot_us
            k -= 1
            continue
        if on_by[k] == READY_AT_EDGE:
            begin = k * slot_us - load_us
        else:
            begin = (k - 1 - load_us // slot_us) * slot_us
            on_usage[k - 1] += copies * (slot_us - load_us % slot_us)
        spread(load_usage, begin, begin + load_us, slot_us, copies)
        k = begin // slot_us
        while k > 0 and not off_by[k]:
            k -= 1
