"""Plans that are far from their bound are marked wherever a ratio to them stands, and ratios to the bound beside."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import truenorth as tn
from tests.white_box.planner.test_replications import drawn
from truenorth.models import Instance, Objective
from truenorth.models.objective import timeline_value
from truenorth.models.scenario import Scenario
from truenorth.planner.answers.compare import Comparison
from truenorth.planner.answers.intervals import Interval
from truenorth.planner.answers.replications import Replicated
from truenorth.planner.answers.shown import is_converged, warn_of
from truenorth.planner.answers.whatif.result import Counts, Sweep
from truenorth.planner.answers.whatif.verbs import Row
from truenorth.planner.show.notebook import html
from truenorth.planner.show.regret import regret_table
from truenorth.planner.show.replicated import replicated_table
from truenorth.planner.show.sweep import sweep_view
from truenorth.planner.show.table import latex, markdown
from truenorth.solvers import portfolio
from truenorth.solvers.budget import Budget
from truenorth.solvers.result import Result

FORMULA, PRICES = "critical_path", "lagrangian"


@pytest.mark.parametrize(
    ("gap", "method", "converged"),
    [
        (0.0, FORMULA, True),  # nothing is left to find
        (0.04, PRICES, True),
        (0.06, PRICES, False),
        (0.04, FORMULA, False),  # search has not even come to a bound of its own
        (None, None, False),
    ],
)
def test_what_counts_as_converged(gap: float | None, method: str | None, converged: bool) -> None:
    assert is_converged(gap, method) == converged
    assert (warn_of(gap, method) is None) == converged


@pytest.fixture
def unconverged(scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> Comparison:
    """Return a comparison whose plan is what hash makes, and whose bound is 1, by a formula; the optimum is 1.4."""
    ran, solve = tn.simulate(scenario, "hash").timeline, portfolio.solve_and_price

    def poor(on: Instance, objective: Objective, budget: Budget, **told: Any) -> tuple[Result, None, None]:
        value, (found, _, _) = timeline_value(objective, on, ran), solve(on, objective, budget)
        return replace(found, timeline=ran, value=value, lower_bound=Fraction(1), bound_method=FORMULA), None, None

    monkeypatch.setattr("truenorth.planner.answers.compare.portfolio.solve_and_price", poor)
    return tn.compare(scenario, ["hash", "compass-released"], regret=(), time_limit=1)


def test_a_ratio_lies_between_that_to_the_plan_and_that_to_the_bound(unconverged: Comparison) -> None:
    (plan,) = (row for row in unconverged.rows if row.policy == "plan")
    assert plan.ratio_to_best == 1.0
    for row in unconverged.rows:
        assert row.ratio_to_bound == pytest.approx(row.objective)  # the bound is 1
        assert row.ratio_to_best is not None
        assert row.ratio_to_bound is not None
        assert row.objective is not None
        assert row.ratio_to_best <= row.objective / 1.4 <= row.ratio_to_bound
        assert (row.bound_method, row.converged) == (FORMULA, False)
        assert row.plan_gap == pytest.approx(1 - 1 / (plan.objective or 0))


def test_every_table_of_a_comparison_says_that_the_plan_is_unconverged(unconverged: Comparison, tmp_path: Path) -> None:
    tn.save(unconverged, tmp_path)
    gap = f"gap of the plan: {100 * (1 - 1 / (unconverged.rows[0].objective or 0)):.1f} %."
    said = f"Lower bound: critical path, a formula; {gap}", "The plan is unconverged", "plan (unconverged)"
    for text in said:
        assert text in (tmp_path / "table.md").read_text()
        assert text.replace("%", r"\%") in (tmp_path / "table.tex").read_text()
        assert text in tn.report([tmp_path]).html
    assert all(text in html(unconverged) for text in said[:2])
    with (tmp_path / "table.csv").open(newline="") as file:
        assert {row["converged"] for row in csv.DictReader(file)} == {"False"}
    assert unconverged.record.warning == unconverged.warning
    assert tn.frame(unconverged)["bound_method"].tolist() == [FORMULA] * 3


def test_a_twin_is_marked_and_is_never_the_best(unconverged: Comparison, tmp_path: Path) -> None:
    # Of the released Compass nothing is compared with the scenario itself, even where it has the least value.
    (twin,) = (row for row in unconverged.rows if row.policy == "compass-released")
    assert twin.twin
    assert [row.twin for row in unconverged.rows].count(True) == 1
    better = replace(twin, objective=0.5)
    rest = tuple(row for row in unconverged.rows if row is not twin)
    assert replace(unconverged, rows=(better, *rest)).best == unconverged.best != "compass-released"
    tn.save(unconverged, tmp_path)
    assert "compass-released (on a twin)" in (tmp_path / "table.md").read_text()
    assert "On a twin of the scenario, not on the scenario itself: compass-released." in unconverged.note


def cells(made: Replicated, *plans: tuple[float, float, str]) -> Replicated:
    """Return replications in which a policy has the value 3, and plan and bound what is given."""
    rows: list[dict[str, Any]] = []
    figures = next(dict(row) for row in made.sweep.rows if row["policy"] == "plan")
    for cell, (value, bound, method) in enumerate(plans):
        gap = 1 - bound / value
        said = {"cell": cell, "lower_bound": bound, "bound_method": method, "plan_gap": gap, "error": None}
        said |= {"converged": is_converged(gap, method), "ratio_to_best": 3 / value, "ratio_to_bound": 3 / bound}
        rows.append({**figures, **said, "policy": "jit", "clairvoyant": False, "value": 3.0})
        own = {"ratio_to_best": 1.0, "ratio_to_bound": value / bound}
        rows.append({**figures, **said, **own, "policy": "plan", "clairvoyant": True, "value": value})
    return replace(made, sweep=replace(made.sweep, rows=tuple(rows)))


def test_intervals_of_replications_reach_from_the_plan_to_the_bound(tmp_path: Path) -> None:
    made = tn.replicate(drawn(tmp_path), 2, ["jit"], time_limit=0.3, workers=1)
    # Plans of 1.5 and 2 by bounds of 1 and 2: jit is at 2 and 1.5 times the plans, and at 3 and 1.5 times the bounds.
    apart = cells(made, (1.5, 1.0, FORMULA), (2.0, 2.0, PRICES))
    (row,) = (row for row in apart.rows if row.policy == "jit")
    assert row.ratio_to_best == Interval(1.75, 1.5, 2.0)
    assert row.ratio_to_bound == Interval(2.25, 1.5, 3.0)
    assert (row.converged_in, row.bound_methods) == (1, "critical path, a formula in 1; lagrangian in 1")
    proof = "Lower bounds: critical path, a formula in 1; lagrangian in 1; gap of the plan: 16.7 % in the mean."
    said = "In 1 of 2 replications the plan is unconverged (gap above 5%, or only a formula bounds it)"
    table = replicated_table(apart)
    assert proof in markdown(table)
    assert said in markdown(table)
    assert said.replace("%", r"\%") in latex(table)
    assert "| jit | no | 3 [3, 3] | 1.75 [1.5, 2] | 2.25 [1.5, 3] |" in markdown(table)
    assert "plan (unconverged)" in markdown(table)
    assert said in html(apart)
    assert apart.record.warning == apart.warning
    near = cells(made, (2.0, 2.0, FORMULA), (2.0, 1.95, PRICES))
    assert (near.warning, near.converged_in) == (None, 2)
    assert "unconverged" not in markdown(replicated_table(near))


def test_a_sweep_counts_the_cells_whose_plan_is_unconverged() -> None:
    told: Row = {"value": 2.0, "error": None}
    rows: tuple[Row, ...] = (
        {"cell": 0, "gap": 0.3, "converged": False, **told},
        {"cell": 1, "gap": 0.0, "converged": True, **told},
    )
    made = Sweep("s", "plan", rows, (), {}, Counts(2, 0, 2, 0), False, None)
    console = Console(width=150, record=True, file=io.StringIO())
    console.print(sweep_view(made))
    assert "In 1 of 2 cells the plan is unconverged" in console.export_text()
    assert made.record.warning == made.warning
    assert replace(made, rows=rows[1:]).warning is None


def test_losses_are_not_called_exact_where_the_plan_is_unconverged(scenario: Scenario) -> None:
    made = tn.regret(scenario, tn.simulate(scenario, "jit").timeline, "jit", time_limit_s=2)
    assert made.warning is None
    loose = replace(made, lower_bound=Fraction(1), bound_method=FORMULA)
    assert "its gap is 28.6 %; bound: critical path, a formula" in (loose.warning or "")  # 1 - 1 / 1.4
    assert "may belong to order and placement" in markdown(regret_table(loose.record))
