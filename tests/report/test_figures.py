from __future__ import annotations

import pytest

from planner.show.report.axes import Axis, horizontal
from planner.show.report.figures import gap_over_time, lines, slowdown_ecdf


def test_an_axis_maps_its_ends_to_its_pixels() -> None:
    axis = Axis(1, 100, 0, 200, logarithmic=True)
    assert [axis.at(value) for value in (1, 10, 100, 0.5, 1e9)] == [0, 100, 200, 0, 200]
    assert Axis(0, 4, 100, 20).at(1) == 80  # upwards


@pytest.mark.parametrize(
    ("axis", "labels"),
    [
        (Axis(0, 10, 0, 1), ["0", "2", "4", "6", "8", "10"]),
        (Axis(0.3, 1.7, 0, 1), ["0.5", "1", "1.5"]),
        (Axis(0, 0.0006, 0, 1), ["0", "0.0001", "0.0002", "0.0003", "0.0004", "0.0005", "0.0006"]),
        (Axis(1, 1000, 0, 1, True), ["1", "10", "100", "1000"]),
        (Axis(1, 4, 0, 1, True), ["1", "1.5", "2", "3"]),
        (Axis(1.02, 1.04, 0, 1, True), ["1.02", "1.04"]),
    ],
)
def test_ticks_are_round_values_within_the_range(axis: Axis, labels: list[str]) -> None:
    assert [label for _, label in axis.ticks()] == labels


def test_one_value_still_makes_an_axis() -> None:
    assert (horizontal([5.0]).low, horizontal([5.0]).high) == (5.0, 10.0)
    assert (horizontal([0.0, 0.0]).low, horizontal([0.0, 0.0]).high) == (0.0, 1.0)


def test_ecdf_climbs_by_a_share_per_job() -> None:
    # Pixels: slowdowns from 1 to 4 over [64, 628], half-way 2: 346; shares over [256, 10], 1/3: 174, 2/3: 92.
    figure = slowdown_ecdf({"plan": [1, 2, 4], "jit": [4, 4, 4]}, ["plan"])
    plan, jit = figure.curves
    assert plan.path == "M64 256H64V174H346V92H628V10"
    assert jit.path == "M628 256H628V10"  # points that share a pixel: the last one counts
    assert (plan.bold, plan.colour, jit.bold) == (True, "", False)


def test_gap_over_time_begins_once_both_are_known() -> None:
    # Gaps 1/2 at 2 s and 1/4 at 6 s of 10 s: 0 to 10 s over [64, 628], 0 to 1/2 over [256, 10].
    figure = gap_over_time([(1.0, 4.0, None), (2.0, 4.0, 2.0), (6.0, 4.0, 3.0)], 10.0)
    assert figure is not None
    (curve,) = figure.curves
    assert curve.path == "M176.8 10H176.8V10H402.4V133H628"
    assert curve.points == [(628, 133, "25.00% at the end of 10.0 s")]
    assert gap_over_time([(1.0, None, 2.0)], 10.0) is None


def test_lines_start_at_nought_and_say_their_points() -> None:
    figure = lines("t", "servers", "p99", {"jit": [(4, 1.0), (2, 3.0)]}, ("at most", 2.0))
    limit, jit = figure.curves
    assert limit.path == "M64 92H628"  # 2 of 0 to 3 over [256, 10]
    assert jit.path == "M64 10L628 174"
    assert [words for _, _, words in jit.points] == ["jit: 3 at 2", "jit: 1 at 4"]
