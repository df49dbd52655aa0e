"""The scenario of tests/planner, by hand."""

from __future__ import annotations

from tests.planner.conftest import scenario, scenario_file

__all__ = ["scenario", "scenario_file"]
