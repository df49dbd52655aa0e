"""The picture of a run on devices: per GPU, what was predicted over what was measured."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from models.cluster import MICROSECONDS_PER_SECOND
from models.instance import Instance
from models.timeline import Timeline
from planner.show.colours import COLOURS, PLAIN
from planner.show.figures import MOST_GPUS
from planner.show.picture import AS_DATA

# Lower edge and height of each lane within the band of one GPU.
_PREDICTED_COMPUTE = (0.70, 0.22)
_MEASURED_COMPUTE = (0.46, 0.22)
_PREDICTED_COPY = (0.26, 0.12)
_MEASURED_COPY = (0.12, 0.12)
_LANES = (
    (_PREDICTED_COMPUTE, "compute, predicted"),
    (_MEASURED_COMPUTE, "measured"),
    (_PREDICTED_COPY, "copy, predicted"),
    (_MEASURED_COPY, "measured"),
)


@AS_DATA
def predicted_over_measured(instance: Instance, predicted: Timeline, measured: Timeline, title: str) -> Figure:
    """Return a chart with four lanes per GPU: runs and loads, predicted and measured, on one axis of time."""
    gpus = range(min(instance.n_gpus, MOST_GPUS))
    until = float(max(predicted.end_us.max(), measured.end_us.max(), 1)) / MICROSECONDS_PER_SECOND
    figure = Figure(figsize=(16, 1.8 + 1.7 * len(gpus)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for gpu in gpus:
        base = len(gpus) - 1 - gpu
        axes.axhspan(base, base + 1, color="#F4F4F4" if gpu % 2 else "white", zorder=0)
        for timeline, compute, copy in (
            (predicted, _PREDICTED_COMPUTE, _PREDICTED_COPY),
            (measured, _MEASURED_COMPUTE, _MEASURED_COPY),
        ):
            _draw_runs(axes, instance, timeline, gpu, (base + compute[0], compute[1]), until)
            _draw_loads(axes, timeline, gpu, (base + copy[0], copy[1]))
    _name_lanes(axes, instance, gpus, until)
    axes.set_title(title, loc="left", fontsize=13)
    axes.set_xlabel("time in seconds")
    _name_models(figure, instance, [predicted, measured])
    return figure


def _draw_runs(
    axes: Axes, instance: Instance, timeline: Timeline, gpu: int, lane: tuple[float, float], until: float
) -> None:
    """Draw runs, coloured by their first model; one that is wide enough carries its job's number."""
    for task in np.flatnonzero(timeline.gpu == gpu).tolist():
        start, end = (float(t[task]) / MICROSECONDS_PER_SECOND for t in (timeline.start_us, timeline.end_us))
        needs = instance.task_needs(task)
        colour = COLOURS[needs[0] % len(COLOURS)] if needs else PLAIN
        axes.broken_barh([(start, end - start)], lane, facecolor=colour, edgecolor="white", linewidth=0.4)
        job = str(instance.task_job[task])
        if end - start > until * len(job) / 250:
            middle = ((start + end) / 2, lane[0] + lane[1] / 2)
            axes.text(*middle, job, ha="center", va="center", fontsize=7, color="white", clip_on=True)


def _draw_loads(axes: Axes, timeline: Timeline, gpu: int, lane: tuple[float, float]) -> None:
    for residency in timeline.residencies:
        if residency.gpu == gpu and not residency.initial:
            start = residency.load_start_us / MICROSECONDS_PER_SECOND
            bar = (start, residency.ready_us / MICROSECONDS_PER_SECOND - start)
            colour = COLOURS[residency.model % len(COLOURS)]
            axes.broken_barh([bar], lane, facecolor=colour, edgecolor="black", linewidth=0.5, hatch="////")


def _name_lanes(axes: Axes, instance: Instance, gpus: Sequence[int], until: float) -> None:
    ticks, labels = [], []
    for gpu in gpus:
        for (low, height), name in _LANES:
            ticks.append(len(gpus) - 1 - gpu + low + height / 2)
            labels.append(f"{instance.cluster.gpus[gpu].id}  {name}" if low == _PREDICTED_COMPUTE[0] else name)
    axes.set_yticks(ticks, labels, fontsize=8)
    axes.set_ylim(0, len(gpus))
    axes.set_xlim(0, until)
    axes.tick_params(axis="y", length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)


def _name_models(figure: Figure, instance: Instance, timelines: Sequence[Timeline]) -> None:
    """Say below the chart which colour is which model."""
    used = sorted({residency.model for timeline in timelines for residency in timeline.residencies})
    patches = [Patch(color=COLOURS[model % len(COLOURS)], label=instance.models[model].name) for model in used]
    patches.append(Patch(color=PLAIN, label="no model"))
    patches.append(Patch(facecolor="white", edgecolor="black", hatch="////", label="load"))
    figure.legend(handles=patches, loc="outside lower left", ncols=min(len(patches), 12), frameon=False, fontsize=9)
    hidden = f" (the first {MOST_GPUS} of {instance.n_gpus} GPUs)" if instance.n_gpus > MOST_GPUS else ""
    note = f"Numbers are jobs in release order.{hidden}"
    figure.text(0.995, 0.005, note, ha="right", va="bottom", fontsize=8, color="#555555")
