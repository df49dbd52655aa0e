"""Servers that come and go in the exact solvers: by hand, and two formulations against the exhaustive search."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from tests.instances import chain, cluster, gpu, instance, network, random_instance, random_serving_instance, task
from tests.models.formulations.cases import Case, case
from tests.random_instances import with_absences
from truenorth.models import (
    BatchClass,
    Cluster,
    Instance,
    Job,
    Link,
    Objective,
    Restrictions,
    Task,
    UnsupportedInstanceError,
    check,
)
from truenorth.models.cluster import FOREVER, Availability
from truenorth.models.formulations.cp_sat import formulate
from truenorth.models.formulations.cp_sat_plans import add_hint
from truenorth.models.formulations.normal_form import restrict
from truenorth.models.objective import Status
from truenorth.solvers.bounds import closed_form
from truenorth.solvers.exact import cp_sat, exhaustive
from truenorth.solvers.reductions import Visits, close


def there(*intervals: tuple[int, int]) -> Availability:
    return Availability.of(intervals)


def on_one(*tasks: Task, available: Availability, models: dict[str, int] | None = None, **options: Any) -> Instance:
    jobs = [Job(chain(own, name=f"w{index}"), 0) for index, own in enumerate(tasks)]
    return instance(jobs, models, cluster(1, available=available), **options)


CASES = (
    # Three runs of 4 us: two fit [0, 10), the third waits until 15.
    case("two and one", 19, on_one(*(task("t", 4) for _ in range(3)), available=there((0, 10), (15, FOREVER)))),
    # Nothing fits [0, 3): it begins at 15.
    case("too short", 19, on_one(task("t", 4), available=there((0, 3), (15, FOREVER)))),
    # Load 4 and run 3 fit [2, 9) and end with it; a second run of the model loads it again from 20 on.
    case(
        "memory is empty again",
        27,
        on_one(*(task("t", 3, ["m"]) for _ in range(2)), available=there((2, 9), (20, FOREVER)), models={"m": 4}),
    ),
    # Without swaps what reaches the end is no eviction: m in the first interval, n (5, with no room beside) after it.
    case(
        "no eviction",
        19,
        on_one(
            task("t", 3, ["m"]),
            task("u", 4, ["n"]),
            available=there((0, 9), (10, FOREVER)),
            models={"m": 6, "n": 5},
            restrictions=Restrictions(no_swaps=True),
        ),
    ),
    # One replica at most: the second GPU loads once the first has gone at 8, 8 + 4 + 6.
    case(
        "a replica goes",
        18,
        instance(
            [Job(chain(task("t", {"A": 4}, ["m"])), 0), Job(chain(task("u", {"B": 6}, ["m"]), name="v"), 4)],
            {"m": 4},
            Cluster((gpu(0, available=there((0, 8))), gpu(1, kind="B")), network()),
            restrictions=Restrictions(max_replicas={"m": 1}),
        ),
    ),
    # Without swaps the one replica ends with its GPU: the second of two runs (2, after a load of 4) comes at 10.
    case(
        "a replica that never leaves goes with its GPU",
        16,
        on_one(
            *(task("t", 2, ["m"]) for _ in range(2)),
            available=there((0, 6), (10, FOREVER)),
            models={"m": 4},
            restrictions=Restrictions(no_swaps=True, max_replicas={"m": 1}),
        ),
    ),
    # The same of tasks with shares, whose windows others solve: batches of one, 4 us each.
    case(
        "a replica of a batch goes with its GPU",
        18,
        on_one(
            *(Task.of_class("t", BatchClass("c", {"*": {1: 4}}, ("m",))) for _ in range(2)),
            available=there((0, 9), (10, FOREVER)),
            models={"m": 4},
            restrictions=Restrictions(no_swaps=True, max_replicas={"m": 1}),
        ),
    ),
    # Of two replicas one goes at 10, the other stays although its model is not needed any more: 10 + 4 + 3.
    case(
        "the replica that goes makes room, not the one that stays",
        17,
        instance(
            [Job(chain(task("t", {kind: 3}, ["m"]), name=kind), 0) for kind in "ABC"],
            {"m": 4},
            Cluster((gpu(0), gpu(1, kind="B", available=there((0, 10))), gpu(2, kind="C")), network()),
            restrictions=Restrictions(no_swaps=True, max_replicas={"m": 2}),
        ),
    ),
    # The output outlives the server: b runs elsewhere at 50.
    case(
        "outputs stay",
        52,
        instance(
            [Job(chain(task("a", {"A": 4}), task("b", {"B": 2}, after={"a": 1})), 0)],
            None,
            Cluster((gpu(0, available=there((0, 8))), gpu(1, kind="B", available=there((50, 60)))), network()),
        ),
    ),
    # A run of 4 us fits neither interval.
    case("fits nowhere", None, on_one(task("t", 4), available=there((0, 3), (5, 8)))),
)


@pytest.mark.parametrize("own", CASES, ids=lambda own: own.name)
def test_cases_by_hand(own: Case) -> None:
    for solve in (
        exhaustive.solve,
        lambda built, objective: cp_sat.solve(built, objective, 20, workers=1),
    ):
        found = solve(own.instance, own.objective)
        assert found.value == own.optimum
        assert found.status is (Status.INFEASIBLE if own.optimum is None else Status.OPTIMAL)


def drawn(seed: int) -> tuple[Instance, Objective]:
    rng = random.Random(seed)
    draw = random_serving_instance if seed % 3 == 2 else random_instance
    return with_absences(rng, draw(rng, 4, restricted=seed % 4 == 3)), list(Objective)[seed % 7]


@pytest.mark.parametrize("seed", range(24))
def test_the_exhaustive_search_agrees_and_no_bound_lies_above(seed: int) -> None:
    built, objective = drawn(seed)
    best = exhaustive.solve(built, objective)
    found = cp_sat.solve(built, objective, 20, workers=1)
    assert (found.status, found.value) == (best.status, best.value)
    if best.timeline is None or best.value is None:
        return
    assert check(built, best.timeline) == []
    for method in closed_form.METHODS.values():
        bound = method(built, objective)
        assert bound is None or bound <= best.value


def test_a_plan_is_the_same_on_the_twin_and_hints_its_formulation() -> None:
    for seed in range(30):
        built, objective = drawn(seed)
        plan = exhaustive.solve(built, objective).timeline
        if plan is None:
            continue
        visits = Visits.of(built)
        spread = close(visits.twin, visits.to_twin(plan))
        assert check(visits.twin, spread) == []
        gathered = visits.back(spread)
        assert gathered.residencies == plan.residencies
        assert (gathered.place == plan.place).all()
        part = replace(visits.twin, jobs=visits.twin.jobs[:1])
        assert check(part, restrict(visits.twin, spread, part)) == []
        formulation = formulate(visits.twin, objective, spread)
        add_hint(formulation, spread)
        assert len(formulation.model.proto.solution_hint.vars) == len(formulation.model.proto.variables)


def test_an_output_may_not_travel_past_an_absence() -> None:
    near = network(within=Link(7))
    built = on_one(task("a", 2), available=there((0, 10), (15, FOREVER)))
    assert Visits.of(built).twin.n_gpus == 2
    jobs = [Job(chain(task("a", 2), task("b", 2, after={"a": 1})), 0)]
    long = instance(jobs, None, cluster(1, near, available=there((0, 10), (15, FOREVER))))
    with pytest.raises(UnsupportedInstanceError, match="s0/g0 is away for 5 us; allowed are absences as long"):
        cp_sat.solve(long, Objective.MAKESPAN, 20)
