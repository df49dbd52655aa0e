"""What an import says of itself: coarse clocks, jobs that were split, rows dropped, and times replaced."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import truenorth as tn
from tests.planner.inputs.importers.outcomes import jobs
from tests.planner.inputs.importers.small import table, written
from truenorth.models.errors import QuestionError
from truenorth.planner.inputs.importers.catalogued import Catalogued
from truenorth.planner.show.servers import view
from truenorth.planner.show.summaries import simulation_summary

SECONDS = table(*(f"{second},a,0.9" for second in range(10) for _ in range(4)))


def test_a_coarse_clock_is_named_and_spread(tmp_path: Path) -> None:
    log = written(tmp_path, SECONDS)
    made = tn.import_trace("table", [log])
    [said] = [note for note in made.notes if "ticks" in note]
    shared = "40 of 40 requests share an instant, up to 4 the same one"
    assert said == f"the log's clock ticks every 1 s: {shared}; --spread spreads them evenly within a tick"
    spread = tn.import_trace("table", [log], spread=True)
    release_us = spread.workload.release_us
    assert (release_us // 1_000_000).tolist() == [second for second in range(10) for _ in range(4)]
    assert len(np.unique(release_us)) == 40
    assert not any("ticks every" in note for note in spread.notes)
    again, other = (tn.import_trace("table", [log], spread=True, seed=seed) for seed in (0, 1))
    assert again.workload.release_us.tolist() == release_us.tolist() != other.workload.release_us.tolist()


def test_requests_are_spread_evenly_and_keep_their_order(tmp_path: Path) -> None:
    log = written(tmp_path, table(*(f"{60 * (index // 2000)},{'ab'[index % 2]},1" for index in range(4000))))
    made = tn.import_trace("table", [log], spread=True)
    seconds = made.workload.release_us[:2000] / 1e6
    # Two thousand at random in a minute: a tenth of it holds 200, give or take four times 13.4.
    assert np.histogram(seconds, 10, (0, 60))[0] == pytest.approx(np.full(10, 200), abs=54)
    assert [name for _, name in jobs(made)[:4]] == ["a 1 s", "b 1 s", "a 1 s", "b 1 s"]


def test_a_fine_clock_is_not_named_and_a_single_instant_cannot_be_spread(tmp_path: Path) -> None:
    fine = tn.import_trace("table", [written(tmp_path, table("0.001,a,1", "0.001,a,1", "0.002,a,1"))])
    assert not any("ticks" in note for note in fine.notes)
    with pytest.raises(QuestionError, match="spread: all requests are released at one instant"):
        tn.import_trace("table", [written(tmp_path, table("1,a,1", "1,a,1"))], spread=True)


def test_jobs_on_several_gpus_are_said_to_be_split_where_it_stays(tmp_path: Path) -> None:
    log = written(tmp_path, "submit,job,seconds,gpus\n0,ptj,60,16\n1,one,60,1\n")
    made = tn.import_trace("table:release=submit,model=job,runtime=seconds,gpus=gpus,split=on", [log])
    [warning] = made.warnings
    split = "are split into tasks of one GPU, which plans may run at different times"
    assert warning == f"1 of 2 jobs ran on several GPUs (up to 16) and {split}"
    made.save(tmp_path / "made.yaml")
    assert f"# Warning: {warning}.\n" in (tmp_path / "made.yaml").read_text()
    assert made.as_dict()["warnings"] == [warning]
    one = tn.import_trace("table:release=submit,model=job,runtime=seconds", [log])
    assert one.warnings == []


def _gang(*tasks: str) -> dict[str, object]:
    return {
        "cluster": {
            "servers": 2,
            "gpu": {"kind": "node", "memory": "24 GB", "load_bandwidth": "10 GB/s"},
            "network": {"bandwidth": "10 GB/s"},
        },
        "workflows": {
            "small": {"tasks": {"run": {"runtime": "10 s", "share": 0.125}}},
            "wide": {"tasks": {name: {"runtime": runtime} for name, _, runtime in (t.partition(":") for t in tasks)}},
        },
        "workload": {"jobs": [{"release": "0 s", "workflow": "small"}, {"release": "1 s", "workflow": "wide"}]},
        "objective": "mean_latency",
    }


def test_a_plan_says_that_halves_of_a_job_run_apart() -> None:
    # One half begins at 1 s, the other when the small job leaves its node at 10 s.
    torn = tn.plan(_gang("a:10 s", "b:10 s"), method="search", iterations=50, time_limit="5 s")
    assert (torn.jobs_apart, torn.record().jobs_apart) == (1, 1)
    # Different tasks are no halves, and those that begin together are not apart.
    assert tn.plan(_gang("a:10 s", "b:11 s"), method="search", iterations=50, time_limit="5 s").jobs_apart == 0
    free = _gang("a:10 s", "b:10 s") | {"workload": {"jobs": [{"release": "1 s", "workflow": "wide"}]}}
    assert tn.plan(free, method="search", iterations=50, time_limit="5 s").jobs_apart == 0


APART = "1 of 2 jobs have equal tasks side by side that {} at different times: no plan if each is one job, split over "


def test_simulate_compare_and_servers_say_so_in_the_same_words() -> None:
    ran = tn.simulate(_gang("a:10 s", "b:10 s"), "srpt")
    assert simulation_summary(ran)["run apart"].startswith(APART.format("begin"))
    assert "run apart" not in simulation_summary(tn.simulate(_gang("a:10 s", "b:11 s"), "srpt"))
    compared = tn.compare(_gang("a:10 s", "b:10 s"), policies=["srpt"], time_limit="3 s")
    assert f"Of plan, srpt: {APART.format('begin')}" in compared.note
    sized = tn.servers(_gang("a:10 s", "b:10 s"), "mean latency <= 30 s", policies=["srpt"], time_limit="3 s")
    console = Console(width=400)
    with console.capture() as shown:
        console.print(view(sized))
    assert APART.format("may begin") in shown.get()


CATALOGUE = """\
kinds: {L4: {memory: 22 GB, load_bandwidth: 25 GB/s}}
models:
  mixtral-8x7b-instruct: {weights: 16 GB, runtime: 2 s}
  paint: {weights: 7 GB}
"""


def test_a_catalogue_says_what_it_drops_and_replaces(tmp_path: Path) -> None:
    log = written(tmp_path, table("0,mixtral-8x7b,1", "1,mixtral-8x7b,1", "2,mixtral-8x7b-instruct,1", "3,paint,1"))
    catalogue = Catalogued.load(written(tmp_path, CATALOGUE, "catalogue.yaml"))
    made = tn.import_trace("table", [log], catalogue=catalogue)
    dropped, replaced = made.warnings
    assert dropped.startswith("2 of 4 requests are left out, since ")
    assert "has no model 'mixtral-8x7b' (near: mixtral-8x7b-instruct); an alias" in dropped
    assert replaced.startswith("run times of mixtral-8x7b-instruct are the catalogue's, in place of those that the log")
    assert made.workload.mapping.startswith("run times of 1 of 2 models are the catalogue's, not the log's; ")
    kept = tn.import_trace("table", [written(tmp_path, table("3,paint,1"))], catalogue=catalogue)
    assert (kept.warnings, kept.workload.mapping) == ([], "run times as they are; 1 model of the catalogue")


def test_an_objective_is_written_and_checked(tmp_path: Path) -> None:
    log = written(tmp_path, table("0,a,1"))
    made = tn.import_trace("table", [log], objective="makespan")
    made.save(tmp_path / "made.yaml")
    assert tn.load(tmp_path / "made.yaml").objective == made.scenario.objective == tn.Objective.MAKESPAN
    with pytest.raises(QuestionError, match="objective: 'speed' is unknown; allowed are mean_latency"):
        tn.import_trace("table", [log], objective="speed")
