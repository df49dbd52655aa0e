"""Plans and bounds of runs on several GPUs that wait for others, against an oracle that tries every order and place."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

import pytest

from tests.gangs import draw_workflows, optimum, servers
from tests.instances import instance, network, task
from tests.night import by_day
from truenorth.models import Instance, Job, Link, Objective, Workflow, check
from truenorth.models.objective import timeline_value
from truenorth.models.torn import priced_window, torn
from truenorth.solvers import portfolio
from truenorth.solvers.bounds import closed_form
from truenorth.solvers.bounds.certificate import closed_form_document, lagrangian_document
from truenorth.solvers.bounds.verify import verify
from truenorth.solvers.budget import Budget, Method
from truenorth.solvers.clock import Clock
from truenorth.solvers.confirming import ask_others
from truenorth.solvers.result import Search
from truenorth.solvers.side_by_side import raise_bound
from truenorth.solvers.trust import CP_SAT, MILP, SolverFaultWarning


def _budget(method: Method, iterations: int | None = None) -> Budget:
    return Budget(time_limit_s=60.0, workers=2, seed=0, method=method, iterations=iterations)


def _near(made: Instance) -> Instance:
    """Return the window with servers inside which outputs take no time."""
    near = replace(made.cluster.network, within=Link(0, None), staged=False)
    return replace(made, cluster=replace(made.cluster, network=near))


@pytest.mark.parametrize("seed", by_day(range(5_000, 6_000), 6))
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


@pytest.mark.parametrize("seed", by_day(range(6_000, 6_500), 6))
def test_the_milp_proves_what_the_oracle_finds(seed: int) -> None:
    rng = random.Random(seed)
    made, objective = draw_workflows(rng, 4, moldable=seed % 3 == 0), rng.choice(list(Objective))
    made = _near(made) if seed % 4 == 0 else made
    best = optimum(made, objective)
    found = portfolio.solve(made, objective, _budget(Method.MILP))
    assert (found.status, found.value) == ("OPTIMAL", best)
    assert found.lower_bound is not None
    assert best * (1 - 1e-6) <= found.lower_bound <= best


@pytest.mark.parametrize("seed", by_day(range(6_500, 7_000), 2))
def test_what_one_solver_proves_another_confirms(seed: int) -> None:
    """Asked for less than the optimum, both say no; asked for the optimum, both find it."""
    rng = random.Random(seed)
    made, objective = draw_workflows(rng, 4), rng.choice((Objective.MEAN_LATENCY, Objective.MAKESPAN))
    best = optimum(made, objective)
    for by, other in ((CP_SAT, MILP), (MILP, CP_SAT)):
        less = ask_others(by, made, objective, best * Fraction(999_999, 1_000_000), _budget(Method.AUTO), Clock(60.0))
        assert (less.timeline, less.confirmed_by) == (None, other)
        with pytest.warns(SolverFaultWarning, match="denies a plan"):
            enough = ask_others(by, made, objective, best, _budget(Method.AUTO), Clock(60.0))
        assert enough.timeline is not None
        assert timeline_value(objective, made, enough.timeline) == best


@pytest.mark.parametrize("seed", by_day(range(7_000, 8_000), 10))
def test_orders_give_plans_and_reach_the_optimum_where_outputs_take_no_time(seed: int) -> None:
    rng = random.Random(seed)
    drawn, objective = draw_workflows(rng, moldable=seed % 3 == 0), rng.choice(list(Objective))
    free = replace(drawn, cluster=replace(drawn.cluster, network=network(0, None)))
    for made in (drawn, free):
        best = optimum(made, objective)
        found = portfolio.solve(made, objective, _budget(Method.SEARCH, iterations=2_000))
        assert found.timeline is not None
        assert check(made, found.timeline) == []
        assert found.lower_bound is None or found.lower_bound <= best
        assert found.value is not None
        assert found.value >= best
    assert found.value == best


def test_a_pipeline_by_hand() -> None:
    # Two jobs of 1 GPU for 2, then 2 GPUs for 6, then 1 GPU for 1, on one server of two; 3 us between GPUs. One after
    # the other, 2 + 6, then 6 + 1: while one trains the other waits, and both prepare before: 2 + 6 + 6 + 1 = 15.
    steps = (task("a", 2), replace(task("b", 6, after={"a": 3}), gpus=2), task("c", 1, after={"b": 3}))
    cluster = replace(servers(1, 2), network=network(0))
    made = instance([Job(Workflow(f"w{at}", steps), 0) for at in range(2)], on=cluster)
    for method in (Method.AUTO, Method.CP_SAT, Method.MILP):
        found = portfolio.solve(made, Objective.MAKESPAN, _budget(method))
        assert (found.status, found.value) == ("OPTIMAL", Fraction(15))


def test_workflows_beside_runs_on_several_gpus() -> None:
    # On two servers of one kind each, 4 us apart: a on A, b on B; the pair that runs on A waits for nobody.
    steps = (task("a", {"A": 2}), task("b", {"B": 3}, after={"a": 4}))
    pair = Workflow("pair", (replace(task("run", {"A": 5}), gpus=2),))
    cluster = replace(servers(2, 2, kinds="AB"), network=network(0))
    made = instance([Job(Workflow("w", steps), 0), Job(pair, 0)], on=cluster)
    found = portfolio.solve(made, Objective.MEAN_LATENCY, _budget(Method.AUTO))
    # a first: 2 + 4 + 3 = 9 and 2 + 5 = 7.
    assert (found.status, found.value) == ("OPTIMAL", Fraction(8))
    assert closed_form.best(torn(made), Objective.MEAN_LATENCY)[0] >= Fraction(14, 2)


@pytest.mark.parametrize("seed", by_day(range(1_000), 4))
def test_bounds_of_formulas_and_prices_hold_and_verify(seed: int) -> None:
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
            priced = raise_bound(Search(priced_window(made), objective, 60.0), 0.2)
            if priced is not None:
                assert priced.bound <= best
                assert verify(made, lagrangian_document(made, objective, priced)).valid
