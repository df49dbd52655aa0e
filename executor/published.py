"""How far the run times that an estimator gave in production were off, as published.

Of the jobs, 10 % were within 10 %, 50 % within 50 %, 70 % within 100 % and 90 % within 1000 %. That leaves open what
lies between these points, the worst tenth, and the direction; the readings here are:

- Up to 10 % errors are uniform; beyond, their logarithm is linear in the share of jobs, and the last tenth goes on at
  the slope of the one before, so that no error exceeds 1000 % x sqrt(10) = 3162 %.
- An error of e is a factor of 1 + e between the longer and the shorter of true and estimated time. Estimates are too
  long as often as too short: only so can one be 1000 % off in either direction. The shares hold for that error;
  by the usual |estimate - true| / true, 11.3, 60, 85 and 95 % of the jobs are within 10, 50, 100 and 1000 %, and the
  median is 39 %.
"""

from __future__ import annotations

from bisect import bisect_left
from math import sqrt

SHARES = (0.0, 0.1, 0.5, 0.7, 0.9, 1.0)
ERRORS = (0.0, 0.1, 0.5, 1.0, 10.0, 10.0 * sqrt(10.0))
"""Largest relative error among these shares of the jobs; the last one is a reading."""


def error_quantile(share: float) -> float:
    """Return the relative error that a share of the jobs, 0 to 1, does not exceed.

    >>> [round(error_quantile(share), 3) for share in (0.05, 0.1, 0.5, 0.8, 0.9)]
    [0.05, 0.1, 0.5, 3.162, 10.0]
    """
    piece = max(1, bisect_left(SHARES, share))
    part = (share - SHARES[piece - 1]) / (SHARES[piece] - SHARES[piece - 1])
    low, high = ERRORS[piece - 1], ERRORS[piece]
    return float(part * high if not low else low * (high / low) ** part)


def factor_quantile(level: float) -> float:
    """Return the quantile of the factor between two times, one of them estimated, at a level from 0 to 1.

    >>> [round(factor_quantile(level), 3) for level in (0.25, 0.5, 0.75, 0.85)]
    [0.667, 1.0, 1.5, 2.0]
    """
    stretch = 1.0 + error_quantile(abs(2.0 * level - 1.0))
    return stretch if level >= 0.5 else 1.0 / stretch
