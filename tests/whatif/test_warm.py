"""What a worker has yet to load costs no cell its time limit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from models.scenario import Scenario
from planner.answers import plan as planning
from planner.answers.whatif import warm
from planner.answers.whatif.cell import CellCall, answer
from planner.answers.whatif.document import read_sweep
from tests.whatif.small import written


@pytest.mark.parametrize(("limit", "expected"), [("500 ms", [0.5, 0.5, 0.5, 0.5]), ("20 s", [2.0, 2.0, 20.0, 20.0])])
def test_a_process_plans_once_for_what_it_loads_before_its_first_cell(
    limit: str, expected: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[float] = []
    real = planning.plan

    def noted(scenario: Scenario, *, time_limit_s: float, **told: Any) -> planning.Plan:
        limits.append(time_limit_s)
        return real(scenario, time_limit_s=0.2, **told)

    monkeypatch.setattr(planning, "plan", noted)
    monkeypatch.setattr(warm, "_warm", set())
    data = read_sweep(written(tmp_path))[1].data
    call = CellCall(data, str(tmp_path), "plan", {"time_limit": limit})
    assert [answer(call).error, answer(call).error] == [None, None]
    assert limits == expected


def test_a_simulation_loads_no_solver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm, "_warm", set())
    data = read_sweep(written(tmp_path))[1].data
    assert answer(CellCall(data, str(tmp_path), "simulate", {"policy": "jit"})).error is None
    assert warm._warm == set()
