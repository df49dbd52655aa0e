"""Prices that jobs share: as good as prices of their own, and worth as much once they are handed back."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from tests import instances as make
from truenorth.models import Instance, Job, Objective, Workflow
from truenorth.solvers.bounds.lagrangian import pooled as pooling
from truenorth.solvers.bounds.lagrangian.ascent import Steps, ascend
from truenorth.solvers.bounds.lagrangian.evaluation import Evaluation, Prices, exact_bound, round_prices
from truenorth.solvers.bounds.lagrangian.improve import improve
from truenorth.solvers.bounds.lagrangian.pooled import FirstPrices, Pool, PooledEvaluation
from truenorth.solvers.bounds.lagrangian.relaxation import Fixed, fixed_parts, job_costs, relax
from truenorth.solvers.exact import exhaustive
from truenorth.solvers.result import Search
from truenorth.solvers.rounding import round_up

LATENCY = Objective.MEAN_LATENCY


def diamond(run_us: int, models: tuple[str, ...] = ()) -> Workflow:
    """Return a fork to two tasks of equal runs and a join: one of the four precedences is not in the tree."""
    return make.chain(
        make.task("a", 2, models),
        make.task("b", run_us, after={"a": 0}),
        make.task("c", run_us, after={"a": 0}),
        make.task("d", 2, after={"b": 0, "c": 0}),
        name=f"diamond {run_us}",
    )


def pool_of(instance: Instance, objective: Objective = LATENCY) -> tuple[Fixed, Pool | None]:
    costs = job_costs(instance, objective)
    assert costs is not None
    fixed = fixed_parts(instance, costs)
    return fixed, Pool.of(fixed, FirstPrices.of(instance, objective))


@pytest.mark.parametrize("model_us", [None, 24])
@pytest.mark.parametrize("seed", range(3))
def test_shared_prices_are_worth_the_same_job_by_job(seed: int, model_us: int | None) -> None:
    # Releases at the edges of slots and after a load, so that nothing is rounded; all prices in the first half of the
    # time, so that the ends of the windows do not matter; two workflows, models, and falls of the priced precedences.
    # Models have prices all that time, or in the first fifth of it, and are then not looked at behind it.
    rng = np.random.default_rng(seed)
    jobs = [Job(diamond(4, ("m",)) if i % 2 else diamond(6), 4 + 2 * int(rng.integers(10))) for i in range(20)]
    fixed, pool = pool_of(make.instance(sorted(jobs, key=lambda job: job.release_us), {"m": 3}, on=make.cluster(2)))
    assert pool is not None
    pool = replace(pool, end_us=400)
    shared = pool.relax(2)
    flat = np.zeros(Prices.size(shared))
    drawn = Prices.split(flat, shared)
    until = 60 if model_us is None else model_us // 2 + 1
    for part, end in ((drawn.compute, 60), (drawn.copy, until), (drawn.memory, until), (drawn.uses, until)):
        part[:, :end] = rng.exponential(0.1 * shared.usual_price, part[:, :end].shape)
    falls = drawn.extra.reshape(2, -1)
    falls[:, :60] = rng.exponential(0.2 * float(shared.data.weight.max()), (2, 60))
    evaluation = PooledEvaluation(pool, shared, model_us)
    value = evaluation.value(drawn) / shared.scale
    one_by_one = relax(fixed, 2, np.full(20, 340))
    back = pool.to_jobs(flat, shared, np.full(20, 1e9), one_by_one)
    alone = Evaluation(one_by_one)
    assert alone.value(Prices.split(back, one_by_one)) / one_by_one.scale == pytest.approx(value, rel=1e-9)
    assert alone.job_value / one_by_one.scale == pytest.approx(evaluation.job_value / shared.scale, rel=1e-9)
    # What jobs use is what they use one by one, wherever a price is above 0.
    mine, theirs = np.zeros_like(flat), np.zeros_like(back)
    evaluation.excess(Prices.split(mine, shared))
    alone.excess(Prices.split(theirs, one_by_one))
    used = [Prices.split(*pair).compute[0, :60] for pair in ((mine, shared), (theirs, one_by_one))]
    assert used[0] == pytest.approx(used[1], abs=1e-6)
    used = [Prices.split(*pair).uses[:, :until] for pair in ((mine, shared), (theirs, one_by_one))]
    assert used[0] == pytest.approx(used[1], abs=1e-6)


def test_eight_equal_jobs_queue_on_one_gpu() -> None:
    # Runs of 4 us from 0 on: they end at 4, 8, ..., 32, mean 18.
    instance = make.instance([Job(make.chain(make.task("a", 4)), 0)] * 8)
    assert pool_of(instance)[1] is not None
    search = Search(instance, LATENCY, 1.0)
    improve(search)
    assert search.bound == 18


def test_who_shares() -> None:
    alike = [Job(diamond(4), 3 * i) for i in range(16)]
    assert pool_of(make.instance(alike))[1] is not None
    weighted = [replace(job, weight=Fraction(1 + i)) for i, job in enumerate(alike)]
    assert pool_of(make.instance(weighted), Objective.WEIGHTED_LATENCY)[1] is None  # each one a group of its own
    assert pool_of(make.instance(weighted))[1] is not None  # whose weights do not count here
    due = [replace(job, deadline_us=50) for job in alike]
    for objective in (Objective.WEIGHTED_TARDINESS, Objective.LATE_JOBS):
        assert pool_of(make.instance(due), objective)[1] is None
    two_sources = make.chain(make.task("a", 2), make.task("b", 3), make.task("c", 1, after={"a": 0, "b": 0}))
    assert pool_of(make.instance([Job(two_sources, 3 * i) for i in range(16)]))[1] is None


@pytest.mark.parametrize("seed", range(12))
def test_handed_back_they_prove_no_more_than_the_optimum(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Two jobs of three tasks with two ends, released inside slots, models that do not fit together.
    monkeypatch.setattr(pooling, "LEAST_ALIKE", 1)
    rng = random.Random(seed)
    fork = make.chain(
        make.task("a", rng.randint(1, 5), ["m"]),
        make.task("b", rng.randint(1, 5), ["n"], after={"a": rng.randint(0, 3)}),
        make.task("c", rng.randint(1, 5), after={"a": rng.randint(0, 3)}),
    )
    instance = make.instance([Job(fork, 0), Job(fork, rng.randint(0, 9))], {"m": 6, "n": 7}, on=make.cluster(2))
    fixed, pool = pool_of(instance)
    assert pool is not None
    shared = pool.relax(rng.randint(1, 4))
    climb = ascend(
        shared, np.zeros(Prices.size(shared)), Steps(80, 0.1, 0.01), lambda: True, PooledEvaluation(pool, shared)
    )
    paid_us = pool.paid_us(shared, climb.job_value)
    alone = relax(fixed, rng.randint(1, 4), (1.25 * paid_us).astype(np.int64) + 20)
    back = round_prices(Prices.split(pool.to_jobs(climb.best, shared, paid_us, alone), alone), alone)
    bound, optimum = exact_bound(alone, back), exhaustive.solve(instance, LATENCY).value
    assert bound is not None
    assert optimum is not None
    assert 0 < round_up(instance, LATENCY, bound) <= optimum
