"""Jobs on several GPUs as importers make them: runs that take them together, on servers as wide as they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import truenorth as tn
from tests.planner.inputs.importers.outcomes import jobs
from tests.planner.inputs.importers.small import written
from truenorth.models import Objective
from truenorth.models.errors import QuestionError
from truenorth.planner.inputs.importers.format import Hardware

ELASTICFLOW = "submission_time,duration,num_gpu\n10,100,1\n20,50,8\n20,30,12\n30,5,64\n40,7,2\n"


def sized(servers: int, gpus_per_server: int = 8) -> Callable[[Hardware], Hardware]:
    """Return what makes a documented cluster so large."""
    return lambda hardware: replace(hardware, servers=servers, gpus_per_server=gpus_per_server)


def test_jobs_take_their_gpus_together_without_models(tmp_path: Path) -> None:
    log = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n" + "".join(
        f"{number},u,v,{gpus},1,1,COMPLETED,2020-06-09 18:41:0{number},2020-06-09 18:42:00,2020-06-09 18:43:00,60,0\n"
        for number, gpus in enumerate((1, 4, 0))
    )
    made = tn.import_trace("helios", [written(tmp_path, log)])
    assert jobs(made) == [(0, "u 60 s"), (1_000_000, "u 60 s x 4")]
    scenario = made.scenario
    tasks = [task for workflow in scenario.instance.workflows for task in workflow.tasks]
    assert [(task.gpus, task.models) for task in tasks] == [(1, ()), (4, ())]
    assert scenario.objective is Objective.MEAN_LATENCY
    assert scenario.instance.cluster.places == "any"
    assert made.tally.left_out == {"no GPU": 1}
    assert made.warnings == []
    # 60 s on one GPU and on four.
    assert made.summary.job_work_us.tolist() == [60_000_000, 240_000_000]


def test_wide_jobs_take_whole_servers_and_wider_ones_than_the_cluster_are_left_out(tmp_path: Path) -> None:
    made = tn.import_trace("elasticflow", [written(tmp_path, ELASTICFLOW)], override=sized(servers=2))
    gpus = {of.name: of.tasks[0].gpus for of in made.workload.workflows}
    assert gpus == {"job 100 s": 1, "job 50 s x 8": 8, "job 30 s x 16": 16, "job 7 s x 2": 2}
    assert made.warnings == [
        "jobs that take whole servers of 8 GPUs, more than in the log: 1",
        "jobs left out that take more than the 16 GPUs that there are (--servers gives more): 1",
    ]


def test_the_cluster_is_wide_enough_unless_somebody_says_how_wide_it_is(tmp_path: Path) -> None:
    made = tn.import_trace("table:gpus=n,unit=s", [written(tmp_path, "release,runtime,n\n0,5,1\n1,4,12\n")])
    assert made.scenario.instance.n_gpus == 16
    assert any("the widest job takes 12 GPUs: 2 servers of 8 are assumed" in note for note in made.tally.notes)
    assert jobs(made) == [(0, "job 5 s"), (1_000_000, "job 4 s x 16")]


@pytest.mark.parametrize(
    ("format_text", "log", "servers", "gpus_per_server"),
    [
        ("elasticflow", ELASTICFLOW, 8, 8),
        ("table:release=submission_time,runtime=duration,gpus=num_gpu,unit=s,model=", ELASTICFLOW, 2, 1),
    ],
)
def test_a_cluster_that_is_asked_for_comes_even_if_it_is_the_documented_one(
    tmp_path: Path, format_text: str, log: str, servers: int, gpus_per_server: int
) -> None:
    log = log + "60,100,128\n"
    documented = tn.import_trace(format_text, [written(tmp_path, log)])
    assert documented.scenario.instance.n_gpus >= 128
    made = tn.import_trace(format_text, [written(tmp_path, log)], servers=servers, gpus_per_server=gpus_per_server)
    assert made.scenario.instance.n_gpus == servers * gpus_per_server
    left_out = f"take more than the {servers * gpus_per_server} GPUs that there are (--servers gives more)"
    assert any(left_out in warning for warning in made.warnings)


def test_jobs_that_are_left_out_take_no_whole_servers(tmp_path: Path) -> None:
    log = written(tmp_path, "submission_time,duration,num_gpu\n1,5,2\n2,5,12\n")
    made = tn.import_trace("elasticflow", [log], override=sized(servers=1))
    assert made.warnings == ["jobs left out that take more than the 8 GPUs that there are (--servers gives more): 1"]


def test_a_log_of_wider_jobs_alone_is_refused(tmp_path: Path) -> None:
    log = written(tmp_path, "submission_time,duration,num_gpu\n1,5,64\n")
    with pytest.raises(QuestionError, match="every job takes more than 8 GPUs; allowed are more servers"):
        tn.import_trace("elasticflow", [log], override=sized(servers=1))


def test_options_split_and_leave_out(tmp_path: Path) -> None:
    log = written(tmp_path, ELASTICFLOW)
    split = tn.import_trace("elasticflow:gpus=split", [log])
    assert sorted(len(of.tasks) for of in split.workload.workflows) == [1, 2, 8, 12, 64]
    assert "split into tasks of one GPU" in split.warnings[0]
    single = tn.import_trace("elasticflow:gpus=single", [log])
    assert [of.name for of in single.workload.workflows] == ["job 100 s"]
    assert single.tally.left_out == {"several GPUs": 4}


def test_columns_of_a_table_make_runs(tmp_path: Path) -> None:
    log = written(tmp_path, "release,runtime,model,n\n0,5,m,1\n1,4,m,2\n")
    made = tn.import_trace("table:gpus=n,unit=s", [log], override=sized(servers=1, gpus_per_server=4))
    assert jobs(made) == [(0, "m 5 s"), (1_000_000, "m 4 s x 2")]
    split = tn.import_trace("table:gpus=n,unit=s,split=on", [log], override=sized(servers=1, gpus_per_server=4))
    assert jobs(split) == [(0, "m 5 s"), (1_000_000, "m 4 s x 2")]


def test_what_is_imported_is_planned(tmp_path: Path) -> None:
    made = tn.import_trace("elasticflow", [written(tmp_path, ELASTICFLOW)], override=sized(servers=1))
    scenario = made.scenario
    # One GPU from 10 to 110; eight from 110 to 160, submitted at 20; two behind them, or at once from 40 to 47.
    assert tn.simulate(scenario, "fifo").value == pytest.approx((100 + 140 + 127) / 3)
    assert tn.simulate(scenario, "easy").value == pytest.approx((100 + 140 + 7) / 3)


def test_training_jobs_are_planned_for_mean_completion_time(tmp_path: Path) -> None:
    # Whether or not a job of the window takes several GPUs: no model is loaded, so nothing is served.
    log = tmp_path / "log.csv"
    log.write_text("submission_time,duration,num_gpu\n0,60,1\n5,60,1\n")
    for options in ("", ":gpus=single", ":gpus=split"):
        assert str(tn.import_trace(f"elasticflow{options}", [log]).scenario.objective) == "mean_latency"
    assert str(tn.import_trace("elasticflow", [log], objective="makespan").scenario.objective) == "makespan"
    requests = tmp_path / "requests.csv"
    requests.write_text("release,runtime\n0,60\n")
    assert str(tn.import_trace("table", [requests]).scenario.objective) == "mean_slowdown"
