"""The CP-SAT driver: bounds, hints, stops and faults."""

from __future__ import annotations

import random
import threading
from fractions import Fraction
from pathlib import Path

import pytest
from ortools.sat.python import cp_model

from experiments.authors import instance as authors
from experiments.authors import poisson
from tests.instances import chain, cluster, gpu, instance, network, random_instance, task
from truenorth.models import Cluster, Instance, Job, Objective, timeline_value
from truenorth.models.formulations.cp_sat import formulate_scaled, scaled_objective
from truenorth.models.objective import Status
from truenorth.solvers.exact import cp_sat, exhaustive
from truenorth.solvers.result import Search
from truenorth.solvers.search import annealing
from truenorth.solvers.search.dispatch import greedy
from truenorth.solvers.trust import SolverFaultWarning
from truenorth.solvers.tuning import Tuning


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
    search = Search(built, Objective.MEAN_LATENCY, 600)
    threading.Timer(1.0, search.clock.set).start()
    cp_sat.improve(search)
    assert search.clock.elapsed_s < 600


def test_optimal_hint_is_proved_at_once() -> None:
    built = random_instance(random.Random(3))
    best = exhaustive.solve(built, Objective.MEAN_LATENCY)
    result = cp_sat.solve(built, Objective.MEAN_LATENCY, 20, best.timeline, 1)
    assert (result.status, result.value) == (Status.OPTIMAL, best.value)


FT06 = (
    "21 03 16 37 53 46",
    "18 25 410 510 010 34",
    "25 34 58 09 11 47",
    "15 05 25 33 48 59",
    "29 13 45 54 03 31",
    "13 33 59 010 44 21",
)
"""Machine and time of each operation of the job shop ft06 (Fisher, Thompson 1963), whose optimum is 55."""


def ft06() -> Instance:
    """Return the job shop with a GPU of its own kind per machine."""
    jobs = []
    for row in FT06:
        tasks = []
        for k, word in enumerate(row.split()):
            tasks.append(task(f"o{k}", {f"M{word[0]}": int(word[1:])}, after={f"o{k - 1}": 0} if k else None))
        jobs.append(Job(chain(*tasks), 0))
    gpus = tuple(gpu(machine, kind=f"M{machine}") for machine in range(6))
    return instance(jobs, on=Cluster(gpus, network(latency_us=0)))


def test_a_maximum_is_proved_beside_a_search_for_plans() -> None:
    search = Search(ft06(), Objective.MAKESPAN, 60)
    annealing.improve(search, iterations=2000)
    cp_sat.prove_maximum(search, 1, 0, 30)
    assert search.value == search.bound == 55
    assert search.bound_method == cp_sat.METHOD


def test_what_formulas_prove_of_a_maximum_is_told_to_the_solver() -> None:
    built = instance([Job(chain(task("t", 5)), 0)] * 2, on=cluster(2))
    scaled = scaled_objective(built, Objective.MAKESPAN, None)
    solver = cp_model.CpSolver()
    # Side by side the jobs end after 5 us; a model that is told of a bound of 7 claims no less.
    for least, value in ((0, 5), (7, 7)):
        model = formulate_scaled(built, scaled, None, None, least=least).model
        assert solver.status_name(solver.solve(model)) == "OPTIMAL"
        assert solver.objective_value == value


def test_a_denied_plan_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    built = random_instance(random.Random(3))
    search = Search(built, Objective.MEAN_LATENCY, 20)
    best = exhaustive.solve(built, Objective.MEAN_LATENCY).timeline
    assert best is not None
    search.offer(best)
    search.bound = None
    monkeypatch.setattr(cp_model.CpSolver, "solve", lambda *_: cp_model.INFEASIBLE)
    with pytest.warns(SolverFaultWarning, match="CP-SAT claims that there is no plan"):
        cp_sat.improve(search)
    assert search.timeline is best
    assert (search.infeasible, search.bound, search.result("test", {}).status) == (False, None, Status.FEASIBLE)


@pytest.mark.parametrize("seed", range(42))
def test_proofs_job_by_job_agree_with_the_oracle(seed: int) -> None:
    built = random_instance(random.Random(2000 + seed), 5, restricted=seed % 2 == 1)
    objective = list(Objective)[seed % len(Objective)]
    exact, hint = exhaustive.solve(built, objective), exhaustive.solve(built, Objective.MAKESPAN).timeline
    search = Search(built, objective, 20, tuning=Tuning("job by job", floors_jobs=2))
    if hint is not None:
        search.offer(hint)
    cp_sat.improve(search.on_twin().in_ticks(), 1)
    result = search.result("test", {})
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


def test_every_run_of_cp_sat_is_made_in_one_place() -> None:
    root = Path(cp_sat.__file__).resolve().parents[2]
    files = [file for part in ("models", "solvers", "planner", "executor") for file in (root / part).rglob("*.py")]
    making = [str(file.relative_to(root)) for file in files if "CpSolver()" in file.read_text(encoding="utf-8")]
    assert making == ["solvers/exact/cp_sat.py"]
