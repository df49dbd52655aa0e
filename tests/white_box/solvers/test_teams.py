"""Two annealings of one plan: who has which part, and what becomes of both."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from experiments import authors
from truenorth.models import Objective
from truenorth.solvers.clock import Clock
from truenorth.solvers.search.annealer import Annealer, Parameters
from truenorth.solvers.search.annealing import starts
from truenorth.solvers.search.decoder import Decisions, Decoder
from truenorth.solvers.search.teams import Exchange, Team, is_shared, put_together


def test_early_tasks_stand_as_one_plan_has_them_and_the_others_behind_them_as_the_other_has_them() -> None:
    early = Decisions(np.array([2, 0, 1, 3, 4]), np.array([0, 0, 0, 0, 0]))
    late = Decisions(np.array([0, 1, 4, 2, 3]), np.array([1, 1, 1, 1, 1]))
    joined = put_together(np.array([0, 1, 2]), early, late)
    assert joined.order.tolist() == [2, 0, 1, 4, 3]
    assert joined.gpu.tolist() == [0, 0, 0, 1, 1]


def test_who_comes_first_leads_and_who_comes_next_follows() -> None:
    exchange = Exchange(Clock(60.0))
    (first, first_leads), (second, second_leads), (third, third_leads) = (exchange.join() for _ in range(3))
    assert (first_leads, second_leads, third_leads) == (True, False, True)
    assert first is second
    assert (first.complete, third.complete) == (True, False)


def test_two_annealings_keep_one_plan_at_its_cost() -> None:
    instance = authors.instance(authors.poisson(4, 60, 1))
    assert is_shared(instance, Objective.MEAN_SLOWDOWN, Parameters())
    assert not is_shared(instance, Objective.MAKESPAN, Parameters())
    decoder = Decoder(instance, Objective.MEAN_SLOWDOWN)
    begin = starts(decoder, None, lambda: False)[0]
    leader, follower = (
        Annealer(own, begin, seed, Parameters())
        for seed, own in enumerate((decoder, Decoder(instance, Objective.MEAN_SLOWDOWN)))
    )
    team, begun, over = Team(), leader.cost, False
    team.complete = True
    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(team.follow, follower, lambda: None if over else 1e-9)
        for _ in range(3):
            team.sweep(leader, lambda: 1e-9)
            assert leader.cost == pytest.approx(decoder.cost(leader.decisions()), rel=1e-12)
        over = True
        following.result()
    # What one has found the other has gone on from.
    assert leader.cost < begun
    assert follower.moves > 0
    assert sorted(leader.decisions().order.tolist()) == list(range(instance.n_tasks))
