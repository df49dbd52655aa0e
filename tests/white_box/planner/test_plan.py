from __future__ import annotations

from fractions import Fraction
from functools import partial
from pathlib import Path

import pytest

import truenorth as tn
from experiments import authors
from truenorth.models import Objective, Placement, Residency, Timeline, check
from truenorth.models.objective import Status
from truenorth.models.scenario import Scenario, read_timeline
from truenorth.planner.answers.plan import solve
from truenorth.planner.show.notebook import html
from truenorth.solvers.budget import Budget, Method


@pytest.mark.parametrize("method", [Method.AUTO, Method.CP_SAT, Method.MILP])
def test_exact_methods_prove_the_optimum(scenario: Scenario, method: Method) -> None:
    made = tn.plan(scenario, method=method, time_limit=20)
    assert made.result.status is Status.OPTIMAL
    assert made.result.value == made.result.lower_bound == Fraction(7, 5)
    assert made.timeline is not None
    assert check(scenario.instance, made.timeline) == []


def test_search_finds_the_optimum_and_does_not_call_it_proved_without_a_bound(scenario: Scenario) -> None:
    made = tn.plan(scenario, method=Method.SEARCH, time_limit=2, iterations=200)
    assert made.result.value == Fraction(7, 5)
    assert made.result.status is (Status.OPTIMAL if made.result.gap == 0 else Status.FEASIBLE)


def test_views_show_where_and_when(scenario: Scenario) -> None:
    made = tn.plan(scenario, time_limit=20)
    assert tn.jobs(made)["completion_s"].tolist() == [9e-6, 9e-6]
    assert tn.jobs(made)["slowdown"].tolist() == [1.8, 1.0]
    assert tn.tasks(made)["models"].tolist() == ["m", "", "m", ""]
    assert sorted(tn.residencies(made)["ready_s"]) == [4e-6, 4e-6]
    assert "1.4" in html(made)


def test_a_plan_is_never_worse_than_its_hint(scenario: Scenario) -> None:
    # Optimal by hand: job 0 on GPU 0, job 1 on GPU 1, both loads at 0.
    hint = Timeline.build(
        4,
        [Placement(0, 0, 4, 7), Placement(1, 0, 7, 9), Placement(2, 1, 4, 7), Placement(3, 1, 7, 9)],
        [Residency(0, 0, 0, 4), Residency(0, 1, 0, 4)],
    )
    made = tn.plan(scenario, method=Method.SEARCH, time_limit=0.5, iterations=1, hint=hint, starts=[])
    assert made.result.value == Fraction(7, 5)


def test_a_saved_plan_reads_back_with_what_is_known_of_it(scenario: Scenario, tmp_path: Path) -> None:
    made = tn.plan(scenario, time_limit=20)
    tn.save(made, tmp_path / "plan.json")
    found = read_timeline(tmp_path / "plan.json", scenario.instance)
    assert made.timeline is not None
    assert list(found.timeline.placements) == list(made.timeline.placements)
    assert found.timeline.residencies == made.timeline.residencies
    assert (found.header.status, found.header.value, found.header.gap) == ("OPTIMAL", 1.4, 0.0)


def test_the_same_seed_and_number_of_iterations_give_the_same_plan() -> None:
    arrivals = authors.instance(authors.poisson(3, 12, 1))
    asked = partial(Budget, 6, seed=5, iterations=3000)  # the bound takes all of the time
    first, second = (solve(arrivals, Objective.MEAN_SLOWDOWN, asked()) for _ in range(2))
    assert first.timeline is not None
    assert second.timeline is not None
    assert list(first.timeline.placements) == list(second.timeline.placements)
    assert first.timeline.residencies == second.timeline.residencies
