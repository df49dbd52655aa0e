"""The section of a trial: what was predicted for every contender, beside what devices made of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from planner.show import timelines
from planner.show.colours import COLOURS
from planner.show.curves import Curve, Curves
from planner.show.forecast import say_forecast
from planner.show.report import documents
from planner.show.section import PageSection, read_typed
from planner.show.table import Table, of_cells

NAME = "trial.json"


def section(folder: Path) -> PageSection:
    """Return what a page says of a folder that ``trial -o`` wrote.

    Raises
    ------
    InputError
        If a file in it cannot be read.
    """
    found = read_typed(folder / NAME, documents.TrialFile)
    scenario, first = found["scenario"], found["rows"][0]["policy"]
    foretold = [(row["policy"], row["forecast"]) for row in found["rows"] if row["forecast"] is not None]
    return PageSection(
        f"{scenario['name']}: who is best on {found['device']}, and does it go as predicted?",
        _answer(found),
        [
            f"{found['repeats']} repeats, all contenders in each, in random order; the tasks are computed by "
            f"{found['runner']}. Intervals are of 95 %; differences are to {first}, within a repeat.",
            *([f"It ended early: {found['ended']}."] if found.get("ended") else []),
            *say_uncounted(found["rows"]),
            *say_not_finite(found["rows"]),
            *(f"From samples, {policy}: {say_forecast(compared)}." for policy, compared in foretold),
        ],
        [_table(found)],
        [figure for figure in [_latencies(found)] if figure.curves],
        timelines=timelines.read(folder),
        reproduce={
            "command": found["command"],
            "scenario hash (sha256)": scenario["hash"],
            "versions": ", ".join(f"{name} {version}" for name, version in found["versions"].items()),
        },
    )


def _answer(found: Mapping[str, Any]) -> str:
    measured = [row for row in found["rows"] if row["objective"] is not None]
    if not measured:
        return "No contender has a run without faults and failed jobs."
    best, name = min(measured, key=lambda row: row["objective"]), str(found["objective"]).replace("_", " ")
    error = "" if best["error"] is None else f", {best['error']:+.1%} off its prediction"
    return f"{best['policy']} has the least {name}, {best['objective']:.4g}{error}."


def _table(found: Mapping[str, Any]) -> Table[Any]:
    columns = [
        "",
        "predicted",
        "measured",
        "interval",
        "error",
        "difference",
        "interval",
        "as predicted",
        "failed jobs",
        "faults",
        "runs counted",
    ]
    rows = [
        [
            row["policy"],
            _shown(row["predicted"]),
            "none" if row["objective"] is None else _shown(row["objective"]),
            _ends(row, "objective"),
            "-" if row["error"] is None else f"{row['error']:+.1%}",
            _shown(row["difference"]),
            _ends(row, "difference"),
            f"{row['same_order']} of {row.get('runs', found['repeats'])}",
            str(row["failed_jobs"]),
            str(row["faults"]),
            f"{len(found['jobs'][row['policy']]['measured_s'])} of {row.get('runs', found['repeats'])}",
        ]
        for row in found["rows"]
    ]
    return of_cells(f"Predicted and measured: {str(found['objective']).replace('_', ' ')}", columns, rows)


def say_uncounted(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Say which contenders have no run that counts, if any.

    >>> say_uncounted([{"policy": "jit", "objective": None}, {"policy": "srpt", "objective": 1.5}])
    ['No run of jit counts: none ended without faults and failed jobs.']
    """
    without = ", ".join(row["policy"] for row in rows if row["objective"] is None)
    return [f"No run of {without} counts: none ended without faults and failed jobs."] if without else []


def say_not_finite(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Say how many outputs of which contenders hold something that is no finite number, if any.

    >>> say_not_finite([{"policy": "jit", "not_finite_outputs": 3}])
    ['3 outputs of jit hold what is no finite number.']
    """
    found = [(row["policy"], row.get("not_finite_outputs", 0)) for row in rows]  # files of earlier versions say nothing
    return [f"{count} outputs of {policy} hold what is no finite number." for policy, count in found if count]


def _latencies(found: Mapping[str, Any]) -> Curves:
    """Return every job's latency, the mean of all runs over the predicted one, and where both are equal."""
    curves, most = [], 0.0
    for place, (policy, jobs) in enumerate(found["jobs"].items()):
        if not jobs["measured_s"]:
            continue
        measured = np.array(jobs["measured_s"]).mean(axis=0).tolist()
        points = sorted(zip(jobs["predicted_s"], measured, strict=True))
        most = max([most, *jobs["predicted_s"]])
        curves.append(Curve(policy, points, COLOURS[place % len(COLOURS)], joined=False))
    if curves:
        curves.append(Curve("as predicted", [(0.0, 0.0), (most, most)], dashed=True))
    return Curves("Latency of every job", "predicted in s", "measured in s, mean of all runs", curves)


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _ends(row: Mapping[str, Any], name: str) -> str:
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return "-" if low is None or high is None else f"{low:.4g} to {high:.4g}"
