"""Overhead and bandwidth from sizes and times."""

from __future__ import annotations

import random

import pytest

from truenorth.executor.samples import FittedLine, fit_line


def test_points_on_a_line_give_the_line() -> None:
    """20 us and 10 bytes per nanosecond."""
    samples = [(size, 20 + size / 10_000) for size in (1_000, 1_000_000, 8_000_000, 500_000_000)]
    line = fit_line(samples)
    assert line.overhead_us == pytest.approx(20, rel=1e-6)
    assert line.bandwidth == pytest.approx(1e10, rel=1e-6)


def test_two_points_by_hand() -> None:
    """(10 MB, 2 ms) and (30 MB, 4 ms): 20 MB more take 2 ms, so 10 GB/s, and 1 ms is left."""
    line = fit_line([(10_000_000, 2000.0), (30_000_000, 4000.0)])
    assert line.overhead_us == pytest.approx(1000)
    assert line.bandwidth == pytest.approx(1e10)
    assert line.time_us(20_000_000) == pytest.approx(3000)


def test_small_sizes_count_as_much_as_large_ones() -> None:
    """A large sample 1 % off (400 us) would throw the overhead of 50 us away if absolute errors counted."""
    samples = [(1_000, 50.1), (10_000, 51.0), (100_000, 60.0), (400_000_000, 40_050 * 1.01)]
    line = fit_line(samples)
    assert line.overhead_us == pytest.approx(50, rel=0.01)
    assert line.time_us(400_000_000) == pytest.approx(40_050, rel=0.01)


def test_noise_averages_out() -> None:
    draw = random.Random(1)
    samples = [
        (size, (15 + size / 6_000) * draw.uniform(0.95, 1.05))
        for size in (20_000, 100_000, 1_000_000, 10_000_000)
        for _ in range(200)
    ]
    line = fit_line(samples)
    assert line.overhead_us == pytest.approx(15, rel=0.05)
    assert line.bandwidth == pytest.approx(6e9, rel=0.01)


@pytest.mark.parametrize(
    ("samples", "bandwidth"),
    [
        ([(5_000_000, 1000.0)], 5e9),  # one size
        ([(5_000_000, 1000.0), (5_000_000, 1000.0)], 5e9),
        ([(1_000_000, 200.0), (5_000_000, 1000.0)], 5e9),  # no overhead at all
        # A line through both begins below 0. Through 0, a byte takes 0.1 and 0.2 ns, on average 0.15.
        ([(1_000_000, 100.0), (10_000_000, 2000.0)], 1e9 / 0.15),
    ],
)
def test_overhead_is_never_negative(samples: list[tuple[int, float]], bandwidth: float) -> None:
    line = fit_line(samples)
    assert line.overhead_us == pytest.approx(0, abs=1e-9)
    assert line.bandwidth == pytest.approx(bandwidth)


def test_time_that_falls_with_the_size_gives_no_negative_bandwidth() -> None:
    """Through 0, a byte takes 1 and 0.1 ns, on average 0.55."""
    line = fit_line([(1_000_000, 1000.0), (5_000_000, 500.0)])
    assert line.overhead_us == 0
    assert line.bandwidth == pytest.approx(1e9 / 0.55)


def test_slow_samples_count_as_much_as_fast_ones() -> None:
    """Twice and half the time of 10 us + size / 1 GB/s: squared errors make it the mean, 1.25 times the line."""
    samples = [(size, factor * (10 + size / 1000)) for size in (1_000, 50_000, 2_000_000) for factor in (0.5, 2.0)]
    line = fit_line(samples)
    assert line.overhead_us == pytest.approx(12.5)
    assert line.bandwidth == pytest.approx(0.8e9)


def test_no_sample_is_refused() -> None:
    with pytest.raises(ValueError, match="allowed is one or more"):
        fit_line([])


def test_a_line_without_overhead() -> None:
    assert FittedLine(0.0, 2e9).time_us(2_000) == pytest.approx(1.0)
