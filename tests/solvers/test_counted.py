"""Counted work: the same seed and number of moves give the same plan and bound, whatever the clock and the workers."""

from __future__ import annotations

import pytest

from experiments import authors
from tests.night import by_day
from truenorth.models import Instance, Objective
from truenorth.solvers.budget import Budget, Method
from truenorth.solvers.clock import MOVE_S, Clock
from truenorth.solvers.portfolio import solve
from truenorth.solvers.result import Result, Search
from truenorth.solvers.search import beam

PLAIN = authors.instance(authors.poisson(4, 12, 1))


def found(of: Instance, moves: int, workers: int, limit_s: float = 600.0) -> Result:
    return solve(of, Objective.MEAN_SLOWDOWN, Budget(limit_s, Method.AUTO, workers, 3, moves))


def same(one: Result, other: Result) -> bool:
    """Say whether two results have the same plan, down to its loads, and the same bound."""
    assert one.timeline is not None
    assert other.timeline is not None
    starts = (one.timeline.start_us == other.timeline.start_us).all()
    gpus = (one.timeline.place == other.timeline.place).all()
    bounds = (one.lower_bound, one.bound_method) == (other.lower_bound, other.bound_method)
    return bool(starts and gpus and bounds) and one.timeline.residencies == other.timeline.residencies


@pytest.mark.parametrize("of", by_day([PLAIN, authors.batched(PLAIN)], 1), ids=["beams", "batches"])
def test_neither_time_nor_workers_change_what_is_counted(of: Instance) -> None:
    first = found(of, 20_000, 2)
    assert first.gap is not None
    assert first.gap > 0  # nothing ended early because it was proved
    assert first.bound_method == "lagrangian"
    assert same(first, found(of, 20_000, 2, 60.0))
    assert same(first, found(of, 20_000, 1))


def test_beams_and_prices_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    limits, guided = list[float](), beam.improve

    def note(search: Search, guide: object, limit_s: float, *told: int) -> None:
        limits.append(limit_s)
        guided(search, guide, limit_s, *told)  # type: ignore[arg-type]

    monkeypatch.setattr(beam, "improve", note)
    few, many = found(PLAIN, 4_000, 1), found(PLAIN, 40_000, 1)
    # A quarter of the moves goes before there are prices.
    assert limits == pytest.approx([3_000 * MOVE_S, 30_000 * MOVE_S])
    assert few.lower_bound is not None
    assert many.lower_bound is not None
    assert few.lower_bound < many.lower_bound


def test_a_first_plan_is_made_even_if_no_time_is_left() -> None:
    result = found(PLAIN, 1_000, 1, 1e-9)
    assert result.timeline is not None
    assert not result.within_limit


def test_a_clock_of_work_stands_still_unless_something_is_done() -> None:
    clock = Clock.of_work(100)
    clock.count(40)
    assert clock.elapsed_s == pytest.approx(40 * MOVE_S)
    assert clock.left_s == pytest.approx(60 * MOVE_S)
    clock.child().count(70)
    assert clock.left_s == 0
