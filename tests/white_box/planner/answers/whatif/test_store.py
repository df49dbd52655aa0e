"""What a sweep keeps: whole cells or none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from truenorth.models.errors import QuestionError
from truenorth.planner.answers.kept import locked
from truenorth.planner.answers.whatif.cell import CellAnswer, Store

KEY = "a" * 64
KNOWN = CellAnswer(({"policy": "jit", "value": 0.1 + 0.2, "jobs": 3, "hit_rate": None},), seconds=0.25)


def test_a_cell_is_read_as_it_was_kept(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert store.read(KEY) is None
    store.keep(KEY, KNOWN)
    assert store.read(KEY) == KNOWN
    assert Store(tmp_path).read(KEY) == KNOWN


@pytest.mark.parametrize("damage", ["", "{", "[]", "{}", "null", "\x00\xff"])
def test_a_file_that_is_no_cell_counts_as_missing(tmp_path: Path, damage: str) -> None:
    store = Store(tmp_path)
    (tmp_path / "cells" / f"{KEY}.json").write_text(damage, encoding="latin-1")
    assert store.read(KEY) is None


def test_a_changed_figure_and_a_renamed_file_count_as_missing(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.keep(KEY, KNOWN)
    path = tmp_path / "cells" / f"{KEY}.json"
    text = path.read_text()
    path.write_text(text.replace('"jobs": 3', '"jobs": 4'))
    assert store.read(KEY) is None
    path.write_text(text[:-20])
    assert store.read(KEY) is None
    path.write_text(text)
    path.rename(tmp_path / "cells" / f"{'b' * 64}.json")
    assert store.read("b" * 64) is None


def test_two_sweeps_do_not_share_a_folder(tmp_path: Path) -> None:
    with (
        locked(tmp_path),
        pytest.raises(QuestionError, match="somebody else is at work"),
        locked(tmp_path),
    ):
        pass
    with locked(tmp_path):
        pass


def test_another_sweep_is_noticed_and_its_tables_go(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert store.begin("s", "simulate", "s.yaml", ["1", "2"], "h") is False
    store.write_table("results.csv", b"old")
    (tmp_path / "cells" / ".1.json.0a.tmp").write_text("half")
    assert store.begin("s", "simulate", "s.yaml", ["1", "2"], "h") is False
    assert (tmp_path / "results.csv").read_bytes() == b"old"
    assert not list((tmp_path / "cells").iterdir())  # what a killed run left over is gone
    assert store.begin("s", "simulate", "s.yaml", ["1", "3"], "h") is True
    assert not (tmp_path / "results.csv").exists()
    assert json.loads((tmp_path / "sweep.json").read_text())["cells"] == ["1", "3"]
