"""Curves over two axes and their picture: jobs within each slowdown, the gap over time, lines over a number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from truenorth.models.objective import gap
from truenorth.planner.show.canvas import (
    AS_DATA,
    COLOURS,
    COLUMN_INCHES,
    IN_A_COLUMN,
    INK,
    LINE,
    SOFT,
    blank,
    svg,
)
from truenorth.planner.show.styles import LINE_COLOURS, SHAPES, Style, styles

Point = tuple[float, float]
_MOST_STEPS = 400
"""Steps of a distribution that a picture can show."""
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


@dataclass(frozen=True, slots=True)
class Curve:
    """A line of a figure.

    Parameters
    ----------
    points
        Where it goes, from left to right.
    colour
        Its colour, or empty for that of the text.
    stroke
        ``solid``, ``dashed`` or ``dotted``: what lies below it can be seen between its dashes.
    steps
        Whether it keeps its height up to the next point, in place of a straight line there.
    joined
        Whether points are joined by lines: not where nothing lies between them.
    words
        What the last points say, one each; they are marked by dots.
    """

    name: str
    points: Sequence[Point]
    colour: str = ""
    bold: bool = False
    stroke: str = "solid"
    steps: bool = False
    joined: bool = True
    words: Sequence[str] = ()

    @property
    def marker(self) -> str:
        """The shape of its points."""
        known = self.colour in ("", *LINE_COLOURS)
        return Style(self.colour, self.stroke).marker if known else "o"

    @property
    def shape(self) -> str:
        """The shape of its points as a character."""
        return SHAPES[self.marker]


@dataclass(frozen=True, slots=True)
class Curves:
    """A figure: curves over two axes.

    Parameters
    ----------
    x_logarithmic, y_logarithmic
        Values on such an axis lie above 0.
    y_percent
        Whether heights are shares.
    x_from
        Where the horizontal axis begins; None: at the first point.
    """

    title: str
    x_label: str
    y_label: str
    curves: Sequence[Curve]
    x_logarithmic: bool = False
    y_logarithmic: bool = False
    y_percent: bool = False
    x_from: float | None = None


def slowdown_ecdf(slowdowns: Mapping[str, Sequence[float]], clairvoyant: Iterable[str]) -> Curves:
    """Return the share of jobs at or below each slowdown, a curve per timeline; who knows the future is drawn bold.

    Those whose jobs fare alike share a curve, which bears all their names.
    """
    known = set(clairvoyant)
    alike: dict[tuple[float, ...], list[str]] = {}
    for name, values in slowdowns.items():
        alike.setdefault(tuple(sorted(values)), []).append(name)
    curves: list[Curve] = []
    own = styles(name for name in slowdowns if name not in known)
    for values, names in alike.items():
        bold = not known.isdisjoint(names)
        who = " = ".join(f"{name} (knows the future)" if name in known else name for name in names)
        label = f"{who}: mean {np.mean(values):.3g}"
        colour, stroke = ("", "solid") if bold else own[names[0]]
        curves.append(Curve(label, _distribution(values), colour, bold, stroke, steps=True))
    return Curves(
        "Slowdown of the jobs: further to the upper left is better",
        "slowdown: latency / critical path (logarithmic)",
        "share of jobs at or below",
        curves,
        x_logarithmic=True,
        y_percent=True,
    )


def _distribution(ordered: Sequence[float]) -> list[Point]:
    """Return the steps of a distribution function, thinned to what can be seen; its end stays."""
    count = len(ordered)
    ranks = np.unique(np.linspace(0, count - 1, min(count, _MOST_STEPS)).round().astype(int)).tolist()
    return [(ordered[0], 0.0)] + [(ordered[rank], (rank + 1) / count) for rank in ranks]


def gap_over_time(incumbents: Sequence[tuple[float, float | None, float | None]], runtime_s: float) -> Curves | None:
    """Return (value - bound) / value of the best plan and bound so far over the seconds of the search.

    None if there were never both.
    """
    shares = [
        (seconds, None if value is None or bound is None else gap(Fraction(value), Fraction(bound)))
        for seconds, value, bound in incumbents
    ]
    gaps = [(seconds, share) for seconds, share in shares if share is not None]
    if not gaps:
        return None
    last = gaps[-1][1]
    words = [f"{last:.2%} at the end of {runtime_s:.1f} s"]
    points = [*gaps, (max(runtime_s, gaps[-1][0]), last)]
    curve = Curve("gap of the best plan and bound so far", points, COLOURS[0], bold=True, steps=True, words=words)
    return Curves(
        "Optimality gap over time: how far the best plan may still lie from the best possible one",
        "time of search in s",
        "(plan - bound) / plan",
        [curve],
        y_percent=True,
        x_from=0.0,
    )


def lines(
    title: str,
    x_label: str,
    y_label: str,
    series: Mapping[str, Sequence[Point]],
    limit: tuple[str, float] | None = None,
    logarithmic: bool = False,
) -> Curves:
    """Return a line with dots per series; `limit` is the name and height of a line to compare with.

    Heights begin at 0, except on a logarithmic axis, for which they must lie above 0.
    """
    curves: list[Curve] = []
    if limit is not None:
        across = [across for points in series.values() for across, _ in points] or [0.0, 1.0]
        curves.append(Curve(limit[0], [(min(across), limit[1]), (max(across), limit[1])], bold=True))
    own = styles(series)
    for name, points in series.items():
        if not points:
            continue
        ordered, (colour, stroke) = sorted(points), own[name]
        words = [f"{name}: {value:.5g} at {across:g}" for across, value in ordered]
        curves.append(Curve(name, ordered, colour, stroke=stroke, words=words))
    return Curves(title, x_label, y_label, curves, y_logarithmic=logarithmic)


def dots(
    title: str,
    x_label: str,
    y_label: str,
    series: Mapping[str, Sequence[tuple[float, float, str]]],
    limit: tuple[str, float],
    logarithmic: bool = False,
) -> Curves:
    """Return dots with their words per series, beside a line to compare with; the parameters are those of `lines`."""
    farthest = max(at for points in series.values() for at, _, _ in points)
    curves = [Curve(limit[0], [(0.0, limit[1]), (farthest, limit[1])], bold=True)]
    own = styles(series)
    for name, points in series.items():
        placed, words = [(at, height) for at, height, _ in points], [f"{name}: {said}" for _, _, said in points]
        curves.append(Curve(name, placed, own[name].colour, stroke=own[name].stroke, joined=False, words=words))
    return Curves(title, x_label, y_label, curves, y_logarithmic=logarithmic)


@AS_DATA
def draw(shown: Curves) -> Figure:
    """Return curves as a picture, with title and legend; black on white."""
    figure, axes = blank(*_SIZE)
    draw_on(axes, shown)
    axes.set_title(shown.title, loc="left", fontsize=13)
    figure.legend(loc="outside lower left", ncols=2, frameon=False, fontsize=9)
    return figure


def draw_on(axes: Axes, shown: Curves) -> None:
    """Draw curves on axes of somebody's own; black on white."""
    _draw(axes, shown, ink="black", soft="black", line="#DDDDDD")


@AS_DATA
@IN_A_COLUMN
def draw_in_a_column(shown: Curves) -> Figure:
    """Return curves as a figure for a column of a paper, which has the title in its own text."""
    figure, axes = blank(COLUMN_INCHES, 2.3 + 0.16 * len(shown.curves))
    draw_on(axes, shown)
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


_DASHES: Mapping[str, Any] = {"solid": "solid", "dashed": (0, (4, 3)), "dotted": (0, (1, 2))}


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
    axes.spines[:].set_visible(False)


def _draw_curve(axes: Axes, curve: Curve, index: int, ink: str) -> None:
    """Draw a line, and dots where its last points have something to say."""
    xs, ys = zip(*curve.points, strict=True)
    axes.plot(
        xs,
        ys,
        color=curve.colour or ink,
        drawstyle="steps-post" if curve.steps else "default",
        linewidth=3 if curve.bold else 1.8,
        linestyle=_DASHES[curve.stroke] if curve.joined else "none",
        label=curve.name,
        # A bold line lies below the others, so that it frames those that run on it.
        zorder=2 if curve.bold else 3,
        clip_on=False,
    )
    if curve.words:
        dots, size = slice(-len(curve.words), None), 6 if curve.joined else 8
        style: dict[str, Any] = {"color": curve.colour or ink, "marker": curve.marker, "markersize": size}
        if not curve.joined:  # hollow, so that none hides another at the same place
            style |= {"markerfacecolor": "none", "markeredgewidth": 1.8}
        axes.plot(xs[dots], ys[dots], linestyle="none", gid=_gid(index), clip_on=False, **style)


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
