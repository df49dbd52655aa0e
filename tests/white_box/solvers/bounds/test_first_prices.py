"""The prices that the ascent begins with are the dual solution of the mean-busy-time bound."""

import random
from fractions import Fraction

import numpy as np
import pytest

from tests import instances as make
from truenorth.models import Instance, Job, Objective
from truenorth.solvers.bounds import mean_busy_time
from truenorth.solvers.bounds.batch_work import Work
from truenorth.solvers.bounds.critical_path import earliest, fastest_run_us
from truenorth.solvers.bounds.lagrangian.evaluation import Prices, exact_bound, round_prices
from truenorth.solvers.bounds.lagrangian.pooled import FirstPrices
from truenorth.solvers.bounds.lagrangian.relaxation import fixed_parts, job_costs, relax
from truenorth.solvers.bounds.mean_busy_time import latency_weights, work_prices

LATENCIES = [Objective.MEAN_LATENCY, Objective.MEAN_SLOWDOWN]


def runs(*jobs: tuple[int, int], gpus: int = 1) -> Instance:
    """Return jobs of one task, as (release, run time)."""
    workflows = {run: make.chain(make.task("a", run), name=f"run {run}") for _, run in jobs}
    return make.instance([Job(workflows[run], release) for release, run in sorted(jobs)], on=make.cluster(gpus))


def test_prices_by_hand() -> None:
    # Weights 1/3, so the shares of the runs 4, 1 and 2 are 1/12, 1/3 and 1/6. The run of 4 works from 0 to 2 and from 3
    # to 5, the run of 1 from 2 to 3, and after a pause the run of 2 from 10 to 12. Backwards: 0 at 12, 1/3 at 10; 0 at
    # 5, 1/6 at 3, 1/2 at 2. Before 2 the run of 4 must not prefer 3, where a microsecond costs it 1/12 + 1/6: so 1/4.
    built = runs((0, 4), (2, 1), (10, 2))
    weights = latency_weights(built, Objective.MEAN_LATENCY)
    assert weights is not None
    found = work_prices(built, weights)
    assert found.times_us.tolist() == [0, 2, 2, 3, 3, 5, 5, 10, 10, 12, 12]
    third = [5 / 12, 1 / 4, 1 / 2, 1 / 6, 1 / 6, 0, 0, 0, 1 / 3, 0, 0]
    assert found.prices == pytest.approx(third, abs=1e-12)
    # The run of 4 ends at 5, where a microsecond is worth 0; that of 1 at 3 for 1/6, that of 2 at 12 for 0.
    assert found.ended_us.tolist() == [5, 3, 12]
    assert found.last_price == pytest.approx([0, 1 / 6, 0], abs=1e-12)


def dual_value(instance: Instance, objective: Objective) -> float:
    """Return what every job pays where that is least, less the price of all capacity, plus what ends add."""
    weights = latency_weights(instance, objective)
    assert weights is not None
    found = work_prices(instance, weights)
    times, prices = found.times_us, found.prices
    start = earliest(instance).start_us
    run = fastest_run_us(instance)[instance.task_template]
    total: float = -instance.n_gpus * float(np.trapezoid(prices, times))
    for task, job in enumerate(instance.task_job.tolist()):
        own = int(run[instance.task_job == job].sum())
        share, begin = float(weights[job]) / own, start[task]
        first = int(np.searchsorted(times, begin, side="right"))
        here = prices[first - 1] if first and times[first - 1] == begin else np.interp(begin, times, prices, right=0)
        costs = [share * begin + here, *(share * times[first:] + prices[first:])]
        total += float(run[task]) * (min(costs) + share * run[task] / 2)
    return total - sum(float(w) * int(r) for w, r in zip(weights, instance.job_release_us.tolist(), strict=True))


@pytest.mark.parametrize("objective", LATENCIES)
@pytest.mark.parametrize("seed", range(20))
def test_prices_are_worth_the_bound(seed: int, objective: Objective) -> None:
    rng = random.Random(seed)
    built = runs(*((rng.randrange(40), rng.randint(1, 9)) for _ in range(rng.randint(1, 25))), gpus=rng.randint(1, 3))
    weights = latency_weights(built, objective)
    assert weights is not None
    # All jobs weigh the same in mean latency, where the bound may be another one that is better still.
    bound = mean_busy_time._weighted_completions(built, weights, Work.of(built)) - mean_busy_time._weighted_releases(
        built, weights
    )
    assert dual_value(built, objective) == pytest.approx(float(bound), rel=1e-9)


@pytest.mark.parametrize("objective", LATENCIES)
@pytest.mark.parametrize("seed", range(10))
def test_the_ascent_begins_at_least_at_the_bound_of_runs_without_models(seed: int, objective: Objective) -> None:
    rng = random.Random(100 + seed)
    built = runs(*((40 * rng.randrange(40), 40 * rng.randint(1, 9)) for _ in range(20)), gpus=2)
    costs, first = job_costs(built, objective), FirstPrices.of(built, objective)
    assert costs is not None
    relaxation = relax(fixed_parts(built, costs), 1, first.waiting_us + 1)
    found = exact_bound(relaxation, round_prices(Prices.split(first.in_slots(relaxation), relaxation), relaxation))
    weights = latency_weights(built, objective)
    assert found is not None
    assert weights is not None
    bound = mean_busy_time._weighted_completions(built, weights, Work.of(built)) - mean_busy_time._weighted_releases(
        built, weights
    )
    assert found >= bound * (1 - Fraction(1, 1000))


def test_other_objectives_begin_at_no_prices() -> None:
    built = runs((0, 4), (1, 3))
    first = FirstPrices.of(built, Objective.LATE_JOBS)
    assert (first.prices.tolist(), first.waiting_us.tolist()) == ([0.0], [0, 0])
