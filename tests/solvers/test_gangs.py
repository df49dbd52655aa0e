"""Plans and bounds of runs on several GPUs, against an oracle that tries every order and every place."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

import pytest

from tests.gangs import draw, job, optimum, servers, window
from tests.instances import instance, task
from tests.night import by_day
from truenorth.models import WHOLE, Job, Objective, Workflow, check
from truenorth.models.formulations.windows import METHOD as WINDOWS
from truenorth.models.instance import UnsupportedInstanceError
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
from truenorth.solvers.search import gangs
from truenorth.solvers.side_by_side import raise_bound
from truenorth.solvers.trust import CP_SAT, MILP, SolverFaultWarning


def _budget(method: Method = Method.CP_SAT, iterations: int | None = None) -> Budget:
    return Budget(time_limit_s=60.0, workers=2, seed=0, method=method, iterations=iterations)


@pytest.mark.parametrize("seed", by_day(range(700), 4))
def test_cp_sat_proves_what_the_oracle_finds(seed: int) -> None:
    rng = random.Random(seed)
    made, objective = draw(rng), rng.choice(list(Objective))
    best = optimum(made, objective)
    found = portfolio.solve(made, objective, _budget())
    assert found.status == "OPTIMAL"
    assert found.value == best
    assert found.lower_bound is not None
    assert best * (1 - 1e-6) <= found.lower_bound <= best
    assert found.timeline is not None
    assert check(made, found.timeline) == []


@pytest.mark.parametrize("seed", by_day(range(3_000, 3_300), 12))
def test_the_milp_proves_what_the_oracle_finds(seed: int) -> None:
    rng = random.Random(seed)
    made, objective = draw(rng), rng.choice(list(Objective))
    best = optimum(made, objective)
    found = portfolio.solve(made, objective, _budget(Method.MILP))
    assert (found.status, found.value) == ("OPTIMAL", best)
    assert found.lower_bound is not None
    assert best * (1 - 1e-6) <= found.lower_bound <= best


@pytest.mark.parametrize("seed", by_day(range(3_300, 3_500), 2))
def test_what_one_solver_proves_another_confirms(seed: int) -> None:
    """Asked for less than the optimum, both say no; asked for the optimum, both find it."""
    rng = random.Random(seed)
    made, objective = draw(rng), rng.choice(list(Objective))
    best = optimum(made, objective)
    for by, other in ((CP_SAT, MILP), (MILP, CP_SAT)):
        less = ask_others(by, made, objective, best * Fraction(999_999, 1_000_000), _budget(), Clock(60.0))
        assert less.timeline is None
        assert less.confirmed_by in ((other,) if made.gangs else (other, WINDOWS))
        with pytest.warns(SolverFaultWarning, match="denies a plan"):
            enough = ask_others(by, made, objective, best, _budget(), Clock(60.0))
        assert enough.timeline is not None
        assert timeline_value(objective, made, enough.timeline) == best


def test_a_proof_by_cp_sat_is_confirmed() -> None:
    # 2 x 6 beside nothing else fits, then 1 x 7: 19, where the area says 15.5.
    made = window(job(2, 6), job(2, 6), job(1, 7), on=servers(1, 2))
    found = portfolio.solve(made, Objective.MAKESPAN, _budget(Method.AUTO))
    assert (found.status, found.value) == ("OPTIMAL", Fraction(19))
    assert (found.bound_method, found.confirmed_by) == ("cp-sat", "milp")


def test_a_bound_between_two_units_is_the_next_one() -> None:
    # The area says 15, and all ends are multiples of 6.
    made = window(job(2, 6), job(2, 6), job(1, 6), on=servers(1, 2))
    found = portfolio.solve(made, Objective.MAKESPAN, _budget(Method.AUTO))
    assert (found.status, found.lower_bound) == ("OPTIMAL", Fraction(18))


@pytest.mark.parametrize("seed", by_day(range(1_000, 1_700), 3))
def test_orders_reach_the_optimum_and_bounds_stay_below(seed: int) -> None:
    rng = random.Random(seed)
    made, objective = draw(rng), rng.choice(list(Objective))
    best = optimum(made, objective)
    found = portfolio.solve(made, objective, _budget(Method.SEARCH, iterations=2_000))
    assert found.value == best
    assert found.lower_bound is None or found.lower_bound <= best


@pytest.mark.parametrize("seed", by_day(range(2_000, 2_600), 8))
def test_bounds_of_formulas_and_prices_hold_and_verify(seed: int) -> None:
    rng = random.Random(seed)
    made, objective = draw(rng), rng.choice(list(Objective))
    best, twin = optimum(made, objective), torn(made)
    for method, bound in closed_form.METHODS.items():
        value = bound(twin, objective)
        assert value is None or value <= best, method
    value, method = closed_form.best(twin, objective)
    assert value <= best
    assert verify(made, closed_form_document(made, objective, method, value)).valid
    priced = raise_bound(Search(priced_window(made), objective, 60.0), 0.2)
    if priced is not None:
        assert priced.bound <= best
        assert verify(made, lagrangian_document(made, objective, priced)).valid


def test_one_server_of_any_gpus_is_one_gpu_of_shares() -> None:
    # Runs of k of 4 GPUs are tasks of share k / 4 on one GPU.
    sizes, times = (3, 1, 2, 2, 4), (5, 9, 4, 3, 2)
    wide = window(*(job(k, us) for k, us in zip(sizes, times, strict=True)), on=servers(1, 4, "any"))
    shares = instance(
        [
            Job(Workflow(f"w{at}", (replace(task("run", us), share=k * WHOLE // 4),)), 0)
            for at, (k, us) in enumerate(zip(sizes, times, strict=True))
        ]
    )
    for objective in (Objective.MAKESPAN, Objective.MEAN_LATENCY):
        one = portfolio.solve(wide, objective, _budget())
        other = portfolio.solve(shares, objective, Budget(time_limit_s=60.0, workers=2, seed=0))
        assert one.status == other.status == "OPTIMAL"
        assert one.value == other.value


def test_strip_packing_by_hand() -> None:
    # Five rigid runs on 4 GPUs: 3 x 4, 1 x 8, 2 x 2, 2 x 2 and 1 x 2 make 12 + 8 + 4 + 4 + 2 = 30 of 32 in 8.
    made = window(job(3, 4), job(1, 8), job(2, 2), job(2, 2), job(1, 2), on=servers(1, 4, "any"))
    found = portfolio.solve(made, Objective.MAKESPAN, _budget())
    assert found.status == "OPTIMAL"
    assert found.value == 8


def test_certificates_of_such_windows_verify_and_others_do_not() -> None:
    made = window(job(2, 6), job(2, 6), job(1, 6), on=servers(1, 2))
    value, method = closed_form.best(torn(made), Objective.MAKESPAN)
    # 2 x 6 + 2 x 6 + 6 = 30 GPU-microseconds on two GPUs take 15; the optimum is 18.
    assert value == 15
    assert verify(made, closed_form_document(made, Objective.MAKESPAN, method, value)).valid
    above = closed_form_document(made, Objective.MAKESPAN, method, value) | {"lower_bound": 16e-6}
    assert not verify(made, above).valid


def test_counted_plans_repeat() -> None:
    made = draw(random.Random(7))
    one, other = (
        portfolio.solve(made, Objective.MEAN_LATENCY, _budget(Method.SEARCH, iterations=500)) for _ in range(2)
    )
    assert one.value == other.value
    assert one.timeline is not None
    assert other.timeline is not None
    assert one.timeline.start_us.tolist() == other.timeline.start_us.tolist()


def test_what_has_no_support_is_refused() -> None:
    half = replace(task("run", 5), share=WHOLE // 2)
    shared = instance([Job(job(2, 6).workflow, 0), Job(Workflow("w", (half,)), 0)], on=servers(1, 2))
    with pytest.raises(UnsupportedInstanceError, match="has no support for shares of a GPU"):
        portfolio.solve(shared, Objective.MAKESPAN, _budget(Method.AUTO))


def test_listed_places_keep_the_plan_to_start_from() -> None:
    made = window(job(2, 6), on=servers(1, 4, ((0, 2),)))
    search = Search(made, Objective.MAKESPAN, 1.0)
    gangs.improve(search, 0, 1, iterations=10)
    assert "not listed" in search.left_out["search"]
