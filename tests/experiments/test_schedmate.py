"""What the study of estimates takes for history, and what it tells policies."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.studies.schedmate import study
from experiments.studies.schedmate.study import (
    CLASSES,
    LEFT_OUT,
    PLAN,
    PROGRESS,
    RANKS,
    TRUTH,
    Part,
    Row,
    measure,
    parts,
)


def test_history_is_what_had_ended_and_classes_are_its_medians(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Before 100 s jobs on one GPU took 10 s and those on two 30 s; one on two GPUs still ran, and tells nothing.
    past = ["0,10,1", "5,30,2", "10,10,1", "15,30,2", "20,10,1", "25,30,2"]
    asked = ["100,20,1", "101,40,1", "102,6,2"]
    rows = [*past, "90,999,2", *asked]
    log = tmp_path / "log.csv"
    log.write_text("submission_time,duration,num_gpu\n" + "\n".join(rows) + "\n")
    part = Part(study.PARTS["cluster03"].log, log, "100 s", "200 s", 1, 2)
    assert part.past(["num_gpu"])["duration"].tolist() == [10, 10, 10, 30, 30, 30]
    monkeypatch.setitem(study.PARTS, "cluster03", part)
    study._scenario.cache_clear()
    study._estimates.cache_clear()

    def value(told: str, contender: str) -> float:
        return next(iter(measure(1.0, "cluster03", LEFT_OUT, told, contender))).value

    # The job of 40 s begins beside that of 20 s, whatever is told: 20, 40 and, from 141 s on, 45 s.
    assert value(TRUTH, "sjf") == value(CLASSES, "sjf") == pytest.approx((20 + 40 + 45) / 3)
    # All GPUs are taken until both have ended: that the end of each shows changes nothing.
    assert value(PROGRESS["0.1"], "easy") == pytest.approx((20 + 40 + 45) / 3)
    # A plan runs the short one first, from 102 s on: 6 s; then 28 s and 47 s.
    assert value(TRUTH, PLAN) == pytest.approx((28 + 47 + 6) / 3)
    assert value(CLASSES, RANKS) == pytest.approx(-(3**0.5) / 2)  # 10, 10, 30 against 20, 40, 6
    study._scenario.cache_clear()
    study._estimates.cache_clear()


def test_what_each_part_is_worth() -> None:
    told = {(TRUTH, "fifo"): 90.0, (TRUTH, "sjf"): 30.0, (CLASSES, "sjf"): 45.0, (CLASSES, "easy"): 60.0}
    told[PROGRESS["0.1"], "easy"] = 40.0
    rows = [Row("cluster03", LEFT_OUT, *asked, value) for asked, value in told.items()]
    found = parts([*rows, Row("cluster03", LEFT_OUT, TRUTH, PLAN, 29.0, 25.0)])
    lines = {cells[1]: cells[2] for line in found.splitlines() if (cells := [each.strip() for each in line.split("|")])}
    assert lines["classes: `fifo` over `sjf`"] == "2.00"
    assert lines["progress: `easy`"] == "1.50"
    assert lines["truth: `fifo` over `sjf`"] == "3.00"
    assert lines["no schedule beyond"] == "3.60"
    assert lines["history: `fifo` over `sjf`"] == ""


def test_retries_are_of_the_same_group_and_checkpoint(tmp_path: Path) -> None:
    # A failure of 10 s; 5 s after its end the same group asks for the same checkpoint, then for another, another group.
    columns = "gmt_create,exec_time_seconds,predict_status,groupId,checkpoint_model_version_id\n"
    asked = [
        (0, 10, "FAILED", "g", "m"),
        (15, 8, "SUCCEED", "g", "m"),
        (16, 7, "SUCCEED", "g", "n"),
        (17, 6, "SUCCEED", "h", "m"),
    ]
    rows = "".join(
        f"2024-12-06 00:00:{second:02d},{took},{state},{group},{model}\n" for second, took, state, group, model in asked
    )
    log = tmp_path / "log.csv"
    log.write_text(columns + rows)
    part = Part(study.PARTS["6 Dec, 0 h"].log, log, "2024-12-06T00:00", "2024-12-06T01:00", 1, 1)
    jobs = part.scenario(study.RETRIED).instance.jobs
    assert [len(job.workflow.tasks) for job in jobs] == [2, 1, 1]
    assert jobs[0].delays_us == {"retry 1": 5_000_000}
    assert [int(job.weight) for job in part.scenario("run").instance.jobs] == [0, 1, 1, 1]
