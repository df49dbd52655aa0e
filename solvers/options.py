"""How to search: the options that every way to a plan or a bound is given."""

from __future__ import annotations

import math
import os
from dataclasses import asdict, dataclass, replace
from enum import StrEnum

from models.errors import chosen


class Method(StrEnum):
    """How to search.

    Attributes
    ----------
    AUTO
        CP_SAT where the window is small enough for it and no iterations are counted, otherwise SEARCH.
    CP_SAT
        Online policies and a short local search beside the Lagrangian bound, then the programme over start orders where
        it applies, and CP-SAT for the rest of the time; for a maximum over jobs local search goes on beside it for most
        of the time, if there are workers for both.
    MILP
        The same with the MILP twin (HiGHS through PuLP) in place of CP-SAT: for small windows and cross-checks.
    SEARCH
        Online policies, then local search beside the Lagrangian bound, and where costs grow with ends beams.
    """

    AUTO = "auto"
    CP_SAT = "cp-sat"
    MILP = "milp"
    SEARCH = "search"


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """How to search, and for how long.

    Parameters
    ----------
    time_limit_s
        Wall-clock seconds for plan and bound together.
    method
        How to search.
    workers
        Threads to search with: annealing, the lower bound, then annealing with other seeds, no more than there are
        cores; or CP-SAT's threads, which differ in how they search and may be more.
    seed, iterations
        The same seed and number of iterations of the local search give the same plan, if the time suffices for them.

    Raises
    ------
    ValueError
        If a limit is none.
    QuestionError
        If the method is none.
    """

    time_limit_s: float = 60.0
    method: Method = Method.AUTO
    workers: int = 2
    seed: int = 0
    iterations: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "method", chosen(Method, self.method, "method"))
        if not 0 < self.time_limit_s < math.inf:
            raise ValueError(f"a time limit of {self.time_limit_s} s; allowed is a finite number above 0")
        if self.workers < 1:
            raise ValueError(f"{self.workers} workers; allowed is at least 1")

    def on_cores(self) -> SearchOptions:
        """Return the options with no more threads than there are cores: further ones would take turns with them."""
        return replace(self, workers=min(self.workers, len(os.sched_getaffinity(0))))

    def as_dict(self) -> dict[str, str | int | float | None]:
        """Return the options by name, as a result keeps them."""
        return asdict(self) | {"method": str(self.method)}
