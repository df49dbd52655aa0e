"""Check a timeline against every rule, and say what it is worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from models.feasibility import Violation, check
from models.instance import Instance
from models.objective import reported_value, timeline_value
from models.scenario import InputError, Scenario, read_timeline
from models.timeline import UNPLACED, Timeline


def verdict(scenario: Scenario, timeline: Timeline, violations: Sequence[Violation]) -> dict[str, Any]:
    """Return the outcome of a check with the keys of ``check --json``; no value if a task is not placed."""
    complete = len(timeline.gpu) == scenario.instance.n_tasks and bool((timeline.gpu != UNPLACED).all())
    value = None
    if complete:
        exact = timeline_value(scenario.objective, scenario.instance, timeline)
        value = reported_value(scenario.objective, exact)
    return {
        "valid": not violations,
        "violations": [asdict(violation) for violation in violations],
        "objective": {"name": str(scenario.objective), "value": value},
    }


def feasible_timeline(instance: Instance, path: Path) -> Timeline:
    """Read a plan file that must break no rule.

    Raises
    ------
    InputError
        If the file cannot be read, belongs to another scenario, or breaks a rule.
    """
    timeline = read_timeline(path, instance).timeline
    violations = check(instance, timeline)
    if violations:
        raise InputError(str(path), None, "timeline", f"breaks {len(violations)} rules; the first: {violations[0]}")
    return timeline
