"""The bounds that need no ascent: computed from the instance alone, in seconds even for long traces."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from truenorth.models import Instance, Objective
from truenorth.models.features import HELD, SEVERAL_AT_A_TIME, Feature, Features, missing, require
from truenorth.models.objective import charges
from truenorth.solvers.bounds import critical_path, energetic, fluid, mean_busy_time
from truenorth.solvers.bounds.least_computed import least_computed
from truenorth.solvers.bounds.proof import Proof, layers
from truenorth.solvers.rounding import round_up


def _stream_prices(instance: Instance, objective: Objective) -> Fraction | None:
    from truenorth.solvers.bounds import stream_prices  # it needs numba, which a GPU host lacks

    return stream_prices.bound(least_computed(instance), objective)


def _prove_stream_prices(instance: Instance, objective: Objective) -> Proof | None:
    from truenorth.solvers.bounds import stream_prices

    return stream_prices.prove(least_computed(instance), objective)


def _longest_of_stream_prices_s(instance: Instance) -> float:
    from truenorth.solvers.bounds import stream_prices

    return 0.0 if instance.streams is None else stream_prices.longest_s(instance)


def _critical_path(instance: Instance, objective: Objective) -> Fraction:
    return critical_path.bound(least_computed(instance), objective)


METHODS: Mapping[str, Callable[[Instance, Objective], Fraction | None]] = {
    "critical_path": _critical_path,
    "mean_busy_time": mean_busy_time.bound,
    "energetic": energetic.bound,
    "fluid": fluid.bound,
    "stream_prices": _stream_prices,
}
"""Formulas for a value that no plan lies below: exact, in the units of `models.objective_value`; None where they do not
apply."""
SUPPORTS: Mapping[str, Features] = {
    "critical_path": HELD | {Feature.DELAYS},
    "mean_busy_time": SEVERAL_AT_A_TIME | {Feature.DELAYS},
    "energetic": SEVERAL_AT_A_TIME | {Feature.DELAYS},
    "fluid": SEVERAL_AT_A_TIME | {Feature.DELAYS},
    "stream_prices": HELD | {Feature.DELAYS},
}

_PROOFS = {"energetic": energetic.prove, "fluid": fluid.prove, "stream_prices": _prove_stream_prices}


def witness(instance: Instance, objective: Objective, method: str) -> dict[str, Any]:
    """Return what a method found and a certificate must hold for its bound to be computed again, as plain JSON data."""
    proof = _PROOFS[method](instance, objective) if method in _PROOFS else None
    return {} if proof is None else proof.witness


_ENERGETIC_S_PER_TASK = {Objective.MAX_SLOWDOWN: 6e-5, Objective.LATE_JOBS: 1e-5}
_LONGEST_S: Mapping[str, Callable[[Instance, Objective], float]] = {
    "critical_path": lambda instance, _: 0.0,
    "mean_busy_time": lambda instance, _: 2.5e-5 * instance.n_tasks,
    "energetic": lambda instance, objective: (
        _ENERGETIC_S_PER_TASK.get(objective, 2e-5) * instance.n_tasks * _layers(instance, objective)
    ),
    "fluid": lambda instance, objective: fluid.longest_s(instance) * _layers(instance, objective),
    "stream_prices": lambda instance, _: _longest_of_stream_prices_s(instance),
}
"""What each takes at most, as measured where it applies; the critical path counts as nothing: it is always counted."""


def _layers(instance: Instance, objective: Objective) -> int:
    """Return how many times late jobs are counted, once per layer of their weights; else 1."""
    return len(layers(charges(objective, instance))) if objective is Objective.LATE_JOBS else 1


def is_worth_a_try(instance: Instance, objective: Objective, method: str, left_s: float) -> bool:
    """Say whether a method ends in so many seconds, since none can be interrupted."""
    return _LONGEST_S[method](instance, objective) <= max(0.0, left_s)


def best(
    instance: Instance, objective: Objective, left_s: Callable[[], float] = lambda: math.inf
) -> tuple[Fraction, str]:
    """Return the highest of these bounds, raised to a value that the objective can take, and its method's name.

    Parameters
    ----------
    left_s
        How many seconds are left; of the bounds, which cannot be interrupted, those that may take longer are left out.

    Raises
    ------
    UnsupportedInstanceError
        If none of them supports what the window has.
    """
    values: dict[str, Fraction | None] = {}
    methods = [name for name in METHODS if not missing(instance, SUPPORTS[name])]
    if not methods:
        require(instance, "the lower bound", HELD | {Feature.DELAYS})
    for name in methods:
        if is_worth_a_try(instance, objective, name, left_s()):
            values[name] = METHODS[name](instance, objective)
    highest = max(((value, name) for name, value in values.items() if value is not None), key=lambda pair: pair[0])
    return round_up(instance, objective, highest[0]), highest[1]
