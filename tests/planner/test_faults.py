"""A solver that contradicts itself: the best plan all the same, one line, and a file to report."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from unittest.mock import Mock

import pytest
from ortools.sat.python import cp_model

from experiments.benchmarks.exact import THREE_IN_BATCHES
from truenorth.planner.answers import versions
from truenorth.planner.command import start


def ask(verb: str, *options: str) -> int:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(start, "signal", Mock())  # the handlers of the tests stay
        patch.setattr(sys, "argv", ["truenorth", verb, str(THREE_IN_BATCHES), *options])
        with pytest.raises(SystemExit) as ended:
            start.main()
    return int(ended.value.code or 0)


@pytest.fixture
def denying(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let CP-SAT deny every plan, and reports go to the test's folder."""
    monkeypatch.setattr(cp_model.CpSolver, "solve", lambda *_: cp_model.INFEASIBLE)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.mark.usefixtures("denying")
def test_the_plan_is_kept_and_the_fault_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert ask("plan", "--method", "cp-sat", "--time-limit", "3", "--json") == 0
    told = capsys.readouterr()
    answer, lines = json.loads(told.out), told.err.splitlines()
    assert (answer["status"], answer["proved_by"], answer["confirmed_by"]) == ("FEASIBLE", None, None)
    assert answer["objective"]["value"] == 2000
    assert len(answer["faults"]) == 1
    (line,) = (line for line in lines if "CP-SAT" in line)
    assert line.startswith("truenorth: warning: CP-SAT claims that there is no plan")
    report = json.loads(Path(line.rpartition(" ")[2]).read_text())
    assert (report["solver"], report["said"]) == ("CP-SAT", answer["faults"][0])
    assert len(report["plan"]["tasks"]) == answer["metrics"]["tasks"]
    assert report["versions"]["ortools"] == versions.versions()["ortools"]


def test_an_untested_solver_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert versions.untested_solvers() == []
    monkeypatch.setitem(versions.TESTED, "ortools", ("9.1",))
    assert ask("plan", "--time-limit", "3", "--json") == 0
    told = capsys.readouterr()
    named = f"ortools {versions.versions()['ortools']}"
    assert json.loads(told.out)["untested_solvers"] == [named]
    assert f"truenorth: warning: {named}: untested" in told.err
