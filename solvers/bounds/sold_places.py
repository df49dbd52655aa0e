"""Prices of places in batches, for the verifier: read, and what whole batches sell them for at most."""

from __future__ import annotations

from bisect import bisect_left

import numpy as np

from solvers.bounds.certified import LATEST, RefusedError, Wholes, as_list, get, table, whole
from solvers.bounds.ways import Way, Ways

_Key = tuple[int, int, int]
"""Batch class, GPU class, fewest members."""


class SoldPlaces:
    """The prices of places, in slots of their own; none if a certificate has none.

    Parameters
    ----------
    parameters, prices
        What a certificate holds.
    templates
        How many there are.
    slot_us, reach_us
        Width of the certificate's slots, and until when they last.
    """

    def __init__(
        self, ways: Ways, parameters: object, prices: object, templates: int, slot_us: int, reach_us: int
    ) -> None:
        self._starts_us = ways.starts_us
        self._ways: dict[_Key, Way] = {}
        self._price: dict[_Key, Wholes] = {}
        if not isinstance(parameters, dict) or "places" not in parameters:
            return
        self._ways = {_key(way): way for template in range(templates) for way in ways.of(template)}
        self._slot_us = whole(get(parameters, "place_us"), slot_us, LATEST, "place_us")
        columns = reach_us // self._slot_us + 2
        listed = as_list(get(parameters, "places"), None, "places")
        read = table(get(prices, "places"), len(listed), columns, "places")
        for entry, price in zip(listed, read, strict=True):
            key = tuple(whole(get(entry, name), 0, LATEST, "places") for name in ("batch", "gpu_class", "fewest"))
            batch, gpu_class, fewest = key
            if key not in self._ways or key in self._price:
                raise RefusedError("places names batches that cannot be, or some twice")
            self._price[batch, gpu_class, fewest] = price

    def least(self, way: Way, earliest_us: int, count: int, slot_us: int) -> Wholes | int:
        """Return what a place costs that is taken in [earliest + k, earliest + k + 1) slots, for `count` delays k."""
        price = self._price.get(_key(way))
        if price is None:
            return 0
        begin = earliest_us + np.arange(count, dtype=np.int64) * slot_us
        # No wider than a slot of places, an interval lies in two of them at most.
        return np.asarray(np.minimum(price[begin // self._slot_us], price[(begin + slot_us - 1) // self._slot_us]))

    def proceeds(self) -> int:
        """Return what batches sell their places for at most, those of each class one after the other."""
        return sum(self._of_class(batch) for batch in sorted({batch for batch, _, _ in self._price}))

    def _of_class(self, batch: int) -> int:
        starts = self._starts_us[batch]
        rows = [(self._ways[key], price.tolist()) for key, price in self._price.items() if key[0] == batch]
        best = [0] * (len(starts) + 1)  # by how many places are sold at most
        for slot in range(len(rows[0][1])):
            sold = [(way.fewest, way.most, price[slot]) for way, price in rows if price[slot]]
            arrived = bisect_left(starts, (slot + 1) * self._slot_us) if sold else 0
            for total in range(1, arrived + 1):
                worth = [
                    best[total - size] + size * price
                    for fewest, most, price in sold
                    for size in range(fewest, min(most, total) + 1)
                ]
                best[total] = max([best[total - 1], best[total], *worth])
        return max(best)


def _key(way: Way) -> _Key:
    return way.batch, way.lane.gpu_class, way.fewest
