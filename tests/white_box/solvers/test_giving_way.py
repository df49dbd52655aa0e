"""A method that is too large for memory or time gives way to the next one, and the answer says so."""

from __future__ import annotations

from fractions import Fraction

import pytest

from tests import instances as make
from truenorth.models import Instance, Job, Objective
from truenorth.models.formulations import allowance
from truenorth.models.formulations.allowance import GivenUpError
from truenorth.solvers import portfolio
from truenorth.solvers.bounds.lagrangian.improve import improve as raise_bound
from truenorth.solvers.budget import Budget, Method
from truenorth.solvers.exact import start_orders
from truenorth.solvers.exact.start_orders_tables import ComputeRate
from truenorth.solvers.incumbents import Progress
from truenorth.solvers.result import Result, Search
from truenorth.solvers.side_by_side import dispatch

DAY_US = 86_400 * 10**6


@pytest.fixture
def _little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allowance, "free_bytes", lambda: 200_000_000)


def years_apart() -> Instance:
    """Two jobs of a run of 1 us, many years apart: slots of a critical path are hundreds of millions of millions."""
    return make.instance([Job(make.chain(make.task("t", 1)), release) for release in (0, 10_000 * DAY_US)])


@pytest.mark.usefixtures("_little")
def test_a_relaxation_of_too_many_slots_leaves_the_formulas() -> None:
    found = portfolio.bound(years_apart(), Objective.MEAN_LATENCY, Budget(20.0, workers=1))
    assert found.formula[0] == 1
    assert found.priced is None
    assert set(found.found.left_out) == {"lagrangian"}
    assert "GB are free" in found.found.left_out["lagrangian"]


@pytest.mark.usefixtures("_little")
def test_a_plan_says_what_was_left_out() -> None:
    # The second waits for the first: 1 us and 2 us, and the formulas know it.
    built = make.instance(
        [Job(make.chain(make.task("t", 1)), release) for release in (0, 0, 10_000 * DAY_US)], on=make.cluster(1)
    )
    made = portfolio.solve(built, Objective.MEAN_LATENCY, Budget(20.0, workers=1))
    assert made.value == Fraction(4, 3)
    assert made.lower_bound == Fraction(4, 3)


@pytest.mark.usefixtures("_little")
def test_states_that_fit_nowhere_leave_the_bound_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    # Outputs under way for 10^6 us after runs of 1 us: a million of them beside each other, as states count.
    chain = make.chain(make.task("a", 1), make.task("b", 1, after={"a": 1_000_000}), make.task("c", 1, after={"a": 1}))
    built = make.instance([Job(chain, 0), Job(chain, 2)], on=make.cluster(2))
    search = Search(built, Objective.MEAN_LATENCY, 60.0)
    portfolio.offer_formulas(search, Budget(20.0, workers=1))
    before = search.bound
    priced = raise_bound(search, 3.0)
    assert priced is not None
    monkeypatch.setattr(start_orders, "_most_in_memory", lambda tables: 3)
    start_orders.improve(search, ComputeRate.of(priced), 1.0)
    assert search.timeline is None
    dispatch(search)
    start_orders.improve(search, ComputeRate.of(priced), 1.0)
    assert search.left_out["start-orders"] == "12 states do not fit into memory, which has room for 3"
    assert before is not None
    assert search.bound is not None
    assert search.bound >= before


def test_a_milp_of_too_many_terms_leaves_the_rest_of_the_time_to_local_search(monkeypatch: pytest.MonkeyPatch) -> None:
    def give_up(*_: object, **__: object) -> None:
        raise GivenUpError("too many terms")

    monkeypatch.setattr("truenorth.models.formulations.milp.formulate", give_up)
    # A GPU holds one model of two: each is loaded once, for 10 us, and used by three jobs of 2 us.
    jobs = [Job(make.chain(make.task("t", 2, [model]), name=model), 0) for model in "ab"] * 3
    built = make.instance(jobs, {"a": 10, "b": 10})
    made = portfolio.solve(built, Objective.MEAN_LATENCY, Budget(3.0, Method.MILP, workers=1))
    assert made.value == Fraction(12 + 14 + 16 + 28 + 30 + 32, 6)
    assert made.left_out["milp"] == "too many terms"


def test_memory_that_runs_out_all_the_same_is_said() -> None:
    search = Search(years_apart(), Objective.MEAN_LATENCY, 1.0)
    with search.giving_way("one"):
        raise MemoryError
    with search.giving_way("other"):
        raise GivenUpError("too many")
    with search.giving_way("third"):
        pass
    assert search.result("solver", {}).left_out == {"one": "memory ran out", "other": "too many"}


@pytest.mark.parametrize(
    ("first_s", "took_s", "within"),
    [(0.1, 4.0, True), (0.1, 4.9, True), (0.1, 5.1, False), (0.1, 35.0, False), (4.1, 4.2, False)],
)
def test_a_limit_is_kept_by_the_whole_search(first_s: float, took_s: float, within: bool) -> None:
    trail = (Progress(first_s, Fraction(1), None),)
    made = Result(Objective.MAKESPAN, None, Fraction(1), None, None, False, took_s, 4.0, trail, "any")
    assert made.within_limit is within
