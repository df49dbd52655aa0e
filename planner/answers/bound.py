"""Bound a scenario: a value that no plan lies below, with a certificate that anyone can check."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from truenorth.models.instance import Instance
from truenorth.models.objective import Objective, reported_bound
from truenorth.models.scenario import InputError, Scenario, write_atomically
from truenorth.models.timeline import Timeline
from truenorth.planner.answers.check import read, refuse_violations
from truenorth.planner.answers.plan import starts_for
from truenorth.planner.answers.regret import Regret, RegretRecord
from truenorth.planner.answers.shown import Answer
from truenorth.planner.answers.take_apart import take_apart, with_given_loads
from truenorth.planner.questions.searches import BoundQuestion
from truenorth.solvers import portfolio
from truenorth.solvers.bounds.certificate import closed_form_document, lagrangian_document
from truenorth.solvers.bounds.lagrangian.improve import METHOD as LAGRANGIAN
from truenorth.solvers.bounds.lagrangian.improve import Priced
from truenorth.solvers.budget import Budget
from truenorth.solvers.result import Result


@dataclass(frozen=True, slots=True)
class Certifiable:
    """The best bound of a formula, and that of prices: what a certificate can be made of without further search."""

    scenario: Scenario
    formula: tuple[Fraction, str]
    priced: Priced | None

    @property
    def lower_bound(self) -> Fraction:
        """The higher of the two, in the units of `models.objective_value`."""
        return max(self.formula[0], Fraction(-1) if self.priced is None else self.priced.bound)

    @property
    def method(self) -> str:
        """Where it comes from."""
        return self.formula[1] if self.lower_bound == self.formula[0] else LAGRANGIAN

    def certificate(self) -> dict[str, Any]:
        """Return its certificate, as plain JSON data."""
        instance, objective = self.scenario.instance, self.scenario.objective
        if self.priced is not None and self.method == LAGRANGIAN:
            return lagrangian_document(instance, objective, self.priced)
        return closed_form_document(instance, objective, self.method, self.formula[0])


@dataclass(frozen=True, slots=True)
class Bound(Answer):
    """A certified lower bound of a scenario.

    Parameters
    ----------
    exact
        The bound, exactly, in the units of `models.objective_value`; what `verify` computes again from the certificate.
    method
        Where it comes from.
    certificate
        All that is needed to compute it again, as plain JSON data.
    uncertified
        A higher bound that holds but cannot be computed again without a solver, and its method; or None.
    found
        The plan that was found on the way, with the highest of all bounds.
    runtime_s, cpu_s
        Wall-clock time, and what this process got of its processors meanwhile.
    left_out
        Methods that gave way because memory or time were too short for them, each with the reason.
    regret
        Of the schedule that was asked about, taken apart; None without one.
    interrupted
        Whether the search was interrupted: what was found by then.
    """

    scenario: Scenario
    exact: Fraction
    method: str
    certificate: dict[str, Any]
    uncertified: tuple[Fraction, str] | None
    found: Result
    runtime_s: float
    cpu_s: float
    left_out: Mapping[str, str]
    regret: Regret | None = None
    interrupted: bool = False

    def __repr__(self) -> str:
        objective = self.scenario.objective
        bound = f"{objective} at least {self.lower_bound:.6g} {objective.unit}".rstrip()
        ended = ", interrupted" if self.interrupted else ""
        return f"<Bound of {self.scenario.name!r}: {bound} ({self.method}){ended}>"

    @property
    def lower_bound(self) -> float:
        """The bound in the unit of the objective, rounded down."""
        return reported_bound(self.scenario.objective, self.exact)

    @property
    def highest(self) -> tuple[Fraction, str]:
        """The highest bound that holds, certified or not, and its method."""
        return (self.exact, self.method) if self.uncertified is None else self.uncertified

    def record(self, path: Path | None = None) -> BoundRecord:
        """Return the summary with the keys of ``bound --json``; `path` is where the certificate was written."""
        objective, higher = self.scenario.objective, self.uncertified
        return BoundRecord(
            objective,
            self.certificate["lower_bound"],
            None if higher is None else reported_bound(objective, higher[0]),
            None if higher is None else higher[1],
            self.method,
            None if path is None else str(path),
            self.runtime_s,
            self.cpu_s,
            self.left_out,
            None if self.regret is None else self.regret.record,
        )


@dataclass(frozen=True, slots=True)
class BoundRecord:
    """A bound in reported units."""

    objective: Objective
    lower_bound: float
    uncertified_lower_bound: float | None
    uncertified_method: str | None
    method: str
    certificate: str | None
    runtime_s: float
    cpu_s: float
    left_out: Mapping[str, str]
    regret: RegretRecord | None


def write_certificate(made: Bound, path: Path) -> None:
    """Write the certificate, whole or not at all."""
    write_atomically(path, json.dumps(made.certificate))


def answer_bound(asked: BoundQuestion, scenario: Scenario, budget: Budget) -> Bound:
    """Bound a scenario within a budget; where a schedule is named, half of it goes to what that loses."""
    schedule = asked.schedule
    if schedule is None:
        return bound_within(scenario, budget)
    scenario.instance.require_no_streams("taking a schedule apart")
    instance, timeline = _read_schedule(scenario, schedule)
    begun_cpu = time.process_time()
    found = bound_within(scenario, budget.share(0.5))
    known = found.found if instance is scenario.instance else None
    apart = take_apart(replace(scenario, instance=instance), timeline, schedule.stem, budget.share(1), known)
    runtime_s, cpu_s = budget.elapsed_s, time.process_time() - begun_cpu
    return _raised(replace(found, regret=apart, runtime_s=runtime_s, cpu_s=cpu_s))


def _raised(made: Bound) -> Bound:
    """Return a bound no lower than the one that taking a schedule of the scenario apart has proved."""
    apart = made.regret
    if apart is None or apart.scenario.instance is not made.scenario.instance or apart.bound_method is None:
        return made
    if apart.lower_bound <= made.highest[0]:
        return made
    return replace(made, uncertified=(apart.lower_bound, apart.bound_method))


def _read_schedule(scenario: Scenario, path: Path) -> tuple[Instance, Timeline]:
    """Return a schedule that can be compared with plans, and the instance it belongs to."""
    instance, file = read(scenario.instance, path)
    timeline = file.timeline
    refuse_violations(instance, timeline, path)
    try:
        return instance, with_given_loads(instance, timeline)
    except ValueError as error:
        raise InputError(str(path), 1, "timeline", str(error)) from None


def bound_within(scenario: Scenario, budget: Budget, hint: Timeline | None = None) -> Bound:
    """Bound a scenario within a budget, from a known plan if there is one."""
    instance, objective = scenario.instance, scenario.objective
    found = portfolio.bound(instance, objective, budget, hint=hint, starts=starts_for(instance, budget.seed))
    certifiable, result = Certifiable(scenario, found.formula, found.priced), found.found
    best, method, certificate = certifiable.lower_bound, certifiable.method, certifiable.certificate()
    if found.written is not None and found.written[0] > best:
        best, certificate = found.written
        method = certificate["method"]
    uncertified = None
    if result.lower_bound is not None and result.bound_method is not None and result.lower_bound > best:
        uncertified = result.lower_bound, result.bound_method
    return Bound(
        scenario, best, method, certificate, uncertified, result, result.runtime_s, result.cpu_s, result.left_out
    )
