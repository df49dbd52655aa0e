"""The picture of the study: a panel per number of GPUs, a bar per contender, the lower bound as a line."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

PLAN, BOUND, STATIC = "plan", "lower bound", "static assignment"

_STYLE = {
    # contender: colour (P. Tol's bright set), words
    STATIC: ("#CCBB44", "static assignment"),
    "compass": ("#EE6677", "Compass"),
    "srpt": ("#228833", "srpt"),
    "receding": ("#4477AA", "receding horizon"),
    PLAN: ("#000000", "best plan\n(knows the future)"),
}


def figure(values: Mapping[str, Mapping[int, float]], window: str) -> Figure:
    """Return the chart of mean slowdowns by contender and number of GPUs."""
    counts = sorted(values[PLAN])
    made = Figure(figsize=(12, 4.2), layout="constrained")
    FigureCanvasAgg(made)
    panels = made.subplots(1, len(counts), sharex=True, sharey=True, squeeze=False)[0]
    for axes, gpus in zip(panels, counts, strict=True):
        reached = [values[contender][gpus] for contender in _STYLE]
        bound = values[BOUND][gpus]
        axes.barh(range(len(_STYLE)), reached, color=[colour for colour, _ in _STYLE.values()], height=0.65)
        for place, value in enumerate(reached):
            axes.annotate(f"{value:.3g}", (value, place), (4, 0), textcoords="offset points", va="center")
        axes.axvline(bound, color="#777777", linestyle="--", linewidth=1.5)
        axes.set_title(f"{gpus} GPUs: lower bound {bound:.3g} (dashed)", loc="left", fontsize=11)
        axes.set_xscale("log")
        axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlim(1, 1.6 * max(max(values[contender].values()) for contender in _STYLE))
    axes.set_yticks(range(len(_STYLE)), [words for _, words in _STYLE.values()])
    axes.invert_yaxis()
    marks = [mark for mark in (1, 2, 5, 10, 20, 50, 100, 200, 500) if mark <= axes.get_xlim()[1]]
    axes.set_xticks(marks, [f"{mark:g}" for mark in marks])
    axes.minorticks_off()
    made.suptitle(f"GenTD26, {window}: mean slowdown (log scale)", x=0.01, ha="left", fontsize=12)
    return made
