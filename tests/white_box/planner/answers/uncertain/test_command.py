"""Uncertain run times in the command: estimates to plan with, errors of what is told, and what is refused.

The scenario of tests/planner/conftest.py: two GPUs, m has 4 bytes and loads in 4 us; a (m, 3 us), then b (2 us). Jobs
come at 0 and at 4; the optimum is 1.4: m is loaded on both GPUs at 0, job 0 runs from 4 to 9, and so does job 1.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import truenorth as tn
from tests.documentation.pages import ROOT
from tests.white_box.planner.test_command import PLAN_KEYS, Command, command
from truenorth.executor import NoiseError
from truenorth.models.scenario import Scenario, load_scenario
from truenorth.planner.inputs.told import TRUTH, read_told
from truenorth.planner.show.comparison import comparison_view

__all__ = ["command"]

OFFLINE = "offline:moves=300,samples=2"


@pytest.fixture
def estimates(tmp_path: Path) -> Path:
    """Return a file that takes a for 6 us, twice as long as it is, give or take 3 us."""
    path = tmp_path / "estimates.csv"
    path.write_text("workflow,task,p10_s,p50_s,p90_s\nw,a,0.000003,0.000006,0.000009\n")
    return path


@pytest.mark.parametrize(("plan_for", "considered"), [("p50", 1), ("p90", 1), ("samples", 12)])
def test_a_plan_for_estimates_is_a_plan_of_the_scenario(
    command: Command, scenario_file: Path, estimates: Path, tmp_path: Path, plan_for: str, considered: int
) -> None:
    # With one GPU per job nobody waits for anybody, however long a takes: the placement is optimal for every estimate.
    # Medians: each job takes 6 + 2 on a critical path of 8; job 0 waits for its load, 12 / 8, job 1 does not: 1.25.
    plan = tmp_path / "plan.json"
    settings = ("--estimates", estimates, "--plan-for", plan_for, "--time-limit", 6)
    document = command.json("plan", scenario_file, *settings, "-o", plan)
    assert set(document) == PLAN_KEYS | {"estimates"}
    assert document["objective"]["value"] == 1.4
    assert document["lower_bound"] <= 1.4
    worth = document["estimates"]
    assert (worth["plan_for"], worth["samples"], len(worth["candidates"])) == (plan_for, 8, considered)
    assert worth["candidates"][0]["with_medians"] == 1.25
    means = [candidate["mean"] for candidate in worth["candidates"]]
    assert means == sorted(means)
    assert all(candidate["worst"] >= candidate["mean"] for candidate in worth["candidates"])
    assert command.json("check", scenario_file, plan)["valid"] is True
    assert json.loads(plan.read_text())["options"]["plan_for"] == plan_for


def test_options_that_contradict_each_other(command: Command, scenario_file: Path, estimates: Path) -> None:
    assert "--plan-for: needs the estimates" in command.error("plan", scenario_file, "--plan-for", "p90")
    refused = command.error("plan", scenario_file, "--estimates", estimates, "--hint", "plan.json")
    assert "--hint: cannot go with --estimates" in refused
    estimates.write_text("workflow,task,p10_s,p50_s,p90_s\nw,z,1,2,3\n")
    assert f"{estimates}:2: task: unknown task 'z'" in command.error("plan", scenario_file, "--estimates", estimates)
    assert "told=KIND:SPREAD" in command.error("simulate", scenario_file, "--policy", "jit", "--noise", "told=some:1")
    assert "compare allows 'told=KIND:SPREAD'" in command.error("compare", scenario_file, "--noise", "run=normal:1")


@pytest.mark.parametrize("policy", ["jit", "srpt", "receding:moves=50", OFFLINE, f"{OFFLINE},on=samples,replan=on"])
def test_what_is_told_wrongly_is_no_noise(scenario: Scenario, policy: str) -> None:
    certain = tn.simulate(scenario, policy)
    for nothing in ("told=lognormal:0", "told=published:0:task", "true=lognormal:0"):
        assert tn.simulate(scenario, policy, noise=nothing).value == certain.value
    wrongly = tn.simulate(scenario, policy, noise="told=lognormal:2:task", seed=1)
    assert not wrongly.timeline.realised  # it happened in the scenario's own run times
    assert wrongly.value >= 1.4
    assert tn.simulate(scenario, policy, noise="true=lognormal:2:task", seed=1).timeline.realised


def test_estimates_as_noise(command: Command, scenario_file: Path, estimates: Path, tmp_path: Path) -> None:
    # Each job has a GPU of its own. Job 0 waits 4 us for its load, job 1 for nothing; a takes what is drawn, b 2 us:
    # latencies 4 + a0 + 2 and a1 + 2; slowdowns count by what holds, so job 1 has 1 and job 0 (a0 + 6) / (a0 + 2).
    plan = tmp_path / "plan.json"
    command("plan", scenario_file, "-o", plan, "--time-limit", 3)
    drawn = read_told(estimates, load_scenario(scenario_file)).draw(3, TRUTH)
    a0, a1 = (drawn.run_time(task, 0) for task in (0, 2))
    assert (a0, a1) != (3, 3)
    noise = ("--noise", f"estimates={estimates}", "--seed", 3)
    for policy in (plan, f"{OFFLINE},plan={plan}", f"{OFFLINE},plan={plan},replan=on"):
        found = command.json("simulate", scenario_file, "--policy", policy, *noise)
        assert found["objective"]["value"] == pytest.approx((1 + (a0 + 6) / (a0 + 2)) / 2)
    for option in ("samples=0", "samples=1001", "moves=0", "decision=0"):
        name, _, value = option.partition("=")
        refused = command.error("simulate", scenario_file, "--policy", f"offline:{option}")
        assert f"option {name}: {value} is not allowed; at least 1" in refused


def test_compare_shows_the_price_of_error(scenario: Scenario) -> None:
    # Plan and bound are those of the true run times; the rest is told others.
    made = tn.compare(scenario, [OFFLINE, "jit"], noise="told=lognormal:1", time_limit=3, seed=2)
    rows = {row.policy: row for row in made.rows}
    assert rows["plan"].objective == 1.4
    assert made.record.lower_bound == pytest.approx(1.4)
    assert [rows[name].clairvoyant for name in ("plan", OFFLINE, "jit")] == [True, True, False]
    assert min(rows[name].objective or 0.0 for name in (OFFLINE, "jit")) >= 1.4
    assert "told wrong run times (told=lognormal:1)" in made.note
    assert made.asked.noise == "told=lognormal:1"
    assert comparison_view(made) is not None
    for noise in ("true=lognormal:1", "load=normal:0.1", "estimates=x.csv"):
        with pytest.raises(NoiseError, match="moves plan and bound too"):
            tn.compare(scenario, ["jit"], noise=noise, time_limit=1)


def test_a_policy_whose_loads_take_other_times_runs_without_noise_and_with_it() -> None:
    # The twin of the released Compass does not keep to rule R1: its timelines count as realised, whatever the noise.
    scenario = load_scenario(ROOT / "experiments" / "scenarios" / "azure.yaml")
    certain = tn.simulate(scenario, "compass-released")
    assert certain.timeline.realised
    assert float(certain.value) == pytest.approx(5.8506, abs=1e-4)
    for noise in ("told=lognormal:0.3", "true=lognormal:0.3", "run=lognormal:0.2"):
        noisy = tn.simulate(scenario, "compass-released", noise=noise)
        assert noisy.timeline.realised
        assert noisy.value != certain.value
