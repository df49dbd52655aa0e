"""The least that a job pays at given prices if one of its tasks runs on a given class with a given delay.

The cheapest-path programme goes from the leaves of a job's tree to its root; a second pass, back from the root, adds to
each task's subtree the cheapest rest of the job (min-marginals, as in belief propagation on a tree).
"""

from __future__ import annotations

import numpy as np

from solvers.bounds.lagrangian.evaluation import Evaluation, Prices, padded
from solvers.bounds.lagrangian.job_paths import FAR, Choice, JobData, Numbers, cheapest_paths
from solvers.bounds.lagrangian.relaxation import Relaxation


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
        self._places = prices.places, relaxation.places.slot_us
        self._falling = self._precedence_prices(prices)

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
        choice = Choice(*(part.copy() for part in self.choice))
        prices = (*self._costs, self.relaxation.slot_us, self._falling, *self._places)
        cheapest_paths(alone, shapes, *prices, self._cost, self._message, choice)
        first, last = shapes.node_first[data.shape[job]], shapes.node_first[data.shape[job] + 1]
        count = data.delays[job]
        through = self._cost[: shapes.option_first[last] - shapes.option_first[first], :count].copy()
        for node in range(int(last) - 2, int(first) - 1, -1):
            self._add_rest_of_job(job, node, through, self._message[node - first, :count])
        return through

    def _add_rest_of_job(self, job: int, node: int, through: Numbers, told: Numbers) -> None:
        """Add to the costs of a node's subtree the least that the rest of the job then costs; parents come first."""
        data, shapes = self.relaxation.data, self.relaxation.trees.shapes
        first = int(shapes.node_first[data.shape[job]])
        parent = first + int(shapes.parent[node])
        rest = np.full(len(told), FAR)
        if shapes.after_parent[node]:
            for row, target in self._arrivals(job, parent, node, through):
                np.minimum.at(rest, target, row - told[target])
            rest = np.minimum.accumulate(rest)
            for row, _ in self._arrivals(job, node, node, through):
                np.minimum(row + rest, FAR, out=row)
            return
        for row, _ in self._arrivals(job, parent, parent, through):
            np.minimum(rest, row - told, out=rest)
        rest = np.minimum.accumulate(rest[::-1])[::-1]
        for row, target in self._arrivals(job, node, parent, through):
            np.minimum(row + rest[target], FAR, out=row)

    def _arrivals(self, job: int, node: int, target: int, through: Numbers) -> list[tuple[Numbers, Numbers]]:
        """Return a node's costs by option, each with the delays of another node that its ends allow first."""
        data, shapes = self.relaxation.data, self.relaxation.trees.shapes
        first, base = int(shapes.node_first[data.shape[job]]), int(data.node_first[job])
        earliest = data.earliest_us[base + node - first] - data.earliest_us[base + target - first]
        delays, pairs = np.arange(through.shape[1]), []
        for option in range(shapes.option_first[node], shapes.option_first[node + 1]):
            behind = (earliest + shapes.run_us[option]) // self.relaxation.slot_us
            row = through[option - shapes.option_first[first]]
            pairs.append((row, np.clip(delays + behind, 0, len(delays) - 1)))
        return pairs
