"""Textbook windows, each objective twice: proved, and what the exhaustive search finds."""

from __future__ import annotations

import pytest

import truenorth as tn
from experiments.benchmarks.textbook import draw, judge
from tests.night import by_day


@pytest.mark.parametrize("seed", by_day(range(14), 7))
def test_textbook_windows_are_proved(seed: int) -> None:
    scenario = draw(seed)
    # A limit that the machine's load does not matter for: most take a fraction of a second.
    assert judge(scenario, tn.plan(scenario, time_limit=60.0).result) == "right"
