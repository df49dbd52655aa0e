"""Prices of GPU time: what jobs with requests of streams cost at the least if they buy it, or come later and pay less.

Time is cut into windows, each with a price per GPU class. A job pays for the GPU time that its requests use up, and
for its latency or tardiness. Iterations with more decodes are cheaper, for they are shared by more, but longer; a later
end is dearer. What all jobs pay at the least, less what all GPUs are worth at these prices, is a lower bound, whatever
the prices.

Invariant: no plan has a lower value.
Because: an iteration with p prompt tokens and k decodes lasts at least p / P + tau[k]; let each token pay 1 / P, each
decode tau[k] / k, evenly over the iteration: so a GPU never sells more time than it has. A request whose first token
falls in window a buys its prompt by then, its decodes from then on, and is no earlier than the last window in which it
buys. The share of a weight that is *owing* counts no such end, but what its decodes last: their own steps, and the
prompts of those who join meanwhile. Two requests that decode together do so for at most min(D) iterations, and in one
of them the prompt of the later one was worked off while the earlier one decoded; what of it was worked off before, in
the iteration of the earlier one's first token, is less than a chunk, and that one has waited for it. So a pair costs
min(w_i u_j, w_j u_i) / (P min(D_i, D_j)) in each iteration together, at least b_i b_j min(T_i, T_j) / P with
b = w / sqrt(D) and T = u / w: a positive kernel, and for any function y of sizes T all pairs of k decodes cost at least
k times the sum of (b times the integral of y up to T, less half that of y^2), less half of all b^2 T. Everything is
rounded towards a lower sum, in whole numbers, by `solvers.bounds.stream_recomputed`, whose value counts.
Cost: O(jobs x windows x levels) for each of some hundred steps of the ascent.
If wrong: a bound above the optimum.
Source: prices as in every Lagrangian relaxation of capacity (Fisher 1981); steps as in `lagrangian.ascent`.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise, product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from truenorth.models import NEVER, NONE, Instance, Objective
from truenorth.models.instance import Ints
from truenorth.models.objective import Term, charges
from truenorth.models.streams import StreamSpeed
from truenorth.solvers.bounds.critical_path import earliest, jobs_by_workflow, runs_alone
from truenorth.solvers.bounds.lagrangian.ascent import PRICE_SMOOTHING, Steps, move
from truenorth.solvers.bounds.proof import Proof
from truenorth.solvers.bounds.stream_payments import Debts, Demand, Payments, pay
from truenorth.solvers.bounds.stream_recomputed import (
    FINE,
    ROOT_BITS,
    SCALE,
    SHARES,
    SIZE_BITS,
    WEIGHT_BITS,
    counts_pairs,
    stream_value,
)
from truenorth.solvers.compiled import Floats

_NOWHERE_US = 1 << 60
"""Longer than any job takes: the run time of a task on a GPU class where it cannot run."""
_LEVELS, _WINDOWS, _JOB_WINDOWS, _SIZES = 24, 64, 200_000, 40
"""Levels of decodes that are kept; windows at most; jobs x windows at most; steps of what is owed."""
_LARGEST_SIZE = 10
"""Beyond so many times the largest size nothing is owed: a share of less than a tenth owes little."""
_STEPS = Steps(150, 0.5, 0.002)
_REFRESHED, _REMEMBERED, _PRIOR = 10, 0.97, 0.02
"""Evaluations between new debts, the weight of the past in what they are made of, and that of all windows together."""
_FIRST_SHARE, _SHARE_UNIT = 0.5, 0.15
"""The share of every weight that owes at first, and the usual size of its steps."""


def bound(instance: Instance, objective: Objective) -> Fraction | None:
    """Return the bound on a sum of latencies or tardiness; None without requests of streams, or otherwise."""
    proof = prove(instance, objective)
    return None if proof is None else proof.value


def longest_s(instance: Instance) -> float:
    """Return how many seconds the bound takes at most: beyond some jobs there are fewer windows."""
    return 0.5 + 2.5e-3 * min(instance.n_tasks, 4000) + 3e-4 * instance.n_tasks


def prove(instance: Instance, objective: Objective) -> Proof | None:
    """Return the bound with its windows, prices, levels, shares and debts."""
    charged = charges(objective, instance)
    if instance.streams is None or not charged.is_sum or charged.term not in (Term.LATENCY, Term.TARDINESS):
        return None
    weights, slack = charged.job_weights, charged.due_us - instance.job_release_us
    levels = [[None if speed is None else choose_levels(speed) for speed in row] for row in instance.streams.speeds]
    demand = _demand(instance, levels, np.array(weights, float), slack)
    counted = counts_pairs(instance)
    owes = np.isin(demand.stream, np.flatnonzero(counted)) & (demand.weight > 0)
    found = _ascend(demand, owes)
    witness = {
        "edges_us": demand.edges.astype(np.int64).tolist(),
        "levels": levels,
        **_in_whole_numbers(found, demand, counted),
    }
    return Proof(stream_value(instance, list(zip(weights, slack.tolist(), strict=True)), witness), witness)


def choose_levels(speed: StreamSpeed) -> list[list[int]]:
    """Return some numbers of decodes k, with tau[k] and FINE tau[k] / k so lowered that no k lies below the lines.

    >>> choose_levels(StreamSpeed(Fraction(1), 1, 3, {1: 4, 3: 9}))
    [[1, 4, 4096], [2, 7, 3584], [3, 9, 3072]]
    """
    counts = np.unique(np.geomspace(1, speed.seats, _LEVELS).astype(int))
    if speed.seats <= _LEVELS:
        counts = np.arange(1, speed.seats + 1)
    rows = []
    for values in (list(speed.tau), [0, *(FINE * speed.tau[k] // k for k in range(1, speed.seats + 1))]):
        # By how much the line between two levels lies too high, both of them are lowered.
        high = [0]
        for low_k, high_k in pairwise(counts.tolist()):
            between = range(low_k, high_k)
            span, rise = high_k - low_k, values[high_k] - values[low_k]
            high.append(max(-(-(rise * (k - low_k)) // span) + values[low_k] - values[k] for k in between))
        rows.append(
            [max(0, values[k] - max(pair)) for k, pair in zip(counts.tolist(), pairwise([*high, 0]), strict=True)]
        )
    return [list(level) for level in zip(counts.tolist(), *rows, strict=True)]


def _demand(instance: Instance, levels: Sequence[Sequence[Any]], weight: Floats, slack_us: Ints) -> Demand:
    """Return what jobs ask for, in floats."""
    streams, times, tail_us = instance.streams, earliest(instance), _tails(instance)
    if streams is None:
        raise ValueError("the instance has no requests of streams")
    template, first = instance.task_template, instance.job_first_task[:-1]
    stream = np.where(streams.template[template] == NONE, NONE, streams.template[template])
    decodes = np.where(streams.uncached > 0, streams.output - 1, streams.output)
    # The first of those with the most decodes is chosen; a job without requests keeps its first task.
    job_of = np.repeat(np.arange(len(first)), np.diff(instance.job_first_task))
    order = np.lexsort((np.arange(len(job_of)), -np.where(stream == NONE, -1, decodes), job_of))
    chosen = order[first]
    requests = np.bincount(job_of[stream != NONE], minlength=len(first))
    others = np.flatnonzero((stream != NONE) & (np.arange(len(job_of)) != chosen[job_of]))
    by_level, counts = _tables(levels)
    rate, chunk, longest = _speeds(streams.speeds)
    runs = _runs(instance)
    least_each = np.where(
        np.arange(by_level.shape[2])[None, None, :, None] < counts[:, :, None, None], by_level, np.inf
    ).min(axis=2)
    energy_us = streams.uncached[:, None] / rate[stream] + decodes[:, None] * least_each[stream][:, :, 2]
    energy_us = np.where(runs == NEVER, np.inf, energy_us)
    release = instance.job_release_us
    lone_us = np.maximum.reduceat(times.end_us, first) - release
    least_us = energy_us.min(axis=1, initial=np.inf)[stream != NONE].sum()
    gpus = np.bincount(instance.gpu_class, minlength=len(instance.class_gpu))
    horizon = int((release + lone_us).max()) + int(least_us) // int(gpus.sum()) + 1
    count = max(4, min(_WINDOWS, _JOB_WINDOWS // len(first)))
    edges = np.unique(np.linspace(0, horizon, count + 1).astype(np.int64))
    several = requests > 1
    start = np.where(several, release, times.start_us[chosen])
    return Demand(
        edges.astype(float),
        gpus[:, None] * np.diff(edges)[None, :].astype(float),
        weight,
        slack_us.astype(float),
        lone_us.astype(float),
        release.astype(float),
        np.searchsorted(edges, start, side="right") - 1,
        times.start_us[chosen].astype(float),
        tail_us[chosen].astype(float),
        np.where(requests > 0, stream[chosen], NONE),
        several,
        streams.uncached[chosen].astype(float),
        decodes[chosen].astype(float),
        runs[chosen] != NEVER,
        np.searchsorted(job_of[others], np.arange(len(first) + 1)),
        energy_us[others],
        by_level,
        counts,
        rate,
        chunk,
        longest,
    )


def _tables(levels: Sequence[Sequence[Any]]) -> tuple[Floats, Ints]:
    """Return decodes, step and time of each in microseconds, by stream class, GPU class and level; and how many."""
    counts = np.array([[0 if each is None else len(each) for each in row] for row in levels], np.int64)
    table = np.zeros((*counts.shape, counts.max(), 3))
    for s, row in enumerate(levels):
        for c, each in enumerate(row):
            if each is not None:
                table[s, c, : len(each)] = each
    table[:, :, :, 2] /= FINE
    return table, counts


def _speeds(rows: Sequence[Sequence[StreamSpeed | None]]) -> tuple[Floats, Floats, Floats]:
    """Return prompt tokens per microsecond, the time of a chunk, and of the longest iteration, by stream and class."""
    plain = [
        [(1.0, 0, 0) if s is None else (float(s.prefill_rate) / 1e6, s.prefill_us(s.chunk), s.slowest_us) for s in row]
        for row in rows
    ]
    rate, chunk, longest = np.moveaxis(np.array(plain, float), 2, 0)
    return rate, chunk, longest


def _runs(instance: Instance) -> Ints:
    """Return how long every task takes alone on every GPU class. Shape [tasks, classes]."""
    runs = np.zeros((instance.n_tasks, len(instance.class_gpu)), np.int64)
    for template in range(int(instance.template_first[-1])):
        tasks = np.flatnonzero(instance.task_template == template)
        runs[tasks] = runs_alone(instance, template, tasks)
    return runs


def _tails(instance: Instance) -> Ints:
    """Return how long what follows each task takes at the least, transfers left out. Shape [tasks]."""
    tail = np.zeros(instance.n_tasks, np.int64)
    for number, (workflow, jobs) in enumerate(zip(instance.workflows, jobs_by_workflow(instance), strict=True)):
        first, start = instance.job_first_task[jobs], int(instance.template_first[number])
        for at in workflow.topological[::-1]:
            for offset, edge in instance.outputs[start + at]:
                after = first + at + offset
                runs = runs_alone(instance, start + at + offset, after)
                least = instance.delay_us[edge] + np.where(runs == NEVER, _NOWHERE_US, runs).min(axis=1)
                tail[first + at] = np.maximum(tail[first + at], least + tail[after])
    return tail


class _Found(NamedTuple):
    """Prices [classes, windows], shares of weights [jobs], and what is owed."""

    prices: Floats
    shares: Floats
    debts: Debts


def _ascend(demand: Demand, owes: NDArray[np.bool_]) -> _Found:
    """Return the best prices, shares and debts that are found; `owes` says whose shares may be more than 0.

    Prices begin level, and fall to 0 before the end; then they and the shares move along what they gain. Debts follow
    from who decodes at these prices: the pull y that suits them best is their mean pull.
    """
    payments, sizes = Payments.none(demand, _SIZES), _sizes(demand, owes)
    debts, shares = payments.debts(sizes, 0.0), np.where(owes, _FIRST_SHARE, 0.0)
    best = _best_level(demand, debts, payments)
    flat, size = np.concatenate([best.prices.ravel(), shares]), best.prices.size
    value = pay(demand, best.prices, best.shares, best.debts, payments)
    payments.forget(0)
    unit = np.concatenate([np.full(size, best.prices.max() or demand.weight.mean()), np.where(owes, _SHARE_UNIT, 0.0)])
    gradient, mean, square, smooth = (np.zeros_like(flat) for _ in range(4))
    for step in range(_STEPS.count):
        prices, shares = flat[:size].reshape(best.prices.shape), flat[size:]
        payments.forget(_REMEMBERED)
        tried = pay(demand, prices, shares, debts, payments)
        if tried > value:
            value, best = tried, _Found(prices.copy(), shares.copy(), debts)
        gradient[:size] = (payments.bought[:, :-1] / demand.supply - 1).ravel()
        gradient[size:] = payments.gain / np.maximum(demand.weight * demand.lone, 1e-300)
        move(flat, gradient, mean, square, smooth, unit, _STEPS.length(step), PRICE_SMOOTHING, step + 1)
        np.minimum(flat[size:], 1, out=flat[size:])
        if step % _REFRESHED == _REFRESHED - 1 and owes.any():
            debts = payments.debts(sizes, _PRIOR)
    return best


def _best_level(demand: Demand, debts: Debts, payments: Payments) -> _Found:
    """Return the best of a few prices that stay level and fall to 0 before the end, none at all among them."""
    at = np.linspace(0, 1, demand.supply.shape[1], endpoint=False)
    falls = [high * np.clip((end - at) / 0.2, 0, 1) for high, end in product((1, 4, 16, 64), (0.4, 0.7, 1))]
    level, shares = demand.weight.mean() * np.ones((len(demand.supply), 1)), np.zeros(len(demand.weight))
    tried = [_Found(level * fall, shares, debts) for fall in (0 * at, *falls)]
    return max(tried, key=lambda each: pay(demand, each.prices, each.shares, each.debts, payments))


def _sizes(demand: Demand, owes: NDArray[np.bool_]) -> Floats:
    """Return the sizes at which debts may change, by stream class: those of all requests, for any of their shares."""
    found = np.tile(np.arange(_SIZES + 1.0), (len(demand.rate), 1))
    for s in range(len(found)):
        of = owes & (demand.stream == s) & (demand.uncached > 0)
        if of.any():
            whole = demand.uncached[of] / demand.weight[of]
            found[s, 1:] = np.geomspace(whole.min(), _LARGEST_SIZE * whole.max(), _SIZES)
    return found


def _in_whole_numbers(found: _Found, demand: Demand, counted: Sequence[bool]) -> dict[str, Any]:
    """Return what was found as a certificate holds it."""
    size, pull = 2.0 ** (SIZE_BITS - WEIGHT_BITS), 2.0 ** (WEIGHT_BITS + ROOT_BITS)
    debts = []
    for s, pairs in enumerate(counted):
        at = [int(each * size) for each in found.debts.sizes[s, 1:].tolist()]
        at = [max(1, at[0])] + [max(b, a + 1) for a, b in pairwise(at)]
        heights = [[[int(y * pull) for y in row] for row in rows] for rows in found.debts.heights[s].tolist()]
        debts.append({"at": at, "heights": heights} if pairs else None)
    return {
        "prices": [[int(price * SCALE) for price in row] for row in found.prices.tolist()],
        "shares": (found.shares * SHARES).astype(np.int64).tolist(),
        "debts": debts,
    }
