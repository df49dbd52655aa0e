"""When tasks can still start in a plan no worse than a known one: reduced costs of the Lagrangian.

At fixed prices the Lagrangian adds up over jobs and residencies, and every plan costs at least what its jobs and
residencies pay there. So all jobs together pay no more above their cheapest paths than the plan lies above the bound;
in a plan no worse than a known one a delay that would cost its job more is ruled out. This is variable fixing by
reduced costs; for sequencing: Ibaraki and Nakamura, European Journal of Operational Research 76, 1994. What is
proved inside such limits is min(bound, value of the known plan).
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import floor

import numpy as np

from truenorth.models.formulations.scale import ScaledObjective
from truenorth.models.formulations.windows import UNREACHABLE, Limits, Step, Surcharges
from truenorth.models.instance import Instance, Ints
from truenorth.solvers.bounds.lagrangian.evaluation import Evaluation, Prices, padded
from truenorth.solvers.bounds.lagrangian.improve import Priced
from truenorth.solvers.bounds.lagrangian.job_paths import JobData, Numbers, add_rest_of_job, cheapest_paths
from truenorth.solvers.bounds.lagrangian.relaxation import Relaxation, job_costs
from truenorth.solvers.bounds.lagrangian.shapes import NO_TASK

_STEPS = 32
"""Most steps in which the surcharge of a task grows, in each direction."""


def limits(instance: Instance, scaled: ScaledObjective, priced: Priced, value: Fraction, horizon_us: int) -> Limits:
    """Return the starts and completions that every plan of at most this value keeps to, and what others would cost.

    Parameters
    ----------
    value
        What a known plan costs, in the units of the bound.
    horizon_us
        Time by which everything ends.
    """
    relaxation = priced.relaxation
    marginals = Marginals(relaxation, priced.prices)
    spare = floor(value * relaxation.scale) - marginals.least
    per_unit = scaled.factor / relaxation.scale
    earliest = np.zeros((instance.n_tasks, len(instance.class_gpu)), np.int64)
    latest = np.full_like(earliest, UNREACHABLE)
    completion = np.full(len(instance.jobs), UNREACHABLE)
    steps: list[tuple[Step, ...]] = [()] * len(instance.jobs)
    costs = job_costs(instance, scaled.objective)
    for index, job in enumerate([] if costs is None else costs.jobs.tolist()):
        nodes = list(_nodes(instance, marginals, index, job))
        for node in nodes:
            if node.task is not None:
                first_us, last_us = node.hull(spare)
                for c in np.unique(node.classes).tolist():  # a class is as good as the best size of batch on it
                    here = node.classes == c
                    earliest[node.task, c], latest[node.task, c] = first_us[here].min(), last_us[here].max()
        root = nodes[-1]
        completion[job] = np.minimum(UNREACHABLE, (root.hull(spare)[1] + root.run_us).max())
        steps[job] = tuple(step for node in nodes for step in node.steps(spare, per_unit))
    base = floor(marginals.least * per_unit) - scaled.shortfall(instance, np.minimum(completion, horizon_us))
    surcharges = Surcharges(base, floor(spare * per_unit), tuple(steps))
    return Limits(earliest[:, instance.gpu_class], latest[:, instance.gpu_class], completion, surcharges)


class _TreeNode:
    """A node of a job's tree with what it costs the job, above its cheapest path, to delay it.

    Parameters
    ----------
    task
        None for the added end of a workflow.
    classes, run_us
        The options: classes it may run on, and how long. Shape [options].
    begin_us, slot_us
        Delay k stands for starts in [begin + k slots, begin + (k + 1) slots), the last one for all later ones, too.
    above
        Shape [options, delays].
    """

    def __init__(
        self, task: int | None, classes: Ints, run_us: Ints, begin_us: int, slot_us: int, above: Numbers
    ) -> None:
        self.task, self.classes, self.run_us = task, classes, run_us
        self.begin_us, self.slot_us, self.above = begin_us, slot_us, above

    def hull(self, spare: int) -> tuple[Ints, Ints]:
        """Return the first and last starts that cost at most `spare`; where none does, the last is -1."""
        allowed, delays = self.above <= spare, self.above.shape[1]
        any_allowed = allowed.any(axis=1)
        last = delays - 1 - allowed[:, ::-1].argmax(axis=1)
        first_us = np.where(any_allowed, self.begin_us + allowed.argmax(axis=1) * self.slot_us, UNREACHABLE)
        last_us = np.where(last < delays - 1, self.begin_us + (last + 1) * self.slot_us - 1, UNREACHABLE)
        return first_us, np.where(any_allowed, last_us, -1)

    def steps(self, spare: int, per_unit: Fraction) -> Iterator[Step]:
        """Yield the starts from which on, and up to which, the task costs its job noticeably more."""
        if self.task is None or spare <= 0:
            return
        above = self.above.min(axis=0)
        levels = np.unique([max(1, spare * level // _STEPS) for level in range(1, _STEPS + 1)])
        from_here_on = np.minimum.accumulate(above[::-1])[::-1]
        for delay in np.unique(np.searchsorted(from_here_on, levels)).tolist():
            if delay < len(above) and from_here_on[delay] <= spare:
                least = floor(int(from_here_on[delay]) * per_unit)
                yield Step(self.task, True, self.begin_us + delay * self.slot_us, least)
        up_to_here = np.minimum.accumulate(above)[:-1][::-1]
        for back in np.unique(np.searchsorted(up_to_here, levels)).tolist():
            if back < len(up_to_here) and up_to_here[back] <= spare:
                least = floor(int(up_to_here[back]) * per_unit)
                yield Step(self.task, False, self.begin_us + (len(up_to_here) - back) * self.slot_us - 1, least)


def _nodes(instance: Instance, marginals: Marginals, index: int, job: int) -> Iterator[_TreeNode]:
    """Yield the nodes of a job, the `index`-th that costs anything; the root last."""
    relaxation = marginals.relaxation
    data, shapes = relaxation.data, relaxation.trees.shapes
    above = marginals.of_job(index) - marginals.choice.value[index]
    low, high = shapes.node_first[data.shape[index]], shapes.node_first[data.shape[index] + 1]
    for node in range(low, high):
        position = int(relaxation.trees.node_task[node])
        task = None if position == NO_TASK else int(instance.job_first_task[job]) + position
        options = slice(shapes.option_first[node], shapes.option_first[node + 1])
        lanes = shapes.lane[options].tolist() if task is not None else []
        classes = np.array([relaxation.trees.lanes[lane].gpu_class for lane in lanes], np.int64)
        rows = slice(options.start - shapes.option_first[low], options.stop - shapes.option_first[low])
        begin_us = int(data.earliest_us[data.node_first[index] + node - low])
        yield _TreeNode(task, classes, shapes.run_us[options], begin_us, relaxation.slot_us, above[rows])


class Marginals(Evaluation):
    """The least that each job pays, given that one of its tasks runs on a class of GPUs with a certain delay.

    The cheapest-path programme goes from the leaves of a job's tree to its root; a second pass, back from the root,
    adds to each task's subtree the cheapest rest of the job (min-marginals, as in belief propagation on a tree).

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
