"""Jobs on several GPUs as the tutorial has them, from the file to the table."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pandas as pd
import pytest

import truenorth as tn
from tests.command import app
from truenorth.models.objective import Status
from truenorth.planner.answers.compare import GANG_POLICIES, SLOWER_GANG_POLICIES
from truenorth.planner.command.manners import DONE, NOT_ACHIEVED, run

PAGE = Path(__file__).parents[2] / "docs" / "training.md"
MINUTE = 60


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    """Return the scenario of the page: two jobs of 2 h on three GPUs, one of 36 min on all eight, two of 20 min."""
    found = re.search(r"<!-- file: cluster.yaml -->\n```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    path = tmp_path / "cluster.yaml"
    path.write_text(found[1])
    return path


def test_the_large_job_goes_first_in_an_optimal_plan(scenario: Path) -> None:
    # Large from 5 to 41 min; then both wide and both small, 3 + 3 + 1 + 1 of eight GPUs: they end at 161 and 61 min.
    # Latencies: 36, 161, 161 - 15, twice 61 - 10.
    plan = tn.plan(tn.load(scenario), time_limit=20)
    assert plan.result.status is Status.OPTIMAL
    assert plan.value == pytest.approx((36 + 161 + 146 + 51 + 51) * MINUTE / 5)


def test_a_comparison_names_the_policies_for_such_jobs_and_takes_nobody_apart(scenario: Path) -> None:
    compared = tn.compare(tn.load(scenario), time_limit=5)
    assert {row.policy for row in compared.rows} >= {"plan", *GANG_POLICIES, *SLOWER_GANG_POLICIES}
    assert compared.regrets == ()
    easy = next(row for row in compared.rows if row.policy == "easy")
    # Wide and small from their release, as they end before 120 min, or by then: large [120, 156), wide [156, 276).
    assert easy.objective == pytest.approx((120 + 151 + 20 + 20 + 261) * MINUTE / 5)


def test_the_command_writes_a_comparison_and_its_report(scenario: Path, tmp_path: Path) -> None:
    folder, page = tmp_path / "out", tmp_path / "page.html"
    assert (
        run(app, ["compare", str(scenario), "--time-limit", "5", "-o", str(folder), "--policies", "easy,sjf"]) == DONE
    )
    assert run(app, ["report", str(folder), "-o", str(page)]) == DONE
    [instance] = json.loads((folder / "timelines.json").read_text())["instances"]
    # Beyond the eight GPUs: all sets of three in each server of four, and both servers together.
    assert len(instance["places"]) == 2 * 4 + 1
    assert run(app, ["verify", str(scenario), str(folder / "certificate.json")]) == DONE


def test_a_plan_is_no_certificate(scenario: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = tmp_path / "plan.json"
    run(app, ["plan", str(scenario), "--time-limit", "2", "-o", str(plan)])
    assert run(app, ["verify", str(scenario), str(plan)]) == NOT_ACHIEVED
    assert "this is a plan and no certificate; truenorth check" in capsys.readouterr().out


def test_a_long_job_of_no_weight_comes_last() -> None:
    """Both take the two GPUs: the one that counts ends after 10 s, whatever the other weighs nothing for."""
    log = pd.DataFrame({"release": [0, 0], "runtime": [10**7, 10], "gpus": [2, 2], "w": [0, 1]})
    scenario = tn.read_csv(log, format="table:gpus=gpus,weight=w", servers=1, gpus_per_server=2)
    made = scenario.changed({"objective": "weighted_latency"}).plan(time_limit=3)
    assert (made.status, made.value) == (Status.OPTIMAL, 10)
