"""The relaxation of an instance at a slot width: whole-number data of jobs, models and capacities.

Everything is an integer, so that a bound can be evaluated exactly: times in microseconds, costs in units of
1 / `scale` of the objective, sizes of models in parts of a GPU's memory (rounded down).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from math import gcd

import numpy as np

from models import NEVER, Instance, Objective
from models.instance import Ints
from solvers.bounds.critical_path import UNREACHABLE, earliest
from solvers.bounds.lagrangian.job_paths import JobData
from solvers.bounds.lagrangian.shapes import Forest, forest, node_earliest
from solvers.bounds.mean_busy_time import latency_weights

MEMORY_PARTS = 1 << 14
"""A GPU's memory is counted in at most so many parts."""

PRICE_BITS = 24
"""A usual price per microsecond is a number of about so many bits, unless a long horizon leaves fewer."""

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
    gpus
        Number of GPUs of each class.
    lane_uses
        Per lane: the rows of `uses` that its tasks need.
    """

    trees: Forest
    data: JobData
    slot_us: int
    slots: int
    scale: int
    usual_price: int
    gpus: tuple[int, ...]
    memory: tuple[MemoryRow, ...]
    uses: tuple[ModelUse, ...]
    lane_uses: tuple[tuple[int, ...], ...]
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
        transfer = int(self.instance.transfer_us.max(initial=0))
        total = int(self.instance.job_release_us[-1] + work) + (load + transfer) * self.instance.n_tasks
        return min(total, int(UNREACHABLE))


def job_costs(instance: Instance, objective: Objective) -> JobCosts | None:
    """Return an objective that adds up over jobs as costs of their completions; None for a maximum."""
    release = instance.job_release_us
    deadline = np.array([NEVER if job.deadline_us is None else job.deadline_us for job in instance.jobs], np.int64)
    weights = latency_weights(instance, objective)
    free_until, counted = release, np.ones(len(release), bool)
    if objective in (Objective.WEIGHTED_TARDINESS, Objective.LATE_JOBS):
        free_until, counted = release + deadline, deadline != NEVER
        late = objective is Objective.LATE_JOBS
        weights = [Fraction(1) if late else job.weight for job in instance.jobs]
    if weights is None:
        return None
    jobs = np.array([j for j, w in enumerate(weights) if w > 0 and counted[j]], np.int64)
    steps = objective is Objective.LATE_JOBS
    return JobCosts(jobs, tuple(weights[j] for j in jobs.tolist()), free_until[jobs], steps)


def fixed_parts(instance: Instance, costs: JobCosts) -> Fixed:
    """Return what every slot width shares."""
    trees = forest(instance)
    node_first, start = node_earliest(instance, trees, earliest(instance))
    return Fixed(instance, costs, trees, node_first, start, _model_uses(instance), _memory_rows(instance))


def relax(fixed: Fixed, slot_us: int, window_us: Ints) -> Relaxation:
    """Return the relaxation for slots of a width and a window of delays per counted job, in microseconds."""
    instance, costs, trees = fixed.instance, fixed.costs, fixed.trees
    jobs, shapes = costs.jobs, trees.shapes
    delays = np.clip(window_us, 0, fixed.all_done_us) // slot_us + 2
    shape = instance.job_workflow[jobs]
    n_extra = np.diff(shapes.extra_first)[shape]
    extra_first = np.concatenate(([0], np.cumsum(n_extra * delays)))
    # The latest end of a run that pays prices: the last delay but one of the latest node, run on its slowest class.
    last_start = np.maximum.reduceat(fixed.earliest_us, fixed.node_first[:-1])[jobs]
    horizon = int((last_start + delays * slot_us).max()) + int(shapes.run_us.max())
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
    lane_uses = tuple(
        tuple(index[model, c] for model in needs)
        for c, needs in zip(trees.lanes.gpu_class, trees.lanes.needs, strict=True)
    )
    gpus = tuple(np.bincount(instance.gpu_class).tolist())
    slots = horizon // slot_us + 4
    return Relaxation(
        trees,
        data,
        slot_us,
        slots,
        scale,
        usual,
        gpus,
        fixed.memory,
        fixed.uses,
        lane_uses,
        instance.overlap_loads,
    )


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
            unit = gcd(gpu.memory_bytes, *here)
            capacity = gpu.memory_bytes // unit
            if capacity <= MEMORY_PARTS:
                rows.append(MemoryRow(c, tuple(w // unit for w in here), capacity))
            else:
                parts = tuple(w * MEMORY_PARTS // gpu.memory_bytes for w in here)
                rows.append(MemoryRow(c, parts, MEMORY_PARTS))
    return tuple(rows)
