"""Limits from prices: no plan as good as the known one breaks them, and CP-SAT inside them still finds the optimum."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import pytest

from tests.instances import chain, instance, random_instance, random_serving_instance, task
from tests.night import by_day
from truenorth.models import Instance, Job, Objective, completion_us, timeline_value
from truenorth.models.formulations.scale import ScaledObjective
from truenorth.models.formulations.windows import Limits, horizon_us
from truenorth.models.objective import Status
from truenorth.models.timeline import Timeline
from truenorth.solvers.bounds.lagrangian.improve import Priced, improve
from truenorth.solvers.bounds.lagrangian.windows import Marginals, limits
from truenorth.solvers.exact import cp_sat, exhaustive
from truenorth.solvers.result import Search

SUMS = [objective for objective in Objective if objective.is_sum]
COMPLETE = "The solution hint is complete and is feasible"
SEEDS = sorted(range(16), key=lambda seed: seed % 8)
"""Windows with and without batches in turns."""


def _drawn(seed: int) -> Instance:
    """Return a random instance: from seed 8 on with batches, shares and memory of tasks."""
    draw = random_instance if seed % 1000 < 8 else random_serving_instance
    return draw(random.Random(seed), 5 if seed % 1000 < 8 else 4, restricted=seed % 2 == 1)


def _priced(built: Instance, objective: Objective, time_limit_s: float = 0.3) -> Priced | None:
    return improve(Search(built, objective, time_limit_s))


def _limits(built: Instance, objective: Objective, priced: Priced, plan: Timeline) -> Limits:
    scaled = ScaledObjective.of(objective, built, horizon_us(built))
    return limits(built, scaled, priced, timeline_value(objective, built, plan), horizon_us(built))


@pytest.mark.parametrize("objective", SUMS)
@pytest.mark.parametrize("seed", by_day(SEEDS, 2))
def test_the_optimum_keeps_to_the_limits_of_every_plan(seed: int, objective: Objective) -> None:
    built = _drawn(3000 + seed)
    best, other = (exhaustive.solve(built, aim).timeline for aim in (objective, Objective.MAKESPAN))
    priced = _priced(built, objective)
    if best is None or other is None or priced is None:
        return
    tasks, scaled = np.arange(built.n_tasks), ScaledObjective.of(objective, built, horizon_us(built))
    cost = scaled.combine(scaled.terms(built, completion_us(built, best)))
    for known in (best, other):
        given = _limits(built, objective, priced, known)
        assert np.all(given.earliest_start_us[tasks, best.place] <= best.start_us)
        assert np.all(best.start_us <= given.latest_start_us[tasks, best.place])
        assert np.all(completion_us(built, best) <= given.latest_completion_us)
        starts = best.start_us.tolist()
        assert given.surcharges is not None
        paid = sum(given.surcharges.of_job(job, starts) for job in range(len(built.jobs)))
        assert paid <= given.surcharges.spare
        assert given.surcharges.base + paid <= cost


@pytest.mark.parametrize("objective", SUMS)
@pytest.mark.parametrize("seed", by_day(SEEDS, 2))
def test_proofs_inside_the_limits_agree_with_the_oracle(seed: int, objective: Objective) -> None:
    built = _drawn(4000 + seed)
    exact, hint = exhaustive.solve(built, objective), exhaustive.solve(built, Objective.MAKESPAN).timeline
    if hint is None:
        return
    search, lines = Search(built, objective, 20), list[str]()
    search.offer(hint)
    cp_sat.improve(search, 1, 0, _priced(built, objective), lines.append)
    result = search.result("cp-sat", {})
    assert (result.status, result.value) == (Status.OPTIMAL, exact.value)
    assert COMPLETE in "\n".join(lines)


def test_what_a_job_pays_through_each_delay() -> None:
    # Two runs of 4 on one GPU from 0, and the optimal prices: latencies 4 and 8, mean 6. In a plan of that value no run
    # starts after 4; in one of value 7 a run may start at 6 (latencies 4 and 10). Prices last until 8, where a start
    # costs 12 / 2, one more than the 5 that a job pays at least: none starts later.
    built = instance([Job(chain(task("a", 4)), 0)] * 2)
    priced = _priced(built, Objective.MEAN_LATENCY, time_limit_s=30)  # enough for the finest slots on any machine
    assert priced is not None
    assert priced.bound == 6
    scaled = ScaledObjective.of(Objective.MEAN_LATENCY, built, horizon_us(built))
    latest = [
        int(limits(built, scaled, priced, Fraction(value), horizon_us(built)).latest_start_us.max()) for value in (6, 7)
    ]
    assert latest[0] in (4, 5)
    assert 6 <= latest[1] <= 8


@pytest.mark.parametrize("seed", range(6))
def test_the_least_through_any_task_is_the_job_s_value(seed: int) -> None:
    built = random_instance(random.Random(5000 + seed))
    priced = _priced(built, Objective.MEAN_LATENCY)
    assert priced is not None
    marginals = Marginals(priced.relaxation, priced.prices)
    first = priced.relaxation.trees.shapes.option_first
    for job, workflow in enumerate(priced.relaxation.data.shape.tolist()):
        through = marginals.of_job(job)
        low, high = priced.relaxation.trees.shapes.node_first[workflow : workflow + 2]
        for node in range(low, high):
            rows = through[first[node] - first[low] : first[node + 1] - first[low]]
            assert rows.min() == marginals.choice.value[job]
