"""The seven objectives on one timeline worked out by hand, and how values, bounds and gaps are reported."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import instances as make
from truenorth.models import (
    Instance,
    Job,
    Objective,
    Placement,
    Timeline,
    completion_us,
    objective_value,
    timeline_value,
)
from truenorth.models.objective import gap, mean_ratio, reported_bound, reported_value

# Two workflows: `pair` is two tasks in a row, 2 + 4, P = 6; `fast` is one task that takes 5 here, 3 on a kind
# that is not in the cluster, P = 3. Jobs:      release  completion   F    F / P   deadline  late by  weight
#   0 pair                                            0          12  12    2            10        2       3
#   1 fast                                            2           7   5    5/3           5        0       1
#   2 fast                                            4          17  13   13/3           -        -       1/2
PAIR = make.chain(make.task("a", 2), make.task("b", 4, after={"a": 0}), name="pair")
FAST = make.chain(make.task("c", {"A": 5, "none here": 3}), name="fast")
JOBS = [Job(PAIR, 0, Fraction(3), 10), Job(FAST, 2, deadline_us=5), Job(FAST, 4, Fraction(1, 2))]
RUNS = [Placement(0, 0, 0, 2), Placement(1, 0, 8, 12), Placement(2, 0, 2, 7), Placement(3, 0, 12, 17)]


@pytest.fixture
def world() -> Instance:
    return make.instance(JOBS)


@pytest.fixture
def timeline() -> Timeline:
    return Timeline.build(4, RUNS, [])


def test_completion_is_the_end_of_the_last_task(world: Instance, timeline: Timeline) -> None:
    assert completion_us(world, timeline).tolist() == [12, 7, 17]
    # ... whichever task of the job ends last: here the first in the workflow's order
    backwards = make.chain(make.task("z", 1, after={"y": 0}), make.task("y", 1), name="w")
    other = make.instance([Job(backwards, 0), Job(backwards, 0)])
    plan = Timeline.build(
        4, [Placement(0, 0, 3, 4), Placement(1, 0, 0, 1), Placement(2, 0, 2, 3), Placement(3, 0, 1, 2)], []
    )
    assert completion_us(other, plan).tolist() == [4, 3]


@pytest.mark.parametrize(
    ("objective", "expected"),
    [
        (Objective.MEAN_LATENCY, Fraction(12 + 5 + 13, 3)),
        (Objective.MEAN_SLOWDOWN, (2 + Fraction(5, 3) + Fraction(13, 3)) / 3),  # 8/3
        (Objective.WEIGHTED_LATENCY, (3 * 12 + 5 + Fraction(13, 2)) / Fraction(9, 2)),
        (Objective.MAKESPAN, Fraction(17)),
        (Objective.WEIGHTED_TARDINESS, Fraction(3 * 2)),
        (Objective.LATE_JOBS, Fraction(3)),  # its weight; F = deadline is not late, no deadline never
        (Objective.MAX_SLOWDOWN, Fraction(13, 3)),
    ],
)
def test_each_objective(world: Instance, timeline: Timeline, objective: Objective, expected: Fraction) -> None:
    assert timeline_value(objective, world, timeline) == expected
    assert objective_value(objective, world, np.array([12, 7, 17])) == expected


def test_tardiness_counts_from_the_release_and_never_below_zero(world: Instance) -> None:
    # Deadlines 10 and 2 + 5: at 10 and 7 both are on time, one microsecond later both are late.
    on_time, late = np.array([10, 7, 99]), np.array([11, 8, 99])
    assert objective_value(Objective.WEIGHTED_TARDINESS, world, on_time) == 0
    assert objective_value(Objective.WEIGHTED_TARDINESS, world, np.array([9, 9, 99])) == 2  # early makes up for nothing
    assert objective_value(Objective.LATE_JOBS, world, on_time) == 0
    assert objective_value(Objective.WEIGHTED_TARDINESS, world, late) == 4
    assert objective_value(Objective.LATE_JOBS, world, late) == 4  # weights 3 and 1


def test_without_any_weight_the_weighted_latency_is_zero() -> None:
    weightless = make.instance([Job(PAIR, 0, Fraction(0))])
    assert objective_value(Objective.WEIGHTED_LATENCY, weightless, np.array([6])) == 0


def test_units_and_kinds() -> None:
    assert {objective.value: objective.unit for objective in Objective} == {
        "mean_latency": "s",
        "mean_slowdown": "",
        "weighted_latency": "s",
        "makespan": "s",
        "weighted_tardiness": "s",
        "late_jobs": "jobs",
        "max_slowdown": "",
    }
    assert {objective for objective in Objective if not objective.is_sum} == {
        Objective.MAKESPAN,
        Objective.MAX_SLOWDOWN,
    }


@given(st.lists(st.tuples(st.integers(0, 10**9), st.integers(1, 10**7)), min_size=1, max_size=40))
def test_the_mean_of_ratios_is_exact(pairs: list[tuple[int, int]]) -> None:
    expected = sum((Fraction(*pair) for pair in pairs), Fraction(0)) / len(pairs)
    assert mean_ratio([a for a, _ in pairs], [b for _, b in pairs]) == expected


def test_values_in_time_are_reported_in_seconds() -> None:
    assert reported_value(Objective.MAKESPAN, Fraction(1_500_000)) == 1.5
    assert reported_value(Objective.MEAN_SLOWDOWN, Fraction(3, 2)) == 1.5
    assert reported_value(Objective.LATE_JOBS, Fraction(3)) == 3
    assert reported_bound(Objective.MAKESPAN, Fraction(1_500_000)) == 1.5


@given(st.fractions(min_value=0, max_value=10**15), st.sampled_from(Objective))
def test_a_reported_bound_is_the_largest_float_that_holds(bound: Fraction, objective: Objective) -> None:
    exact = bound / 1_000_000 if objective.unit == "s" else bound
    shown = reported_bound(objective, bound)
    assert Fraction(shown) <= exact < Fraction(math.nextafter(shown, math.inf))
    assert shown <= reported_value(objective, bound)


def test_gap() -> None:
    assert gap(Fraction(10), Fraction(8)) == 0.2
    assert gap(Fraction(10), Fraction(10)) == 0
    assert gap(Fraction(0), Fraction(0)) == 0
    assert gap(Fraction(10), None) is None
    # No objective is negative, so that a bound below 0 says no more than 0.
    assert gap(Fraction(10), Fraction(-5)) == 1
    assert gap(Fraction(0), Fraction(-5)) == 0
