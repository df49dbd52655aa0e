"""Pictures of timelines: a Gantt chart with residency bands, and the distribution of slowdowns."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from models.cluster import MICROSECONDS_PER_SECOND
from models.instance import Instance
from models.objective import completion_us
from models.timeline import Residency, Timeline
from planner.show.colours import COLOURS, PLAIN
from planner.show.picture import AS_DATA

MOST_GPUS = 16
"""A Gantt chart shows at most so many GPUs, the busiest; more would be too thin to read."""

# Heights within the band of one GPU, from its lower edge: memory, copy lane, compute lane.
_MEMORY = (0.02, 0.36)
_COPY = (0.42, 0.16)
_COMPUTE = (0.62, 0.30)


@AS_DATA
def gantt(instance: Instance, timeline: Timeline, title: str) -> Figure:
    """Return a Gantt chart: per GPU, runs on the compute engine, loads on the copy engine, and the models in memory."""
    gpus = _busiest(instance, timeline)
    until = float(timeline.end_us.max()) / MICROSECONDS_PER_SECOND
    figure = Figure(figsize=(16, 1.6 + 1.55 * len(gpus)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for row, gpu in enumerate(gpus):
        base = len(gpus) - 1 - row
        axes.axhspan(base, base + 1, color="#F4F4F4" if row % 2 else "white", zorder=0)
        _draw_tasks(axes, instance, timeline, gpu, base, until)
        _draw_loads(axes, instance, timeline, gpu, base)
        _draw_memory(axes, instance, timeline, gpu, base, until)
    _label_lanes(axes, instance, gpus, until)
    axes.set_title(title, loc="left", fontsize=13)
    axes.set_xlabel("time in seconds")
    _name_models(figure, instance, timeline)
    return figure


def _busiest(instance: Instance, timeline: Timeline) -> list[int]:
    work = np.bincount(timeline.gpu, weights=timeline.end_us - timeline.start_us, minlength=instance.n_gpus)
    kept = np.argsort(-work, kind="stable")[:MOST_GPUS]
    return sorted(int(gpu) for gpu in kept)


def _colour(model: int) -> str:
    return COLOURS[model % len(COLOURS)]


def _draw_tasks(axes: Axes, instance: Instance, timeline: Timeline, gpu: int, base: float, until: float) -> None:
    """Draw the compute lane; a run that is wide enough carries its job's number."""
    for task in np.flatnonzero(timeline.gpu == gpu):
        start, end = (float(t[task]) / MICROSECONDS_PER_SECOND for t in (timeline.start_us, timeline.end_us))
        needs = instance.task_needs(int(task))
        colour = _colour(needs[0]) if needs else PLAIN
        bar = (start, end - start)
        axes.broken_barh([bar], (base + _COMPUTE[0], _COMPUTE[1]), facecolor=colour, edgecolor="white", linewidth=0.6)
        job = str(instance.task_job[task])
        if end - start > until * len(job) / 250:
            middle = base + _COMPUTE[0] + _COMPUTE[1] / 2
            axes.text((start + end) / 2, middle, job, ha="center", va="center", fontsize=7, color="white", clip_on=True)


def _draw_loads(axes: Axes, instance: Instance, timeline: Timeline, gpu: int, base: float) -> None:
    """Draw the copy lane."""
    for residency in _on(timeline, gpu):
        if not residency.initial:
            start = residency.load_start_us / MICROSECONDS_PER_SECOND
            length = residency.ready_us / MICROSECONDS_PER_SECOND - start
            lane = (base + _COPY[0], _COPY[1])
            colour = _colour(residency.model)
            axes.broken_barh([(start, length)], lane, facecolor=colour, edgecolor="black", linewidth=0.6, hatch="////")


def _draw_memory(axes: Axes, instance: Instance, timeline: Timeline, gpu: int, base: float, until: float) -> None:
    """Stack the models in memory, a fixed order from below; the line on top is the memory's size."""
    here = _on(timeline, gpu)
    unit = _MEMORY[1] / instance.cluster.gpus[gpu].memory_bytes
    axes.hlines(base + _MEMORY[0] + _MEMORY[1], 0, until, color="black", linewidth=0.6)
    edges = {0.0, until}
    for residency in here:
        edges |= {residency.load_start_us / MICROSECONDS_PER_SECOND, _end_s(residency, until)}
    times = np.array(sorted(edge for edge in edges if edge <= until))
    level = np.full(len(times), base + _MEMORY[0])
    for model in sorted({residency.model for residency in here}):
        held = np.zeros(len(times), bool)
        for residency in here:
            if residency.model == model:
                start = residency.load_start_us / MICROSECONDS_PER_SECOND
                held |= (times >= start) & (times < _end_s(residency, until))
        top = level + held * int(instance.weight_bytes[model]) * unit
        axes.fill_between(times, level, top, step="post", color=_colour(model), linewidth=0, alpha=0.85)
        level = top


def _on(timeline: Timeline, gpu: int) -> list[Residency]:
    return [residency for residency in timeline.residencies if residency.gpu == gpu]


def _end_s(residency: Residency, until: float) -> float:
    return until if residency.end_us is None else residency.end_us / MICROSECONDS_PER_SECOND


def _label_lanes(axes: Axes, instance: Instance, gpus: Sequence[int], until: float) -> None:
    """Name each GPU and its three lanes on the vertical axis."""
    ticks, labels = [], []
    for row, gpu in enumerate(gpus):
        base = len(gpus) - 1 - row
        device = instance.cluster.gpus[gpu]
        names = (f"{device.id}  compute", "copy", f"memory {device.memory_bytes / 1e9:.4g} GB")
        for (low, height), name in zip((_COMPUTE, _COPY, _MEMORY), names, strict=True):
            ticks.append(base + low + height / 2)
            labels.append(name)
    axes.set_yticks(ticks, labels, fontsize=8)
    axes.set_ylim(0, len(gpus))
    axes.set_xlim(0, until)
    axes.tick_params(axis="y", length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)


def _name_models(figure: Figure, instance: Instance, timeline: Timeline) -> None:
    """Say below the chart which colour is which model, and what the lanes show."""
    used = sorted({residency.model for residency in timeline.residencies})
    patches = [Patch(color=_colour(model), label=instance.models[model].name) for model in used]
    patches.append(Patch(color=PLAIN, label="no model"))
    patches.append(Patch(facecolor="white", edgecolor="black", hatch="////", label="load"))
    figure.legend(handles=patches, loc="outside lower left", ncols=min(len(patches), 12), frameon=False, fontsize=9)
    shown = min(instance.n_gpus, MOST_GPUS)
    hidden = f" (the {shown} busiest of {instance.n_gpus} GPUs)" if shown < instance.n_gpus else ""
    note = f"Numbers are jobs in release order. Memory: models held, up to the line that is the GPU's memory.{hidden}"
    figure.text(0.995, 0.005, note, ha="right", va="bottom", fontsize=8, color="#555555")


@AS_DATA
def slowdown_ecdf(instance: Instance, timelines: Mapping[str, Timeline], clairvoyant: str | None) -> Figure:
    """Return the share of jobs within each slowdown, a curve per timeline, named at its end.

    Parameters
    ----------
    clairvoyant
        Name of the timeline that knows the future; drawn bold, and said so.
    """
    figure = Figure(figsize=(10, 6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for index, (name, timeline) in enumerate(timelines.items()):
        slowdown = np.sort((completion_us(instance, timeline) - instance.job_release_us) / instance.job_critical_us)
        share = np.arange(1, len(slowdown) + 1) / len(slowdown)
        bold = name == clairvoyant
        colour = "black" if bold else _colour(index)
        label = f"{name} (mean {slowdown.mean():.3g}{', knows the future' if bold else ''})"
        axes.step(slowdown, share, where="post", color=colour, linewidth=2.4 if bold else 1.4, label=label)
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    marks = [mark for mark in (1, 1.5, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000) if low <= mark <= high]
    axes.set_xticks(marks, [f"{mark:g}" for mark in marks])
    axes.minorticks_off()
    axes.set_ylim(0, 1)
    axes.grid(color="#DDDDDD", linewidth=0.6)
    axes.set_xlabel("slowdown: latency / critical path (log scale)")
    axes.set_ylabel("share of jobs at or below")
    axes.set_title("Slowdown of the jobs: further to the upper left is better", loc="left", fontsize=13)
    axes.legend(loc="lower right", frameon=False)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure


def png(figure: Figure) -> bytes:
    """Return a figure as a PNG file's bytes."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130)
    return buffer.getvalue()
