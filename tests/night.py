"""What `make test` runs of many parameters, and what `python -m experiments nightly` runs besides."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from _pytest.mark.structures import ParameterSet


def by_day(values: Iterable[Any], count: int) -> list[Any | ParameterSet]:
    """Return parameters of a test, of which `make test` takes the first few; the others are for the night."""
    return [value if at < count else pytest.param(value, marks=pytest.mark.nightly) for at, value in enumerate(values)]
