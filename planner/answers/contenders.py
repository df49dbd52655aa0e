"""The rows of a comparison: who came to what, times the best, times the bound, and what is known of the plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from truenorth.executor import Knows
from truenorth.models.metrics import Metrics, StreamMetrics, measure
from truenorth.models.objective import gap, reported_value
from truenorth.planner.answers.convergence import is_converged
from truenorth.planner.answers.plan import Plan
from truenorth.planner.answers.policies.parse import parse
from truenorth.planner.answers.simulate import Simulation

PLAN = "plan"
"""Name of the plan's row."""


@dataclass(frozen=True, slots=True)
class ComparedPolicy:
    """A contender of a comparison.

    Parameters
    ----------
    clairvoyant, knows
        Whether it knows the future, and what it knows of run times.
    twin
        Whether it ran on an instance of its own.
    objective, metrics, ratio_to_best, ratio_to_bound, gap_to_bound
        In reported units; None for a policy of the user's that breaks the rules. The ratio to the least possible value
        lies between ratio_to_best and ratio_to_bound.
    bound_method, plan_gap, converged
        What is known of the plan that every ratio is to.
    problem
        Why it has no value and no rank, if it has none.
    """

    policy: str
    clairvoyant: bool
    knows: Knows
    twin: bool
    objective: float | None
    metrics: StreamMetrics | Metrics | None
    ratio_to_best: float | None
    ratio_to_bound: float | None
    gap_to_bound: float | None
    bound_method: str | None
    plan_gap: float | None
    converged: bool
    problem: str | None


def rows_of(
    planned: Plan, simulations: Sequence[Simulation], broken: Mapping[str, str], warmup: Fraction
) -> tuple[ComparedPolicy, ...]:
    """Return the contenders, best objective first; the best is one of the scenario's own instance.

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
    entries += [(s.policy, s.exact, s.metrics, s.knows, s.on_a_twin) for s in simulations]
    best = min((value for _, value, _, _, twin in entries if not twin), default=None)
    method = result.bound_method
    proved = method, result.gap, is_converged(result.gap, method)
    ranked = [
        ComparedPolicy(
            name,
            knows is Knows.FUTURE,
            knows,
            twin,
            reported_value(scenario.objective, value),
            metrics,
            _ratio(value, best),
            _ratio(value, result.lower_bound),
            gap(value, result.lower_bound),
            *proved,
            None,
        )
        for name, value, metrics, knows, twin in sorted(entries, key=lambda entry: entry[1])
    ]
    known = {policy: parse(policy, scenario).knows for policy in broken}
    none = (None,) * 5  # no figure of a timeline that breaks a rule is true
    refused = [
        ComparedPolicy(name, known[name] is Knows.FUTURE, known[name], False, *none, *proved, why)
        for name, why in broken.items()
    ]
    return *ranked, *refused


def _ratio(value: Fraction, least: Fraction | None) -> float | None:
    """Return how many times the least a value is; None if there is no telling."""
    if least is None or (not least and value):
        return None
    return float(value / least) if least else 1.0
