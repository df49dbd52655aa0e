"""What a bound says of itself: which method proved what, certified or not, and the plan found on the way."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import truenorth as tn
from truenorth.models.scenario import Scenario
from truenorth.planner.show.summaries import bound_summary


def test_what_has_no_certificate_names_its_method(scenario: Scenario) -> None:
    made = replace(tn.bound(scenario, time_limit=2), uncertified=(Fraction(7, 5), "start-orders"))
    said = bound_summary(made)["without a certificate"]
    assert said.startswith("1.4  (start-orders: holds")
    assert "CP-SAT" not in said
    assert made.record().uncertified_method == "start-orders"


def test_a_schedule_is_compared_with_the_plan_that_bounding_found(scenario: Scenario, tmp_path: Path) -> None:
    path = tmp_path / "jit.json"
    tn.save(tn.simulate(scenario, "jit"), path)
    made = tn.bound(scenario, schedule=path, time_limit=4)
    assert made.found.value == Fraction(7, 5)
    assert made.regret is not None
    assert made.regret.steps[-1].value == made.highest[0] == made.regret.lower_bound == Fraction(7, 5)
    assert made.cpu_s > 0
