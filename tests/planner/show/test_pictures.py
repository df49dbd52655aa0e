"""Pictures of grids and searches show the figures that they are made of, on axes of one's own, too."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

import truenorth as tn
from tests.truenorth.test_face import SMALL
from truenorth.planner.answers.whatif import Counts

LABELS: dict[str, Any] = {"objective": "mean_latency", "unit": "s", "error": None}
POLICIES = {"jit": 0.0, "hash": 2.0}
ROWS: tuple[dict[str, Any], ...] = tuple(
    {"cell": cell, "cluster.servers": servers, "policy": policy, "value": servers + POLICIES[policy], **LABELS}
    for cell, (servers, policy) in enumerate((servers, policy) for servers in (1, 2) for policy in POLICIES)
)
FOUND = tn.Sweep("two", "simulate", ROWS, ("cluster.servers", "policy"), {}, Counts(4, 0, 4, 0), False, None)
"""The value is the number of servers, and 2 more under `hash`: 1, 3, 2, 4."""


def lines_of(figure: Figure) -> dict[str, list[tuple[float, float]]]:
    """Return the points of each named line of a figure."""
    lines: list[Any] = list(figure.axes[0].lines)
    return {str(one.get_label()): list(map(tuple, one.get_xydata())) for one in lines if one.get_label()[0] != "_"}


def test_a_curve_is_a_line_for_whatever_else_varies_or_the_best_of_it() -> None:
    assert lines_of(tn.curve(FOUND)) == {"jit": [(1, 1), (2, 2)], "hash": [(1, 3), (2, 4)]}
    best = tn.curve(FOUND, "servers", best=True)
    assert best.axes[0].get_title(loc="left") == "best mean latency in s over servers"
    assert np.array(next(iter(best.axes[0].lines)).get_path().vertices).tolist() == [[1, 1], [2, 2]]


def test_axes_are_named_by_column_path_or_the_last_part_of_either() -> None:
    rows = tuple(row | {"workload.poisson.rate_per_s": 2.0 * row["cluster.servers"]} for row in ROWS)
    found = replace(FOUND, rows=rows, columns=("workload.poisson.rate_per_s", "policy"))
    for name in ("workload.poisson.rate_per_s", "workload.poisson.rate", "rate_per_s", "rate"):
        figure = tn.curve(found, name)
        assert lines_of(figure)["jit"] == [(2, 1), (4, 2)]
        assert figure.axes[0].get_xlabel() == "rate per s"
    assert [text.get_text() for text in tn.heat_map(found).axes[0].get_xticklabels()] == ["2 /s", "4 /s"]


def test_a_heat_map_has_a_field_for_each_pair() -> None:
    axes: Any = tn.heat_map(FOUND).axes[0]
    assert axes.images[0].get_array().tolist() == [[1, 2], [3, 4]]
    assert [text.get_text() for text in axes.texts] == ["1", "2", "3", "4"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("servers", "policy")
    assert axes.get_title(loc="left") == "mean latency in s"  # nothing is averaged
    turned: Any = tn.heat_map(FOUND, y="cluster.servers").axes[0]
    assert turned.images[0].get_array().tolist() == [[1, 3], [2, 4]]


def in_replications() -> tn.Sweep:
    """Return the same grid in three replications, whose values are 1 less, the same and 1 more."""
    rows = tuple(row | {"workload.poisson.seed": 2 + k, "value": row["value"] + k} for row in ROWS for k in (-1, 0, 1))
    columns = ("cluster.servers", "policy", "workload.poisson.seed")
    return replace(FOUND, rows=rows, columns=columns, replicated="workload.poisson.seed")


def test_curves_of_replications_have_bands_and_say_so() -> None:
    axes: Any = tn.curve(in_replications()).axes[0]
    assert lines_of(tn.curve(in_replications())) == {"jit": [(1, 1), (2, 2)], "hash": [(1, 3), (2, 4)]}
    assert axes.get_title(loc="left").endswith(", mean of 3 replications with its 95 % interval")
    heights = axes.collections[0].get_paths()[0].vertices[:, 1]
    assert heights.min() < 0.5 < 2.5 < heights.max()  # around 1 and 2
    assert axes.get_ylim()[1] > axes.collections[1].get_paths()[0].vertices[:, 1].max()
    assert len(axes.collections) == 2
    assert list(tn.curve(FOUND).axes[0].collections) == []


def test_a_heat_map_has_a_scale_and_says_what_is_averaged() -> None:
    figure = tn.heat_map(in_replications(), "servers", "policy")
    assert [axes.get_ylabel() for axes in figure.axes] == ["policy", "mean latency in s"]
    assert figure.axes[0].get_title(loc="left") == "mean latency in s, mean over 3 replications"
    rows = tuple({**row, "x": x} for row in ROWS for x in (1, 2))
    wider = replace(FOUND, rows=rows, columns=("cluster.servers", "x", "policy"))
    title = tn.heat_map(wider, "servers", "x").axes[0].get_title(loc="left")
    assert title == "mean latency in s, mean over 2 values of policy"


def test_parallel_coordinates_have_a_line_for_each_row() -> None:
    lines: list[Any] = list(tn.parallel(FOUND).axes[0].lines)
    drawn: list[Any] = [line.get_ydata().tolist() for line in lines if len(line.get_xdata()) == 3]
    assert np.array(drawn).ravel().tolist() == pytest.approx([0, 0, 0, 0, 1, 2 / 3, 1, 0, 1 / 3, 1, 1, 1])


def test_which_axis_matters_is_its_share_of_the_variance() -> None:
    # Variances of the means: 1 by policy (1.5 and 3.5), 0.25 by servers (2 and 3); of all rows 1.25.
    assert FOUND.importance().to_dict() == pytest.approx({"policy": 0.8, "cluster.servers": 0.2, "together": 0})
    bars: Any = tn.importance(FOUND).axes[0].patches
    assert [bar.get_width() for bar in bars] == pytest.approx([0, 0.2, 0.8])
    # Servers times policy: with means of 2 and 4 by servers, 1.5 and 4.5 by policy, what both do together is left.
    product = tuple(row | {"value": row["cluster.servers"] * (1 + POLICIES[str(row["policy"])])} for row in ROWS)
    shares = replace(FOUND, rows=product).importance()
    assert shares.to_dict() == pytest.approx({"policy": 2.25 / 3.5, "cluster.servers": 1 / 3.5, "together": 0.25 / 3.5})


def test_the_history_of_a_plan_ends_with_its_value_and_bound() -> None:
    plan = tn.plan(SMALL, time_limit="5 s", workers=1)
    drawn = lines_of(tn.history(plan))
    assert drawn["best plan: 7e-06"][-1][1] == drawn["lower bound: 7e-06"][-1][1] == 7e-6


def test_pictures_are_drawn_on_axes_of_ones_own_and_saved(tmp_path: Path) -> None:
    figure = Figure()
    first, second = figure.subplots(1, 2)
    assert tn.curve(FOUND, ax=first) is tn.importance(FOUND, ax=second) is figure
    heads = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF-"}
    for ending, head in heads.items():
        [path] = tn.save(figure, tmp_path / f"both.{ending}")
        assert path.read_bytes().startswith(head)
    with pytest.raises(tn.QuestionError, match=r"ends in '\.gif'; allowed are \.png, \.svg, \.pdf"):
        tn.save(figure, tmp_path / "both.gif")
    [table] = tn.save(FOUND, tmp_path / "found.csv")
    assert table.read_text().splitlines()[1].startswith('0,1,"jit",1,')


WRONG: list[tuple[Any, str]] = [
    (lambda: tn.curve(FOUND, "policy"), "over: 'policy' is no axis that varies; allowed are cluster.servers"),
    (
        lambda: tn.curve(FOUND, of="values"),
        "of: 'values' is no column of numbers; allowed are cell, cluster.servers, value",
    ),
    (lambda: tn.heat_map(replace(FOUND, rows=ROWS[:2])), "found: a heat map has two axes; allowed is a grid in which"),
    (lambda: tn.curve(replace(FOUND, rows=())), "of: '' is no column of numbers; allowed are those of cells without"),
]


@pytest.mark.parametrize(("draw", "message"), WRONG, ids=[message for _, message in WRONG])
def test_what_cannot_be_drawn_is_said_in_a_line(draw: Any, message: str) -> None:
    with pytest.raises(tn.QuestionError) as refused:
        draw()
    assert str(refused.value).startswith(message)
