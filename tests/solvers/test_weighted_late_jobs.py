"""Late jobs that weigh differently: every solver, bound and verifier against all orders of small windows."""

from __future__ import annotations

import json
import random
from fractions import Fraction
from itertools import permutations, product

import pytest

from tests.instances import chain, cluster, instance, task
from truenorth.models import Instance, Job, Objective
from truenorth.models.objective import Status
from truenorth.solvers.bounds import closed_form, energetic, fluid
from truenorth.solvers.bounds.certificate import closed_form_document
from truenorth.solvers.bounds.effort import Effort
from truenorth.solvers.bounds.refutation import refute
from truenorth.solvers.bounds.verify import verify
from truenorth.solvers.exact import cp_sat, exhaustive, milp
from truenorth.solvers.rounding import round_up

LATE = Objective.LATE_JOBS
WEIGHTS = (Fraction(0), Fraction(1, 2), Fraction(1), Fraction(1), Fraction(2), Fraction(5), Fraction(7, 3))
Row = tuple[int, int, int | None, Fraction]


def window(rows: list[Row], gpus: int = 1) -> Instance:
    """Return jobs of one task by (run time, release, deadline, weight), in the order of their releases."""
    jobs = [Job(chain(task("t", run), name=f"w{run}"), at, weight, due) for run, at, due, weight in rows]
    return instance(jobs, on=cluster(gpus))


def least(rows: list[Row], gpus: int) -> Fraction:
    """Return the least weight of late jobs over all orders on all GPUs."""
    best = Fraction(10**6)
    for places in product(range(gpus), repeat=len(rows)):
        for order in permutations(range(len(rows))):
            free, late = [0] * gpus, Fraction(0)
            for job in order:
                run, at, due, weight = rows[job]
                free[places[job]] = max(free[places[job]], at) + run
                late += weight if due is not None and free[places[job]] > at + due else 0
            best = min(best, late)
    return best


def draw(seed: int) -> tuple[list[Row], int]:
    rng, gpus = random.Random(seed), 1 + seed % 2
    rows = [
        (rng.randint(1, 6), rng.choice((0, 0, rng.randint(0, 6))), rng.choice((None, rng.randint(2, 9), 5)), weight)
        for weight in rng.choices(WEIGHTS, k=5 if gpus == 1 else 4)
    ]
    return sorted(rows, key=lambda row: row[1]), gpus


@pytest.mark.parametrize("seed", range(40))
def test_all_agree_with_all_orders(seed: int) -> None:
    rows, gpus = draw(seed)
    built, best = window(rows, gpus), least(rows, gpus)
    for found in (exhaustive.solve(built, LATE), cp_sat.solve(built, LATE, 20, workers=1), milp.solve(built, LATE, 20)):
        assert (found.status, found.value) == (Status.OPTIMAL, best)
    for method in closed_form.METHODS:
        value = closed_form.METHODS[method](built, LATE)
        if value is not None:
            assert round_up(built, LATE, value) <= best
            verdict = verify(built, json.loads(json.dumps(closed_form_document(built, LATE, method, value))))
            assert (verdict.valid, verdict.lower_bound) == (True, round_up(built, LATE, value))
    assert not best or refute(built, LATE, best, [], Effort(10**9))
    assert not refute(built, LATE, best + Fraction(1, 6), [], Effort(10**9))


def test_the_cheap_one_of_two_is_late() -> None:
    # Both take 2 s and are due at 2 s: one is late, the one of weight 1 and not of 5.
    built = window([(2, 0, 2, Fraction(1)), (2, 0, 2, Fraction(5))])
    assert cp_sat.solve(built, LATE, 20, workers=1).value == energetic.bound(built, LATE) == 1
    # Of three, the one of 5 is on time: 1 and 3 are late.
    assert energetic.bound(window([(2, 0, 2, Fraction(w)) for w in (1, 3, 5)]), LATE) == 4
    assert fluid.bound(window([(2, 0, 2, Fraction(w)) for w in (1, 3, 5)]), LATE) == 4


def test_values_are_multiples_of_what_divides_all_weights() -> None:
    # Weights 1/2 and 3/4: whatever is late, it weighs a multiple of 1/4.
    built = window([(1, 0, 1, Fraction(1, 2)), (1, 0, 1, Fraction(3, 4)), (1, 0, None, Fraction(1, 7))])
    assert round_up(built, LATE, Fraction(3, 8)) == Fraction(1, 2)
    assert round_up(window([(1, 0, 1, Fraction(0))]), LATE, Fraction(0)) == 0


def test_many_weights_are_cut_into_few_layers_alike_by_prover_and_verifier() -> None:
    # Of 40 jobs of 1 us due at 1 us all but the heaviest are late: 1 + ... + 39 = 780. Layers at 32 of the 40 weights
    # round some weights down.
    built = window([(1, 0, 1, Fraction(weight)) for weight in range(1, 41)])
    for method, prove in {"energetic": energetic.bound, "fluid": fluid.bound}.items():
        value = prove(built, LATE)
        assert value is not None
        assert 700 < value < 780
        assert verify(built, closed_form_document(built, LATE, method, value)).lower_bound == value
