"""Plans and bounds where runs on several GPUs need models, against an oracle that tries all."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.night import by_day
from tests.split_models import NO_PLAN, draw, job, limited, optimum, window
from truenorth.executor import parse_policy, replay, simulate
from truenorth.models import Instance, Objective, check, timeline_value
from truenorth.models.features import LOADED, Feature, features_of, missing
from truenorth.models.formulations.gang_loads import pairs_of
from truenorth.models.formulations.windows import horizon_us
from truenorth.models.instance import UnsupportedInstanceError
from truenorth.models.restrictions import Restrictions
from truenorth.models.torn import torn
from truenorth.solvers import portfolio
from truenorth.solvers.bounds import closed_form
from truenorth.solvers.bounds.certificate import closed_form_document, lagrangian_document
from truenorth.solvers.bounds.verify import verify
from truenorth.solvers.budget import Budget, Method
from truenorth.solvers.result import Search
from truenorth.solvers.side_by_side import raise_bound


def _budget(method: Method = Method.CP_SAT) -> Budget:
    return Budget(time_limit_s=60.0, workers=1, seed=0, method=method)


def _draw(seed: int) -> tuple[Instance, Objective]:
    """Return a window in which runs on several GPUs stand beside models, and an objective."""
    rng = random.Random(seed)
    made = draw(rng, 2 if seed % 4 else 3)
    while Feature.SPLITS not in features_of(made):
        made = draw(rng, 2 if seed % 4 else 3)
    return made, rng.choice(list(Objective))


@pytest.mark.parametrize("seed", by_day(range(400), 8))
def test_cp_sat_proves_what_the_oracle_finds(seed: int) -> None:
    made, objective = _draw(seed)
    best = optimum(made, objective)
    known = simulate(made, parse_policy("fifo"))
    assert timeline_value(objective, made, known) >= best
    for hint in (None, known):
        found = portfolio.solve(made, objective, _budget(), hint=hint)
        assert (found.status, found.value) == ("OPTIMAL", best)
        assert found.lower_bound is not None
        assert best * (1 - 1e-6) <= found.lower_bound <= best
        assert found.timeline is not None
        assert check(made, found.timeline) == []


@pytest.mark.parametrize("seed", by_day(range(2_000, 2_400), 8))
def test_limits_of_an_operator_hold_and_cost_what_the_oracle_finds(seed: int) -> None:
    made, objective = _draw(seed)
    made = limited(random.Random(seed), made)
    best = optimum(made, objective)
    found = portfolio.solve(made, objective, _budget())
    if best > NO_PLAN:
        assert found.status == "INFEASIBLE"
        return
    assert (found.status, found.value) == ("OPTIMAL", best)
    assert found.timeline is not None
    assert check(made, found.timeline) == []
    again = simulate(made, replay(made, found.timeline))
    assert (again.end_us <= found.timeline.end_us).all()
    assert portfolio.solve(made, objective, _budget(), hint=again).value == best
    value, method = closed_form.best(torn(made), objective)
    assert value <= best
    assert verify(made, closed_form_document(made, objective, method, value)).valid


def test_a_limit_on_replicas_counts_what_is_split_once() -> None:
    # Each pair of GPUs loads 6 bytes of m and runs for 5; where one residency is allowed the second run waits for it.
    made = window(job(2, 5, "m"), job(2, 5, "m"), models={"m": 12}, held=4)
    for most, makespan in ((2, 11), (1, 16)):
        limits = replace(made, restrictions=Restrictions(max_replicas={"m": most}))
        assert portfolio.solve(limits, Objective.MAKESPAN, _budget()).value == makespan


def test_without_swaps_a_pair_of_gpus_serves_one_of_two_models() -> None:
    # Two pairs have a model each; one pair has no room for both.
    runs = job(2, 5, "m"), job(2, 5, "n"), job(2, 5, "m")
    for held, status in ((4, "OPTIMAL"), (2, "INFEASIBLE")):
        made = window(*runs, models={"m": 12, "n": 12}, held=held)
        stays = replace(made, restrictions=Restrictions(no_swaps=True))
        found = portfolio.solve(stays, Objective.MAKESPAN, _budget())
        assert (found.status, found.value) == (status, 16 if held == 4 else None)
        assert portfolio.solve(made, Objective.MAKESPAN, _budget()).status == "OPTIMAL"


@pytest.mark.parametrize("seed", by_day(range(1_000, 1_400), 8))
def test_bounds_of_the_torn_twin_hold_and_verify(seed: int) -> None:
    made, objective = _draw(seed)
    best, twin = optimum(made, objective), torn(made)
    for method, bound in closed_form.METHODS.items():
        value = bound(twin, objective)
        assert value is None or value <= best, method
    value, method = closed_form.best(twin, objective)
    assert value <= best
    assert verify(made, closed_form_document(made, objective, method, value)).valid
    if seed % 3 == 0:
        priced = raise_bound(Search(twin, objective, 1.0))
        if priced is not None:
            assert priced.bound <= best
            assert verify(made, lagrangian_document(made, objective, priced)).valid


def test_parts_of_models_cost_the_torn_twin_their_loads() -> None:
    # Each GPU loads 6 bytes of 11 before the run of 5 us; two models do not fit beside each other.
    made = window(job(2, 5, "m"), job(2, 5, "n"), models={"m": 11, "n": 12})
    twin = torn(made)
    assert [(model.name, model.weight_bytes) for model in twin.models[2:]] == [("m/2 parts", 6), ("n/2 parts", 6)]
    assert optimum(made, Objective.MAKESPAN) == 22
    assert closed_form.best(twin, Objective.MAKESPAN)[0] >= 16


def test_a_plan_keeps_models_on_the_places_where_they_are_used_again() -> None:
    # Two pairs of GPUs, two models that do not fit beside each other: each pair keeps one, loaded once.
    jobs = [job(2, 5, model, release_us=release) for release in (0, 12, 20) for model in ("m", "n")]
    made = window(*jobs, models={"m": 12, "n": 14}, held=4)
    found = portfolio.solve(made, Objective.MEAN_LATENCY, _budget())
    assert found.status == "OPTIMAL"
    assert found.timeline is not None
    assert sorted((stay.model, stay.end_us) for stay in found.timeline.residencies) == [(0, None), (1, None)]
    assert len({stay.gpu for stay in found.timeline.residencies}) == 2


def test_what_is_supported_by_whom() -> None:
    made = window(job(2, 5, "m"), models={"m": 4})
    assert missing(made, LOADED) == []
    assert features_of(made) == [Feature.MODELS, Feature.GANGS, Feature.SPLITS]
    with pytest.raises(UnsupportedInstanceError, match="milp, for runs on several GPUs, has no support for models"):
        portfolio.refuse(made, Method.MILP)
    portfolio.refuse(made, Method.AUTO)


def test_the_horizon_has_room_for_copies_one_after_the_other() -> None:
    # Both copies of 4 us one after the other, and the run.
    made = window(job(2, 5, "m", copies=True), models={"m": 4})
    assert horizon_us(made) == 13
    assert pairs_of(made) == 0
    assert pairs_of(window(job(2, 5, "m"), job(2, 5, "m"), models={"m": 4}, held=4)) == 4


def test_a_model_may_be_called_like_a_part_of_another() -> None:
    made = window(job(2, 5, "m"), job(1, 5, "m/2 parts"), models={"m": 11, "m/2 parts": 3})
    twin = torn(made)
    assert [(model.name, model.weight_bytes) for model in twin.models[2:]] == [("m/2 parts'", 6)]
    assert [task.models for job in twin.jobs for task in job.workflow.tasks] == [("m/2 parts'",)] * 2 + [("m/2 parts",)]
    value, method = closed_form.best(twin, Objective.MAKESPAN)
    assert verify(made, closed_form_document(made, Objective.MAKESPAN, method, value)).valid
