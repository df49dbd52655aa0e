"""Check a timeline against every rule, and say what it is worth."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from executor import twin_instance
from models.feasibility import check
from models.instance import Instance
from models.objective import Objective, ObjectiveValue, reported_value, timeline_value
from models.scenario import InputError, PlanFile, read_timeline
from models.timeline import UNPLACED, Timeline
from models.violation import Violation
from planner.answers.claims import Claims, claims_of, own_times


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
class Checked:
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
    """Check a timeline against every rule, and what its file says of it against the timeline."""
    timeline = file.timeline
    value = None
    if bool((timeline.gpu != UNPLACED).all()):
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
