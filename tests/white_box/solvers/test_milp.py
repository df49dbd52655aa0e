"""The MILP driver: optima, sound bounds, starts, stops and faults."""

from __future__ import annotations

import random
import threading
from fractions import Fraction

import pulp
import pytest
from highspy import HighsModelStatus

from experiments.authors import instance as authors
from experiments.authors import poisson
from tests.instances import chain, instance, random_instance, task
from tests.models.formulations.cases import CASES, Case
from tests.models.random_timelines import simple_timeline
from truenorth.models import Instance, Job, Objective, timeline_value
from truenorth.models.formulations.milp import formulate
from truenorth.models.formulations.milp_plans import ContradictoryOrderError
from truenorth.models.objective import Status
from truenorth.solvers.exact import cp_sat, exhaustive, milp
from truenorth.solvers.incumbents import Progress
from truenorth.solvers.result import Search
from truenorth.solvers.trust import SolverFaultWarning


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_optimum_derived_by_hand(case: Case) -> None:
    result = milp.solve(case.instance, case.objective, 20, workers=1)
    assert result.value == result.lower_bound == case.optimum
    assert result.status is (Status.INFEASIBLE if case.optimum is None else Status.OPTIMAL)


@pytest.mark.parametrize("seed", range(42))
def test_exhaustive_cp_sat_and_milp_agree(seed: int) -> None:
    built = random_instance(random.Random(3000 + seed), 5, restricted=seed % 2 == 1)
    objective = list(Objective)[seed % len(Objective)]
    oracle = exhaustive.solve(built, objective)
    joint = cp_sat.solve(built, objective, 20, workers=1)
    twin = milp.solve(built, objective, 20, workers=1)
    assert (joint.status, joint.value) == (twin.status, twin.value) == (oracle.status, oracle.value)
    for moment in twin.incumbents:
        assert moment.bound is None or (oracle.value is not None and moment.bound <= oracle.value)


def _tight(jobs: int) -> Instance:
    return authors(poisson(3.76, jobs, 1))


def test_bounds_on_the_way_rise_and_stay_below_the_plan() -> None:
    built = _tight(4)
    seen: list[Progress] = []
    milp.improve(Search(built, Objective.MEAN_SLOWDOWN, 20, seen.append))
    bounds = [moment.bound for moment in seen if moment.bound is not None]
    assert bounds == sorted(bounds)
    best = cp_sat.solve(built, Objective.MEAN_SLOWDOWN, 20)
    assert best.status is Status.OPTIMAL
    assert best.value is not None
    assert 0 < bounds[-1] <= best.value


def test_start_is_kept_and_improved_upon() -> None:
    built = _tight(4)
    hint = simple_timeline(random.Random(1), built)
    search = Search(built, Objective.MEAN_LATENCY, 20)
    search.offer(hint)
    milp.improve(search)
    assert search.value is not None
    assert search.value <= timeline_value(Objective.MEAN_LATENCY, built, hint)
    assert search.bound is not None


def test_optimal_start_is_proved() -> None:
    built = random_instance(random.Random(3))
    best = exhaustive.solve(built, Objective.MEAN_LATENCY)
    result = milp.solve(built, Objective.MEAN_LATENCY, 20, best.timeline, 1)
    assert (result.status, result.value) == (Status.OPTIMAL, best.value)


def test_stops_when_told() -> None:
    search = Search(_tight(14), Objective.MEAN_LATENCY, 600)
    threading.Timer(1.0, search.clock.set).start()
    milp.improve(search)
    assert search.clock.elapsed_s < 600


def test_an_instance_too_large_to_build_in_time_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    # 100 jobs have about 390 tasks: 390**2 pairs on 5 GPUs take HiGHS over a minute.
    monkeypatch.setattr("truenorth.models.formulations.milp.formulate", None)
    result = milp.solve(_tight(100), Objective.MEAN_LATENCY, 5.0)
    assert result.status is Status.NO_SOLUTION


def _with_plan() -> Search:
    built = random_instance(random.Random(3))
    search = Search(built, Objective.MEAN_LATENCY, 20)
    plan = exhaustive.solve(built, Objective.MEAN_LATENCY).timeline
    assert plan is not None
    search.offer(plan)
    return search


@pytest.mark.parametrize(
    ("status", "message"),
    [(HighsModelStatus.kInfeasible, "one of value .* is known"), (HighsModelStatus.kSolveError, "HiGHS ends with")],
)
def test_a_denied_plan_or_a_failure_is_a_fault(
    status: HighsModelStatus, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = _with_plan()
    plan = search.timeline
    monkeypatch.setattr("highspy.Highs.getModelStatus", lambda _: status)
    monkeypatch.setattr(pulp.HiGHS, "callSolver", lambda *_: None)
    with pytest.warns(SolverFaultWarning, match=message):
        milp.improve(search)
    assert search.timeline is plan
    assert not search.infeasible


def test_infeasible_in_floats_is_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    # HiGHS denies a plan that exists, 5 us on an idle GPU; CP-SAT finds it.
    search = Search(instance([Job(chain(task("a", 5)), 0)]), Objective.MAKESPAN, 20)
    monkeypatch.setattr("highspy.Highs.getModelStatus", lambda _: HighsModelStatus.kInfeasible)
    monkeypatch.setattr(pulp.HiGHS, "callSolver", lambda *_: None)
    milp.improve(search)
    assert not search.infeasible
    assert search.value == 5


def test_a_solution_that_contradicts_itself_is_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ContradictoryOrderError("a cycle")

    monkeypatch.setattr("truenorth.models.formulations.milp_plans.read_timeline", refuse)
    result = milp.solve(instance([Job(chain(task("a", 5)), 0)]), Objective.MAKESPAN, 20)
    assert result.status is Status.NO_SOLUTION
    assert result.lower_bound == 5


@pytest.mark.parametrize(
    ("cost", "proved"),
    [
        (8.0, 8),  # a whole number, exactly
        (8.0 + 1e-9, 8),  # within the tolerances of 8
        (8.0 - 1e-9, 8),  # no plan between 7 and 8, so rounding up is right
        (8.001, 9),  # more than tolerances can add
        (7.5, 8),
    ],
)
def test_a_bound_is_lowered_by_the_tolerances_and_rounded_up(cost: float, proved: int) -> None:
    built = instance([Job(chain(task("a", 2)), 0), Job(chain(task("a", 6), name="long"), 0)])
    search = Search(built, Objective.MAKESPAN, 20)
    formulation = formulate(built, Objective.MAKESPAN)
    run = milp._HighsRun(search, formulation, 1, 0)
    scaled = Fraction(cost) / (1 << formulation.variables.units.weight_bits)
    assert run._prove(float(scaled)) == proved
