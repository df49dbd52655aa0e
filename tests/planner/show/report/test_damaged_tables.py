"""A sweep's table that is cut, foreign, or holds what a spreadsheet would compute."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import truenorth as tn
from tests.by_hand import TEXT
from truenorth.models.scenario import InputError

FORMULA = "=cmd|' /C calc'!A0"


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a sweep, run once."""
    path = tmp_path_factory.mktemp("swept")
    (path / "by_hand.yaml").write_text(TEXT)
    cases = {"case": {FORMULA: {"cluster.servers": 1, "policy": "jit"}, "-2": {"cluster.servers": 2, "policy": "jit"}}}
    assert tn.whatif(path / "by_hand.yaml", cases, folder=path / "sweep", workers=1).complete
    return path / "sweep"


@pytest.fixture
def folder(swept: Path, tmp_path: Path) -> Path:
    """Return a copy of it, to damage."""
    return shutil.copytree(swept, tmp_path / "sweep")


def test_a_case_is_no_formula_and_is_read_again(folder: Path) -> None:
    with (folder / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["case"] for row in rows] == ["'" + FORMULA, "-2"]
    (section,) = tn.report([folder]).sections
    assert [row[0] for row in section.tables[0].cells()] == [FORMULA, "-2"]


def _cut_in_a_row(text: str) -> str:
    return text[:-20]


def _cut_between_rows(text: str) -> str:
    return "".join(text.splitlines(keepends=True)[:-1])


def _header_alone(text: str) -> str:
    return text.splitlines(keepends=True)[0]


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (_cut_in_a_row, r"csv:3: row: is (cut short|no CSV)"),
        (_cut_between_rows, "csv:2: file: answers 1 cells of 2; allowed is what -o wrote: run the sweep again"),
        (_header_alone, "csv:1: file: answers 0 cells of 2"),
        (lambda text: "", "csv:1: header: is none of a sweep's table"),
        (lambda text: "name,price\npen,1\n", "csv:1: header: is none of a sweep's table"),
    ],
)
def test_a_table_that_is_cut_or_foreign_is_refused(folder: Path, damage: Callable[[str], str], problem: str) -> None:
    path = folder / "results.csv"
    path.write_text(damage(path.read_text()))
    with pytest.raises(InputError, match=problem):
        tn.report([folder])
