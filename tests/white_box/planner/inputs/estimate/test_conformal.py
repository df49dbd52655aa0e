"""Intervals hold as often as they say, whatever the quantiles they start from."""

from __future__ import annotations

import math

import numpy as np
import pytest

from truenorth.planner.inputs.estimate.ladder import Shift, calibration, coverage, shift


def test_each_end_moves_to_the_conformal_quantile_of_its_misses() -> None:
    # Nine truths 1 to 9 against the interval [5, 5]: they lie 4, 3, ... -4 below it and -4, ... 4 above. With nine
    # cases the quantile is the ceil(10 x 0.9) = 9th smallest, the largest: 4 either way.
    quantiles, truth = np.full((9, 3), 5.0), np.arange(1.0, 10.0)
    assert shift(quantiles, truth) == Shift(4.0, 4.0, 9)
    # With 19 cases 1 to 19 around 10 it is the 18th smallest of -9 to 9: 8.
    assert shift(np.full((19, 3), 10.0), np.arange(1.0, 20.0)) == Shift(8.0, 8.0, 19)


def test_ends_that_are_too_wide_move_inwards_and_never_past_the_median() -> None:
    assert Shift(-2.0, -1.0, 9).apply(np.array([[0.0, 1.0, 5.0]])).tolist() == [[1.0, 1.0, 4.0]]


def test_no_cases_move_nothing() -> None:
    assert shift(np.empty((0, 3)), np.empty(0)) == Shift(0.0, 0.0, 0)
    assert math.isnan(coverage(np.empty((0, 3)), np.empty(0)))
    assert calibration(np.empty((0, 3)), np.empty(0)).cases == 0


@pytest.mark.parametrize("width", [0.2, 5.0])
def test_intervals_of_any_width_cover_eighty_per_cent(width: float) -> None:
    # Log run times are normal; what they are told to be is ten times as certain as they are, or as uncertain.
    # The coverage of one calibration set scatters by sqrt(0.8 x 0.2 / 2000) and its measurement by sqrt(0.16 / 20000):
    # four standard deviations are 0.0375; each tail, with 0.1 x 0.9, 0.0281.
    draws = np.random.default_rng(1)
    skewed = draws.gumbel(0, 1, 22_000)
    quantiles = np.tile([-width, 0.0, width], (22_000, 1))
    moved = shift(quantiles[:2000], skewed[:2000]).apply(quantiles[2000:])
    fresh = skewed[2000:]
    assert coverage(moved, fresh) == pytest.approx(0.8, abs=0.0375)
    assert (fresh < moved[:, 0]).mean() == pytest.approx(0.1, abs=0.0281)
    assert (fresh > moved[:, 2]).mean() == pytest.approx(0.1, abs=0.0281)


def test_calibration_says_what_it_was_before_and_is_after() -> None:
    # Half of 400 uniform truths lie in [0.25, 0.75] before; 80 % after, within four sqrt(0.16 / 200 + 0.16 / 200).
    truth = np.random.default_rng(2).uniform(0, 1, 400)
    judged = calibration(np.tile([0.25, 0.5, 0.75], (400, 1)), truth)
    assert judged.cases == 400
    assert judged.covered_before == pytest.approx(0.5, abs=0.1)
    assert judged.covered_after == pytest.approx(0.8, abs=0.16)
    assert judged.within_factor_two == 1.0  # logarithms within 0.5 of each other, and log 2 = 0.69
