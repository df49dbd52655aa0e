"""Check a timeline against every rule, and what its file says of it against the timeline."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import ClassVar

import numpy as np

from truenorth.executor import twin_instance
from truenorth.models.feasibility import check
from truenorth.models.features import HELD, Feature, require
from truenorth.models.instance import NONE, Instance, Ints
from truenorth.models.objective import (
    OPTIMALITY_TOLERANCE,
    Objective,
    ObjectiveValue,
    Status,
    gap,
    reported_value,
    timeline_value,
)
from truenorth.models.scenario import InputError, PlanFile, TimelineHeader, read_timeline
from truenorth.models.timeline import UNPLACED, Timeline, Violation, batch_leaders
from truenorth.planner.answers.shown import Answer


def read(instance: Instance, path: Path) -> tuple[Instance, PlanFile]:
    """Return a file and the instance it belongs to: the given one, or its twin that ``compass-released`` runs on.

    Raises
    ------
    InputError
        If the file cannot be read or belongs to neither.
    """
    try:
        return instance, read_timeline(path, instance)
    except InputError as error:
        twin = twin_instance(instance)
        if error.field == "scenario_hash" and twin is not instance:
            with suppress(InputError):
                return twin, read_timeline(path, twin)
        raise


@dataclass(frozen=True, slots=True)
class Checked(Answer):
    """The outcome of a check.

    Parameters
    ----------
    violations
        Of the rules, then of what the file says of its timeline.
    value
        The objective of the timeline as it stands; None if a task is not placed.
    realised
        Whether it is marked as one that happened: then run and load times were taken from the file.
    own_times
        How many runs and loads there are, and how many take other times than the given ones.
    claims
        What the file says of its timeline, and what became of it.
    """

    objective: Objective
    violations: list[Violation]
    value: float | None
    realised: bool
    own_times: Mapping[str, int]
    claims: Claims

    def __repr__(self) -> str:
        said = f"{len(self.violations)} violations" if self.violations else "valid"
        value = "" if self.value is None else f", {self.objective} {self.value:.6g} {self.objective.unit}".rstrip()
        return f"<Checked: {said}{value}>"

    @property
    def record(self) -> CheckRecord:
        """The outcome with the keys of ``check --json``."""
        return CheckRecord(
            not self.violations,
            self.violations,
            ObjectiveValue(self.objective, self.value),
            {"from": "the file" if self.realised else "the scenario", **self.own_times},
            self.claims,
        )


@dataclass(frozen=True, slots=True)
class CheckRecord:
    """What a check found; `header` is what became of the claims of the file."""

    valid: bool
    violations: list[Violation]
    objective: ObjectiveValue
    times: Mapping[str, int | str]
    header: Claims


def checked(objective: Objective, instance: Instance, file: PlanFile) -> Checked:
    """Check a timeline against every rule, and what its file says of it against the timeline.

    Raises
    ------
    UnsupportedInstanceError
        If the window has a feature whose rules the checker does not know.
    """
    require(instance, "the checker", HELD | {Feature.GANGS, Feature.MODES, Feature.SPLITS, Feature.DELAYS})
    timeline = file.timeline
    value = None
    if bool((timeline.place != UNPLACED).all()):
        value = reported_value(objective, timeline_value(objective, instance, timeline))
    claims = claims_of(instance, timeline, file.header)
    violations = [*check(instance, timeline), *claims.contradictions]
    return Checked(objective, violations, value, timeline.realised, own_times(instance, timeline), claims)


def feasible_timeline(instance: Instance, path: Path) -> Timeline:
    """Read a plan file that must break no rule.

    Raises
    ------
    InputError
        If the file cannot be read, belongs to another scenario, or breaks a rule.
    """
    timeline = read_timeline(path, instance).timeline
    refuse_violations(instance, timeline, path)
    return timeline


def refuse_violations(instance: Instance, timeline: Timeline, path: Path) -> None:
    """Raise if a timeline that was read from a file breaks a rule.

    Raises
    ------
    InputError
        With the number of violations and the first.
    """
    violations = check(instance, timeline)
    if violations:
        raise InputError(str(path), 1, "timeline", f"breaks {len(violations)} rules; the first: {violations[0]}")


RULE = "header"
"""Stands in violations for the rule that a file's header agrees with its timeline and with itself."""
_ROUNDING = 1e-9
_OF_RUN_TIMES = (Objective.MEAN_SLOWDOWN, Objective.MAX_SLOWDOWN)
"""Objectives that count by given run times, not by ends alone."""


@dataclass(frozen=True, slots=True)
class Claims:
    """What became of the claims of a header.

    Parameters
    ----------
    contradictions
        Claims that the timeline, or another claim, refutes.
    checked
        The names of the claims that were computed again and agree.
    unproved
        By name: what is claimed of all plans, which no timeline can prove.
    unchecked
        By name: why a claim could not be held against anything.
    """

    ENCODED: ClassVar = ("checked", "unproved", "unchecked")

    contradictions: list[Violation] = field(default_factory=list)
    checked: list[str] = field(default_factory=list)
    unproved: dict[str, str] = field(default_factory=dict)
    unchecked: dict[str, str] = field(default_factory=dict)

    def against(self, claim: str, problem: str, found: object, allowed: object) -> None:
        """Note a claim that is refuted."""
        self.contradictions.append(Violation(RULE, claim, problem, _shown(found), _shown(allowed)))


def claims_of(instance: Instance, timeline: Timeline, header: TimelineHeader) -> Claims:
    """Hold every claim of a header against the timeline and against the other claims."""
    claims = Claims()
    _value(claims, instance, timeline, header)
    _bound(claims, header)
    _status(claims, timeline, header)
    _trail(claims, header)
    for name in ("policy", "solver", "seed", "runtime_s", "options", "versions", "bound_method"):
        if getattr(header, name) not in (None, {}) and name not in claims.unproved:
            claims.unchecked[name] = "says how it was made, which leaves no trace in a timeline"
    return claims


def _value(claims: Claims, instance: Instance, timeline: Timeline, header: TimelineHeader) -> None:
    """Compute the objective again, by the header's own name of it."""
    if header.objective is None:
        return
    if header.objective not in [str(objective) for objective in Objective]:
        claims.against("objective", "is none", header.objective, ", ".join(Objective))
    elif header.value is not None:
        objective = Objective(header.objective)
        if bool((timeline.place == UNPLACED).any()):
            claims.against("value", "is given although a task is not placed", header.value, "none")
            return
        given = reported_value(objective, timeline_value(objective, instance, timeline))
        if _agree(header.value, given):
            claims.checked.append("value")
        elif timeline.realised and objective in _OF_RUN_TIMES:
            claims.unchecked["value"] = (
                "counts by run times that the file does not hold if what happened followed others than the scenario's; "
                f"by the scenario's it is {given:.12g}"
            )
        else:
            claims.against("value", f"is not the {header.objective} of the timeline", header.value, given)


def _bound(claims: Claims, header: TimelineHeader) -> None:
    """Hold the bound against the value, and the gap against both; that it is a bound only a certificate shows."""
    value, bound = header.value, header.lower_bound
    if bound is not None:
        claims.unproved["lower_bound"] = f"{bound:.12g} ({header.bound_method or 'no method named'})"
        if value is not None and bound > value and not _agree(bound, value):
            claims.against("lower_bound", "lies above the value", bound, f"at most {value:.12g}")
    if header.gap is None:
        return
    if value is None or bound is None:
        claims.against("gap", "is given without a value and a lower bound", header.gap, "none")
        return
    if value == 0 < bound:
        return  # above the value, as was said: there is no gap
    expected = gap(Fraction(value), Fraction(bound)) or 0.0
    if abs(header.gap - expected) <= OPTIMALITY_TOLERANCE:
        claims.checked.append("gap")
    else:
        claims.against("gap", "is not (value - lower_bound) / value", header.gap, expected)


def _status(claims: Claims, timeline: Timeline, header: TimelineHeader) -> None:
    """Hold the status against value and bound: a plan is optimal if they meet."""
    if header.status is None:
        return
    placed = bool((timeline.place != UNPLACED).any())
    if header.status not in list(Status):
        claims.against("status", "is none", header.status, ", ".join(Status))
    elif timeline.realised:
        claims.against("status", "is that of a plan, and this timeline happened", header.status, "none")
    elif placed and header.status not in (Status.OPTIMAL, Status.FEASIBLE):
        claims.against("status", "says that there is no plan", header.status, "OPTIMAL, FEASIBLE")
    elif header.status == Status.OPTIMAL:
        value, bound = header.value, header.lower_bound
        if value is None or bound is None or value - bound > (float(OPTIMALITY_TOLERANCE) + _ROUNDING) * abs(value):
            claims.against(
                "status", "is OPTIMAL with a lower bound that does not meet the value", _or(bound), _or(value)
            )
        claims.unproved["status"] = "OPTIMAL holds if the lower bound does"
    else:
        claims.checked.append("status")


def _trail(claims: Claims, header: TimelineHeader) -> None:
    """Hold the trail against the value and the bound that it must end with."""
    if not header.incumbents:
        return
    found = len(claims.contradictions)
    for before, after in zip(header.incumbents, header.incumbents[1:], strict=False):
        if after[0] < before[0]:
            claims.against("incumbents", "go back in time", after[0], f"at least {before[0]:.12g}")
    values = [value for _, value, _ in header.incumbents if value is not None]
    bounds = [bound for _, _, bound in header.incumbents if bound is not None]
    for name, best, end in (
        ("value", min(values, default=None), header.value),
        ("lower_bound", max(bounds, default=None), header.lower_bound),
    ):
        if best is not None and (end is None or not _agree(best, end)):
            claims.against("incumbents", f"do not end with the {name}", best, _or(end))
    if len(claims.contradictions) == found:
        claims.checked.append("incumbents")


def own_times(instance: Instance, timeline: Timeline) -> dict[str, int]:
    """Return how many runs and loads of a timeline take other times than the given ones, and how many there are."""
    placed = timeline.place != UNPLACED
    given = given_us(instance, timeline)
    loads = [stay for stay in timeline.residencies if not stay.initial]
    return {
        "runs": int(placed.sum()),
        "runs_of_other_times": int((placed & (timeline.end_us - timeline.start_us != given)).sum()),
        "loads": len(loads),
        "loads_of_other_times": sum(
            stay.ready_us - stay.load_start_us != instance.load_time(stay.model, stay.gpu) for stay in loads
        ),
    }


def given_us(instance: Instance, timeline: Timeline) -> Ints:
    """Return how long each task runs where it is placed by the scenario, a batch by its size. Shape [tasks]."""
    classes = instance.place_class[np.maximum(timeline.place, 0)]
    given: Ints = instance.run_us[instance.task_template, classes]
    if not instance.batches:
        return given
    batch, leaders = instance.template_batch[instance.task_template], batch_leaders(instance, timeline)
    members = np.flatnonzero(batch != NONE)
    sizes = np.minimum(np.bincount(leaders)[leaders], instance.batch_us.shape[2] - 1)
    given[members] = instance.batch_us[batch[members], classes[members], sizes[members]]
    return given


def _agree(a: float, b: float) -> bool:
    return abs(a - b) <= _ROUNDING * max(abs(a), abs(b))


def _or(number: float | None) -> str:
    return "none" if number is None else f"{number:.12g}"


def _shown(value: object) -> str:
    return f"{value:.12g}" if isinstance(value, float) else str(value)
