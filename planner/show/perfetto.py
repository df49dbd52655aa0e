"""A timeline as trace events, for https://ui.perfetto.dev and chrome://tracing: one process per GPU, three tracks."""

from __future__ import annotations

from typing import Any

from models.instance import Instance
from models.timeline import Timeline

_COMPUTE, _COPY = 0, 1


def trace_events(instance: Instance, timeline: Timeline, label: str, first_process: int = 0) -> list[dict[str, Any]]:
    """Return the events of one timeline in the Trace Event Format.

    Parameters
    ----------
    label
        Stands before each GPU's name, so that several timelines can share a file.
    first_process
        Number of the first GPU's process; the next timeline in a file starts after the last GPU.
    """
    events: list[dict[str, Any]] = []
    for gpu, device in enumerate(instance.cluster.gpus):
        process = first_process + gpu
        events.append(_name("process_name", process, 0, f"{label} {device.id}"))
        events.append(_name("thread_name", process, _COMPUTE, "compute"))
        events.append(_name("thread_name", process, _COPY, "copy"))
    events += _runs(instance, timeline, first_process)
    events += _loads(instance, timeline, first_process)
    events += _memory(instance, timeline, first_process)
    return events


def _name(what: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": {"name": name}}


def _runs(instance: Instance, timeline: Timeline, first: int) -> list[dict[str, Any]]:
    return [
        {
            "ph": "X",
            "name": f"{instance.task_name(p.task)} (job {instance.task_job[p.task]})",
            "pid": first + p.gpu,
            "tid": _COMPUTE,
            "ts": p.start_us,
            "dur": p.end_us - p.start_us,
            "args": {"models": [instance.models[model].name for model in instance.task_needs(p.task)]},
        }
        for p in timeline.placements
    ]


def _loads(instance: Instance, timeline: Timeline, first: int) -> list[dict[str, Any]]:
    return [
        {
            "ph": "X",
            "name": f"load {instance.models[residency.model].name}",
            "pid": first + residency.gpu,
            "tid": _COPY,
            "ts": residency.load_start_us,
            "dur": residency.ready_us - residency.load_start_us,
            "args": {"evicted_us": residency.end_us},
        }
        for residency in timeline.residencies
        if not residency.initial
    ]


def _memory(instance: Instance, timeline: Timeline, first: int) -> list[dict[str, Any]]:
    """Count, per GPU, the gigabytes of weights held after each change."""
    changes: list[tuple[int, int, int]] = []
    for residency in timeline.residencies:
        weight = int(instance.weight_bytes[residency.model])
        changes.append((residency.load_start_us, residency.gpu, weight))
        if residency.end_us is not None:
            changes.append((residency.end_us, residency.gpu, -weight))
    held = [0] * instance.n_gpus
    events = []
    for instant, gpu, change in sorted(changes):
        held[gpu] += change
        counter = {"weights in GB": held[gpu] / 1e9}
        events.append({"ph": "C", "name": "memory", "pid": first + gpu, "ts": instant, "args": counter})
    return events
