"""RLTune: nineteen columns without a header, in which -1 stands for what is not available."""

from __future__ import annotations

from pathlib import Path

import pytest

import truenorth as tn
from tests.planner.inputs.importers.outcomes import jobs
from tests.planner.inputs.importers.small import written
from truenorth.models.scenario import InputError


def row(job: str, submit: str, run: str, gpus: str = "1", user: str = "7", before: str = "-1") -> str:
    return f"{job},{submit},0,{run},{gpus},-1,-1,-1,-1,29.296875,2,{user},1,-1,0,-1,{before},-1,1\n"


LOG = (
    row("bert-0_1", "1201", "25")
    + row("cifar10-1_1", "1312", "34", gpus="8")
    + row("bert-2_1", "1200", "41", user="-1")
    + row("wide-resnet-3_1", "1400", "2.5", before="bert-0_1")
    + row("bert-4_1", "1500", "-1")
    + row("bert-5_1", "-1", "10")
    + row("bert-6_1", "1600", "0")
    + row("bert-7_1", "1700", "5", gpus="0")
)


def test_the_first_line_is_a_job_and_time_zero_the_first_submission(tmp_path: Path) -> None:
    made = tn.import_trace("rltune:gpus=single", [written(tmp_path, LOG)])
    assert jobs(made) == [(0, "unknown user 41 s"), (1_000_000, "user 7 25 s"), (200_000_000, "user 7 2.5 s")]
    assert made.tally.read == 8
    assert made.tally.left_out == {
        "several GPUs": 1,
        "no run_time": 1,
        "no submit_time": 1,
        "ran for 0 s": 1,
        "no GPU": 1,
    }
    assert "jobs without a user, which share the model 'unknown user': 1" in made.notes
    assert "jobs that follow a job of their workflow, but are released on their own: 1" in made.notes


def test_models_can_be_read_off_the_ids(tmp_path: Path) -> None:
    made = tn.import_trace("rltune:model=name,gpus=split", [written(tmp_path, LOG)])
    # What stands before the last hyphen.
    assert [name for _, name in jobs(made)] == ["bert 41 s", "bert 25 s", "cifar10 34 s x 8", "wide-resnet 2.5 s"]
    made = tn.import_trace("rltune:gpus=single,model=group", [written(tmp_path, LOG)])
    assert made.summary.model_requests == {"group 1": 3}


def test_seconds_since_1970_are_in_range(tmp_path: Path) -> None:
    log = written(tmp_path, row("a-1", "1506638472", "60") + row("b-1", "1506638475", "60"))
    assert [release for release, _ in jobs(tn.import_trace("rltune:gpus=single", [log]))] == [0, 3_000_000]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (row("bert-0_1", "5", "5"), "log.csv:2: job_id: 'bert-0_1' stands in an earlier row"),
        (row("x", "5", "-2"), "log.csv:2: run_time: '-2' is no time in range"),
        (row("x", "soon", "2"), "log.csv:2: submit_time: 'soon' is no whole number in range"),
        (row("x", "5", "5", gpus="many"), "log.csv:2: num_gpus: 'many' is no whole number in range"),
        (row("x", "5", "5").replace(",-1,1\n", ",1\n"), "log.csv:2: row: has 18 fields; allowed are 19"),
    ],
)
def test_malformed_jobs_are_refused_by_line_or_counted(tmp_path: Path, text: str, message: str) -> None:
    log = written(tmp_path, row("bert-0_1", "1201", "25") + text)
    with pytest.raises(InputError, match=message):
        tn.import_trace("rltune:gpus=single", [log])
    made = tn.import_trace("rltune:gpus=single", [log], skip_malformed=True)
    assert (made.tally.refused.total(), jobs(made)) == (1, [(0, "user 7 25 s")])


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"log.csv:1: file: has no rows"):
        tn.import_trace("rltune:gpus=single", [written(tmp_path, "")])
