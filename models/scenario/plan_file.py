"""Plan and timeline files: one JSON format for every timeline, tied to its scenario by a hash."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from models.identity import scenario_hash
from models.instance import Instance
from models.scenario.atomic import write_atomically
from models.timeline import UNPLACED, Residency, Timeline

SCHEMA_VERSION = 1
Scalar = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class TimelineHeader:
    """What a timeline file says of its timeline; None and empty where there is nothing to say.

    Parameters
    ----------
    status
        As in `solvers.result.Status`; None for what was not searched for.
    objective, value
        Name of the objective and its value in its reported unit (seconds, jobs, or a ratio).
    lower_bound, bound_method, gap
        Proved lower bound in the same unit, where it comes from, and (value - bound) / value.
    policy
        The online policy that made the timeline.
    solver, seed, runtime_s, options, versions
        How it was found: name, seed, wall-clock seconds, settings, versions and commit of the software.
    command
        The command that made it; None where it was a call from Python.
    incumbents
        The trail: seconds since the start, best value and best bound, each in its reported unit.
    """

    status: str | None = None
    objective: str | None = None
    value: float | None = None
    lower_bound: float | None = None
    bound_method: str | None = None
    gap: float | None = None
    policy: str | None = None
    solver: str | None = None
    seed: int | None = None
    runtime_s: float | None = None
    options: Mapping[str, Scalar] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    command: str | None = None
    incumbents: Sequence[tuple[float, float | None, float | None]] = ()


def timeline_document(instance: Instance, timeline: Timeline, header: TimelineHeader) -> dict[str, Any]:
    """Return a timeline as plain data: the header's fields, then tasks (those that are placed) and residencies."""
    described = {name: value for name, value in asdict(header).items() if name not in ("objective", "value")}
    objective = None if header.objective is None else {"name": header.objective, "value": header.value}
    return {
        "schema_version": SCHEMA_VERSION,
        "scenario_hash": scenario_hash(instance),
        "status": described.pop("status"),
        "objective": objective,
        **described,
        "realised": timeline.realised,
        "tasks": list(_tasks(instance, timeline)),
        "residencies": [_residency(instance, residency) for residency in timeline.residencies],
    }


def write_timeline(path: str | Path, instance: Instance, timeline: Timeline, header: TimelineHeader) -> None:
    """Write a timeline to a JSON file, one task and one residency per line, whole or not at all.

    Raises
    ------
    InputError
        If the file cannot be written.
    """
    write_atomically(path, "".join(_render(timeline_document(instance, timeline, header))))


def _tasks(instance: Instance, timeline: Timeline) -> Iterator[dict[str, str | int]]:
    gpus = [gpu.id for gpu in instance.cluster.gpus]
    first_task = instance.job_first_task.tolist()
    names = [[task.name for task in workflow.tasks] for workflow in instance.workflows]
    workflow_of = instance.job_workflow.tolist()
    rows = (instance.task_job, timeline.gpu, timeline.start_us, timeline.end_us)
    for task, (job, gpu, start, end) in enumerate(zip(*(row.tolist() for row in rows), strict=True)):
        if gpu != UNPLACED:
            name = names[workflow_of[job]][task - first_task[job]]
            yield {"job": job, "task": name, "gpu": gpus[gpu], "start_us": start, "end_us": end}


def _residency(instance: Instance, residency: Residency) -> dict[str, Scalar]:
    entry: dict[str, Scalar] = {
        "gpu": instance.cluster.gpus[residency.gpu].id,
        "model": instance.models[residency.model].name,
        "slot": residency.slot,
        "load_start_us": residency.load_start_us,
        "ready_us": residency.ready_us,
        "end_us": residency.end_us,
    }
    return entry | {"initial": True} if residency.initial else entry


def _render(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the JSON text, one line per key, task and residency."""
    separator = "{\n"
    for key, value in document.items():
        yield f"{separator}{json.dumps(key)}: "
        if key in ("tasks", "residencies"):
            entries = ",\n  ".join(json.dumps(entry, allow_nan=False) for entry in value)
            yield f"[\n  {entries}\n]" if value else "[]"
        else:
            yield json.dumps(value, allow_nan=False)
        separator = ",\n"
    yield "\n}\n"
