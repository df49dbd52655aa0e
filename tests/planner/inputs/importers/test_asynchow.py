"""AsyncHow: plans become DAGs without models; the longest path is compared with the published answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import truenorth as tn
from tests.planner.inputs.importers.small import written
from truenorth.models.scenario import InputError, load_scenario
from truenorth.models.workload import Edge


def plan(name: str = "p1", **changes: Any) -> dict[str, Any]:
    """Return steps 1 (60 s) and 2 (30 to 90 s) before 3 (10 s): 70 s at the low ends, 100 s at the high ends."""
    made: dict[str, Any] = {
        "id": name,
        "title": "How to make tea",
        "n": 3,
        "durations_s": {"1": [60.0, 60.0], "2": [30.0, 90.0], "3": [10.0, 10.0]},
        "edges": [["START", "1"], ["START", "2"], ["1", "3"], ["2", "3"], ["3", "END"]],
        "answer_s": [70.0, 100.0],
    }
    return made | changes


def lines(*plans: object) -> str:
    return "".join(json.dumps(one) + "\n" for one in plans)


@pytest.mark.parametrize(("options", "second_us", "longest_us"), [("", 30, 70), (":duration=high", 90, 100)])
def test_a_plan_is_a_job_and_its_steps_are_tasks(tmp_path: Path, options: str, second_us: int, longest_us: int) -> None:
    made = tn.import_trace(f"asynchow{options}", [written(tmp_path, lines(plan()), "plans.jsonl.gz")])
    [workflow] = made.workload.workflows
    assert [(task.name, task.fastest_us, task.models, task.inputs) for task in workflow.tasks] == [
        ("1", 60_000_000, (), ()),
        ("2", second_us * 1_000_000, (), ()),
        ("3", 10_000_000, (), (Edge("1", 0), Edge("2", 0))),
    ]
    assert workflow.critical_path_us == longest_us * 1_000_000
    assert not made.tally.notes
    instance = load_scenario(made.save(tmp_path / "scenario.yaml")[0]).instance
    assert [job.critical_path_us for job in instance.jobs] == [longest_us * 1_000_000]


def test_plans_are_released_at_once_or_one_by_one(tmp_path: Path) -> None:
    files = [written(tmp_path, lines(plan("p1"), plan("p2")), "a"), written(tmp_path, lines(plan("p3")), "b")]
    made = tn.import_trace("asynchow", files)
    assert made.workload.release_us.tolist() == [0, 0, 0]
    made = tn.import_trace("asynchow:copies=2,interval=1.5s", files)
    assert made.workload.release_us.tolist() == [1_500_000 * job for job in range(6)]
    assert [made.workload.workflows[w].name for w in made.workload.workflow] == ["p1", "p1", "p2", "p2", "p3", "p3"]
    with pytest.raises(InputError, match="releases go beyond"):
        tn.import_trace("asynchow:interval=300000h", files)


def test_an_answer_that_is_no_longest_path_is_noted(tmp_path: Path) -> None:
    made = tn.import_trace("asynchow", [written(tmp_path, lines(plan("p1"), plan("p2", answer_s=[71.0, 100.0])))])
    assert made.tally.notes == ["plans whose published answer is not their longest path: 1 (p2)"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"id": "p1"}, "log.csv:3: id: 'p1' stands in an earlier plan"),
        ({"durations_s": {}}, "log.csv:3: durations_s: is empty"),
        ({"durations_s": {"1": [60.0]}}, "log.csv:3: durations_s.1: has 1 entries; allowed are two"),
        ({"durations_s": {"1": [60, 50]}}, "log.csv:3: durations_s.1: is no range of times"),
        ({"durations_s": {"1": [0, 50]}}, "log.csv:3: durations_s.1: is no range of times"),
        ({"durations_s": {"1": [-1, 50]}}, r"log.csv:3: durations_s.1\[0\]: the value '-1' is no time in range"),
        ({"durations_s": {"1": ["60", 60]}}, r"log.csv:3: durations_s.1\[0\]: the value '60' is no time in range"),
        ({"durations_s": {"1": [1e99, 1e99]}}, r"log.csv:3: durations_s.1\[0\]: .* is no time in range"),
        ({"durations_s": {"START": [1, 1]}}, "log.csv:3: durations_s.START: is a bound of the plan"),
        ({"durations_s": [60.0]}, "log.csv:3: durations_s: a list stands here; allowed is a mapping"),
        ({"edges": [["1", "9"]]}, r"log.csv:3: edges\[0\]\[1\]: '9' is no step"),
        ({"edges": [["END", "1"]]}, r"log.csv:3: edges\[0\]\[0\]: 'END' is no step"),
        ({"edges": [["1", "2", "3"]]}, r"log.csv:3: edges\[0\]: has 3 entries; allowed are two"),
        ({"edges": [["1", "2"], ["1", "2"]]}, r"log.csv:3: edges\[1\]: '1' before '2' stands twice"),
        (
            {"edges": [["1", "2"], ["2", "3"], ["3", "1"]]},
            "log.csv:3: durations_s.1: is part of a cycle: '1' -> '2' -> '3' -> '1'",
        ),
        ({"edges": [["1", "1"]]}, "log.csv:3: durations_s.1: is part of a cycle: '1' -> '1'"),
        ({"answer_s": None}, "log.csv:3: answer_s: nothing stands here; allowed is a list"),
    ],
)
def test_malformed_plans_are_refused_by_line_or_counted(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    log = written(tmp_path, lines(plan("p1")) + "\n" + lines(plan("p2") | changes))
    with pytest.raises(InputError, match=message):
        tn.import_trace("asynchow", [log])
    made = tn.import_trace("asynchow", [log], skip_malformed=True)
    assert (made.tally.read, made.tally.refused.total(), len(made.workload.release_us)) == (2, 1, 1)


def test_a_line_that_is_no_json_is_refused_or_counted(tmp_path: Path) -> None:
    log = written(tmp_path, lines(plan("p1")) + '{"id": \n' + lines(plan("p2")))
    with pytest.raises(InputError, match=r"log.csv:2: file: a value is missing"):
        tn.import_trace("asynchow", [log])
    assert tn.import_trace("asynchow", [log], skip_malformed=True).tally.refused == {"row: is no JSON": 1}


def test_deep_plans_are_no_problem(tmp_path: Path) -> None:
    steps = {str(step): [1, 1] for step in range(5_000)}
    edges = [[str(step), str(step + 1)] for step in range(4_999)]
    deep = plan("deep", durations_s=steps, edges=edges, answer_s=[5_000, 5_000])
    made = tn.import_trace("asynchow", [written(tmp_path, lines(deep))])
    assert made.workload.workflows[0].critical_path_us == 5_000_000_000
    assert not made.tally.notes
    edges.append(["4999", "0"])
    with pytest.raises(InputError, match=r"is part of a cycle: ('\d+' -> ){6}\.\.\.; allowed"):
        tn.import_trace("asynchow", [written(tmp_path, lines(plan("deep", durations_s=steps, edges=edges)))])
