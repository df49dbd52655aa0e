"""How a mean is written with its interval."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def mean_with_interval(row: Mapping[str, Any], name: str) -> str:
    """Return a mean with its interval.

    >>> mean_with_interval({"x": 2.0, "x_low": 1.51, "x_high": 2.6}, "x")
    '2 [1.51, 2.6]'
    """
    mean, low, high = row[name], row[f"{name}_low"], row[f"{name}_high"]
    if mean is None:
        return "-"
    return f"{mean:.4g}" if low is None else f"{mean:.4g} [{low:.4g}, {high:.4g}]"
