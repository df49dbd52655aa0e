"""Long traces: stretches of a plan that several work on, and bands that move along them."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from experiments import authors
from truenorth.models import Instance, Objective, Restrictions, check, timeline_value
from truenorth.solvers.result import Search
from truenorth.solvers.search import annealing, bands
from truenorth.solvers.search.annealer import Parameters
from truenorth.solvers.search.annealing import improve, is_long, starts
from truenorth.solvers.search.bands import BandAnnealer, Stretches
from truenorth.solvers.search.decoder import Decisions, Decoder
from truenorth.solvers.search.dispatch import greedy


def numbered(tasks: int) -> Decisions:
    return Decisions(np.arange(tasks), np.zeros(tasks, np.int64))


def test_who_begins_at_once_gets_equal_stretches_and_who_comes_later_half_of_the_longest() -> None:
    stretches = Stretches(numbered(80), 1.0, 2, 5)
    front, rear = stretches.take(), stretches.take()
    assert front is not None
    assert rear is not None
    assert (front.first, front.beyond, rear.first, rear.beyond) == (0, 40, 40, 80)
    # The front one may change what lies before 20, the rear one what lies before 50: of the longer rest, 50 to 80, the
    # second half is taken over, and not changed by its holder any more.
    assert stretches.reserve(front, 0, 20) == 20
    assert stretches.reserve(rear, 40, 50) == 50
    third = stretches.take()
    assert third is not None
    assert (rear.beyond, third.first, third.beyond) == (65, 65, 80)
    assert stretches.reserve(rear, 40, 70) == 65
    # Of what nobody touched yet 20, 0 and 15 positions are left; half of the longest is less than three seams of 5.
    assert stretches.take() is None


def test_a_seam_is_crossed_once_the_other_side_is_done_with_it() -> None:
    stretches = Stretches(numbered(40), 1.0, 2, 5)
    front, rear = stretches.take(), stretches.take()
    assert front is not None
    assert rear is not None
    assert (stretches.goes_to(front), stretches.goes_to(rear)) == (25, 40)
    stretches.reserve(rear, 24, 40)
    assert stretches.cross(front) is None
    stretches.reserve(rear, 25, 40)
    stretches.merge(20, np.array([21, 20]), np.array([0, 3]))
    plan = stretches.cross(front)
    assert plan is not None
    assert plan.order[19:23].tolist() == [19, 21, 20, 22]
    assert plan.gpu[19:23].tolist() == [0, 3, 0, 0]
    assert stretches.reserve(front, 10, 40) == 25
    assert stretches.cross(front) is None


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bands, "BAND", 20)
    monkeypatch.setattr(bands, "SEAM", 30)
    monkeypatch.setattr(annealing, "LONG", 80)


def window(jobs: int) -> Instance:
    return authors.instance(authors.poisson(4, jobs, 8))


def alone() -> tuple[Decoder, Stretches, BandAnnealer]:
    """Return the annealing of a trace that nobody else works on."""
    decoder = Decoder(window(120), Objective.MEAN_SLOWDOWN)
    start = starts(decoder, None, lambda: False)[0]
    stretches = Stretches(start, decoder.cost(start), 1, 150)
    stretch = stretches.take()
    assert stretch is not None
    return decoder, stretches, BandAnnealer(decoder, stretches, stretch, 0, Parameters())


@pytest.mark.usefixtures("narrow")
def test_stretches_put_together_are_a_plan_at_any_time() -> None:
    of = window(240)
    decoder = Decoder(of, Objective.MEAN_SLOWDOWN)
    start = starts(decoder, None, lambda: False)[0]
    stretches = Stretches(start, decoder.cost(start), 2, 150)
    held = [stretches.take(), stretches.take()]
    settings = Parameters(lead_per_gpu=10)
    annealers = [BandAnnealer(decoder, stretches, stretch, 1, settings) for stretch in held if stretch is not None]
    seam, share = of.n_tasks // 2, stretches.cost / len(of.jobs)
    for sweeps in range(30, 0, -1):
        for annealer in annealers:
            annealer.sweep_band(lambda passed: 0.1 * share * 0.04**passed)
            annealer.move_on(1 / sweeps)
            if sweeps % 3 != 1:
                continue
            plan = stretches.decisions()
            assert sorted(plan.order.tolist()) == list(range(of.n_tasks))
            timeline = decoder.timeline(plan)
            assert timeline is not None
            assert check(of, timeline) == []
    assert held[0] is not None
    assert held[0].beyond == seam + 150
    assert decoder.cost(stretches.decisions()) < 0.98 * stretches.cost


@pytest.mark.usefixtures("narrow")
def test_cost_of_a_band_is_exact_where_the_horizon_is_the_end() -> None:
    decoder, stretches, annealer = alone()
    for sweeps in range(12, 0, -1):
        annealer.sweep_band(lambda _: 0.02 * stretches.cost / 120)
        annealer.move_on(1 / sweeps)
        assert annealer.cost == pytest.approx(decoder.cost(stretches.decisions()), rel=1e-9)


@pytest.mark.usefixtures("narrow")
def test_a_band_stays_where_the_trace_ends_however_much_time_passes() -> None:
    _, _, annealer = alone()
    for _ in range(20):
        annealer.move_on(1.0)
    asked: list[float] = []
    annealer.sweep_band(asked.append)
    assert asked == [1.0]  # behind everything, where it is coldest


@pytest.mark.usefixtures("narrow")
def test_equal_seeds_and_moves_give_equal_plans_of_a_long_trace() -> None:
    of = window(240)
    assert is_long(of, Objective.MEAN_SLOWDOWN)
    assert not is_long(of, Objective.MAX_SLOWDOWN)
    assert not is_long(window(100), Objective.MEAN_SLOWDOWN)
    assert not is_long(replace(of, restrictions=Restrictions(no_swaps=True)), Objective.MEAN_SLOWDOWN)
    values = []
    for seed in (1, 1, 2):
        search = Search(of, Objective.MEAN_SLOWDOWN, 600.0)
        improve(search, seed, 40_000)
        values.append(search.value)
    rule = greedy(of, Objective.MEAN_SLOWDOWN)
    assert rule is not None
    assert values[0] == values[1]
    assert values[0] != values[2]
    assert values[0] is not None
    assert values[0] < Fraction(97, 100) * timeline_value(Objective.MEAN_SLOWDOWN, of, rule)
