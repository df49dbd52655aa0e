"""Batch classes as single requests: the twin, its plans back on the window, and no plan worse for classes."""

from __future__ import annotations

import numpy as np
import pytest

from experiments import authors
from tests.instances import chain, instance, task
from truenorth.models import BatchClass, Instance, Job, Objective, Task, Timeline, check
from truenorth.solvers import portfolio
from truenorth.solvers.budget import Budget, Method
from truenorth.solvers.incumbents import PlanOrigin
from truenorth.solvers.portfolio import solve
from truenorth.solvers.reductions import singles_of
from truenorth.solvers.result import Search
from truenorth.solvers.search import beam


def two_of(share: int) -> Instance:
    """Return two tasks of one class of 4 us, released at 0, and one of its own of 3 us."""
    batch = BatchClass("c", {"*": {1: 4, 2: 6}}, share=share)
    jobs = [Job(chain(Task.of_class("t", batch)), 0)] * 2 + [Job(chain(task("own", 3), name="own"), 0)]
    return instance(jobs)


def test_the_twin_has_the_figures_of_size_one_and_no_classes() -> None:
    of = two_of(10_000)
    singles = singles_of(of)
    assert singles is not None
    assert singles.twin.batches == ()
    assert singles.twin.run_us.tolist() == [[4], [3]]
    assert singles.twin.one_at_a_time
    assert (singles.twin.job_release_us == of.job_release_us).all()
    assert singles_of(singles.twin) is None


def test_below_share_one_equal_starts_are_set_apart() -> None:
    of = two_of(5_000)
    singles = singles_of(of)
    assert singles is not None
    plan = Timeline(np.array([0, 0, 0]), np.array([0, 0, 4]), np.array([4, 4, 7]), ())
    assert check(singles.twin, plan) == []
    assert check(of, plan) != []  # two at once are a batch, which takes 6
    apart = singles.back(plan)
    assert apart.start_us.tolist() == [0, 1, 4]
    assert apart.end_us.tolist() == [4, 5, 7]
    # The third takes a whole GPU, and the second now runs into it: such a plan is not offered.
    assert [violation.rule for violation in check(of, apart)] == ["T3c"]


def test_a_plan_that_runs_tasks_one_by_one_is_one_with_classes() -> None:
    # One by one, shortest first: 3, 7, 11, in the mean 7. As good as 3, 9, 9 or 6, 6, 9 with two runs of 4 together.
    search = Search(two_of(10_000), Objective.MEAN_LATENCY, 60.0)
    portfolio.plan_singly(search, Budget(60.0), 5.0)
    assert search.value == 7
    assert search.origin is PlanOrigin.SEARCH
    assert search.timeline is not None
    assert check(search.instance, search.timeline) == []


def test_no_time_goes_to_single_requests_that_cannot_be_better(monkeypatch: pytest.MonkeyPatch) -> None:
    # Together both end at 4; one by one the second ends at 8, so that no such plan is looked for once 4 is known.
    batch = BatchClass("c", {"*": {1: 4, 2: 4}})
    of = instance([Job(chain(Task.of_class("t", batch)), 0)] * 2)
    search = Search(of, Objective.MEAN_LATENCY, 60.0)
    search.offer(Timeline(np.array([0, 0]), np.array([0, 0]), np.array([4, 4]), ()))
    monkeypatch.setattr(beam, "improve", lambda *_, **__: pytest.fail("looks for plans of no use"))
    portfolio.plan_singly(search, Budget(60.0), 5.0)
    assert search.value == 4


@pytest.mark.nightly
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_classes_make_no_plan_worse(seed: int) -> None:
    plain = authors.instance(authors.poisson(6, 12, seed))
    # Of the moves three tenths go to single requests first.
    alone = solve(plain, Objective.MEAN_SLOWDOWN, Budget(600, Method.SEARCH, iterations=12_000))
    classes = solve(authors.batched(plain), Objective.MEAN_SLOWDOWN, Budget(600, Method.SEARCH, iterations=40_000))
    assert alone.value is not None
    assert classes.value is not None
    assert classes.value <= alone.value
