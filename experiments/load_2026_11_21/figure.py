"""The picture of the study: mean slowdown against load, a line per contender, named where it ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, log
from statistics import fmean

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

CAPACITY_PER_S = 5.02
"""Jobs per second at which five GPUs do nothing but run: the mean job is 996 ms of work."""

_STYLE = {
    # contender: colour (P. Tol's bright set), width, words
    "hash": ("#AA3377", 1.4, "hash"),
    "static": ("#CCBB44", 1.4, "static placement"),
    "compass": ("#EE6677", 2.6, "Compass"),
    "jit": ("#EE8866", 1.4, "jit"),
    "srpt": ("#228833", 1.4, "srpt"),
    "receding": ("#4477AA", 2.0, "receding horizon"),
    "plan": ("#000000", 2.6, "best plan (knows the future)"),
    "lower bound": ("#777777", 1.8, "lower bound (proved)"),
}
_BANDS = ("compass", "plan")
"""Who gets a band from the best to the worst draw; more bands would hide each other."""
_APART = 0.052
"""Least distance of two names, as a share of the axis."""

Values = Mapping[str, Mapping[float, Sequence[float]]]
"""Mean slowdowns of the draws by contender and rate."""


def figure(values: Values, jobs: int, draws: int) -> Figure:
    """Return the chart: means over the draws as lines; for some, from the best to the worst draw as a band."""
    made = Figure(figsize=(11, 7), layout="constrained")
    FigureCanvasAgg(made)
    axes = made.add_subplot()
    ends = {}
    for contender, (colour, width, _) in _STYLE.items():
        rates = sorted(values[contender])
        means = [fmean(values[contender][rate]) for rate in rates]
        dashes = (0, (4, 2)) if contender == "lower bound" else "solid"
        axes.plot(rates, means, color=colour, linewidth=width, linestyle=dashes, marker="o", markersize=3.5)
        if contender in _BANDS:
            low, high = ([pick(values[contender][rate]) for rate in rates] for pick in (min, max))
            axes.fill_between(rates, low, high, color=colour, alpha=0.12, linewidth=0)
        ends[contender] = means[-1]
    axes.set_yscale("log")
    top = 1.15 * max(ends.values())
    axes.set_ylim(0.97, top)
    last = max(values["plan"])
    axes.set_xlim(min(values["plan"]) - 0.1, last + 1.6)
    for contender, height in _spread(ends, 0.97, top).items():
        colour, width, words = _STYLE[contender]
        weight = "bold" if width > 2 else "normal"
        axes.annotate(
            f"{words}  {ends[contender]:.3g}",
            (last, ends[contender]),
            (last + 0.12, height),
            color=colour,
            fontweight=weight,
            va="center",
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.8, "shrinkA": 0, "relpos": (0, 0.5)},
        )
    marks = [mark for mark in (1, 1.2, 1.5, 2, 3, 5, 10, 20, 50, 100) if mark <= top]
    axes.set_yticks(marks, [f"{mark:g}" for mark in marks])
    axes.minorticks_off()
    rates = sorted(values["plan"])
    axes.set_xticks(rates, [f"{rate:g}\n{rate / CAPACITY_PER_S:.0%}" for rate in rates])
    axes.grid(axis="y", color="#DDDDDD", linewidth=0.6)
    axes.set_xlabel("load: jobs per second, and as a share of what five GPUs can compute", loc="left")
    axes.set_ylabel("mean slowdown: latency / critical path (log scale)")
    axes.set_title(
        "How far from optimal are online policies? Between best plan and lower bound lies the optimum.\n"
        f"Compass authors' workload, {jobs} jobs, 5 GPUs, cold start; "
        f"{'one draw of arrivals' if draws == 1 else f'mean over {draws} draws (bands: best to worst)'}.",
        loc="left",
        fontsize=11.5,
    )
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return made


def _spread(ends: Mapping[str, float], low: float, high: float) -> dict[str, float]:
    """Return a height for every name, near the end of its line and clear of its neighbours (logarithmic axis)."""
    gap = _APART * log(high / low)
    names = sorted(ends, key=lambda name: ends[name])
    heights: list[float] = []
    for name in names:
        wanted = log(ends[name])
        heights.append(max(wanted, heights[-1] + gap) if heights else wanted)
    overshoot = max(0.0, heights[-1] - (log(high) - gap / 2))
    for index in range(len(heights) - 1, -1, -1):
        most = heights[index + 1] - gap if index + 1 < len(heights) else heights[index] - overshoot
        heights[index] = min(heights[index], most)
    return {name: exp(height) for name, height in zip(names, heights, strict=True)}
