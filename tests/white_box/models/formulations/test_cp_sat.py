"""The CP-SAT formulation: hand-derived optima, complete hints, names, and plans read back."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable

import numpy as np
import pytest
from ortools.sat.python import cp_model

from experiments.benchmarks.exact import fork
from experiments.random_scenarios import draw
from tests.instances import chain, cluster, instance, random_instance, task
from tests.models.formulations.cases import CASES, Case
from truenorth.models import Job, Objective, Placement, Residency, Timeline, check, timeline_value
from truenorth.models.formulations.cp_sat import formulate
from truenorth.models.formulations.cp_sat_plans import add_hint, read_timeline
from truenorth.models.formulations.windows import cannot_end
from truenorth.models.instance import Instance
from truenorth.models.objective import Status
from truenorth.solvers.exact import cp_sat, exhaustive
from truenorth.solvers.result import Search

COMPLETE = "The solution hint is complete and is feasible"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_optimum_derived_by_hand(case: Case) -> None:
    result = cp_sat.solve(case.instance, case.objective, 20, workers=1)
    assert result.value == case.optimum
    assert result.status is (Status.INFEASIBLE if case.optimum is None else Status.OPTIMAL)


def _log_of_hinted_solve(built: Instance, objective: Objective, hint: Timeline) -> str:
    search, lines = Search(built, objective, 20), list[str]()
    search.offer(hint)
    cp_sat.improve(search, 1, 0, log=lines.append)
    return "\n".join(lines)


@pytest.mark.parametrize("case", [case for case in CASES if case.optimum is not None], ids=lambda case: case.name)
def test_hint_is_complete_and_feasible(case: Case) -> None:
    plan = exhaustive.solve(case.instance, case.objective).timeline
    assert plan is not None
    assert COMPLETE in _log_of_hinted_solve(case.instance, case.objective, plan)


@pytest.mark.parametrize("seed", range(28))
def test_hint_of_random_instances_is_complete_and_feasible(seed: int) -> None:
    built = random_instance(random.Random(seed), restricted=seed % 2 == 1)
    objective = list(Objective)[seed % len(Objective)]
    plan = exhaustive.solve(built, Objective.MAKESPAN).timeline  # often not the optimum of the objective asked for
    if plan is not None:
        assert COMPLETE in _log_of_hinted_solve(built, objective, plan)


def _two_runs_with_waste() -> tuple[Instance, Timeline]:
    """Two uses of m (4 bytes) with n (3 bytes) loaded for nothing, m loaded early, gaps, on the second of two GPUs."""
    built = instance(
        [Job(chain(task("a", 2, ["m"])), 20), Job(chain(task("a", 2, ["m"])), 20)], {"m": 4, "n": 3}, cluster(2)
    )
    residencies = [Residency(1, 1, 0, 3, 9), Residency(0, 1, 5, 9), Residency(0, 0, 0, 4, 7)]
    return built, Timeline.build(2, [Placement(0, 1, 30, 32), Placement(1, 1, 50, 52)], residencies)


def test_hint_ignores_residencies_that_serve_nothing() -> None:
    built, plan = _two_runs_with_waste()
    assert check(built, plan) == []
    assert COMPLETE in _log_of_hinted_solve(built, Objective.MEAN_LATENCY, plan)
    # Both run side by side [20, 22).
    assert cp_sat.solve(built, Objective.MEAN_LATENCY, 10, plan, 1).value == 2


def test_hint_is_read_back_in_normal_form() -> None:
    built, plan = _two_runs_with_waste()
    formulation = formulate(built, Objective.MEAN_LATENCY, plan)
    add_hint(formulation, plan)
    hint = formulation.model.proto.solution_hint
    values = dict(zip(hint.vars, hint.values, strict=True))
    read = read_timeline(formulation, [values[index] for index in range(len(formulation.model.proto.variables))])
    # The first task is on the first of the equal GPUs, and one early load of m is all that is left of the residencies.
    assert read.place.tolist() == [0, 0]
    assert read.residencies == (Residency(0, 0, 5, 9),)
    assert timeline_value(Objective.MEAN_LATENCY, built, read) == (12 + 32) / 2


def test_constraints_can_be_found_by_name() -> None:
    built = instance([Job(chain(task("a", 2, ["m"]), task("b", 3, ["n"], {"a": 1})), 0)], {"m": 6, "n": 6}, cluster(2))
    names = {c.name.split("[")[0] for c in formulate(built, Objective.MEAN_LATENCY).model.proto.constraints}
    wanted = {"one_gpu", "compute_engine", "copy_engine", "memory", "one_copy", "served", "precedence", "transfer"}
    assert wanted <= names


def test_incumbent_shrinks_the_model() -> None:
    built = instance([Job(chain(task("a", 2, ["m"])), 10 * index) for index in range(6)], {"m": 4})
    best = exhaustive.solve(built, Objective.MEAN_LATENCY)
    loose = formulate(built, Objective.MEAN_LATENCY)
    tight = formulate(built, Objective.MEAN_LATENCY, best.timeline)
    # Jobs 10 us apart that take 2 us: in a plan without delay nobody can run before an earlier job.
    assert len(loose.choices.follows) == 30
    assert len(tight.choices.follows) == 15


@pytest.mark.parametrize("count", [2, 3])
def test_equal_gpus_are_numbered(count: int) -> None:
    built = instance([Job(chain(task("a", 5)), 0) for _ in range(3)], on=cluster(count))
    formulation = formulate(built, Objective.MAKESPAN)
    solver = cp_model.CpSolver()
    seen = set()

    class Collect(cp_model.CpSolverSolutionCallback):
        def on_solution_callback(self) -> None:
            values = list(self.response_proto.solution)
            seen.add(tuple(read_timeline(formulation, values).place.tolist()))

    formulation.model.proto.ClearField("objective")
    formulation.model.add(formulation.variables.start[0] <= 1)
    solver.parameters.enumerate_all_solutions = True
    solver.parameters.num_workers = 1
    solver.parameters.max_time_in_seconds = 10
    solver.solve(formulation.model, Collect())
    # Restricted growth strings of length 3: five partitions into at most three blocks, four into at most two.
    assert seen == {s for s in _growth_strings() if max(s) < count}


def _growth_strings() -> set[tuple[int, ...]]:
    return {(0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 1, 1), (0, 1, 2)}


def test_extraction_keeps_starts() -> None:
    built = random_instance(random.Random(5))
    result = cp_sat.solve(built, Objective.MEAN_LATENCY, 10, workers=1)
    assert result.timeline is not None
    assert np.all(result.timeline.start_us >= built.job_release_us[built.task_job])
    assert check(built, result.timeline) == []


def _rows(terms: Iterable[tuple[int, int]]) -> frozenset[tuple[int, int]]:
    """Return the coefficients of a sum by variable, those of 0 left out."""
    total = Counter[int]()
    for variable, coefficient in terms:
        total[variable] += coefficient
    return frozenset((variable, coefficient) for variable, coefficient in total.items() if coefficient)


@pytest.mark.parametrize("seed", range(40))
def test_an_interval_ends_at_its_start_plus_its_length_though_absent(seed: int) -> None:
    scenario = fork(seed) if seed % 4 == 0 else draw(seed).scenario
    search = Search(scenario.instance, scenario.objective, 1).on_twin()
    if cannot_end(search.instance):
        return
    proto = formulate(search.instance, search.objective).model.proto
    # What holds whatever is enforced, as sums that are 0.
    always = {
        (
            sign,
            _rows((v, sign * c) for v, c in zip(row.linear.vars, row.linear.coeffs, strict=True)),
            row.linear.domain[0],
        )
        for row in proto.constraints
        if row.HasField("linear") and not row.enforcement_literal and len({*row.linear.domain}) == 1
        for sign in (1, -1)
    }
    known = {(rows, sign * value) for sign, rows, value in always}
    for row in proto.constraints:
        if row.HasField("interval") and row.enforcement_literal:
            parts = ((row.interval.start, 1), (row.interval.size, 1), (row.interval.end, -1))
            rows = _rows((v, sign * c) for part, sign in parts for v, c in zip(part.vars, part.coeffs, strict=True))
            offset = sum(sign * part.offset for part, sign in parts)
            assert (not rows and offset == 0) or (rows, -offset) in known, row.name
