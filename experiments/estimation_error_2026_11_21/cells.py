"""What the study asks: errors of estimates, and contenders."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from planner.answers.uncertain.error import Error

NONE, TOLD, TRUE = "none", "told", "true"
"""No error; estimates that lie around the truth; truths that lie around the estimates."""

PLAN_OF_TRUTH = "plan that knows the truth"
CONTENDERS = {
    "plan for p50": "offline:moves=40000",
    "plan for p90": "offline:on=p90,moves=40000",
    "plan for samples": "offline:on=samples,samples=5,moves=20000",
    "plan, replanned": "offline:replan=on,moves=40000",
    "receding horizon": "receding",
    "srpt": "srpt",
    "compass": "compass",
}
"""Policies by name."""


@dataclass(frozen=True, slots=True)
class Level:
    """An error of the estimates, one factor per job: which side errs, the kind of spread and its size."""

    side: str
    kind: str
    size: float

    @property
    def error(self) -> Error | None:
        """The error; None if there is none."""
        return None if self.side == NONE else Error(self.kind, self.size)

    @property
    def mean_factor(self) -> float:
        """Mean of the factor between the two sides."""
        if self.kind == "lognormal":
            return math.exp(self.size**2 / 2)
        levels = (np.arange(100_000) + 0.5) / 100_000
        error = Error(self.kind, self.size)
        return float(np.mean([error.factor(level) for level in levels.tolist()]))

    def __str__(self) -> str:
        return self.side if self.side == NONE else f"{self.side}={self.kind}:{self.size:g}"


@dataclass(frozen=True, slots=True)
class ErrorCell:
    """One draw of arrivals at one rate with one error."""

    jobs_per_s: float
    seed: int
    jobs: int
    level: Level


SIGMAS = (0.15, 0.3, 0.6)
LEVELS = (
    Level(NONE, "lognormal", 0.0),
    *(Level(side, "lognormal", sigma) for side in (TRUE, TOLD) for sigma in SIGMAS),
    *(Level(side, "published", 1.0) for side in (TRUE, TOLD)),
)
