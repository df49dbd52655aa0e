"""The canonical graph of HEFT: ten tasks, three processors, transfers (Topcuoglu, Hariri, Wu, IEEE TPDS 2002, Fig. 2).

HEFT's own schedule ends at 80.
"""

from __future__ import annotations

from collections.abc import Iterator

from experiments.suites.case import Case, Known, Suite, least_makespan, unlike
from truenorth.models.scenario import Scenario

OPTIMUM = 73
"""Proved by CP-SAT; no schedule of the literature is shorter."""

_RUNTIMES = (
    (14, 16, 9),
    (13, 19, 18),
    (11, 13, 19),
    (13, 8, 17),
    (12, 13, 10),
    (13, 16, 9),
    (7, 15, 11),
    (5, 11, 14),
    (18, 12, 20),
    (21, 7, 16),
)
_TRANSFERS = {
    (0, 1): 18, (0, 2): 12, (0, 3): 9, (0, 4): 11, (0, 5): 14, (1, 7): 19, (1, 8): 16, (2, 6): 23,
    (3, 7): 27, (3, 8): 23, (4, 8): 13, (5, 7): 15, (6, 9): 17, (7, 9): 11, (8, 9): 13,
}  # fmt: skip


def scenario() -> Scenario:
    """Return the graph, a time unit being a microsecond and a unit of communication a byte."""
    tasks = {
        f"n{task + 1}": {
            "runtime": {f"P{processor}": f"{time} us" for processor, time in enumerate(times)},
            "after": {f"n{source + 1}": f"{cost} B" for (source, target), cost in _TRANSFERS.items() if target == task},
        }
        for task, times in enumerate(_RUNTIMES)
    }
    return least_makespan(
        {
            "name": "canonical graph",
            "cluster": unlike(["P0", "P1", "P2"]),
            "workflows": {"canonical": {"tasks": tasks}},
            "workload": {"jobs": [{"release": "0 us", "workflow": "canonical"}]},
        }
    )


def cases() -> Iterator[Case]:
    """Yield the one case."""
    yield Case(Suite.HEFT, "canonical graph", scenario(), Known.optimum(OPTIMUM))
