"""A part in arrays, for the verifier's programme over start orders: tasks, weights, and what rests of jobs cost."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from truenorth.models.instance import Instance, Ints
from truenorth.solvers.bounds.alone import LoneJobs
from truenorth.solvers.bounds.effort import Effort, TooLargeError
from truenorth.solvers.bounds.order_rests import Rate, RunPrices, Stages, StageTables
from truenorth.solvers.bounds.order_tasks import Tasks


@dataclass(frozen=True, slots=True)
class OrderTerms:
    """A part in arrays.

    Parameters
    ----------
    gpus
        Their number.
    weight, due_us
        A job costs its weight for every microsecond of its completion beyond its due time. Shape [jobs].
    release_us, end_us
        Of each job: its release, and the earliest end of its last task. Shape [jobs].
    alone_from
        What the last jobs cost at least, each from its release on: all of them, all but the first, ... none.
        Shape [jobs + 1].
    key
        A random number per task: those of all tasks that have started make the key of a state.
    """

    gpus: int
    weight: Ints
    due_us: Ints
    release_us: Ints
    end_us: Ints
    tasks: Tasks
    prices: RunPrices
    stages: Stages
    alone_from: Ints
    key: NDArray[np.uint64]

    @classmethod
    def of(
        cls, instance: Instance, alone: LoneJobs, weights: list[int], due_us: list[int], rate: Rate, effort: Effort
    ) -> OrderTerms:
        """Return the terms of a part whose GPUs are of one class.

        Raises
        ------
        TooLargeError
            If numbers do not fit into 64 bits, models into a mask, or tables into a few megabytes.
        """
        tasks, jobs = Tasks.of(instance, alone), range(len(instance.jobs))
        release_us, end_us = instance.job_release_us, np.array([max(alone.times(job)[1]) for job in jobs], np.int64)
        far, prices = largest_cost(instance), RunPrices(rate, int(release_us[0]), int(end_us.max()))
        longest_us = _longest_us(end_us, tasks, prices)
        if instance.n_gpus * prices.total + sum(weights) * longest_us > far:
            raise TooLargeError("costs are too large")
        if (prices.origin_us + longest_us) * len(tasks.job) > 1 << 62:
            raise TooLargeError("times are too large")
        tables, first, known = (
            StageTables(instance, tasks, prices, far, effort),
            list[int](),
            dict[tuple[int, int], int](),
        )
        for job, kind in enumerate(zip(instance.job_workflow.tolist(), weights, strict=True)):
            if kind not in known:
                known[kind] = tables.add(job, kind[1])
            first.append(known[kind])
        stages = tables.stages(first)
        weight, due = np.array(weights, np.int64), np.array(due_us, np.int64)
        column = prices.column(release_us)
        alone_costs = np.maximum(
            stages.rest[first, column], weight * (end_us - prices.origin_us) + stages.paid[first, column]
        )
        alone_costs -= weight * (due - prices.origin_us)
        alone_from = np.concatenate((np.cumsum(alone_costs[::-1])[::-1], [0]))
        key = np.random.default_rng(0).integers(1, 1 << 62, len(tasks.job)).astype(np.uint64)
        return cls(instance.n_gpus, weight, due, release_us, end_us, tasks, prices, stages, alone_from, key)


def largest_cost(instance: Instance) -> int:
    """Return a cost of which the programme may add up as many as there are jobs and tasks."""
    return (1 << 62) // (len(instance.jobs) + instance.n_tasks + 2)


def reach_us(instance: Instance, rate: Rate) -> int:
    """Return for how long at most a job of a part may wait or be tabulated: prices of slots like these decide."""
    alone = LoneJobs(instance)
    end_us = np.array([max(alone.times(job)[1]) for job in range(len(instance.jobs))], np.int64)
    prices = RunPrices(rate, int(instance.job_release_us[0]), int(end_us.max()))
    return _longest_us(end_us, Tasks.of(instance, alone), prices)


def _longest_us(end_us: Ints, tasks: Tasks, prices: RunPrices) -> int:
    # No start order that waits for nothing else takes longer, and no table reaches further.
    return int(end_us.max() - prices.origin_us) + tasks.most_us + prices.reach_us
