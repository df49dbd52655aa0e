"""Changed scenarios: what a change does, its name, its file, its answers; and every way in which one can be wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import truenorth as tn
from tests.truenorth.test_face import SMALL
from truenorth.models.identity import scenario_hash

EDGE = Path(__file__).parents[2] / "experiments" / "scenarios" / "compass_edge.yaml"
CHANGES: list[dict[str, Any]] = [
    {"cluster.servers": "x2", "workload.poisson.rate": "x2"},
    {"cluster.servers": np.int64(3), "models.*.weights": "x0.25"},
    {"cluster.servers": None, "cluster.gpus_per_server": None, "cluster.gpu": None, "cluster.groups": [
        {"count": 2, "gpu": {"kind": "A100", "memory": "40 GB", "load_bandwidth": "25 GB/s"}},
        {"count": 1, "gpu": {"kind": "T4", "memory": "14 GB", "load_bandwidth": "10 GB/s"}}]},
    {"models.judge": {"weights": "1 GB"}, "workflows.question_answer.tasks.judge": {
        "models": ["judge"], "runtime": "20 ms", "after": ["nli"]}},
    {"restrictions.pin": [{"model": "nli", "on": ["s0"]}], "options.overlap_loads": False},
    {"workload": {"jobs": [{"release": "0 s", "workflow": "question_answer", "deadline": "2 s", "weight": 0.5}]}},
    {"cluster.away.s1": [["2 s", "4 s"], ["10 s", "end"]], "workflows.*.deadline": "3 s"},
    {"objective": "makespan", "slo": "p99 slowdown <= 2", "name": "another"},
]  # fmt: skip


@pytest.mark.parametrize("changes", CHANGES)
@pytest.mark.parametrize("suffix", ["yaml", "json"])
def test_what_is_saved_reads_as_the_changed_scenario(changes: dict[str, Any], suffix: str, tmp_path: Path) -> None:
    changed = tn.load(EDGE).changed(changes)
    assert scenario_hash(changed.instance) != scenario_hash(tn.load(EDGE).instance) or "objective" in changes
    changed.save(tmp_path / f"changed.{suffix}")
    again = tn.load(tmp_path / f"changed.{suffix}")
    assert scenario_hash(again.instance) == scenario_hash(changed.instance)
    assert (again.name, again.objective, again.slo) == (changed.name, changed.objective, changed.slo)


def test_a_trace_is_found_from_where_the_scenario_is_saved(tmp_path: Path) -> None:
    azure = tn.load(EDGE.with_name("azure.yaml")).changed({"cluster.servers": "x2"})
    azure.save(tmp_path / "changed.yaml")
    assert scenario_hash(tn.load(tmp_path / "changed.yaml").instance) == scenario_hash(azure.instance)


def test_a_change_equals_the_file_that_says_so_and_leaves_the_scenario_as_it_was() -> None:
    scenario = tn.load(SMALL)
    changed = scenario.changed({"models.m.weights": "x0.5"}).changed({"cluster.servers": 1})
    written = SMALL | {"models": {"m": {"weights": "2 B"}}, "cluster": SMALL["cluster"] | {"servers": 1}}  # type: ignore[operator]
    assert scenario_hash(changed.instance) == scenario_hash(tn.load(written).instance)
    assert scenario_hash(scenario.instance) == scenario_hash(tn.load(SMALL).instance)
    # One GPU loads 2 bytes by 2 and runs two tasks of 3.
    assert tn.simulate(changed, "jit").jobs()["completion_s"].tolist() == pytest.approx([5e-6, 8e-6])


def test_a_changed_scenario_is_named_after_its_changes() -> None:
    changed = tn.load(SMALL).changed({"models.m.weights": "x0.5", "slo": None})
    assert changed.name == "scenario with models.m.weights x0.5, slo removed"
    assert changed.changed({"cluster.servers": 1}).name == f"{changed.name}, cluster.servers 1"
    assert "with models.m.weights x0.5" in repr(changed)
    assert len(changed.changed({"workload.jobs": [{"release": "0 us", "workflow": "w"}] * 9}).name) <= 200


def test_a_server_is_taken_out_between_two_times_and_workflows_are_due() -> None:
    changed = tn.load(SMALL).changed({"cluster.away": {"s1": [["0 us", "1 s"]]}, "workflows.w.deadline": "8 us"})
    ran = tn.simulate(changed.changed({"objective": "late_jobs"}), "srpt")
    # The server that stays ends one job at 7 and the other at 10, which is late: the other server comes too late.
    assert ran.jobs()["completion_s"].tolist() == pytest.approx([7e-6, 1e-5])
    assert ran.value == 1
    kept = changed.changed({"workload.jobs[0].deadline": "9 us"}).instance.jobs
    assert [job.deadline_us for job in kept] == [9, 8]


def test_every_call_takes_a_changed_scenario(tmp_path: Path) -> None:
    changed = tn.load(SMALL).changed({"cluster.servers": 1})
    made = tn.plan(changed, time_limit="5 s", method="search", iterations=10, workers=1)
    assert made.value == pytest.approx(8.5e-6)  # one ends at 7, the other at 10
    assert tn.bound(changed, time_limit="5 s", workers=1).record().lower_bound <= 8.5e-6
    assert tn.servers(changed, policies=["jit"], time_limit="5 s", workers=1).servers == 2
    found = tn.whatif(changed, {"cluster.servers": np.arange(1, 3)}, policy="jit", workers=1).frame()
    assert found["value"].tolist() == pytest.approx([8.5e-6, 7e-6])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cluster.gpuu.memory": "9 B"}, r"scenario: cluster.gpuu: unknown key, did you mean 'gpu'\?"),
        ({"cluster.gpu.memroy": "x2"}, r"memroy: there is nothing to scale by 2; did you mean 'memory'\? allowed are"),
        ({"cluster.gpu.kind": "x2"}, "cluster.gpu.kind: x2: 'A' stands there in the scenario; allowed is to scale a n"),
        ({"models.n.weights": "9 B"}, "models.n.weights: 'n' is not in the scenario; did you mean|allowed are m"),
        ({"models.n": None}, "models.n: there is nothing to remove; allowed are m"),
        ({"cluster.groups": []}, "cluster: has servers and groups; allowed is exactly one of servers, groups"),
        ({"models.m": None}, "workflows.w.tasks.a.*'m'; allowed are names that the file defines"),
        ({"workflows.w.tasks.a.runtime": {"B": "3 us"}}, "workflows.w.tasks.a.* no GPU"),
        ({"cluster.gpu.memory": "3 B"}, "m.* 4 "),
        ({"cluster.gpu.memory": "x" * 10_000_000}, "cluster.gpu.memory: 'xxxx.*' is too long; allowed is a size"),
        ({"x" * 10_000_000: 1}, "is too long; allowed are paths of at most 2000 characters"),
        ({"cluster": "y" * 10_000_000}, "cluster: the value 'yyyy.*' stands here; allowed is a mapping"),
        ({"cluster.away.s2": [["0 s", "1 s"]]}, "cluster.away: s2 is no server; allowed are s0 to s1"),
        ({"cluster.away.s1": [["0 s", "end"]]}, "cluster.away.s1: .*; allowed is a server that is there at some time"),
        ({"cluster.away.x": [["0 s", "1 s"]]}, "cluster.away.x.*: 'x' is no server; allowed is a server such as s0"),
        ({"cluster": {}, "cluster.servers": 1}, "cluster.servers: changes a part of cluster, as 'cluster' does"),
    ],
)  # fmt: skip
def test_what_cannot_be_changed_is_said_in_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(tn.InputError, match=message) as refused:
        tn.load(SMALL).changed(changes)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 500
