"""The relaxation of an instance at a slot width: whole-number data of jobs, models and capacities.

Everything is an integer, so that a bound can be evaluated exactly: times in microseconds, costs in units of
1 / `scale` of the objective, sizes of models in parts of a GPU's memory (rounded down).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import gcd

import numpy as np

from truenorth.models import NEVER, WHOLE, Instance, Objective
from truenorth.models.formulations.allowance import UNLIMITED
from truenorth.models.instance import Ints
from truenorth.models.objective import Term, charges
from truenorth.solvers.bounds.critical_path import UNREACHABLE, earliest
from truenorth.solvers.bounds.lagrangian.batch_places import Places, places_of
from truenorth.solvers.bounds.lagrangian.job_paths import JobData
from truenorth.solvers.bounds.lagrangian.shapes import Forest, PriceLane, forest, node_earliest

MEMORY_PARTS = 1 << 14
"""A GPU's memory is counted in at most so many parts."""

PRICE_BITS = 24
"""A usual price per microsecond is a number of about so many bits, unless a long horizon leaves fewer."""

_TERM_BYTES = 100
"""What a price takes: its own room, that of its excess, of running means and the best so far, and sums over slots."""

SUM_BITS = 57
"""Sums of prices and costs stay below 2 to this power: 64-bit integers hold them, and what cannot be costs more."""


@dataclass(frozen=True, slots=True)
class JobCosts:
    """What completing each job costs: sum over jobs of weight x max(0, C - free_until), or of weight if C > free_until.

    Jobs that cost nothing whenever they end are left out; `jobs` lists the others.
    """

    jobs: Ints
    weight: tuple[Fraction, ...]
    free_until_us: Ints
    steps: bool


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """A limit on what a GPU of a class holds: the sum of `parts` over its models is at most `capacity`."""

    gpu_class: int
    parts: tuple[int, ...]
    capacity: int


@dataclass(frozen=True, slots=True)
class ModelUse:
    """A model on a class of GPUs: its load time, on how many of them it may be and at time 0 is."""

    model: int
    gpu_class: int
    load_us: int
    copies: int
    initial: int


@dataclass(frozen=True, slots=True)
class LanePrices:
    """Which prices the tasks of a lane pay, on a class of GPUs.

    Parameters
    ----------
    share, size
        In a batch of `size` members, slot by slot, each takes `share` / `WHOLE` / `size` of a GPU's compute and of the
        models that it uses, and pays that part of the prices. Shape [slots].
    whole
        Whether that is all.
    uses
        The rows of the relaxation's `uses` that they need.
    held
        Pairs (row of the relaxation's `memory`, parts that each task holds).
    """

    gpu_class: int
    share: int
    size: Ints
    whole: bool
    uses: tuple[int, ...]
    held: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Relaxation:
    """The relaxation at one slot width.

    Parameters
    ----------
    scale
        Costs are counted in 1 / scale of the objective.
    usual_price
        Order of magnitude of a price per microsecond of compute, in those units.
    slots
        Number of slots: every start within a window, and its end, lies in them.
    offered_us
        What the GPUs of each class offer per slot, in GPU-microseconds: those that are away offer nothing. Shape
        [classes, slots].
    lanes
        What the tasks of each lane pay.
    places
        Places in batches, whose price is paid in parts.
    """

    trees: Forest
    data: JobData
    slot_us: int
    slots: int
    scale: int
    usual_price: int
    offered_us: Ints
    memory: tuple[MemoryRow, ...]
    uses: tuple[ModelUse, ...]
    lanes: tuple[LanePrices, ...]
    places: Places
    overlap_loads: bool


@dataclass(frozen=True, slots=True)
class Fixed:
    """The parts of the relaxation that do not depend on slots or windows.

    Parameters
    ----------
    headroom_bits
        Room for prices above the usual one: behind a long queue they are many times as high.
    """

    instance: Instance
    costs: JobCosts
    trees: Forest
    node_first: Ints
    earliest_us: Ints
    uses: tuple[ModelUse, ...]
    memory: tuple[MemoryRow, ...]
    headroom_bits: int = 7

    @property
    def all_done_us(self) -> int:
        """An instant by which some plan without idle GPUs has ended, and beyond which no delay needs a price."""
        work = self.instance.run_us.max(axis=1)[self.instance.task_template].sum()
        load = int(self.instance.load_us.max(initial=0)) * max(map(len, self.instance.needs), default=0)
        transfer = int(max(self.instance.transfer_us.max(initial=0), self.instance.input_us.max()))
        gap = load + transfer + int(self.instance.delay_us.max(initial=0))
        total = int(self.instance.job_release_us[-1] + work) + gap * self.instance.n_tasks
        return min(total, int(UNREACHABLE))


def job_costs(instance: Instance, objective: Objective) -> JobCosts | None:
    """Return an objective that adds up over jobs as costs of their completions; None for a maximum."""
    charged = charges(objective, instance)
    if not charged.is_sum:
        return None
    weights = charged.job_weights
    jobs = np.array([j for j, w in enumerate(weights) if w > 0], np.int64)
    steps = charged.term is Term.LATE
    return JobCosts(jobs, tuple(weights[j] for j in jobs.tolist()), charged.due_us[jobs], steps)


def fixed_parts(instance: Instance, costs: JobCosts, placed: bool = True) -> Fixed:
    """Return what every slot width shares; `placed`: tasks pay for batches one by one, in place of all alike."""
    times = earliest(instance)
    trees = forest(instance, times, placed=placed)
    node_first, start = node_earliest(instance, trees, times)
    return Fixed(instance, costs, trees, node_first, start, _model_uses(instance), _memory_rows(instance))


def relax(fixed: Fixed, slot_us: int, window_us: Ints) -> Relaxation:
    """Return the relaxation for slots of a width and a window of delays per counted job, in microseconds.

    Raises
    ------
    GivenUpError
        If its prices do not fit into memory.
    """
    instance, costs, trees = fixed.instance, fixed.costs, fixed.trees
    jobs, shapes = costs.jobs, trees.shapes
    delays = np.clip(window_us, 0, fixed.all_done_us) // slot_us + 2
    shape = instance.job_workflow[jobs]
    n_extra = np.diff(shapes.extra_first)[shape]
    # The latest end of a run that pays prices: the last delay but one of the latest node, run on its slowest class.
    last_start = np.maximum.reduceat(fixed.earliest_us, fixed.node_first[:-1])[jobs]
    horizon = int((last_start + delays * slot_us).max()) + int(shapes.run_us.max())
    slots = horizon // slot_us + 4
    priced = np.add.reduceat(
        np.diff(shapes.option_first) * (shapes.place[shapes.option_first[:-1]] >= 0), shapes.node_first[:-1]
    )
    # As whole numbers these products may outgrow 64 bits.
    per_delay = int((n_extra + priced[shape]).astype(float) @ delays)
    UNLIMITED.fit(per_delay + _prices_of_slots(fixed, slots), _TERM_BYTES)
    extra_first = np.concatenate(([0], np.cumsum(n_extra * delays)))
    scale, usual = _scale(instance, costs, horizon, fixed.headroom_bits)
    whole = {w: min(int(w * scale), 1 << 62) for w in set(costs.weight)}  # one that large proves nothing any more
    weight = np.array([whole[w] for w in costs.weight], np.int64)
    data = JobData(
        shape,
        fixed.node_first[jobs],
        fixed.earliest_us,
        delays,
        weight,
        costs.free_until_us,
        costs.steps,
        extra_first,
    )
    index = {(use.model, use.gpu_class): q for q, use in enumerate(fixed.uses)}
    slot_ends = np.arange(1, slots + 1, dtype=np.int64) * slot_us
    lanes = tuple(
        LanePrices(
            lane.gpu_class,
            lane.share,
            # Who runs in a slot has started before its end, and so have all members of the batch.
            np.searchsorted(np.array(lane.starts_us, np.int64), slot_ends),
            lane.share == WHOLE and len(lane.starts_us) == 1,
            tuple(index[model, lane.gpu_class] for model in lane.needs),
            tuple(_held(instance, fixed.memory, lane)),
        )
        for lane in trees.lanes
    )
    return Relaxation(
        trees,
        data,
        slot_us,
        slots,
        scale,
        usual,
        _offered_us(instance, slots, slot_us),
        fixed.memory,
        fixed.uses,
        lanes,
        places_of(trees, data, slot_us, slots),
        instance.overlap_loads,
    )


def _prices_of_slots(fixed: Fixed, slots: int) -> int:
    """Return how many numbers slots bring along: prices, what lanes pay, and who bids most for each batch."""
    trees, classes = fixed.trees, len(fixed.instance.class_gpu)
    rows = 2 * classes + len(fixed.memory) + len(fixed.uses) + len(trees.lanes)
    bidders = max((row.most for row in trees.places), default=0)
    return (rows + len(trees.places) * (bidders + 3)) * slots


def _offered_us(instance: Instance, slots: int, slot_us: int) -> Ints:
    """Return for how long the GPUs of each class are there in every slot, together. Shape [classes, slots]."""
    edges = np.arange(slots + 1, dtype=np.int64) * slot_us
    rows = []
    for gpu, count in zip(instance.class_gpu, np.bincount(instance.gpu_class).tolist(), strict=True):
        until = sum(np.clip(edges, begin, end) - begin for begin, end in gpu.available.intervals)
        rows.append(count * np.diff(until))
    return np.array(rows, np.int64)


def _scale(instance: Instance, costs: JobCosts, horizon_us: int, headroom_bits: int) -> tuple[int, int]:
    """Return a power of two to count costs in, and the usual price per microsecond in it."""
    mean = sum(costs.weight, Fraction(0)) / len(costs.weight)
    if costs.steps:  # a late job costs its weight once: spread that over its work
        mean /= int(instance.job_critical_us[costs.jobs].mean()) + 1
    bits = min(PRICE_BITS, SUM_BITS - headroom_bits - horizon_us.bit_length())
    exponent = bits + (mean.denominator // mean.numerator).bit_length()
    scale = 1 << max(1, exponent)
    return scale, max(1, int(mean * scale))


def _model_uses(instance: Instance) -> tuple[ModelUse, ...]:
    """Return every model that some task uses, on every class where it may be resident."""
    needed = {model for row in instance.needs for model in row}
    gpus = np.bincount(instance.gpu_class)
    there = Counter((r.model, int(instance.gpu_class[r.gpu])) for r in instance.initial)
    uses = []
    for model in sorted(needed):
        replicas = instance.restrictions.max_replicas.get(instance.models[model].name, instance.n_gpus)
        for c in range(len(gpus)):
            if instance.load_us[model, c] != NEVER:
                copies = min(int(gpus[c]), replicas)
                uses.append(ModelUse(model, c, int(instance.load_us[model, c]), copies, min(there[model, c], copies)))
    return tuple(uses)


def _held(instance: Instance, memory: tuple[MemoryRow, ...], lane: PriceLane) -> Iterator[tuple[int, int]]:
    """Yield the limits on memory that a task runs into, each with the parts that it holds, rounded down."""
    gpu = instance.class_gpu[lane.gpu_class]
    for index, row in enumerate(memory):
        parts = lane.memory_bytes * row.capacity // gpu.memory_bytes
        if row.gpu_class == lane.gpu_class and parts and not gpu.slots:
            yield index, parts


def _memory_rows(instance: Instance) -> tuple[MemoryRow, ...]:
    """Return the limits on memory of every class: its bytes, or how many models each size of slot leaves room for."""
    rows = []
    weights = instance.weight_bytes.tolist()
    for c, gpu in enumerate(instance.class_gpu):
        here = [w if instance.load_us[m, c] != NEVER else 0 for m, w in enumerate(weights)]
        if gpu.slots:
            sizes = sorted(set(gpu.slots), reverse=True)
            for size, smaller in zip(sizes, [*sizes[1:], 0], strict=True):
                parts = tuple(int(w > smaller) for w in here)
                rows.append(MemoryRow(c, parts, sum(slot >= size for slot in gpu.slots)))
        else:
            held = instance.template_memory[instance.run_us[:, c] != NEVER]
            unit = gcd(gpu.memory_bytes, *here, *held.tolist())
            capacity = gpu.memory_bytes // unit
            if capacity <= MEMORY_PARTS:
                rows.append(MemoryRow(c, tuple(w // unit for w in here), capacity))
            else:
                parts = tuple(w * MEMORY_PARTS // gpu.memory_bytes for w in here)
                rows.append(MemoryRow(c, parts, MEMORY_PARTS))
    return tuple(rows)
