"""Prices computed a second time, for the verifier: what a Lagrangian certificate proves, in whole numbers.

A second implementation of `solvers.bounds.lagrangian`, on what `solvers.bounds.certified` has read: whatever a
certificate holds, if it is well-formed then its prices prove what `LagrangianCheck.total` returns. What tasks pay for
their batches is never more than a batch costs.

Prices and costs are Python's whole numbers, in arrays of objects: none can wrap, however large a certificate makes
them. Only instants and places in arrays have 64 bits; what could lie beyond `LATEST` is refused before.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from truenorth.models import WHOLE, Instance, Objective
from truenorth.models.instance import Ints
from truenorth.solvers.bounds.alone import CheckedLane, LoneJobs, Way, Ways
from truenorth.solvers.bounds.certified import (
    LATEST,
    CertifiedShape,
    RefusedError,
    Wholes,
    as_list,
    delays,
    get,
    memory_row,
    model_uses,
    read_shapes,
    table,
    whole,
)
from truenorth.solvers.bounds.recomputed import completion_costs

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


LAGRANGIAN = "lagrangian"
"""Name of the method."""

_RULED_OUT = 1 << 400
"""The cost of what cannot be; a cost as large would only make a bound lower."""


class LagrangianCheck:
    """Reads and evaluates the prices of a Lagrangian certificate."""

    def __init__(self, instance: Instance, objective: Objective, parameters: object, prices: object) -> None:
        self.instance = instance
        self.slot_us = whole(get(parameters, "slot_us"), 1, LATEST, "slot_us")
        self.scale = whole(get(parameters, "scale"), 1, 1 << 200, "scale")
        self.gpus = np.bincount(instance.gpu_class).tolist()
        classes = len(self.gpus)
        first_row = as_list(get(prices, "compute"), classes, "compute")[0]
        self.slots = len(as_list(first_row, None, "compute"))
        if (self.slots + 2) * self.slot_us > LATEST:
            raise RefusedError("slot_us is too large for so many slots")
        self.compute = table(get(prices, "compute"), classes, self.slots, "compute")
        self.copy = table(get(prices, "copy"), classes, self.slots, "copy")
        rows = as_list(get(parameters, "memory_rows"), None, "memory_rows")
        self.rows = [memory_row(instance, row) for row in rows]
        self.memory = table(get(prices, "memory"), len(rows), self.slots, "memory")
        self.uses = model_uses(instance, get(parameters, "model_uses"))
        self.use_prices = table(get(prices, "model_uses"), len(self.uses), self.slots, "model_uses")
        self.costs = completion_costs(instance, objective, self.scale)
        if not self.costs:
            raise RefusedError(f"prices prove nothing about {objective}")
        self.delays = delays(get(parameters, "delays"), len(self.costs))
        self.shapes = read_shapes(instance, get(parameters, "priced_precedences"))
        self.alone = LoneJobs(instance)
        self.falls = as_list(get(prices, "precedences"), len(self.costs), "precedences")
        self.ways = Ways(instance, self.alone)
        self.lanes: dict[CheckedLane, tuple[Wholes, Wholes]] = {}
        workflows = [int(instance.job_workflow[job]) for job, *_ in self.costs]
        self.batches = BatchPayments(
            self.ways, parameters, prices, list(map(self.alone.templates, workflows)), self.delays
        )

    def total(self) -> int:
        """Return the value of the Lagrangian, in 1 / scale of the objective."""
        self.batches.check([self.alone.times(job)[0] for job, *_ in self.costs], self.slot_us)
        jobs = sum(self._job(number) for number in range(len(self.costs)))
        return jobs + self._residencies() - self._capacity()

    def _capacity(self) -> int:
        engines = sum(self._offered(c, self.compute[c]) + self._offered(c, self.copy[c]) for c in range(len(self.gpus)))
        memory = sum(
            capacity * self._offered(c, price) for (c, _, capacity), price in zip(self.rows, self.memory, strict=True)
        )
        return engines + memory

    def _offered(self, c: int, price: Wholes) -> int:
        """Return the price of all the time in which the GPUs of a class are there."""
        there = self.instance.class_gpu[c].available
        if there.always:
            return int(self.gpus[c] * sum(price.tolist()) * self.slot_us)
        edges = [slot * self.slot_us for slot in range(self.slots + 1)]
        us = [there.available_us(begin, end) for begin, end in pairwise(edges)]
        return int(self.gpus[c] * sum(each * paid for each, paid in zip(us, price.tolist(), strict=True)))

    # Jobs

    def _job(self, number: int) -> int:
        """Return the least cost of a job: completion, running, and the precedences outside its tree."""
        tree = _Tree(self, number)
        return int(min((cost + tree.completing(run)).min() for run, cost in tree.at_root()))

    def fences(self, number: int, shape: CertifiedShape) -> dict[tuple[int, int], Wholes]:
        """Return the prices of a job's precedences outside the tree: at a delay, the sum of the falls from there on."""
        count, priced = self.delays[number], shape.priced
        falls = table([self.falls[number]], 1, len(priced) * count, "precedences")[0].reshape(len(priced), count)
        # The last delay stands for all later ones, beyond which nothing is priced.
        falls[:, -1] = 0
        return {arc: np.cumsum(row[::-1])[::-1] for arc, row in zip(priced, falls, strict=True)}

    def _held(self, row: int, memory_bytes: int) -> int:
        """Return how many parts of a limit on memory a task holds that holds so many bytes, rounded down."""
        c, _, capacity = self.rows[row]
        gpu = self.instance.class_gpu[c]
        return 0 if gpu.slots else memory_bytes * capacity // gpu.memory_bytes

    def _rate(self, lane: CheckedLane) -> Wholes:
        """Return what a task pays per microsecond in every slot."""
        rate = self.compute[lane.gpu_class].copy()
        for index, (model, c) in enumerate(self.uses):
            if c == lane.gpu_class and model in lane.needs:
                rate += self.use_prices[index]
        if lane.share != WHOLE or lane.joined_us:
            members = (lane.members((slot + 1) * self.slot_us) for slot in range(self.slots))
            parts = [price * lane.share // (WHOLE * size) for price, size in zip(rate.tolist(), members, strict=True)]
            rate = np.array(parts, object)
        for row, price in enumerate(self.memory):
            if self.rows[row][0] == lane.gpu_class:
                rate += self._held(row, lane.memory_bytes) * price
        return np.asarray(rate)

    def least_price(
        self, paying: CheckedLane, earliest: int, run: int, wait: Wholes, part: Wholes | None = None
    ) -> Wholes:
        """Return the least price of a run that starts in [earliest + k, earliest + k + 1) slots, for every delay k.

        To it belongs what waiting within that interval costs: wait[k] per microsecond. Of the price the part of so many
        in `PARTS` is paid, rounded down; None: all of it.
        """
        if paying not in self.lanes:
            self.lanes[paying] = _integral(self._rate(paying), self.slot_us)
        lane, slot = self.lanes[paying], self.slot_us
        first = earliest + np.arange(len(wait), dtype=np.int64) * slot
        # The price is linear in the start between these: where the start, or the end of the run, enters another slot.
        edges = ((first // slot + 1) * slot, ((first + run) // slot + 1) * slot - run)
        last = first + slot - 1
        starts = (first, np.minimum(edges[0], last), np.minimum(edges[1], last), last)
        prices = [_until(lane, at + run, slot) - _until(lane, at, slot) for at in starts]
        paid = prices if part is None else [price // PARTS * part for price in prices]
        return np.asarray(np.min([price + wait * (at - first) for price, at in zip(paid, starts, strict=True)], axis=0))

    # Models

    def _residencies(self) -> int:
        """Return the cost of the best residencies of every model on every GPU."""
        total = 0
        for index, (model, c) in enumerate(self.uses):
            held = np.zeros(self.slots, object)
            for (row_class, parts, _), price in zip(self.rows, self.memory, strict=True):
                if row_class == c:
                    held += parts[model] * price
            loading = held + self.copy[c] + (0 if self.instance.overlap_loads else self.compute[c])
            name = self.instance.models[model].name
            copies = min(self.gpus[c], self.instance.restrictions.max_replicas.get(name, self.gpus[c]))
            there = [int(self.instance.gpu_class[r.gpu]) for r in self.instance.initial if r.model == model].count(c)
            # Which GPUs of a class begin with the model is all alike to the prices.
            warm = min(copies, there)
            for count, on in ((copies - warm, False), (warm, True)):
                if count:
                    load_us = int(self.instance.load_us[model, c])
                    total += count * self._best_path(held - self.use_prices[index], loading, load_us, on)
        return total

    def _best_path(self, on_rate: Wholes, loading: Wholes, load_us: int, starts_on: bool) -> int:
        """Return the cost of the cheapest sequence of residencies of one model on one GPU; being off costs nothing."""
        slot, integral = self.slot_us, _integral(loading, self.slot_us)
        edges = np.arange(self.slots + 1, dtype=np.int64) * slot
        # Loads that end at an edge, and loads that begin at one; each with the first edge at which the model is on.
        ends = edges[edges >= load_us]
        begins = edges[edges + load_us < self.slots * slot]
        arrivals: list[list[tuple[int, int]]] = [[] for _ in range(self.slots + 1)]
        costs = _until(integral, ends, slot) - _until(integral, ends - load_us, slot)
        for at, begin, cost in zip((ends // slot).tolist(), (ends - load_us).tolist(), costs.tolist(), strict=True):
            arrivals[at].append((begin // slot, cost))
        ready = begins + load_us
        costs = _until(integral, ready, slot) - _until(integral, begins, slot)
        costs += on_rate[ready // slot] * ((ready // slot + 1) * slot - ready)
        for at, begin, cost in zip(
            (ready // slot + 1).tolist(), (begins // slot).tolist(), costs.tolist(), strict=True
        ):
            arrivals[at].append((begin, cost))
        stay = [0, *(on_rate * slot).tolist()]
        on, off = (0 if starts_on else _RULED_OUT), [0] * (self.slots + 1)
        for edge in range(self.slots + 1):
            on = min([on + stay[edge], *(off[begin] + cost for begin, cost in arrivals[edge])])
            off[edge] = min(on, off[edge - 1] if edge else 0)
        return off[-1]


class _Tree:
    """One job's tasks, and its end if that is added, joined by the precedences that are not priced."""

    def __init__(self, check: LagrangianCheck, number: int) -> None:
        job, self.weight, self.free_until, self.step = check.costs[number]
        workflow = int(check.instance.job_workflow[job])
        start, end = check.alone.times(job)
        self.shape = check.shapes[workflow]
        self.root = self.shape.root
        self.check, self.number, self.count = check, number, check.delays[number]
        self.ways = [check.ways.of(template) for template in check.alone.templates(workflow)]
        self.earliest = [*start, max(end)] if self.root == len(start) else start
        self.fences = check.fences(number, self.shape)
        reach = max(self.earliest) + self.count * check.slot_us + max(way.run_us for ways in self.ways for way in ways)
        if reach // check.slot_us + 2 > check.slots:
            raise RefusedError("a window reaches beyond the priced slots")

    def at_root(self) -> list[tuple[int, Wholes]]:
        """Return, per class that can run the last task, its run time and the least cost of the job by its delay."""
        below: dict[int, list[tuple[int, Wholes]]] = {}
        for node in self.shape.leaves_first:
            sums = np.zeros(self.count, object)
            for child in self.shape.children[node]:
                if (child, node) in self.shape.kept:
                    sums += self._ended(child, below.pop(child), node)
            following = {
                child: np.min([cost for _, cost in below.pop(child)], axis=0)
                for child in self.shape.children[node]
                if (node, child) in self.shape.kept
            }
            for source in self.shape.priced_into[node]:
                sums += self.fences[source, node]
            options = []
            for run, blocked, cost in self._running(node):
                cost += sums
                for child, least in following.items():
                    cost += np.minimum.accumulate(least[::-1])[::-1][self._later(node, run, child)]
                for target in self.shape.priced_from[node]:
                    cost -= self.fences[node, target][self._later(node, run, target)]
                # After the sums: what is ruled out must stay so whatever falls are taken off.
                cost[:blocked] = _RULED_OUT
                options.append((run, cost))
            below[node] = options
        return below[self.root]

    def _ended(self, source: int, options: list[tuple[int, Wholes]], node: int) -> Wholes:
        """Return the least cost of a task before a node, by the delay of the node: whichever run has ended by then."""
        least = np.full(self.count, _RULED_OUT, object)
        for run, cost in options:
            np.minimum.at(least, self._later(source, run, node), cost)
        return np.minimum.accumulate(least)

    def completing(self, run: int) -> Wholes:
        """Return what completing costs the job whose last task runs so long and begins when its delay does."""
        ends = self._last_ends(run)
        return np.asarray((ends > 0 if self.step else np.maximum(0, ends)).astype(object) * self.weight)

    def _last_ends(self, run: int) -> Ints:
        return self.earliest[self.root] + np.arange(self.count) * self.check.slot_us + run - self.free_until

    def _waiting(self, node: int, run: int) -> Wholes:
        """Return what a microsecond of waiting costs by delay: at the root, the weight once completing costs that."""
        costs = self._last_ends(run) >= 0 if node == self.root and not self.step else np.zeros(self.count, bool)
        return np.asarray(costs[: self.count - 1].astype(object) * self.weight)

    def _running(self, node: int) -> list[tuple[int, int, Wholes]]:
        """Return run times of a node, the first delay possible, and prices by delay.

        The last delay is always possible and pays nothing, nor does an added end.
        """
        if node == len(self.ways):
            return [(0, 0, np.zeros(self.count, object))]
        earliest, listed = self.earliest[node], list[tuple[int, int, Wholes]]()
        slot_us = self.check.slot_us
        for way in self.ways[node]:
            part, waiting = self.check.batches.part(self.number, node, way), self._waiting(node, way.run_us)
            if part is None:
                paid = self.check.least_price(way.lane, earliest, way.run_us, waiting)
            else:  # of compute and models each member pays its part, of memory what it holds
                own, batch = way.lane.of_member(), way.lane.of_batch()
                paid = self.check.least_price(own, earliest, way.run_us, np.zeros_like(waiting))
                paid += self.check.least_price(batch, earliest, way.run_us, waiting, part)
            # A delay is ruled out if the last start that it stands for lies before a batch can start.
            blocked = max(0, min(self.count - 1, (way.from_us - earliest) // slot_us))
            listed.append((way.run_us, blocked, np.append(paid, 0)))
        return listed

    def _later(self, source: int, run: int, target: int) -> Ints:
        """Return the least delay of the target for each delay of the source."""
        behind = (self.earliest[source] + run - self.earliest[target]) // self.check.slot_us
        return np.clip(np.arange(self.count) + behind, 0, self.count - 1)


def _integral(rate: Wholes, slot_us: int) -> tuple[Wholes, Wholes]:
    """Return the price from 0 to each edge of a slot, and the rates with one free slot after them."""
    return np.concatenate(([0], np.cumsum(rate * slot_us))), np.concatenate((rate, [0]))


def _until(integral: tuple[Wholes, Wholes], instant: Ints, slot_us: int) -> Wholes:
    """Return the price from 0 to each instant."""
    return np.asarray(integral[0][instant // slot_us] + integral[1][instant // slot_us] * (instant % slot_us))
