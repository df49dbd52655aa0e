"""Refutations, for the verifier: no plan stays below a value, for then every job would have to end by a due date.

A maximum stays below a value if every job ends by some instant, and so few jobs are late only if all others are on
time. Whatever stands in the certificate, the due dates are computed here, and all start orders are looked for again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import combinations
from math import ceil

from truenorth.models import Instance, Objective
from truenorth.solvers.bounds.alone import LoneJobs
from truenorth.solvers.bounds.certified import RefusedError, as_list, get, whole
from truenorth.solvers.bounds.effort import Effort, TooLargeError
from truenorth.solvers.bounds.recomputed import least_value
from truenorth.solvers.bounds.refuted_orders import Refutation
from truenorth.solvers.bounds.refuted_terms import Energies, Windows

REFUTATION = "refutation"
"""Name of the method."""
MOST_EFFORT = 2_000_000_000
"""What all start orders of a certificate may take together."""
_EFFORT_OF_A_CASE = 500_000
OBJECTIVES = (Objective.MAKESPAN, Objective.MAX_SLOWDOWN, Objective.LATE_JOBS)
_LARGEST, _LARGEST_WEIGHT, _MOST_ROWS = 1 << 60, 1 << 20, 64

Again = Callable[[Instance, Objective, str, object], Fraction]


def applies(instance: Instance, objective: Objective) -> bool:
    """Say whether refutations are for a window."""
    plain = not instance.batches and instance.streams is None
    return objective in OBJECTIVES and plain and instance.one_at_a_time and instance.always_available


def refuted_value(instance: Instance, objective: Objective, proof: object, again: Again) -> tuple[Fraction, str]:
    """Return what a certificate proves, and how: by its refutation, or else in the other way that it names.

    Parameters
    ----------
    again
        Returns what any other method proves of a window.
    """
    if not applies(instance, objective):
        raise RefusedError(
            f"{REFUTATION} is for maxima and late jobs, of tasks that run one at a time on GPUs that stay"
        )
    parameters, prices = get(proof, "parameters"), get(proof, "prices")
    scale = whole(get(parameters, "scale"), 1, _LARGEST, "scale")
    least = Fraction(whole(get(parameters, "least"), 1, _LARGEST, "least"), scale)
    weights = _read_weights(instance, get(prices, "weights"))
    try:
        if refute(instance, objective, least, weights, Effort(MOST_EFFORT)):
            return least_value(instance, objective, least), REFUTATION
        reason = "a start order is in time"
    except TooLargeError as error:
        reason = str(error)
    otherwise = proof.get("otherwise") if isinstance(proof, dict) else None
    if otherwise is None:
        return Fraction(0), f"nothing ({REFUTATION}: {reason})"
    method = get(otherwise, "method")
    return again(instance, objective, method, otherwise), f"{method} ({REFUTATION}: {reason})"


def _read_weights(instance: Instance, listed: object) -> list[list[int]]:
    rows = as_list(listed, None, "weights")
    if len(rows) > _MOST_ROWS:
        raise RefusedError(f"weights must be a list of at most {_MOST_ROWS}")
    classes = len(instance.class_gpu)
    return [[whole(w, 0, _LARGEST_WEIGHT, "weights") for w in as_list(row, classes, "weights")] for row in rows]


def refute(instance: Instance, objective: Objective, least: Fraction, weights: list[list[int]], effort: Effort) -> bool:
    """Say whether it is proved that no plan stays below a value.

    Parameters
    ----------
    least
        In the units of `objective_value`.
    weights
        Rows of a weight per GPU class by which time on them is counted, beside all alike.

    Raises
    ------
    TooLargeError
        If that takes too much.
    """
    alone, alike = LoneJobs(instance), [1] * len(instance.class_gpu)
    for due_us in due_dates(instance, objective, least, alone):
        if not due_us:
            return False
        effort.spend(_EFFORT_OF_A_CASE)
        windows = Windows.of(instance, alone, due_us)
        if not Refutation(windows, Energies.of(windows, [alike, *weights]), effort).holds():
            return False
    return True


def due_dates(instance: Instance, objective: Objective, least: Fraction, alone: LoneJobs) -> Iterator[dict[int, int]]:
    """Yield when jobs must have ended, one of which every plan below a value keeps."""
    jobs = list(enumerate(instance.jobs))
    if objective is Objective.LATE_JOBS:
        due = {job: owner.release_us + owner.deadline_us for job, owner in jobs if owner.deadline_us is not None}
        on_time = [job for job, at in due.items() if max(alone.times(job)[1]) <= at]
        # Beside those that are late even alone so many others may be, whichever they are.
        others = min(ceil(least) - 1 - (len(due) - len(on_time)), len(on_time))
        if others >= 0:
            for late in combinations(on_time, others):
                yield {job: due[job] for job in on_time if job not in late}
    elif objective is Objective.MAKESPAN:
        yield dict.fromkeys(range(len(jobs)), ceil(least) - 1)
    else:
        yield {job: owner.release_us + ceil(least * owner.ideal_us) - 1 for job, owner in jobs}
