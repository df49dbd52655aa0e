from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from truenorth.planner.show.canvas import INK, png
from truenorth.planner.show.curves import Curve, Curves, draw, draw_svg, gap_over_time, lines, slowdown_ecdf

SVG = "{http://www.w3.org/2000/svg}"


def inside(svg: str, tag: str) -> list[str]:
    """Return the texts of all elements of a kind."""
    return [element.text or "" for element in ElementTree.fromstring(svg).iter(SVG + tag)]  # noqa: S314 (our own)


def texts(svg: str) -> list[str]:
    return inside(svg, "text")


def test_ecdf_climbs_by_a_share_per_job() -> None:
    shown = slowdown_ecdf({"plan": [4, 1, 2], "jit": [4, 4, 4]}, ["plan"])
    plan, jit = shown.curves
    assert plan.points == [(1, 0), (1, 1 / 3), (2, 2 / 3), (4, 1)]
    assert jit.points[-1] == (4, 1)
    assert (plan.bold, plan.colour, jit.bold) == (True, "", False)


def test_a_long_distribution_is_thinned_but_keeps_its_ends() -> None:
    values = np.random.default_rng(0).exponential(size=10_000) + 1
    (curve,) = slowdown_ecdf({"a": values.tolist()}, []).curves
    assert len(curve.points) == 401
    assert curve.points[0] == (values.min(), 0)
    assert curve.points[-1] == (values.max(), 1)
    ordered = np.sort(values)
    assert all(share == np.searchsorted(ordered, x, "right") / 10_000 for x, share in curve.points[1:])
    assert len(draw_svg(slowdown_ecdf({"a": values.tolist()}, []))) < 10_000


def test_gap_over_time_begins_once_both_are_known() -> None:
    figure = gap_over_time([(1.0, 4.0, None), (2.0, 4.0, 2.0), (6.0, 4.0, 3.0)], 10.0)
    assert figure is not None
    (curve,) = figure.curves
    assert curve.points == [(2.0, 0.5), (6.0, 0.25), (10.0, 0.25)]
    assert (curve.words, figure.x_from) == (["25.00% at the end of 10.0 s"], 0.0)
    assert gap_over_time([(1.0, None, 2.0)], 10.0) is None
    assert {"0%", "50%"} <= set(texts(draw_svg(figure)))


def test_lines_start_at_nought_and_say_their_points() -> None:
    shown = lines("t", "servers", "p99", {"jit": [(4, 1.0), (2, 3.0)]}, ("at most", 2.0))
    limit, jit = shown.curves
    assert (limit.points, limit.bold) == ([(2, 2.0), (4, 2.0)], True)
    assert (jit.points, jit.words) == ([(2, 3.0), (4, 1.0)], ["jit: 3 at 2", "jit: 1 at 4"])
    assert inside(draw_svg(shown), "title") == ["jit: 3 at 2", "jit: 1 at 4"]


def test_nobody_has_half_a_server() -> None:
    shown = lines("t", "servers", "y", {"jit": [(4, 0.25), (5, 0.75)]})
    assert [text for text in texts(draw_svg(shown)) if re.fullmatch(r"[45].*", text)] == ["4", "5"]


@pytest.mark.parametrize(
    ("low", "high", "marks"),
    [(1, 1000, ["1", "10", "100", "1000"]), (1, 4, ["1", "1.5", "2", "3"]), (0.02, 30, ["0.1", "1", "10"])],
)
def test_a_logarithmic_axis_has_a_few_round_marks(low: float, high: float, marks: list[str]) -> None:
    shown = Curves("t", "", "", [Curve("c", [(low, 1.0), (high, 2.0)])], x_logarithmic=True)
    axes = draw(shown).axes[0]
    axes.figure.draw_without_rendering()  # type: ignore[union-attr]
    seen = [label.get_text() for label in axes.get_xticklabels()]
    left, right = axes.get_xlim()
    assert [mark for mark in seen if left <= float(mark) <= right][: len(marks)] == marks


def test_one_value_still_makes_a_figure() -> None:
    svg = draw_svg(slowdown_ecdf({"a": [1.0, 1.0]}, []))
    assert len(texts(svg)) > 4
    assert png(draw(lines("t", "x", "y", {"a": [(3, 0.0)]}))).startswith(b"\x89PNG")


def test_a_figure_in_a_page_takes_the_page_s_colours_and_leaves_the_page_alone() -> None:
    svg = draw_svg(lines("t", "$x^2_$ <b>", INK, {"jit": [(4, 1.0), (5, 3.0)]}, ("at most", 2.0)))
    assert {"$x^2_$ <b>", INK} <= set(texts(svg))  # names are names, whatever they look like
    for unwanted in ("<style", "<b>", "font-family", "<!DOCTYPE", "clip-path", "#000000"):
        assert unwanted not in svg
    colours = set(re.findall(r"(?:fill|stroke): ([^;\"]+)", svg))
    assert colours == {
        "none", "var(--ink, #1c1c1e)", "var(--soft, #5c5c62)", "var(--line, #dcdce0)", "#009988"
    }  # fmt: skip


def test_figures_are_the_same_every_time() -> None:
    shown = lines("t", "x", "y", {"jit": [(4, 1.0), (5, 3.0)]})
    assert draw_svg(shown) == draw_svg(shown)
