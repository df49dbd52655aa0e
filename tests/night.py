"""What `make test` runs of many parameters, and what `python -m experiments nightly` runs besides."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from _pytest.mark.structures import ParameterSet


def by_day(values: Iterable[Any], count: int) -> list[Any | ParameterSet]:
    """Return parameters of a test, each a value or a tuple of several, of which `make test` takes the first few."""

    def at_night(value: Any) -> ParameterSet:
        several = value if isinstance(value, tuple) else (value,)
        return pytest.param(*several, marks=pytest.mark.nightly)

    return [value if at < count else at_night(value) for at, value in enumerate(values)]
