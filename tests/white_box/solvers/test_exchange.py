"""Annealings that meet: who goes on from whose plan."""

from __future__ import annotations

import numpy as np
import pytest

from experiments import authors
from truenorth.models import Objective
from truenorth.solvers.clock import Clock
from truenorth.solvers.search.annealer import Annealer, Parameters
from truenorth.solvers.search.annealing import starts
from truenorth.solvers.search.decoder import Decisions, Decoder
from truenorth.solvers.search.teams import Exchange


def decisions(number: int) -> Decisions:
    return Decisions(np.array([number]), np.array([0]))


def test_the_worse_half_goes_on_from_the_better_half() -> None:
    exchange = Exchange(Clock(60.0))
    plans = [decisions(number) for number in range(4)]
    # Alone, and while it is the best, nobody takes anything over.
    assert exchange.meet(0, 4.0, plans[0]) is None
    assert exchange.meet(1, 3.0, plans[1]) is None
    # Of two the worse one takes over the other's; of three the worst the best one's.
    assert exchange.meet(0, 4.0, plans[0]) is plans[1]
    assert exchange.meet(2, 5.0, plans[2]) is plans[1]
    # Of four, by cost 3, 4, 4.5 and 5: the third takes over the first one's, the fourth the second one's.
    assert exchange.meet(3, 4.5, plans[3]) is plans[1]
    assert exchange.meet(2, 5.0, plans[2]) is plans[0]
    assert exchange.meet(0, 4.0, plans[0]) is None


def test_all_measure_temperatures_by_the_first_plan() -> None:
    exchange = Exchange(Clock(60.0))
    assert exchange.agree_on(0.5) == 0.5
    assert exchange.agree_on(0.2) == 0.5


def test_an_annealing_goes_on_from_another_plan_at_its_cost() -> None:
    decoder = Decoder(authors.instance(authors.poisson(4, 30, 1)), Objective.MEAN_SLOWDOWN)
    begin = starts(decoder, None, lambda: False)
    annealer = Annealer(decoder, begin[-1], 0, Parameters())
    annealer.take_over(begin[0])
    assert annealer.cost == pytest.approx(decoder.cost(begin[0]), rel=1e-12)
    annealer.sweep(lambda: 1e-9)
    assert annealer.cost == pytest.approx(decoder.cost(annealer.decisions()), rel=1e-12)
