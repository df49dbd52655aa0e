"""The picture of the study: a bar per change and load, from 1 to the ratio of mean slowdowns."""

from __future__ import annotations

import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

_COLOURS = {2.0: "#4477AA", 3.0: "#EE8866", 4.0: "#AA3377"}
_HEIGHT = 0.26


def figure(rows: pd.DataFrame) -> Figure:
    """Return the chart; whiskers go from the least to the greatest ratio of a draw."""
    made = Figure(figsize=(10, 7), layout="constrained")
    FigureCanvasAgg(made)
    axes = made.add_subplot()
    changes = [change for change in rows["change"].unique() if change != "none"]
    for position, (rate, colour) in enumerate(_COLOURS.items()):
        of_rate = rows[rows["jobs_per_s"] == rate].set_index("change").loc[changes]
        heights = [place + (position - 1) * _HEIGHT for place in range(len(changes))]
        axes.barh(heights, of_rate["ratio"] - 1, _HEIGHT, 1.0, color=colour, label=f"{rate:g} jobs/s")
        axes.hlines(heights, of_rate["least_ratio"], of_rate["greatest_ratio"], color="#333333", linewidth=1)
    axes.set_xscale("log")
    marks = [mark for mark in (0.25, 0.5, 0.8, 1, 1.25, 2, 4, 8, 16, 32) if mark >= rows["least_ratio"].min() / 1.5]
    marks = [mark for mark in marks if mark <= rows["greatest_ratio"].max() * 1.5]
    axes.set_xticks(marks, [f"{mark:g}" for mark in marks])
    axes.minorticks_off()
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.set_yticks(range(len(changes)), changes)
    axes.invert_yaxis()
    axes.grid(axis="x", color="#EEEEEE", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    axes.set_xlabel("mean slowdown of Compass, as a multiple of that without the change (log scale)")
    axes.set_title(
        "What is each of Compass's means worth? Right of 1: worse.\n"
        "Authors' workload, 5 GPUs of 14 GB, 1,000 jobs; bars: mean of 3 draws, lines: least to greatest.",
        loc="left",
        fontsize=11,
    )
    return made
