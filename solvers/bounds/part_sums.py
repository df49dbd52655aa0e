"""Sums over parts computed a second time, for the verifier: each part is a window of its own, and adds what it proves.

What a plan does for some jobs is a plan of the window of these jobs alone; so wherever the cuts lie, what is proved of
the parts adds up to no more than any plan costs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from truenorth.models import Instance, Objective
from truenorth.models.features import ONE_AT_A_TIME, SEVERAL_AT_A_TIME, Feature, missing
from truenorth.solvers.bounds.alone import LoneJobs
from truenorth.solvers.bounds.certified import LATEST, MOST_DELAYS, RefusedError, as_list, get, refuse_features, whole
from truenorth.solvers.bounds.effort import Effort, TooLargeError
from truenorth.solvers.bounds.order_programme import OrderTerms, prove
from truenorth.solvers.bounds.order_rests import Rate
from truenorth.solvers.bounds.recomputed import completion_costs, least_value

PARTS = "parts"
"""Name of the method."""
START_ORDERS = "start_orders"
"""Name of the proofs of a part that `order_programme` computes again."""
SUPPORTS = SEVERAL_AT_A_TIME - {Feature.BATCHES}
MOST_EFFORT = 2_000_000_000
"""What all start orders of a certificate may take together."""
_LARGEST = 1 << 60
_MEANS = (Objective.MEAN_LATENCY, Objective.MEAN_SLOWDOWN)
_SUMS = (*_MEANS, Objective.WEIGHTED_LATENCY, Objective.WEIGHTED_TARDINESS, Objective.LATE_JOBS)

Again = Callable[[Instance, Objective, str, object], Fraction]


def add_parts(instance: Instance, objective: Objective, parameters: object, again: Again) -> tuple[Fraction, str]:
    """Return what the parts of a certificate prove together, and how many of them are proved in which way.

    Parameters
    ----------
    again
        Returns what any other method proves of a window.
    """
    if objective not in _SUMS:
        raise RefusedError(f"{objective} is no sum over parts")
    refuse_features(instance, PARTS, SUPPORTS)
    parts = as_list(get(parameters, "parts"), None, "parts")
    jobs = len(instance.jobs)
    if not 0 < len(parts) <= jobs:
        raise RefusedError(f"parts must be a list of 1 to {jobs}")
    firsts = [whole(get(part, "first_job"), 0, jobs - 1, "first_job") for part in parts]
    if firsts[0] or any(a >= b for a, b in pairwise(firsts)):
        raise RefusedError("first_job must be 0 in the first part, and larger in every next one")
    _refuse_more_delays(parts)
    effort, total, ways = Effort(MOST_EFFORT), Fraction(0), Counter[str]()
    for part, (first, end) in zip(parts, pairwise([*firsts, jobs]), strict=True):
        alone = replace(instance, jobs=instance.jobs[first:end])
        try:
            value, way = _prove_part(alone, objective, part, again, effort)
        except RefusedError as refusal:
            raise RefusedError(f"part from job {first}: {refusal}") from None
        total += share(instance, alone, objective) * value
        ways[way] += 1
    listed = ", ".join(f"{count} by {way}" for way, count in ways.most_common())
    return total, f"{len(parts)} parts: {listed}"


def share(instance: Instance, part: Instance, objective: Objective) -> Fraction:
    """Return what a part's objective counts for in that of the window."""
    if objective in _MEANS:
        return Fraction(len(part.jobs), len(instance.jobs))
    if objective is Objective.WEIGHTED_LATENCY:
        own, all_jobs = (sum((job.weight for job in window.jobs), Fraction(0)) for window in (part, instance))
        return (own or 1) / (all_jobs or Fraction(1))
    return Fraction(1)


def _refuse_more_delays(parts: Sequence[Any]) -> None:
    """Refuse parts that hold more delays together than one certificate may."""
    count = 0
    for part in parts:
        for proof in (part, part.get("otherwise")):
            parameters = proof.get("parameters") if isinstance(proof, dict) else None
            listed = parameters.get("delays") if isinstance(parameters, dict) else None
            count += sum(max(0, value) for value in listed if isinstance(value, int)) if isinstance(listed, list) else 0
    if count > MOST_DELAYS:
        raise RefusedError("the windows hold too many delays")


def _prove_part(
    part: Instance, objective: Objective, proof: object, again: Again, effort: Effort
) -> tuple[Fraction, str]:
    """Return what is proved of a part, and how."""
    method = get(proof, "method")
    if method != START_ORDERS:
        return again(part, objective, method, proof), str(method)
    parameters, prices = get(proof, "parameters"), get(proof, "prices")
    scale = whole(get(parameters, "scale"), 1, _LARGEST, "scale")
    least = whole(get(parameters, "least"), 0, _LARGEST, "least")
    rate = _read_rate(parameters, prices)
    try:
        terms = order_terms(part, objective, scale, rate, effort)
        return least_value(part, objective, Fraction(prove(terms, least, effort), scale)), START_ORDERS
    except TooLargeError as error:
        otherwise = proof.get("otherwise") if isinstance(proof, dict) else None
        if otherwise is None:
            return Fraction(0), f"nothing (start orders: {error})"
        method = get(otherwise, "method")
        return again(part, objective, method, otherwise), f"{method} (start orders: {error})"


def _read_rate(parameters: object, prices: object) -> Rate:
    slot_us = whole(get(parameters, "slot_us"), 1, LATEST, "slot_us")
    first = whole(get(parameters, "first_slot"), 0, LATEST, "first_slot")
    compute = as_list(get(prices, "compute"), None, "compute")
    price = np.array([whole(each, 0, _LARGEST, "compute") for each in compute], np.int64)
    if (first + len(price) + 2) * slot_us > LATEST:
        raise RefusedError("slot_us is too large for so many slots")
    return Rate(price, first, slot_us)


def order_terms(part: Instance, objective: Objective, scale: int, rate: Rate, effort: Effort) -> OrderTerms:
    """Return what the programme over start orders looks up of a part, and refuse parts that it cannot bound.

    Raises
    ------
    TooLargeError
        If it would be too large.
    """
    if len(part.class_gpu) > 1 or missing(part, ONE_AT_A_TIME):
        raise RefusedError("start orders are proved on GPUs of one class only, always there, one task at a time")
    if objective is Objective.LATE_JOBS:
        raise RefusedError(f"start orders do not bound {objective}")
    alone = LoneJobs(part)
    weights, due_us = [0] * len(part.jobs), [max(alone.times(job)[1]) for job in range(len(part.jobs))]
    for job, weight, free_until, _ in completion_costs(part, objective, scale):
        if due_us[job] < free_until:
            raise RefusedError("start orders are proved where every job costs something from its earliest end on")
        weights[job], due_us[job] = weight, free_until
    return OrderTerms.of(part, alone, weights, due_us, rate, effort)
