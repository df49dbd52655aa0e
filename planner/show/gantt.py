"""A Gantt chart as a picture: rows of bars on one axis of time, drawn so that nothing short is lost."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from truenorth.models.cluster import MICROSECONDS_PER_SECOND
from truenorth.models.instance import Instance
from truenorth.models.timeline import Timeline
from truenorth.planner.show.bars import Bar, BarLane, BarRows, rows_of, rows_of_both
from truenorth.planner.show.canvas import AS_DATA, PNG_DPI, lay_out
from truenorth.planner.show.colours import PLAIN, colour_of, fade, ink_on

_ROW_INCHES, _AROUND_INCHES = 1.15, 1.9
_GAP, _WIDE = 1.5, 5.0
"""A bar that is wider than the second of these leaves the first free at its right; in pixels."""
_CHARACTER, _LETTERS = 7.0, 13.0
"""Pixels per character of a text on a bar, and its height."""
_MOST_NAMES, _LINE = 24, 190
"""Models named in a legend, and characters in one of its lines."""


def gantt(instance: Instance, timeline: Timeline, title: str) -> Figure:
    """Return a Gantt chart: per GPU, runs on the compute engine, loads on the copy engine, and the models in memory."""
    return draw(rows_of(instance, timeline), title, "Memory: models held, up to the line that is the GPU's memory.")


def predicted_over_measured(instance: Instance, predicted: Timeline, measured: Timeline, title: str) -> Figure:
    """Return a chart with four lanes per GPU: runs and loads, predicted and measured, on one axis of time."""
    return draw(rows_of_both(instance, predicted, measured), title, "")


@AS_DATA
def draw(chart: BarRows, title: str, note: str) -> Figure:
    """Return the picture of a chart."""
    figure = Figure(figsize=(16, _AROUND_INCHES + _ROW_INCHES * len(chart.rows)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.set_ylim(0, len(chart.rows))
    axes.set_xlim(0, chart.until_us / MICROSECONDS_PER_SECOND)
    axes.set_xlabel("time in seconds")
    axes.tick_params(axis="y", length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    figure.suptitle(title, x=0.005, ha="left", fontsize=13)
    remark = f"{chart.left_out} Numbers are jobs in release order. {note}".strip()
    axes.set_title(remark, loc="left", fontsize=9, color="#555555")
    _name_models(figure, chart)
    lanes = _place_lanes(axes, chart)
    # How wide a bar must be to be seen depends on the room that names and legend leave.
    lay_out(figure)
    extent, pixels = axes.get_window_extent(), PNG_DPI / figure.dpi
    pixel_us, pixel_row = chart.until_us / (extent.width * pixels), len(chart.rows) / (extent.height * pixels)
    for lane, floor, height in lanes:
        _draw_lane(axes, lane, (floor, height), pixel_us, pixel_row)
    return figure


def _place_lanes(axes: Axes, chart: BarRows) -> list[tuple[BarLane, float, float]]:
    """Name the lanes on the vertical axis, shade every other row, and return every lane's floor and height."""
    placed, names = [], []
    for index, row in enumerate(chart.rows):
        below = len(chart.rows) - 1 - index
        axes.axhspan(below, below + 1, color="#F4F4F4" if index % 2 else "white", zorder=0)
        spans = [(gone / MICROSECONDS_PER_SECOND, (back - gone) / MICROSECONDS_PER_SECOND) for gone, back in row.away]
        axes.broken_barh(spans, (below, 1), facecolor="none", edgecolor="#BBBBBB", hatch="///", linewidth=0, zorder=0.5)
        # A tenth of a row's height is for what stands between its lanes.
        unit, top = 0.9 / sum(lane.height for lane in row.lanes), below + 0.97
        for lane in row.lanes:
            height = lane.height * unit
            top -= height
            placed.append((lane, top, height))
            names.append(f"{row.name}  {lane.name}" if lane is row.lanes[0] else lane.name)
            top -= 0.07 / len(row.lanes)
    axes.set_yticks([floor + height / 2 for _, floor, height in placed], names, fontsize=8)
    return placed


def _draw_lane(axes: Axes, lane: BarLane, span: tuple[float, float], pixel_us: float, pixel_row: float) -> None:
    """Draw the bars of a lane, each at least a pixel wide, with texts where they fit and lines at the lane's levels.

    Parameters
    ----------
    span
        Floor and height, in rows.
    pixel_us, pixel_row
        What a pixel is worth.
    """
    (floor, height), second = span, MICROSECONDS_PER_SECOND
    boxes, colours = [], []
    for bar in lane.bars:
        colour = fade(colour_of(bar.model), bar.strength)
        low, high = floor + bar.low * height, floor + bar.high * height
        left, right = bar.start_us / second, _right_us(bar, pixel_us) / second
        boxes.append([(left, low), (right, low), (right, high), (left, high)])
        colours.append(colour)
        fits = bar.end_us - bar.start_us > _CHARACTER * (len(bar.text) + 1) * pixel_us
        if bar.text and fits and high - low >= _LETTERS * pixel_row:
            middle = (left + right) / 2, (low + high) / 2
            axes.text(*middle, bar.text, ha="center", va="center", fontsize=7, color=ink_on(colour), clip_on=True)
    drawn = PolyCollection(boxes, facecolors=colours, linewidths=0)
    if lane.hatched:
        drawn.set(hatch="/////", edgecolor="#00000099")
    axes.add_collection(drawn, autolim=False)
    if lane.levels:
        heights = [floor + level * height for level in lane.levels]
        axes.hlines(heights, 0, axes.get_xlim()[1], color="black", linewidth=0.6)


def _right_us(bar: Bar, pixel_us: float) -> float:
    """Return where the drawing of a bar ends: a little earlier where it is wide, later where it could not be seen."""
    width = (bar.end_us - bar.start_us) / pixel_us
    return bar.start_us + pixel_us * (width - _GAP if width > _WIDE else max(width, 1.0))


def _name_models(figure: Figure, chart: BarRows) -> None:
    """Say below the chart which colour is which model."""
    named: Sequence[tuple[int, str]] = list(chart.models.items())
    patches = [Patch(color=colour_of(model), label=name) for model, name in named[:_MOST_NAMES]]
    if len(named) > len(patches):
        patches.append(Patch(color="none", label=f"and {len(named) - len(patches)} models more, colours in turn"))
    patches.append(Patch(color=PLAIN, label="no model"))
    if any(row.away for row in chart.rows):
        patches.append(Patch(facecolor="white", edgecolor="#BBBBBB", hatch="///", linewidth=0, label="away"))
    patches.append(Patch(facecolor="white", edgecolor="black", hatch="/////", label="load"))
    columns = max(1, _LINE // (6 + max(len(str(patch.get_label())) for patch in patches)))
    figure.legend(
        handles=patches, loc="outside lower left", ncols=min(len(patches), columns), frameon=False, fontsize=9
    )
