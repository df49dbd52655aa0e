"""Bids: what each task would pay for its place in a batch, and how bids move.

A bid is what its job may cost, as the task sees it, less what the job costs with the task there but for its place. Bids
that add up to more or less than the price of the batch are scaled to it. So all that moves by itself is one number per
task, as in dual ascent for facility location (Erlenkotter, Operations Research 26, 1978): up while the task is counted
on too seldom, down while batches that are sold count on it more than once. Where nobody would take a place for
nothing, nobody pays for it.
"""

from __future__ import annotations

import numpy as np

from truenorth.solvers.bounds.lagrangian.batch_places import Places, highest_bid, rank_bids
from truenorth.solvers.bounds.lagrangian.evaluation import Evaluation
from truenorth.solvers.bounds.lagrangian.job_paths import Choice, JobData, Numbers
from truenorth.solvers.bounds.lagrangian.relaxation import Relaxation
from truenorth.solvers.bounds.lagrangian.shapes import Shapes
from truenorth.solvers.compiled import Floats, allocating_kernel

STEP_SHARE = 0.5
"""What a job may cost moves in steps of this share of what a run of the task alone costs its job by delay."""

REST_SMOOTHING = 0.9
"""Weight of the past in what a job costs but for a task's place: the other tasks of the job bid at the same time."""

SMOOTHING, SIZE_SMOOTHING = 0.9, 0.99
"""Weights of the past in the running mean of the excess, and of its square, as in the ascent."""


class Bidders:
    """Tasks that bid for batches.

    Parameters
    ----------
    evaluation
        From now on it notes what every job costs with a task at a delay.
    """

    def __init__(self, relaxation: Relaxation, evaluation: Evaluation) -> None:
        data, shapes, places = relaxation.data, relaxation.trees.shapes, relaxation.places
        self._known = data, shapes, places, relaxation.slot_us
        parts, nodes = int(places.first[-1]), len(data.earliest_us)
        evaluation.rest = np.zeros(parts)
        self._bids, self._usual_rest = np.zeros(parts), np.zeros(parts)
        self._total = np.zeros((len(places.most), relaxation.slots))
        self._sold, self._top = np.zeros_like(self._total), np.zeros((*self._total.shape, int(places.most.max())))
        sizes = np.diff(shapes.node_first)[data.shape]
        within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        self._job, self._node = np.repeat(np.arange(len(data.shape)), sizes), np.repeat(data.node_first, sizes) + within
        alone_us = shapes.run_us[shapes.option_first[np.repeat(shapes.node_first[data.shape], sizes) + within]]
        self._unit = np.zeros(nodes)
        self._unit[self._node] = STEP_SHARE * data.weight[self._job] * (1 if data.steps else alone_us)
        self._worth: Floats = np.zeros(nodes)
        self._excess, self._mean, self._square, self._steps = np.zeros(nodes), np.zeros(nodes), np.zeros(nodes), 0

    def move(self, evaluation: Evaluation, parts: Numbers, length: float) -> None:
        """Move the bids after an evaluation, and write which parts of their batches tasks pay next.

        Parameters
        ----------
        length
            Of the step, see `Steps`.
        """
        choice = evaluation.choice
        if self._steps == 0:
            self._worth[self._node] = choice.value[self._job]
        else:
            count_sold(*self._known, self._bids, self._top, choice, self._sold, self._excess)
            self._mean += (1 - SMOOTHING) * (self._excess - self._mean)
            self._square += (1 - SIZE_SMOOTHING) * (self._excess**2 - self._square)
            mean, square = self._mean / (1 - SMOOTHING**self._steps), self._square / (1 - SIZE_SMOOTHING**self._steps)
            self._worth[:] += length * self._unit * mean / (np.sqrt(square) + 1e-9)
        past = REST_SMOOTHING if self._steps else 0.0
        self._steps += 1
        bid(*self._known[:3], self._worth, evaluation.rest, self._usual_rest, past, self._bids)
        rank_bids(*self._known, self._bids, self._top, self._total)
        share_price(*self._known, self._bids, self._top, self._total, parts)


@allocating_kernel
def bid(
    data: JobData,
    shapes: Shapes,
    places: Places,
    worth: Floats,
    rest: Floats,
    usual_rest: Floats,
    past: float,
    bids: Floats,
) -> None:
    """Write what each task would pay for its batch, by option and delay.

    Parameters
    ----------
    worth
        What a job may cost, as each of its tasks sees it: above it no place is worth anything. Shape [nodes].
    rest, usual_rest, past
        What a job costs with a task there, but for the task's part of the batch; its running mean, in which the past
        weighs so much.
    """
    for job in range(len(data.shape)):
        shape, base, count = data.shape[job], data.node_first[job], data.delays[job]
        first = shapes.node_first[shape]
        for node in range(first, shapes.node_first[shape + 1]):
            at = places.first[base + node - first]
            if at < 0:
                continue
            for _ in range(shapes.option_first[node], shapes.option_first[node + 1]):
                for k in range(at, at + count - 1):
                    usual_rest[k] = past * usual_rest[k] + (1 - past) * rest[k]
                    bids[k] = max(0.0, worth[base + node - first] - usual_rest[k])
                bids[at + count - 1] = 0
                at += count


@allocating_kernel
def share_price(
    data: JobData,
    shapes: Shapes,
    places: Places,
    slot_us: int,
    bids: Numbers,
    top: Numbers,
    total: Numbers,
    part: Numbers,
) -> None:
    """Write the parts that tasks pay: their bids, scaled so that the highest for each batch add up to its price.

    Who bids less than those pays as much as the lowest of them: it takes nothing from anybody.
    """
    for job in range(len(data.shape)):
        shape, base, count = data.shape[job], data.node_first[job], data.delays[job]
        first = shapes.node_first[shape]
        for node in range(first, shapes.node_first[shape + 1]):
            at, earliest = places.first[base + node - first], data.earliest_us[base + node - first]
            if at < 0:
                continue
            for option in range(shapes.option_first[node], shapes.option_first[node + 1]):
                row = shapes.place[option]
                most = places.most[row]
                for k in range(count - 1):
                    begin = earliest // slot_us + k
                    paid = 1.0
                    # Wherever in its delay the task starts, it pays no more than is right there.
                    for slot in range(begin, begin + 1 + (earliest % slot_us > 0)):
                        right = 0.0 if most > 1 else 1.0
                        if bids[at + k] > 0:
                            right = max(bids[at + k], top[row, slot, most - 1]) / total[row, slot]
                        paid = min(paid, right)
                    part[at + k] = paid
                at += count


@allocating_kernel
def count_sold(
    data: JobData,
    shapes: Shapes,
    places: Places,
    slot_us: int,
    bids: Floats,
    top: Floats,
    choice: Choice,
    sold: Floats,
    excess: Floats,
) -> None:
    """Write how much too seldom each task is counted on: once, less how often its bid is among those for a batch sold.

    Parameters
    ----------
    sold
        Room to work in: how often each batch is sold. Shape [rows, slots].
    excess
        Shape [nodes].
    """
    sold[:] = 0
    for job in range(len(data.shape)):
        shape, base = data.shape[job], data.node_first[job]
        for node in range(base, base + shapes.node_first[shape + 1] - shapes.node_first[shape]):
            excess[node] = 0
            row = shapes.place[choice.option[node]]
            # Alone a task pays all there is to pay, whatever others bid.
            if row >= 0 and choice.start_us[node] >= 0 and places.most[row] > 1:
                sold[row, choice.start_us[node] // slot_us] += choice.part[node]
                excess[node] = 1
    for job in range(len(data.shape)):
        shape, base, count = data.shape[job], data.node_first[job], data.delays[job]
        first = shapes.node_first[shape]
        for node in range(first, shapes.node_first[shape + 1]):
            at, earliest = places.first[base + node - first], data.earliest_us[base + node - first]
            if at < 0:
                continue
            for taken in range(shapes.option_first[node], shapes.option_first[node + 1]):
                row = shapes.place[taken]
                for slot in range(count):
                    batches = sold[row, earliest // slot_us + slot]
                    if batches > 0:
                        offered = highest_bid(bids, at, count, slot, earliest % slot_us)
                        if offered > 0 and offered >= top[row, earliest // slot_us + slot, places.most[row] - 1]:
                            excess[base + node - first] -= batches
                at += count
