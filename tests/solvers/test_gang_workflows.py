"""Plans and bounds of runs on several GPUs that wait for others, against an oracle that tries every order and place."""

from __future__ import annotations

import random

import pytest

from tests.gangs import draw_workflows, optimum
from tests.night import by_day
from truenorth.models import Objective
from truenorth.models.torn import torn
from truenorth.solvers.bounds import closed_form
from truenorth.solvers.bounds.certificate import closed_form_document, lagrangian_document
from truenorth.solvers.bounds.verify import verify
from truenorth.solvers.result import Search
from truenorth.solvers.side_by_side import raise_bound


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
