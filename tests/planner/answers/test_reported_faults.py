"""Faults that people who tried the project reported, and inputs of the same kinds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import truenorth as tn
from tests.command import app, run
from truenorth.executor import parse_policy, simulate
from truenorth.executor.policies.baselines import Jit
from truenorth.models.feasibility import check
from truenorth.models.objective import Objective
from truenorth.models.scenario import Scenario
from truenorth.solvers.bounds import closed_form
from truenorth.solvers.bounds.certificate import closed_form_document
from truenorth.solvers.bounds.verify import verify
from truenorth.solvers.rounding import round_up

GPU = {"kind": "A", "memory": "3 MB", "load_bandwidth": "1 MB/s"}
CLUSTER = {"servers": 2, "gpu": GPU, "network": {"bandwidth": "1 MB/s"}}
MODELS = {"m": {"weights": "1 MB"}, "n": {"weights": "2 MB"}}
STREAM = {"models": ["m"], "prefill": "1000 /s", "chunk": 4, "concurrency": 1, "step": {1: "20 ms"}}
REQUEST = {"stream": "c", "prompt": 1, "output_tokens": 2}


def scenario(**changed: Any) -> Scenario:
    """Return one job of one task of 3 s without models on two GPUs, with other sections."""
    data = {
        "cluster": CLUSTER,
        "models": MODELS,
        "workflows": {"w": {"tasks": {"t": {"runtime": "3 s"}}}},
        "workload": {"jobs": [{"release": "0 s", "workflow": "w"}]},
        "objective": "mean_latency",
    }
    return tn.load(data | changed)


def requests(**changed: Any) -> Scenario:
    """Return one request of 21 ms behind a load of 1 s, with other sections."""
    return scenario(**{"streams": {"c": STREAM}, "workflows": {"w": {"tasks": {"t": REQUEST}}}} | changed)


@pytest.mark.parametrize("most", [1, 2])
@pytest.mark.parametrize("needs", [[], ["m"]])
def test_initial_residencies_beyond_the_replicas_allowed_are_left_out(most: int, needs: list[str]) -> None:
    held = [{"gpu": f"s{server}/g0", "model": "m"} for server in range(2)]
    built = scenario(
        workflows={"w": {"tasks": {"t": {"runtime": "3 s", "models": needs}}}},
        options={"initial_residency": held},
        restrictions={"max_replicas": {"m": most}},
    ).instance
    timeline = simulate(built, parse_policy("static"))
    assert check(built, timeline) == []
    assert timeline.end_us.tolist() == [3_000_000]
    assert len(timeline.residencies) == most


@pytest.mark.parametrize("restrictions", [{"no_swaps": True}, {"max_replicas": {"m": 1}}, {"max_replicas": {"n": 1}}])
@pytest.mark.parametrize("policy", ["least_tokens", "round_robin", "prefix_affinity"])
def test_gateways_keep_restrictions(restrictions: dict[str, Any], policy: str) -> None:
    built = requests(restrictions=restrictions).instance
    timeline = simulate(built, parse_policy(policy))
    assert check(built, timeline) == []
    assert timeline.end_us.tolist() == [1_021_000]


@pytest.mark.parametrize("restrictions", [{"no_swaps": True}, {"max_replicas": {"m": 1, "n": 1}}])
def test_gateways_keep_restrictions_on_two_models(restrictions: dict[str, Any]) -> None:
    # Both models fit a GPU only without KV of the second; with replicas limited to one each has a home of its own.
    streams = {"c": STREAM, "d": {**STREAM, "models": ["n"]}}
    workflows = {"w": {"tasks": {"t": REQUEST, "u": {**REQUEST, "stream": "d", "after": ["t"]}}}}
    jobs = {"jobs": [{"release": f"{at} s", "workflow": "w"} for at in range(3)]}
    built = requests(streams=streams, workflows=workflows, workload=jobs, restrictions=restrictions).instance
    for policy in ("least_tokens", "least_requests"):
        assert check(built, simulate(built, parse_policy(policy))) == []


@pytest.mark.parametrize("step", ["17 min", "20 min", "30 h"])
def test_bounds_of_long_steps_verify(step: str) -> None:
    built = requests(streams={"c": {**STREAM, "models": [], "step": {1: step}}}).instance
    value = closed_form.METHODS["stream_prices"](built, Objective.MEAN_LATENCY)
    assert value is not None
    assert value > 0
    document = closed_form_document(built, Objective.MEAN_LATENCY, "stream_prices", value)
    verdict = verify(built, json.loads(json.dumps(document)))
    assert (verdict.valid, verdict.lower_bound) == (True, round_up(built, Objective.MEAN_LATENCY, value))


def test_a_plan_of_other_requests_is_refused_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = requests()
    timeline = simulate(asked.instance, parse_policy("least_tokens"))
    from truenorth.models.scenario import TimelineHeader, write_timeline

    write_timeline(tmp_path / "p.json", asked.instance, timeline, TimelineHeader())
    file = tmp_path / "s.json"
    jobs = {"jobs": [{"release": "1 s", "workflow": "w"}]}
    file.write_text(json.dumps({**asked.data(), "workload": jobs}, default=str))
    assert run(app, ["check", str(file), str(tmp_path / "p.json")]) == 2
    assert "scenario_hash: is of another scenario" in capsys.readouterr().err


def test_a_trace_arrives_faster_by_a_factor(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("time_us,workflow\n0,w\n10,w\n31,w\n")
    (tmp_path / "s.json").write_text(json.dumps({**scenario().data(), "workload": {"trace": {"file": "a.csv"}}}))
    asked = tn.load(tmp_path / "s.json")
    for factor in (2, "x2"):
        doubled = asked.changed({"workload.trace.rate_factor": factor})
        assert doubled.instance.job_release_us.tolist() == [0, 5, 16]  # halves round up
    again = doubled.changed({"workload.trace.rate_factor": "x0.5"})
    assert again.instance.job_release_us.tolist() == [0, 10, 31]
    with pytest.raises(tn.InputError, match="a number above 0"):
        asked.changed({"workload.trace.rate_factor": 0})


def test_a_class_is_a_policy() -> None:
    assert tn.simulate(scenario(), Jit).value == tn.simulate(scenario(), "jit").value == 3


def test_a_file_and_a_data_frame_are_logs(tmp_path: Path) -> None:
    rows = pd.DataFrame({"release": [0.0, 5.0], "model": ["m", "m"], "runtime": [1.0, 2.0]})
    rows.to_csv(tmp_path / "log.csv", index=False)
    log = "table:release=release,runtime=runtime"
    first, second = tn.import_trace(log, str(tmp_path / "log.csv")), tn.import_trace(log, rows)
    assert first.scenario.instance.job_release_us.tolist() == [0, 5_000_000]
    assert replace(first, files=()).scenario.instance == second.scenario.instance


def test_the_command_alone_is_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(app, []) == 0
    assert "Usage: truenorth" in capsys.readouterr().out


def test_a_time_limit_may_have_a_unit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "s.json").write_text(json.dumps(scenario().data()))
    asked = ["bound", str(tmp_path / "s.json"), "--json", "--time-limit"]
    assert run(app, [*asked, "0.01 min"]) == 0
    assert run(app, [*asked, "soon"]) == 2
    assert "--time-limit: 'soon' is no time limit; write" in capsys.readouterr().err


def test_a_certificate_in_place_of_a_scenario_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "s.json").write_text(json.dumps(scenario().data()))
    built = scenario()
    certificate = closed_form_document(built.instance, built.objective, "critical_path", 3_000_000)  # type: ignore[arg-type]
    (tmp_path / "c.json").write_text(json.dumps(certificate))
    assert run(app, ["verify", str(tmp_path / "c.json"), str(tmp_path / "s.json")]) == 2
    assert "c.json:1: document: is a certificate, not a scenario" in capsys.readouterr().err
