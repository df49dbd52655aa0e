"""What a worker has yet to load costs no cell its time limit."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from numba import njit

from tests.planner.answers.whatif.small import written
from truenorth.models.scenario import Scenario
from truenorth.planner.answers import plan as planning
from truenorth.planner.answers.whatif import cell
from truenorth.planner.answers.whatif.cell import CellCall, answer
from truenorth.planner.answers.whatif.grid import read_sweep
from truenorth.planner.questions.policies import SimulateQuestion
from truenorth.planner.questions.searches import PlanQuestion
from truenorth.solvers import first_use
from truenorth.solvers.budget import Budget
from truenorth.solvers.first_use import count_loaded


@pytest.mark.parametrize(("limit_s", "warm_s"), [(0.5, 0.5), (20.0, 2.0)])
def test_a_process_plans_until_nothing_is_left_to_load_and_only_then_answers(
    limit_s: float, warm_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The first plan loads 3 kernels, the second 2 more, the third none; then come the cells, one after the other.
    limits: list[float] = []
    real, loaded = planning.plan_within, iter([0, 3, 5, 5])

    def noted(scenario: Scenario, budget: Budget, **told: Any) -> planning.Plan:
        limits.append(budget.time_limit_s)
        return real(scenario, replace(budget, time_limit_s=0.2), **told)

    monkeypatch.setattr(planning, "plan_within", noted)
    monkeypatch.setattr(cell, "_warm", set())
    monkeypatch.setattr(first_use, "count_loaded", lambda: next(loaded))
    call = CellCall(read_sweep(written(tmp_path))[1].data(), str(tmp_path), PlanQuestion(time_limit_s=limit_s))
    assert [answer(call).error, answer(call).error] == [None, None]
    assert limits == [warm_s, warm_s, warm_s, limit_s, limit_s]


def test_a_simulation_loads_no_solver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cell, "_warm", set())
    data = read_sweep(written(tmp_path))[1].data()
    assert answer(CellCall(data, str(tmp_path), SimulateQuestion("jit"))).error is None
    assert cell._warm == set()


def test_a_kernel_counts_once_for_each_type_that_it_has_met(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("truenorth.solvers.of_a_test")
    vars(module)["twice"] = twice = njit(lambda number: number + number)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    counts = [count_loaded()]
    for number in (1, 2, 1.5):
        twice(number)
        counts.append(count_loaded())
    assert [count - counts[0] for count in counts] == [0, 1, 1, 2]
