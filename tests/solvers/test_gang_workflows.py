"""Plans and bounds of runs on several GPUs that wait for others, against an oracle that tries every order and place."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.gangs import draw_workflows, optimum
from tests.night import by_day
from truenorth.models import Instance, Link, Objective, check
from truenorth.models.torn import torn
from truenorth.solvers import portfolio
from truenorth.solvers.bounds import closed_form
from truenorth.solvers.bounds.certificate import closed_form_document, lagrangian_document
from truenorth.solvers.bounds.verify import verify
from truenorth.solvers.budget import Budget, Method
from truenorth.solvers.result import Search
from truenorth.solvers.side_by_side import raise_bound


def _budget(method: Method, iterations: int | None = None) -> Budget:
    return Budget(time_limit_s=60.0, workers=2, seed=0, method=method, iterations=iterations)


def _near(made: Instance) -> Instance:
    """Return the window with servers inside which outputs take no time."""
    network = made.cluster.network
    return replace(made, cluster=replace(made.cluster, network=replace(network, within=Link(0, None), staged=False)))


@pytest.mark.parametrize("seed", by_day(range(5_000, 6_000), 24))
def test_cp_sat_proves_what_the_oracle_finds(seed: int) -> None:
    rng = random.Random(seed)
    made, objective = draw_workflows(rng, moldable=seed % 3 == 0), rng.choice(list(Objective))
    made = _near(made) if seed % 4 == 0 else made  # servers as pools of GPUs
    best = optimum(made, objective)
    found = portfolio.solve(made, objective, _budget(Method.CP_SAT))
    assert (found.status, found.value) == ("OPTIMAL", best)
    assert found.lower_bound is not None
    assert best * (1 - 1e-6) <= found.lower_bound <= best
    assert found.timeline is not None
    assert check(made, found.timeline) == []


@pytest.mark.parametrize("seed", by_day(range(6_000, 6_500), 12))
def test_the_milp_proves_what_the_oracle_finds(seed: int) -> None:
    rng = random.Random(seed)
    made, objective = draw_workflows(rng, 4, moldable=seed % 3 == 0), rng.choice(list(Objective))
    made = _near(made) if seed % 4 == 0 else made
    best = optimum(made, objective)
    found = portfolio.solve(made, objective, _budget(Method.MILP))
    assert (found.status, found.value) == ("OPTIMAL", best)
    assert found.lower_bound is not None
    assert best * (1 - 1e-6) <= found.lower_bound <= best


@pytest.mark.parametrize("seed", by_day(range(7_000, 8_000), 30))
def test_orders_reach_the_optimum_where_outputs_take_no_time_in_a_server(seed: int) -> None:
    rng = random.Random(seed)
    drawn, objective = draw_workflows(rng, moldable=seed % 3 == 0), rng.choice(list(Objective))
    for made in (drawn, _near(drawn)):
        best = optimum(made, objective)
        found = portfolio.solve(made, objective, _budget(Method.SEARCH, iterations=2_000))
        assert found.timeline is not None
        assert check(made, found.timeline) == []
        assert found.lower_bound is None or found.lower_bound <= best
    assert found.value == best


@pytest.mark.parametrize("seed", by_day(range(1_000), 25))
def test_bounds_of_the_torn_twin_hold_and_verify(seed: int) -> None:
    rng = random.Random(seed)
    made = draw_workflows(rng, 4, moldable=seed % 3 == 0)
    twin, priced_for = torn(made), rng.choice(list(Objective))
    for objective in Objective:
        best = optimum(made, objective)
        for method, bound in closed_form.METHODS.items():
            value = bound(twin, objective)
            assert value is None or value <= best, (method, objective)
        value, method = closed_form.best(twin, objective)
        assert value <= best
        assert verify(made, closed_form_document(made, objective, method, value)).valid
        if objective is priced_for:
            priced = raise_bound(Search(twin, objective, 60.0), 0.2)
            if priced is not None:
                assert priced.bound <= best
                assert verify(made, lagrangian_document(made, objective, priced)).valid
