"""The study of batches and swaps: its tables follow from its results, and its classes are what it says."""

from __future__ import annotations

from experiments.batching_2026_11_22 import FOLDER, BatchingRow, contenders, in_classes, worth
from experiments.study import read
from tests.instances import chain, instance, task
from truenorth.models import Job


def test_the_readme_shows_what_the_results_say() -> None:
    rows = read(FOLDER / "results.csv", BatchingRow)
    said = (FOLDER / "README.md").read_text()
    for line in (*worth(rows).splitlines(), *contenders(rows).splitlines()):
        assert line in said


def test_requests_of_one_model_and_run_time_run_together() -> None:
    # 10 us alone, 13, 16 and 19 together; another run time is another class.
    jobs = [Job(chain(task("t", us, ["m"]), name=f"w{us}"), 0) for us in (10, 10, 20)]
    on = in_classes(instance(jobs, {"m": 1}))
    assert [batch.name for batch in on.batches] == ["m of 10 us", "m of 20 us"]
    assert on.batch_us[0, 0, 1:].tolist() == [10, 13, 16, 19]
