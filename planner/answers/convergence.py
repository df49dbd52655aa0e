"""Is a plan near enough to its bound that ratios to it say something? One definition, and one sentence, for all tables.

The least possible value lies between bound and plan. A policy's ratio to it therefore lies between its value over the
plan's and its value over the bound: the further the two are apart, the less the first one says.
"""

from __future__ import annotations

from truenorth.solvers.bounds.closed_form import METHODS

CONVERGED_GAP = 0.05
"""The widest gap, (plan - bound) / plan, of a plan that counts as converged."""
WHAT_COUNTS = f"gap above {CONVERGED_GAP:.0%}, or only a formula bounds it"
"""When a plan is unconverged, in words."""


def is_converged(gap: float | None, bound_method: str | None) -> bool:
    """Say whether a plan is optimal, or near its bound where more than a formula bounds it."""
    return gap is not None and (gap == 0 or (gap <= CONVERGED_GAP and bound_method not in METHODS))


def describe_bound(bound_method: str | None) -> str:
    """Return how a bound was found, in words.

    >>> describe_bound("critical_path")
    'critical path, a formula'
    """
    if bound_method is None:
        return "none"
    return bound_method.replace("_", " ") + (", a formula" if bound_method in METHODS else "")


def tell_proof(gap: float | None, bound_method: str | None) -> str:
    """Return what is proved of a plan, as it stands below tables.

    >>> tell_proof(0.0214, "lagrangian")
    'Lower bound: lagrangian; gap of the plan: 2.1 %.'
    """
    shown = "-" if gap is None else f"{100 * gap:.1f} %"
    return f"Lower bound: {describe_bound(bound_method)}; gap of the plan: {shown}."


def warn_of(gap: float | None, bound_method: str | None) -> str | None:
    """Return what has to be known of ratios to a plan; None if it is converged."""
    if is_converged(gap, bound_method):
        return None
    if gap is None:
        return "Nothing is proved of a plan: ratios to the best show nothing of what is possible."
    return (
        f"The plan is unconverged ({WHAT_COUNTS}): ratios to it understate; the truth lies between x best and x bound."
    )
