"""Service levels: the grammar, and the agreement of quantiles with shares."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import instances as make
from truenorth.models import Instance, Job, ServiceLevel, ServiceLevels
from truenorth.models.slo import quantile_rank
from truenorth.models.units import QuantityError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("p99 slowdown <= 2", ServiceLevel("slowdown", Fraction(2), Fraction(99, 100))),
        ("p99.9  slowdown<=2.5", ServiceLevel("slowdown", Fraction(5, 2), Fraction(999, 1000))),
        (" p95 latency <= 800 ms ", ServiceLevel("latency", Fraction(800_000), Fraction(95, 100))),
        ("p100 latency <= 1 us", ServiceLevel("latency", Fraction(1), Fraction(1))),
        ("mean latency <= 1 s", ServiceLevel("latency", Fraction(1_000_000), None)),
        ("mean slowdown <= 1.2", ServiceLevel("slowdown", Fraction(6, 5), None)),
        ("95 % within deadline", ServiceLevel("lateness", Fraction(0), Fraction(95, 100))),
        ("99.5% within deadline", ServiceLevel("lateness", Fraction(0), Fraction(995, 1000))),
        ("no late jobs", ServiceLevel("lateness", Fraction(0), Fraction(1))),
        ("p95 latency of chat<=2 s", ServiceLevel("latency", Fraction(2_000_000), Fraction(19, 20), "chat")),
        ("mean slowdown of  a of b <= 3", ServiceLevel("slowdown", Fraction(3), None, "a of b")),
        ("99 % of embed within deadline", ServiceLevel("lateness", Fraction(0), Fraction(99, 100), "embed")),
        ("no late jobs of M1 30 s", ServiceLevel("lateness", Fraction(0), Fraction(1), "M1 30 s")),
    ],
)
def test_grammar(text: str, expected: ServiceLevel) -> None:
    assert ServiceLevel.parse(text) == expected
    assert ServiceLevel.parse(str(expected)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "p99 slowdown < 2",
        "p99 makespan <= 2",
        "p0 slowdown <= 2",
        "p101 slowdown <= 2",
        "p99 slowdown <= 2 s",
        "p99 slowdown <= 0",
        "p99 slowdown <= -1",
        "p99 slowdown <= nan",
        "p99 slowdown <= 1/0",
        "p99 slowdown <= 1e999999999",
        "p99 latency <= 2",
        "p99 latency <= 0 ms",
        "p99 latency <= -800 ms",
        "mean latency <=",
        "0 % within deadline",
        "101 % within deadline",
        "late jobs",
        "p95 latency of <= 2 s",
        "no late jobs of",
    ],
)
def test_no_service_level(text: str) -> None:
    with pytest.raises(QuantityError):
        ServiceLevel.parse(text)


def jobs(count: int, critical_us: int = 10, deadlines: list[int | None] | None = None) -> Instance:
    workflow = make.chain(make.task("t", critical_us))
    dues = deadlines or [None] * count
    return make.instance([Job(workflow, 0, deadline_us=due) for due in dues])


def test_a_limit_is_kept_up_to_the_microsecond() -> None:
    four, everyone = jobs(4), range(4)
    latency = np.array([20, 21, 10, 30])
    assert ServiceLevel.parse("p50 slowdown <= 2").attainment(four, latency, everyone) == Fraction(2, 4)
    assert ServiceLevel.parse("p50 slowdown <= 2").met_by(four, latency, everyone)
    assert not ServiceLevel.parse("p75 slowdown <= 2").met_by(four, latency, everyone)
    assert ServiceLevel.parse("p75 latency <= 21 us").met_by(four, latency, everyone)
    assert not ServiceLevel.parse("p75 latency <= 20 us").met_by(four, latency, everyone)
    # Only the chosen jobs count: 10 and 30 of a limit of 20.
    assert ServiceLevel.parse("p50 slowdown <= 2").attainment(four, latency, [2, 3]) == Fraction(1, 2)


def test_a_mean_is_met_or_not() -> None:
    three, everyone = jobs(3), range(3)
    latency = np.array([10, 20, 33])  # mean 21, mean slowdown 2.1
    for text, attained in (
        ("mean latency <= 21 us", 1),
        ("mean latency <= 20 us", 0),
        ("mean slowdown <= 2.1", 1),
        ("mean slowdown <= 2.0999", 0),
    ):
        level = ServiceLevel.parse(text)
        assert level.attainment(three, latency, everyone) == attained
        assert level.met_by(three, latency, everyone) is bool(attained)


def test_a_job_without_a_deadline_is_never_late() -> None:
    three = jobs(3, deadlines=[15, 15, None])
    latency = np.array([15, 16, 10**9])
    assert ServiceLevel.parse("no late jobs").attainment(three, latency, range(3)) == Fraction(2, 3)
    assert not ServiceLevel.parse("no late jobs").met_by(three, latency, range(3))
    assert ServiceLevel.parse("66 % within deadline").met_by(three, latency, range(3))
    assert not ServiceLevel.parse("67 % within deadline").met_by(three, latency, range(3))


@given(
    st.lists(st.integers(10, 60), min_size=1, max_size=60),
    st.integers(1, 1000),
    st.integers(10, 60),
)
def test_a_quantile_within_the_limit_is_that_share_within_the_limit(
    latency: list[int], per_mille: int, limit: int
) -> None:
    share = Fraction(per_mille, 1000)
    # By definition p_q is the ceil(q n)-th smallest.
    quantile = sorted(latency)[math.ceil(share * len(latency)) - 1]
    assert sorted(latency)[quantile_rank(share, len(latency))] == quantile
    level = ServiceLevel("slowdown", Fraction(limit, 10), share)
    assert level.met_by(jobs(len(latency)), np.array(latency), range(len(latency))) == (quantile <= limit)


@pytest.mark.parametrize(
    ("level", "reached"),
    [
        ("p50 latency <= 1 s", Fraction(14)),  # the 2nd smallest of three
        ("p99 slowdown <= 9", Fraction(3)),  # 30 us over a critical path of 10
        ("mean slowdown <= 9", Fraction(9, 5)),  # (1 + 1.4 + 3) / 3
        ("no late jobs", Fraction(2, 3)),
    ],
)
def test_the_figure_that_a_level_limits(level: str, reached: Fraction) -> None:
    three = jobs(3, deadlines=[15, 15, None])
    assert ServiceLevel.parse(level).reached(three, np.array([10, 30, 14])) == reached


def test_a_level_over_a_workflow_sees_its_jobs_alone() -> None:
    # Jobs a, b, a, b with latencies 10, 40, 30, 20; critical paths of 10 and 20.
    a, b = (make.chain(make.task("t", us), name=name) for name, us in (("a", 10), ("b", 20)))
    four, latency = make.instance([Job(flow, 0, deadline_us=25) for flow in (a, b, a, b)]), np.array([10, 40, 30, 20])
    for text, attained, reached in (
        ("p50 latency of a <= 10 us", Fraction(1, 2), Fraction(10)),
        ("p100 slowdown of a <= 3", Fraction(1), Fraction(3)),
        ("mean slowdown of b <= 1.5", Fraction(1), Fraction(3, 2)),
        ("no late jobs of b", Fraction(1, 2), Fraction(1, 2)),
        ("no late jobs of c", Fraction(1), None),
    ):
        level = ServiceLevel.parse(text)
        assert (level.attainment(four, latency, range(4)), level.reached(four, latency)) == (attained, reached), text
    # The second job, which is late, is left out: what is left of b is on time.
    assert ServiceLevel.parse("no late jobs of b").met_by(four, latency, [2, 3])
    both = ServiceLevels.parse("p50 latency of a <= 10 us", "no late jobs of b")
    assert not both.met_by(four, latency, range(4))
    assert both.met_by(four, np.array([10, 25, 90, 25]), range(4))
    assert both.attainment(four, np.array([10, 25, 90, 25]), range(4)) == Fraction(1, 2)
