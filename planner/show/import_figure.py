"""The picture of a workload before anything is planned: arrivals, models, run times, and load over time."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from planner.inputs.importers.summary import LISTED_MODELS, QUANTILES, Summary
from planner.show.canvas import AS_DATA
from planner.show.colours import COLOURS, PLAIN

_BINS_S = (1, 10, 60, 600, 3_600, 6 * 3_600, 86_400, 7 * 86_400, 30 * 86_400)
_MOST_BINS = 200
_PAPER = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1}
"""Behind words that may come to lie upon a line."""
_CLOCK = ((3 * 86_400, 86_400, "days"), (3 * 3_600, 3_600, "hours"), (300, 60, "minutes"), (0, 1, "seconds"))


@AS_DATA
def figure(summary: Summary, title: str) -> Figure:
    """Return four charts of a workload."""
    made = Figure(figsize=(13, 8), layout="constrained")
    FigureCanvasAgg(made)
    grid = made.subplots(2, 2)
    length_s = max(summary.length_us, float(summary.workload.release_us[-1]) + 1) / 1e6
    width_s = next((width for width in _BINS_S if length_s <= width * _MOST_BINS), _BINS_S[-1])
    _arrivals(grid[0][0], summary, length_s, width_s)
    _models(grid[0][1], summary)
    _load(grid[1][0], summary, length_s, width_s)
    _runtimes(grid[1][1], summary)
    made.suptitle(title, x=0.01, ha="left", fontsize=13)
    for axes in made.axes:
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    return made


def _over_time(axes: Axes, summary: Summary, weights: np.ndarray, length_s: float, width_s: float, colour: str) -> None:
    """Draw the sum of some weight of the jobs per bin of time as steps; the last bin takes what is left."""
    unit_s, unit = next((unit_s, unit) for least, unit_s, unit in _CLOCK if length_s >= least)
    bins = max(1, round(length_s / width_s))
    position = np.minimum(summary.workload.release_us / 1e6 // width_s, bins - 1).astype(np.int64)
    edges = np.append(np.arange(bins) * width_s, length_s) / unit_s
    axes.stairs(np.bincount(position, weights, bins) / np.diff(edges) / unit_s, edges, fill=True, color=colour)
    axes.set_xlabel(f"time in {unit}")
    axes.set_xlim(0, edges[-1])


def _name_below(axes: Axes) -> None:
    """Name what is drawn beneath the axes at their right end, where no data are."""
    axes.legend(loc="upper right", bbox_to_anchor=(1, -0.07), ncols=2, frameon=False, fontsize=9, borderaxespad=0)


def _arrivals(axes: Axes, summary: Summary, length_s: float, width_s: float) -> None:
    per_minute = np.full(len(summary.job_work_us), 60.0)
    _over_time(axes, summary, per_minute, length_s, width_s, COLOURS[0])
    mean = summary.mean_per_minute
    axes.set_title(f"arrivals per minute{'' if mean is None else f' (mean {mean:.3g})'}", loc="left", fontsize=11)


def _load(axes: Axes, summary: Summary, length_s: float, width_s: float) -> None:
    _over_time(axes, summary, summary.job_work_us / 1e6 / summary.gpus, length_s, width_s, COLOURS[2])
    axes.axhline(1, color="black", linewidth=1, label="what the GPUs can do")
    axes.set_ylim(0, max(1.15, axes.get_ylim()[1]))
    load = summary.fluid_load
    mean = "" if load is None else f" (mean {load:.2f})"
    axes.set_title(f"fluid load: work arriving per second / {summary.gpus} GPUs{mean}", loc="left", fontsize=11)
    _name_below(axes)


def _models(axes: Axes, summary: Summary) -> None:
    total, work = sum(summary.model_requests.values()), sum(summary.model_work_us.values())
    named = list(summary.model_requests)[:LISTED_MODELS]
    requests = [summary.model_requests[model] / total for model in named]
    works = [summary.model_work_us[model] / work for model in named]
    labels = [model if len(model) <= 20 else model[:9] + "…" + model[-10:] for model in named]
    if len(summary.model_requests) > len(named):
        labels.append(f"{len(summary.model_requests) - len(named)} others")
        requests.append(1 - sum(requests))
        works.append(1 - sum(works))
    places = np.arange(len(labels))
    axes.barh(places - 0.2, requests, 0.38, color=COLOURS[0], label="requests")
    axes.barh(places + 0.2, works, 0.38, color=COLOURS[2], label="run time")
    axes.set_yticks(places, labels)
    axes.invert_yaxis()
    axes.xaxis.set_major_formatter(lambda share, position: f"{share:.0%}")
    _name_below(axes)
    axes.set_title(f"shares of {len(summary.model_requests)} models", loc="left", fontsize=11)


def _runtimes(axes: Axes, summary: Summary) -> None:
    """Draw the distribution of the run times, thinned to what a picture can show."""
    runtimes = summary.task_runtime_us / 1e6
    share = np.arange(1, len(runtimes) + 1) / len(runtimes)
    step = max(1, len(runtimes) // 5_000)
    shown = np.unique(np.append(np.arange(0, len(runtimes), step), len(runtimes) - 1))
    axes.step(runtimes[shown], share[shown], where="post", color=COLOURS[3], linewidth=2)
    for percent in QUANTILES:
        value = summary.runtime_s(percent)
        axes.plot(value, percent / 100, "o", color="black", markersize=4)
        axes.annotate(
            f"p{percent}: {value:.3g} s", (value, percent / 100), (6, -11), textcoords="offset points", bbox=_PAPER
        )
    if load_s := summary.mean_load_us / 1e6:
        axes.axvline(load_s, color=PLAIN, linewidth=1.5, linestyle="--")
        axes.annotate(f"a load: {load_s:.3g} s", (load_s, 0.5), (-4, 0), ha="right", va="center", rotation=90,
                      textcoords="offset points", fontsize=9)  # fmt: skip
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(lambda value, position: f"{value:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("run time in seconds (log scale)")
    axes.set_title("share of tasks at or below", loc="left", fontsize=11)
