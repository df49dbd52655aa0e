"""Estimates as a CSV file and as the object of ``estimate --json``, and how far they were from what happened."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from models.cells import guard
from models.scenario import write_atomically
from planner.inputs.estimate.calibration import NOMINAL, RungCalibration
from planner.inputs.estimate.estimate import Estimate
from planner.inputs.estimate.run import Estimates
from planner.inputs.estimate.rungs import TASK, WORKFLOW
from planner.inputs.estimate.table import ESTIMATE_COLUMNS, LINE
from planner.inputs.estimate.tasks import Floats

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


@dataclass(frozen=True, slots=True)
class Score:
    """Errors of p50, and what the intervals hold.

    Parameters
    ----------
    cases
        Estimates with a known truth.
    spearman
        Rank correlation of p50 and the truth; NaN if either is constant.
    r2
        Of p50 in seconds: 1 - sum of squared errors / sum of squares around the mean; NaN if the truth is constant.
    median_error
        Median of the relative errors.
    covered
        Share of truths from p10 to p90, both ends included.
    below, above
        Share below p10, and above p90.
    width
        Median of p90 / p10.
    """

    cases: int
    spearman: float
    r2: float
    median_error: float
    covered: float
    below: float
    above: float
    width: float


def score(estimates: Sequence[Estimate], truth_us: Floats) -> Score | None:
    """Return the errors of estimates; None if no truth is known. NaN is unknown. Shape [estimates]."""
    known = np.flatnonzero(truth_us > 0)
    if len(known) == 0:
        return None
    quantiles = np.array([[e.p10_us, e.p50_us, e.p90_us] for e in estimates], np.float64)[known]
    truth = truth_us[known]
    low, middle, high = quantiles.T
    off, around = float(((truth - middle) ** 2).sum()), float(((truth - truth.mean()) ** 2).sum())
    ranks = pd.Series(middle).rank(), pd.Series(truth).rank()
    constant = any(rank.nunique() < 2 for rank in ranks)
    below, above = float((truth < low).mean()), float((truth > high).mean())
    return Score(
        len(known),
        float("nan") if constant else float(ranks[0].corr(ranks[1])),
        1 - off / around if around > 0 else float("nan"),
        float(np.median(np.abs(middle - truth) / truth)),
        1 - below - above,
        below,
        above,
        float(np.median(high / low)),
    )
