"""How far estimates are from what happened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from planner.inputs.estimate.estimate import Estimate
from planner.inputs.estimate.tasks import Floats


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
