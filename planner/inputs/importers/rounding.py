"""What classes of run time cost: how much work they add to a log, and how far each percentile rises."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pandas as pd

from models.instance import Ints
from models.slo import quantile_rank

MEMORY = "memory_bytes"
"""Column of what a request holds while it runs."""
_DIGITS = 10**4


@dataclass(frozen=True, slots=True)
class Rounding:
    """Run times of a log's requests as they are, and rounded up.

    Parameters
    ----------
    exact_us, rounded_us
        Of each request, on the kind of GPU where it is quickest. Shape [requests].
    most
        No run time is raised by more than this share of itself, on any kind and at any batch size; to four places,
        rounded up.
    """

    exact_us: Ints
    rounded_us: Ints
    most: float

    @classmethod
    def of(cls, parts: Sequence[tuple[pd.DataFrame, pd.DataFrame]]) -> Rounding | None:
        """Return the cost of rounding some tables up; None if nothing was.

        Parameters
        ----------
        parts
            Tables of figures before and after: run times by kind of GPU or size of batch, and perhaps `MEMORY`.
        """
        if all((before.to_numpy() == after.to_numpy()).all() for before, after in parts):
            return None
        runtimes = [[table.drop(columns=MEMORY, errors="ignore") for table in part] for part in parts]
        most = max((after / before).max().max() for before, after in runtimes)
        exact, rounded = (np.concatenate([part[side].min(axis=1) for part in runtimes]) for side in (0, 1))
        return cls(exact, rounded, math.ceil((most - 1) * _DIGITS) / _DIGITS)

    @property
    def work_added(self) -> float:
        """Share by which rounding raises the run times of all requests together."""
        return float(self.rounded_us.sum()) / float(self.exact_us.sum()) - 1

    def quantiles_s(self, share: Fraction) -> tuple[float, float]:
        """Return a quantile of the run times before and after."""
        rank = quantile_rank(share, len(self.exact_us))
        before, after = (np.partition(times, rank)[rank] / 1e6 for times in (self.exact_us, self.rounded_us))
        return float(before), float(after)
