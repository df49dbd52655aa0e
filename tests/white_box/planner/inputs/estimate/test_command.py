"""The command: its object, its file, its refusals."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from tests.by_hand import TEXT
from tests.command import app, run
from tests.planner.inputs.estimate.past import past
from truenorth.models.scenario import load_scenario
from truenorth.planner.inputs.estimate.known import KnownTimes
from truenorth.planner.inputs.estimate.rungs import read_profile
from truenorth.planner.inputs.estimate.tasks import Tasks
from truenorth.planner.inputs.samples import samples_path
from truenorth.planner.inputs.told import read_quantiles

SAMPLES = '{"schema_version": 1, "runs": {"w": {"a": [2.0, 3.0, 12.0]}}}'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = "".join(f"m,w,a,{3 + i % 2}\n,w,b,2\n" for i in range(30))
    (tmp_path / "history.csv").write_text("model,workflow,task,runtime_us\n" + rows)
    (tmp_path / "scenario.yaml").write_text(TEXT.replace("{runtime: 2 us, after: [a]}", "{runtime: 2 us, after: [a]}\n"
                                                         "      c: {models: [m], runtime: 9 us}"))  # fmt: skip
    return tmp_path


def told(folder: Path, *arguments: str, capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    assert run(app, ["estimate", str(folder / "history.csv"), *arguments, "--json"]) == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_a_scenarios_tasks_get_a_row_each_that_a_planner_reads(folder: Path) -> None:
    scenario, out = folder / "scenario.yaml", folder / "estimates.csv"
    assert run(app, ["estimate", str(folder / "history.csv"), str(scenario), "-o", str(out)]) == 0
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == [
        "workflow", "task", "p10_s", "p50_s", "p90_s", "source", "confidence", "neighbours", "profile",
    ]  # fmt: skip
    assert [(row["workflow"], row["task"], row["source"], row["profile"]) for row in rows] == [
        ("w", "a", "exact key", "false"),
        ("w", "b", "exact key", "false"),
        ("w", "c", "back-off key 2/3", "false"),
    ]
    # Runs of a are 3 and 4 us in turn, whose median in logarithms is their geometric mean 3.46, rounded to 3 us. Of c
    # nothing is known but model and workflow, whose only runs are those.
    quantiles = read_quantiles(out, load_scenario(scenario))
    assert quantiles["w", "a"] == (3, 3, 4)
    assert quantiles["w", "b"] == (2, 2, 2)
    assert quantiles["w", "c"][1] == 3
    assert [row["neighbours"] for row in rows] == ["m / w / a", "'- / w / b", "m / w"]


def test_the_object_says_who_answered_and_what_to_profile(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    requests = folder / "requests.csv"
    requests.write_text("model,workflow,task,runtime_us\nm,w,a,3\nnew,w,z,\n")
    found = told(folder, str(requests), capsys=capsys)
    assert found["past_tasks"] == 60
    assert found["key"] == ["model", "workflow", "task"]
    assert found["unseen"] == {"new": 1}
    rungs = found["rungs"]
    assert isinstance(rungs, list)
    assert {rung["name"]: rung["answered"] for rung in rungs}["exact key"] == 1
    estimates = found["estimates"]
    assert isinstance(estimates, list)
    assert [(row["line"], row["source"], row["profile"]) for row in estimates] == [
        (2, "exact key", False),
        (3, "default", True),
    ]
    score = found["score"]  # of the one request whose run time is given: told 3 us, took 3 us
    assert isinstance(score, dict)
    assert (score["cases"], score["median_error"]) == (1, 0.0)


def test_a_profile_goes_first_and_nothing_it_measured_need_be_profiled(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profiled = folder / "profiled.yaml"
    profiled.write_text(TEXT)
    samples_path(profiled).write_text(SAMPLES)
    found = told(folder, str(folder / "scenario.yaml"), "--profile", str(profiled), capsys=capsys)
    estimates = found["estimates"]
    assert isinstance(estimates, list)
    assert [row["source"] for row in estimates] == ["profile", "profile", "back-off key 2/3"]


def test_the_samples_give_the_interval(tmp_path: Path) -> None:
    path = tmp_path / "profiled.yaml"
    path.write_text(TEXT)
    samples_path(path).write_text(SAMPLES)
    history = past([{"model": "m", "s": 1}], ("model",))
    tasks = Tasks.of([{"workflow": "w", "task": "a"}, {"workflow": "w", "task": "x"}], ("workflow", "task"))
    answers = read_profile(path).answer(tasks, KnownTimes(history, ("model",)))
    # Of three samples the quantiles are the ceil(0.3)-th, the ceil(1.5)-th and the ceil(2.7)-th.
    assert np.exp(answers.quantiles[0]).tolist() == pytest.approx([2.0, 3.0, 12.0])
    assert answers.given.tolist() == [True, False]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "status"], "--only 'status': allowed is COLUMN=VALUE"),
        (["--ask", "nowhere"], "--ask 'nowhere': allowed is module:function"),
        (["--ask", "tests.planner.inputs.estimate.past:COLUMNS"], "cannot be called; allowed is a function"),
        (["--encoder", "no_such_module:f"], "module no_such_module cannot be imported"),
        (
            ["--encoder", "tests.white_box.planner.inputs.estimate.test_command:raising"],
            "--encoder: raised RuntimeError: no weights here; allowed",
        ),
        (
            ["--encoder", "tests.white_box.planner.inputs.estimate.test_command:wrong"],
            "--encoder: gave numbers of shape [3] for 2 texts; allowed",
        ),
        (
            ["--ask", "tests.white_box.planner.inputs.estimate.test_command:raising"],
            "--ask: raised RuntimeError: no weights here; allowed is a",
        ),
        (
            ["--ask", "tests.white_box.planner.inputs.estimate.test_command:wrong"],
            "(3, 2, 1) are no quantiles; allowed are None or three",
        ),
        (["--key", "modell"], "history.csv:1: header: has no column 'modell' (key); did you mean 'model'?"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    folder: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    requests = folder / "requests.csv"
    requests.write_text("model,workflow,task\nnew,w,z\n")
    assert run(app, ["estimate", str(folder / "history.csv"), str(requests), *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def wrong(task: object) -> tuple[int, int, int]:
    """Answer with quantiles out of order."""
    return 3, 2, 1


def raising(task: object) -> None:
    raise RuntimeError("no weights\nhere")
