"""The dynamic programme over start orders, against the exhaustive search and by hand."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import pytest

from tests.instances import chain, cluster, instance, network, random_instance, task
from truenorth.models import Instance, Job, Objective
from truenorth.models.objective import timeline_value
from truenorth.solvers.bounds.lagrangian.ascent import Steps, ascend
from truenorth.solvers.bounds.lagrangian.evaluation import Prices, round_prices
from truenorth.solvers.bounds.lagrangian.improve import Priced
from truenorth.solvers.bounds.lagrangian.pooled import FirstPrices
from truenorth.solvers.bounds.lagrangian.relaxation import fixed_parts, job_costs, relax
from truenorth.solvers.exact import exhaustive, start_orders
from truenorth.solvers.exact.start_orders import _origin
from truenorth.solvers.exact.start_orders_kernel import _list_ready
from truenorth.solvers.exact.start_orders_tables import ComputeRate, tabulate
from truenorth.solvers.result import Search
from truenorth.solvers.search.dispatch import greedy

SUMS = [Objective.MEAN_LATENCY, Objective.MEAN_SLOWDOWN, Objective.WEIGHTED_LATENCY]


def early_prices(built: Instance, objective: Objective) -> Priced:
    """Return early prices, the same on every machine: 50 steps in slots of a sixteenth of a critical path."""
    costs = job_costs(built, objective)
    assert costs is not None
    fixed = fixed_parts(built, costs)
    windows = np.full(len(costs.jobs), fixed.all_done_us)
    relaxation = relax(fixed, 1 + int(built.job_critical_us.mean()) // 16, windows)
    first = FirstPrices.of(built, objective).in_slots(relaxation)
    climb = ascend(relaxation, first, Steps(50), lambda: True)
    return Priced(Fraction(0), relaxation, round_prices(Prices.split(climb.best, relaxation), relaxation))


def _proved(built: Instance, objective: Objective) -> Search:
    """Return a search after the programme alone, which starts from the plan of a dispatch rule."""
    search, plan = Search(built, objective, 900), greedy(built, objective)  # time enough to compile cold kernels
    assert plan is not None
    search.offer(plan)
    start_orders.improve(search, ComputeRate.of(early_prices(built, objective)), 900)
    return search


@pytest.mark.parametrize("objective", SUMS)
def test_no_bound_lies_above_the_optimum_and_most_meet_it(objective: Objective) -> None:
    applied = met = 0
    for seed in range(25):
        built = random_instance(random.Random(7000 + seed), max_tasks=5)
        if not start_orders.applies(built, objective):
            continue
        best, search = exhaustive.solve(built, objective).value, _proved(built, objective)
        assert search.value is not None
        assert search.bound is not None
        assert best is not None
        assert search.bound <= best <= search.value
        applied += 1
        met += search.proved
    assert applied >= 12
    assert met >= 0.6 * applied  # the others wait for room in memory


def test_a_gpu_waits_for_a_short_job() -> None:
    # Two GPUs, runs of 10 and 4 at 0, of 4 and 1 at 1. The long one goes last: 4 from 0, and on the other GPU, which
    # waits for it, 1 from 1 and 4 from 2; then 10 from 4. Latencies 4, 1, 5 and 14. If the long one starts at 0, the
    # others take turns beside it: 10, 4, and 4 and 8.
    runs = [(10, 0), (4, 0), (4, 1), (1, 1)]
    built = instance(
        [Job(chain(task("t", run), name=f"w{at}"), release) for at, (run, release) in enumerate(runs)], on=cluster(2)
    )
    search = _proved(built, Objective.MEAN_LATENCY)
    assert search.value == search.bound == Fraction(24, 4)
    assert search.timeline is not None
    assert timeline_value(Objective.MEAN_LATENCY, built, search.timeline) == search.value


def test_where_it_does_not_apply() -> None:
    built = instance([Job(chain(task("t", 4)), 0, deadline_us=3)], on=cluster(2))
    assert start_orders.applies(built, Objective.MEAN_LATENCY)
    assert start_orders.applies(built, Objective.WEIGHTED_TARDINESS)  # it is late whatever the plan
    assert not start_orders.applies(built, Objective.MAKESPAN)
    in_time = instance([Job(chain(task("t", 4)), 0, deadline_us=5)], on=cluster(2))
    assert not start_orders.applies(in_time, Objective.WEIGHTED_TARDINESS)
    assert not start_orders.applies(in_time, Objective.LATE_JOBS)
    assert not start_orders.applies(built, Objective.LATE_JOBS)  # being later still costs nothing


def test_an_output_that_is_on_a_gpu_later_is_not_there_as_early() -> None:
    # X feeds Z1 and Z2, 7 us away from each other's GPU. Where X ran after Y its output leaves later than where it ran
    # first, although the GPU that made it first has run something else since.
    forked = chain(task("X", 1), task("Z1", 10, after={"X": 7}), task("Z2", 10, after={"X": 7}), name="forked")
    jobs = [
        Job(forked, 0, weight=Fraction(6)),
        Job(chain(task("Y", 4), name="y"), 0, weight=Fraction(2)),
        Job(chain(task("U", 10), name="u"), 0, weight=Fraction(8)),
    ]
    built = instance(jobs, on=cluster(2, network(0, 1_000_000)))
    search = _proved(built, Objective.WEIGHTED_LATENCY)
    assert exhaustive.solve(built, Objective.WEIGHTED_LATENCY).value == Fraction(105, 8)
    assert search.bound is not None
    assert search.bound <= Fraction(105, 8)


def test_a_job_of_no_weight_may_load_for_longer_than_all_others_take() -> None:
    # x and y take turns: 3 and 7. What a and b wait for is charged to nobody.
    for_free = chain(task("a", 1, ["m"]), task("b", 1, after={"a": 0}), name="for free")
    jobs = [
        Job(for_free, 0, weight=Fraction(0)),
        Job(chain(task("x", 4), name="x"), 0),
        Job(chain(task("y", 3), name="y"), 0),
    ]
    built = instance(jobs, models={"m": 2000}, on=cluster(1, memory_bytes=2000))
    search = _proved(built, Objective.WEIGHTED_LATENCY)
    assert search.bound is not None
    assert exhaustive.solve(built, Objective.WEIGHTED_LATENCY).value == 5
    assert search.bound <= 5


def test_outputs_of_a_second_after_runs_of_a_microsecond() -> None:
    # Two forks: both a at once, 1 us each, then b and c of 1 s behind it on the same GPU: an output comes to the other
    # GPU when it is too late to be of use. Each job ends after 1 us and 2 s.
    us = 1_000_000
    fork = chain(task("a", 1), task("b", us, after={"a": us}), task("c", us, after={"a": us}))
    built = instance([Job(fork, 0)] * 2, on=cluster(2, network(0)))
    search = _proved(built, Objective.MEAN_LATENCY)
    assert exhaustive.solve(built, Objective.MEAN_LATENCY).value == 2 * us + 1
    assert search.value == 2 * us + 1
    assert search.proved


def test_there_is_always_room_for_whatever_follows_one_state(monkeypatch: pytest.MonkeyPatch) -> None:
    # Three ways to start the first task, and room for two states: it would never get on.
    monkeypatch.setattr(start_orders, "_AT_ONCE", 2)
    search = _proved(instance([Job(chain(task("t", 4)), 0)], on=cluster(3)), Objective.MEAN_LATENCY)
    assert search.bound == 4
    assert search.proved


def test_of_equal_jobs_that_have_not_begun_only_the_first_can_begin() -> None:
    flows = [chain(task("t", 2, [model]), task("u", 3, [model], {"t": 0}), name=model) for model in "ab"]
    built = instance([Job(flow, 0) for flow in flows * 3], {"a": 10, "b": 10}, cluster(1))
    tables = tabulate(built, Objective.MEAN_LATENCY, ComputeRate.of(early_prices(built, Objective.MEAN_LATENCY)))
    assert tables is not None
    ready = np.empty(built.n_tasks, np.int64)
    assert _list_ready(tables, _origin(tables), 0, ready) == 2
    # The first tasks of the first job of each workflow.
    assert ready[:2].tolist() == [0, 2]


@pytest.mark.parametrize("objective", SUMS)
def test_equal_jobs_in_order_lose_no_plan(objective: Objective) -> None:
    flow = chain(task("t", 2, ["a"]), task("u", 3, ["b"], {"t": 1}))
    built = instance([Job(flow, 0, deadline_us=4)] * 3, {"a": 3, "b": 4}, cluster(2))
    best, search = exhaustive.solve(built, objective).value, _proved(built, objective)
    assert search.value == best
    assert search.proved
