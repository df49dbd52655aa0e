"""Where the ascent begins: compute costs what work is worth on one machine as fast as the whole cluster.

Behind a long queue prices are many times what a job pays for one delay, and an ascent from 0 takes most of its steps to
get there. The dual solution of the mean-busy-time bound is there at once, for whatever number of jobs, and what it
leaves out (loads, memory, runs that are not preempted, precedences) is what the ascent is for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from truenorth.models import Instance, Objective
from truenorth.models.instance import Ints
from truenorth.solvers.bounds.batch_work import Work
from truenorth.solvers.bounds.lagrangian.evaluation import Prices, no_prices
from truenorth.solvers.bounds.lagrangian.job_paths import Numbers
from truenorth.solvers.bounds.lagrangian.relaxation import Relaxation
from truenorth.solvers.bounds.mean_busy_time import latency_weights, work_prices
from truenorth.solvers.compiled import Floats


@dataclass(frozen=True, slots=True)
class FirstPrices:
    """Prices of compute over time, and how long jobs may wait at them.

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
