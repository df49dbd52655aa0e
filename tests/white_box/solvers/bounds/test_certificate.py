import copy
import json
import random
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tests import instances as make
from tests.night import by_day
from truenorth.models import Instance, Job, Objective
from truenorth.solvers.bounds import closed_form
from truenorth.solvers.bounds.certificate import closed_form_document, lagrangian_document
from truenorth.solvers.bounds.lagrangian.ascent import Steps, ascend
from truenorth.solvers.bounds.lagrangian.evaluation import Prices, exact_bound, no_prices, round_prices
from truenorth.solvers.bounds.lagrangian.improve import Priced
from truenorth.solvers.bounds.lagrangian.relaxation import fixed_parts, job_costs, relax
from truenorth.solvers.bounds.verify import verify
from truenorth.solvers.rounding import round_up

SUMS = [objective for objective in Objective if objective.is_sum]


def certified(
    instance: Instance, objective: Objective, slot_us: int = 1, steps: int = 60
) -> tuple[Any, Fraction] | None:
    """Return a certificate as it comes back from JSON, and the bound that its maker believes in."""
    costs = job_costs(instance, objective)
    if costs is None or not len(costs.jobs):
        return None
    relaxation = relax(fixed_parts(instance, costs), slot_us, np.full(len(costs.jobs), 25))
    climb = ascend(relaxation, no_prices(relaxation), Steps(steps, 0.3, 0.01), lambda: True)
    prices = round_prices(Prices.split(climb.best, relaxation), relaxation)
    bound = exact_bound(relaxation, prices)
    assert bound is not None
    priced = Priced(round_up(instance, objective, bound), relaxation, prices)
    return json.loads(json.dumps(lagrangian_document(instance, objective, priced))), priced.bound


def queue() -> Instance:
    workflow = make.chain(
        make.task("a", 3, ["m"]), make.task("b", 2, ["n"], after={"a": 1}), make.task("c", 4, after={"a": 1})
    )
    return make.instance([Job(workflow, 2 * i, deadline_us=15) for i in range(3)], {"m": 4, "n": 7})


@pytest.mark.parametrize("seed", by_day(range(25), 8))
def test_the_verifier_finds_the_same_bound(seed: int) -> None:
    rng = random.Random(seed)
    instance = make.random_instance(rng, 5, restricted=rng.random() < 0.3)
    for objective in SUMS:
        found = certified(instance, objective, rng.randint(1, 4), rng.choice((3, 60)))
        if found is not None:
            verdict = verify(instance, found[0])
            assert verdict.reason is None
            assert verdict.valid
            assert verdict.lower_bound == found[1]


@pytest.mark.parametrize("objective", list(Objective))
@pytest.mark.parametrize("method", list(closed_form.METHODS))
def test_formulas_verify_and_no_more_than_they_prove(objective: Objective, method: str) -> None:
    instance = queue()
    bound = closed_form.METHODS[method](instance, objective)
    if bound is None:
        document = closed_form_document(instance, objective, method, Fraction(0))
        assert verify(instance, document).reason == f"{method} does not bound {objective}"
        return
    bound = round_up(instance, objective, bound)
    document = json.loads(json.dumps(closed_form_document(instance, objective, method, bound)))
    assert verify(instance, document).lower_bound == bound
    assert verify(instance, document).valid
    document["lower_bound"] = document["lower_bound"] * (1 + 1e-12) + 1e-12
    verdict = verify(instance, document)
    assert not verdict.valid
    assert verdict.lower_bound == bound


def test_a_claim_above_the_proof_is_refused_and_one_below_is_not() -> None:
    instance = queue()
    found = certified(instance, Objective.MEAN_SLOWDOWN)
    assert found is not None
    document, bound = found
    assert verify(instance, document | {"lower_bound": document["lower_bound"] * (1 + 1e-12)}).valid is False
    below = verify(instance, document | {"lower_bound": document["lower_bound"] / 2})
    assert below.valid
    assert below.lower_bound == bound


def test_a_certificate_of_another_scenario_is_refused() -> None:
    found = certified(queue(), Objective.MEAN_SLOWDOWN)
    assert found is not None
    other = make.instance([Job(make.chain(make.task("a", 3)), 0)])
    assert verify(other, found[0]).reason == "scenario_hash belongs to another scenario"


def test_a_tighter_memory_than_the_gpus_have_is_refused() -> None:
    instance = queue()
    found = certified(instance, Objective.MEAN_SLOWDOWN)
    assert found is not None
    document = found[0]
    document["parameters"]["memory_rows"][0]["capacity"] -= 1
    assert verify(instance, document).reason == "memory_rows holds a limit that the GPUs do not have"


def test_a_slot_limit_below_the_slots_is_refused() -> None:
    workflow = make.chain(make.task("a", 3, ["m"]))
    instance = make.instance([Job(workflow, 0)] * 2, {"m": 4}, on=make.cluster(1, slots=(4, 6), memory_bytes=10))
    found = certified(instance, Objective.MEAN_LATENCY)
    assert found is not None
    assert verify(instance, found[0]).valid
    for row in found[0]["parameters"]["memory_rows"]:
        row["capacity"] = max(0, row["capacity"] - 1)
    assert verify(instance, found[0]).reason == "memory_rows holds a limit that the GPUs do not have"


def test_a_window_beyond_the_prices_is_refused() -> None:
    instance = queue()
    found = certified(instance, Objective.MEAN_SLOWDOWN)
    assert found is not None
    found[0]["parameters"]["delays"][0] += 1000
    assert verify(instance, found[0]).valid is False


def test_precedences_must_leave_a_tree() -> None:
    instance = queue()
    found = certified(instance, Objective.MEAN_SLOWDOWN)
    assert found is not None
    document = found[0]
    document["parameters"]["priced_precedences"] = [[]]
    assert verify(instance, document).reason == "priced_precedences leaves no tree"
    document["parameters"]["priced_precedences"] = [[[0, 0]]]
    assert verify(instance, document).reason == "priced_precedences names an unknown precedence, or one twice"


def _places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path to everything inside a document; of long lists the first and the last entries."""
    keys = list(value) if isinstance(value, dict) else [0, -1] if isinstance(value, list) and value else []
    for key in keys:
        yield (*at, key)
        yield from _places(value[key], (*at, key))


JUNK: list[Any] = [None, True, -1, 1e400, float("nan"), 1 << 70, "x", [], {}, [[]], [{}], 0, 3, [1, 2], [["a"]], -0.5]


def test_no_edit_raises_and_none_claims_more_than_is_proved() -> None:
    instance = queue()
    found = certified(instance, Objective.MEAN_SLOWDOWN, steps=20)
    assert found is not None
    places = list(_places(found[0]))
    assert len(places) > 40
    for place in places:
        for junk in JUNK:
            edited = copy.deepcopy(found[0])
            inside = edited
            for key in place[:-1]:
                inside = inside[key]
            inside[place[-1]] = junk
            verdict = verify(instance, edited)
            if verdict.valid:
                assert verdict.lower_bound is not None
                assert Fraction(edited["lower_bound"]) <= verdict.lower_bound
            else:
                assert verdict.reason
            if junk is not None:
                continue
            del inside[place[-1]]
            verify(instance, edited)


@pytest.mark.parametrize("document", [None, [], 3, "text", {}, {"schema_version": 1}, {"schema_version": 2}])
def test_what_is_no_certificate_is_refused(document: object) -> None:
    verdict = verify(queue(), document)
    assert not verdict.valid
    assert verdict.reason
    assert verdict.lower_bound is None
