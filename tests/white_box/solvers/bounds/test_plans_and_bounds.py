"""No formula and no prices exceed what a plan is worth: every bound against optima, dispatched and annealed plans."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest

from tests.instances import chain, cluster, instance, random_instance, task
from tests.night import by_day
from truenorth.models import Instance, Job, Objective, timeline_value
from truenorth.models.timeline import Timeline
from truenorth.solvers.bounds import closed_form
from truenorth.solvers.bounds.certificate import closed_form_document
from truenorth.solvers.bounds.lagrangian.ascent import Steps, ascend
from truenorth.solvers.bounds.lagrangian.evaluation import Prices, exact_bound, no_prices, round_prices
from truenorth.solvers.bounds.lagrangian.relaxation import fixed_parts, job_costs, relax
from truenorth.solvers.bounds.recomputed import RECOMPUTED
from truenorth.solvers.bounds.verify import verify
from truenorth.solvers.exact import exhaustive
from truenorth.solvers.result import Search
from truenorth.solvers.rounding import round_up
from truenorth.solvers.search import annealing


def _bounds(built: Instance, objective: Objective, seed: int) -> Iterator[tuple[str, Fraction]]:
    """Yield every method's bound; of the Lagrangian one at prices from a short ascent."""
    for name, method in closed_form.METHODS.items():
        value = method(built, objective)
        if value is not None:
            yield name, round_up(built, objective, value)
    costs = job_costs(built, objective)
    if costs is not None and len(costs.jobs):
        relaxation = relax(fixed_parts(built, costs), 1 + seed % 4, np.full(len(costs.jobs), 25))
        climb = ascend(relaxation, no_prices(relaxation), Steps(30, 0.3, 0.01), lambda: True)
        proved = exact_bound(relaxation, round_prices(Prices.split(climb.best, relaxation), relaxation))
        assert proved is not None
        yield "lagrangian", round_up(built, objective, proved)


def _plans(built: Instance, objective: Objective, seed: int) -> Iterator[Timeline]:
    """Yield the best of all plans for each objective, and an annealed one."""
    for aim in (objective, Objective.MAKESPAN):
        found = exhaustive.solve(built, aim).timeline
        if found is not None:
            yield found
    search = Search(built, objective, 60)
    annealing.improve(search, seed, iterations=200)
    planned = search.result("search", {}).timeline
    if planned is not None:
        yield planned


@pytest.mark.parametrize("seed", by_day(range(40), 5))
def test_no_bound_exceeds_any_plan(seed: int) -> None:
    built = random_instance(random.Random(7000 + seed), restricted=seed % 3 == 0)
    for objective in Objective:
        bounds = list(_bounds(built, objective, seed))
        for plan in _plans(built, objective, seed):
            value = timeline_value(objective, built, plan)
            for name, bound in bounds:
                assert bound <= value, (name, objective)


@pytest.mark.parametrize("seed", range(40))
def test_the_verifier_s_formulas_agree_with_the_provers(seed: int) -> None:
    rng = random.Random(8000 + seed)
    built = random_instance(rng, max_tasks=rng.choice((5, 12)), restricted=seed % 3 == 0)
    for objective in Objective:
        for name, method in closed_form.METHODS.items():
            value = method(built, objective)
            witness = json.loads(json.dumps(closed_form.witness(built, objective, name)))
            assert RECOMPUTED[name](built, objective, witness) == value, (name, objective)


@pytest.mark.parametrize("seed", by_day(range(12), 4))
def test_they_agree_on_queues(seed: int) -> None:
    # Several kinds, long queues and many due dates: intervals and windows that prove something.
    rng = random.Random(9000 + seed)
    kinds = ({"A": 5, "B": 9}, {"A": 7}, {"B": 4}, {"*": 3})
    work = [
        chain(*(task(f"t{i}", rng.choice(kinds), ["m"] if rng.random() < 0.5 else []) for i in range(2)), name=f"w{w}")
        for w in range(3)
    ]
    gpus = cluster(1, kind="A").gpus + cluster(3, kind="B").gpus[1:]
    on = type(cluster(1))(gpus, cluster(1).network)
    jobs = [
        Job(rng.choice(work), at, Fraction(rng.randint(1, 3)), rng.choice((None, rng.randint(5, 40))))
        for at in sorted(rng.randrange(60) for _ in range(30))
    ]
    built = instance(jobs, {"m": 3}, on=on)
    for objective in Objective:
        for name, method in closed_form.METHODS.items():
            value = method(built, objective)
            if value is not None:
                document = json.loads(json.dumps(closed_form_document(built, objective, name, value)))
                verdict = verify(built, document)
                assert (verdict.valid, verdict.lower_bound) == (True, round_up(built, objective, value)), name


def test_times_near_the_largest_are_summed_exactly() -> None:
    # Eleven tasks on eleven GPUs, run time = deadline: all end in time side by side. In floats their sum is a
    # microsecond too long.
    us = 999_999_999_999_997
    wide = chain(*(task(f"t{i}", us) for i in range(11)))
    built = instance([Job(wide, 0, deadline_us=us)], on=cluster(11))
    for name, method in closed_form.METHODS.items():
        assert method(built, Objective.LATE_JOBS) in (0, None), name
        assert method(built, Objective.MAKESPAN) in (us, None), name
        assert method(built, Objective.MAX_SLOWDOWN) in (1, None), name
        assert method(built, Objective.WEIGHTED_TARDINESS) in (0, None), name
        assert method(built, Objective.MEAN_LATENCY) in (us, None), name
    late = instance([Job(wide, 0, deadline_us=us)], on=cluster(10))
    assert closed_form.METHODS["energetic"](late, Objective.LATE_JOBS) == 1


def test_slowdowns_of_very_unequal_jobs_stay_exact() -> None:
    # A cold run of 1 us waits 10^13 us for its model: its slowdown, 10^13 + 1, times the other's path exceeds 64 bits.
    on = cluster(1, memory_bytes=10**13)
    short, long = chain(task("a", 1, ["m"])), chain(task("b", 10**14), name="v")
    built = instance([Job(short, 0), Job(long, 0)], {"m": 10**13}, on=on)
    assert closed_form.METHODS["energetic"](built, Objective.MAX_SLOWDOWN) == 10**13 + 1


def test_models_of_more_bytes_than_64_bits_hold() -> None:
    # A thousand models of 10^16 bytes, one job each, all due within the load of one and a half: 10 GPUs hold one each
    # and can load half a one more.
    big = 10**16
    jobs = [Job(chain(task("a", 1, [f"m{i}"]), name=f"w{i}"), 10, deadline_us=5) for i in range(1000)]
    on = cluster(10, memory_bytes=big, load_bandwidth=Fraction(big) * 10**5)
    built = instance(jobs, {f"m{i}": big for i in range(1000)}, on=on)
    # In [10, 15) a GPU holds 1 and loads 0.5: 10 * 1.5 = 15 models, so 985 jobs are late.
    assert closed_form.METHODS["fluid"](built, Objective.LATE_JOBS) == 985


def test_weights_too_large_for_the_relaxation_prove_nothing() -> None:
    heavy = instance([Job(chain(task("a", 4)), 0, Fraction(10**30), 1)] * 2)
    costs = job_costs(heavy, Objective.WEIGHTED_TARDINESS)
    assert costs is not None
    relaxation = relax(fixed_parts(heavy, costs), 1, np.array([10, 10]))
    assert exact_bound(relaxation, round_prices(Prices.zero(relaxation), relaxation)) is None


def test_prices_beyond_64_bits_stay_prices() -> None:
    one = instance([Job(chain(task("a", 4)), 0)])
    costs = job_costs(one, Objective.MEAN_LATENCY)
    assert costs is not None
    relaxation = relax(fixed_parts(one, costs), 1, np.array([10]))
    for wild in (1e30, np.inf, np.nan, -1.0):
        prices = round_prices(Prices.split(np.full(Prices.size(relaxation), wild), relaxation), relaxation)
        assert prices.compute.min() >= 0
