"""Prices for many jobs that are alike: the Lagrangian with one programme per group of them, not per job.

Jobs of one workflow and one weight, whose cost grows linearly from the release on, can be summed up: whole starts of
every task by every instant, over the whole group. Handed back in the order of release (job k gets what lies between
k - 1 and k of every task's sum), precedences and releases that hold for the sums hold for every job, at the same cost.
So the relaxation of the sums is as strong as that of the jobs, and prices of precedences may depend on the time alone,
not on the job. That are far fewer prices, and a step takes groups x time, not jobs x windows.

Releases are known to a slot only (a job between two of them counts as parts of a job at either), so what is found here
is no bound: its prices, handed back to the jobs (`Pool.to_jobs`), prove one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from truenorth.models import Instance, Objective
from truenorth.models.instance import Ints
from truenorth.solvers.bounds.batch_work import Work
from truenorth.solvers.bounds.critical_path import earliest
from truenorth.solvers.bounds.lagrangian.evaluation import Evaluation, Prices, carry_slots, no_prices, padded
from truenorth.solvers.bounds.lagrangian.job_paths import Numbers
from truenorth.solvers.bounds.lagrangian.pooled_paths import Running, pooled_paths
from truenorth.solvers.bounds.lagrangian.relaxation import Fixed, JobCosts, LanePrices, Relaxation, relax
from truenorth.solvers.bounds.lagrangian.shapes import forest, node_earliest
from truenorth.solvers.bounds.mean_busy_time import latency_weights, work_prices
from truenorth.solvers.compiled import Floats

LEAST_ALIKE = 8
"""Groups are worth it from so many jobs on average."""

USUAL_WINDOW = 8
"""A job by itself is looked at for about so many mean critical paths, if queues are short."""

ROOM_BEHIND = 4
"""Groups are looked at until so many of the longest critical paths after all work could have ended."""


COLD_ROOM = 2
"""A start counts as cold for so many times as long as it takes to load every model once."""


@dataclass(frozen=True, slots=True)
class Pool:
    """The groups of an instance.

    Parameters
    ----------
    fixed
        The parts of a relaxation whose jobs are the groups: the first job of each, as if released at 0, its trees
        rooted at the source.
    members
        The counted jobs of each group.
    release_us
        Of every counted job.
    end_us
        By then all is done.
    """

    fixed: Fixed
    members: tuple[Ints, ...]
    release_us: Ints
    end_us: int

    @classmethod
    def of(cls, fixed: Fixed, first_prices: FirstPrices) -> Pool | None:
        """Return the groups; None where costs are not linear from the release on, or too few jobs are alike."""
        instance, costs = fixed.instance, fixed.costs
        release = instance.job_release_us[costs.jobs]
        linear = not costs.steps and bool((costs.free_until_us <= release).all())
        known = bool(first_prices.times_us[-1] > release.max())  # not so where the first prices are none
        if not (linear and known) or fixed.trees.places or not _run_from_one_source(fixed):
            return None
        groups: dict[tuple[int, tuple[int, int]], list[int]] = {}
        workflows = instance.job_workflow[costs.jobs].tolist()
        for index, (workflow, weight) in enumerate(zip(workflows, costs.weight, strict=True)):
            groups.setdefault((workflow, weight.as_integer_ratio()), []).append(index)
        end_us = int(first_prices.times_us[-1]) + ROOM_BEHIND * int(instance.job_critical_us.max())
        windows = np.maximum(first_prices.waiting_us[costs.jobs], USUAL_WINDOW * int(instance.job_critical_us.mean()))
        if LEAST_ALIKE * len(groups) > len(costs.jobs) or len(groups) * end_us > windows.sum():
            return None
        members = tuple(np.array(group, np.int64) for group in groups.values())
        return cls(_grouped(fixed, members), members, release, end_us)

    def relax(self, slot_us: int) -> Relaxation:
        """Return the relaxation of the groups: every one is a job that is looked at for the whole time."""
        return relax(self.fixed, slot_us, np.full(len(self.members), self.end_us))

    @property
    def cold_us(self) -> int:
        """Return an instant by which every model that is worth it has been loaded, with room."""
        loads_us = np.zeros(len(self.fixed.instance.class_gpu), np.int64)
        for use in self.fixed.uses:
            loads_us[use.gpu_class] += use.load_us
        return COLD_ROOM * int(loads_us.max())

    def paid_us(self, pooled: Relaxation, job_value: Numbers) -> Numbers:
        """Return the delay that would cost every counted job as much as it pays."""
        paid = np.zeros(len(self.release_us))
        for weight, members in zip(pooled.data.weight, self.members, strict=True):
            paid[members] = job_value[members] / max(int(weight), 1)
        return paid

    def to_jobs(self, flat: Numbers, pooled: Relaxation, paid_us: Numbers, relaxation: Relaxation) -> Numbers:
        """Return the prices for the jobs one by one.

        A precedence of a job falls at a delay by what that of its group falls in the time of the delay.

        Parameters
        ----------
        paid_us
            See above. The price stops falling at that delay: further on it would pay a job to end in the last delay of
            its window, which is free of prices.
        """
        out = np.zeros(Prices.size(relaxation))
        old, new = Prices.split(flat, pooled), Prices.split(out, relaxation)
        rescale = relaxation.scale / pooled.scale
        carry_slots(old, new, pooled, relaxation)
        data, slot_us, targets = relaxation.data, relaxation.slot_us, relaxation.trees.shapes
        for group, members in enumerate(self.members):
            shape, count = int(pooled.data.shape[group]), int(pooled.data.delays[group])
            arcs = range(int(targets.extra_first[shape]), int(targets.extra_first[shape + 1]))
            for at, arc in enumerate(arcs):
                begin = int(pooled.data.extra_first[group]) + at * count
                fallen = np.concatenate(([0.0], np.cumsum(old.extra[begin : begin + count]))) * rescale
                head = self.fixed.earliest_us[pooled.data.node_first[group] + pooled.trees.shapes.extra_target[arc]]
                for job in members.tolist():
                    delays = int(data.delays[job])
                    kept = min(delays - 1, int(paid_us[job]) // slot_us)
                    earliest_us = data.earliest_us[data.node_first[job] + targets.extra_target[arc]]
                    edges = (earliest_us - head + np.arange(kept + 1) * slot_us) / pooled.slot_us
                    to = int(data.extra_first[job]) + at * delays
                    new.extra[to : to + kept] = np.diff(np.interp(edges, np.arange(count + 1), fallen))
        return out


class PooledEvaluation(Evaluation):
    """Evaluates prices of the relaxation of a pool's groups."""

    def __init__(self, pool: Pool, relaxation: Relaxation, model_us: int | None = None) -> None:
        super().__init__(relaxation, model_slots=None if model_us is None else model_us // relaxation.slot_us + 1)
        self._pool = pool
        groups, slots = len(pool.members), int(relaxation.data.delays.max())
        self._slot = pool.release_us // relaxation.slot_us
        self._late = pool.release_us / relaxation.slot_us - self._slot
        self._value = np.zeros((groups, slots))
        self._arriving = np.zeros((groups, slots))
        for arriving, members in zip(self._arriving, pool.members, strict=True):
            np.add.at(arriving, self._slot[members], 1 - self._late[members])
            np.add.at(arriving, self._slot[members] + 1, self._late[members])
        self._waiting = np.zeros((len(self._message), slots))
        plain = [replace(lane, uses=(), held=()) for lane in relaxation.lanes]
        kinds = [(lane.gpu_class, lane.share, lane.size.tobytes()) for lane in plain]
        self._later = [plain[kinds.index(kind)] for kind in dict.fromkeys(kinds)]
        self._later_of = np.array([list(dict.fromkeys(kinds)).index(kind) for kind in kinds], np.int64)
        longest = int(relaxation.trees.shapes.run_us.max()) // relaxation.slot_us
        reached = min(relaxation.slots, self.model_slots + longest + 4)  # by the end of a run that pays for models
        self._lanes = np.zeros((len(plain), reached))
        self._later_lanes = np.zeros((len(self._later), relaxation.slots))
        self._excess = np.zeros(int(relaxation.data.extra_first[-1]))

    @property
    def job_value(self) -> Numbers:
        """What each counted job pays at the prices last evaluated."""
        out = np.zeros(len(self._pool.release_us))
        for value, weight, members in zip(self._value, self.relaxation.data.weight, self._pool.members, strict=True):
            slot, late = self._slot[members], self._late[members]
            released_us = self._pool.release_us[members].astype(float)
            out[members] = (1 - late) * value[slot] + late * value[slot + 1] - weight * released_us
        return out

    def _jobs(self, prices: Prices) -> float:
        lanes = self._lane_rates(prices, self.relaxation.lanes, self._lanes.shape[1])
        later = self._lane_rates(prices, self._later, self.relaxation.slots)
        pooled_paths(
            self.relaxation.data,
            self.relaxation.trees.shapes,
            Running(
                self._prefix(lanes),
                padded(lanes),
                self._prefix(later),
                padded(later),
                self._later_of,
                self.model_slots,
            ),
            self._slot_us,
            self._precedence_prices(prices),
            self._cost,
            self._message,
            self._arriving,
            self._waiting,
            self._value,
            self._lanes,
            self._later_lanes,
            self._excess,
        )
        return float(self.job_value.sum())

    def _time_run(self, out: Prices) -> Iterable[tuple[LanePrices, Numbers]]:
        out.extra[:] = self._excess
        lanes = *self.relaxation.lanes, *self._later
        return zip(lanes, (*self._lanes, *self._later_lanes), strict=True)


def _run_from_one_source(fixed: Fixed) -> bool:
    """Say whether every precedence that is not priced leads away from the only source of its workflow."""
    shapes = fixed.trees.shapes
    for first, last in zip(shapes.node_first[:-1].tolist(), shapes.node_first[1:].tolist(), strict=True):
        after = shapes.after_parent[first:last].astype(bool)
        # Into each node but one leads one precedence: from its parent, or from a child.
        nodes, parents = np.arange(last - first), shapes.parent[first:last]
        into = np.concatenate((nodes[after], parents[~after & (parents >= 0)]))
        if len(np.unique(into)) < len(into):
            return False
    return True


def _grouped(fixed: Fixed, members: tuple[Ints, ...]) -> Fixed:
    """Return the parts of a relaxation whose jobs are the first of each group, as if released at 0."""
    instance, costs, times = fixed.instance, fixed.costs, earliest(fixed.instance)
    trees = forest(instance, times, from_source=True, placed=False)
    node_first, start = node_earliest(instance, trees, times)
    behind = start - np.repeat(instance.job_release_us, np.diff(node_first))
    firsts = [int(group[0]) for group in members]
    for group in members:
        jobs = costs.jobs[group]
        nodes = node_first[jobs][:, None] + np.arange(node_first[jobs[0] + 1] - node_first[jobs[0]])
        behind[nodes[0]] = behind[nodes].min(axis=0)  # the first may have to wait for its models to load
    weights = tuple(costs.weight[first] for first in firsts)
    alone = JobCosts(costs.jobs[firsts], weights, np.zeros(len(firsts), np.int64), steps=False)
    return replace(fixed, costs=alone, trees=trees, node_first=node_first, earliest_us=behind)


@dataclass(frozen=True, slots=True)
class FirstPrices:
    """Prices of compute over time, and how long jobs may wait at them: where the ascent begins.

    Behind a long queue prices are many times what a job pays for one delay, and an ascent from 0 takes most of its
    steps to get there. The dual solution of the mean-busy-time bound, on one machine as fast as the whole cluster, is
    there at once, and what it leaves out (loads, memory, precedences) is what the ascent is for.

    Parameters
    ----------
    times_us, prices
        Between these times the price is linear, outside it is 0. In units of the objective per microsecond.
    waiting_us
        No job waits longer at these prices. Shape [jobs].
    """

    times_us: Floats
    prices: Floats
    waiting_us: Ints

    @classmethod
    def of(cls, instance: Instance, objective: Objective) -> FirstPrices:
        """Return the prices for a sum of weighted latencies; for another objective there are none, and nobody waits."""
        weights = latency_weights(instance, objective)
        if weights is None:
            return cls(np.zeros(1), np.zeros(1), np.zeros(len(instance.jobs), np.int64))
        found = work_prices(instance, weights)
        work = Work.of(instance)
        least_us = np.array([least / work.parts for least in work.least])
        work_us = np.add.reduceat(least_us[instance.task_template], instance.job_first_task[:-1])
        # What a job pays in all, where it ends on the fast machine, is worth waiting so long for.
        paid_us = work_us * found.last_price / np.array([max(float(weight), 1e-300) for weight in weights])
        latest_us = found.times_us[-1] - instance.job_release_us
        waiting_us = np.minimum(found.ended_us - instance.job_release_us + paid_us, latest_us)
        return cls(found.times_us, found.prices, waiting_us.astype(np.int64))

    def in_slots(self, relaxation: Relaxation) -> Numbers:
        """Return all prices of a relaxation, one long array: those of compute, taken in the middle of every slot."""
        flat = no_prices(relaxation)
        middle_us = (np.arange(relaxation.slots) + 0.5) * relaxation.slot_us
        prices = np.interp(middle_us, self.times_us, self.prices, left=0, right=0) * relaxation.scale
        Prices.split(flat, relaxation).compute[:] = prices
        return flat
