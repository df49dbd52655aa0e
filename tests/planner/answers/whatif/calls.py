"""Calls that worker processes make in tests."""

from __future__ import annotations

import os
import time


def square(number: int) -> int:
    """Return the square of a number."""
    return number * number


def troubled(number: int) -> int:
    """Return the square, but for 3, which raises, and 5, which takes the process with it."""
    if number == 3:
        raise KeyError("three")
    if number == 5:
        os._exit(9)
    return number * number


def slow(seconds: float) -> float:
    """Return what was slept."""
    time.sleep(seconds)
    return seconds
