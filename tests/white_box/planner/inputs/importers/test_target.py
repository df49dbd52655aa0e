"""Requests that drive the workflows of a scenario."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import truenorth as tn
from tests.command import app, run
from tests.planner.inputs.importers.small import table, written
from truenorth.models.scenario import InputError, load_scenario
from truenorth.planner.inputs.importers.target import Driven
from truenorth.planner.inputs.importers.trace import Imported
from truenorth.planner.show.inputs import summary_rows

BASE = """\
# A cluster of one's own.
name: mine
cluster:
  servers: 2
  gpu: {kind: T4, memory: 8 GB, load_bandwidth: 1 GB/s}
  network: {bandwidth: 10 GB/s}
models: {small: {weights: 1 GB}, large: {weights: 4 GB}}
workload:
  jobs:
    - {release: 0 s, workflow: long}
# What jobs are made of.

workflows:
  long:
    tasks:
      a: {models: [large], runtime: 2 s}
      b: {models: [small], runtime: 1 s, after: [a]}
  short:
    tasks:
      a: {models: [small], runtime: 500 ms}
objective: mean_latency
"""
LOG = "release,model,runtime\n0,x,9\n1,y,3\n2,x,1\n3,y,3\n5,z,4\n"


def driven(folder: Path, base: str = BASE, name: str = "base.yaml") -> Imported:
    return tn.import_trace("table", [written(folder, LOG)], driven=Driven.load(written(folder, base, name)))


def test_the_shorter_half_of_the_requests_becomes_the_smaller_workflow(tmp_path: Path) -> None:
    made = driven(tmp_path)
    # Run times 9 3 1 3 4: in order, equal ones by release, the requests at 2, 1, 3 | 5, 0 s; 2 rank // 5 is 0 0 0 1 1.
    names = [made.workload.workflows[index].name for index in made.workload.workflow]
    assert names == ["long", "short", "short", "short", "long"]
    assert made.workload.release_us.tolist() == [0, 1_000_000, 2_000_000, 3_000_000, 5_000_000]
    unknown = "no model of the log is one of the scenario's"
    assert made.workload.mapping == f"requests by run time, shortest first, in 2 equal parts: short, long; {unknown}"
    # Work 2 x 3 s + 3 x 0.5 s = 7.5 s over 5 s on two GPUs; loads: twice 4 s, five times 1 s.
    assert made.summary.fluid_load == pytest.approx(0.75)
    assert made.summary.load_of_loads == pytest.approx(1.3)


@pytest.mark.parametrize("names", [("long", "short"), ("large", "short")])
def test_names_of_the_log_choose_the_workflow(tmp_path: Path, names: tuple[str, str]) -> None:
    # By run time the first request would be the long one; `large` is a model of the workflow `long` alone.
    base = Driven.load(written(tmp_path, BASE, "base.yaml"))
    log = written(tmp_path, table(f"0,{names[1]},9", f"1,{names[0]},3", f"2,{names[1]},1"))
    made = tn.import_trace("table", [log], driven=base)
    assert [made.workload.workflows[index].name for index in made.workload.workflow] == ["short", "long", "short"]
    assert made.workload.mapping == "requests by the name of their model, among 2 workflows"


@pytest.mark.parametrize(
    ("name", "why"), [("small", "'small' is needed by 2 workflows"), ("gpt", "'gpt' is none of the scenario's")]
)
def test_a_log_that_names_some_workflows_only_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, why: str
) -> None:
    log = written(tmp_path, table("0,long,9", f"1,{name},3", "2,short,1"))
    base = written(tmp_path, BASE, "base.yaml")
    assert run(app, ["import", "table", str(log), "--workflows", str(base)]) == 2
    said = "--workflows: 2 of 3 requests name a workflow, or a model of one workflow alone; 1 do not: "
    assert said + why in capsys.readouterr().err


def test_what_no_request_drives_does_not_count(tmp_path: Path) -> None:
    base = Driven.load(written(tmp_path, BASE, "base.yaml"))
    made = tn.import_trace("table", [written(tmp_path, table("0,x,1"))], driven=base)
    figures = made.summary.as_dict()
    assert len(made.workload.workflows) == 2
    assert (figures["workflows"], figures["models"], sum(made.summary.model_requests.values())) == (1, 1, 1)
    assert ", 1 workflow;" in summary_rows(made)["jobs"]


def test_the_scenario_keeps_its_text_around_the_arrivals(tmp_path: Path) -> None:
    made = driven(tmp_path)
    path, trace = made.save(tmp_path / "driven.yaml")
    text = path.read_text()
    before, after = BASE.split("workload:")[0], BASE[BASE.index("# What jobs") :]
    assert text.startswith(before + "# Made by truenorth import table")
    assert text.endswith(after)
    assert trace.read_text().splitlines()[1:3] == ["0,long,2", "1000000,short,3"]
    loaded = load_scenario(path)
    assert loaded.instance == made.scenario.instance
    assert [job.workflow.name for job in loaded.instance.jobs] == ["long", "short", "short", "short", "long"]
    assert loaded.objective == "mean_latency"


def test_json_drives_json(tmp_path: Path) -> None:
    content = {
        "cluster": {"servers": 1, "gpu": {"kind": "T4", "memory": "8 GB", "load_bandwidth": "1 GB/s"}},
        "models": {"m": {"weights": "1 GB"}},
        "workflows": {"w": {"tasks": {"a": {"models": ["m"], "runtime": "1 s"}}}},
        "workload": {"jobs": [{"release": "0 s", "workflow": "w"}]},
    }
    made = driven(tmp_path, json.dumps(content), "base.json")
    path, _ = made.save(tmp_path / "driven.json")
    assert len(load_scenario(path).instance.jobs) == 5
    with pytest.raises(InputError, match=r"is not of the sort of base.json; allowed is a name that ends in .json"):
        made.save(tmp_path / "driven.yaml")


def test_sections_must_begin_lines(tmp_path: Path) -> None:
    made = driven(tmp_path, BASE.replace("workload:", "? workload\n:"))
    with pytest.raises(InputError, match=r"base.yaml:8: workload: does not begin a line"):
        made.save(tmp_path / "driven.yaml")


@pytest.mark.parametrize("option", [["--servers", "3"], ["--runtime-classes", "4"], ["--weights", "1 GB"]])
def test_what_the_scenario_brings_cannot_be_asked_for(
    option: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, base = written(tmp_path, LOG), written(tmp_path, BASE, "base.yaml")
    assert run(app, ["import", "table", str(log), "--workflows", str(base), *option]) == 2
    assert "--workflows: brings cluster, models and run times" in capsys.readouterr().err


def test_the_scenario_is_never_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, base = written(tmp_path, LOG), written(tmp_path, BASE, "base.yaml")
    assert run(app, ["import", "table", str(log), "--workflows", str(base), "-o", str(base)]) == 2
    assert base.read_text() == BASE
    assert "is both read and written" in capsys.readouterr().err
