"""The study's answer: where two contenders cross, by hand."""

from __future__ import annotations

import pytest

from experiments.estimation_error_2026_11_21 import LEVELS, TRUE, ErrorRow, Level, crossing


def test_a_crossing_lies_where_the_mean_logarithm_of_the_ratio_is_zero() -> None:
    # Two draws, Compass always 2. Plan: 1 and 1 without error; at 0.15 1 and 2, logarithms -ln 2 and 0, mean -ln 2 / 2;
    # at 0.3 4 and 4, mean ln 2. Zero lies a third of the way from 0.15 to 0.3: 0.2.
    plan = {0.0: (1, 1), 0.15: (1, 2), 0.3: (4, 4), 0.6: (9, 9)}
    rows = [
        ErrorRow(2.0, seed, 100, level.side, level.kind, level.size, name, value)
        for level in LEVELS
        for seed in (0, 1)
        for name, value in (("plan", float(plan[level.size][seed]) if level.size in plan else 1.0), ("compass", 2.0))
    ]
    assert crossing(rows, 2.0, TRUE, "plan", "compass") == pytest.approx(0.2)
    assert crossing(rows, 2.0, TRUE, "compass", "plan") == 0  # Compass is worse without error


def test_the_work_that_holds_is_scaled_to_that_of_the_authors() -> None:
    # Mean of a log-normal factor of median 1: exp(sigma^2 / 2).
    assert Level(TRUE, "lognormal", 0.6).mean_factor == pytest.approx(1.1972, abs=1e-4)
    assert Level(TRUE, "published", 1.0).mean_factor == pytest.approx(2.2506, abs=1e-3)
