"""Sweeps as a whole: what they find, what they keep, and how they end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import pandas as pd
import pytest

import truenorth as tn
from tests.command import app, run
from tests.night import by_day
from tests.planner.answers.whatif.small import SCENARIO, SWEEP, tables, written
from truenorth.models.objective import Objective
from truenorth.models.scenario import InputError, load_scenario, scenario_from
from truenorth.models.slo import ServiceLevels
from truenorth.planner.answers.pool.processes import CRASHED
from truenorth.planner.answers.whatif import Counts, Sweep
from truenorth.planner.answers.whatif.cell import CellCall, answer
from truenorth.planner.answers.whatif.grid import read_sweep
from truenorth.planner.questions.policies import CompareQuestion
from truenorth.planner.questions.searches import BoundQuestion
from truenorth.planner.questions.sizes import ServersQuestion
from truenorth.solvers.budget import Method

MAIN = "import sys; from truenorth.planner.command.start import main; sys.argv[1:] = {arguments!r}; main()"


def test_every_row_is_what_a_single_simulation_gives(tmp_path: Path) -> None:
    made = tn.sweep(written(tmp_path), workers=2)
    assert (made.counts, made.complete, made.name) == (Counts(6, 0, 6, 0), True, "sweep")
    rows = tn.frame(made)
    assert list(rows.columns[:4]) == ["cell", "workload.poisson.rate_per_s", "cluster.servers", "policy"]
    assert list(rows["cell"]) == list(range(6))
    for row in rows.to_dict("records"):
        text = SCENARIO.replace("servers: 2", f"servers: {row['cluster.servers']}")
        path = tmp_path / "one.yaml"
        path.write_text(text.replace("rate: 100000 /s", f"rate: {row['workload.poisson.rate_per_s']} /s"))
        alone = tn.simulate(load_scenario(path), "compass")
        assert row["value"] == alone.objective.value
        assert {name: row[name] for name in ("loads", "makespan_s", "p99_slowdown")} == {
            name: asdict(alone.metrics)[name] for name in ("loads", "makespan_s", "p99_slowdown")
        }


def test_plans_with_counted_iterations_repeat_and_are_those_of_plan(tmp_path: Path) -> None:
    written(tmp_path)
    scenario = load_scenario(tmp_path / "scenario.yaml")
    grid = {"cluster.servers": [2]}
    rows = tn.whatif(scenario, grid, verb="plan", workers=1, time_limit="60 s", iterations=100, method="search").rows
    alone = tn.plan(scenario, time_limit=60, iterations=100, workers=1, method=Method.SEARCH).record()
    assert rows[0]["value"] == alone.objective.value
    assert (rows[0]["status"], rows[0]["loads"]) == (alone.status, alone.metrics and alone.metrics.loads)


def test_compare_gives_a_row_per_policy_and_bound_a_row(tmp_path: Path) -> None:
    path = written(tmp_path)
    data = read_sweep(path)[1].data()
    rows = answer(CellCall(data, str(tmp_path), CompareQuestion(["jit", "hash"], time_limit_s=0.5))).rows
    assert {row["policy"] for row in rows} == {"plan", "jit", "hash"}
    assert rows[0]["ratio_to_best"] == 1
    bound = answer(CellCall(data, str(tmp_path), BoundQuestion(time_limit_s=0.5))).rows[0]
    assert 1 <= float(bound["lower_bound"] or 0) <= float(rows[0]["value"] or 0)


def test_servers_gives_a_row_per_policy_with_its_fewest_servers(tmp_path: Path) -> None:
    # Two jobs of 5 ms come at 0 and 2 ms: one server ends the second at 10, a latency of 8; two end it at 7.
    data = {
        "cluster": {
            "servers": 1,
            "gpu": {"kind": "A", "memory": "1 B", "load_bandwidth": "1 B/s"},
            "network": {"bandwidth": "1 MB/s"},
        },
        "workflows": {"w": {"tasks": {"t": {"runtime": "5 ms"}}}},
        "workload": {"jobs": [{"release": "0 ms", "workflow": "w"}, {"release": "2 ms", "workflow": "w"}]},
    }
    cells = {"p95 latency <= 5 ms": 2, "p95 latency <= 8 ms": 1}
    for slo, fewest in cells.items():
        asked = ServersQuestion(ServiceLevels.parse(slo), policies=["jit"], time_limit_s=5, most=3)
        rows = answer(CellCall(data, str(tmp_path), asked)).rows
        assert rows == (
            {"policy": "plan", "slo": slo, "servers": fewest, "lower_bound": fewest, "proved": True},
            {"policy": "jit", "slo": slo, "servers": fewest},
        )
    refused = answer(CellCall(data, str(tmp_path), ServersQuestion(policies=["jit"])))
    assert (refused.rows, (refused.error or "")[:16]) == ((), "slo: is missing;")


def test_a_scenario_that_cannot_be_built_is_an_error_in_its_row_only(tmp_path: Path) -> None:
    written(tmp_path)
    made = tn.whatif(tmp_path / "scenario.yaml", {"cluster.gpu.memory": ["10 B", "5 B"]}, policy="jit", workers=1)
    assert made.counts == Counts(2, 0, 2, 1)
    assert made.rows[0]["error"] is None
    assert made.rows[1]["error"] == (
        "scenario: models.n.1.weights: 8 bytes are larger than every GPU; allowed are at most 5 bytes"
    )
    assert (made.rows[1]["policy"], made.rows[1].get("value")) == ("jit", None)


def test_what_is_known_is_not_run_again_and_a_changed_sweep_is_noticed(tmp_path: Path) -> None:
    path, folder = written(tmp_path), tmp_path / "out"
    seen: list[Counts] = []
    first = tn.sweep(path, folder, workers=1, watch=seen.append)
    assert seen == [Counts(6, 0, finished, 0) for finished in range(7)]
    before = tables(folder)
    again = tn.sweep(path, folder)
    assert (again.counts, again.changed, tables(folder)) == (Counts(6, 6, 0, 0), False, before)
    assert again.rows == first.rows
    path.write_text(SWEEP.replace("[1, 2, 3]", "[2, 3, 4]"))
    other = tn.sweep(path, folder, workers=1)
    assert (other.counts, other.changed) == (Counts(6, 4, 2, 0), True)
    assert list(tn.frame(other)["cluster.servers"]) == [2, 3, 4, 2, 3, 4]


def test_a_damaged_cell_is_run_again(tmp_path: Path) -> None:
    path, folder = written(tmp_path), tmp_path / "out"
    tn.sweep(path, folder, workers=1)
    before = tables(folder)
    damaged = sorted((folder / "cells").iterdir())[2]
    damaged.write_bytes(damaged.read_bytes()[:-9])
    assert tn.sweep(path, folder, workers=1).counts == Counts(6, 5, 1, 0)
    assert tables(folder) == before


FATAL = """\
import os, pathlib
from truenorth.executor import QueuePolicy

class Fatal(QueuePolicy):
    def runnable(self, task, server):
        if self.site.n_gpus == 2 and not pathlib.Path("survive").exists():
            os._exit(1)
        self.place(task, 0)
"""


@pytest.mark.nightly
def test_a_crash_costs_its_cell_only_and_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path)
    (tmp_path / "fatal.py").write_text(FATAL)

    def run_it() -> Sweep:
        grid = {"cluster.servers": [1, 2, 3]}
        return tn.whatif("scenario.yaml", grid, policy="fatal:Fatal", folder="out", workers=1)

    first = run_it()
    assert first.counts == Counts(3, 0, 3, 1)
    assert [row["error"] for row in first.rows] == [None, CRASHED, None]
    (tmp_path / "survive").touch()
    second = run_it()
    assert (second.counts, second.rows[1]["error"]) == (Counts(3, 2, 1, 0), None)
    (tmp_path / "fatal.py").write_text(FATAL + "# changed\n")
    assert run_it().counts == Counts(3, 0, 3, 0)  # a policy's file is part of what an answer depends on
    monkeypatch.delitem(sys.modules, "fatal")


def test_cells_that_ask_the_same_run_once(tmp_path: Path) -> None:
    written(tmp_path)
    seen: list[Counts] = []
    made = tn.whatif(
        tmp_path / "scenario.yaml", {"cluster.gpu.memory": ["10 B", "x1"]}, policy="jit", workers=1, watch=seen.append
    )
    assert seen == [Counts(2, 0, 0, 0), Counts(2, 0, 2, 0)]
    assert made.rows[0]["value"] == made.rows[1]["value"]


def test_the_tables_are_csv_and_parquet_of_the_frame(tmp_path: Path) -> None:
    made = tn.sweep(written(tmp_path), tmp_path / "out", workers=1)
    assert pd.read_parquet(tmp_path / "out" / "results.parquet").equals(tn.frame(made))
    assert list(pd.read_csv(tmp_path / "out" / "results.csv")["value"]) == list(tn.frame(made)["value"])
    assert list(pd.read_csv(tmp_path / "out" / "times.csv")["cell"]) == list(range(6))
    assert "seconds" not in tn.frame(made).columns


def test_a_scenario_of_data_can_be_changed_and_one_of_exchanged_parts_cannot() -> None:
    data = {
        "cluster": {"servers": 1, "gpu": {"kind": "A", "memory": "1 B", "load_bandwidth": "1 B/s"}},
        "workflows": {"w": {"tasks": {"t": {"runtime": "1 us"}}}},
        "workload": {"poisson": {"rate": "1 /s", "jobs": 2}},
    }
    for given in (data, scenario_from(data)):
        assert tn.whatif(given, {"cluster.servers": [1]}, policy="jit", workers=1).rows[0]["value"] == 1.0
    exchanged = replace(scenario_from(data), objective=Objective.MAKESPAN)
    with pytest.raises(InputError, match="parts of it were exchanged; allowed is a scenario as load or changed"):
        tn.whatif(exchanged, {"cluster.servers": [1]}, policy="jit")
    with pytest.raises(InputError, match=r"what-if: grid\.cluster\.server\[0\]: cluster\.server: unknown key"):
        tn.whatif(data, {"cluster.server": [1]}, policy="jit")


def launched(path: Path, folder: Path) -> subprocess.Popen[str]:
    """Start the command on a sweep in a process of its own."""
    arguments = ["sweep", str(path), "-o", str(folder), "--json", "--workers", "1"]
    return subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", MAIN.format(arguments=arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[5])},
    )


def wait_for_cells(folder: Path, count: int, process: subprocess.Popen[str]) -> None:
    """Wait until so many cells are kept."""
    while len(list(folder.glob("cells/*.json"))) < count and process.poll() is None:
        time.sleep(0.005)


@pytest.fixture
def long_sweep(tmp_path: Path) -> Path:
    """Return a sweep of 40 cells of some milliseconds each."""
    rates = ", ".join(f"{rate} /s" for rate in range(100_000, 120_000, 1_000))
    grid = f"settings: {{policy: compass}}\ngrid:\n  workload.poisson.rate: [{rates}]\n"
    return written(tmp_path, f"scenario: scenario.yaml\n{grid}  workload.poisson.jobs: [200, 300]\n")


def test_a_killed_sweep_goes_on_and_ends_like_an_undisturbed_one(tmp_path: Path, long_sweep: Path) -> None:
    undisturbed = tn.sweep(long_sweep, tmp_path / "undisturbed", workers=1)
    assert undisturbed.counts == Counts(40, 0, 40, 0)
    folder = tmp_path / "killed"
    for kept in (5, 20):
        process = launched(long_sweep, folder)
        wait_for_cells(folder, kept, process)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        assert not (folder / "results.csv").exists()
    resumed = tn.sweep(long_sweep, folder, workers=1)
    assert resumed.counts.known >= 20
    assert resumed.rows == undisturbed.rows
    assert tables(folder) == tables(tmp_path / "undisturbed")


@pytest.mark.parametrize("number", by_day([signal.SIGTERM, signal.SIGINT], 1))
def test_an_interrupt_keeps_finished_cells(tmp_path: Path, long_sweep: Path, number: signal.Signals) -> None:
    folder = tmp_path / "out"
    process = launched(long_sweep, folder)
    wait_for_cells(folder, 3, process)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    document = json.loads(out)
    assert (process.returncode, document["complete"], document["tables"]) == (130, False, {})
    assert err == f"truenorth: interrupted; {document['finished']} finished cells are kept\n"
    assert 3 <= document["finished"] == len(list(folder.glob("cells/*.json"))) < 40


def test_the_command_prints_one_object_and_exits_with_what_happened(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, folder = written(tmp_path), tmp_path / "out"
    assert run(app, ["sweep", str(path), "-o", str(folder), "--json", "--workers", "1"]) == 0
    output = capsys.readouterr()
    assert output.err == ""
    assert json.loads(output.out) == {
        "name": "sweep", "verb": "simulate", "cells": 6, "known": 0, "finished": 6, "failed": 0, "complete": True,
        "changed": False, "warning": None, "errors": [],
        "tables": {"csv": f"{folder}/results.csv", "parquet": f"{folder}/results.parquet"},
    }  # fmt: skip
    path.write_text(SWEEP.replace("cluster.servers: [1, 2, 3]", "cluster.gpu.memory: [5 B]"))
    assert run(app, ["sweep", str(path), "-o", str(folder), "--workers", "1"]) == 1
    output = capsys.readouterr()
    assert "cell 0 failed: scenario: models.n.1.weights: 8 bytes are larger than every GPU" in output.out
    assert output.err == "the sweep has changed since it last ran here; 0 of its cells were known\n"
    path.write_text(SWEEP.replace("servers", "serverz"))
    assert run(app, ["sweep", str(path), "-o", str(folder), "--json"]) == 2
    output = capsys.readouterr()
    assert (output.out, output.err.count("\n")) == ("", 1)
    assert f"truenorth: error: {path}:5: grid.cluster.serverz[0]: cluster.serverz: unknown key" in output.err
