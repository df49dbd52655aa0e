"""The rows of a comparison: who came to what, times the best, times the bound, and what is known of the plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from executor import Knows
from models.metrics import Metrics, measure
from models.objective import gap, reported_value
from planner.answers.convergence import is_converged
from planner.answers.plan import Plan
from planner.answers.policies.parse import parse
from planner.answers.simulate import Simulation
from solvers.result import Result

PLAN = "plan"
"""Name of the plan's row."""


def rows_of(
    planned: Plan, simulations: Sequence[Simulation], broken: Mapping[str, str], warmup: Fraction
) -> tuple[dict[str, Any], ...]:
    """Return what `Comparison.rows` says, best objective first; the best is one of the scenario's own instance.

    Parameters
    ----------
    broken
        Policies whose timeline breaks a rule, and which.
    """
    scenario, result = planned.scenario, planned.result
    entries: list[tuple[str, Fraction, Metrics, Knows, bool]] = []
    if result.timeline is not None and result.value is not None:
        metrics = measure(scenario.instance, result.timeline, scenario.slo, warmup)
        entries.append((PLAN, result.value, metrics, Knows.FUTURE, False))
    entries += [(s.policy, s.value, s.metrics, s.knows, s.on_a_twin) for s in simulations]
    best = min((value for _, value, _, _, twin in entries if not twin), default=None)
    ranked = [
        {
            "policy": name,
            "clairvoyant": knows is Knows.FUTURE,
            "knows": str(knows),
            "twin": twin,
            "objective": reported_value(scenario.objective, value),
            "metrics": metrics.as_dict(),
            "ratio_to_best": _ratio(value, best),
            "ratio_to_bound": _ratio(value, result.lower_bound),
            "gap_to_bound": gap(value, result.lower_bound),
            **_proved(result),
            "problem": None,
        }
        for name, value, metrics, knows, twin in sorted(entries, key=lambda entry: entry[1])
    ]
    return *ranked, *(_refused(planned, policy, why) for policy, why in broken.items())


def _ratio(value: Fraction, least: Fraction | None) -> float | None:
    """Return how many times the least a value is; None if there is no telling."""
    if least is None or (not least and value):
        return None
    return float(value / least) if least else 1.0


def _proved(result: Result) -> dict[str, Any]:
    """Return what is known of the plan that every ratio is to."""
    method = result.bound_method
    return {"bound_method": method, "plan_gap": result.gap, "converged": is_converged(result.gap, method)}


def _refused(planned: Plan, policy: str, why: str) -> dict[str, Any]:
    """Return the row of a policy whose timeline breaks a rule: no figure of it is true."""
    figures = ("objective", "metrics", "ratio_to_best", "ratio_to_bound", "gap_to_bound")
    knows = parse(policy, planned.scenario).knows
    known = {"clairvoyant": knows is Knows.FUTURE, "knows": str(knows)}
    row = {"policy": policy, **known, "twin": False, **dict.fromkeys(figures)}
    return {**row, **_proved(planned.result), "problem": why}
