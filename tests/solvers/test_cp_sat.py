"""The CP-SAT driver: bounds, hints, stops and faults."""

from __future__ import annotations

import random
import threading
import time

import pytest
from ortools.sat.python import cp_model

from experiments.authors import instance as authors
from experiments.authors import poisson
from models import Objective, timeline_value
from solvers import cp_sat, exhaustive
from solvers.dispatch import greedy
from solvers.result import Search, Status
from tests.instances import random_instance


def test_bounds_never_exceed_the_optimum_on_the_way() -> None:
    built = authors(poisson(3.76, 4, 1))
    search_trail = cp_sat.solve(built, Objective.MEAN_SLOWDOWN, 20, workers=1)
    assert search_trail.status is Status.OPTIMAL
    assert search_trail.value is not None
    bounds = [moment.bound for moment in search_trail.incumbents if moment.bound is not None]
    assert bounds == sorted(bounds)
    assert bounds[-1] <= search_trail.value


def test_never_worse_than_its_hint() -> None:
    built = authors(poisson(3.76, 60, 1))
    hint = greedy(built, Objective.MEAN_LATENCY)
    assert hint is not None
    result = cp_sat.solve(built, Objective.MEAN_LATENCY, 1.0, hint)
    assert result.value is not None
    assert result.value <= timeline_value(Objective.MEAN_LATENCY, built, hint)


def test_stops_when_told() -> None:
    built = authors(poisson(3.76, 60, 1))
    search = Search(built, Objective.MEAN_LATENCY, 60)
    threading.Timer(1.0, search.stop.set).start()
    began = time.monotonic()
    cp_sat.improve(search)
    assert time.monotonic() - began < 10  # far below the limit; building the model counts


def test_optimal_hint_is_proved_at_once() -> None:
    built = random_instance(random.Random(3))  # noqa: S311
    best = exhaustive.solve(built, Objective.MEAN_LATENCY)
    result = cp_sat.solve(built, Objective.MEAN_LATENCY, 20, best.timeline, 1)
    assert (result.status, result.value) == (Status.OPTIMAL, best.value)


def test_a_denied_plan_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    built = random_instance(random.Random(3))  # noqa: S311
    search = Search(built, Objective.MEAN_LATENCY, 20)
    best = exhaustive.solve(built, Objective.MEAN_LATENCY).timeline
    assert best is not None
    search.offer(best)
    search.bound = None
    monkeypatch.setattr(cp_model.CpSolver, "solve", lambda *_: cp_model.INFEASIBLE)
    with pytest.raises(cp_sat.SolverFaultError, match="INFEASIBLE"):
        cp_sat.improve(search)
    assert search.timeline is best
    assert not search.infeasible
