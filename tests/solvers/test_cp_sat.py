"""The CP-SAT driver: bounds, hints, stops and faults."""

from __future__ import annotations

import random
import threading
import time
from fractions import Fraction

import pytest
from ortools.sat.python import cp_model

from experiments.authors import instance as authors
from experiments.authors import poisson
from models import Job, Objective, timeline_value
from models.formulations.cp_sat import scaled_objective
from models.status import Status
from solvers.exact import cp_sat, exhaustive
from solvers.result import Search
from solvers.search.dispatch import greedy
from tests.instances import chain, instance, random_instance, task


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
    began = time.process_time()
    cp_sat.improve(search)
    assert time.process_time() - began < 20  # far below the limit; building the model counts


def test_optimal_hint_is_proved_at_once() -> None:
    built = random_instance(random.Random(3))
    best = exhaustive.solve(built, Objective.MEAN_LATENCY)
    result = cp_sat.solve(built, Objective.MEAN_LATENCY, 20, best.timeline, 1)
    assert (result.status, result.value) == (Status.OPTIMAL, best.value)


def test_a_denied_plan_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    built = random_instance(random.Random(3))
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


@pytest.mark.parametrize("seed", range(42))
def test_proofs_job_by_job_agree_with_the_oracle(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cp_sat, "_FEWEST_JOBS", 2)
    built = random_instance(random.Random(2000 + seed), 5, restricted=seed % 2 == 1)
    objective = list(Objective)[seed % len(Objective)]
    exact, hint = exhaustive.solve(built, objective), exhaustive.solve(built, Objective.MAKESPAN).timeline
    result = cp_sat.solve(built, objective, 20, hint, 1)
    assert (result.status, result.value) == (exact.status, exact.value)


def test_floors_are_what_the_first_jobs_cost_alone() -> None:
    # One GPU; runs of 3 released at 0, 1, 2, 3, 4: latencies 3, 5, 7, 9, 11, in every order of equal runs.
    built = instance([Job(chain(task("a", 3)), release) for release in range(5)])
    plan = exhaustive.solve(built, Objective.MEAN_LATENCY).timeline
    assert plan is not None
    search = Search(built, Objective.MEAN_LATENCY, 20)
    search.offer(plan)
    scaled = scaled_objective(built, Objective.MEAN_LATENCY, plan)
    assert cp_sat._floors(search, plan, scaled, 1, 0) == (0, 3, 8, 15, 24)
    assert search.bound == Fraction(24 + 3, 5)  # the last job costs at least its run
