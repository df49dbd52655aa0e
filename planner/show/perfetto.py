"""A timeline as trace events, for https://ui.perfetto.dev and chrome://tracing: one process per GPU, three tracks."""

from __future__ import annotations

from typing import Any

from truenorth.models.instance import Instance
from truenorth.models.timeline import Timeline
from truenorth.planner.show.bars import runs_by_gpu

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
    """Return a slice per run; runs at different heights, which share a GPU, need tracks of their own."""
    by_gpu, events = runs_by_gpu(instance, timeline), []
    floors = sorted({run.low for runs in by_gpu for run in runs} - {0.0})
    for gpu, runs in enumerate(by_gpu):
        beside = {_track(floors, run.low): f"compute, from {run.low:.0%} on" for run in runs if run.low > 0}
        events += [_name("thread_name", first + gpu, track, name) for track, name in sorted(beside.items())]
        for run in runs:
            task, size = run.tasks[0], len(run.tasks)
            batch = f" and {size - 1} more" if size > 1 else ""
            models = [instance.models[model].name for model in instance.task_needs(task)]
            events.append(
                {
                    "ph": "X",
                    "name": f"{instance.task_name(task)} (job {instance.task_job[task]}{batch})",
                    "pid": first + gpu,
                    "tid": _track(floors, run.low),
                    "ts": run.start_us,
                    "dur": run.end_us - run.start_us,
                    "args": {"models": models} | ({"batch_size": size} if size > 1 else {}),
                }
            )
    return events


def _track(floors: list[float], low: float) -> int:
    """Return the track of the runs at a height: the lowest one is the compute engine's own."""
    return _COMPUTE if low == 0 else _COPY + 1 + floors.index(low)


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
