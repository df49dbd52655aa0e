"""Calls on worker processes: every outcome, in any order, whatever single calls do."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.planner.answers.whatif.calls import slow, square, troubled
from truenorth.planner.answers import pool
from truenorth.planner.answers.pool import CallFailedError, CallsStoppedError, as_finished, in_order
from truenorth.planner.answers.pool.processes import CRASHED, Outcome


def test_values_come_in_the_order_of_the_items() -> None:
    assert in_order(square, range(40), workers=2) == [number * number for number in range(40)]


def test_no_items_need_no_workers() -> None:
    assert in_order(square, []) == []


def test_neither_an_exception_nor_a_crash_disturbs_the_others() -> None:
    outcomes = {outcome.index: outcome for outcome in as_finished(troubled, range(12), workers=1)}
    assert len(outcomes) == 12
    assert {index: outcomes[index].value for index in outcomes if outcomes[index].failure is None} == {
        number: number * number for number in range(12) if number not in (3, 5)
    }
    assert outcomes[3].failure == "KeyError: 'three'"
    assert outcomes[5].failure == CRASHED


def test_a_call_that_fails_is_named() -> None:
    with pytest.raises(CallFailedError, match="call 1: KeyError: 'three'"):
        in_order(troubled, [1, 3], workers=1)


def test_a_stop_gives_up_running_calls_and_keeps_finished_ones() -> None:
    stop = threading.Event()
    finished = []
    for outcome in as_finished(slow, [0.0, 600.0, 600.0], workers=1, stop=stop):
        finished.append(outcome.index)
        stop.set()
    assert finished == [0]
    with pytest.raises(CallsStoppedError, match="stopped after 0 of 1 calls"):
        in_order(slow, [600.0], stop=stop)


def test_a_script_needs_no_guard(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from truenorth.planner.answers.pool import in_order\n"
        "from tests.planner.answers.whatif.calls import square\n"
        "print(in_order(square, [2, 3]), __file__)\n"
    )
    root = Path(__file__).parents[5]
    command = [sys.executable, str(script)]
    done = subprocess.run(  # noqa: S603
        command, capture_output=True, text=True, check=True, cwd=root, env={"PYTHONPATH": str(root)}
    )
    assert (done.stdout, done.stderr) == (f"[4, 9] {script}\n", "")


def test_a_cluster_that_is_gone_costs_a_search_its_calls_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def lose(*_: object, **__: object) -> Iterator[Outcome[int]]:
        yield Outcome(1, 7, None, 0.0)
        raise ConnectionError("head node is gone")

    monkeypatch.setattr(pool, "as_finished", lose)
    lent = pool.LentPool(2, "head:6379")
    assert list(lent.gather(square, [0, 1], threading.Event())) == [(1, 7)]
    assert lent.lost == ["ConnectionError: head node is gone"]
