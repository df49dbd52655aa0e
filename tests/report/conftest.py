"""Folders that ``compare -o`` wrote for the scenario that is solved by hand in tests/planner."""

from __future__ import annotations

from pathlib import Path

import pytest

from models.scenario import load_scenario
from planner import compare, save
from tests.planner.conftest import comparison, folder
from tests.report import hostile

__all__ = ["comparison", "folder", "hostile_folder"]


@pytest.fixture(scope="session")
def hostile_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return that of the scenario whose names try to break out of a page."""
    path = tmp_path_factory.mktemp("hostile")
    (path / "hostile.yaml").write_text(hostile.text())
    save(compare(load_scenario(path / "hostile.yaml"), ["jit"], time_limit_s=20), path / "comparison")
    return path / "comparison"
