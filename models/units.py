"""Quantities with units, parsed as exact decimals: times, sizes, bandwidths and rates."""

from __future__ import annotations

import re
from decimal import Decimal, localcontext
from fractions import Fraction

_QUANTITY = re.compile(r"\s*([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?)\s*(\S.*?)?\s*")

TIME_US = {"us": 1, "ms": 1_000, "s": 1_000_000, "min": 60_000_000, "h": 3_600_000_000}
US_DECIMALS = {"ms": 3, "s": 6, "us": 0}
"""How many decimals of a number in this unit are whole microseconds."""
SIZE_BYTES = {
    "B": 1,
    **{f"{prefix}B": 1000**power for power, prefix in enumerate("KMGT", 1)},
    **{f"{prefix}iB": 1024**power for power, prefix in enumerate("KMGT", 1)},
}
BANDWIDTH = {
    **{f"{unit}/s": Fraction(size) for unit, size in SIZE_BYTES.items()},
    "bit/s": Fraction(1, 8),
    **{f"{prefix}bit/s": Fraction(1000**power, 8) for power, prefix in enumerate("KMGT", 1)},
}
RATE_PER_SECOND = {"/s": Fraction(1), "/min": Fraction(1, 60), "/h": Fraction(1, 3600)}


_DIGITS = 4
"""Significant digits of an amount in words."""


class QuantityError(ValueError):
    """A text is no quantity of the wanted sort; the message says what is allowed."""


def round_half_up(value: Fraction) -> int:
    """Return the nearest integer, halves upwards.

    >>> round_half_up(Fraction(5, 2)), round_half_up(Fraction(-5, 2))
    (3, -2)
    """
    return (2 * value.numerator + value.denominator) // (2 * value.denominator)


def _parse(text: str, units: dict[str, int] | dict[str, Fraction], what: str) -> Fraction:
    match = _QUANTITY.fullmatch(text)
    if match is None or (match[2] or "") not in units:
        allowed = "a plain number" if "" in units else f"a number with one of {', '.join(units)}"
        raise QuantityError(f"{text!r} is no {what}; allowed is {allowed}")
    return Fraction(Decimal(match[1])) * units[match[2] or ""]


def parse_time(text: str) -> int:
    """Return a time in microseconds, rounded to the nearest, half up.

    >>> parse_time("0.0005 ms"), parse_time("1e-3 s")
    (1, 1000)
    """
    return round_half_up(_parse(text, TIME_US, "time"))


def parse_fine_time(text: str) -> int:
    """Return a time in picoseconds, rounded to the nearest, half up.

    >>> parse_fine_time("0.03 us"), parse_fine_time("0 us")
    (30000, 0)
    """
    return round_half_up(_parse(text, TIME_US, "time") * 1_000_000)


def microseconds(text: str, unit: str) -> int:
    """Return a plain number of a unit of time in microseconds: `parse_time`, with a short way for usual numbers.

    >>> microseconds("333.3335", "ms"), microseconds("2e-3", "s"), microseconds("1759522419158355424", "ns")
    (333334, 2000, 1759522419158355)
    """
    if unit == "ns":
        # A thousandth of a microsecond, which quantities of scenarios do not have.
        return round_half_up(parse_number(text) / 1000)
    whole, _, part = text.partition(".")
    digits, decimals = whole + part, US_DECIMALS[unit]
    if digits.isdecimal() and digits.isascii() and len(digits) < 30:
        if len(part) <= decimals:
            return int(digits + "0" * (decimals - len(part)))
        end = len(whole) + decimals
        return int(digits[:end] or "0") + (digits[end] >= "5")
    if len(text) > 60:
        raise QuantityError(f"{text[:60]!r}... is no time; allowed is a plain number")
    return parse_time(f"{text} {unit}")


def parse_size(text: str) -> int:
    """Return a size in bytes, rounded to the nearest, half up.

    >>> parse_size("5.72 GB"), parse_size("1 KiB")
    (5720000000, 1024)
    """
    return round_half_up(_parse(text, SIZE_BYTES, "size"))


def parse_bandwidth(text: str) -> Fraction:
    """Return a bandwidth in bytes per second, exactly.

    >>> parse_bandwidth("8 Gbit/s")
    Fraction(1000000000, 1)
    """
    return _parse(text, BANDWIDTH, "bandwidth")


def parse_number(text: str) -> Fraction:
    """Return a plain number, exactly.

    >>> parse_number("2.5")
    Fraction(5, 2)
    """
    return _parse(text, {"": 1}, "number")


def parse_rate(text: str) -> Fraction:
    """Return a rate in events per second, exactly.

    >>> parse_rate("30 /min")
    Fraction(1, 2)
    """
    return _parse(text, RATE_PER_SECOND, "rate")


def seconds(us: int) -> str:
    """Return a time.

    >>> seconds(25_000_000), seconds(1_500)
    ('25 s', '0.0015 s')
    """
    return _scaled(us, 6, "s")


def gigabytes(size_bytes: int) -> str:
    """Return a size.

    >>> gigabytes(6_500_000_000)
    '6.5 GB'
    """
    return _scaled(size_bytes, 9, "GB")


def gigabytes_per_s(bandwidth: Fraction) -> str:
    """Return a bandwidth.

    >>> gigabytes_per_s(Fraction(125 * 10**6))
    '0.125 GB/s'
    """
    return _scaled(bandwidth, 9, "GB/s")


def _scaled(quantity: int | Fraction, power: int, unit: str) -> str:
    exact = Fraction(quantity)
    with localcontext(prec=45):
        number = (Decimal(exact.numerator) / Decimal(exact.denominator)).scaleb(-power).normalize()
    return f"{number:f} {unit}"


def without_exponent(said: str) -> str:
    """Return a figure that was written in a format; an exponent, which nobody reads, is written out.

    >>> without_exponent(f"{109_623.4:.5g}"), without_exponent(f"{1.5:.4g}")
    ('109,620', '1.5')
    """
    return f"{float(said):,.0f}" if "e+" in said else said


def say_size(size_bytes: float) -> str:
    """Return a size in words, in the unit that leaves at least one whole one.

    >>> say_size(24_000_000), say_size(5_720_000_000), say_size(999_999), say_size(0)
    ('24 MB', '5.72 GB', '1 MB', '0 B')
    """
    size, units = float(f"{size_bytes:.{_DIGITS}g}"), ["B", "KB", "MB", "GB", "TB"]
    # Rounding comes first: 999,999 B are 1 MB, not 1000 KB.
    while abs(size) >= 1000 and len(units) > 1:
        size /= 1000
        units.pop(0)
    return f"{float(f'{size:.{_DIGITS}g}'):.15g} {units[0]}"


def say_bandwidth(bytes_per_s: float) -> str:
    """Return a bandwidth in words.

    >>> say_bandwidth(10_170_000_000), say_bandwidth(125_000)
    ('10.17 GB/s', '125 KB/s')
    """
    return f"{say_size(bytes_per_s)}/s"
