"""The oracle: hand-derived optima and agreement with CP-SAT."""

from __future__ import annotations

import random

import pytest

from models import Objective
from models.status import Status
from solvers.exact import cp_sat, exhaustive
from tests.formulations.cases import CASES, Case
from tests.instances import random_instance


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_optimum_derived_by_hand(case: Case) -> None:
    result = exhaustive.solve(case.instance, case.objective)
    assert result.value == case.optimum
    assert result.status is (Status.INFEASIBLE if case.optimum is None else Status.OPTIMAL)


@pytest.mark.parametrize("seed", range(70))
def test_agrees_with_cp_sat(seed: int) -> None:
    built = random_instance(random.Random(1000 + seed), restricted=seed % 2 == 1)
    objective = list(Objective)[seed % len(Objective)]
    exact, joint = exhaustive.solve(built, objective), cp_sat.solve(built, objective, 20, workers=1)
    assert (joint.status, joint.value) == (exact.status, exact.value)
