"""Places in batches: what the best sequence of batches of a class sells them for.

A task that runs as one of b takes a place in a batch of b. Who fills batches sells places, whole batches at a time,
and never more in all than tasks of the class can have been started by then: so a task pays for a large batch what it
is worth to wait until there are enough for one. Without these prices a task enjoys its part of a full batch alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from models.instance import Ints
from solvers.bounds.lagrangian.job_paths import Numbers
from solvers.bounds.lagrangian.shapes import Forest
from solvers.compiled import allocating_kernel

SIZES = 1 << 20
"""Above every size of a batch: a row and a size are one number."""


class Places(NamedTuple):
    """The batches whose places have a price, in slots of their own.

    Parameters
    ----------
    slot_us
        No narrower than the slots of the other prices.
    first
        First row of each class, and the number of rows at the end: those of a class lie together.
    row
        Rows of prices by class. Shape [rows].
    fewest, most
        Members of the batches, in the order of `row`.
    arrived
        How many tasks of each class can have started by the end of each slot. Shape [classes, slots].
    """

    slot_us: int
    first: Ints
    row: Ints
    fewest: Ints
    most: Ints
    arrived: Ints


def places_of(trees: Forest, slot_us: int, horizon_us: int) -> Places:
    """Return the places of all classes, in slots that cover all starts before the horizon."""
    classes = sorted({row.batch for row in trees.places})
    rows = sorted(range(len(trees.places)), key=lambda at: trees.places[at].batch)
    first = np.searchsorted([trees.places[at].batch for at in rows], [*classes, 1 << 60])
    ends_us = np.arange(1, horizon_us // slot_us + 3, dtype=np.int64) * slot_us
    arrived = [np.searchsorted(np.array(trees.starts_us[batch]), ends_us) for batch in classes]
    return Places(
        slot_us,
        first.astype(np.int64),
        np.array(rows, np.int64),
        np.array([trees.places[at].fewest for at in rows], np.int64),
        np.array([trees.places[at].most for at in rows], np.int64),
        np.array(arrived, np.int64).reshape(len(classes), len(ends_us)),
    )


@allocating_kernel
def sell_places(prices: Numbers, places: Places, value: Numbers, taken: Ints) -> float:
    """Return what the best sequences of batches sell their places for, and note in `taken` which they are.

    Parameters
    ----------
    prices
        Of a place. Shape [rows, slots].
    value
        Room to work in: by how many places were sold before, what is sold later on. Shape [most tasks of a class + 1].
    taken
        Per class, slot and places sold before: the row and the members of the next batch in it, 0 for none. Shape
        [classes, slots, most tasks of a class + 1].
    """
    total = value[0] * 0
    for of_class in range(len(places.first) - 1):
        value[:] = 0
        for slot in range(prices.shape[1] - 1, -1, -1):
            arrived = places.arrived[of_class, slot]
            taken[of_class, slot, : arrived + 1] = 0
            highest = value[0] * 0
            for at in range(places.first[of_class], places.first[of_class + 1]):
                highest = max(highest, prices[places.row[at], slot])
            if highest == 0:
                continue
            # Downwards: a batch may follow another one in the same slot, on another GPU.
            for sold in range(arrived - 1, -1, -1):
                best, batch = value[sold], 0
                for at in range(places.first[of_class], places.first[of_class + 1]):
                    price = prices[places.row[at], slot]
                    for size in range(places.fewest[at], min(places.most[at], arrived - sold) + 1):
                        worth = size * price + value[sold + size]
                        if worth > best:
                            best, batch = worth, at * SIZES + size
                value[sold], taken[of_class, slot, sold] = best, batch
        total += value[0]
    return total


@allocating_kernel
def count_sold(places: Places, taken: Ints, excess: Numbers) -> None:
    """Take the places that were sold off the excess of each row. Shape [rows, slots]."""
    for of_class in range(len(places.first) - 1):
        sold = 0
        for slot in range(excess.shape[1]):
            while taken[of_class, slot, sold] > 0:
                batch = taken[of_class, slot, sold]
                excess[places.row[batch // SIZES], slot] -= batch % SIZES
                sold += batch % SIZES
