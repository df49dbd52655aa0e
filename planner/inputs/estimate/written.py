"""Estimates as a CSV file, and as the object of ``estimate --json``."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from models.cells import guard
from models.scenario import write_atomically
from planner.inputs.estimate.calibration import RungCalibration
from planner.inputs.estimate.conformal import NOMINAL
from planner.inputs.estimate.measured import TASK, WORKFLOW
from planner.inputs.estimate.naming import ESTIMATE_COLUMNS, LINE
from planner.inputs.estimate.run import Estimates
from planner.inputs.estimate.score import score

_BETWEEN = "; "


def as_dict(made: Estimates, path: Path | None = None) -> dict[str, Any]:
    """Return estimates, what they rest on and how good they were, with the keys of ``estimate --json``."""
    ladder, compared = made.ladder, None if made.truth_us is None else score(made.found, made.truth_us)
    return {
        "history": str(made.history),
        "requests": str(made.requests),
        "past_tasks": len(ladder.known.history),
        "left_out": dict(made.tally.left_out + made.tally.refused),
        "key": list(ladder.columns.key),
        "nominal": NOMINAL,
        "rungs": [
            {
                "name": rung.name,
                "answered": sum(estimate.source == rung.name for estimate in made.found),
                **_calibration(ladder.calibrations.get((rung.name, None))),
            }
            for rung in ladder.rungs
        ],
        "unseen": made.to_profile,
        "score": None if compared is None else _plain(asdict(compared)),
        "requests_estimated": len(made.found),
        "estimates": [_plain(row) for row in _rows(made)] if path is None else str(path),
    }


def save(made: Estimates, path: Path) -> None:
    """Write estimates as CSV, a row per request in their order.

    Raises
    ------
    InputError
        If the file cannot be written.
    """
    text = io.StringIO()
    rows = list(_rows(made))
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        cells = row | {"neighbours": _BETWEEN.join(row["neighbours"]), "profile": str(row["profile"]).lower()}
        writer.writerow({name: guard(cell) if isinstance(cell, str) else cell for name, cell in cells.items()})
    write_atomically(path, text.getvalue())


def _rows(made: Estimates) -> Iterator[dict[str, Any]]:
    """Yield, per request, its names and the columns of an estimate."""
    names = tuple(made.names) if LINE in made.names else (WORKFLOW, TASK)
    profile = made.to_profile
    first = made.names[made.ladder.columns.key[0]]
    for row, estimate in enumerate(made.found):
        told = {name: int(made.names[name][row]) if name == LINE else made.names[name][row] for name in names}
        unmeasured = first[row] in profile and estimate.source != "profile"
        seconds = [time_us / 1e6 for time_us in (estimate.p10_us, estimate.p50_us, estimate.p90_us)]
        values = (*seconds, estimate.source, estimate.confidence, list(estimate.neighbours), unmeasured)
        yield told | dict(zip(ESTIMATE_COLUMNS, values, strict=True))


def _calibration(found: RungCalibration | None) -> dict[str, Any]:
    """Return what calibration found of a rung; null where it had no cases."""
    if found is None:
        return dict.fromkeys(("cases", "covered_before", "covered_after", "median_error", "within_factor_two"))
    return _plain(
        {
            "cases": found.cases,
            "covered_before": found.covered_before,
            "covered_after": found.covered_after,
            "median_error": found.median_error,
            "within_factor_two": found.within_factor_two,
        }
    )


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """Return values with NaN as None and shares rounded."""
    return {
        name: (None if math.isnan(value) else round(value, 6)) if isinstance(value, float) else value
        for name, value in values.items()
    }
