"""Places in batches: which task pays which part of the price of a batch.

A batch of a class costs what its compute and its models cost. Its members pay that together, but not each the same: the
most that any of its tasks together would pay, as many as fit into it, is its price. So who needs a batch that nobody
else would take pays for it alone. It is the step from the weak to the strong formulation of facility location, where
clients share the price of a warehouse (Cornuejols, Nemhauser, Wolsey, The uncapacitated facility location problem, in
Discrete Location Theory, 1990).

What a task would pay at a start is a bid: what its job is worth to it less what the job costs there anyhow. Bids that
add up to more than the price, or less, are scaled to it. So all that moves is one number per task, as in dual ascent
for facility location (Erlenkotter, Operations Research 26, 1978).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from models.instance import Ints
from solvers.bounds.lagrangian.job_paths import PARTS, JobData, Numbers
from solvers.bounds.lagrangian.shapes import Forest, Shapes
from solvers.compiled import Floats, allocating_kernel


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
def bid(
    data: JobData,
    shapes: Shapes,
    places: Places,
    value: Floats,
    worth: Floats,
    rest: Floats,
    usual_rest: Floats,
    past: float,
    bids: Floats,
) -> None:
    """Write what each task would pay for its batch, by option and delay.

    Parameters
    ----------
    value
        What each job pays now.
    worth
        What a job may cost, as each of its tasks sees it: above it no place is worth anything. Shape [nodes].
    rest, usual_rest, past
        What a job costs with a task there, but for the task's part of the batch; its running mean, in which the past
        weighs so much.
    """
    for job in range(len(data.shape)):
        shape, base, count = data.shape[job], data.node_first[job], data.delays[job]
        first = shapes.node_first[shape]
        for node in range(first, shapes.node_first[shape + 1]):
            at = places.first[base + node - first]
            if at < 0:
                continue
            for _ in range(shapes.option_first[node], shapes.option_first[node + 1]):
                for k in range(at, at + count - 1):
                    usual_rest[k] = past * usual_rest[k] + (1 - past) * rest[k]
                    bids[k] = max(0.0, worth[base + node - first] - usual_rest[k])
                bids[at + count - 1] = 0
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
def share_price(
    data: JobData,
    shapes: Shapes,
    places: Places,
    slot_us: int,
    bids: Numbers,
    top: Numbers,
    total: Numbers,
    part: Numbers,
) -> None:
    """Write the parts that tasks pay: their bids, scaled so that those of no batch add up to more than its price.

    Who bids less than all members of a batch may pay as much as the lowest of them. Where nobody bids all pay alike.
    """
    for job in range(len(data.shape)):
        shape, base, count = data.shape[job], data.node_first[job], data.delays[job]
        first = shapes.node_first[shape]
        for node in range(first, shapes.node_first[shape + 1]):
            at, earliest = places.first[base + node - first], data.earliest_us[base + node - first]
            if at < 0:
                continue
            for option in range(shapes.option_first[node], shapes.option_first[node + 1]):
                row = shapes.place[option]
                most = places.most[row]
                for k in range(count - 1):
                    begin = earliest // slot_us + k
                    paid = 1.0
                    # Wherever in its delay the task starts, it pays no more than is right there.
                    for slot in range(begin, begin + 1 + (earliest % slot_us > 0)):
                        if total[row, slot] > 0:
                            right = max(bids[at + k], top[row, slot, most - 1]) / total[row, slot]
                        else:
                            right = 1 / places.members[row, slot]
                        paid = min(paid, right)
                    part[at + k] = paid
                at += count


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


@allocating_kernel
def count_sold(
    data: JobData,
    shapes: Shapes,
    places: Places,
    slot_us: int,
    bids: Floats,
    top: Floats,
    option: Ints,
    start_us: Ints,
    part: Floats,
    sold: Floats,
    excess: Floats,
) -> None:
    """Write how much too seldom each task is counted on: once, less how often its bid is among those for a batch sold.

    Parameters
    ----------
    option, start_us, part
        What the paths chose, see `Choice`.
    sold
        Room to work in: how often each batch is sold. Shape [rows, slots].
    excess
        Shape [nodes].
    """
    sold[:] = 0
    for job in range(len(data.shape)):
        shape, base = data.shape[job], data.node_first[job]
        for node in range(base, base + shapes.node_first[shape + 1] - shapes.node_first[shape]):
            excess[node] = 0
            row = shapes.place[option[node]]
            # Alone a task pays all there is to pay, whatever others bid.
            if row >= 0 and start_us[node] >= 0 and places.most[row] > 1:
                sold[row, start_us[node] // slot_us] += part[node]
                excess[node] = 1
    for job in range(len(data.shape)):
        shape, base, count = data.shape[job], data.node_first[job], data.delays[job]
        first = shapes.node_first[shape]
        for node in range(first, shapes.node_first[shape + 1]):
            at, earliest = places.first[base + node - first], data.earliest_us[base + node - first]
            if at < 0:
                continue
            for taken in range(shapes.option_first[node], shapes.option_first[node + 1]):
                row = shapes.place[taken]
                for slot in range(count):
                    batches = sold[row, earliest // slot_us + slot]
                    if batches > 0:
                        offered = highest_bid(bids, at, count, slot, earliest % slot_us)
                        if offered > 0 and offered >= top[row, earliest // slot_us + slot, places.most[row] - 1]:
                            excess[base + node - first] -= batches
                at += count
