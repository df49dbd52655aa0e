"""What the study of estimates takes for history, and what it tells policies."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.studies.schedmate import study
from experiments.studies.schedmate.study import CLASSES, LEFT_OUT, PLAN, RANKS, TRUTH, Part, measure


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
    # A plan runs the short one first, from 102 s on: 6 s; then 28 s and 47 s.
    assert value(TRUTH, PLAN) == pytest.approx((28 + 47 + 6) / 3)
    assert value(CLASSES, RANKS) == pytest.approx(-(3**0.5) / 2)  # 10, 10, 30 against 20, 40, 6
    study._scenario.cache_clear()
    study._estimates.cache_clear()
