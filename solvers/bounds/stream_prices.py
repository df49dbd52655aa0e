"""Prices of GPU time: what jobs with requests of streams cost at the least if they buy it, or come later and pay less.

Time is cut into windows, each with a price per GPU class. A job pays for the GPU time that its requests use up, and
for its latency or tardiness. Slower steps are cheaper, for they are shared by more; a later end is dearer. What all
jobs pay at the least, less what all GPUs are worth at these prices, is a lower bound, whatever the prices.

Invariant: no plan has a lower value.
Because: an iteration with p prompt tokens and k decodes lasts at least p / P + tau[k]; let each token pay 1 / P, each
decode tau[k] / k, evenly over the iteration: so a GPU never sells more time than it has. A request whose decodes take
steps of s on average pays at least the hull of tau[k] / k over tau[k] at s for each (Jensen), and its job's latency is
at least head + prompt + s x decodes + tail. What is bought before a job ends costs no less than the cheapest window
from its release to the one in which it ends. Of a job's requests one trades time for steps; the others are charged the
least of each. Everything is rounded towards a lower sum, in whole numbers.
Cost: O(jobs x windows x corners) for each of some hundred prices that are tried.
If wrong: a bound above the optimum. `solvers.bounds.recomputed` computes it again with code of its own.
Source: prices as in every Lagrangian relaxation of capacity (Fisher 1981).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise, product
from math import floor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truenorth.models import NEVER, NONE, Instance, Objective
from truenorth.models.instance import Ints
from truenorth.models.objective import Term, charges
from truenorth.models.streams import StreamSpeed, Tokens
from truenorth.solvers.bounds.critical_path import earliest, jobs_by_workflow, runs_alone
from truenorth.solvers.bounds.proof import Proof

FINE = 1024
"""Parts of a microsecond in which GPU time is counted."""
SCALE = 1 << 60
"""Weights are whole numbers of this part of the objective's unit per microsecond; prices, too, per part of GPU time."""
NOWHERE_US = 1 << 60
"""The latency of a job on a GPU class where its request cannot be served."""
_LINES, _WINDOWS, _JOB_WINDOWS = 6, 64, 200_000
"""Edges of hulls that are kept; windows at most; jobs x windows at most."""
_STEPS = (1.5, 1.5, 1.2, 1.2, 1.1, 1.05)
"""By what factors prices are tried around the best ones known."""

Numbers = NDArray[Any]
"""Whole numbers of any size, or floats: the same is computed with both."""
Point = tuple[Fraction | int, Fraction | int]
Corner = tuple[int, int]
"""A mean step in microseconds, and what a decode then pays at the least, in 1 / FINE microseconds."""


def bound(instance: Instance, objective: Objective) -> Fraction | None:
    """Return the bound on a sum of latencies or tardiness; None without requests of streams, or otherwise."""
    proof = prove(instance, objective)
    return None if proof is None else proof.value


def prove(instance: Instance, objective: Objective) -> Proof | None:
    """Return the bound with its windows, its prices, and the corners of what decodes pay."""
    charged = charges(objective, instance)
    if instance.streams is None or not charged.is_sum or charged.term not in (Term.LATENCY, Term.TARDINESS):
        return None
    corners = [[None if speed is None else list(_corners(speed)) for speed in row] for row in instance.streams.speeds]
    weights = [floor(weight * SCALE) for weight in charged.job_weights]
    demand = _Demand.of(instance, corners, weights, (charged.due_us - instance.job_release_us).tolist())
    count = max(4, min(_WINDOWS, _JOB_WINDOWS // len(instance.jobs)))
    edges = np.unique(np.linspace(0, demand.horizon_us(), count + 1).astype(np.int64))
    prices = _choose_prices(demand.cut(edges, float))
    value = Fraction(int(demand.cut(edges, object).lagrangian(prices)), SCALE * FINE)
    listed = [[None if curve is None else list(map(list, curve)) for curve in row] for row in corners]
    witness = {"edges_us": edges.tolist(), "prices": prices.tolist(), "corners": listed}
    return Proof(max(value, Fraction(0)), witness)


def _corners(speed: StreamSpeed) -> list[Corner]:
    """Return corners of a falling convex curve below all (tau[k], tau[k] / k): where a few edges of their hull meet."""
    hull = _lower_hull([(Fraction(speed.tau[k]), Fraction(speed.tau[k], k)) for k in range(1, speed.seats + 1)])
    few = np.geomspace(1, len(hull) - 1, _LINES).astype(int).tolist() if len(hull) > 1 else []
    lines = [(_slope(hull[at - 1], hull[at]), hull[at]) for at in sorted(set(few))] + [(Fraction(0), hull[-1])]
    met = [(hull[0][0], _at(lines[0], hull[0][0]))]
    for one, other in pairwise(lines):
        step = (_at(other, Fraction(0)) - _at(one, Fraction(0))) / (one[0] - other[0])
        met.append((step, _at(other, step)))
    # Corners that are moved down and to the left make a lower curve; what is no corner of it any more goes.
    return [(int(step), int(each)) for step, each in _lower_hull([(floor(s), floor(each * FINE)) for s, each in met])]


def _lower_hull(points: Sequence[Point]) -> list[Point]:
    """Return the falling corners of the lower convex hull of points whose first coordinates never fall."""
    hull: list[Point] = []
    for point in points:
        if hull and point[0] == hull[-1][0]:
            if point[1] >= hull[-1][1]:
                continue
            hull.pop()
        while len(hull) > 1 and _slope(hull[-2], hull[-1]) >= _slope(hull[-1], point):
            hull.pop()
        hull.append(point)
    return hull[: min(range(len(hull)), key=lambda at: hull[at][1]) + 1]


def _slope(one: Point, other: Point) -> Fraction:
    return Fraction(other[1] - one[1]) / Fraction(other[0] - one[0])


def _at(line: tuple[Fraction, Point], step: Fraction | int) -> Fraction:
    slope, (through, height) = line
    return height + slope * (step - through)


@dataclass(frozen=True, slots=True, eq=False)
class _Demand:
    """What jobs take: one request of each trades latency for GPU time, of the others the least counts.

    Parameters
    ----------
    weight, slack_us, alone_us, release_us
        Per job: the price of a microsecond beyond its slack, and the least latency.
    latency_us, energy
        Latency of a job, and GPU time of its request, at each corner; of a class where it cannot be served `NOWHERE_US`
        and 0. Shape [jobs, classes, corners].
    others_job, others_energy
        The other requests. Shape [others] and [others, classes].
    gpus
        GPUs of each class.
    """

    weight: list[int]
    slack_us: list[int]
    alone_us: Ints
    release_us: Ints
    latency_us: Ints
    energy: Ints
    others_job: Ints
    others_energy: Ints
    gpus: Ints

    @classmethod
    def of(
        cls, instance: Instance, corners: Sequence[Sequence[list[Corner] | None]], weight: list[int], slack: list[int]
    ) -> _Demand:
        """Return what the jobs of an instance take."""
        streams, times, tail_us = instance.streams, earliest(instance), _tails(instance)
        if streams is None:
            raise ValueError("the instance has no requests of streams")
        n_jobs, n_classes = len(instance.jobs), len(instance.class_gpu)
        most = max(len(each) for row in corners for each in row if each is not None)
        alone_us = np.maximum.reduceat(times.end_us, instance.job_first_task[:-1]) - instance.job_release_us
        latency = np.full((n_jobs, n_classes, most), NOWHERE_US, np.int64)
        energy = np.zeros((n_jobs, n_classes, most), np.int64)
        others_job, others_energy = [], []
        for job in range(n_jobs):
            release, tasks = int(instance.job_release_us[job]), instance.tasks_of(job)
            requests = [task for task in tasks if streams.template[instance.task_template[task]] != NONE]
            if not requests:  # it pays for its latency alone
                latency[job] = alone_us[job]
                continue
            chosen = max(requests, key=lambda task: streams.tokens(task).decodes)
            for task in requests:
                rows = _trades(instance, task, corners)
                if task != chosen:
                    others_job.append(job)
                    others_energy.append([-1 if row is None else row[-1][1] for row in rows])
                    continue
                around = int(times.start_us[task] - release + tail_us[task])
                for c, row in enumerate(rows):
                    if row is None:
                        continue
                    for at in range(most):
                        own_us, own = row[min(at, len(row) - 1)]
                        latency[job, c, at], energy[job, c, at] = around + own_us, own
        return cls(
            weight,
            slack,
            alone_us,
            instance.job_release_us,
            latency,
            energy,
            np.array(others_job, np.int64),
            np.array(others_energy, np.int64).reshape(-1, n_classes),
            np.bincount(instance.gpu_class, minlength=n_classes),
        )

    def horizon_us(self) -> int:
        """Return a time by which all could have been served: where prices end."""
        served = self.latency_us[:, :, 0] < NOWHERE_US
        least = np.where(served, self.energy[:, :, -1], np.iinfo(np.int64).max).min(axis=1)
        work_us = int(least.sum() + self.others_energy.max(axis=1, initial=0).sum()) // (FINE * int(self.gpus.sum()))
        return int((self.release_us + self.alone_us).max()) + work_us

    def cut(self, edges_us: Ints, kind: type) -> _Market:
        """Return the demand over windows, in floats or in whole numbers of any size."""
        window = np.searchsorted(edges_us, self.release_us, side="right") - 1
        floor_us = np.maximum(edges_us[None, :] - self.release_us[:, None], self.alone_us[:, None])
        slack = np.array(self.slack_us, np.int64)
        return _Market(
            np.array(self.weight, object).astype(kind) * FINE,
            slack[:, None].astype(kind),
            np.maximum(floor_us, slack[:, None]).astype(kind),
            window,
            self.latency_us.astype(kind),
            self.energy.astype(kind),
            self.others_job,
            self.others_energy.astype(kind),
            (self.gpus[:, None] * np.diff(edges_us)[None, :]).astype(kind) * FINE,
        )


def _trades(
    instance: Instance, task: int, corners: Sequence[Sequence[list[Corner] | None]]
) -> list[list[tuple[int, int]] | None]:
    """Return per GPU class how long a request takes and what GPU time it uses up, at each corner; None: it cannot run.

    A prompt takes whole microseconds, and its own tokens' time of the GPU.
    """
    streams, template = instance.streams, int(instance.task_template[task])
    if streams is None:
        return []
    stream, tokens = int(streams.template[template]), streams.tokens(task)
    runs = runs_alone(instance, template, np.array([task]))[0].tolist()
    found: list[list[tuple[int, int]] | None] = []
    for speed, row, run in zip(streams.speeds[stream], corners[stream], runs, strict=True):
        if speed is None or row is None or run == NEVER:
            found.append(None)
            continue
        prompt = floor(tokens.uncached * 10**6 * FINE / speed.prefill_rate)
        found.append([(_own_us(speed, tokens, step), prompt + tokens.decodes * each) for step, each in row])
    return found


def _own_us(speed: StreamSpeed, tokens: Tokens, step_us: int) -> int:
    return speed.prefill_us(tokens.uncached) + tokens.decodes * step_us


def _tails(instance: Instance) -> Ints:
    """Return how long what follows each task takes at the least, transfers left out. Shape [tasks]."""
    tail = np.zeros(instance.n_tasks, np.int64)
    for number, (workflow, jobs) in enumerate(zip(instance.workflows, jobs_by_workflow(instance), strict=True)):
        first, start = instance.job_first_task[jobs], int(instance.template_first[number])
        for at in workflow.topological[::-1]:
            for offset, _ in instance.outputs[start + at]:
                after = first + at + offset
                runs = runs_alone(instance, start + at + offset, after)
                least = np.where(runs == NEVER, NOWHERE_US, runs).min(axis=1)
                tail[first + at] = np.maximum(tail[first + at], least + tail[after])
    return tail


@dataclass(frozen=True, slots=True, eq=False)
class _Market:
    """The demand over windows of time; the last window, in which nothing costs anything, has no end.

    Parameters
    ----------
    until
        Per job and window in which it ends: the latency up to which a later end costs nothing more.
    supply
        GPU time of every class in every window but the last. Shape [classes, windows].
    """

    weight: Numbers
    slack: Numbers
    until: Numbers
    window: Ints
    latency: Numbers
    energy: Numbers
    others_job: Ints
    others_energy: Numbers
    supply: Numbers

    def lagrangian(self, prices: Numbers) -> Any:
        """Return the bound at these prices, in 1 / (SCALE FINE) of the objective's unit. Shape [classes, windows]."""
        paid = [_cheapest_so_far(row.astype(self.energy.dtype)) for row in prices]
        cost = np.min([self._least(c, price[self.window]) for c, price in enumerate(paid)], axis=0)
        np.add.at(cost, self.others_job, self._others(paid))
        before = np.arange(cost.shape[1])[None, :] < self.window[:, None]
        return np.where(before, cost.max(), cost).min(axis=1).sum() - (prices * self.supply).sum()

    def _least(self, c: int, price: Numbers) -> Numbers:
        """Return the least cost of each job on a class, its other requests aside, by the window in which it ends.

        Between two corners costs are linear, but where a later end begins to cost more.
        """
        latency, energy = self.latency[:, c, :, None], self.energy[:, c, :, None]
        until = np.maximum(self.until, latency[:, 0])
        shared = energy[:, 0]
        for at in range(latency.shape[1] - 1):
            span = np.maximum(latency[:, at + 1] - latency[:, at], 1)
            gone = np.minimum(until - latency[:, at], span)
            on_edge = energy[:, at] + (energy[:, at + 1] - energy[:, at]) * gone // span
            shared = np.where(until >= latency[:, at], on_edge, shared)
        best = self.weight[:, None] * (until - self.slack) + price * shared
        for at in range(latency.shape[1]):
            later = np.maximum(latency[:, at], until)
            best = np.minimum(best, self.weight[:, None] * (later - self.slack) + price * energy[:, at])
        return np.asarray(best)

    def _others(self, paid: Sequence[Numbers]) -> Numbers:
        """Return the least that the other requests pay, by the window in which their job ends."""
        window = self.window[self.others_job]
        rows = np.stack([price[window] * self.others_energy[:, c, None] for c, price in enumerate(paid)])
        unable = np.broadcast_to((self.others_energy < 0).T[:, :, None], rows.shape)
        return np.asarray(np.where(unable, rows.max(initial=0), rows).min(axis=0))


def _cheapest_so_far(price: Numbers) -> Numbers:
    """Return the least price from one window (row) to another (column); the last window is free."""
    count = len(price) + 1
    least = np.broadcast_to(np.append(price, price[:1] * 0), (count, count)).copy()
    for end in range(1, count):
        so_far = np.minimum(least[:, end - 1], least[:, end])
        least[:, end] = np.where(np.arange(count) < end, so_far, least[:, end])
    return least


def _choose_prices(market: _Market) -> Numbers:
    """Return the best prices of those that stay level and fall to 0 before the end, in whole numbers.

    Any prices hold; of these there are three numbers to find: how high, until when, and for how long they fall.
    """
    served = market.latency[:, :, -1] < NOWHERE_US
    work = np.where(served, market.energy[:, :, -1], 0).sum(axis=0) / np.maximum(served.sum(axis=0), 1)
    # A class on which requests take twice the time is worth half the price.
    level = work.max() / np.where(work > 0, work, work.max() or 1) * market.weight.mean() / FINE
    at = np.linspace(0, 1, market.supply.shape[1], endpoint=False)

    def prices(tried: tuple[float, ...]) -> Numbers:
        height, end, fall = tried
        return np.outer(level, height * np.clip((end - at) / fall, 0, 1))

    def value(tried: tuple[float, ...]) -> float:
        return float(market.lagrangian(prices(tried)))

    best: tuple[float, ...] = max(
        product((0.5, 2.0, 8.0, 32.0), (0.2, 0.4, 0.6, 0.8, 1.0), (0.02, 0.2, 0.8)), key=value
    )
    for step in _STEPS:  # each number in turn, up and down, as long as that helps
        for number in range(3):
            near = [(*best[:number], best[number] * factor, *best[number + 1 :]) for factor in (1 / step, 1, step)]
            best = max(near, key=value)
    found = prices(best) if value(best) > 0 else 0 * market.supply
    return np.array([[int(price) for price in row] for row in found.tolist()], object)
