"""The bounds that need no ascent: computed from the instance alone, in seconds even for long traces."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Protocol

from models import Instance, Objective
from solvers.bounds import critical_path, energetic, fluid, mean_busy_time
from solvers.bounds.granularity import raised


class ClosedForm(Protocol):
    """A bound from a formula: exact, in the units of `models.objective_value`; None where it does not apply."""

    def __call__(self, instance: Instance, objective: Objective) -> Fraction | None:
        """Return a value that no plan lies below."""


METHODS: Mapping[str, ClosedForm] = {
    "critical_path": critical_path.bound,
    "mean_busy_time": mean_busy_time.bound,
    "energetic": energetic.bound,
    "fluid": fluid.bound,
}


FOR_BATCHES = frozenset({"critical_path"})
"""The methods that hold where tasks come in batches, take shares of a GPU or hold memory."""


def best(instance: Instance, objective: Objective) -> tuple[Fraction, str]:
    """Return the highest of these bounds, raised to a value that the objective can take, and its method's name."""
    values = {
        name: method(instance, objective)
        for name, method in METHODS.items()
        if instance.one_at_a_time or name in FOR_BATCHES
    }
    highest = max(((value, name) for name, value in values.items() if value is not None), key=lambda pair: pair[0])
    return raised(instance, objective, highest[0]), highest[1]
