"""The MILP formulation: the twin of the other one, complete starts, exact units, and plans read back."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import pulp
import pytest

from tests.instances import chain, cluster, instance, random_instance, task
from tests.models.formulations.cases import CASES, Case
from truenorth.models import Instance, Job, Objective, Placement, Residency, Timeline, check, timeline_value
from truenorth.models.formulations import cp_sat, milp
from truenorth.models.formulations.milp import MilpFormulation, formulate
from truenorth.models.formulations.milp_plans import ContradictoryOrderError, read_timeline, start_values
from truenorth.models.formulations.milp_variables import Pairs
from truenorth.models.objective import completion_us
from truenorth.solvers.exact import exhaustive

FEASIBLE = [case for case in CASES if case.optimum is not None]


def test_constraint_families_are_those_of_the_twin() -> None:
    batches = {"run_in_batches", "start_batches_apart"}  # of the MILP of instants
    twins = [c.__name__ for c in cp_sat.CONSTRAINTS if c.__name__ not in batches]
    assert [c.__name__ for c in milp.CONSTRAINTS] == twins


def test_constraints_can_be_found_by_name() -> None:
    built = instance([Job(chain(task("a", 2, ["m"]), task("b", 3, ["n"], {"a": 1})), 0)], {"m": 6, "n": 6}, cluster(2))
    names = {row.name.split("_0")[0] for row in formulate(built, Objective.MEAN_LATENCY).problem.constraints()}
    wanted = {"one_gpu", "compute_engine", "copy_engine", "memory", "served", "transfer", "completion"}
    assert wanted - {"compute_engine"} <= names  # inputs keep the only two runs apart
    beside = instance([Job(chain(task("a", 2)), 0), Job(chain(task("a", 3), name="v"), 0)])
    assert "compute_engine_0,1,0_" in {row.name for row in formulate(beside, Objective.MAKESPAN).problem.constraints()}


def _started(built: Instance, objective: Objective, plan: Timeline) -> tuple[MilpFormulation, dict[str, float]]:
    formulation = formulate(built, objective, plan)
    values = start_values(formulation, plan)
    for variable in formulation.problem.variables():
        variable.varValue = values[variable.name]
    return formulation, values


def _assert_start_is_complete_and_feasible(built: Instance, objective: Objective, plan: Timeline) -> None:
    formulation, values = _started(built, objective, plan)
    assert set(values) == {variable.name for variable in formulation.problem.variables()}
    assert formulation.problem.valid(1e-9)
    scaled = formulation.objective.combine(formulation.objective.terms(built, completion_us(built, plan)))
    cost = formulation.problem.objective.value() or 0.0  # a constant has no value
    assert formulation.variables.units.scaled(cost) == scaled
    read = read_timeline(formulation, lambda variable: values[variable.name])
    assert check(built, read) == []
    assert timeline_value(objective, built, read) <= timeline_value(objective, built, plan)


@pytest.mark.parametrize("case", FEASIBLE, ids=lambda case: case.name)
def test_start_satisfies_every_constraint(case: Case) -> None:
    plan = exhaustive.solve(case.instance, case.objective).timeline
    assert plan is not None
    _assert_start_is_complete_and_feasible(case.instance, case.objective, plan)


@pytest.mark.parametrize("seed", range(42))
def test_start_of_random_instances_satisfies_every_constraint(seed: int) -> None:
    built = random_instance(random.Random(seed), restricted=seed % 2 == 1)
    plan = exhaustive.solve(built, Objective.MAKESPAN).timeline  # often not the optimum of the objective asked for
    if plan is not None:
        _assert_start_is_complete_and_feasible(built, list(Objective)[seed % len(Objective)], plan)


def _two_runs_with_waste() -> tuple[Instance, Timeline]:
    """Two uses of m (4 bytes) with n (3 bytes) loaded for nothing, m loaded early, gaps, on the second of two GPUs."""
    built = instance(
        [Job(chain(task("a", 2, ["m"])), 20), Job(chain(task("a", 2, ["m"])), 20)], {"m": 4, "n": 3}, cluster(2)
    )
    residencies = [Residency(1, 1, 0, 3, 9), Residency(0, 1, 5, 9), Residency(0, 0, 0, 4, 7)]
    return built, Timeline.build(2, [Placement(0, 1, 30, 32), Placement(1, 1, 50, 52)], residencies)


def test_plan_is_read_with_the_earliest_times_of_its_decisions() -> None:
    built, plan = _two_runs_with_waste()
    formulation = formulate(built, Objective.MEAN_LATENCY, plan)
    values = start_values(formulation, plan)
    read = read_timeline(formulation, lambda variable: values[variable.name])
    # On the first of the equal GPUs; m loads at 0, the runs follow their release at once.
    assert read.place.tolist() == [0, 0]
    assert read.start_us.tolist() == [20, 22]
    assert read.residencies == (Residency(0, 0, 0, 4),)


def _flipped(values: Mapping[str, float], *names: str) -> Callable[[pulp.LpVariable], float]:
    return lambda variable: 1.0 if variable.name in names else values[variable.name]


def test_contradictory_decisions_are_refused() -> None:
    built = instance([Job(chain(task("a", 2)), 0), Job(chain(task("a", 3), name="v"), 0)])
    plan = exhaustive.solve(built, Objective.MAKESPAN).timeline
    assert plan is not None
    formulation = formulate(built, Objective.MAKESPAN, plan)
    values = start_values(formulation, plan)
    with pytest.raises(ContradictoryOrderError, match="wait for each other"):
        read_timeline(formulation, _flipped(values, "before_0,1_", "before_1,0_"))


def test_units_keep_every_number() -> None:
    # An hour of run time: 2**32 us are 4295 s, so times are divided by 2**22 and stay exact.
    built = instance([Job(chain(task("a", 3_600_000_001)), 1)])
    units = formulate(built, Objective.MEAN_LATENCY).variables.units
    assert units.time_bits == 22
    assert units.time(3_600_000_001) * 2**22 == 3_600_000_001
    assert units.scaled(units.cost(3_600_000_001)) == 3_600_000_001


def test_windows_decide_most_orders() -> None:
    built = instance([Job(chain(task("a", 2)), 10 * index) for index in range(6)])
    best = exhaustive.solve(built, Objective.MEAN_LATENCY).timeline
    # Jobs 10 us apart that take 2 us: without delay none ever meets another.
    assert len(formulate(built, Objective.MEAN_LATENCY).variables.before) == 30
    assert formulate(built, Objective.MEAN_LATENCY, best).variables.before == {}


def test_loads_compete_with_runs_only_without_overlap() -> None:
    jobs = [Job(chain(task("a", 2, ["m"])), 0), Job(chain(task("a", 3), name="v"), 0)]
    overlapping, serial = (instance(jobs, {"m": 4}, overlap_loads=overlap) for overlap in (True, False))
    assert [*Pairs.of(formulate(overlapping, Objective.MAKESPAN).choices).blocking()] == []
    assert [*Pairs.of(formulate(serial, Objective.MAKESPAN).choices).blocking()] == [(1, 0)]


def test_queyranne_rows_bound_the_relaxation() -> None:
    # Three runs of 4 on two GPUs, all released at 0: midpoints weigh at least 12**2 / 4 = 36, so starts sum to at
    # least (36 - 3 * 8) / 4 = 3, and mean latency to at least 3 / 3 + 4 = 5; without these rows it would be 4.
    built = instance([Job(chain(task("a", 4)), 0) for _ in range(3)], on=cluster(2))
    problem = formulate(built, Objective.MEAN_LATENCY).problem
    problem.solve(pulp.HiGHS(msg=False, mip=False))
    assert problem.objective.value() * 2 == pytest.approx(15)
