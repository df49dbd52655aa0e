"""Philly: the run time of a job is the sum of its attempts, and every error names the line in the JSON list."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import truenorth as tn
from tests.planner.inputs.importers.outcomes import jobs
from tests.planner.inputs.importers.small import written
from truenorth.models.scenario import InputError


def attempt(start: object, end: object, gpus: int = 1) -> dict[str, Any]:
    return {"start_time": start, "end_time": end, "detail": [{"ip": "m1", "gpus": [f"gpu{n}" for n in range(gpus)]}]}


def job(job_id: str, submitted: object, *attempts: dict[str, Any], status: str = "Pass") -> dict[str, Any]:
    return {
        "status": status,
        "vc": "vc1",
        "jobid": job_id,
        "attempts": list(attempts),
        "submitted_time": submitted,
        "user": "u1",
    }


def day(time: str) -> str:
    return f"2017-10-07 {time}"


FIRST = job("a1", day("01:00:00"), attempt(day("01:00:10"), day("01:01:00")), attempt(day("01:02:00"), day("01:02:30")))
LOG = [
    FIRST,
    job("a2", day("00:59:58"), attempt(day("01:00:00"), day("01:00:20")), status="Killed"),
    job("a3", day("01:00:01"), attempt(day("01:00:02"), day("01:00:22"), 8)),
    job("a4", day("01:00:01"), attempt(day("01:00:02"), "None")),
    job("a5", day("01:00:01"), attempt(None, day("01:00:02"))),
    job("a6", day("01:00:01")),
    job("a7", day("01:00:01"), attempt(day("01:00:02"), day("01:00:02"))),
    job("a8", "None", attempt(day("01:00:02"), day("01:00:03"))),
    job("a9", day("01:00:01"), {"start_time": day("01:00:02"), "end_time": day("01:00:05"), "detail": []}),
]


def text(log: object) -> str:
    return json.dumps(log, indent=4)


def test_run_times_are_sums_over_attempts(tmp_path: Path) -> None:
    made = tn.import_trace("philly:gpus=single", [written(tmp_path, text(LOG), "cluster_job_log")])
    # 50 s and 30 s; a2 was submitted two seconds earlier, which is time zero.
    assert jobs(made) == [(0, "u1 20 s"), (2_000_000, "u1 80 s")]
    assert made.tally.read == 9
    assert made.tally.left_out == {
        "several GPUs": 1,
        "an attempt without start or end": 2,
        "no attempt": 1,
        "ran for 0 s": 1,
        "no submitted_time": 1,
        "no GPU": 1,
    }


def test_options_split_jobs_choose_states_and_name_models(tmp_path: Path) -> None:
    log = written(tmp_path, text(LOG), "cluster_job_log.gz")
    made = tn.import_trace("philly:gpus=split,state=completed,model=vc", [log])
    assert jobs(made) == [(0, "vc1 80 s"), (1_000_000, "vc1 20 s x 8")]
    assert made.tally.left_out["status Killed"] == 1


def changed(*way: Any, to: object) -> str:
    """Return a log of one good job and one with a value that is changed; None removes it."""
    bad = json.loads(json.dumps(FIRST))
    bad["jobid"] = "b1"
    inner = bad
    for part in way[:-1]:
        inner = inner[part]
    if to is None:
        del inner[way[-1]]
    else:
        inner[way[-1]] = to
    return text([FIRST, bad])


# Printed with an indent of four, a job has 33 lines: the first fills 2 to 34, the second starts on line 35.
@pytest.mark.parametrize(
    ("log", "message"),
    [
        (changed("jobid", to="a1"), r"log:38: \[1\].jobid: 'a1' stands in an earlier job; allowed is a new id"),
        (
            changed("attempts", 1, "end_time", to=day("01:01:59")),
            r"log:54: \[1\].attempts\[1\].end_time: is before start",
        ),
        (changed("attempts", 0, "start_time", to=day("00:59:59")), r"log:41: .*start_time: is before submitted_time"),
        (changed("attempts", 0, "start_time", to="soon"), r"log:41: .*the value 'soon' is no date and time"),
        (changed("attempts", 0, "start_time", to=7), r"log:41: .*the value '7' is no date and time"),
        (changed("attempts", 0, "detail", to={}), r"log:43: .*detail: a mapping stands here; allowed is a list"),
        (changed("attempts", to="none"), r"log:39: \[1\].attempts: the value 'none' stands here; allowed is a list"),
        (changed("attempts", 1, to=[]), r"log:52: \[1\].attempts\[1\]: a list stands here; allowed is a mapping"),
        (changed("attempts", 1, "detail", 0, "gpus", to=None), r"log:56: .*detail\[0\]: key 'gpus' is missing"),
        (changed("user", to=None), r"log:35: \[1\]: key 'user' is missing"),
        (changed("status", to=["Pass"]), r"log:36: \[1\].status: a list stands here"),
        (changed("user", to="a\nb"), r"log:66: \[1\].user: .*printable"),
    ],
)
def test_malformed_jobs_are_refused_by_line_or_counted(tmp_path: Path, log: str, message: str) -> None:
    path = written(tmp_path, log, "log")
    with pytest.raises(InputError, match=message):
        tn.import_trace("philly:gpus=single", [path])
    made = tn.import_trace("philly:gpus=single", [path], skip_malformed=True)
    assert (made.tally.refused.total(), jobs(made)) == (1, [(0, "u1 80 s")])


@pytest.mark.parametrize(
    ("log", "message"),
    [
        ("", r"log:1: file: \[ is missing, the text ends"),
        ('{"jobs": []}', r"log:1: file: \[ is missing at"),
        ("[\n\n1]", r"log:3: file: an object is missing at '1\]'"),
        (text([FIRST])[:-2] + ",\n", r"log:35: file: an object is missing, the text ends"),
        (text([FIRST])[:-3], r"log:34: file: a comma or } is missing, the text ends"),
        (text([FIRST]) + "[]", r"log:35: file: text follows the list"),
        ('[{"jobid": 1,\n "jobid": 2}]', "log:2: jobid: duplicate key; it already stands in line 1"),
        ('[{"a":' + "[" * 100_000, "log:1: file: is nested deeper than 50 levels"),
        ('[{"a":\nNaN}]', "log:2: file: a value is missing at 'NaN"),
        ("[]", "no row is left"),
    ],
)
def test_what_is_no_list_of_objects_is_refused_even_if_malformed_jobs_are_skipped(
    tmp_path: Path, log: str, message: str
) -> None:
    with pytest.raises((InputError, ValueError), match=message):
        tn.import_trace("philly:gpus=single", [written(tmp_path, log, "log")], skip_malformed=True)
