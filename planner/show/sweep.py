"""What a person reads after a sweep: the table as far as a terminal holds it, and where the rest is."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from planner.answers.whatif.result import Sweep
from planner.answers.whatif.verbs import Row

_MOST_ROWS = 40
_MOST_ERRORS = 5
_FIGURES = (
    "policy", "problem", "status", "value", "servers", "price_per_hour", "ratio_to_best", "ratio_to_bound",
    "lower_bound", "bound_method", "lower_bound_price_per_hour", "gap", "gap_to_bound", "converged", "p95_slowdown",
    "hit_rate",
)  # fmt: skip
"""Columns of figures that are shown, where a verb has them; the files hold all of them."""


def sweep_view(made: Sweep) -> Group:
    """Return the first rows with their most telling columns, what became of the cells, and the files."""
    varied = [name for name in made.columns if len({row[name] for row in made.rows}) > 1]
    figures = [name for name in _FIGURES if any(row.get(name) is not None for row in made.rows)]
    columns = ["cell", *varied, *(name for name in figures if name not in varied)]
    table = Table(*(_heading(name, columns) for name in columns), box=box.SIMPLE)
    for row in made.rows[:_MOST_ROWS]:
        table.add_row(*(_figure(row, name) for name in columns))
    return Group(table, *(Text(line) for line in _notes(made)))


def _notes(made: Sweep) -> list[str]:
    """Return how many rows are not shown, why cells failed, what was counted, and where the files are."""
    errors, counts = made.as_dict()["errors"], made.counts
    notes = [f"... and {len(made.rows) - _MOST_ROWS} rows more"] if len(made.rows) > _MOST_ROWS else []
    notes += [] if made.warning is None else [made.warning]
    notes += [f"cell {error['cell']} failed: {error['error']}" for error in errors[:_MOST_ERRORS]]
    notes += [f"... and {len(errors) - _MOST_ERRORS} more"] if len(errors) > _MOST_ERRORS else []
    notes.append(
        f"{counts.cells} cells: {counts.finished} run now, {counts.known} known before, {counts.failed} failed"
    )
    return notes + list(made.as_dict()["tables"].values())


def _heading(name: str, columns: Sequence[str]) -> str:
    """Return the last part of a column's path, if no other column ends alike."""
    last = name.rpartition(".")[2]
    return last if sum(other.rpartition(".")[2] == last for other in columns) == 1 else name


def _figure(row: Row, name: str) -> str:
    value = row.get(name)
    if value is None:
        return "-"
    return f"{value:.5g}" if isinstance(value, float) else str(value)
