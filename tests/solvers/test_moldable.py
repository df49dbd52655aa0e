"""Plans and bounds of tasks that choose their number of GPUs, against an oracle that tries every choice."""

from __future__ import annotations

import random

import pytest

from tests.gangs import draw_moldable, moldable_optimum
from tests.night import by_day
from truenorth.models import Instance, Objective, check
from truenorth.models.features import Feature, features_of
from truenorth.models.torn import torn
from truenorth.solvers import portfolio
from truenorth.solvers.bounds import closed_form
from truenorth.solvers.bounds.certificate import closed_form_document, lagrangian_document
from truenorth.solvers.bounds.verify import verify
from truenorth.solvers.budget import Budget, Method
from truenorth.solvers.result import Search
from truenorth.solvers.side_by_side import raise_bound


def _budget(method: Method = Method.CP_SAT, iterations: int | None = None) -> Budget:
    return Budget(time_limit_s=60.0, workers=2, seed=0, method=method, iterations=iterations)


def _draw(seed: int) -> tuple[Instance, Objective]:
    """Return a window in which some task chooses, and an objective."""
    rng = random.Random(seed)
    made = draw_moldable(rng)
    while Feature.MODES not in features_of(made):
        made = draw_moldable(rng)
    return made, rng.choice(list(Objective))


@pytest.mark.parametrize("seed", by_day(range(400), 40))
def test_cp_sat_proves_what_the_oracle_finds(seed: int) -> None:
    made, objective = _draw(seed)
    best = moldable_optimum(made, objective)
    found = portfolio.solve(made, objective, _budget())
    assert found.status == "OPTIMAL"
    assert found.value == best
    assert found.lower_bound is not None
    assert best * (1 - 1e-6) <= found.lower_bound <= best
    assert found.timeline is not None
    assert check(made, found.timeline) == []


@pytest.mark.parametrize("seed", by_day(range(1_000, 1_400), 40))
def test_orders_and_modes_reach_the_optimum_and_bounds_stay_below(seed: int) -> None:
    made, objective = _draw(seed)
    best = moldable_optimum(made, objective)
    found = portfolio.solve(made, objective, _budget(Method.SEARCH, iterations=2_000))
    assert found.value == best
    assert found.timeline is not None
    assert check(made, found.timeline) == []
    assert found.lower_bound is None or found.lower_bound <= best


@pytest.mark.parametrize("seed", by_day(range(2_000, 2_400), 30))
def test_bounds_of_the_torn_twin_hold_and_verify(seed: int) -> None:
    made, objective = _draw(seed)
    best, twin = moldable_optimum(made, objective), torn(made)
    for method, bound in closed_form.METHODS.items():
        value = bound(twin, objective)
        assert value is None or value <= best, method
    value, method = closed_form.best(twin, objective)
    assert value <= best
    assert verify(made, closed_form_document(made, objective, method, value)).valid
    priced = raise_bound(Search(twin, objective, 60.0), 0.2)
    if priced is not None:
        assert priced.bound <= best
        assert verify(made, lagrangian_document(made, objective, priced)).valid
