"""What the tasks of a certificate pay for their batches, for the verifier: read, and never more than a batch costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from truenorth.models.instance import Ints
from truenorth.solvers.bounds.alone import Way, Ways
from truenorth.solvers.bounds.certified import LATEST, RefusedError, Wholes, as_list, get, whole

PARTS = 1 << 16
"""A task pays so many parts of the price of its batch at most."""

_SLOTS_AT_ONCE = 1024
"""Payments are added up for so many slots at once."""


class Batch(NamedTuple):
    """Batches of a class on a GPU class, of `fewest` members or more that run equally long."""

    batch: int
    gpu_class: int
    fewest: int


class BatchPayments:
    """Which parts of the price of its batch each task pays, by delay; none if a certificate has none.

    Parameters
    ----------
    parameters, prices
        What a certificate holds.
    templates
        Those of each job's tasks.
    delays
        How many there are in each job's window.
    """

    def __init__(
        self, ways: Ways, parameters: object, prices: object, templates: Sequence[range], delays: Sequence[int]
    ) -> None:
        self._most: dict[Batch, int] = {}
        self._delays = delays
        self._part: dict[tuple[int, int, Batch], Ints] = {}
        if not isinstance(parameters, dict) or "places" not in parameters:
            return
        rows = [
            Batch(*(whole(get(entry, name), 0, LATEST, "places") for name in Batch._fields))
            for entry in as_list(parameters["places"], None, "places")
        ]
        # Of jobs that cost nothing, too: nobody pays for their batches, but the prover lists them.
        known = {_batch(way): way for template in range(len(ways.instance.needs)) for way in ways.of(template)}
        if len(set(rows)) < len(rows) or not known.keys() >= set(rows):
            raise RefusedError("places names batches that cannot be, or some twice")
        self._most = {row: known[row].most for row in rows}
        listed = as_list(get(prices, "places"), len(delays), "places")
        for job, (entries, of_job) in enumerate(zip(listed, templates, strict=True)):
            for entry in as_list(entries, None, "places"):
                task, row, first, parts = as_list(entry, 4, "places")
                batch = rows[whole(row, 0, len(rows) - 1, "places")]
                template = of_job[whole(task, 0, len(of_job) - 1, "places")]
                if all(_batch(way) != batch for way in ways.of(template)):
                    raise RefusedError("places lets a task pay for batches of another class")
                self._read(job, task, batch, first, parts)

    def _read(self, job: int, task: int, batch: Batch, first: object, parts: object) -> None:
        begin, listed = whole(first, 0, self._delays[job], "places"), as_list(parts, None, "places")
        if begin + len(listed) > self._delays[job] - 1:
            raise RefusedError("places lets a task pay beyond its window")
        paid = self._part.setdefault((job, task, batch), np.zeros(self._delays[job] - 1, np.int64))
        paid[begin : begin + len(listed)] = [whole(part, 0, PARTS, "places") for part in listed]

    def part(self, job: int, task: int, way: Way) -> Wholes | None:
        """Return which part of the price a task pays by delay; None: as the members of a batch pay that pay alike."""
        batch, delays = _batch(way), self._delays[job] - 1
        if batch not in self._most:
            return None
        if way.most == 1:
            return np.full(delays, PARTS, object)
        return self._part.get((job, task, batch), np.zeros(delays, np.int64)).astype(object)

    def check(self, earliest_us: Sequence[Sequence[int]], slot_us: int) -> None:
        """Refuse payments if those of as many tasks as fit into a batch may add up to more than its price.

        Parameters
        ----------
        earliest_us
            When each task of each job can start: its first delay begins then, and lies in one slot or two.
        """
        for batch, most in self._most.items():
            paid = [(earliest_us[job][task], part) for (job, task, row), part in self._part.items() if row == batch]
            last = max((at // slot_us + len(part) for at, part in paid), default=-1)
            for begin in range(0, last + 1, _SLOTS_AT_ONCE):
                slots = np.zeros((len(paid), _SLOTS_AT_ONCE + 1), np.int64)
                for row, (at, part) in zip(slots, paid, strict=True):
                    for shift in {0, int(at % slot_us > 0)}:
                        _raise_to(row[:-1], part, at // slot_us + shift - begin)
                if np.sort(slots, axis=0)[-most:].sum(axis=0).max() > PARTS:
                    raise RefusedError("places sells a batch for more than it costs")


def _raise_to(row: Ints, part: Ints, at: int) -> None:
    """Raise what a row holds from a place on to what there is of another."""
    begin, end = max(0, at), min(len(row), at + len(part))
    if begin < end:
        row[begin:end] = np.maximum(row[begin:end], part[begin - at : end - at])


def _batch(way: Way) -> Batch:
    return Batch(way.batch, way.lane.gpu_class, way.fewest)
