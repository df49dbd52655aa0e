"""Sweeps, shown: the table as far as a terminal holds it, and a section of a page with the value over an axis."""

from __future__ import annotations

import csv
import io
import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from math import isfinite
from operator import methodcaller
from pathlib import Path

from rich.box import SIMPLE
from rich.console import Group
from rich.text import Text

from truenorth.models.record import unguard
from truenorth.models.scenario import InputError
from truenorth.models.scenario.files import read_text
from truenorth.planner.answers.shown import WHAT_COUNTS
from truenorth.planner.answers.whatif.cell import SweepNote
from truenorth.planner.answers.whatif.result import ASKED, UNITS, Sweep, Value
from truenorth.planner.answers.whatif.verbs import Row
from truenorth.planner.show.curves import Curves, Point, lines
from truenorth.planner.show.section import PageSection
from truenorth.planner.show.styles import STYLES
from truenorth.planner.show.table import Column, Table, terminal
from truenorth.planner.show.written import read_record

_SEEN_ROWS = 40
_MOST_ERRORS = 5
_SEEN = (
    "policy", "problem", "status", "value", "servers", "price_per_hour", "ratio_to_best", "ratio_to_bound",
    "lower_bound", "bound_method", "lower_bound_price_per_hour", "gap", "gap_to_bound", "converged", "p95_slowdown",
    "hit_rate",
)  # fmt: skip
"""Columns of figures that are shown, where a verb has them; the files hold all of them."""
FILE, _NOTE = "results.csv", "sweep.json"
MOST_ROWS = 200
_FIRST_FIGURE = ("status", "objective", "error")
"""Columns between the number of the cell and the first of these are axes."""
_SHOWN = (
    "value", "servers", "ratio_to_best", "ratio_to_bound", "lower_bound", "bound_method", "gap", "gap_to_bound",
    "converged", "p95_slowdown", "p99_slowdown", "hit_rate", "compute_busy", "problem", "error",
)  # fmt: skip


def sweep_view(made: Sweep) -> Group:
    """Return the first rows with their most telling columns, what became of the cells, and the files."""
    varied = [name for name in made.columns if len({row[name] for row in made.rows}) > 1]
    figures = [name for name in _SEEN if any(row.get(name) is not None for row in made.rows)]
    columns = ["cell", *varied, *(name for name in figures if name not in varied)]
    shown = [Column[Row](_heading(name, columns), methodcaller("get", name), _figure, words=True) for name in columns]
    return Group(terminal(Table("", shown, made.rows[:_SEEN_ROWS]), SIMPLE), *(Text(line) for line in _notes(made)))


def _notes(made: Sweep) -> list[str]:
    """Return how many rows are not shown, why cells failed, what was counted, and where the files are."""
    errors, counts = made.errors, made.counts
    notes = [f"... and {len(made.rows) - _SEEN_ROWS} rows more"] if len(made.rows) > _SEEN_ROWS else []
    notes += [] if made.warning is None else [made.warning]
    notes += [made.note] if made.note else []
    notes += [f"cell {error.cell} failed: {error.error}" for error in errors[:_MOST_ERRORS]]
    notes += [f"... and {len(errors) - _MOST_ERRORS} more"] if len(errors) > _MOST_ERRORS else []
    notes.append(
        f"{counts.cells} cells: {counts.finished} run now, {counts.known} known before, {counts.failed} failed"
    )
    return notes + list(made.tables.values())


def _heading(name: str, columns: Sequence[str]) -> str:
    """Return the last part of a column's path, if no other column ends alike."""
    last = name.rpartition(".")[2]
    return last if sum(other.rpartition(".")[2] == last for other in columns) == 1 else name


def _figure(value: Value) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def section(folder: Path) -> PageSection:
    """Return what a page says of a folder in which ``sweep -o`` has finished.

    Raises
    ------
    InputError
        If its table cannot be read.
    """
    noted = read_record(folder / _NOTE, SweepNote)
    rows, names = _read(folder / FILE, len(noted.cells))
    end = min((names.index(name) for name in _FIRST_FIGURE if name in names), default=len(names))
    axes = [name for name in names[1:end] if len({row[name] for row in rows}) > 1]
    # A verb that answers with a row per policy tells them apart beside the axes.
    keys = axes + ["policy"] * ("policy" not in axes and any(row.get("policy") for row in rows))
    asked = next((name for name in ASKED if any(_is_number(row.get(name, "")) for row in rows)), "value")
    objectives = sorted({row["objective"] for row in rows if row.get("objective")})
    what = _what(asked, objectives[0] if len(objectives) == 1 else "value")
    drawn = _drawn(rows, keys, asked, what)
    return PageSection(
        f"{noted.name}: what if {', '.join(say_column(axis, axes) for axis in axes) or 'nothing'} changes?",
        _answer(rows, keys, asked, what),
        _unconverged(rows),
        tables=[_table(rows, keys)],
        figures=[] if drawn is None else [drawn],
        reproduce={
            "command": _command(noted.file, folder),
            "scenario hash (sha256), before changes": str(noted.scenario_hash),
            "versions": ", ".join(f"{name} {version}" for name, version in noted.versions.items()),
        },
    )


def _unconverged(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Return what has to be known of the plans of the cells."""
    cells = {row["cell"] for row in rows if row.get("converged")}
    unconverged = {row["cell"] for row in rows if row.get("converged") == "false"}
    said = (
        f"In {len(unconverged)} of {len(cells)} cells the plan is unconverged ({WHAT_COUNTS}): ratios to it understate."
    )
    return [said] if unconverged else []


def _read(path: Path, cells: int) -> tuple[list[dict[str, str]], list[str]]:
    """Return the rows of the table of a sweep of so many cells, and its columns.

    Raises
    ------
    InputError
        If it is none, or not whole.
    """
    text, allowed = read_text(path), "allowed is what -o wrote: run the sweep again"
    reader = csv.reader(io.StringIO(text), strict=True)
    try:
        table = [[unguard(cell) for cell in row] for row in reader]
    except csv.Error as error:
        raise InputError(str(path), max(1, reader.line_num), "row", f"is no CSV: {error}; {allowed}") from None
    names = table[0] if table else []
    if names[:1] != ["cell"] or not any(name in names for name in _FIRST_FIGURE):
        raise InputError(str(path), 1, "header", f"is none of a sweep's table; {allowed}")
    short = next((line for line, row in enumerate(table, 1) if len(row) != len(names)), None)
    if short is not None or not text.endswith("\n"):
        raise InputError(str(path), short or len(table), "row", f"is cut short; {allowed}")
    answered = len({row[0] for row in table[1:]})
    if answered != cells:
        raise InputError(str(path), len(table), "file", f"answers {answered} cells of {cells}; {allowed}")
    return [dict(zip(names, row, strict=True)) for row in table[1:]], names


def _what(asked: str, objective: str) -> str:
    """Return what a column holds, in words."""
    words = objective.replace("_", " ")
    return {"servers": "number of servers", "lower_bound": f"lower bound of {words}"}.get(asked, words)


def _answer(rows: Sequence[Mapping[str, str]], keys: Sequence[str], asked: str, what: str) -> str:
    """Return where the figure that was asked for is least and greatest, and how many cells have none."""
    count = f"{len(rows)} {'answer' if len(rows) == 1 else 'answers'}"
    failed = sum(bool(row.get("error")) for row in rows)
    tail = f" ({count}{f', {failed} failed' if failed else ''})."
    found = [(float(row[asked]), row) for row in rows if _is_number(row.get(asked, ""))]
    if len({row.get("objective", "") for _, row in found}) != 1:
        return f"No figures that could be set beside each other{tail}"
    unit = "" if asked == "servers" else found[0][1].get("unit", "")
    (least, lowest), (most, highest) = (choose(found, key=lambda entry: entry[0]) for choose in (min, max))
    if least == most:
        return f"The {what} is {_with_unit(least, unit)} throughout{tail}"
    return (
        f"The {what} goes from {_with_unit(least, unit)} with {_place(lowest, keys)} "
        f"to {_with_unit(most, unit)} with {_place(highest, keys)}{tail}"
    )


def _place(row: Mapping[str, str], keys: Sequence[str]) -> str:
    return ", ".join(f"{say_column(key, keys)} {say_value(key, row[key])}" for key in keys if row[key])


def say_column(key: str, keys: Sequence[str]) -> str:
    """Return the last part of a path, without its unit, if no other key ends alike."""
    last = key.rpartition(".")[2]
    if sum(other.rpartition(".")[2] == last for other in keys) > 1:
        return key
    return last.removesuffix(next((ending for ending in UNITS if last.endswith(ending)), ""))


def say_value(key: str, value: str) -> str:
    """Return a value in words, by the unit that its column's name ends in."""
    say = next((unit.say for ending, unit in UNITS.items() if key.endswith(ending)), None)
    return say(float(value)) if say is not None and _is_number(value) else value


def _with_unit(value: float, unit: str) -> str:
    return f"{value:.4g} {unit}".strip()


def _command(file: object, folder: Path) -> str:
    if file is None:
        return "truenorth.planner.answers.whatif.whatif(...)"
    return shlex.join(["truenorth", "sweep", str(file), "-o", str(folder)])


def _table(rows: Sequence[Mapping[str, str]], keys: Sequence[str]) -> Table[Mapping[str, str]]:
    figures = [name for name in _SHOWN if any(row.get(name) for row in rows)]
    columns = [
        *(Column[Mapping[str, str]](_heading(name, keys), partial(_axis, name), words=True) for name in keys),
        *(Column[Mapping[str, str]](_figure_words(name), partial(_read_figure, name)) for name in figures),
    ]
    note = f"The first {MOST_ROWS} of {len(rows)} rows; results.csv has all." if len(rows) > MOST_ROWS else ""
    return Table("Cells", columns, rows[:MOST_ROWS], note=note)


def _figure_words(name: str) -> str:
    """Return a figure's column in words.

    >>> _figure_words("p95_latency_s"), _figure_words("compute_busy")
    ('p95 latency in s', 'utilisation')
    """
    unit = next((unit.axis for ending, unit in UNITS.items() if name.endswith(ending)), "")
    words = name.removesuffix("_s") if unit == " in s" else name
    return {"compute_busy": "utilisation"}.get(name, words.replace("_", " ") + unit)


def _axis(name: str, row: Mapping[str, str]) -> str:
    return say_value(name, row[name])


def _read_figure(name: str, row: Mapping[str, str]) -> str:
    return _number(row.get(name, ""))


def _drawn(rows: Sequence[Mapping[str, str]], keys: Sequence[str], asked: str, what: str) -> Curves | None:
    """Return what was asked over the first numeric axis, a line per combination of the others; None if too many."""
    across = next((key for key in keys if all(_is_number(row[key]) for row in rows)), None)
    if across is None:
        return None
    series: dict[str, list[Point]] = {}
    for row in rows:
        if _is_number(row.get(asked, "")):
            name = ", ".join(say_value(key, row[key]) for key in keys if key != across) or what
            series.setdefault(name, []).append((float(row[across]), float(row[asked])))
    if not series or len(series) > len(STYLES):
        return None
    unit = next((row["unit"] for row in rows if asked == "value" and row.get("unit")), "")
    axis, height = _axis_words(across, keys), f"{what} in {unit}" if unit else what
    return lines(f"{what} over {say_column(across, keys).replace('_', ' ')}", axis, height, series)


def _axis_words(key: str, keys: Sequence[str]) -> str:
    """Return a column in words, with the unit that its name ends in."""
    unit = next((unit.axis for ending, unit in UNITS.items() if key.endswith(ending)), "")
    return say_column(key, keys).replace("_", " ") + unit


def _is_number(text: str) -> bool:
    try:
        return isfinite(float(text))
    except ValueError:
        return False


def _number(text: str) -> str:
    return f"{float(text):.5g}" if _is_number(text) else text
