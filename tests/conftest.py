"""Fixtures for all tests: a scenario that is solved by hand, and one whose names are hostile."""

from __future__ import annotations

from pathlib import Path

import pytest

import truenorth as tn
from tests.by_hand import comparison, folder, scenario, scenario_file
from tests.planner.show.report import hostile
from truenorth.models.scenario import load_scenario

__all__ = ["comparison", "folder", "hostile_folder", "scenario", "scenario_file"]


@pytest.fixture(scope="session")
def hostile_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder that ``compare -o`` wrote for the scenario whose names try to break out of a page."""
    path = tmp_path_factory.mktemp("hostile")
    (path / "hostile.yaml").write_text(hostile.text())
    tn.save(tn.compare(load_scenario(path / "hostile.yaml"), ["jit"], time_limit=20), path / "comparison")
    return path / "comparison"
