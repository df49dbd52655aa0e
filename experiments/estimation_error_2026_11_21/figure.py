"""The picture: regret against the error of estimates, a line per contender, a panel per rate and side."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import geometric_mean

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from experiments.estimation_error_2026_11_21.answer import Values
from experiments.estimation_error_2026_11_21.cells import LEVELS, NONE, PLAN_OF_TRUTH, TOLD, TRUE, Level

_STYLE = {
    # contender: colour (P. Tol's bright set), line, marker
    "plan for p50": ("#000000", "solid", "o"),
    "plan for p90": ("#000000", "dashed", "s"),
    "plan for samples": ("#000000", "dotted", "^"),
    "plan, replanned": ("#AA3377", "solid", "D"),
    "receding horizon": ("#4477AA", "solid", "o"),
    "srpt": ("#228833", "solid", "o"),
    "compass": ("#EE6677", "solid", "o"),
}
_TITLES = {TRUE: "run times stray around the estimates", TOLD: "estimates stray around the run times"}
_TICKS = (1, 1.5, 2, 3, 5, 10, 20, 50)


def regret(values: Values, rate: float, level: Level, contender: str) -> float | None:
    """Return the mean slowdown over that of the plan that knows the truth, as geometric mean over the draws."""
    cells = {cell for cell, _ in values if cell.jobs_per_s == rate and cell.level == level}
    ratios = [values[cell, contender] / values[cell, PLAN_OF_TRUTH] for cell in cells]
    return geometric_mean(ratios) if ratios else None


def draw(values: Values, rates: Sequence[float]) -> Figure:
    """Return the chart."""
    made = Figure(figsize=(11, 7), layout="constrained")
    FigureCanvasAgg(made)
    panels = made.subplots(2, len(rates), sharex=True, sharey=True, squeeze=False)
    for row, side in zip(panels, (TRUE, TOLD), strict=True):
        for axes, rate in zip(row, rates, strict=True):
            _panel(axes, values, rate, side)
            axes.set_title(f"{rate:g} jobs/s, {_TITLES[side]}", fontsize=9.5, loc="left")
        row[0].set_ylabel("mean slowdown / that of a\nplan that knows the truth", fontsize=9)
    for axes in panels[1]:
        axes.set_xlabel("standard deviation of the error's logarithm", fontsize=9, loc="left")
    made.suptitle(
        "What do wrong estimates of run times cost? 1 is a plan that knows run times and arrivals.", x=0.01, ha="left"
    )
    made.legend(
        *panels[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=7, fontsize=9, frameon=False
    )
    return made


def _panel(axes: Axes, values: Values, rate: float, side: str) -> None:
    levels = [level for level in LEVELS if level.side in (NONE, side)]
    for contender, (colour, line, marker) in _STYLE.items():
        found = [regret(values, rate, level, contender) for level in levels]
        known = [(place, value) for place, value in enumerate(found) if value is not None]
        spread = [(place, value) for place, value in known if levels[place].kind == "lognormal"]
        for part, dashes in ((spread, line), (known[len(spread) :], "none")):
            places, heights = [place for place, _ in part], [value for _, value in part]
            name = contender if part is spread else None
            axes.plot(places, heights, linestyle=dashes, marker=marker, color=colour, label=name, markersize=4)
    axes.set_yscale("log")
    axes.set_yticks(_TICKS, [f"{tick:g}" for tick in _TICKS])
    axes.minorticks_off()
    axes.set_xticks(range(len(levels)), [_words(level) for level in levels], fontsize=8)
    axes.grid(axis="y", color="#DDDDDD", linewidth=0.6)
    for edge in ("top", "right"):
        axes.spines[edge].set_visible(False)


def _words(level: Level) -> str:
    return "none" if level.side == NONE else "pub-\nlished" if level.kind == "published" else f"{level.size:g}"
