"""The verifier: computes a certified bound again and accepts or refuses the claim. No solver, no compiled kernel.

Closed forms are computed again by `solvers.bounds.recomputed`, prices by `solvers.bounds.priced`, sums over parts by
`solvers.bounds.part_sums`, refutations by `solvers.bounds.refutation`. None of them trusts what a certificate says:
whatever it holds, what they return is proved, and a claim above is refused.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from fractions import Fraction

from truenorth.models import Instance, Objective, scenario_hash
from truenorth.models.features import SEVERAL_AT_A_TIME, Feature
from truenorth.models.objective import reported_bound
from truenorth.models.torn import priced_window, torn
from truenorth.solvers.bounds.certified import RefusedError, get, refuse_features, whole
from truenorth.solvers.bounds.part_sums import PARTS, add_parts
from truenorth.solvers.bounds.priced import LAGRANGIAN, LagrangianCheck
from truenorth.solvers.bounds.recomputed import RECOMPUTED, SUPPORTS, least_value
from truenorth.solvers.bounds.refutation import REFUTATION, refuted_value

_PRICED = SEVERAL_AT_A_TIME | {Feature.DELAYS, Feature.GANGS, Feature.MODES}
"""Of windows whose GPUs get prices; see `priced_window`."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a certificate holds, the bound computed again in the units of `objective_value`, and why not if not.

    Parameters
    ----------
    how
        Which of its parts, or which of the proofs that it offers, were proved in which way; None if there is one.
    """

    valid: bool
    lower_bound: Fraction | None
    reason: str | None
    how: str | None = None


def verify(instance: Instance, document: object) -> Verdict:
    """Return whether a certificate, as read from JSON, proves its claim about an instance; bad content never raises."""
    bound, how = None, None
    try:
        objective, method, claim = _header(instance, document)
        instance = priced_window(instance) if method == LAGRANGIAN else torn(instance)
        if method == PARTS:
            total, how = add_parts(instance, objective, get(document, "parameters"), _again)
            bound = least_value(instance, objective, total)
        elif method == REFUTATION:
            bound, how = refuted_value(instance, objective, document, _again)
        else:
            bound = _again(instance, objective, method, document)
        if claim > Fraction(reported_bound(objective, bound)):
            proved = reported_bound(objective, bound)
            raise RefusedError(f"claims {_in_words(claim)}, but only {proved} is proved")
    except RefusedError as refusal:
        return Verdict(False, bound, str(refusal), how)
    return Verdict(True, bound, None, how)


def _header(instance: Instance, document: object) -> tuple[Objective, str, Fraction]:
    whole(get(document, "schema_version"), 1, 1, "schema_version")
    if get(document, "scenario_hash") != scenario_hash(instance):
        raise RefusedError("scenario_hash belongs to another scenario")
    name, method, claim = get(document, "objective"), get(document, "method"), get(document, "lower_bound")
    if name not in list(Objective):
        raise RefusedError("objective is unknown")
    if isinstance(claim, bool) or not isinstance(claim, int | float):
        raise RefusedError("lower_bound must be a number")
    if isinstance(claim, float) and not math.isfinite(claim):
        raise RefusedError("lower_bound must be finite")
    if method not in (LAGRANGIAN, PARTS, REFUTATION, *RECOMPUTED):
        raise RefusedError("method is none whose bounds can be computed again")
    return Objective(name), str(method), Fraction(claim)


def _in_words(claim: Fraction) -> str:
    """Return a claimed number; a whole one may be larger than any float."""
    return f"more than {sys.float_info.max:.3g}" if claim > Fraction(sys.float_info.max) else str(float(claim))


def _again(instance: Instance, objective: Objective, method: str, document: object) -> Fraction:
    """Return what a method that stands alone proves, in the units of `objective_value`."""
    if not isinstance(get(document, "parameters"), dict):
        raise RefusedError("parameters must be an object")
    if method not in (LAGRANGIAN, *RECOMPUTED):
        raise RefusedError("method is none that proves a part")
    supported = _PRICED if method == LAGRANGIAN else SUPPORTS[method]
    refuse_features(instance, method, supported)
    if method == LAGRANGIAN:
        check = LagrangianCheck(instance, objective, get(document, "parameters"), get(document, "prices"))
        return least_value(instance, objective, Fraction(check.total(), check.scale))
    value = RECOMPUTED[method](instance, objective, get(document, "parameters"))
    if value is None:
        raise RefusedError(f"{method} does not bound {objective}")
    return least_value(instance, objective, value)
