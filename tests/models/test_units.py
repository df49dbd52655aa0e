"""Quantities: exact decimals, halves upwards, and nothing but the listed units."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from truenorth.models.units import (
    QuantityError,
    parse_bandwidth,
    parse_number,
    parse_rate,
    parse_size,
    parse_time,
    round_half_up,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 us", 1),
        ("0.4 us", 0),
        ("0.5 us", 1),  # half up
        ("1.5 us", 2),
        ("2.5 us", 3),  # not to even
        ("0.4999999999999999999999 us", 0),  # as a float this would be one half
        ("561 ms", 561_000),
        ("0.1 s", 100_000),
        ("1e-3 s", 1_000),
        ("1E3us", 1_000),
        (" 2 min ", 120_000_000),
        (".5 h", 1_800_000_000),
        ("-1.5 us", -1),  # half up, towards plus infinity
        ("+3. us", 3),
    ],
)
def test_times(text: str, expected: int) -> None:
    assert parse_time(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("14 GB", 14_000_000_000),
        ("5.72 GB", 5_720_000_000),
        ("16 GiB", 17_179_869_184),
        ("1 TiB", 1_099_511_627_776),
        ("2 KB", 2_000),
        ("0.5 B", 1),
        ("1.0009765625 KiB", 1_025),  # 1024 x 1.0009765625 = 1025 exactly
    ],
)
def test_sizes(text: str, expected: int) -> None:
    assert parse_size(text) == expected


def test_bandwidths_and_rates_are_exact() -> None:
    assert parse_bandwidth("10.17 GB/s") == 10_170_000_000
    assert parse_bandwidth("100 Gbit/s") == 12_500_000_000
    assert parse_bandwidth("1 bit/s") == Fraction(1, 8)
    assert parse_bandwidth("1 MiB/s") == 1_048_576
    assert parse_rate("0.1 /s") == Fraction(1, 10)
    assert parse_rate("90 /min") == Fraction(3, 2)
    assert parse_rate("1 /h") == Fraction(1, 3600)
    assert parse_number("1e-2") == Fraction(1, 100)


@pytest.mark.parametrize(
    "text", ["", "5", "s", "5 S", "5 sec", "nan s", "inf s", "1/2 s", "1 000 s", "0x10 s", "1e9999 s"]
)
def test_no_times(text: str) -> None:
    with pytest.raises(QuantityError, match=r"us, ms, s, min, h"):
        parse_time(text)


@pytest.mark.parametrize("text", ["2 x", "nan", "inf", "", "1/2", "2 s", "1e99999"])
def test_no_numbers(text: str) -> None:
    with pytest.raises(QuantityError, match="a plain number"):
        parse_number(text)


@given(st.decimals(min_value=0, max_value=10**9, allow_nan=False, allow_infinity=False, places=9))
def test_times_round_as_schoolbooks_do(value: Decimal) -> None:
    assert parse_time(f"{value} ms") == int((value * 1000).quantize(Decimal(1), ROUND_HALF_UP))


@given(st.fractions())
def test_round_half_up_is_the_nearest(value: Fraction) -> None:
    nearest = round_half_up(value)
    assert Fraction(-1, 2) < nearest - value <= Fraction(1, 2)
