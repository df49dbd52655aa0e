"""WfCommons: an instance is a job, programs are models, and edges carry the files that are handed on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import truenorth as tn
from tests.planner.inputs.importers.small import written
from truenorth.models.scenario import InputError, load_scenario
from truenorth.models.workload import Edge


def specified(
    name: str, parents: list[str], children: list[str], reads: list[str], writes: list[str]
) -> dict[str, Any]:
    return {
        "name": f"{name}_task",
        "id": name,
        "parents": parents,
        "children": children,
        "inputFiles": reads,
        "outputFiles": writes,
    }


def executed(name: str, seconds: float, program: str | None) -> dict[str, Any]:
    made: dict[str, Any] = {"id": name, "runtimeInSeconds": seconds, "machines": ["m1"]}
    return made if program is None else made | {"command": {"program": program, "arguments": ["-v"]}}


def instance() -> dict[str, Any]:
    """Return split (2.5 s) before two copies of blast (100 s; less than 1 us), both before cat (0.75 s)."""
    return {
        "name": "blast-small",
        "schemaVersion": "1.5",
        "workflow": {
            "specification": {
                "tasks": [
                    specified("split", [], ["b1", "b2"], ["all.fa"], ["1.fa", "2.fa", "log"]),
                    specified("b1", ["split"], ["cat"], ["1.fa", "log", "db"], ["1.out"]),
                    specified("b2", ["split"], ["cat"], ["2.fa"], ["2.out"]),
                    specified("cat", ["b1", "b2"], [], ["1.out"], ["result"]),
                ],
                "files": [
                    {"id": name, "sizeInBytes": size}
                    for name, size in {"all.fa": 900, "1.fa": 400, "2.fa": 500, "log": 7, "db": 10**9}.items()
                ]
                + [{"id": "1.out", "sizeInBytes": 30}, {"id": "2.out", "sizeInBytes": 40}],
            },
            "execution": {
                "makespanInSeconds": 104,
                "executedAt": "2020-12-27T18:23:37+00:00",
                "tasks": [
                    executed("b1", 100.0, "blastall"),
                    executed("split", 2.5, "split_fasta"),
                    executed("b2", 0.0, "blastall"),
                    executed("cat", 0.75, "cat a b\n  > c"),
                ],
            },
        },
    }


def log(folder: Path, made: object, name: str = "blast-small.json") -> Path:
    return written(folder, json.dumps(made, indent=1), name)


def test_programs_are_models_and_edges_carry_the_files_handed_on(tmp_path: Path) -> None:
    made = tn.import_trace("wfcommons", [log(tmp_path, instance())])
    [workflow] = made.workload.workflows
    assert workflow.name == "blast-small"
    assert [(task.name, task.fastest_us, task.models, task.inputs) for task in workflow.tasks] == [
        ("split", 2_500_000, ("split_fasta",), ()),
        ("b1", 100_000_000, ("blastall",), (Edge("split", 407),)),  # the data base is nobody's output
        ("b2", 1, ("blastall",), (Edge("split", 500),)),
        ("cat", 750_000, ("cat_task",), (Edge("b1", 30), Edge("b2", 0))),  # it does not read 2.out
    ]
    assert made.tally.notes == [
        "tasks that ran for less than 1 us and count as 1 us: 1",
        "tasks whose model is their own name, as the program is a script or missing: 1",
    ]
    built = load_scenario(made.save(tmp_path / "scenario.yaml")[0]).instance
    # 2.5 + 100 + 0.75 s; 407 bytes over 10 Gbit/s take 0.3256 us, which counts as 1 us.
    assert built.jobs[0].critical_path_us == 103_250_000
    assert (len(built.models), int(built.transfer_us.max())) == (3, 1)


def test_each_file_is_a_job_or_several(tmp_path: Path) -> None:
    files = [log(tmp_path, instance(), name) for name in ("one.json", "two.json.gz")]
    made = tn.import_trace("wfcommons:copies=2,interval=10s", files)
    assert [made.workload.workflows[w].name for w in made.workload.workflow] == ["one", "one", "two", "two"]
    assert made.workload.release_us.tolist() == [0, 10_000_000, 20_000_000, 30_000_000]


def test_files_may_be_left_out_altogether(tmp_path: Path) -> None:
    bare = instance()
    del bare["workflow"]["specification"]["files"]
    for task in bare["workflow"]["specification"]["tasks"]:
        del task["inputFiles"], task["outputFiles"]
    made = tn.import_trace("wfcommons", [log(tmp_path, bare)])
    assert {edge.size_bytes for task in made.workload.workflows[0].tasks for edge in task.inputs} == {0}


Change = Callable[[dict[str, Any]], object]


def tasks(made: dict[str, Any]) -> Any:
    return made["workflow"]["specification"]["tasks"]


def runs(made: dict[str, Any]) -> Any:
    return made["workflow"]["execution"]["tasks"]


def files(made: dict[str, Any]) -> Any:
    return made["workflow"]["specification"]["files"]


SPECIFIED = r"workflow.specification.tasks"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda i: i.update(schemaVersion="1.3"), "schemaVersion: is '1.3'; allowed is 1.5 or 1.6"),
        (lambda i: i["workflow"].pop("execution"), "workflow: key 'execution' is missing"),
        (lambda i: i["workflow"].update(specification=[]), "workflow.specification: a list stands here"),
        (lambda i: tasks(i).clear(), f"{SPECIFIED}: is empty"),
        (lambda i: tasks(i)[1].update(id="split"), rf"{SPECIFIED}\[1\].id: 'split' occurs twice"),
        (lambda i: tasks(i)[1].pop("parents"), rf"{SPECIFIED}\[1\]: key 'parents' is missing"),
        (lambda i: tasks(i)[1].update(parents="split"), rf"{SPECIFIED}\[1\].parents: the value 'split' stands here"),
        (lambda i: tasks(i)[1].update(parents=["x"]), rf"{SPECIFIED}\[1\].parents\[0\]: 'x' is no task"),
        (lambda i: tasks(i)[3]["parents"].append("b1"), rf"{SPECIFIED}\[3\].parents\[2\]: 'b1' is named twice"),
        (
            lambda i: tasks(i)[3]["parents"].pop(),
            rf"{SPECIFIED}\[2\].children\[0\]: 'cat' does not name 'b2' as its parent",
        ),
        (
            lambda i: tasks(i)[2]["children"].pop(),
            rf"{SPECIFIED}\[3\].parents\[1\]: 'b2' does not name 'cat' as its child",
        ),
        (
            lambda i: tasks(i)[2]["outputFiles"].append("log"),
            rf"{SPECIFIED}\[2\].outputFiles\[1\]: 'log' is also written",
        ),
        (lambda i: files(i).pop(3), rf"{SPECIFIED}\[1\].inputFiles\[1\]: 'log' is not among the files"),
        (lambda i: files(i)[0].update(sizeInBytes=-1), r"files\[0\].sizeInBytes: the value '-1' is no size"),
        (lambda i: files(i)[0].update(sizeInBytes=1.5), r"files\[0\].sizeInBytes: the value '1.5' is no size"),
        (lambda i: files(i)[1].update(sizeInBytes=10**16), r"inputFiles\[1\]: makes more than 1e\+16 bytes"),
        (lambda i: files(i)[1].update(id="2.fa"), r"files\[2\].id: '2.fa' occurs twice"),
        (
            lambda i: runs(i)[0].update(runtimeInSeconds=-1),
            r"tasks\[0\].runtimeInSeconds: the value '-1' is no time in range",
        ),
        (lambda i: runs(i)[0].update(runtimeInSeconds="9"), r"tasks\[0\].runtimeInSeconds: the value '9' is no time"),
        (lambda i: runs(i)[0].update(id="b9"), r"workflow.execution.tasks\[0\].id: 'b9' is not specified"),
        (lambda i: runs(i).pop(), rf"{SPECIFIED}\[3\]: task 'cat' was not executed"),
        (
            lambda i: runs(i)[0].update(command="ls"),
            r"workflow.execution.tasks\[0\].command: the value 'ls' stands here",
        ),
    ],
)
def test_malformed_instances_are_refused_by_line_or_counted(tmp_path: Path, change: Change, message: str) -> None:
    bad = instance()
    change(bad)
    paths = [log(tmp_path, instance(), "good.json"), log(tmp_path, bad, "bad.json")]
    with pytest.raises(InputError, match=rf"bad.json:\d+: .*{message}"):
        tn.import_trace("wfcommons", paths)
    made = tn.import_trace("wfcommons", paths, skip_malformed=True)
    assert (made.tally.read, made.tally.refused.total(), len(made.workload.release_us)) == (2, 1, 1)


def test_the_line_is_that_of_the_field(tmp_path: Path) -> None:
    # One key or bracket per line: line 5 opens specification, 6 tasks, 7 the first task, whose name stands on 8.
    bad = instance()
    bad["workflow"]["specification"]["tasks"][0]["id"] = 7
    with pytest.raises(InputError, match=rf"bad.json:9: {SPECIFIED}\[0\].id: the value '7' stands here"):
        tn.import_trace("wfcommons", [log(tmp_path, bad, "bad.json")])


def test_a_cycle_is_refused_at_one_of_its_tasks(tmp_path: Path) -> None:
    bad = instance()
    tasks(bad)[0]["parents"].append("cat")
    tasks(bad)[3]["children"].append("split")
    with pytest.raises(
        InputError, match=rf"bad.json:\d+: {SPECIFIED}\[\d\]: is part of a cycle: '\w+' -> .*allowed is a DAG"
    ):
        tn.import_trace("wfcommons", [log(tmp_path, bad, "bad.json")])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "bad.json:1: file: a value is missing, the text ends"),
        ("[]", "bad.json:1: document: a list stands here; allowed is a mapping"),
        ('{"a": 1,\n"a": 2}', "bad.json:2: a: duplicate key"),
        ('{"schemaVersion": ' + "[" * 100_000, "bad.json:1: file: is nested deeper than 50 levels"),
        ('{"schemaVersion": "\ud800"}', "bad.json:1: "),
    ],
)
def test_what_is_no_instance_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = written(tmp_path, text.encode(errors="surrogatepass"), "bad.json")
    with pytest.raises(InputError, match=message):
        tn.import_trace("wfcommons", [path])
