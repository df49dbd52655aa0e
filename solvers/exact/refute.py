"""Maxima and late jobs bounded by refutation: the verifier's own search says that no plan stays below a value."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from math import floor
from typing import Any

import numpy as np
import pulp

from truenorth.models import NEVER, Instance, Objective
from truenorth.solvers.bounds import closed_form
from truenorth.solvers.bounds.alone import LoneJobs
from truenorth.solvers.bounds.certificate import closed_form_document, refutation_document
from truenorth.solvers.bounds.effort import Effort, TooLargeError
from truenorth.solvers.bounds.refutation import MOST_EFFORT, REFUTATION, applies, due_dates, refute
from truenorth.solvers.bounds.refuted_terms import DueWindows
from truenorth.solvers.clock import Clock
from truenorth.solvers.result import Search

METHOD = REFUTATION
"""Name of the bounds that it proves."""
_MOST_TASKS = 150
"""Of larger windows too many start orders are left."""
_FIRST_SHARE, _NEXT_SHARE = 0.5, 0.25
"""Of the time that is left, what the value of the best plan may take, and any lower one that is tried after it."""
_SPARE = 2
"""Nothing is written that takes more than this part of what a verifier may do."""
_NEAR = 1000
"""Values are refuted until the next one would be worth less than this part of the plan's."""
_WEIGHT = 1 << 16


def improve(search: Search, limit_s: float) -> None:
    """Refute the value of the best plan; if that takes too much, the highest value below it that does not."""
    instance, objective, value = search.instance, search.objective, search.value
    if value is None or not applies(instance, objective) or instance.n_tasks > _MOST_TASKS:
        return
    clock, (known, method) = search.clock.child(limit_s), closed_form.best(instance, objective)
    share, scale = _FIRST_SHARE, value.denominator
    try:
        weights = [_dear(instance, objective, value)]
    except TooLargeError:
        return

    # Between what is proved and what could not be refuted.
    low, high, least = floor(known * scale), value.numerator, value.numerator
    while low < least and not clock.is_set():
        effort = Effort(MOST_EFFORT // _SPARE, partial(_has_time, clock.child(share * clock.left_s)))
        if _is_refuted(instance, objective, Fraction(least, scale), weights, effort):
            low = least
            search.offer_bound(Fraction(least, scale), METHOD)
            if search.writes:
                search.keep(Fraction(least, scale), _document(search, Fraction(least, scale), weights, known, method))
        else:
            high = least
        if (high - low) * _NEAR <= high:
            return
        least, share = (low + high) // 2, _NEXT_SHARE


def _has_time(clock: Clock) -> bool:
    return not clock.is_set()


def _is_refuted(
    instance: Instance, objective: Objective, least: Fraction, weights: list[list[int]], effort: Effort
) -> bool:
    try:
        return refute(instance, objective, least, weights, effort)
    except TooLargeError:
        return False


def _document(
    search: Search, least: Fraction, weights: list[list[int]], known: Fraction, method: str
) -> dict[str, Any]:
    """Return the certificate, with what the best formula proves for those who do not check start orders."""
    otherwise = closed_form_document(search.instance, search.objective, method, known)
    return refutation_document(search.instance, search.objective, least, weights, otherwise)


def _dear(instance: Instance, objective: Objective, value: Fraction) -> list[int]:
    """Return a weight per GPU class, the dearer the scarcer its time is before the due dates of a value.

    Notes
    -----
    Invariant: any weights prove something; these are the optimal duals of a linear programme in which every task is
    spread over the classes that can run it, between the first head and the last due date there.
    """
    classes, gpus = range(len(instance.class_gpu)), np.bincount(instance.gpu_class)
    due_us = next(due_dates(instance, objective, value, LoneJobs(instance), Effort(MOST_EFFORT)), {})
    if len(classes) == 1 or not due_us:
        return [1] * len(classes)
    windows = DueWindows.of(instance, LoneJobs(instance), due_us)
    programme = pulp.LpProblem("weights", pulp.LpMaximize)
    weight = [programme.add_variable(f"weight_{c}", 0) for c in classes]
    energy = [programme.add_variable(f"energy_{task}", 0) for task in range(windows.tasks)]
    programme.setObjective(pulp.lpSum(energy))
    for task, runs in enumerate(windows.run_us.tolist()):
        for c, run in enumerate(runs):
            if run != NEVER:
                programme.addConstraint(energy[task] <= run * weight[c])
    can, room = windows.run_us != NEVER, list[Any]()
    for c in classes:
        if can[:, c].any():
            span_us = int(windows.last_us[can[:, c]].max() - windows.head_us[can[:, c]].min())
            room.append(int(gpus[c]) * max(1, span_us) * weight[c])
    programme.addConstraint(pulp.lpSum(room) <= int(windows.fastest_us.sum()))
    programme.solve(pulp.HiGHS(msg=False))
    found = [max(0.0, each.value() or 0.0) for each in weight]
    return [round(each / (max(found) or 1) * _WEIGHT) for each in found]
