"""Proofs part by part, against the exhaustive search and by hand."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

from tests.instances import chain, cluster, instance, random_instance, task
from tests.white_box.solvers.test_start_orders import SUMS, early_prices
from truenorth.models import Instance, Job, Objective
from truenorth.solvers.exact import exhaustive, parts, start_orders
from truenorth.solvers.result import Search
from truenorth.solvers.search.dispatch import greedy
from truenorth.solvers.tuning import USUAL, Tuning

EVERYWHERE = Tuning("cuts at every release, also where jobs wait for one another", cut_loss=1e9)


def _planned(built: Instance, objective: Objective, tuning: Tuning = USUAL) -> Search:
    """Return a search that knows the plan of a dispatch rule."""
    search, plan = Search(built, objective, 900, tuning=tuning), greedy(built, objective)
    assert plan is not None
    search.offer(plan)
    return search


def test_jobs_far_apart_are_proved_apart() -> None:
    # Twice what a GPU waits for in `test_start_orders`: latencies 4, 1, 5 and 14, and 200 us later once more.
    runs = [(10, 0), (4, 0), (4, 1), (1, 1)]
    built = instance(
        [
            Job(chain(task("t", run), name=f"w{at}"), begin + release)
            for begin in (0, 200)
            for at, (run, release) in enumerate(runs)
        ],
        on=cluster(2),
    )
    search, priced = _planned(built, Objective.MEAN_LATENCY), early_prices(built, Objective.MEAN_LATENCY)
    assert search.value is not None
    assert search.value > 6  # the rule does not wait
    assert parts.cut(search, priced) == [range(4), range(4, 8)]
    parts.improve(search, priced, 900)
    assert search.value == search.bound == 6
    assert search.bound_method == start_orders.METHOD


@pytest.mark.parametrize("objective", SUMS)
def test_no_cut_lifts_a_bound_above_the_optimum(objective: Objective) -> None:
    several = 0
    for seed in range(20):
        built = random_instance(random.Random(7000 + seed), max_tasks=5)
        if not start_orders.applies(built, objective):
            continue
        search, priced = _planned(built, objective, EVERYWHERE), early_prices(built, objective)
        several += len(parts.cut(search, priced)) > 1
        parts.improve(search, priced, 900)
        best = exhaustive.solve(built, objective).value
        assert best is not None
        assert search.value is not None
        assert search.bound is not None
        assert search.bound <= best <= search.value
    assert several >= 5


def test_jobs_of_no_weight_are_no_part_of_their_own() -> None:
    jobs = [Job(chain(task("t", 4)), 9 * at, weight=Fraction(weight)) for at, weight in enumerate((0, 1, 1, 0))]
    built = instance(jobs, on=cluster(1))
    priced = early_prices(built, Objective.WEIGHTED_LATENCY)
    assert parts.cut(_planned(built, Objective.WEIGHTED_LATENCY, EVERYWHERE), priced) == [range(2), range(2, 4)]
