"""The picture of the study: mean slowdown over the number of servers, a panel per load and window."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

RATE, SERVERS = "workload.poisson.rate_per_s", "cluster.servers"
RATES = (2.0, 3.0, 4.0)
_STYLE = {
    # contender: colour (P. Tol's bright set), width, words
    "hash": ("#AA3377", 1.6, "Hash"),
    "jit": ("#EE8866", 1.4, "jit"),
    "compass": ("#EE6677", 2.6, "Compass"),
    "srpt": ("#228833", 1.6, "srpt"),
    "plan": ("#000000", 2.4, "best plan (knows the future)"),
    "lower bound": ("#777777", 1.6, "lower bound (proved)"),
}
_TARGET = 2.0


def figure(windows: Mapping[str, pd.DataFrame]) -> Figure:
    """Return the chart; its rows are the windows, and a thin line marks mean slowdown 2."""
    made = Figure(figsize=(12, 7), layout="constrained")
    FigureCanvasAgg(made)
    panels = made.subplots(len(windows), len(RATES), sharex=True, sharey=True, squeeze=False)
    for row, (words, frame) in zip(panels, windows.items(), strict=True):
        for axes, rate in zip(row, RATES, strict=True):
            for policy, (colour, width, name) in _STYLE.items():
                line = frame[(frame[RATE] == rate) & (frame["policy"] == policy)].sort_values(SERVERS)
                dashes = "--" if policy == "lower bound" else "-"
                if len(line):
                    axes.plot(
                        line[SERVERS], line["value"], dashes, color=colour, lw=width, marker="o", ms=3, label=name
                    )
            axes.axhline(_TARGET, color="#999999", linewidth=0.7)
            axes.set_title(f"{rate:g} jobs/s, {words}", fontsize=10, loc="left")
            axes.set_yscale("log")
            axes.set_ylim(0.95, 30)
            axes.set_yticks([1, 1.5, 2, 3, 5, 10, 20], ["1", "1.5", "2", "3", "5", "10", "20"])
            axes.minorticks_off()
            axes.grid(axis="y", color="#EEEEEE", linewidth=0.6)
            axes.spines[["top", "right"]].set_visible(False)
        row[0].set_ylabel("mean slowdown (log scale)")
        row[-1].legend(fontsize=8, frameon=False)
    for axes in panels[-1]:
        axes.set_xlabel("servers of one GPU each")
        axes.set_xticks(range(2, 21, 2))
    made.suptitle("The same mean slowdown with fewer servers: read across at 2", fontsize=12, x=0.01, ha="left")
    return made
