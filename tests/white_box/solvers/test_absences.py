"""GPUs that come and go in the list decoder and the whole portfolio: against the exhaustive search."""

from __future__ import annotations

import random

import pytest

from tests.instances import random_instance, random_serving_instance
from tests.random_instances import with_absences
from truenorth.models import Instance, Objective, check, timeline_value
from truenorth.models.objective import Status
from truenorth.solvers.budget import Budget, Method
from truenorth.solvers.exact import exhaustive
from truenorth.solvers.portfolio import solve
from truenorth.solvers.reductions import Visits, close
from truenorth.solvers.search.decoder import Decoder
from truenorth.solvers.search.dispatch import greedy_decisions


def drawn(seed: int) -> tuple[Instance, Objective]:
    rng = random.Random(seed)
    draw = random_serving_instance if seed % 3 == 2 else random_instance
    return with_absences(rng, draw(rng, 4, restricted=seed % 4 == 3)), list(Objective)[seed % 7]


def test_the_decoder_rebuilds_an_optimum_from_its_decisions() -> None:
    dispatched = solvable = 0
    for seed in range(40):
        built, objective = drawn(seed)
        best = exhaustive.solve(built, objective)
        if best.timeline is None:
            continue
        visits = Visits.of(built)
        decoder = Decoder(visits.twin, objective)
        values = []
        for decisions in (decoder.encode(visits.to_twin(best.timeline)), *greedy_decisions(decoder)[:3]):
            decoded = decoder.timeline(decisions)
            assert decoded is not None
            plan = visits.back(close(visits.twin, decoded))
            assert check(built, plan) == []
            values.append(timeline_value(objective, built, plan))
        assert values[0] == min(values) == best.value
        solvable, dispatched = solvable + 1, dispatched + (len(values) > 1)
    assert dispatched > 0.9 * solvable > 30


@pytest.mark.parametrize("seed", range(4))
def test_local_search_finds_the_optimum(seed: int) -> None:
    built, objective = drawn(20 + seed)
    best = exhaustive.solve(built, objective)
    found = solve(built, objective, Budget(20.0, Method.SEARCH, workers=1, iterations=2000))
    if best.timeline is None or best.value is None:
        assert found.status in (Status.INFEASIBLE, Status.NO_SOLUTION)
    else:
        assert found.value == best.value
        assert found.lower_bound is not None
        assert found.lower_bound <= best.value
