"""Files that are not what they should be: not waited for without end, and not quoted."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from tests import instances as make
from truenorth.models import Job
from truenorth.models.scenario import InputError, files, load_scenario
from truenorth.models.scenario.arrivals import read_trace
from truenorth.planner.answers.check import read
from truenorth.planner.inputs.importers.csv_files import csv_rows
from truenorth.planner.inputs.importers.rows import Tally

SHADOW = "root:$6$SECRET:19000:0:99999:7:::\n"  # as in /etc/shadow


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    (tmp_path / "shadow").write_text(SHADOW)
    return tmp_path / "shadow"


def test_a_pipe_to_which_nobody_writes_is_refused(pipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_WRITER_S", 0)
    refused = "pipe:1: file: is a pipe to which nothing writes for 0 s; allowed is a file, or a pipe with a writer"
    with pytest.raises(InputError, match=refused):
        load_scenario(pipe)
    with pytest.raises(InputError, match=refused):
        read_trace(pipe, ["w"], 1)
    with pytest.raises(InputError, match=refused):
        next(iter(csv_rows(pipe, ["a"], Tally())))


def test_a_writer_may_be_silent_for_longer(pipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_WRITER_S", 0)
    opened, go_on = threading.Event(), threading.Event()

    def write() -> None:
        with pipe.open("w") as file:
            opened.set()
            go_on.wait()
            file.write("time_us,workflow\n7,w\n")

    writer = threading.Thread(target=write)
    writer.start()
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # lets the writer in
    opened.wait()
    threading.Timer(0.05, go_on.set).start()
    assert [arrival.release_us for arrival in read_trace(pipe, ["w"], 1).arrivals] == [7]
    writer.join()
    os.close(reader)


def test_what_is_no_trace_is_not_quoted(secret: Path) -> None:
    with pytest.raises(InputError) as refused:
        read_trace(secret, ["w"], 1)
    assert str(refused.value).startswith(f"{secret}:1: header: is none of a trace; allowed are time_ms, ")
    assert "SECRET" not in str(refused.value)


def test_what_is_no_log_is_not_quoted(secret: Path) -> None:
    with pytest.raises(InputError) as refused:
        next(iter(csv_rows(secret, ["time", "model"], Tally())))
    assert str(refused.value) == f"{secret}:1: header: has no column 'time'; allowed is a header with time, model"


def test_what_is_no_plan_is_not_quoted(secret: Path) -> None:
    built = make.instance([Job(make.chain(make.task("t", 5)), 0)])
    with pytest.raises(InputError) as refused:
        read(built, secret)
    assert str(refused.value) == f"{secret}:1: file: a value is missing at the beginning; allowed is JSON"
