from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

import truenorth as tn
from tests.command import app, run
from truenorth.models.record import encode
from truenorth.models.scenario import Scenario
from truenorth.planner.answers.compare import DEFAULT_POLICIES
from truenorth.planner.questions.read import split_policies
from truenorth.planner.show.comparison import comparison_view
from truenorth.planner.show.notebook import html

TWO_MODELS = """\
cluster: {servers: 1, gpu: {kind: T4, memory: 10 GB, load_bandwidth: 10 GB/s}}
models: {a: {weights: 6 GB}, b: {weights: 6 GB}}
workflows:
  v: {tasks: {run: {models: [a], runtime: 1 s}}}
  w: {tasks: {run: {models: [b], runtime: 1 s}}}
workload:
  jobs: [{release: 0 s, workflow: v}, {release: 0 s, workflow: w}]
"""

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    def called(*arguments: object) -> tuple[int, str, str]:
        code = run(app, [str(argument) for argument in arguments])
        output = capsys.readouterr()
        return code, output.out, output.err

    return called


@pytest.mark.parametrize(
    ("text", "policies"),
    [
        ("jit", ["jit"]),
        ("compass:prefetch=0,period=100ms,jit", ["compass:prefetch=0,period=100ms", "jit"]),
        ("compass,adjust=off,heft", ["compass:adjust=off", "heft"]),
        ("my.module:Class,jit,", ["my.module:Class", "jit"]),
    ],
)
def test_an_item_with_a_key_continues_the_policy_before_it(text: str, policies: list[str]) -> None:
    assert split_policies(text) == policies


def test_rows_are_sorted_and_relative_to_the_best_and_to_the_bound(scenario: Scenario) -> None:
    # JIT: job 0 waits for its load, [4, 7) and [7, 9). Job 1 comes at 4: GPU 0 waits 3 + 0, GPU 1 waits 0 + load 4,
    # so its a goes to GPU 0 at [7, 10), before or after b of job 0; the plan (1.4) is better either way.
    made = tn.compare(scenario, ["jit", "hash"], time_limit=20)
    values = [row.objective or 0.0 for row in made.rows]
    assert values == sorted(values)
    assert made.best == "plan"
    assert encode(made.rows[0]) | {"metrics": None} == {
        "policy": "plan",
        "clairvoyant": True,
        "knows": "the future",
        "information_used": "clairvoyant",
        "twin": False,
        "objective": 1.4,
        "metrics": None,
        "ratio_to_best": 1.0,
        "ratio_to_bound": 1.0,
        "gap_to_bound": 0.0,
        "bound_method": "critical_path",
        "plan_gap": 0.0,
        "converged": True,
        "problem": None,
    }
    assert {row.policy: row.knows for row in made.rows[1:]} == {"jit": "waits", "hash": "nothing"}
    assert made.warning is None
    for row in made.rows[1:]:
        assert row.clairvoyant is False
        assert row.objective is not None
        assert row.ratio_to_best == row.ratio_to_bound == pytest.approx(row.objective / 1.4)
        assert row.gap_to_bound == pytest.approx(1 - 1.4 / row.objective)


def test_a_folder_holds_table_pictures_plan_and_trace(scenario: Scenario, tmp_path: Path) -> None:
    made = tn.compare(scenario, ["jit"], time_limit=20)
    written = {path.name for path in tn.save(made, tmp_path / "out" / "deep")}
    folder = tmp_path / "out" / "deep"
    assert written == {path.name for path in folder.iterdir()}
    with (folder / "table.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["policy"] for row in rows] == [row.policy for row in made.rows]
    assert float(rows[0]["mean_slowdown"]) == 1.4
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    runs = [event for event in events if event["ph"] == "X" and not event["name"].startswith("load")]
    assert len(runs) == 2 * scenario.instance.n_tasks  # the plan's and the online policy's
    for name in ("gantt_plan.png", "gantt_online.png", "slowdown_ecdf.png"):
        assert (folder / name).read_bytes().startswith(b"\x89PNG")
        assert (folder / name).with_suffix(".pdf").read_bytes().startswith(b"%PDF")
    assert (folder / "table.md").read_text().startswith("| policy | information used | mean slowdown |")
    assert r"jit & queue lengths & " in (folder / "table.tex").read_text()


def test_the_note_says_that_the_plan_knows_the_future(scenario: Scenario) -> None:
    made = tn.compare(scenario, ["jit"], time_limit=20)
    assert "knows every arrival in advance" in made.note
    assert "knows every arrival in advance" in html(made)


def test_a_policy_that_nobody_named_is_left_out_where_it_cannot_serve(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Two models of 6 GB on one GPU of 10 GB: who never swaps cannot serve both, everyone else can; lists are too long.
    monkeypatch.setattr("truenorth.planner.answers.compare.LONGEST_LISTS", 1)
    file = tmp_path / "two.yaml"
    file.write_text(TWO_MODELS)
    code, out, _ = call("compare", file, "--time-limit", "1", "--json", "-o", tmp_path / "out")
    found = json.loads(out)
    assert (code, list(found["left_out"])) == (0, ["static", "ahead"])
    assert {row["policy"] for row in found["rows"]} == {"plan", *DEFAULT_POLICIES} - {"static", "ahead"}
    assert "Left out: static: swaps nothing" in found["note"]
    saved = json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert ("static" in saved["command"], "jit" in saved["command"]) == (False, True)
    # Where it was asked for by name, there is no comparison without it.
    code, out, err = call("compare", file, "--time-limit", "1", "--policies", "jit,static")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "static swaps nothing" in err


def test_a_window_that_nobody_can_serve(tmp_path: Path, call: Call) -> None:
    # The same two models where nothing may be swapped: there is no plan, and no policy.
    file, folder = tmp_path / "two.yaml", tmp_path / "out"
    file.write_text(TWO_MODELS + "restrictions: {no_swaps: true}\n")
    code, out, _ = call("compare", file, "--time-limit", "1", "--json", "-o", folder)
    found = json.loads(out)
    assert (code, found["rows"], found["best"]) == (1, [], None)
    assert set(found["left_out"]) == set(DEFAULT_POLICIES)
    assert call("report", folder, "-o", tmp_path / "page.html")[0] == 0


def test_batches_are_compared_and_taken_apart(tmp_path: Path, call: Call) -> None:
    # Two tasks of 1 s that run together in 1 s: whoever batches ends both at 1, with slowdown 1.
    file = tmp_path / "batches.yaml"
    file.write_text(
        """\
cluster: {servers: 1, gpu: {kind: T4, memory: 10 GB, load_bandwidth: 10 GB/s}}
batches: {pair: {runtime: {1: 1 s, 2: 1 s}}}
workflows: {w: {tasks: {run: {batch: pair}}}}
workload: {jobs: [{release: 0 s, workflow: w}, {release: 0 s, workflow: w}]}
"""
    )
    code, out, _ = call("compare", file, "--time-limit", "1", "--policies", "jit", "--regret", "jit", "--json")
    found = json.loads(out)
    assert (code, [row["objective"] for row in found["rows"]]) == (0, [1.0, 1.0])
    assert [regret["policy"] for regret in found["regret"]] == ["jit"]


def test_a_note_is_text_in_a_notebook(scenario: Scenario) -> None:
    made = tn.compare(scenario, ["jit"], time_limit=1)
    assert "Left out: a&lt;b&gt;: x." in html(replace(made, left_out={"a<b>": "x"}))


def test_the_view_takes_policies_apart(scenario: Scenario) -> None:
    made = tn.compare(scenario, ["jit"], time_limit=20)
    console = Console(width=150, record=True, file=io.StringIO())
    console.print(comparison_view(made))
    (row,) = (line for line in console.export_text().splitlines() if "jit" in line and line.count("%") == 4)
    (apart,) = made.regrets
    assert [f"{float(loss.lost):.5g}" in row for loss in apart.losses] == [True] * 4


def test_the_text_of_an_answer_is_a_line(scenario: Scenario) -> None:
    made = tn.compare(scenario, ["jit", "hash"], time_limit=2)
    instance, timeline = scenario.instance, made.plan.timeline
    answers = [made, made.plan, made.plan.result, timeline, instance, instance.cluster, scenario, *made.simulations]
    assert [len(repr(answer)) < 600 and "\n" not in repr(answer) for answer in answers] == [True] * len(answers)
    assert repr(instance) == "<Instance of 2 jobs, 4 tasks, 1 models on 2 GPUs>"
    assert repr(made.simulations[0]).startswith("<Simulation of 'jit' on 'by-hand': mean_slowdown ")
