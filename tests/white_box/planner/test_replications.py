"""Replications: intervals by hand, what differs between them, and that finished ones are found again."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import truenorth as tn
from tests.by_hand import TEXT
from truenorth.models.errors import QuestionError
from truenorth.models.scenario import Scenario, load_scenario
from truenorth.planner.answers.intervals import interval_of
from truenorth.planner.answers.whatif.grid import windows_of

POISSON = "  poisson: {rate: 200000 /s, jobs: 6, seed: 4}"


def drawn(folder: Path, seed: int = 4) -> Scenario:
    """Return the scenario of two GPUs with random arrivals."""
    path = folder / f"seed_{seed}.yaml"
    jobs = TEXT[TEXT.index("  jobs:") : TEXT.index("objective")]
    path.write_text(TEXT.replace(jobs, POISSON.replace("seed: 4", f"seed: {seed}") + "\n"))
    return load_scenario(path)


def test_an_interval_spans_what_two_values_leave_open_and_nothing_where_all_agree() -> None:
    # Of two values the quantile is so far out (t = 12.7) that the ends are the least and greatest mean of resamples.
    two, same = interval_of([1.0, 3.0]), interval_of([2.0] * 5)
    assert (two.mean, two.low, two.high) == (2.0, 1.0, 3.0)
    assert (same.mean, same.low, same.high) == (2.0, 2.0, 2.0)


def test_intervals_hold_the_mean_as_often_as_they_say() -> None:
    # 200 draws of 8 standard normal values: 95 % of 200 is 190, one standard deviation of that count is 3.1.
    draws = np.random.default_rng(5).normal(size=(200, 8)).tolist()
    held = sum((i.low or 0) <= 0 <= (i.high or 0) for i in map(interval_of, draws))
    assert 180 <= held <= 198


def test_windows_follow_one_another(tmp_path: Path, scenario: Scenario) -> None:
    assert windows_of(drawn(tmp_path), 3).values == (4, 5, 6)
    trace = tmp_path / "trace.yaml"
    (tmp_path / "t.csv").write_text("time_us,workflow\n3,w\n")
    jobs = TEXT[TEXT.index("  jobs:") : TEXT.index("objective")]
    trace.write_text(TEXT.replace(jobs, "  trace: {file: t.csv, window: [1 us, 5 us]}\n"))
    assert windows_of(load_scenario(trace), 3).values == ((1, 5), (5, 9), (9, 13))
    with pytest.raises(QuestionError, match="need poisson arrivals"):
        windows_of(scenario, 2)


def test_means_are_those_of_the_seeds_and_what_is_finished_is_found_again(tmp_path: Path) -> None:
    asked = {"time_limit": 0.3, "workers": 1, "folder": tmp_path / "kept", "regret": ["jit"]}
    made = tn.replicate(drawn(tmp_path), 2, ["jit", "hash"], **asked)  # type: ignore[arg-type]
    rows = {row.policy: row for row in made.rows}
    values = {p: [float(tn.simulate(drawn(tmp_path, s), p).value) for s in (4, 5)] for p in ("jit", "hash")}
    for policy, (one, two) in values.items():
        assert rows[policy].objective.mean == pytest.approx((one + two) / 2)
        assert rows[policy].objective.low == pytest.approx(min(one, two))
    best, other = sorted(values, key=lambda policy: sum(values[policy]))
    assert made.against == best
    differences = [b - a for a, b in zip(values[best], values[other], strict=True)]
    assert rows[other].difference.mean == pytest.approx(sum(differences) / 2)
    assert rows[other].better_in == sum(difference < 0 for difference in differences)
    assert rows["jit"].figures["lost_to_residency"] is not None
    assert rows["plan"].ratio_to_best.mean == 1.0
    again = tn.replicate(drawn(tmp_path), 2, ["jit", "hash"], **asked)  # type: ignore[arg-type]
    assert (again.sweep.counts.known, again.sweep.counts.finished, again.rows) == (2, 0, made.rows)
    written = {path.name for path in tn.save(made, tmp_path / "kept")}
    assert written == {f"intervals.{ending}" for ending in ("csv", "json", "md", "tex", "pdf", "svg", "png")}
    assert json.loads((tmp_path / "kept" / "intervals.json").read_text())["against"] == best
    assert "\\toprule" in (tmp_path / "kept" / "intervals.tex").read_text()


def test_any_contender_can_be_taken_apart_and_framed(scenario: Scenario) -> None:
    made = tn.compare(
        scenario, ["jit", "tests.planner.own:Last", "compass-released"], regret=["tests.planner.own:Last"]
    )
    (apart,) = made.regrets
    assert apart.policy == "tests.planner.own:Last"
    # All on the last GPU: load [0, 4), a [4, 7), then a and b in turn, [7, 9), [9, 12), [12, 14) or the b's last.
    assert apart.steps[0].value > Fraction(7, 5)
    assert set(tn.tasks(made, "tests.planner.own:Last")["gpu"]) == {"s1/g0"}
    assert tn.residencies(made, "tests.planner.own:Last")["gpu"].tolist() == ["s1/g0"]
    with pytest.raises(ValueError, match="no timeline of fifo; allowed are plan, "):
        tn.tasks(made, "fifo")
    with pytest.raises(QuestionError, match="ran on an instance of its own; allowed are jit"):
        tn.compare(scenario, ["jit", "compass-released"], regret=["compass-released"])
