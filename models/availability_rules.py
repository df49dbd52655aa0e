"""Servers that come and go, for the checker: what lies outside the intervals in which a GPU is there (A1)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truenorth.models.availability import FOREVER
from truenorth.models.cluster import GPU
from truenorth.models.instance import NONE, Instance, Ints
from truenorth.models.timeline import Residency, Timeline, batch_leaders
from truenorth.models.violation import Violation, name_residency, name_task


def check_availability(instance: Instance, timeline: Timeline) -> Iterator[Violation]:
    """A1: a run, a load and a residency lie inside one interval of their GPU.

    Of what happened under noise the start and the given time do; what then lasts longer keeps its models with it.
    """
    if instance.always_available:
        return
    last_end = _run_ends(instance, timeline)
    for task, end in enumerate(last_end.tolist()):
        gpu = instance.cluster.gpus[timeline.gpu[task]]
        start = int(timeline.start_us[task])
        if not gpu.available.holds(start, end):
            found = f"[{start}, {end})"
            problem = f"{gpu.id} is not there all the time"
            yield Violation("A1", name_task(instance, task), problem, found, _near(gpu, start))
    for residency in timeline.residencies:
        yield from _residency(instance, timeline, residency)


def _run_ends(instance: Instance, timeline: Timeline) -> Ints:
    """Return when each run ends; of a realised timeline, when it would by its given time."""
    if not timeline.realised:
        return timeline.end_us
    given = instance.run_us[instance.task_template, instance.gpu_class[timeline.gpu]]
    if instance.batches:
        leaders, batch = batch_leaders(instance, timeline), instance.template_batch[instance.task_template]
        size = np.bincount(leaders, minlength=instance.n_tasks)[leaders]
        for task in np.flatnonzero(batch != NONE).tolist():
            of_batch = instance.batch_time(int(batch[task]), int(timeline.gpu[task]), int(size[task]))
            given[task] = max(given[task], of_batch)
    ends = np.asarray(timeline.start_us + np.maximum(given, 0), np.int64)
    if instance.streams is not None:  # a request joins only where it ends in time whatever happens
        ends = np.where(instance.streams.template[instance.task_template] == NONE, ends, timeline.end_us)
    return ends


def _residency(instance: Instance, timeline: Timeline, residency: Residency) -> Iterator[Violation]:
    gpu, begin = instance.cluster.gpus[residency.gpu], residency.load_start_us
    end = FOREVER if residency.end_us is None else residency.end_us
    interval = gpu.available.at(begin)
    if interval is not None and timeline.realised:
        loaded = begin + max(0, instance.load_time(residency.model, residency.gpu))
        if residency.initial or loaded <= interval[1]:  # what was begun in time ends when it ends
            end = min(end, interval[1]) if end <= _busy_until(timeline, residency, interval[1]) else end
        else:
            end = max(end, loaded)
    if interval is None or end > interval[1]:
        found = f"[{begin}, {'end' if end == FOREVER else end})"
        subject, problem = name_residency(instance, residency), f"{gpu.id} is not there all the time"
        yield Violation("A1", subject, problem, found, _near(gpu, begin))


def _busy_until(timeline: Timeline, residency: Residency, gone_us: int) -> int:
    """Return until when loads and runs that began before a GPU had to go keep it busy."""
    here = (timeline.gpu == residency.gpu) & (timeline.start_us < gone_us)
    runs = int(timeline.end_us[here].max(initial=gone_us))
    loads = (r.ready_us for r in timeline.residencies if r.gpu == residency.gpu and r.load_start_us < gone_us)
    return max(runs, *loads)


def _near(gpu: GPU, instant: int) -> str:
    """Return, in words, the interval that an instant lies in, else the next one, else the last."""
    intervals = gpu.available.intervals
    begin, end = next((interval for interval in intervals if instant < interval[1]), intervals[-1])
    return f"inside [{begin}, {'end' if end == FOREVER else end})"
