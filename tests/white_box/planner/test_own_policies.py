"""Policies of a user's know and change no more than they may, and a user can find out whether theirs does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import truenorth as tn
from tests.white_box.planner.test_compare import Call, call
from tests.white_box.planner.test_replications import drawn
from truenorth.executor import PolicyError, parse_policy
from truenorth.models.scenario import Scenario, load_scenario
from truenorth.planner.answers.intervals import NO_INTERVAL
from truenorth.planner.answers.simulate import try_changed_futures
from truenorth.planner.show.notebook import html

OWN = "tests.planner.own"
__all__ = ["call"]  # a fixture of this file


@pytest.mark.parametrize(
    "policy", [f"{OWN}:Handed", f"{OWN}:WritesBack", "truenorth.executor.policies.compass:ReleasedCompass"]
)
def test_only_the_tree_runs_on_a_twin_or_writes_back(policy: str) -> None:
    with pytest.raises(PolicyError, match="changes the instance or its loads"):
        parse_policy(policy)


def test_nor_does_what_is_made_from_the_policy_that_does(scenario: Scenario) -> None:
    ran = tn.simulate(scenario, f"{OWN}:Released")
    assert not ran.on_a_twin
    assert len(ran.instance.jobs) == len(scenario.instance.jobs) > 1


def test_a_policy_that_ends_the_process_is_an_error_of_its_own(scenario: Scenario) -> None:
    with pytest.raises(PolicyError, match=f"policy {OWN}:Leaving: runnable of job 0, task a .*: SystemExit: 0"):
        tn.simulate(scenario, f"{OWN}:Leaving")


def test_a_policy_that_breaks_a_rule_is_a_row_without_a_rank(scenario: Scenario, tmp_path: Path) -> None:
    made = tn.compare(scenario, [f"{OWN}:Hasty", "jit"], regret=(), time_limit=2)
    assert [row.policy for row in made.rows] == ["plan", "jit", f"{OWN}:Hasty"]
    hasty = made.rows[-1]
    assert [hasty.objective, hasty.metrics, hasty.ratio_to_best, hasty.ratio_to_bound] == [None] * 4
    assert str(hasty.problem).startswith(
        f"policy {OWN}:Hasty: its timeline breaks the rules in 4 places, first T1 job 0"
    )
    assert (made.best, len(made.simulations)) == ("plan", 1)
    tn.save(made, tmp_path)
    assert f"| {OWN}:Hasty (breaks the rules) | not declared | - | - | - | - |" in (tmp_path / "table.md").read_text()
    assert "runs for the wrong time" in html(made)
    assert "Hasty (breaks the rules)" in tn.report([tmp_path]).html


def test_replications_rank_nobody_who_breaks_a_rule(tmp_path: Path) -> None:
    made = tn.replicate(drawn(tmp_path), 2, [f"{OWN}:Hasty", "jit"], time_limit=0.3, workers=1)
    rows = {row.policy: row for row in made.rows}
    assert made.against == "jit"
    assert made.rows[-1] is not rows["jit"]
    hasty = rows[f"{OWN}:Hasty"]
    assert (hasty.objective, hasty.ratio_to_bound, hasty.replications) == (NO_INTERVAL, NO_INTERVAL, 0)
    assert "breaks the rules" in str(hasty.problem)
    assert made.record.best == "plan"


def test_simulating_one_that_breaks_a_rule_is_one_line(scenario_file: Path, call: Call) -> None:
    code, out, err = call("simulate", scenario_file, "--policy", f"{OWN}:Hasty")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "breaks the rules in 4 places, first T1 job 0 task a: runs for the wrong time (found 1, allowed 3)" in err


def test_the_future_can_be_changed_from_the_command(tmp_path: Path, call: Call) -> None:
    scenario = drawn(tmp_path).source.file
    told = ("simulate", scenario, "--change-future", "20", "--policy")
    code, out, _ = call(*told, f"{OWN}:Last")
    assert (code, out) == (0, f"policy {OWN}:Last: with 20 other futures its past stays the same\n")
    code, out, _ = call(*told, f"{OWN}:Peeking")
    assert code == 1
    assert "its past depends on the future" in out
    code, out, _ = call(*told, f"{OWN}:Peeking", "--json")
    found = json.loads(out)
    assert (code, found["passed"]) == (1, False)
    # The same jobs up to a moment, and before it the same task, or its model, on another GPU.
    difference = found["difference"]
    assert difference["as_it_was"]["at_s"] < difference["same_jobs_before_s"]
    assert difference["as_it_was"]["action"] != difference["changed"]["action"]
    assert {"s0/g0", "s1/g0"} == {
        gpu for side in ("as_it_was", "changed") for gpu in ("s0/g0", "s1/g0") if gpu in difference[side]["action"]
    }


@pytest.mark.parametrize("policy", ["compass", "compass-released", "srpt", "ahead", "receding:moves=50"])
def test_the_past_of_the_trees_policies_stays(policy: str, tmp_path: Path) -> None:
    assert try_changed_futures(drawn(tmp_path), policy, 5).passed


def test_who_looks_ahead_is_found() -> None:
    scenario = load_scenario("experiments/scenarios/compass_edge.yaml")
    assert not try_changed_futures(scenario, "receding:moves=50,lookahead=5s", 10).passed


@pytest.mark.parametrize("more", [("-o", "out.json"), ("--noise", "run=uniform:0.1")])
def test_changed_futures_go_with_nothing_else(scenario_file: Path, call: Call, more: tuple[str, ...]) -> None:
    code, out, err = call("simulate", scenario_file, "--policy", "jit", "--change-future", "3", *more)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "--change-future goes without --noise and -o" in err


def test_a_plan_knows_its_window(scenario_file: Path, call: Call) -> None:
    code, _, err = call("simulate", scenario_file, "--policy", "plan.json", "--change-future", "3")
    assert (code, err) == (
        2,
        "truenorth: error: --policy: 'plan.json' is the plan of one window; allowed are policies\n",
    )
