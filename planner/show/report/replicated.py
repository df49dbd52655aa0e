"""The section of a comparison over replications: every mean with its interval, then the replications one by one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from planner.show.intervals import mean_with_interval
from planner.show.report import documents, sweep
from planner.show.report.folders import read_json
from planner.show.report.section import PageSection, PageTable

NAME = "intervals.json"


def section(folder: Path) -> PageSection:
    """Return what a page says of a folder that ``compare --replications -o`` wrote.

    Raises
    ------
    InputError
        If a file in it cannot be read.
    """
    found, one_by_one = read_json(folder / NAME, documents.IntervalsFile), sweep.section(folder)
    objective, against = found["objective"].replace("_", " "), found["against"] or "-"
    columns = ["policy", objective, "x best", f"minus {against}", "better in", "gap to bound"]
    rows = [
        [
            row["policy"],
            *(mean_with_interval(row, name) for name in ("objective", "ratio_to_best", "difference")),
            "-" if row["better_in"] is None else f"{row['better_in']} of {row['replications']}",
            "-" if row["gap_to_bound"] is None else f"{row['gap_to_bound']:.1%}",
        ]
        for row in found["rows"]
    ]
    best = next((row for row in found["rows"] if row["policy"] == found["against"]), None)
    if best is None:
        answer = one_by_one.answer
    else:
        times = mean_with_interval(best, "ratio_to_best")
        answer = f"The best online policy, {against}, is at {times} times the best of each replication."
    table = PageTable(found["note"], columns, rows)
    return replace(one_by_one, answer=answer, tables=[table, *one_by_one.tables])
