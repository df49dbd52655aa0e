"""Plans and bounds where runs on several GPUs need models and wait for others, against an oracle that tries all."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

from tests.executor.test_loaded_workflows import pipeline
from tests.executor.test_split_models import POLICIES
from tests.night import by_day
from tests.split_models import broken_rules, draw_workflows, optimum
from truenorth.executor import parse_policy, simulate
from truenorth.models import Objective, check, timeline_value
from truenorth.models.features import LOADED, Feature, features_of, missing
from truenorth.models.instance import UnsupportedInstanceError
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


def test_models_are_ready_when_inputs_arrive() -> None:
    # a from 0 to 4, preprocess until 7; b is there before its input, at 13, until 18; rerank gets its byte at 19.
    made = pipeline(6)
    found = portfolio.solve(made, Objective.MAKESPAN, _budget())
    assert (found.status, found.value) == ("OPTIMAL", Fraction(21))
    assert found.timeline is not None
    assert found.timeline.start_us.tolist() == [4, 13, 19]
    # Certificates leave out how long outputs travel to and from runs on two GPUs that may be near: here none may be.
    assert closed_form.best(torn(made), Objective.MAKESPAN)[0] == 21


def test_what_is_supported_by_whom() -> None:
    made = pipeline(1)
    assert missing(made, LOADED) == []
    assert features_of(made) == [Feature.WORKFLOWS, Feature.MODELS, Feature.GANGS, Feature.SPLITS]
    with pytest.raises(UnsupportedInstanceError, match="milp, for runs on several GPUs, has no support for models"):
        portfolio.refuse(made, Method.MILP)
    portfolio.refuse(made, Method.AUTO)


@pytest.mark.parametrize("seed", by_day(range(400), 8))
def test_plans_and_bounds_against_the_oracle(seed: int) -> None:
    rng = random.Random(seed)
    made = draw_workflows(rng)
    while seed < 8 and (made.n_gpus > 2 or made.n_tasks > 2):  # by day what is quick
        made = draw_workflows(rng)
    objective = rng.choice(list(Objective))
    best, twin = optimum(made, objective), torn(made)
    assert all(timeline_value(objective, made, simulate(made, parse_policy(policy))) >= best for policy in POLICIES)
    found = portfolio.solve(made, objective, _budget())
    assert (found.status, found.value) == ("OPTIMAL", best)
    assert found.lower_bound is not None
    assert best * (1 - 1e-6) <= found.lower_bound <= best
    assert found.timeline is not None
    assert check(made, found.timeline) == []
    assert broken_rules(made, found.timeline) == set()
    for method, bound in closed_form.METHODS.items():
        value = bound(twin, objective)
        assert value is None or value <= best, method
    value, method = closed_form.best(twin, objective)
    assert verify(made, closed_form_document(made, objective, method, value)).valid
    if seed % 3 == 0:
        priced = raise_bound(Search(twin, objective, 0.5), 0.2)
        if priced is not None:
            assert priced.bound <= best
            assert verify(made, lagrangian_document(made, objective, priced)).valid


@pytest.mark.parametrize("seed", by_day(range(1_000, 1_200), 2))
def test_no_policy_beats_a_proof_of_more_tasks(seed: int) -> None:
    rng = random.Random(seed)
    made, objective = draw_workflows(rng, 6), rng.choice(list(Objective))
    plans = [simulate(made, parse_policy(policy)) for policy in POLICIES]
    values = [timeline_value(objective, made, plan) for plan in plans]
    found = portfolio.solve(made, objective, _budget(), hint=plans[0])
    assert found.status == "OPTIMAL"
    assert found.value is not None
    assert found.value <= min(values)
    assert closed_form.best(torn(made), objective)[0] <= found.value
