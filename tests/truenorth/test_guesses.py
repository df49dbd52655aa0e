"""Guesses that users of polars, PyPSA and scikit-learn make before they read anything: each finds its value."""

from __future__ import annotations

import copy
import inspect
import operator
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

import truenorth as tn
from tests.truenorth.test_face import SMALL
from truenorth.planner.answers.shown import Answer
from truenorth.planner.show import notebook

LOG = "release,model,runtime\n0,m,2\n1,m,2\n4,n,1\n"


@pytest.fixture
def scenario() -> tn.Scenario:
    return tn.load(SMALL)


@pytest.fixture(scope="module")
def plan() -> tn.Plan:
    return tn.load(SMALL).plan(time_limit="5 s", workers=1)


def test_a_class_loads_its_files(tmp_path: Path) -> None:
    tn.load(SMALL).save(tmp_path / "small.yaml")
    assert [job.release_us for job in tn.Scenario.load(tmp_path / "small.yaml").jobs] == [0, 0]


def test_a_scenario_has_its_parts(scenario: tn.Scenario) -> None:
    assert [gpu.id for gpu in scenario.cluster.gpus] == ["s0/g0", "s1/g0"]
    assert (len(scenario.jobs), len(scenario.models), len(scenario.workflows)) == (2, 1, 1)
    assert scenario.frame()["workflow"].tolist() == scenario.to_frame()["workflow"].tolist() == ["w", "w"]


def test_a_scenario_plans_itself_and_the_plan_has_its_gap(plan: tn.Plan) -> None:
    # Both jobs are loaded by 4 us, each on its own GPU, and end at 7 us.
    assert (plan.value, plan.lower_bound, plan.gap) == (7e-6, 7e-6, 0)
    assert (str(plan.status), plan.objective.value) == ("OPTIMAL", 7e-6)


def test_a_plan_draws_itself(plan: tn.Plan) -> None:
    assert isinstance(plan.gantt(), Figure)


def test_a_comparison_is_a_data_frame(scenario: tn.Scenario) -> None:
    compared = scenario.compare(["jit", "hash"], time_limit=5, workers=1)
    assert compared.to_frame()["value"].loc["plan"] == compared.frame()["value"].loc["jit"] == 7e-6


def test_a_policy_is_simulated_and_measured(scenario: tn.Scenario) -> None:
    assert scenario.simulate("jit").metrics.mean_latency_s == pytest.approx(7e-6)


def test_servers_and_bounds_are_plain_numbers(scenario: tn.Scenario) -> None:
    sized = scenario.servers("p99 latency <= 7 us", policies=["jit"], time_limit=5, workers=1)
    assert (sized.servers, sized.proved) == (2, True)
    assert sized.frame()["servers"].to_dict() == {"plan": 2, "jit": 2}
    bounded = scenario.bound(time_limit=5, workers=1)
    assert bounded.lower_bound == bounded.frame()["lower_bound"].item() == 7e-6
    assert scenario.verify(bounded).frame()["valid"].tolist() == [True]


def test_a_csv_is_read(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text(LOG)
    read = tn.read_csv(log, servers=2, memory="20 GB", weights="1 GB")
    assert [job.release_us for job in read.jobs] == [0, 1_000_000, 4_000_000]
    assert [gpu.memory_bytes for gpu in read.cluster.gpus] == [20_000_000_000] * 2
    assert [job.release_us for job in tn.read_csv(pd.read_csv(log), servers=2).jobs] == [0, 1_000_000, 4_000_000]


def test_answers_save_themselves(plan: tn.Plan, scenario: tn.Scenario, tmp_path: Path) -> None:
    [path] = plan.save(tmp_path / "plan.json")
    assert scenario.check(path).frame()["objective.value"].item() == 7e-6


def test_grids_are_asked_of_a_scenario(scenario: tn.Scenario) -> None:
    found = scenario.whatif({"cluster.servers": [1, 2]}, policy="jit", workers=1)
    assert found.to_frame()["value"].tolist() == pytest.approx([8.5e-6, 7e-6])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda s: operator.attrgetter("simulat")(tn), "module 'truenorth' has no 'simulat'; did you mean 'simulate'?"),
        (lambda s: s.plan(time_limt=5), "time_limt: is no option, did you mean 'time_limit'?"),
        (lambda s: s.simulate("fiffo"), "unknown policy 'fiffo' (did you mean fifo?)"),
        (lambda s: tn.read_csv("log.csv", sever=3), "sever: is no option, did you mean 'servers'?"),
        (lambda s: tn.read_csv("log.csv", servers=3, catalogue="open-models"), "servers: the catalogue, or the work"),
    ],
)
def test_wrong_guesses_are_answered_with_the_nearest_name(scenario: tn.Scenario, wrong: Any, message: str) -> None:
    with pytest.raises((AttributeError, tn.UserError), match=re.escape(message)):
        wrong(scenario)


def test_every_answer_says_itself_in_a_line_and_has_a_frame(scenario: tn.Scenario, plan: tn.Plan) -> None:
    asked: dict[str, Any] = {"time_limit": 5, "workers": 1}
    answers = [
        plan,
        scenario.simulate("jit"),
        scenario.bound(**asked),
        scenario.compare(["jit"], **asked),
        scenario.servers(policies=["jit"], **asked),
        scenario.servers_by("1 s", policies=["jit"], **asked),
        scenario.check(plan),
        scenario.whatif({"policy": ["jit"]}, workers=1),
    ]
    for answer in answers:
        assert isinstance(answer, Answer)
        assert len(answer.frame()) >= 1
        assert re.fullmatch(r"<\w+ .{1,120}>|<\w+: .{1,120}>", repr(answer)), repr(answer)
    assert [repr(one) for one in (scenario, scenario.jobs[0], scenario.cluster.gpus[0])] == [
        "<Scenario 'scenario': 2 jobs, 2 tasks, 1 models, 2 GPUs, mean_latency>",
        "<Job of 'w', released at 0 s>",
        "<GPU s0/g0: A, 1e-08 GB>",
    ]
    assert "mean latency" in notebook.html(scenario)


def test_methods_say_what_they_return_to_readers_and_to_type_checkers() -> None:
    stub = Path(tn.__file__).with_suffix(".pyi").read_text("utf-8")
    typed = set(re.findall(r"^    (\w+) = \1$", stub, re.MULTILINE))
    for name in typed:
        assert inspect.signature(getattr(tn.Scenario, name)) == inspect.signature(getattr(tn, name))
        assert inspect.signature(getattr(tn, name)).return_annotation not in ("", inspect.Signature.empty)
    assert typed == {name for name in dir(tn) if getattr(tn.Scenario, name, None) is getattr(tn, name)} - {"load"}


def test_every_view_of_a_notebook_is_of_a_class_that_there_is() -> None:
    for module, name in notebook._SHOWN:
        assert hasattr(__import__(module, fromlist=[name]), name)
        assert getattr(__import__(module, fromlist=[name]), name).__module__ == module


JOBS = pd.DataFrame({"release": [0.0, 4.0], "runtime": [1.0, 1.0], "gpus": [2, 1], "deadline": [9.0, 9.0]})


def test_numbers_of_an_import_are_numbers_or_text() -> None:
    """Twice the rate halves releases; a window is in seconds; 0 servers are none, and a frame is no file."""
    for factor in (2, 2.0, "2", np.int64(2)):
        assert [job.release_us for job in tn.read_csv(JOBS, rate_factor=factor).jobs] == [0, 2_000_000]
    assert len(tn.read_csv(JOBS, window=(0, 3)).jobs) == 1
    for wrong, message in (
        ({"rate_factor": "twice"}, "rate_factor: 'twice' is no number; allowed is one such as 2 or 0.5"),
        ({"servers": 0}, "servers: is 0; allowed is a whole number of at least 1"),
        ({"gpus_per_server": True}, "gpus_per_server: is True; allowed is a whole number of at least 1"),
    ):
        with pytest.raises(tn.QuestionError) as refused:
            tn.read_csv(JOBS, **wrong)
        assert str(refused.value) == message
    with pytest.raises(tn.InputError, match=r"^data frame:1: header: has no column 'runtime'"):
        tn.read_csv(JOBS.drop(columns="runtime"))


def test_columns_that_are_not_read_are_named() -> None:
    notes = tn.import_trace("table", JOBS).notes
    assert "column gpus is not read; gpus=gpus reads it" in notes
    assert "column deadline is not read; deadline=deadline reads it" in notes
    assert not [note for note in tn.import_trace("table:gpus=gpus", JOBS).notes if "column gpus" in note]


def test_tasks_on_several_gpus_name_them_all() -> None:
    made = tn.read_csv(JOBS, format="table:gpus=gpus", servers=1, gpus_per_server=2)
    assert made.simulate("fifo").tasks()["gpu"].tolist() == ["s0/g0+s0/g1", "s0/g0"]


def test_what_is_missing_is_answered_with_the_nearest_name(scenario: tn.Scenario, plan: tn.Plan) -> None:
    for owner, name, message in (
        (scenario, "simulat", "Scenario has no 'simulat'; did you mean 'simulate'?"),
        (plan, "vlaue", "Plan has no 'vlaue'; did you mean 'value'?"),
    ):
        with pytest.raises(AttributeError) as missing:
            getattr(owner, name)
        assert str(missing.value) == message
    assert copy.copy(scenario) == scenario


def test_an_answer_is_no_picture(plan: tn.Plan, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"^Plan is no picture; save its chart, such as answer.gantt"):
        plan.save(tmp_path / "plan.png")
    assert not list(tmp_path.iterdir())


def test_a_verdict_says_itself(scenario: tn.Scenario) -> None:
    made = scenario.bound(time_limit=5)
    assert repr(scenario.verify(made)).startswith("<valid: no plan is below ")
    assert repr(scenario.verify({})).startswith("<not valid: ")
