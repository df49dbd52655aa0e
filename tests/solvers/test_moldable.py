"""Plans and bounds of tasks that choose their number of GPUs, against an oracle that tries every choice."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.gangs import draw_moldable, held_to, moldable, moldable_optimum, servers, window
from tests.night import by_day
from truenorth.executor import parse_policy, simulate
from truenorth.models import Instance, Objective, check, timeline_value
from truenorth.models.features import Feature, features_of
from truenorth.models.torn import priced_window, torn
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


@pytest.mark.parametrize("seed", by_day(range(400), 11))
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


@pytest.mark.parametrize("seed", by_day(range(1_000, 1_400), 6))
def test_orders_and_modes_reach_the_optimum_and_bounds_stay_below(seed: int) -> None:
    made, objective = _draw(seed)
    best = moldable_optimum(made, objective)
    found = portfolio.solve(made, objective, _budget(Method.SEARCH, iterations=2_000))
    assert found.value == best
    assert found.timeline is not None
    assert check(made, found.timeline) == []
    assert found.lower_bound is None or found.lower_bound <= best


@pytest.mark.parametrize("seed", by_day(range(2_000, 2_400), 8))
def test_bounds_of_formulas_and_prices_hold_and_verify(seed: int) -> None:
    made, objective = _draw(seed)
    best, twin = moldable_optimum(made, objective), torn(made)
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


def test_prices_are_paid_for_every_gpu_of_a_mode() -> None:
    # One after the other on 4 GPUs: ends at 12, 24, 36, 48. Torn into parts of 12, 9, 9 and 9 they could end at 12, 21,
    # 30 and 39, mean 25.5.
    four = window(*(moldable({1: 40, 4: 12}) for _ in range(4)), on=servers(1, 4))
    assert moldable_optimum(four, Objective.MEAN_LATENCY) == 30
    priced = raise_bound(Search(four, Objective.MEAN_LATENCY, 60.0), 1.0)
    assert priced is not None
    assert 26 < priced.bound <= 30
    assert verify(four, lagrangian_document(four, Objective.MEAN_LATENCY, priced)).valid
    over = lagrangian_document(four, Objective.MEAN_LATENCY, replace(priced, bound=priced.bound + 1))
    assert not verify(four, over).valid


def _many(seed: int) -> Instance:
    """Return thirty jobs that run faster on 2 and 4 GPUs, some much, some hardly."""
    rng, jobs = random.Random(seed), []
    for number in range(30):
        alone_us, gain = rng.randint(20, 400), rng.uniform(0.2, 1.0)
        made = moldable({gpus: round(alone_us / gpus**gain) for gpus in (1, 2, 4)}, rng.randint(0, 600))
        jobs.append(replace(made, workflow=replace(made.workflow, name=f"w{number}")))
    return window(*jobs, on=servers(2, 4, "any"))


@pytest.mark.parametrize("seed", range(3))
def test_a_plan_is_no_worse_than_the_best_policy_that_holds_all_to_one_number(seed: int) -> None:
    made, objective = _many(seed), Objective.MEAN_LATENCY
    found = portfolio.solve(made, objective, _budget(Method.SEARCH, iterations=3_000))
    alike = [
        replace(made, jobs=tuple(held_to(job, job.workflow.tasks[0].modes[at]) for job in made.jobs)) for at in range(3)
    ]
    values = [
        timeline_value(objective, each, simulate(each, parse_policy(policy)))
        for each in alike
        for policy in ("fifo", "easy", "sjf", "qssf")
    ]
    assert found.value is not None
    assert found.value <= min(values)
    again = portfolio.solve(made, objective, _budget(Method.SEARCH, iterations=3_000))
    assert again.value == found.value


def test_one_job_takes_all_and_two_share_by_hand() -> None:
    # 40 us on one GPU, 12 on all four: alone it ends at 12. Four of them: at 12, 24, 36 and 48 one after the other,
    # mean 30, or all at 40; three beside one of them first: 12 and three times 52. So 30.
    one, four = (window(*[moldable({1: 40, 4: 12})] * count, on=servers(1, 4)) for count in (1, 4))
    assert portfolio.solve(one, Objective.MAKESPAN, _budget()).value == 12
    assert portfolio.solve(four, Objective.MEAN_LATENCY, _budget()).value == 30
    # For the last end it is 40, all side by side: they take 160 us of GPU-time, which the torn twin knows but for
    # 4 x 1 us that parts of whole microseconds lose.
    assert portfolio.solve(four, Objective.MAKESPAN, _budget()).value == 40
    assert closed_form.best(torn(four), Objective.MAKESPAN)[0] == 39


def test_a_hint_of_another_mode_is_taken_up() -> None:
    made = window(moldable({1: 40, 4: 12}), moldable({1: 5, 2: 4}), on=servers(1, 4))
    timeline = simulate(made, parse_policy("easy"))
    found = portfolio.solve(made, Objective.MEAN_LATENCY, _budget(), hint=timeline)
    assert found.value == moldable_optimum(made, Objective.MEAN_LATENCY)


@pytest.mark.parametrize("seed", by_day(range(3_000, 3_200), 5))
def test_the_milp_proves_what_the_oracle_finds(seed: int) -> None:
    made, objective = _draw(seed)
    best = moldable_optimum(made, objective)
    found = portfolio.solve(made, objective, _budget(Method.MILP))
    assert (found.status, found.value) == ("OPTIMAL", best)
    assert found.lower_bound is not None
    assert best * (1 - 1e-6) <= found.lower_bound <= best
