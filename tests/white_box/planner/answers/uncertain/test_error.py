"""Distributions: the published points, what lies between them, log-normal errors, and their texts."""

from __future__ import annotations

import math
import random
from statistics import median

import numpy as np
import pytest

from tests.planner.answers.uncertain.work import window
from truenorth.executor import NoiseError, NoiseSpread, parse_noise
from truenorth.executor.noise import error_quantile, factor_quantile
from truenorth.planner.answers.uncertain.spec import Error, Uncertainty, parse_error, parse_uncertainty


@pytest.mark.parametrize(
    ("share", "error"),
    [
        (0.0, 0.0),
        (0.05, 0.05),  # uniform up to 10 %
        (0.1, 0.1),  # published
        (0.3, math.sqrt(0.1 * 0.5)),  # half way between two points: their geometric mean
        (0.5, 0.5),  # published
        (0.6, math.sqrt(0.5)),
        (0.7, 1.0),  # published
        (0.8, math.sqrt(10)),
        (0.9, 10.0),  # published
        (1.0, 10 * math.sqrt(10)),  # a fifth of the jobs spans a factor of ten, so a tenth spans sqrt(10)
    ],
)
def test_the_published_errors(share: float, error: float) -> None:
    assert error_quantile(share) == pytest.approx(error, rel=1e-12)


def test_published_factors_are_as_often_too_long_as_too_short() -> None:
    # Half of the jobs are within 50 %: a quarter on either side of no error, so levels 1/4 and 3/4 are 1 / 1.5 and 1.5.
    assert factor_quantile(0.5) == 1.0
    assert factor_quantile(0.75) == pytest.approx(1.5)
    assert factor_quantile(0.25) == pytest.approx(1 / 1.5)
    assert factor_quantile(0.95) == pytest.approx(11)  # 90 % are within 1000 %
    levels = np.linspace(0, 1, 1001).tolist()
    factors = [factor_quantile(level) for level in levels]
    assert factors == sorted(factors)


def test_the_shares_of_drawn_errors_are_the_published_ones() -> None:
    on = window({str(index): 1_000_000_000 for index in range(10)} | {"last": 1_000_000_000})
    drawn = [int(us) for seed in range(400) for us in Error("published", 1.0).around(on, seed).job_critical_us]
    errors = [max(us / 1e9, 1e9 / us) - 1 for us in drawn]
    for share, error in ((0.1, 0.1), (0.5, 0.5), (0.7, 1.0), (0.9, 10.0)):
        found = sum(each <= error for each in errors) / len(errors)
        assert found == pytest.approx(share, abs=0.025)  # 4,400 draws: three standard deviations are 0.023


def test_noise_of_the_published_errors() -> None:
    # As a spread of run times: the median stays, and the power 2 squares every factor.
    once, twice = NoiseSpread("published", 1.0), NoiseSpread("published", 2.0)
    drawn = [once.draw(1_000_000, f"{index}") for index in range(2_000)]
    assert median(drawn) == pytest.approx(1_000_000, rel=0.1)
    for index in range(20):
        assert twice.draw(10**9, f"{index}") == pytest.approx((once.draw(10**9, f"{index}") / 1e9) ** 2 * 1e9, rel=1e-6)
    assert parse_noise("run=published:0.5").run == NoiseSpread("published", 0.5)
    assert NoiseSpread("published", 0.0).draw(123, "any") == 123


def test_a_factor_is_as_likely_as_its_reciprocal() -> None:
    draw = random.Random(1)
    for error in (Error("lognormal", 0.7), Error("published", 1.0), Error("published", 0.3)):
        for level in (draw.uniform(0.01, 0.99) for _ in range(50)):
            assert error.factor(level) * error.factor(1 - level) == pytest.approx(1)
    assert Error("lognormal", 0.5).factor(0.9) == pytest.approx(math.exp(0.5 * 1.2815515655446008))


def test_an_error_is_that_of_a_job_unless_asked_otherwise() -> None:
    # Two chains of two tasks: with one factor per job, both tasks of a job keep their ratio of 1 to 3.
    from tests.instances import chain, instance, task
    from truenorth.models import Job

    on = instance([Job(chain(task("x", 100_000), task("y", 300_000, after={"x": 0})), 0) for _ in range(2)])
    together = Error("lognormal", 0.5).around(on, 3)
    assert together.run_us[1, 0] == pytest.approx(3 * together.run_us[0, 0], rel=1e-4)
    assert together.run_us[0, 0] != together.run_us[2, 0]
    apart = Error("lognormal", 0.5, by_job=False).around(on, 3)
    assert abs(apart.run_us[1, 0] - 3 * apart.run_us[0, 0]) > 1_000


def test_draws_repeat_and_no_error_changes_nothing() -> None:
    on = window({"a": 1_000, "b": 2_000})
    error = Error("published", 1.0)
    assert error.around(on, 5).run_us.tolist() == error.around(on, 5).run_us.tolist()
    assert error.around(on, 5).run_us.tolist() != error.around(on, 6).run_us.tolist()
    for kind in ("published", "lognormal"):
        assert Error(kind, 0.0).around(on, 5) is on


def test_texts() -> None:
    assert parse_error("lognormal:0.3") == Error("lognormal", 0.3)
    assert parse_error("published:1:task") == Error("published", 1.0, by_job=False)
    assert parse_uncertainty(None) == Uncertainty()
    assert parse_uncertainty("run=uniform:0.1") == Uncertainty(parse_noise("run=uniform:0.1"))
    both = parse_uncertainty("told=published:1, load=normal:0.1")
    assert both == Uncertainty(parse_noise("load=normal:0.1"), wrongly_told=Error("published", 1.0))
    assert not both.keeps_truth
    assert parse_uncertainty("told=published:1").keeps_truth
    assert parse_uncertainty("true=lognormal:0.2").straying == Error("lognormal", 0.2)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("told=gamma:1", "'gamma' is no kind of error"),
        ("told=lognormal:x", "'x' in 'lognormal:x' is no number"),
        ("told=lognormal:-1", "-1.0 is not allowed"),
        ("told=lognormal:nan", "nan is not allowed"),
        ("true=lognormal:5.1", "lognormal: a spread of 5.1 is not allowed; it is a number from 0 to 5"),
        ("told=published:20", "published: a spread of 20.0 is not allowed; it is a number from 0 to 3"),
        ("estimates=", "says nothing after estimates="),
        ("true=lognormal:1:model", "neither job nor task"),
        ("told=published:1,true=published:1", "tells of run times twice"),
        ("estimates=a.csv,estimates=b.csv", "tells of run times twice"),
        ("walk=normal:1", "is no noise"),
    ],
)
def test_texts_that_are_none(text: str, problem: str) -> None:
    with pytest.raises(NoiseError, match=problem):
        parse_uncertainty(text)
