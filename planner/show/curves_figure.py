"""Curves as a picture, and as an element of a page."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from planner.show.canvas import INK, LINE, SOFT, svg
from planner.show.curves import Curve, Curves
from planner.show.paper import COLUMN_INCHES, IN_A_COLUMN
from planner.show.picture import AS_DATA

_SIZE, _PAGE_SIZE = (10, 6), (8.9, 4.2)
_MARKS = (
    (1.0,),
    (1.0, 3.0),
    (1.0, 2.0, 5.0),
    (1.0, 1.5, 2.0, 3.0, 5.0, 7.0),
    (1.0, 1.1, 1.2, 1.3, 1.5, 1.7, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0),
)
"""Marks of a decade on a logarithmic axis, ever more of them."""
_FEWEST, _MOST = 3, 12


@AS_DATA
def draw(shown: Curves) -> Figure:
    """Return curves as a picture, with title and legend; black on white."""
    figure = Figure(figsize=_SIZE, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    _draw(axes, shown, ink="black", soft="black", line="#DDDDDD")
    axes.set_title(shown.title, loc="left", fontsize=13)
    figure.legend(loc="outside lower left", ncols=2, frameon=False, fontsize=9)
    return figure


@AS_DATA
@IN_A_COLUMN
def draw_in_a_column(shown: Curves) -> Figure:
    """Return curves as a figure for a column of a paper, which has the title in its own text."""
    figure = Figure(figsize=(COLUMN_INCHES, 2.3 + 0.16 * len(shown.curves)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    _draw(axes, shown, ink="black", soft="black", line="#DDDDDD")
    for curve in axes.lines:
        curve.set_linewidth(curve.get_linewidth() / 2)
    figure.legend(loc="outside lower left", frameon=False, fontsize=7)
    return figure


@AS_DATA
@rc_context({"font.size": 12})
def draw_svg(shown: Curves) -> str:
    """Return curves as an element of a page, which has title and legend in its own text."""
    figure = Figure(figsize=_PAGE_SIZE, layout="constrained")
    axes = figure.add_subplot()
    _draw(axes, shown, INK, SOFT, LINE)
    figure.patch.set_visible(False)
    axes.patch.set_visible(False)
    return svg(figure, shown.title, {_gid(index): curve.words for index, curve in enumerate(shown.curves)})


def _gid(index: int) -> str:
    return f"dots-{index}"


def _draw(axes: Axes, shown: Curves, ink: str, soft: str, line: str) -> None:
    for index, curve in enumerate(shown.curves):
        _draw_curve(axes, curve, index, ink)
    if shown.x_logarithmic:
        _mark_logarithmic(axes, "x")
    if shown.y_logarithmic:
        _mark_logarithmic(axes, "y")
    else:
        axes.set_ylim(bottom=0)
    if shown.x_from is not None:
        axes.set_xlim(left=shown.x_from)
    if shown.y_percent:
        axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g}%"))
    if not shown.x_logarithmic and _are_whole(x for curve in shown.curves for x, _ in curve.points):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel(shown.x_label, color=soft)
    axes.set_ylabel(shown.y_label, color=soft)
    axes.tick_params(length=0, labelcolor=soft)
    axes.grid(color=line, linewidth=0.8, clip_on=False)
    for side in axes.spines.values():
        side.set_visible(False)


def _draw_curve(axes: Axes, curve: Curve, index: int, ink: str) -> None:
    """Draw a line, and dots where its last points have something to say."""
    xs, ys = zip(*curve.points, strict=True)
    axes.plot(
        xs,
        ys,
        color=curve.colour or ink,
        drawstyle="steps-post" if curve.steps else "default",
        linewidth=3 if curve.bold else 1.8,
        linestyle="none" if not curve.joined else (0, (4, 3)) if curve.dashed else "solid",
        label=curve.name,
        # A bold line lies below the others, so that it frames those that run on it.
        zorder=2 if curve.bold else 3,
        clip_on=False,
    )
    if curve.words:
        dots = slice(-len(curve.words), None)
        axes.plot(xs[dots], ys[dots], "o", color=curve.colour or ink, markersize=6, gid=_gid(index), clip_on=False)


def _mark_logarithmic(axes: Axes, which: str) -> None:
    """Make an axis logarithmic, with the coarsest round marks of which enough lie in the range."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    (axes.set_xscale if which == "x" else axes.set_yscale)("log")
    low, high = sorted(axis.get_view_interval())
    for marks in _MARKS:
        locator = LogLocator(subs=marks, numticks=_MOST)
        inside = [value for value in locator.tick_values(low, high) if low <= value <= high]
        if _FEWEST <= len(inside) <= _MOST:
            break
    axis.set_major_locator(locator)
    if len(inside) < 2:
        axis.set_major_locator(MaxNLocator(5))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _are_whole(values: Iterable[float]) -> bool:
    return bool(np.all(np.mod(list(values), 1) == 0))
