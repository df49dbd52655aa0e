"""``timelines.json``: all that the interactive Gantt chart of a report shows, without the scenario file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from models.availability import FOREVER
from models.cluster import GPU
from models.identity import scenario_hash
from models.instance import Instance
from models.objective import completion_us
from models.scenario import write_atomically
from models.timeline import Timeline
from planner.answers.shown import Shown
from planner.show.runs import runs_by_gpu

NAME = "timelines.json"
SCHEMA_VERSION = 1
_DIGITS = 4
"""Decimals of a slowdown that is only shown."""


def write(folder: Path, shown: Sequence[Shown]) -> Path:
    """Write the timelines, the most interesting first, and return the file's path.

    Raises
    ------
    InputError
        If the file cannot be written.
    """
    path = folder / NAME
    write_atomically(path, json.dumps(document(shown), separators=(",", ":")))
    return path


def document(shown: Sequence[Shown]) -> dict[str, Any]:
    """Return timelines as plain data: the instances that they belong to, then a column per figure of the tasks.

    Times are in microseconds, tasks and jobs in the instance's order, GPUs and models by index.
    """
    instances: list[Instance] = []
    for entry in shown:
        if not any(entry.instance is instance for instance in instances):
            instances.append(entry.instance)
    return {
        "schema_version": SCHEMA_VERSION,
        "instances": [_instance(instance) for instance in instances],
        "timelines": [_timeline(entry, instances) for entry in shown],
    }


def _instance(instance: Instance) -> dict[str, Any]:
    return {
        "scenario_hash": scenario_hash(instance),
        "gpus": [
            {"id": gpu.id, "kind": gpu.kind, "memory_bytes": gpu.memory_bytes, "slots": list(gpu.slots), **_away(gpu)}
            for gpu in instance.cluster.gpus
        ],
        "models": [{"name": model.name, "weight_bytes": model.weight_bytes} for model in instance.models],
        "workflows": [
            {
                "name": workflow.name,
                "tasks": [
                    {"name": task.name, "models": list(instance.needs[first + position])}
                    for position, task in enumerate(workflow.tasks)
                ],
            }
            for workflow, first in zip(instance.workflows, instance.template_first.tolist(), strict=False)
        ],
        "jobs": {"workflow": instance.job_workflow.tolist(), "release_us": instance.job_release_us.tolist()},
    }


def _away(gpu: GPU) -> dict[str, Any]:
    """Return when a GPU is away; nothing where it always is there."""
    away = gpu.available.absences(FOREVER)
    return {"away": [[gone, None if back == FOREVER else back] for gone, back in away]} if away else {}


def slowdowns(entry: Shown) -> list[float]:
    """Return the slowdown of every job, to the digits that are shown."""
    latency_us = completion_us(entry.instance, entry.timeline) - entry.instance.job_release_us
    return [float(value) for value in np.round(latency_us / entry.instance.job_critical_us, _DIGITS)]


def _timeline(entry: Shown, instances: Sequence[Instance]) -> dict[str, Any]:
    timeline, instance = entry.timeline, entry.instance
    latency_us = completion_us(instance, timeline) - instance.job_release_us
    return {
        "name": entry.name,
        "clairvoyant": entry.clairvoyant,
        "instance": next(index for index, other in enumerate(instances) if other is instance),
        "slowdown": slowdowns(entry),
        "latency_us": latency_us.tolist(),
        "gpu": timeline.gpu.tolist(),
        "start_us": timeline.start_us.tolist(),
        "run_us": (timeline.end_us - timeline.start_us).tolist(),
        "residencies": [
            [r.gpu, r.model, r.load_start_us, r.ready_us, r.end_us, r.slot, r.initial] for r in timeline.residencies
        ],
        **_batches_and_shares(instance, timeline),
    }


def _batches_and_shares(instance: Instance, timeline: Timeline) -> dict[str, Any]:
    """Return, by task, the size of the batch that it leads, 0 for one of another's, and its place in the compute lane.

    Nothing where every task has its GPU for itself.
    """
    if instance.one_at_a_time:
        return {}
    members, low, high = [0] * instance.n_tasks, [0.0] * instance.n_tasks, [1.0] * instance.n_tasks
    for run in chain.from_iterable(runs_by_gpu(instance, timeline)):
        leader = run.tasks[0]
        members[leader], low[leader], high[leader] = len(run.tasks), round(run.low, 4), round(run.high, 4)
    return {"members": members, "low": low, "high": high}
