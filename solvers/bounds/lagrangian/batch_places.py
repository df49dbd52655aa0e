"""Places in batches: which part of the price of its batch each task pays, and that no batch is paid more than that.

A batch costs what its compute and its models cost. Its members pay that together, but not each the same: any parts will
do, as long as those of no tasks that fit into one batch add up to more than its price. So who needs a batch that nobody
else would take can pay for it alone. It is the step from the weak to the strong formulation of facility location, where
clients pay for a warehouse (Cornuejols, Nemhauser, Wolsey, The uncapacitated facility location problem, in Discrete
Location Theory, 1990). Who pays how much is found by `bidding`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from truenorth.models.instance import Ints
from truenorth.solvers.bounds.lagrangian.job_paths import PARTS, JobData, Numbers
from truenorth.solvers.bounds.lagrangian.shapes import Forest, Shapes
from truenorth.solvers.compiled import Floats, allocating_kernel


class Places(NamedTuple):
    """The batches whose price is paid in parts.

    Parameters
    ----------
    first
        Per node: the first of its parts, one per option and delay, and their number at the end; -1 for a task that runs
        alone. Shape [nodes + 1].
    most
        Members of the batches of each row of `Forest.places`, at most.
    members
        The same by the end of each slot: no more than tasks of the class can have been started. Shape [rows, slots].
    """

    first: Ints
    most: Ints
    members: Ints


def places_of(trees: Forest, data: JobData, slot_us: int, slots: int) -> Places:
    """Return the places of all counted jobs."""
    shapes = trees.shapes
    first, count = np.full(len(data.earliest_us) + 1, -1, np.int64), 0
    options = np.diff(shapes.option_first)
    placed = shapes.place[shapes.option_first[:-1]] >= 0
    for shape, base, delays in zip(data.shape.tolist(), data.node_first.tolist(), data.delays.tolist(), strict=True):
        for at, node in enumerate(range(shapes.node_first[shape], shapes.node_first[shape + 1])):
            if placed[node]:
                first[base + at] = count
                count += int(options[node]) * delays
    first[-1] = count
    ends_us = np.arange(1, slots + 1, dtype=np.int64) * slot_us
    most = np.array([row.most for row in trees.places], np.int64)
    arrived = [np.searchsorted(np.array(trees.starts_us[row.batch], np.int64), ends_us) for row in trees.places]
    members = np.clip(np.array(arrived, np.int64).reshape(len(most), slots), 1, most[:, None])
    return Places(first, most, members)


@allocating_kernel
def pay_alike(data: JobData, shapes: Shapes, places: Places, slot_us: int, part: Floats) -> None:
    """Let all members pay the same, as many as there can be."""
    for job in range(len(data.shape)):
        shape, base, count = data.shape[job], data.node_first[job], data.delays[job]
        for node in range(shapes.node_first[shape], shapes.node_first[shape + 1]):
            at = places.first[base + node - shapes.node_first[shape]]
            if at < 0:
                continue
            earliest = data.earliest_us[base + node - shapes.node_first[shape]]
            for option in range(shapes.option_first[node], shapes.option_first[node + 1]):
                for k in range(count):
                    last = min((earliest + (k + 1) * slot_us - 1) // slot_us, places.members.shape[1] - 1)
                    part[at + k] = 1 / places.members[shapes.place[option], last]
                at += count


@allocating_kernel
def highest_bid(bids: Numbers, at: int, count: int, slot: int, within: int) -> float:
    """Return the highest bid of a task for a batch that starts in a slot of its own, the `slot`-th from its first.

    A delay begins `within` its slot, and so lies in two of them unless that is 0; the last delay is free.
    """
    best = bids[at + slot] if slot < count - 1 else bids[at] * 0
    return max(best, bids[at + slot - 1]) if slot and within else best


@allocating_kernel
def rank_bids(
    data: JobData, shapes: Shapes, places: Places, slot_us: int, bids: Numbers, top: Numbers, total: Numbers
) -> None:
    """Write the highest bids for each batch, as many as it has members, and what they add up to.

    Parameters
    ----------
    top
        Descending. Shape [rows, slots, most members].
    total
        Shape [rows, slots].
    """
    top[:] = 0
    for job in range(len(data.shape)):
        shape, base, count = data.shape[job], data.node_first[job], data.delays[job]
        first = shapes.node_first[shape]
        for node in range(first, shapes.node_first[shape + 1]):
            at, earliest = places.first[base + node - first], data.earliest_us[base + node - first]
            if at < 0:
                continue
            for option in range(shapes.option_first[node], shapes.option_first[node + 1]):
                row = shapes.place[option]
                last = places.most[row] - 1
                for slot in range(count):
                    offered = highest_bid(bids, at, count, slot, earliest % slot_us)
                    if offered == 0:  # as most are: the ranks, which lie far apart in memory, are left alone
                        continue
                    into = top[row, earliest // slot_us + slot]
                    if offered <= into[last]:
                        continue
                    k = last
                    while k > 0 and into[k - 1] < offered:
                        into[k] = into[k - 1]
                        k -= 1
                    into[k] = offered
                at += count
    for row in range(len(total)):
        for slot in range(total.shape[1]):
            total[row, slot] = 0
            for k in range(places.most[row]):
                total[row, slot] += top[row, slot, k]


@allocating_kernel
def fit_parts(data: JobData, shapes: Shapes, places: Places, slot_us: int, part: Ints) -> None:
    """Scale whole parts down wherever those of a batch add up to more than its price, however little."""
    rows, slots = places.members.shape
    total = np.zeros((rows, slots), np.int64)
    top = np.zeros((rows, slots, max(1, places.most.max()) if rows else 1), np.int64)
    rank_bids(data, shapes, places, slot_us, part, top, total)
    for job in range(len(data.shape)):
        shape, base, count = data.shape[job], data.node_first[job], data.delays[job]
        first = shapes.node_first[shape]
        for node in range(first, shapes.node_first[shape + 1]):
            at, earliest = places.first[base + node - first], data.earliest_us[base + node - first]
            if at < 0:
                continue
            for option in range(shapes.option_first[node], shapes.option_first[node + 1]):
                for k in range(count - 1):
                    begin, paid = earliest // slot_us + k, part[at + k]
                    for slot in range(begin, begin + 1 + (earliest % slot_us > 0)):
                        due = total[shapes.place[option], slot]
                        if due > PARTS:
                            part[at + k] = min(part[at + k], paid * PARTS // due)
                part[at + count - 1] = 0
                at += count
