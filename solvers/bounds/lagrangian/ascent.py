"""Ascent: prices that make the Lagrangian large.

Every price moves along its own excess, smoothed and divided by its running size (Kingma and Ba, Adam, 2015), is kept
at or above 0, and moves less and less. A plain or deflected subgradient method stalls here: the excess of
a slot that is fought over is many times that of one that is nearly balanced, and one step length serves neither.
At the end the mean of the last prices is tried: the value is concave, so it is worth at least the mean of theirs, and
what they swing to and fro is gone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from truenorth.solvers.bounds.lagrangian.bidding import Bidders
from truenorth.solvers.bounds.lagrangian.evaluation import Evaluation, Prices
from truenorth.solvers.bounds.lagrangian.job_paths import Numbers
from truenorth.solvers.bounds.lagrangian.relaxation import Relaxation
from truenorth.solvers.compiled import allocating_kernel

SMOOTHING, SIZE_SMOOTHING = 0.9, 0.99
"""Weights of the past in the running mean of the excess, and of its square."""

PRICE_SMOOTHING, FORGOTTEN = 0.97, 10
"""Weight of the past in the running mean of the prices; the first so many steps count for little in it."""


@dataclass(frozen=True, slots=True)
class Steps:
    """How far prices move per evaluation, as a share of the usual price: from `first` down to `last`."""

    count: int
    first: float = 0.05
    last: float = 0.002

    def length(self, step: int) -> float:
        """Return the step length of an evaluation: it falls along a parabola, so that most steps are long."""
        left = 1 - step / max(1, self.count - 1)
        return self.last + (self.first - self.last) * left * left


@dataclass(frozen=True, slots=True)
class Climb:
    """Where an ascent ended: best prices, their value, and what each job pays then."""

    best: Numbers
    value: float
    job_value: Numbers


def ascend(
    relaxation: Relaxation,
    start: Numbers,
    steps: Steps,
    go_on: Callable[[], bool],
    evaluation: Evaluation | None = None,
) -> Climb:
    """Climb from prices (one long array, see `Prices.split`) until the steps are used up or `go_on` says no.

    Parameters
    ----------
    evaluation
        Of the relaxation; None: job by job.
    """
    evaluation = Evaluation(relaxation) if evaluation is None else evaluation
    flat = start.copy()
    prices = Prices.split(flat, relaxation)
    for models in (prices.copy, prices.memory, prices.uses):
        models[:, evaluation.model_slots :] = 0
    unit = _units(relaxation, evaluation.model_slots)
    gradient, mean, square = np.zeros_like(unit), np.zeros_like(unit), np.zeros_like(unit)
    excess = Prices.split(gradient, relaxation)
    bidders = Bidders(relaxation, evaluation) if relaxation.trees.places else None
    best, best_value = flat.copy(), -np.inf
    job_value, smooth = evaluation.job_value.copy(), flat.copy()
    for step in range(steps.count):
        value = float(evaluation.value(prices))
        if value > best_value:
            best_value = value
            best[:] = flat
            job_value[:] = evaluation.job_value
        # Asked after the evaluation, so that even an ascent without time has one value to offer.
        if not go_on():
            break
        evaluation.excess(excess)
        past = min(PRICE_SMOOTHING, (step + 1) / (step + FORGOTTEN))
        move(flat, gradient, mean, square, smooth, unit, steps.length(step), past, step + 1)
        # After the step, for the next evaluation: bids follow from what jobs cost at the prices before it.
        if bidders is not None:
            bidders.move(evaluation, prices.parts, steps.length(step))
    else:
        Prices.split(smooth, relaxation).parts[:] = prices.parts
        value = float(evaluation.value(Prices.split(smooth, relaxation)))
        if value > best_value:
            best, best_value = smooth, value
            job_value[:] = evaluation.job_value
    return Climb(best, best_value, job_value)


def _units(relaxation: Relaxation, model_slots: int) -> Numbers:
    """Return the usual size of every price, 0 for one that is not to move; parts of batches, the last, are bid for."""
    unit = np.full(Prices.size(relaxation) - int(relaxation.places.first[-1]), float(relaxation.usual_price))
    parts = Prices.split(unit, relaxation)
    for models in (parts.copy, parts.memory, parts.uses):
        models[:, model_slots:] = 0
    for row, limit in enumerate(relaxation.memory):
        parts.memory[row] /= limit.capacity
    first = relaxation.data.extra_first
    for job, weight in enumerate(relaxation.data.weight.tolist()):
        per_delay = weight if relaxation.data.steps else weight * relaxation.slot_us
        parts.extra[first[job] : first[job + 1]] = per_delay
    return unit


@allocating_kernel
def move(
    prices: Numbers,
    gradient: Numbers,
    mean: Numbers,
    square: Numbers,
    smooth: Numbers,
    unit: Numbers,
    length: float,
    past: float,
    step: int,
) -> None:
    """Move every price along its normalised excess; in the mean of the prices, `smooth`, the past weighs this."""
    mean_share, square_share = 1 - SMOOTHING**step, 1 - SIZE_SMOOTHING**step
    for i in range(len(unit)):
        if unit[i] == 0:
            continue
        mean[i] = SMOOTHING * mean[i] + (1 - SMOOTHING) * gradient[i]
        square[i] = SIZE_SMOOTHING * square[i] + (1 - SIZE_SMOOTHING) * gradient[i] * gradient[i]
        # Early means are short of the past: dividing by the share makes up for it.
        size = np.sqrt(square[i] / square_share) + 1e-9
        prices[i] = max(0.0, prices[i] + length * unit[i] * mean[i] / mean_share / size)
        smooth[i] = past * smooth[i] + (1 - past) * prices[i]
