"""Rows as a table of text or markdown, and a line of summary per suite."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.suites.rows import Row

COLUMNS = ("suite", "instance", "value", "bound", "best known", "verdict", "status", "time s", "CPU s")
MOST_SHOWN = 60
"""A suite of more cases than this shows only those that are not at their best known value, or not proved."""


def text(rows: Sequence[Row]) -> str:
    """Return the table for a terminal."""
    lines = [COLUMNS, *map(_cells, shown(rows))]
    widths = [max(len(line[column]) for line in lines) for column in range(len(COLUMNS))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)


def markdown(rows: Sequence[Row]) -> str:
    """Return the table and the summary as a page."""
    lines = [COLUMNS, ("---",) * len(COLUMNS), *map(_cells, shown(rows))]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return "\n".join([*(f"- {line}" for line in summary(rows)), "", table, ""])


def shown(rows: Sequence[Row]) -> list[Row]:
    """Return the rows that a table shows."""
    return [
        row
        for row in rows
        if sum(other.suite == row.suite for other in rows) <= MOST_SHOWN or row.verdict != "equal" or not row.proved
    ]


def summary(rows: Sequence[Row]) -> list[str]:
    """Return a line per suite: cases, how many are at the best known value and proved, the worst, and the time."""
    return [_summary(suite, [row for row in rows if row.suite == suite]) for suite in dict.fromkeys(map(_suite, rows))]


def _suite(row: Row) -> str:
    return row.suite


def _summary(suite: str, rows: Sequence[Row]) -> str:
    known = [row for row in rows if row.known_upper is not None]
    counts = [
        f"{len(rows)} case{'s' if len(rows) > 1 else ''}",
        f"{sum(row.proved for row in rows)} proved",
        f"{sum(row.verdict == 'equal' for row in rows)} of {len(known)} at the best known value",
    ]
    for verdict in ("better", "refutes the known value", "below a published bound", "no plan"):
        count = sum(row.verdict == verdict for row in rows)
        counts += [f"{count} {verdict}"] if count else []
    above = [row.excess for row in rows if row.verdict.startswith("+") and row.excess is not None]
    counts += [f"worst +{max(above):.2%}"] if above else []
    return f"{suite}: {', '.join(counts)}, {sum(row.time_s for row in rows):.1f} s"


def _cells(row: Row) -> tuple[str, ...]:
    best = _number(row.known_upper)
    if row.known_lower != row.known_upper:
        best = f"{_number(row.known_lower)} to {best}"
    return (
        row.suite,
        row.instance,
        _number(row.value),
        _number(row.bound),
        best,
        row.verdict,
        row.status,
        f"{row.time_s:.1f}",
        f"{row.cpu_s:.1f}",
    )


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)
