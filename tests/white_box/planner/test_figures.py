from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from tests import gangs
from tests.instances import chain, cluster, instance, task
from truenorth.models import Job, Placement, Residency, Timeline
from truenorth.models.cluster import MICROSECONDS_PER_SECOND
from truenorth.planner.answers.intervals import NO_INTERVAL, Interval
from truenorth.planner.answers.replications import Replicated
from truenorth.planner.show.canvas import COLOURS, PLAIN, PNG_DPI, contrast, fade, ink_on, lay_out
from truenorth.planner.show.curves import draw as draw_curves
from truenorth.planner.show.curves import slowdown_ecdf
from truenorth.planner.show.gantt import (
    MOST_OF_RUNS,
    Bar,
    BarLane,
    BarRows,
    GPUBars,
    draw,
    gantt,
    rows_of,
    rows_of_both,
)
from truenorth.planner.show.replicated import draw_intervals
from truenorth.planner.show.timelines import trace_events

# One job on two GPUs: a needs m (4 bytes, loaded in [0, 4)) and runs in [4, 7) on GPU 0; b runs in [10, 12) on GPU 1.
WINDOW = instance([Job(chain(task("a", 3, ["m"]), task("b", 2, after={"a": 2})), 0)], {"m": 4}, on=cluster(2))
TIMELINE = Timeline.build(2, [Placement(0, 0, 4, 7), Placement(1, 1, 10, 12)], [Residency(0, 0, 0, 4)])


def axes_of(figure: Figure) -> Axes:
    (axes,) = figure.axes
    return axes


def spans_us(figure: Figure) -> list[tuple[float, float]]:
    """Return from when to when what is drawn as a bar lasts, in microseconds."""
    shapes = [shape for shape in axes_of(figure).collections if isinstance(shape, PolyCollection)]
    boxes = [path.get_extents() for shape in shapes for path in shape.get_paths()]
    return sorted((box.x0 * MICROSECONDS_PER_SECOND, box.x1 * MICROSECONDS_PER_SECOND) for box in boxes)


def pixel_us(figure: Figure) -> float:
    """Return how long a pixel of the picture lasts."""
    figure.draw_without_rendering()
    axes = axes_of(figure)
    pixels = axes.get_window_extent().width / figure.dpi * PNG_DPI
    return axes.get_xlim()[1] * MICROSECONDS_PER_SECOND / pixels


def test_a_chart_has_a_row_per_gpu_with_runs_loads_and_memory() -> None:
    chart = rows_of(WINDOW, TIMELINE)
    assert (chart.until_us, chart.models, chart.left_out) == (12, {0: "m"}, "")
    assert [row.name for row in chart.rows] == ["s0/g0 (A)", "s1/g0 (A)"]
    compute, copy, memory = chart.rows[0].lanes
    assert [lane.name for lane in (compute, copy, memory)] == ["compute", "copy", "memory 10 B"]
    assert compute.bars == (Bar(4, 7, 0, "0"),)
    assert copy.bars == (Bar(0, 4, 0),)
    # 4 of 10 bytes: pale while they load, then held to the end of the picture.
    assert [(bar.start_us, bar.end_us, bar.low, bar.high) for bar in memory.bars] == [(0, 4, 0, 0.4), (4, 12, 0, 0.4)]
    assert memory.bars[0].strength < memory.bars[1].strength
    assert chart.rows[1].lanes[0].bars == (Bar(10, 12, None, "0"),)


def test_models_stand_upon_each_other_and_move_down_when_one_leaves() -> None:
    window = instance([Job(chain(task("a", 3, ["m", "n"])), 0)], {"m": 4, "n": 2}, on=cluster(1))
    stays = [Residency(0, 0, 0, 4, end_us=9), Residency(1, 0, 4, 6)]
    chart = rows_of(window, Timeline.build(1, [Placement(0, 0, 6, 12)], stays))
    assert sorted((b.start_us, b.end_us, b.model, b.low, b.high) for b in chart.rows[0].lanes[2].bars) == [
        (0, 4, 0, 0, 0.4),
        (4, 6, 1, 0.4, 0.6),
        (4, 9, 0, 0, 0.4),
        (6, 9, 1, 0.4, 0.6),
        (9, 12, 1, 0, 0.2),
    ]


def test_idle_gpus_take_no_room_and_are_counted() -> None:
    window = instance([Job(chain(task("a", 3, ["m"])), 0)], {"m": 4}, on=cluster(10))
    made = Timeline.build(1, [Placement(0, 7, 0, 3)], [Residency(0, gpu, 0, 0, initial=True) for gpu in (2, 7)])
    chart = rows_of(window, made)
    assert [row.name for row in chart.rows] == ["s7/g0 (A)"]
    assert chart.left_out == "1 of 10 GPUs; not drawn: 9 that neither run nor load anything."
    figure = gantt(window, made, "title")
    assert axes_of(figure).get_title(loc="left").startswith(chart.left_out)
    assert figure.get_figheight() < 3.2


def test_the_busiest_are_drawn_and_the_others_counted() -> None:
    gpus = MOST_OF_RUNS + 3
    window = instance([Job(chain(task("a", 99)), 0)] * gpus, on=cluster(gpus + 1))
    # GPU g runs for g + 1; the last one runs nothing.
    chart = rows_of(window, Timeline.build(gpus, [Placement(g, g, 0, g + 1) for g in range(gpus)], []))
    assert [row.name for row in chart.rows] == [f"s{g}/g0 (A)" for g in range(3, gpus)]
    assert chart.left_out == "48 of 52 GPUs; not drawn: 3 that are less busy and 1 that neither run nor load anything."


def test_without_models_a_run_on_several_gpus_is_one_box_over_their_rows() -> None:
    """Job 0 on three of four GPUs, then job 1 on all of them; job 2 beside job 0: three texts, and gaps around it."""
    on = gangs.servers(1, 4, "any")
    made = gangs.window(gangs.job(3, 6), gangs.job(4, 2), gangs.job(1, 4), on=on)
    place = made.places.number
    placed = [Placement(0, place[0, 1, 2], 0, 6), Placement(1, place[0, 1, 2, 3], 6, 8), Placement(2, 3, 0, 4)]
    chart = rows_of(made, Timeline.build(3, placed, []))
    assert [len(row.lanes) for row in chart.rows] == [1, 1, 1, 1]
    bars = [[(bar.text, bar.low < 0) for bar in row.lanes[0].bars] for row in chart.rows]
    assert bars == [
        [("0", True), ("1", True)],
        [("", True), ("", True)],
        [("", False), ("", True)],
        [("2", False), ("", False)],
    ]
    top, *_ = axes_of(gantt(made, Timeline.build(3, placed, []), "")).collections[-4:]
    heights = np.concatenate([np.asarray(path.vertices) for path in top.get_paths()])[:, 1]
    assert heights.min() == pytest.approx(2.97)  # where the lane of the row below begins


def test_gantt_draws_every_run_load_and_band_in_its_lane() -> None:
    figure = gantt(WINDOW, TIMELINE, "title")
    gap_us = 2 * pixel_us(figure)
    drawn = spans_us(figure)
    for start_us, end_us in ((4, 7), (10, 12), (0, 4), (4, 12)):  # two runs, the load, the memory
        assert any(start == pytest.approx(start_us) and end_us - gap_us <= end <= end_us for start, end in drawn)
    labels = [label.get_text() for label in axes_of(figure).get_yticklabels()]
    assert labels == ["s0/g0 (A)  compute", "copy", "memory 10 B", "s1/g0 (A)  compute", "copy", "memory 10 B"]


def test_short_tasks_stay_visible_and_neighbours_apart() -> None:
    # 1,200 runs of 20 ms in 288 s, a fifth of a pixel each; then two long ones that touch.
    short = [Bar(240_000 * index, 240_000 * index + 20_000, 0) for index in range(1_200)]
    long = [Bar(0, 100_000_000, 0), Bar(100_000_000, 288_000_000, 0)]
    lanes = (BarLane("compute", 0.5, tuple(short)), BarLane("copy", 0.5, tuple(long)))
    figure = draw(BarRows((GPUBars("g", lanes),), 288_000_000, {}, ""), "title", "")
    one_us, drawn = pixel_us(figure), spans_us(figure)
    assert len(drawn) == 1_202
    assert min(end - start for start, end in drawn) >= 0.99 * one_us
    first, second = (span for span in drawn if span[1] - span[0] > 1_000_000)
    assert 1 <= (second[0] - first[1]) / one_us <= 2
    assert all(
        shape.get_linewidth() == [0] for shape in axes_of(figure).collections if isinstance(shape, PolyCollection)
    )


def test_texts_on_bars_can_be_read() -> None:
    bars = tuple(Bar(10 * index, 10 * index + 10, index, str(index)) for index in range(len(COLOURS)))
    held = tuple(Bar(10 * i, 10 * i + 10, i, str(i), strength=0.85) for i in range(len(COLOURS)))
    lanes = (BarLane("compute", 0.5, bars), BarLane("memory", 0.5, held))
    texts = axes_of(draw(BarRows((GPUBars("g", lanes),), 10 * len(COLOURS), {}, ""), "title", "")).texts
    assert len(texts) == 2 * len(COLOURS)
    grounds = [fade(colour, strength) for strength in (1.0, 0.85) for colour in COLOURS]
    assert min(contrast(text.get_color(), ground) for text, ground in zip(texts, grounds, strict=True)) >= 4.5  # type: ignore[arg-type]
    assert contrast(ink_on(PLAIN), PLAIN) >= 4.5


def test_a_crowded_chart_bears_the_texts_of_its_widest_bars_alone() -> None:
    def row(width_us: int) -> GPUBars:
        bars = tuple(Bar(1000 * at, 1000 * at + width_us, 0, "1") for at in range(100))
        return GPUBars("gpu", (BarLane("compute", 1.0, bars),))

    # Of 16 rows of 100 bars with room for texts, every other row has wider ones: 800 of them, of which 600 are named.
    rows = tuple(row(900 if at % 2 else 1000) for at in range(16))
    axes = axes_of(draw(BarRows(rows, 100_000, {0: "m"}, ""), "", ""))
    heights = {16 - int(text.get_position()[1]) for text in axes.texts}
    assert len(axes.texts) == 600
    assert all(height % 2 for height in heights)  # the first row, and every other one


def test_predicted_and_measured_share_their_rows() -> None:
    measured = Timeline.build(2, [Placement(0, 0, 5, 9)], [Residency(0, 0, 0, 5)])  # b failed: it has no place
    chart = rows_of_both(WINDOW, TIMELINE, measured)
    runs, ran, loads, loaded = (lane.bars for lane in chart.rows[0].lanes)
    assert (runs, ran, loads, loaded) == ((Bar(4, 7, 0, "0"),), (Bar(5, 9, 0, "0"),), (Bar(0, 4, 0),), (Bar(0, 5, 0),))
    assert [lane.name for lane in chart.rows[1].lanes][:2] == ["compute, predicted", "compute, measured"]


def test_legend_and_names_stay_outside_of_the_axes() -> None:
    names = {index: f"a model with a name of some length, number {index}, $x^2_$" for index in range(40)}
    figure = draw(
        BarRows((GPUBars("g", (BarLane("compute", 1, (Bar(0, 9, 0, "0"),)),)),), 9, names, ""), "a $x^2_$ b", ""
    )
    figure.draw_without_rendering()
    (legend,) = figure.legends
    assert legend.get_window_extent().y1 <= axes_of(figure).get_window_extent().y0
    assert legend.get_window_extent().x1 <= figure.bbox.x1
    texts = [text.get_text() for text in legend.get_texts()]
    assert texts[0] == names[0]
    assert texts[-3:] == ["and 16 models more, colours in turn", "no model", "load"]


def test_ecdf_ends_at_one_and_says_who_knows_the_future() -> None:
    figure = draw_curves(slowdown_ecdf({"plan": [2.4], "jit": [2.5]}, ["plan"]))
    ends = [(np.asarray(line.get_xdata())[0], np.asarray(line.get_ydata())[-1]) for line in axes_of(figure).get_lines()]
    assert ends == [(2.4, 1.0), (2.5, 1.0)]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "plan (knows the future): mean 2.4", "jit: mean 2.5"
    ]  # fmt: skip


def test_coinciding_curves_do_not_hide_each_other() -> None:
    # Alike: one curve of two names. Alike in part: each has a style of its own, and the bold one lies below.
    shown = slowdown_ecdf({"plan": [1, 2, 3], "a": [1, 2, 4], "b": [1, 2, 4], "c": [1, 2, 5]}, ["plan"])
    assert [curve.name for curve in shown.curves] == [
        "plan (knows the future): mean 2", "a = b: mean 2.33", "c: mean 2.67"
    ]  # fmt: skip
    assert len({(curve.colour, curve.stroke) for curve in shown.curves}) == 3
    lines = axes_of(draw_curves(shown)).get_lines()
    assert lines[0].get_zorder() < lines[1].get_zorder()
    assert lines[0].get_linewidth() > lines[1].get_linewidth()
    assert len({to_hex(line.get_color()) for line in lines}) == 3


def test_trace_has_a_process_per_gpu_and_exact_times() -> None:
    events = trace_events(WINDOW, TIMELINE, "plan", first_process=5)
    spans = {(e["name"], e["pid"], e["ts"], e["dur"]) for e in events if e["ph"] == "X"}
    assert spans == {("a (job 0)", 5, 4, 3), ("b (job 0)", 6, 10, 2), ("load m", 5, 0, 4)}
    assert [(e["ts"], e["args"]) for e in events if e["ph"] == "C"] == [(0, {"weights in GB": 4e-9})]


def test_long_names_and_labels_stay_inside_a_column() -> None:
    policies = ("plan", "receding:lookahead=5s,moves=2000", "compass:prefetch=0,period=100ms,adjust=off", "jit")
    ratios = {"ratio_to_best": Interval(1.5, 1.0, 2.0), "ratio_to_bound": NO_INTERVAL}
    rows = [SimpleNamespace(policy=name, clairvoyant="ahead" in name, **ratios) for name in policies]
    made = cast("Replicated", SimpleNamespace(rows=rows, scenario=SimpleNamespace(objective="weighted_tardiness")))
    figure = draw_intervals(made)
    lay_out(figure)
    (axes,) = figure.axes
    for text in (axes.xaxis.label, *axes.get_yticklabels()):
        extent = text.get_window_extent()
        assert extent.x0 >= 0, text
        assert extent.x1 <= figure.bbox.width, text
    assert axes.get_window_extent().width > 0.4 * figure.bbox.width
