"""Quantities as scenario files have them: exact decimals with a unit."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction


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
