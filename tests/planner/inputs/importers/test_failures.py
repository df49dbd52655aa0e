"""Jobs that a log says failed: they end when they did, or are stopped early, and weigh nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import truenorth as tn
from tests.planner.inputs.importers.small import written
from truenorth.models.errors import QuestionError
from truenorth.models.scenario import InputError, load_scenario
from truenorth.planner.inputs.importers.trace import Imported

HELIOS = "job_id,user,vc,gpu_num,state,submit_time,start_time,end_time\n" + "".join(
    f"{number},u,v,{gpus},{state},2020-06-09 10:00:00,2020-06-09 10:00:00,2020-06-09 1{hours}:00:00\n"
    for number, (gpus, state, hours) in enumerate(
        [(2, "COMPLETED", 1), (2, "FAILED", 2), (2, "NODE_FAIL", 3), (2, "CANCELLED", 1)]
    )
)
"""On two GPUs each: 1 h; 2 h until a failure for good; 3 h until a node was lost; 1 h until it was cancelled."""


def _of_jobs(made: Imported) -> list[tuple[float, int]]:
    """Return hours and weight of each job, in the order of the log."""
    jobs = made.scenario.instance.jobs
    return [(job.workflow.tasks[0].fastest_us / 3.6e9, int(job.weight)) for job in jobs]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("", [(1, 1), (2, 1), (3, 1), (1, 1)]),
        (":failed=run", [(1, 1), (2, 0), (3, 0), (1, 1)]),
        # A failure by chance could not be seen coming, and what its user cancelled did not fail.
        (":failed=stop:30min", [(1, 1), (0.5, 0), (3, 0), (1, 1)]),
        (":failed=stop:5h", [(1, 1), (2, 0), (3, 0), (1, 1)]),
    ],
)
def test_failed_jobs_end_when_they_did_or_earlier(
    tmp_path: Path, options: str, expected: list[tuple[float, int]]
) -> None:
    assert _of_jobs(tn.import_trace(f"helios{options}", [written(tmp_path, HELIOS)])) == expected


def test_what_early_stopping_is_worth(tmp_path: Path) -> None:
    # Two GPUs, in the order of the log: of those that did not fail the first ends after 1 h, the last behind all.
    values = {}
    for failed in ("run", "stop:30min"):
        made = tn.import_trace(f"helios:failed={failed}", [written(tmp_path, HELIOS)])
        scenario = load_scenario(made.save(tmp_path / "trace.yaml")[0]).changed(
            {"cluster.servers": 1, "cluster.gpus_per_server": 2}
        )
        assert str(scenario.objective) == "weighted_latency"
        values[failed] = tn.simulate(scenario, "fifo").value / 3600
    assert values == {"run": (1 + 7) / 2, "stop:30min": (1 + 5.5) / 2}
    assert "2 of 4 jobs fail and weigh 0; they take 63.64% of the GPU-time" in made.notes  # 3.5 of 5.5 h


def test_philly_and_tables_say_it_in_their_words(tmp_path: Path) -> None:
    run = {"start_time": "2017-10-07 10:00:00", "end_time": "2017-10-07 12:00:00", "detail": [{"gpus": ["a", "b"]}]}
    job = {"vc": "v", "user": "u", "submitted_time": "2017-10-07 10:00:00", "attempts": [run]}
    jobs = [{**job, "jobid": status, "status": status} for status in ("Pass", "Failed", "Killed")]
    log = written(tmp_path, json.dumps(jobs))
    assert _of_jobs(tn.import_trace("philly:failed=stop:30min", [log])) == [(2, 1), (0.5, 0), (2, 1)]
    rows = "release,runtime,gpus,how\n0,3600,2,ok\n1,7200,2,Error 1\n2,7200,2,evicted\n3,7200,2,running\n"
    table = "table:gpus=gpus,status=how"
    (tmp_path / "rows.csv").write_text(rows)
    assert _of_jobs(tn.import_trace(table, [tmp_path / "rows.csv"])) == [(1, 1)]
    made = tn.import_trace(f"{table},failed=stop:6min", [tmp_path / "rows.csv"])
    assert _of_jobs(made) == [(1, 1), (0.1, 0), (2, 0)]
    assert dict(made.tally.left_out) == {"how running": 1}


def test_what_cannot_fail(tmp_path: Path) -> None:
    log = written(tmp_path, "release,runtime\n0,3600\n")
    with pytest.raises((QuestionError, InputError), match="failed= is about rows that a status says failed"):
        tn.import_trace("table:failed=run", [log])
    with pytest.raises(QuestionError, match="'stop' is not run or stop:TIME"):
        tn.import_trace("helios:failed=stop", [log])


def test_jobs_that_a_limit_or_their_user_ended_held_their_gpus(tmp_path: Path) -> None:
    """As sacct writes them: who never started is left out, whoever held a GPU stays."""
    log = tmp_path / "sacct.txt"
    log.write_text(
        "JobIDRaw|State|Submit|Start|End|ElapsedRaw|AllocTRES\n"
        "1|COMPLETED|2025-06-05T10:00:00|2025-06-05T10:00:00|2025-06-05T11:00:00|3600|gres/gpu=1\n"
        "2|TIMEOUT|2025-06-05T10:00:00|2025-06-05T10:00:00|2025-06-05T12:00:00|7200|gres/gpu=2\n"
        "3|CANCELLED by 7|2025-06-05T10:00:00|2025-06-05T10:00:00|2025-06-05T13:00:00|10800|gres/gpu=2\n"
        "4|CANCELLED by 7|2025-06-05T10:00:00|Unknown|Unknown|0|\n"
        "5|FAILED|2025-06-05T10:00:00|2025-06-05T10:00:00|2025-06-05T12:00:00|7200|gres/gpu=1\n"
        "6|PENDING|2025-06-05T10:00:00|Unknown|Unknown|0|\n"
    )
    for options in ("status=State,failed=run", "failed=run,status=State"):
        made = tn.import_trace(f"table:{options}", [log], gpus_per_server=2)
        assert _of_jobs(made) == [(1, 1), (2, 1), (3, 1), (2, 0)]
