"""The picture of the study: mean slowdown over the number of GPUs, a line per contender."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

PLAN, BOUND, STATIC = "plan", "lower bound", "static assignment"

_STYLE = {
    # contender: colour (P. Tol's bright set), width, words
    STATIC: ("#CCBB44", 1.6, "static assignment"),
    "compass": ("#EE6677", 2.6, "Compass"),
    "srpt": ("#228833", 1.6, "srpt"),
    "receding": ("#4477AA", 2.0, "receding horizon"),
    PLAN: ("#000000", 2.6, "best plan (knows the future)"),
    BOUND: ("#777777", 1.8, "lower bound (proved)"),
}


def figure(values: Mapping[str, Mapping[int, float]], window: str) -> Figure:
    """Return the chart of mean slowdowns by contender and number of GPUs."""
    made = Figure(figsize=(9.5, 6), layout="constrained")
    FigureCanvasAgg(made)
    axes = made.add_subplot()
    for contender, (colour, width, words) in _STYLE.items():
        line = dict(sorted(values[contender].items()))
        dashes = "--" if contender == BOUND else "-"
        axes.plot(list(line), list(line.values()), dashes, color=colour, lw=width, marker="o", ms=5, label=words)
        for gpus, value in line.items():
            axes.annotate(f"{value:.3g}", (gpus, value), (7, 0), textcoords="offset points", va="center", fontsize=8.5)
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    marks = [mark for mark in (1, 1.5, 2, 3, 5, 10, 20, 50, 100, 200, 500) if low <= mark <= high]
    axes.set_yticks(marks, [f"{mark:g}" for mark in marks])
    axes.minorticks_off()
    axes.set_xticks(sorted(values[PLAN]))
    axes.margins(x=0.12)
    axes.grid(axis="y", color="#EEEEEE", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel("GPUs of 24 GB (three models each)")
    axes.set_ylabel("mean slowdown: latency / run time (log scale)")
    axes.set_title(f"GenTD26, {window}: between best plan and lower bound lies the optimum", loc="left", fontsize=11.5)
    axes.legend(frameon=False, loc="upper right")
    return made
