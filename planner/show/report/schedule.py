"""The section of servers by the interval: what to order when, beside a fleet that stays."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from planner.show.colours import colour_of
from planner.show.curves import Curve, Curves
from planner.show.report.schedule_documents import ScheduleCount
from planner.show.schedule import schedule_columns, schedule_row, schedule_to_order, sentences
from planner.show.section import PageSection, read_typed
from planner.show.servers import Found, assumptions, levels, rows
from planner.show.table import of_cells

NAME = "schedule.json"


def section(folder: Path) -> PageSection:
    """Return what a page says of a folder that ``servers --by -o`` wrote.

    Raises
    ------
    InputError
        If its file cannot be read.
    """
    found = read_typed(folder / NAME, ScheduleCount)
    by = of_cells(
        "Servers by the interval", schedule_columns(found), [schedule_row(found, row) for row in found["intervals"]]
    )
    stays = of_cells(
        f"A fleet that stays, for {levels(found)}", ["", "knows", "size", "how it is known"], rows(found), 4
    )
    return PageSection(
        f"{found['scenario']['name']}: how many servers in every {found['by_s']:g} s are enough for {levels(found)}?",
        schedule_to_order(found),
        sentences(found),
        [by, stays],
        [_counts(found)],
        reproduce={
            "command": found["command"],
            "scenario hash (sha256)": found["scenario"]["hash"],
            "versions": ", ".join(f"{name} {version}" for name, version in found["versions"].items()),
        },
        leading=0,
        notes=[
            f"What this assumes: {' '.join(assumptions(found)[:-1])} Servers come and go as ordered, and none fails."
        ],
    )


def _counts(found: Found) -> Curves:
    """Return how many servers there are over time: the floor, the plan, policies and the autoscaler."""
    series: dict[str, list[int | None]] = {"floor": [row["minimum"]["lower_bound"] for row in found["intervals"]]}
    series["plan (knows the future)"] = [row["minimum"]["servers"] for row in found["intervals"]]
    for name in found["schedule"]["policies"]:
        series[name] = [row["policies"][name]["servers"] for row in found["intervals"]]
    if found["schedule"]["autoscaler"] is not None:
        series["autoscaler"] = [row["autoscaler"]["servers"] for row in found["intervals"]]
    curves = [_steps(found["intervals"], name, counts, place) for place, (name, counts) in enumerate(series.items())]
    return Curves(
        "Servers over time", "seconds", "servers", [curve for curve in curves if curve is not None], x_from=0.0
    )


def _steps(intervals: list[Mapping[str, Any]], name: str, counts: list[int | None], place: int) -> Curve | None:
    known = [(row["from_s"], float(count)) for row, count in zip(intervals, counts, strict=True) if count is not None]
    if not known:
        return None
    points = [*known, (intervals[-1]["to_s"], known[-1][1])]
    return Curve(name, points, colour_of(place - 1) if place else "", bold=not place, dashed=place > 1, steps=True)
