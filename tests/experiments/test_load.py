"""The study of load: what it keeps between runs, and what its picture shows."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from matplotlib.text import Text

from experiments.load_2026_11_21 import __main__ as study
from experiments.load_2026_11_21.figure import figure
from experiments.resumed import read, write

CONTENDERS = (*study.POLICIES, study.PLAN, study.BOUND)


def row(contender: str, value: float, rate: float = 1.0) -> study.Row:
    return study.Row(rate, 1, 100, 10.0, contender, value)


def test_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    rows = [row("compass", 1.1), row("plan", 1 / 3)]
    write(tmp_path / "results.csv", rows)
    assert read(tmp_path / "results.csv", study.Row) == rows


def test_a_cell_that_is_known_is_not_computed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[float, int, int, float]] = []

    def measured(*cell: float) -> list[study.Row]:
        rate, seed, jobs, limit = cell
        asked.append((rate, int(seed), int(jobs), limit))
        return [study.Row(*asked[-1], contender, 2.0) for contender in CONTENDERS]

    monkeypatch.setattr(study, "measured", measured)
    write(tmp_path / "results.csv", [row(contender, 3.0) for contender in CONTENDERS])
    arguments = ["--time-limit", "10", "--seeds", "1", "--rates", "1", "2", "--folder", str(tmp_path)]
    study.main(arguments)
    assert asked == [(2.0, 1, 100, 10.0)]
    study.main(arguments)
    assert len(asked) == 1
    assert (tmp_path / "load.png").read_bytes().startswith(b"\x89PNG")


def test_every_line_is_named_at_its_end_and_no_two_names_touch() -> None:
    values = {contender: {1.0: [1.0, 1.2], 2.0: [1.5, 1.7]} for contender in CONTENDERS}  # all lines end at 1.6
    made = figure(values, 100, 2)
    made.draw_without_rendering()
    (axes,) = made.axes
    assert {text.get_text().split("  ")[1] for text in axes.texts} == {"1.6"}
    boxes = sorted((Text.get_window_extent(text) for text in axes.texts), key=lambda box: box.y0)
    assert len(boxes) == len(CONTENDERS)
    assert all(low.y1 <= high.y0 for low, high in pairwise(boxes))
    assert np.asarray(axes.get_lines()[0].get_ydata()) == pytest.approx([1.1, 1.6])
