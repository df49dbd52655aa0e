from __future__ import annotations

import html
import json
import re

import pytest

from tests.instances import chain, cluster, instance, task
from tests.white_box.planner.show.report.test_page import Elements
from truenorth.models import Job, Placement, Timeline
from truenorth.planner.answers.compare import Comparison
from truenorth.planner.answers.shown import Shown
from truenorth.planner.show.notebook import html as shown_html
from truenorth.planner.show.report import Chart

NAME = '"></iframe><script>hacked()</script>'
WINDOW = instance([Job(chain(task("a", 3)), 0)], on=cluster(2))
CHART = Chart((Shown(NAME, False, WINDOW, Timeline.build(1, [Placement(0, 1, 0, 3)], [])),))


def test_a_chart_is_a_page_in_a_frame_that_may_do_nothing_but_run_scripts() -> None:
    frame = CHART._repr_html_()
    match = re.fullmatch(
        r'<iframe sandbox="allow-scripts" style="width:100%;height:364px;border:0" srcdoc="([^"]*)"></iframe>', frame
    )
    assert match is not None
    page = Elements(html.unescape(match[1]))
    assert page.tags.count("iframe") == 0
    assert len(page.scripts) == 2  # the data and the chart's own
    assert json.loads(page.scripts[0])["timelines"][0]["name"] == NAME


def test_what_is_too_large_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("truenorth.planner.show.report._MOST_BYTES", 10)
    assert CHART._repr_html_().startswith("<p>Too many tasks")


def test_results_show_themselves(comparison: Comparison) -> None:
    assert [entry.name for entry in comparison.shown] == ["plan", "jit"]
    plan, ran = shown_html(comparison.plan), shown_html(comparison.simulations[0])
    assert "<th>mean slowdown</th>\n      <td>1.4</td>" in plan
    assert "<td>OPTIMAL</td>" in plan
    assert "<td>jit</td>" in ran
    assert plan.count("<iframe") == ran.count("<iframe") == 1
    assert "<tr><th>mean_slowdown</th><td>1.4</td></tr>" in str(
        comparison.plan.metrics and comparison.plan.metrics._repr_html_()
    )
