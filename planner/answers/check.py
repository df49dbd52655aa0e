"""Check a timeline against every rule, and say what it is worth."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from executor import twin_instance
from models.feasibility import check
from models.instance import Instance
from models.objective import Objective, reported_value, timeline_value
from models.scenario import InputError, read_timeline
from models.timeline import UNPLACED, Timeline
from models.violation import Violation


def read(instance: Instance, path: Path) -> tuple[Instance, Timeline]:
    """Return a timeline and the instance it belongs to: the given one, or its twin that ``compass-released`` runs on.

    Raises
    ------
    InputError
        If the file cannot be read or belongs to neither.
    """
    try:
        return instance, read_timeline(path, instance).timeline
    except InputError as error:
        twin = twin_instance(instance)
        if error.field == "scenario_hash" and twin is not instance:
            with suppress(InputError):
                return twin, read_timeline(path, twin).timeline
        raise


def verdict(
    objective: Objective, instance: Instance, timeline: Timeline, violations: Sequence[Violation]
) -> dict[str, Any]:
    """Return the outcome of a check with the keys of ``check --json``; no value if a task is not placed."""
    value = None
    if bool((timeline.gpu != UNPLACED).all()):
        value = reported_value(objective, timeline_value(objective, instance, timeline))
    return {
        "valid": not violations,
        "violations": [asdict(violation) for violation in violations],
        "objective": {"name": str(objective), "value": value},
    }


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
