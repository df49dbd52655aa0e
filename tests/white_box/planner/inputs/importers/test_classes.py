"""Classes of run time: rounded up, never down; what is slowest stays, and what that costs is said."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import truenorth as tn
from tests.command import DONE, NOT_ACHIEVED, app, run
from tests.night import by_day
from tests.planner.inputs.importers.small import table, written
from truenorth.models.scenario import InputError, load_scenario
from truenorth.models.slo import quantile_rank
from truenorth.planner.inputs.importers import workload
from truenorth.planner.inputs.importers.catalogued import Catalogued
from truenorth.planner.inputs.importers.workload import SLOWEST, round_up
from truenorth.planner.show.inputs import summary_rows
from truenorth.planner.show.summaries import bound_summary

CATALOGUE = """\
kinds: {G: {memory: 80 GB, load_bandwidth: 20 GB/s, count: 4}}
models: {m: {weights: 10 GB}}
"""


def rounded(runtimes: list[int], most: int) -> list[int]:
    return [int(value) for value in round_up(np.array(runtimes)[:, None], most)[:, 0]]


def test_classes_are_of_alike_run_times_represented_by_their_largest() -> None:
    # The slowest, 30, stays. Of 1 2 3 10 11, ratios from the largest are 11, 5.5, 3.7, 1.1 and 1: the finest grid with
    # two cells has a ratio of just above sqrt(11) = 3.3, which puts 10 and 11 into one cell, 1, 2 and 3 into the other.
    assert rounded([30, 1, 10, 2, 11, 3], 2) == [30, 3, 11, 3, 11, 3]


def test_as_many_classes_as_run_times_change_nothing() -> None:
    assert rounded([7, 1, 5, 3, 3], 3) == [7, 1, 5, 3, 3]


def test_all_figures_of_a_class_are_its_largest() -> None:
    # Requests of 10 and 11 on one kind take 50 and 40 on the other; the slowest keep theirs.
    figures = np.array([[10, 50], [11, 40], [90, 8]])
    assert round_up(figures, 1).tolist() == [[11, 50], [11, 50], [90, 8]]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 10**12), min_size=1, max_size=150), st.integers(1, 8))
def test_nothing_is_less_than_it_was_and_the_slowest_stay(runtimes: list[int], most: int) -> None:
    before, after = np.array(runtimes), np.array(rounded(runtimes, most))
    place = quantile_rank(SLOWEST, len(before))
    slow = before >= np.sort(before)[place]
    assert (after >= before).all()
    assert (after[slow] == before[slow]).all()
    assert np.sort(after)[place] == np.sort(before)[place]
    assert len(np.unique(after[~slow])) <= most
    assert (np.diff(after[np.argsort(before, kind="stable")]) >= 0).all()


def test_run_times_stay_as_they_are_until_there_are_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = written(tmp_path, table(*(f"0,a,{runtime}" for runtime in (1, 2, 3, 10, 11, 30))))
    assert len(tn.import_trace("table", [log]).workload.workflows) == 6
    monkeypatch.setattr(workload, "MOST_EXACT", 5)
    monkeypatch.setattr(workload, "DEFAULT_CLASSES", 2)
    made = tn.import_trace("table", [log])
    assert [workflow.name for workflow in made.workload.workflows] == ["a 3 s", "a 11 s", "a 30 s"]
    said = "run times rounded up to 2 classes per model, the slowest per cent as they are (6 distinct before)"
    assert made.workload.mapping == said
    assert len(tn.import_trace("table", [log], runtime_classes="exact").workload.workflows) == 6
    monkeypatch.setattr(workload, "MOST_WORKFLOWS", 4)
    with pytest.raises(InputError, match="6 workflows; allowed are 4: ask for fewer runtime classes"):
        tn.import_trace("table", [log], runtime_classes="exact")


def test_what_rounding_costs_is_said(tmp_path: Path) -> None:
    log = written(tmp_path, table(*(f"0,a,{runtime}" for runtime in (1, 2, 3, 10, 11, 30))))
    made = tn.import_trace("table", [log], runtime_classes="2")
    # 1 becomes 3; 57 s of work become 61. Of six, p50 is the third, p90 to p100 the last.
    figures = made.summary.as_dict()
    assert figures["work_s"] == 61
    assert figures["rounding"]["rounded_up"] == 2
    assert figures["rounding"]["work_added"] == pytest.approx(4 / 57)
    assert figures["rounding"]["runtime_s"] == {"p50": (3, 3), "p90": (30, 30), "p95": (30, 30)} | {
        "p99": (30, 30),
        "p100": (30, 30),
    }
    assert summary_rows(made)["rounded up"].startswith("by up to 200 %, work +7.02%; p50 3 -> 3, p90 30 -> 30")
    scenario = load_scenario(made.save(tmp_path / "made.yaml")[0])
    assert "# Run times are rounded up, by up to 200 %" in (tmp_path / "made.yaml").read_text()
    said = "Run times are rounded up by up to 200 %: bounds and refutations are about the rounded log"
    assert bound_summary(tn.bound(scenario, time_limit=1))["about"] == said
    exact = tn.import_trace("table", [log], runtime_classes="exact")
    assert "rounded up" not in summary_rows(exact)
    assert exact.scenario.document.rounded_up is None
    assert exact.summary.as_dict()["rounding"] is None


def ask(folder: Path, runtimes: list[float], level: str, classes_asked: str = "auto") -> int:
    """Import requests every 300 s with a catalogue, ask for servers, and return the exit code."""
    log = written(folder, table(*(f"{300 * row},m,{took}" for row, took in enumerate(runtimes))))
    known, made = written(folder, CATALOGUE, "catalogue.yaml"), folder / "made.yaml"
    catalogued = tn.import_trace("table", [log], catalogue=Catalogued.load(known), runtime_classes=classes_asked)
    catalogued.save(made)
    return run(app, ["servers", str(made), "--slo", level, "--policies", "jit", "--json"])


@pytest.mark.parametrize("asked", by_day(["auto", "4"], 1))
def test_a_few_slow_requests_refute_no_level_that_the_others_keep(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], asked: str
) -> None:
    # 97 of 100 take 10 s and what a load takes, each alone: p95 is 10.97 s, on one server.
    runtimes = [10 + row / 100 for row in range(97)] + [200.1, 200.2, 200.3]
    assert ask(tmp_path, runtimes, "p95 latency <= 30 s", asked) == DONE
    found = json.loads(capsys.readouterr().out)
    assert found["minimum"]["servers"] == 1
    # Four classes of 10 to 10.96 s are at most 4 % wide.
    assert (found["rounded_up"] or 0) <= 0.04


def test_slow_requests_are_not_averaged_away(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # The slowest ten of 100 take 60 s, so that p95 is above 50 s on any number of servers.
    runtimes = [10 + row / 100 for row in range(90)] + [60 + row / 100 for row in range(10)]
    assert ask(tmp_path, runtimes, "p95 latency <= 50 s") == NOT_ACHIEVED
    assert json.loads(capsys.readouterr().out)["minimum"]["servers"] is None
