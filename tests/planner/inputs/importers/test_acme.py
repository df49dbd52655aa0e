"""Acme: times carry their zone, and the run time is end_time - start_time, whatever the column duration says."""

from __future__ import annotations

from pathlib import Path

import pytest

import truenorth as tn
from tests.planner.inputs.importers.outcomes import jobs
from tests.planner.inputs.importers.small import written
from truenorth.models.scenario import InputError

SEREN = """\
job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time
11,u1,1,1,128,Eval,COMPLETED,2023-05-17 19:00:50+08:00,2023-05-17 19:00:54+08:00,2023-05-17 19:02:51+08:00,117,4,117.0
12,u1,1,8,96,SFT,COMPLETED,2023-05-17 19:23:58+08:00,2023-05-17 19:24:11+08:00,2023-05-17 20:09:04+08:00,2693,13,21544.0
13,u2,1,1.0,8,Other,FAILED,2023-05-17 19:00:59+08:00,2023-05-17 19:00:59+08:00,2023-05-17 19:01:00+08:00,1,0,1.0
"""
KALOS = """\
job_id,user,node_num,gpu_num,cpu_num,mem_per_pod_GB,shared_mem_per_pod,type,state,submit_time,start_time,end_time,\
fail_time,stop_time,duration,queue,gpu_time
k1,u1,1,1,96,1000,100.0,Eval,CANCELLED,2023-05-17 11:00:58+00:00,2023-05-17 11:01:08+00:00,2023-05-17 11:01:16+00:00,\
,2023-05-17 11:01:16+00:00,18,10.0,18.0
k2,u3,1,1,96,1000,100.0,Debug,CANCELLED,2023-05-17 11:02:00+00:00,NaT,,,,,,
"""
"""As in the published example, the duration of k1 counts from its submission."""


def test_zones_are_heeded_and_durations_are_not(tmp_path: Path) -> None:
    files = [written(tmp_path, SEREN, "trace_seren.csv"), written(tmp_path, KALOS, "trace_kalos.csv")]
    made = tn.import_trace("acme:gpus=single", files)
    # 19:00:50 in Shanghai is 11:00:50 UTC, the first submission; k1 follows after 8 s and runs for 8 s, not 18 s.
    assert jobs(made) == [(0, "u1/Eval 117 s"), (8_000_000, "u1/Eval 8 s"), (9_000_000, "u2/Other 1 s")]
    assert made.tally.left_out == {"several GPUs": 1, "no start_time": 1}
    window = ("2023-05-17T11:00:58", "2023-05-17T19:00:59+08:00")
    assert jobs(tn.import_trace("acme:gpus=single", files, window=window)) == [(0, "u1/Eval 8 s")]


def test_options_split_jobs_choose_states_and_name_models(tmp_path: Path) -> None:
    made = tn.import_trace("acme:gpus=split,state=completed,model=type", [written(tmp_path, SEREN)])
    # 19:23:58 is 23 min 8 s after the first submission; 19:24:11 to 20:09:04 are 44 min 53 s.
    assert jobs(made) == [(0, "Eval 117 s"), (1_388_000_000, "SFT 2693 s x 8")]
    made = tn.import_trace("acme:gpus=single,model=user", [written(tmp_path, SEREN)])
    assert made.summary.model_requests == {"u1": 1, "u2": 1}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("19:02:51+08:00", "19:00:53+08:00", "log.csv:2: end_time: .* is before start_time"),
        # The same digits in another zone are eight hours later than the end.
        ("19:00:54+08:00", "19:00:54+00:00", "log.csv:2: end_time: .* is before start_time"),
        ("19:00:50+08:00", "19:00:55+08:00", "log.csv:2: start_time: .* is before submit_time"),
        ("11,u1", "13,u1", "log.csv:4: job_id: '13' stands in an earlier row"),
        ("Eval", "Ev\x00al", "log.csv:2: type: .* is no name|log.csv:2: row"),
    ],
)
def test_malformed_jobs_are_refused_by_line_or_counted(tmp_path: Path, old: str, new: str, message: str) -> None:
    log = written(tmp_path, SEREN.replace(old, new, 1))
    with pytest.raises(InputError, match=message):
        tn.import_trace("acme:gpus=single", [log])
    assert tn.import_trace("acme:gpus=single", [log], skip_malformed=True).tally.refused.total() == 1
