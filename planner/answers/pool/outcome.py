"""What becomes of a call on another process: its value or its failure, and how long it took there."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

Item = TypeVar("Item")
Value = TypeVar("Value")

LOOK_S = 0.2
"""How often a wait looks at `stop`."""


@dataclass(frozen=True, slots=True)
class Outcome(Generic[Value]):
    """What became of one call.

    Parameters
    ----------
    index
        Position of the call's argument.
    value
        What it returned; None if it failed.
    failure
        Why it has no value, in one line; None if it has one.
    seconds
        How long the call took on its worker; 0 if that is unknown.
    """

    index: int
    value: Value | None
    failure: str | None
    seconds: float


def describe_error(error: BaseException) -> str:
    """Return an exception in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def time_call(call: Callable[[Item], Value], item: Item) -> tuple[Value, float]:
    """Return what a call returns, and how many seconds it took; this is what runs on a worker."""
    begun = time.perf_counter()
    return call(item), time.perf_counter() - begun
