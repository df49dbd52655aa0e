"""`check` says what it checked, and refuses a file that contradicts its timeline or itself.

The optimum of the scenario (see conftest) is 1.4.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import truenorth as tn
from tests.by_hand import TEXT
from tests.white_box.planner.test_command import Command
from truenorth.models import Placement, Timeline
from truenorth.models.scenario import Scenario, TimelineHeader, load_scenario, write_timeline


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


@pytest.fixture
def planned(scenario: Scenario, tmp_path: Path) -> Path:
    """Return the file of the proved optimum."""
    path = tmp_path / "plan.json"
    tn.save(tn.plan(scenario, time_limit=10), path)
    return path


def edited(path: Path, **changes: object) -> Path:
    """Return a copy of a file with other values of some keys."""
    document = json.loads(path.read_text()) | changes
    copy = path.with_name("edited.json")
    copy.write_text(json.dumps(document))
    return copy


def objective(value: float, name: str = "mean_slowdown") -> dict[str, object]:
    return {"name": name, "value": value}


def test_an_honest_plan_says_what_is_proved_of_it(command: Command, scenario_file: Path, planned: Path) -> None:
    verdict = command.json("check", scenario_file, planned)
    assert verdict["times"] == {
        "from": "the scenario", "runs": 4, "runs_of_other_times": 0, "loads": 2, "loads_of_other_times": 0,
    }  # fmt: skip
    assert verdict["header"]["checked"] == ["value", "gap", "incumbents"]
    assert set(verdict["header"]["unproved"]) == {"lower_bound", "status"}
    assert {"solver", "runtime_s", "versions"} <= set(verdict["header"]["unchecked"])
    said = command("check", scenario_file, planned)[1]
    assert said.startswith("valid: every rule holds\n")
    assert "claimed, unproved without a certificate: lower_bound 1.4" in said


BATCHED = """\
cluster: {servers: 1, gpu: {kind: A, memory: 10 B, load_bandwidth: 1 MB/s}}
workflows: {w: {tasks: {a: {batch: c}}}}
batches: {c: {runtime: {1: 3 us, 2: 5 us}}}
workload: {jobs: [{release: 0 us, workflow: w}, {release: 0 us, workflow: w}, {release: 0 us, workflow: w}]}
"""


def test_a_batch_takes_the_time_of_its_size(command: Command, tmp_path: Path) -> None:
    # Two of the three together for 5 us, then the third alone for 3 us: each as the table says.
    file, written = tmp_path / "batched.yaml", tmp_path / "plan.json"
    file.write_text(BATCHED)
    window = load_scenario(file).instance
    runs = [Placement(0, 0, 0, 5), Placement(1, 0, 0, 5), Placement(2, 0, 5, 8)]
    write_timeline(written, window, Timeline.build(3, runs, ()), TimelineHeader())
    verdict = command.json("check", file, written)
    assert (verdict["valid"], verdict["times"]["runs"], verdict["times"]["runs_of_other_times"]) == (True, 3, 0)
    # As a run that happened it may take any time: 4 us in place of 5 us are another for both members.
    runs[:2] = [Placement(0, 0, 0, 4), Placement(1, 0, 0, 4)]
    write_timeline(written, window, Timeline.build(3, runs, (), realised=True), TimelineHeader())
    verdict = command.json("check", file, written)
    assert (verdict["valid"], verdict["times"]["runs_of_other_times"]) == (True, 2)


@pytest.mark.parametrize(
    ("changes", "subjects"),
    [
        # What an outsider did: everything agrees with itself, and nothing with the timeline.
        ({"objective": objective(0.5), "lower_bound": 0.5, "gap": 0.0, "incumbents": []}, ["value"]),
        ({"objective": objective(1.3)}, ["value", "lower_bound", "gap", "incumbents"]),
        ({"objective": objective(0), "lower_bound": 0.5, "gap": 0.5, "incumbents": []}, ["value", "lower_bound"]),
        ({"objective": objective(1.4, "makespan")}, ["value"]),
        ({"objective": objective(1.4, "happiness")}, ["objective"]),
        ({"lower_bound": 1.5, "gap": 0.0, "incumbents": []}, ["lower_bound", "gap"]),
        ({"lower_bound": 1.2, "incumbents": []}, ["gap", "status"]),
        ({"lower_bound": 1.2, "gap": 1 / 7, "incumbents": []}, ["status"]),
        ({"gap": 0.01}, ["gap"]),
        ({"lower_bound": None, "gap": None, "incumbents": []}, ["status"]),
        ({"status": "INFEASIBLE"}, ["status"]),
        ({"status": "PERFECT"}, ["status"]),
        ({"realised": True}, ["status"]),
        ({"incumbents": [[0.1, 1.2, 1.0]]}, ["incumbents", "incumbents"]),
        ({"incumbents": [[0.2, 1.4, 1.0], [0.1, 1.4, 1.4]]}, ["incumbents"]),
    ],
)
def test_a_header_that_contradicts_is_a_violation(
    command: Command, scenario_file: Path, planned: Path, changes: dict[str, Any], subjects: list[str]
) -> None:
    verdict = command.json("check", scenario_file, edited(planned, **changes), code=1)
    assert verdict["valid"] is False
    assert [(violation["rule"], violation["subject"]) for violation in verdict["violations"]] == [
        ("header", subject) for subject in subjects
    ]


def test_times_of_the_file_are_called_so(command: Command, scenario_file: Path, tmp_path: Path) -> None:
    # Every task ends 1 us after its start: nothing forbids that to what happened, but it must be said.
    timeline = tmp_path / "timeline.json"
    command.json("simulate", scenario_file, "--policy", "jit", "-o", timeline)
    tasks = [task | {"end_us": task["start_us"] + 1} for task in json.loads(timeline.read_text())["tasks"]]
    short = edited(timeline, tasks=tasks, realised=True)
    verdict = command.json("check", scenario_file, short)
    assert verdict["times"]["from"] == "the file"
    assert (verdict["times"]["runs"], verdict["times"]["runs_of_other_times"]) == (4, 4)
    assert "value" in verdict["header"]["unchecked"]
    said = command("check", scenario_file, short)[1]
    assert said.startswith("valid as a timeline that happened")
    assert "4 of 4 runs" in said
    assert "unchecked: value counts by run times that the file does not hold" in said


def test_ends_tell_the_value_of_what_happened_where_run_times_do_not_count(command: Command, tmp_path: Path) -> None:
    scenario = tmp_path / "latency.yaml"
    scenario.write_text(TEXT.replace("mean_slowdown", "mean_latency"))
    timeline = tmp_path / "timeline.json"
    command.json("simulate", scenario, "--policy", "jit", "--noise", "true=lognormal:1", "-o", timeline)
    assert command.json("check", scenario, timeline)["header"]["checked"] == ["value"]
    verdict = command.json("check", scenario, edited(timeline, objective=objective(1.0, "mean_latency")), code=1)
    assert [violation["subject"] for violation in verdict["violations"]] == ["value"]


@pytest.mark.parametrize(
    "arguments",
    [
        "--policy jit",
        "--policy compass-released",
        "--policy compass-released --noise run=lognormal:0.5,load=normal:1",
        "--policy static --noise run=uniform:2",
        "--policy receding:moves=20 --noise true=published:1",
        "--policy offline:moves=20 --noise told=published:1",
        "--policy offline:moves=20,replan=on --noise told=lognormal:1:task,load=lognormal:1",
    ],
)
def test_whatever_a_simulation_writes_is_valid(
    command: Command, scenario_file: Path, tmp_path: Path, arguments: str
) -> None:
    timeline = tmp_path / "timeline.json"
    command.json("simulate", scenario_file, *arguments.split(), "-o", timeline)
    verdict = command.json("check", scenario_file, timeline)
    assert verdict["valid"]
    assert "value" in (*verdict["header"]["checked"], *verdict["header"]["unchecked"])
    assert ("value" in verdict["header"]["unchecked"]) == ("true=" in arguments)
