"""Batches through the command: every verb that answers on them, and a plan file whose batches break the rules."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command import app
from tests.command import run as command

SCENARIO = """
cluster:
  servers: 1
  gpu: {kind: A, memory: 2 GB, load_bandwidth: 1 GB/s}
batches:
  pairs: {runtime: {1: 4 ms, 2: 5 ms}}
workflows:
  w: {tasks: {t: {batch: pairs}}}
workload:
  jobs: [{release: 0 ms, workflow: w}, {release: 0 ms, workflow: w}, {release: 1 ms, workflow: w}]
objective: mean_latency
"""


@pytest.fixture
def scenario_file(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.yaml"
    path.write_text(SCENARIO)
    return path


def told(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, object]:
    """Return what a verb prints with --json."""
    assert command(app, [*map(str, arguments), "--json"]) == 0
    said: dict[str, object] = json.loads(capsys.readouterr().out)
    return said


def test_a_run_is_taken_apart_and_its_plan_replayed(
    scenario_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # One by one the jobs end at 4, 8 and 12 ms: (4 + 8 + 11) / 3. Two together at 5, the third at 9: (5 + 5 + 8) / 3.
    ran, made = tmp_path / "ran.json", tmp_path / "plan.json"
    told(capsys, "simulate", scenario_file, "--policy", "jit:batch=off", "-o", ran)
    apart = told(capsys, "bound", scenario_file, "--schedule", ran, "--time-limit", 5)["regret"]
    assert isinstance(apart, dict)
    losses = {part["part"]: round(part["lost"] * 3e3) for part in apart["losses"]}
    assert losses == {"residency": 0, "batches": 5, "order": 0, "placement": 0, "open": 0}
    planned = told(capsys, "plan", scenario_file, "--time-limit", 5, "-o", made)
    assert planned["status"] == "OPTIMAL"
    replayed = told(capsys, "simulate", scenario_file, "--policy", made)
    assert replayed["objective"] == planned["objective"]
    for policy in ("clockwork", "deferred:due=2", "receding"):
        value = told(capsys, "simulate", scenario_file, "--policy", policy)["objective"]
        assert isinstance(value, dict)
        assert value["value"] >= 6e-3


def test_a_batch_that_is_too_large_is_a_violation(
    scenario_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = tmp_path / "plan.json"
    told(capsys, "simulate", scenario_file, "--policy", "jit", "-o", made)
    document = json.loads(made.read_text())
    for task in document["tasks"]:
        task["start_us"], task["end_us"] = 1_000, 6_000
    made.write_text(json.dumps(document))
    assert command(app, ["check", str(scenario_file), str(made)]) == 1
    assert "T3b" in capsys.readouterr().out
