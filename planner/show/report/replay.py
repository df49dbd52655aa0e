"""The section of a run on devices: predicted beside measured."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from planner.show import timelines
from planner.show.report import documents
from planner.show.section import PageSection, read_typed
from planner.show.table import Table, of_cells

NAME = "replay.json"


def section(folder: Path) -> PageSection:
    """Return what a page says of a folder that ``replay -o`` wrote.

    Raises
    ------
    InputError
        If a file in it cannot be read.
    """
    found = read_typed(folder / NAME, documents.ReplayFile)
    scenario = found["scenario"]
    return PageSection(
        f"{scenario['name']}: does {Path(found['policy']).name} hold on {found['device']}?",
        _answer(found),
        [f"Devices: {', '.join(map(str, found['devices']))}; the tasks are computed by {found['runner']}."],
        [_figures(found)],
        timelines=timelines.read(folder),
        reproduce={
            "command": found["command"],
            "scenario hash (sha256)": scenario["hash"],
            "versions": ", ".join(f"{name} {version}" for name, version in found["versions"].items()),
        },
    )


def _answer(found: Mapping[str, Any]) -> str:
    if found["latency_error"] is None:
        return "Every job failed."
    kept = ("every rule held" if found["valid"] else "rules were broken") + (
        ", placement and order were as predicted"
        if found["same_placement"] and found["same_order"]
        else ", placement or order differed from the prediction"
    )
    failed = f"; {len(found['failures'])} tasks failed" if found["failures"] else ""
    return f"Job latency was off by {found['latency_error']:.1%} of its predicted mean; {kept}{failed}."


def _figures(found: Mapping[str, Any]) -> Table[Any]:
    name = str(found["objective"]["name"]).replace("_", " ")
    rows = {
        name: found["objective"],
        "mean latency in s": found["mean_latency_s"],
        "makespan in s": found["makespan_s"],
    }
    cells = [[what, *(_shown(both[key]) for key in ("predicted", "measured"))] for what, both in rows.items()]
    return of_cells("Predicted and measured", ["", "predicted", "measured"], cells)


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.5g}"
