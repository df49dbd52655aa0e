"""Helios: jobs run from start_time to end_time, are released at submit_time, and a user's jobs share a model."""

from __future__ import annotations

from pathlib import Path

import pytest

import truenorth as tn
from tests.planner.inputs.importers.outcomes import jobs
from tests.planner.inputs.importers.small import written
from truenorth.models.scenario import InputError

HEADER = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
LOG = (
    HEADER
    + """\
1,uA,vc1,1,1,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:11,2020-06-10 04:55:09,36838,10
2,uB,vc1,4,16,1,FAILED,2020-06-09 18:41:27,2020-06-09 18:41:27,2020-06-09 18:45:36,249,0
3,uA,vc2,1,1,1,CANCELLED,2020-06-09 18:41:28,2020-06-09 18:41:28,2020-06-09 18:41:58,30,0
4,uC,vc2,0,8,1,COMPLETED,2020-06-09 18:42:00,2020-06-09 18:42:00,2020-06-09 18:43:00,60,0
5,uC,vc2,1,8,1,CANCELLED,2020-06-09 18:42:00,,2020-06-09 18:43:00,0,60
6,uC,vc2,1,8,1,COMPLETED,2020-06-09 18:42:00,2020-06-09 18:42:00,2020-06-09 18:42:00,0,0
"""
)


def test_jobs_on_one_gpu_count_from_the_first_submission(tmp_path: Path) -> None:
    made = tn.import_trace("helios:gpus=single", [written(tmp_path, LOG)])
    # From 18:41:11 to 04:55:09 on the next day: 5 h 18 min 49 s to midnight, 4 h 55 min 9 s after it.
    assert jobs(made) == [(0, f"uA {19_129 + 17_709} s"), (27_000_000, "uA 30 s")]
    assert made.tally.left_out == {"several GPUs": 1, "no GPU": 1, "no start_time": 1, "ran for 0 s": 1}
    assert made.tally.read == 6


def test_options_split_jobs_choose_states_and_name_models(tmp_path: Path) -> None:
    made = tn.import_trace("helios:gpus=split,model=vc", [written(tmp_path, LOG)])
    assert jobs(made) == [(0, "vc1 36838 s"), (26_000_000, "vc1 249 s x 4"), (27_000_000, "vc2 30 s")]
    made = tn.import_trace("helios:gpus=single,state=completed", [written(tmp_path, LOG)])
    assert jobs(made) == [(0, "uA 36838 s")]
    assert made.tally.left_out == {"state FAILED": 1, "state CANCELLED": 2, "no GPU": 1, "ran for 0 s": 1}


def test_ids_count_per_file(tmp_path: Path) -> None:
    files = [written(tmp_path, LOG, name) for name in ("Venus.csv", "Earth.csv")]
    assert len(jobs(tn.import_trace("helios:gpus=single", files))) == 4
    with pytest.raises(InputError, match=r"Venus.csv:8: job_id: '1' stands in an earlier row"):
        tn.import_trace("helios:gpus=single", [written(tmp_path, LOG + LOG.splitlines()[1] + "\n", "Venus.csv")])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "2020-06-10 04:55:09",
            "2020-06-09 18:41:10",
            "log.csv:2: end_time: '2020-06-09 18:41:10' is before start_time",
        ),
        ("2020-06-09 18:41:11", "2020-06-09 18:41:00", "log.csv:2: start_time: .* is before submit_time"),
        ("2020-06-09 18:41:01", "yesterday", "log.csv:2: submit_time: 'yesterday' is no date and time"),
        ("2020-06-09 18:41:01", "2020-13-09 18:41:01", "log.csv:2: submit_time: .* is no date and time"),
        ("1,uA,vc1,1", "1,uA,vc1,-1", "log.csv:2: gpu_num: '-1' is no whole number in range"),
        ("1,uA,vc1,1", "1,,vc1,1", "log.csv:2: user: '' is no name"),
    ],
)
def test_malformed_jobs_are_refused_by_line_or_counted(tmp_path: Path, old: str, new: str, message: str) -> None:
    log = written(tmp_path, LOG.replace(old, new, 1))
    with pytest.raises(InputError, match=message):
        tn.import_trace("helios:gpus=single", [log])
    made = tn.import_trace("helios:gpus=single", [log], skip_malformed=True)
    assert (made.tally.refused.total(), jobs(made)) == (1, [(0, "uA 30 s")])


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"log.csv:1: header: has no column 'gpu_num'"):
        tn.import_trace("helios:gpus=single", [written(tmp_path, LOG.replace("gpu_num", "gpus"))])
