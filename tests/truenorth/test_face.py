"""The public face: every name loads, what a person gives is read, answers have their tables, the import is light."""

from __future__ import annotations

import inspect
import math
import operator
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import truenorth as tn
from truenorth.planner.questions.options import name_of, options_of
from truenorth.planner.questions.searches import PlanQuestion

SMALL = {
    "cluster": {
        "servers": 2,
        "gpu": {"kind": "A", "memory": "10 B", "load_bandwidth": "1 MB/s"},
        "network": {"bandwidth": "1 MB/s"},
    },
    "models": {"m": {"weights": "4 B"}},
    "workflows": {"w": {"tasks": {"a": {"models": ["m"], "runtime": "3 us"}}}},
    "workload": {"jobs": [{"release": "0 us", "workflow": "w"}, {"release": "0 us", "workflow": "w"}]},
    "objective": "mean_latency",
    "slo": "p99 latency <= 7 us",
}
"""Two jobs at 0 on two GPUs: each is loaded by 4 and ends at 7; on one GPU alone the second ends at 10."""


@pytest.fixture
def scenario() -> tn.Scenario:
    return tn.load(SMALL)


@pytest.mark.parametrize("name", [*dir(tn), "Profile", "Replayed", "Trial"])
def test_every_public_name_is_found(name: str) -> None:
    assert getattr(tn, name).__name__ == name


def test_everything_but_types_of_devices_is_imported_by_a_star() -> None:
    found: dict[str, Any] = {}
    exec("from truenorth import *", found)  # noqa: S102
    assert found.keys() - {"__builtins__"} == set(dir(tn))
    assert not found.keys() & {"Profile", "Replayed", "Trial"}


def test_the_import_waits_for_nothing_heavy() -> None:
    code = (
        "import sys; import truenorth as tn; print(sorted({name.partition('.')[0] for name in sys.modules} & "
        "{'ortools', 'pulp', 'highspy', 'torch', 'numba', 'numpy', 'pandas', 'pydantic', 'matplotlib'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    assert done.stdout == "[]\n"


def test_an_unknown_name_is_answered_with_the_nearest_or_with_all() -> None:
    with pytest.raises(AttributeError, match=r"module 'truenorth' has no 'plna'; did you mean 'plan'\?"):
        operator.attrgetter("plna")(tn)
    with pytest.raises(AttributeError, match=r"module 'truenorth' has no 'xyzzy'; it has .*plan"):
        operator.attrgetter("xyzzy")(tn)


def test_a_scenario_may_be_a_file_or_data(scenario: tn.Scenario, tmp_path: Path) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(str(SMALL).replace("'", '"'))
    for given in (path, str(path), SMALL, scenario):
        assert tn.simulate(given, "jit").jobs()["completion_s"].max() == pytest.approx(7e-6)
    assert tn.load(scenario) is scenario


def test_a_plan_says_its_value_in_seconds_and_has_its_tables(scenario: tn.Scenario) -> None:
    plan = tn.plan(scenario, time_limit="5 s", method="search", iterations=10, workers=1)
    assert (plan.value, plan.lower_bound) == (7e-6, 7e-6)
    assert plan.jobs()["latency_s"].tolist() == pytest.approx([7e-6, 7e-6])
    assert plan.tasks()["start_s"].tolist() == pytest.approx([4e-6, 4e-6])
    assert plan.residencies()["model"].tolist() == ["m", "m"]
    assert tn.check(scenario, plan).violations == []
    assert tn.plan(scenario, time_limit=5, hint=plan, iterations=1, workers=1).value == 7e-6


def test_a_saved_plan_is_checked_hinted_and_simulated(scenario: tn.Scenario, tmp_path: Path) -> None:
    made = tn.plan(scenario, time_limit="5 s", method="search", iterations=10, workers=1)
    [path] = tn.save(made, tmp_path / "plan.json")
    assert tn.check(scenario, path).value == 7e-6
    assert tn.check(scenario, str(path)).record.valid
    assert tn.simulate(scenario, path).metrics == made.metrics
    assert tn.plan(scenario, time_limit="5 s", hint=path, iterations=1, workers=1).value == 7e-6


def test_a_bound_is_verified_and_a_claim_above_it_is_refused(scenario: tn.Scenario, tmp_path: Path) -> None:
    made = tn.bound(scenario, time_limit="5 s", workers=1)
    found = tn.verify(scenario, made)
    assert (found.valid, found.lower_bound, found.reason) == (True, 7e-6, None)
    [path] = tn.save(made, tmp_path / "certificate.json")
    assert tn.verify(scenario, path).valid
    assert not tn.verify(scenario, made.certificate | {"lower_bound": 1.0}).valid


def test_comparisons_servers_and_grids_have_frames(scenario: tn.Scenario) -> None:
    compared = tn.compare(scenario, "jit,hash", time_limit="5 s", workers=1)
    frame = compared.frame()[["objective", "unit", "value"]]
    assert frame.to_dict("index")["plan"] == {"objective": "mean_latency", "unit": "s", "value": 7e-6}
    assert compared.jobs("hash")["job"].tolist() == [0, 1]
    assert tn.compare(scenario, ["jit"], time_limit=5, workers=1, warmup=0.1, regret=["jit"]).regrets[0].policy == "jit"
    assert tn.servers(scenario, policies=["jit"], time_limit="5 s", workers=1).servers == 2
    assert tn.servers(scenario, "p99 latency <= 10 us", policies="jit", time_limit=5, workers=1).servers == 1
    grid = tn.whatif(SMALL, {"policy": ["jit", "hash"]}, workers=1).frame()
    assert grid["policy"].tolist() == ["jit", "hash"]


def test_a_plan_a_simulation_and_a_scenario_have_frames(scenario: tn.Scenario) -> None:
    due = scenario.changed({"workload.jobs[1].deadline": "5 us", "workload.jobs[1].weight": 3})
    for answer in (tn.plan(due, time_limit="5 s", workers=1), tn.simulate(due, "jit")):
        [row] = tn.frame(answer).to_dict("records")
        assert (row["objective"], row["unit"], row["value"], row["jobs"]) == ("mean_latency", "s", 7e-6, 2)
        assert tn.jobs(answer)["tardiness_s"].tolist() == pytest.approx([0, 2e-6])  # they end at 7, one is due at 5
        assert tn.jobs(answer)["deadline_s"].tolist() == pytest.approx([math.nan, 5e-6], nan_ok=True)
    jobs = tn.frame(due)
    assert jobs["weight"].tolist() == [1, 3]
    assert jobs["critical_path_s"].tolist() == jobs["ideal_s"].tolist() == [3e-6, 3e-6]
    assert jobs["tasks"].tolist() == [1, 1]


WRONG = [
    ("method", "fast", "method: 'fast' is unknown; allowed are auto, cp-sat, milp, search"),
    ("time_limit", "5 parsecs", "time_limit: '5 parsecs' is no time limit; write seconds, at least 0.1, or a time"),
    ("time_limit", 0, "time_limit: 0 is no time limit; write seconds, at least 0.1, or a time: 10 s, 2 min"),
    ("time_limit", [], r"time_limit: \[\] is no time limit"),
    ("time_limit", float("inf"), "time_limit: inf is no time limit"),
    ("workers", 0, "workers: 0 is no such number; allowed is a whole number from 1 to 64"),
    ("workers", 1.5, "workers: 1.5 is no such number"),
    ("seed", -1, "seed: -1 is no such number; allowed is a whole number from 0 to 2147483647"),
    ("seed", True, "seed: True is no such number"),
    ("iterations", 0, "iterations: 0 is no such number; allowed is a whole number from 1"),
    ("time_limit_s", 5, "time_limit_s: is no option, did you mean .time_limit.[?]; allowed are time_limit, method"),
]


@pytest.mark.parametrize(("name", "value", "message"), WRONG)
def test_what_is_no_option_is_refused_in_one_line(scenario: tn.Scenario, name: str, value: Any, message: str) -> None:
    with pytest.raises(tn.QuestionError, match=message) as refused:
        tn.plan(scenario, **{name: value})
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("call", "named", "message"),
    [
        (tn.compare, {"policies": [1]}, "policies: .1. names no policies"),
        (tn.compare, {"warmup": 1.5}, "warmup: 1.5 is no share; allowed is a number of at least 0 and below 1"),
        (tn.compare, {"warmup": "lots"}, "warmup: 'lots' is no share"),
        (tn.servers, {"slo": "p99 slowness <= 2"}, "slo: 'p99 slowness <= 2' is no service level; allowed are"),
        (tn.servers, {"rate": 0}, "rate: 0 is out of range; allowed is 0.01 to 100"),
        (tn.servers, {"max": 0}, "max: 0 is no such number; allowed is a whole number from 1 to 100000"),
        (tn.servers, {"spare": 21}, "spare: 21 is no such number; allowed is a whole number from 0 to 20"),
        (tn.servers_by, {"by": "an hour"}, "by: 'an hour' is no time"),
        (tn.simulate, {"policy": "compas"}, "unknown policy 'compas'"),
        (tn.simulate, {"policy": "jit", "noise": "loud"}, "loud"),
        (tn.replay, {"plan": "jit", "device": "tpu"}, "device: 'tpu' is unknown; allowed are cpu, cuda"),
        (tn.replay, {"plan": "jit", "virtual": "both"}, "virtual: 'both' is unknown; allowed are parallel, serial"),
        (tn.replay, {"plan": "jit", "runner": "magic"}, "magic"),
        (tn.profile, {"device": "tpu"}, "device: 'tpu' is unknown"),
        (tn.trial, {"time_limit": "soon"}, "time_limit: 'soon' is no time"),
    ],
)
def test_other_calls_refuse_in_one_line(scenario: tn.Scenario, call: Any, named: dict[str, Any], message: str) -> None:
    with pytest.raises(tn.UserError, match=message) as refused:
        call(scenario, **named)
    assert "\n" not in str(refused.value)


def test_words_of_the_command_mean_what_they_mean_there(scenario: tn.Scenario) -> None:
    for method in ("auto", "cp-sat", "milp", "search"):
        made = tn.plan(scenario, method=method, time_limit="5 s", iterations=10, workers=1)
        assert made.result.options["method"] == method
    default = tn.plan(scenario, time_limit="5 s", iterations=10, workers=1)
    assert (
        default.result.options
        == tn.plan(scenario, method="auto", time_limit=5, iterations=10, workers=1).result.options
    )


def test_help_shows_the_options_of_the_question() -> None:
    names = list(inspect.signature(tn.plan).parameters)
    assert names == ["scenario", *(name_of(each) for each, _ in options_of(PlanQuestion))]
    assert "Time for everything together; plain numbers are seconds." in (tn.plan.__doc__ or "")
