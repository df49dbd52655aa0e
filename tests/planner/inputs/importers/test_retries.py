"""Retries that a log lists as rows of their own: attempts of one job, by hand and by a slow rule."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest

import truenorth as tn
from tests.planner.inputs.importers.small import written
from truenorth.models import Job, check
from truenorth.models.errors import QuestionError
from truenorth.models.scenario import InputError, load_scenario
from truenorth.planner.inputs.importers.retries import attempts_of
from truenorth.planner.inputs.importers.tables import Requests
from truenorth.planner.inputs.importers.trace import Imported

MINUTE = 60_000_000
HEADER = "job_id,user,vc,gpu_num,state,submit_time,start_time,end_time\n"


def helios(*rows: tuple[str, int, str, int, int, int]) -> str:
    """Return a log of rows: user/vc, GPUs, state, and minutes of submission, start and end from ten o'clock on."""
    lines = []
    for number, (who, gpus, state, *minutes) in enumerate(rows):
        user, _, vc = who.partition("/")
        moments = ",".join(f"2020-06-09 {10 + at // 60}:{at % 60:02d}:00" for at in minutes)
        lines.append(f"{number},{user},{vc or 'v'},{gpus},{state},{moments}\n")
    return HEADER + "".join(lines)


def jobs_of(made: Imported) -> list[tuple[int, list[int], list[int], int]]:
    """Return of each job its release, its attempts' run times and what passes between them in minutes, its weight."""
    return [of_job(job) for job in made.scenario.instance.jobs]


def of_job(job: Job) -> tuple[int, list[int], list[int], int]:
    tasks = job.workflow.tasks
    delays = [(job.delays_us or {}).get(task.name, 0) // MINUTE for task in tasks[1:]]
    assert [[edge.source for edge in task.inputs] for task in tasks] == [[], *([task.name] for task in tasks[:-1])]
    return job.release_us // MINUTE, [task.fastest_us // MINUTE for task in tasks], delays, int(job.weight)


TWICE = helios(
    ("ann", 2, "FAILED", 0, 0, 30),
    ("ann", 2, "NODE_FAIL", 35, 40, 60),
    ("ann", 2, "COMPLETED", 70, 80, 140),
)
"""A failure for good after 30 min; 5 min later a retry whose node is lost after 20; 10 min later one that succeeds."""


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("failed=run", [(0, [30], [], 0), (35, [20], [], 0), (70, [60], [], 1)]),
        ("failed=run,retries=5 min", [(0, [30, 20], [5], 0), (70, [60], [], 1)]),
        ("failed=run,retries=10 min", [(0, [30, 20, 60], [5, 10], 1)]),
        # The first ends early; what happens behind it has its own outcome, since it did not fail for good once more.
        ("failed=stop:6 min,retries=1 h", [(0, [6, 20, 60], [5, 10], 1)]),
    ],
)
def test_rows_become_attempts_of_one_job(
    tmp_path: Path, options: str, expected: list[tuple[int, list[int], list[int], int]]
) -> None:
    made = tn.import_trace(f"helios:{options}", [written(tmp_path, TWICE)], gpus_per_server=2)
    assert jobs_of(made) == expected
    saved = load_scenario(made.save(tmp_path / "saved.yaml")[0])
    assert [of_job(job) for job in saved.instance.jobs] == expected
    assert [job.line for job in saved.instance.jobs] == [job.line for job in made.scenario.instance.jobs]
    assert str(saved.objective) == "weighted_latency"


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (("bob", 2, "COMPLETED", 40, 40, 50), "another user"),
        (("ann/w", 2, "COMPLETED", 40, 40, 50), "another virtual cluster"),
        (("ann", 1, "COMPLETED", 40, 40, 50), "another number of GPUs"),
        (("ann", 2, "COMPLETED", 29, 40, 50), "submitted before the failure"),
        (("ann", 2, "COMPLETED", 91, 91, 95), "submitted too late"),
    ],
)
@pytest.mark.parametrize("state", ["FAILED", "NODE_FAIL"])
def test_what_is_no_retry(tmp_path: Path, row: tuple[str, int, str, int, int, int], why: str, state: str) -> None:
    log = written(tmp_path, helios(("ann", 2, state, 0, 0, 30), row))
    made = tn.import_trace("helios:failed=run,retries=1 h", [log])
    assert [len(job.workflow.tasks) for job in made.scenario.instance.jobs] == [1, 1], why
    assert [int(job.weight) for job in made.scenario.instance.jobs] == [0, 1]


@pytest.mark.parametrize("state", ["COMPLETED", "CANCELLED", "TIMEOUT"])
def test_only_what_failed_is_tried_again(tmp_path: Path, state: str) -> None:
    log = written(tmp_path, helios(("ann", 2, state, 0, 0, 30), ("ann", 2, "COMPLETED", 40, 40, 50)))
    made = tn.import_trace("helios:failed=run,retries=1 h", [log])
    assert jobs_of(made) == [(0, [30], [], 1), (40, [10], [], 1)]


def test_each_failure_has_one_retry_and_the_latest_failure_gets_it(tmp_path: Path) -> None:
    # Two fail, at 20 and at 30. The retry of 35 is of the second, that of 40 of the first, and 45 is a job of its own.
    rows = [("ann", 1, "FAILED", 0, 0, 20), ("ann", 1, "FAILED", 1, 1, 30)]
    rows += [("ann", 1, "COMPLETED", at, at, at + 2 + place) for place, at in enumerate((35, 40, 45))]
    made = tn.import_trace("helios:failed=run,retries=1 h", [written(tmp_path, helios(*rows))])
    assert jobs_of(made) == [(0, [20, 3], [20], 1), (1, [29, 2], [5], 1), (45, [4], [], 1)]


AGAIN = helios(
    ("ann", 1, "FAILED", 0, 0, 30),
    ("ann", 1, "FAILED", 32, 32, 60),
    ("ann", 1, "FAILED", 65, 65, 90),
    ("ann", 1, "COMPLETED", 100, 100, 110),
    ("bob", 1, "NODE_FAIL", 0, 0, 30),
    ("bob", 1, "FAILED", 31, 31, 60),
    ("bob", 1, "FAILED", 62, 62, 90),
)
"""Three failures for good and a success, 2, 5 and 10 min apart; a lost node and two failures, 1 and 2 min apart."""


def test_what_failed_for_good_is_not_tried_again_unchanged_where_it_is_stopped(tmp_path: Path) -> None:
    log = written(tmp_path, AGAIN)
    made = tn.import_trace("helios:failed=run,retries=1 h", [log])
    assert jobs_of(made) == [(0, [30, 28, 25, 10], [2, 5, 10], 1), (0, [30, 29, 28], [1, 2], 0)]
    assert "6 of 7 attempts fail; they take 94.44% of the GPU-time" in made.notes  # 170 of 180 minutes
    stopped = tn.import_trace("helios:failed=stop:5 min,retries=1 h", [log])
    # All the time that passed between the attempts passes: 2 + 5 + 10. Bob's node is replaced; what follows fails.
    assert jobs_of(stopped) == [(0, [5, 10], [17], 1), (0, [30, 5], [1], 0)]
    notes = " ".join(stopped.notes)
    # 30 + 5 of 50 minutes, and 5 more: of 5, 10, 30 and 5 minutes all but the success.
    assert "3 of 4 attempts fail; they take 80.00% of the GPU-time" in notes
    assert "7 rows make 2 jobs: 2 are tried again, submitted within 3600 s of the end of a failed one" in notes
    assert "1 of the jobs fail in the end and weigh 0" in notes
    assert "attempts left out that failed for good right after one that had, too: 3" in notes


def test_no_schedule_runs_a_retry_before_the_failure_that_it_answers(tmp_path: Path) -> None:
    # A server as wide as each job. Bob's runs until 100; then ann's retry, of 10 min, is the shortest of those that
    # wait, though it was submitted at 95 only since her first attempt had failed by then. As one job with it, it comes
    # 5 min after that has ended, at 135.
    rows = [("bob", 2, "COMPLETED", 0, 0, 100), ("ann", 2, "FAILED", 1, 60, 90), ("ann", 2, "COMPLETED", 95, 100, 110)]
    log, found = helios(*rows, ("cyd", 2, "COMPLETED", 96, 100, 160)), {}
    for retries in ("", ",retries=1 h"):
        text = f"helios:failed=run{retries}"
        made = tn.import_trace(text, [written(tmp_path, log)], servers=1, gpus_per_server=2).scenario
        ran = tn.simulate(made, "sjf")
        assert check(made.instance, ran.timeline) == []
        found[retries] = [at // MINUTE for at in ran.timeline.start_us.tolist()], round(ran.value / 60, 6)
    # Apart: bob 100, ann's retry until 110 from 95 on, cyd from 140 to 200 behind her failure.
    assert found[""] == ([0, 110, 100, 140], round((100 + 15 + 104) / 3, 6))
    # As one: her failure until 130; cyd is alone then, and runs until 190; ann's retry until 200, 199 after she came.
    assert found[",retries=1 h"] == ([0, 100, 190, 130], round((100 + 199 + 94) / 3, 6))


@pytest.mark.parametrize("seed", range(20))
def test_chains_are_those_of_a_slow_rule(seed: int) -> None:
    rng = random.Random(seed)
    count, within = rng.randint(1, 30), rng.choice((0, 3, 10, 100))
    submit = sorted(rng.randint(0, 60) for _ in range(count))
    end = [at + rng.randint(1, 20) for at in submit]
    key, failed = [rng.choice("ab") for _ in range(count)], [rng.random() < 0.7 for _ in range(count)]
    stopped = [each and rng.random() < 0.5 for each in failed]
    follower: dict[int, int] = {}
    for row in range(count):
        able = [
            other
            for other in range(row)
            if failed[other] and key[other] == key[row] and end[other] <= submit[row] <= end[other] + within
            and other not in follower
        ]  # fmt: skip
        if able:
            follower[max(able, key=lambda other: (end[other], -other))] = row
    expected = []
    for row in (row for row in range(count) if row not in follower.values()):
        chain, passed = [(row, 0)], 0
        while row in follower:
            before, row = row, follower[row]
            passed += submit[row] - end[before]
            if not (stopped[before] and stopped[row]):
                chain.append((row, passed))
                passed = 0
        expected.append(chain)
    model = np.full(count, "", np.object_)
    found = attempts_of(
        Requests(
            np.array(submit), model, np.ones(count, np.int64), failed=np.array(failed), stopped=np.array(stopped),
            tries_us=within, key=np.array(key, np.object_), end_us=np.array(end),
        )
    )  # fmt: skip
    assert found is not None
    made: list[list[tuple[int, int]]] = [[] for _ in range(int(found.job.max()) + 1)]
    for row, job, place, delay in zip(found.row, found.job, found.place, found.delay_us, strict=True):
        assert place == len(made[job])
        made[job].append((int(row), int(delay)))
    assert made == expected
    assert found.left_out == count - sum(map(len, expected))


def test_other_logs_say_it_with_their_columns(tmp_path: Path) -> None:
    acme = (
        "job_id,user,type,gpu_num,state,submit_time,start_time,end_time\n"
        "1,u,eval,1,FAILED,2023-03-01 10:00:00+08:00,2023-03-01 10:00:00+08:00,2023-03-01 10:10:00+08:00\n"
        "2,u,debug,1,COMPLETED,2023-03-01 10:11:00+08:00,2023-03-01 10:11:00+08:00,2023-03-01 10:20:00+08:00\n"
        "3,u,eval,1,COMPLETED,2023-03-01 10:12:00+08:00,2023-03-01 10:12:00+08:00,2023-03-01 10:20:00+08:00\n"
    )
    made = tn.import_trace("acme:failed=run,retries=1 h", [written(tmp_path, acme)])
    assert jobs_of(made) == [(0, [10, 8], [2], 1), (11, [9], [], 1)]

    def philly(number: int, status: str, *minutes: int) -> dict[str, object]:
        submit, start, end = (f"2017-10-07 10:{at:02d}:00" for at in minutes)
        run = {"start_time": start, "end_time": end, "detail": [{"gpus": ["a"]}]}
        job = {"jobid": str(number), "status": status, "vc": "v", "user": "u", "submitted_time": submit}
        return {**job, "attempts": [run]}

    jobs = [philly(1, "Failed", 0, 1, 11), philly(2, "Pass", 13, 14, 20), philly(3, "Pass", 14, 15, 20)]
    made = tn.import_trace("philly:failed=run,retries=1 h", [written(tmp_path, json.dumps(jobs))])
    assert jobs_of(made) == [(0, [10, 6], [2], 1), (14, [5], [], 1)]
    table = "at,for,end,how,who,name\n0,60,90,error,a,x\n2,60,200,ok,a,x\n100,60,300,ok,a,y\n120,60,400,ok,a,x\n"
    named = "table:release=at,runtime=for,end=end,status=how,user=who"
    made = tn.import_trace(f"{named},model=name,failed=run,retries=1 min", [written(tmp_path, table)])
    assert jobs_of(made) == [(0, [1, 1], [0], 1), (0, [1], [], 1), (1, [1], [], 1)]
    assert (made.scenario.instance.jobs[0].delays_us or {}) == {"retry 1": 30_000_000}
    # Without names of models whatever the user submits next is the retry; each needs its models.
    made = tn.import_trace(f"{named},model=,failed=run,retries=1 min", [written(tmp_path, table)])
    assert (made.scenario.instance.jobs[0].delays_us or {}) == {"retry 1": 10_000_000}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("helios:retries=1 h", "^format helios: retries= is about jobs that failed; allowed is beside failed=run or"),
        (
            "helios:failed=run,retries=1 h,gpus=split",
            "^format helios: retries= is about jobs whose GPUs run together; allowed is without splitting them",
        ),
        ("helios:failed=run,retries=0 s", "retries: '0 s' is not above 0"),
        ("table:release=a,runtime=b,status=c,failed=run,retries=1 h", "allowed is beside user= and end=COLUMN"),
        ("table:release=a,runtime=b,status=c,failed=run,retries=1 h,user=d,split=on", "without splitting them"),
    ],
)
def test_what_cannot_be_tried_again(tmp_path: Path, text: str, message: str) -> None:
    log = written(tmp_path, TWICE if text.startswith("helios") else "a,b,c,d\n0,1,ok,u\n")
    with pytest.raises(QuestionError, match=message):
        tn.import_trace(text, [log])


def test_a_job_that_is_tried_for_ever_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("truenorth.planner.inputs.importers.retries.MOST_DELAYS", 3)
    log = written(tmp_path, AGAIN)  # two jobs, one of them of four attempts: 2 x 3 delays
    with pytest.raises(
        InputError, match="retries=3600 s makes a job of 4 attempts, among 2 jobs; allowed is a shorter"
    ):
        tn.import_trace("helios:failed=run,retries=1 h", [log])
    tn.import_trace("helios:failed=stop:1 min,retries=1 h", [log])  # of two attempts each


def test_a_row_that_ends_before_it_comes_is_refused_by_its_line(tmp_path: Path) -> None:
    log = written(tmp_path, "release,took,end,status,user\n0,5,9,ok,u\n8,5,3,failed,u\n")
    with pytest.raises(InputError, match=r":3: end: '3' is before release; allowed is a time from release on"):
        tn.import_trace("table:runtime=took,end=end,status=status,user=user,failed=run,retries=1 h", [log])
