"""The section of a sweep: its table, and the value over the first axis that is a number."""

from __future__ import annotations

import csv
import io
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from models.scenario.source import read_text
from planner.show.colours import COLOURS
from planner.show.report.figures import Point, lines
from planner.show.report.folders import read_json
from planner.show.report.section import Figure, Section, Table

NAME, _NOTE = "results.csv", "sweep.json"
MOST_ROWS = 200
_FIRST_FIGURE = ("status", "objective", "error")
"""Columns between the number of the cell and the first of these are axes."""
_SHOWN = ("value", "lower_bound", "gap", "p95_slowdown", "p99_slowdown", "hit_rate", "compute_busy", "error")


def section(folder: Path) -> Section:
    """Return what a page says of a folder in which ``sweep -o`` has finished.

    Raises
    ------
    InputError
        If its table cannot be read.
    """
    reader = csv.DictReader(io.StringIO(read_text(folder / NAME)), restval="")
    rows, names = list(reader), list(reader.fieldnames or ())
    end = min((names.index(name) for name in _FIRST_FIGURE if name in names), default=len(names))
    axes = [name for name in names[1:end] if len({row[name] for row in rows}) > 1]
    answer = f"{len(rows)} answers over {', '.join(axes) or 'one cell'}."
    objectives = sorted({row["objective"] for row in rows if row.get("objective")})
    what = objectives[0].replace("_", " ") if len(objectives) == 1 else "value"
    drawn = _drawn(rows, axes, what)
    noted = read_json(folder / _NOTE, "name", "file")
    return Section(
        f"{noted['name']}: what if {', '.join(axes) or 'nothing'} changes?",
        answer,
        tables=[_table(rows, axes)],
        figures=[] if drawn is None else [drawn],
        reproduce={"command": _command(noted["file"], folder)},
    )


def _command(file: object, folder: Path) -> str:
    if file is None:
        return "planner.answers.whatif.whatif(...)"
    return shlex.join(["truenorth", "sweep", str(file), "-o", str(folder)])


def _table(rows: Sequence[Mapping[str, str]], axes: Sequence[str]) -> Table:
    figures = [name for name in _SHOWN if any(row.get(name) for row in rows)]
    cells = [
        [row[name] for name in axes] + [_number(row.get(name, "")) for name in figures] for row in rows[:MOST_ROWS]
    ]
    note = f"The first {MOST_ROWS} of {len(rows)} rows; results.csv has all." if len(rows) > MOST_ROWS else ""
    return Table("Cells", [*axes, *figures], cells, len(axes), note)


def _drawn(rows: Sequence[Mapping[str, str]], axes: Sequence[str], what: str) -> Figure | None:
    """Return the value over the first numeric axis, a line per combination of the others; None if that is too much."""
    across = next((axis for axis in axes if all(_is_number(row[axis]) for row in rows)), None)
    if across is None:
        return None
    series: dict[str, list[Point]] = {}
    for row in rows:
        if _is_number(row.get("value", "")):
            name = ", ".join(row[axis] for axis in axes if axis != across) or what
            series.setdefault(name, []).append((float(row[across]), float(row["value"])))
    if not series or len(series) > len(COLOURS):
        return None
    return lines(f"{what} over {across}", across, what, series)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _number(text: str) -> str:
    return f"{float(text):.5g}" if _is_number(text) else text
