"""Bound a scenario: a value that no plan lies below, with a certificate that anyone can check."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from models.objective import reported_bound
from models.scenario import InputError, Scenario, write_atomically
from models.scenario.source import read_text
from planner.plan import Method, plan
from planner.stages import EXACT_TASKS
from solvers.bounds import closed_form
from solvers.bounds.certificate import closed_form_document, lagrangian_document
from solvers.bounds.lagrangian.improve import improve
from solvers.bounds.verify import Verdict, verify
from solvers.result import Progress, Search


@dataclass(frozen=True, slots=True)
class Bound:
    """A certified lower bound of a scenario.

    Parameters
    ----------
    lower_bound
        Exact, in the units of `models.objective_value`; what `verify` computes again from the certificate.
    method
        Where it comes from.
    certificate
        All that is needed to compute it again, as plain JSON data.
    uncertified
        A higher bound that holds but cannot be computed again without a solver, or None.
    runtime_s
        Wall-clock time.
    """

    scenario: Scenario
    lower_bound: Fraction
    method: str
    certificate: dict[str, Any]
    uncertified: Fraction | None
    runtime_s: float

    def save(self, path: Path) -> None:
        """Write the certificate, whole or not at all."""
        write_atomically(path, json.dumps(self.certificate))

    def as_dict(self, path: Path | None = None) -> dict[str, Any]:
        """Return the summary with the keys of ``bound --json``; `path` is where the certificate was written."""
        objective = self.scenario.objective
        return {
            "objective": str(objective),
            "lower_bound": self.certificate["lower_bound"],
            "uncertified_lower_bound": None
            if self.uncertified is None
            else reported_bound(objective, self.uncertified),
            "method": self.method,
            "certificate": None if path is None else str(path),
            "runtime_s": self.runtime_s,
        }


def bound(
    scenario: Scenario,
    *,
    time_limit_s: float = 60.0,
    workers: int = 2,
    seed: int = 0,
    watch: Callable[[Progress], None] | None = None,
    stop: threading.Event | None = None,
) -> Bound:
    """Bound a scenario as well as the time allows.

    Parameters
    ----------
    watch
        Called whenever the bound improves.
    stop
        Set it to end early with the best bound so far.
    """
    instance, objective = scenario.instance, scenario.objective
    search = Search(instance, objective, time_limit_s, watch, stop)
    best, method = closed_form.best(instance, objective)
    search.offer_bound(best, method)
    certificate = closed_form_document(instance, objective, method, best)
    # On small windows half of the time goes to CP-SAT: its bound is often higher, but comes without a certificate.
    exact = instance.n_tasks <= EXACT_TASKS
    priced = improve(search, search.remaining_s / 2 if exact else None)
    if priced is not None and priced.bound > best:
        best, method = priced.bound, "lagrangian"
        certificate = lagrangian_document(instance, objective, priced)
    uncertified = None
    if exact and search.remaining_s > 0:
        left = search.remaining_s
        planned = plan(
            scenario, time_limit_s=left, method=Method.CP_SAT, workers=workers, seed=seed, watch=watch, stop=search.stop
        )
        proved = planned.result.lower_bound
        uncertified = proved if proved is not None and proved > best else None
    return Bound(scenario, best, method, certificate, uncertified, search.elapsed_s)


def verify_file(scenario: Scenario, path: Path) -> Verdict:
    """Compute a certificate's bound again and accept or refuse it.

    Raises
    ------
    InputError
        If the file cannot be read or is no JSON.
    """
    try:
        document = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", None)
        raise InputError(str(path), line, "certificate", f"is no JSON: {error}; make it again with bound -o") from None
    return verify(scenario.instance, document)


def verdict_dict(scenario: Scenario, verdict: Verdict) -> dict[str, Any]:
    """Return a verdict with the keys of ``verify --json``."""
    proved = verdict.lower_bound
    return {
        "valid": verdict.valid,
        "lower_bound": None if proved is None else reported_bound(scenario.objective, proved),
        "reason": verdict.reason,
    }
