"""The least that a job pays at given prices if one of its tasks runs on a given class with a given delay.

The cheapest-path programme goes from the leaves of a job's tree to its root; a second pass, back from the root, adds to
each task's subtree the cheapest rest of the job (min-marginals, as in belief propagation on a tree).
"""

from __future__ import annotations

from truenorth.solvers.bounds.lagrangian.evaluation import Evaluation, Prices, padded
from truenorth.solvers.bounds.lagrangian.job_paths import JobData, Numbers, add_rest_of_job, cheapest_paths
from truenorth.solvers.bounds.lagrangian.relaxation import Relaxation


class Marginals(Evaluation):
    """The least that each job pays, given that one of its tasks runs on a class of GPUs with a certain delay.

    Parameters
    ----------
    relaxation, prices
        Whole prices: everything is exact.

    Attributes
    ----------
    least
        The value of the Lagrangian, in units of the relaxation.
    """

    def __init__(self, relaxation: Relaxation, prices: Prices) -> None:
        super().__init__(relaxation, exact=True)
        self.least = int(self.value(prices))
        lanes = self._lane_rates(prices, relaxation.lanes, relaxation.slots)
        self._costs = self._prefix(lanes), padded(lanes)
        self._falling = self._precedence_prices(prices)
        self._paying = self._payments(prices)

    def of_job(self, job: int) -> Numbers:
        """Return the least cost of a job by option and delay. Shape [options of its tasks, delays]."""
        data, shapes = self.relaxation.data, self.relaxation.trees.shapes
        one = slice(job, job + 1)
        alone = JobData(
            data.shape[one],
            data.node_first[one],
            data.earliest_us,
            data.delays[one],
            data.weight[one],
            data.free_until_us[one],
            data.steps,
            data.extra_first[job : job + 2],
        )
        choice = self.choice._replace(value=self.choice.value[:1].copy())
        prices = (*self._costs, self.relaxation.slot_us, self._falling, self._paying)
        cheapest_paths(alone, shapes, *prices, self._cost, self._message, choice)
        add_rest_of_job(0, alone, shapes, self.relaxation.slot_us, self._cost, self._message)
        first, last = shapes.node_first[data.shape[job]], shapes.node_first[data.shape[job] + 1]
        return self._cost[: shapes.option_first[last] - shapes.option_first[first], : data.delays[job]].copy()
