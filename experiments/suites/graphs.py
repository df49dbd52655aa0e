"""Graphs of tasks with the shortest makespan: HEFT's canonical graph, and everyday plans of AsyncHow.

The graph of HEFT: ten tasks, three processors, transfers (Topcuoglu, Hariri, Wu, IEEE TPDS 2002, Fig. 2). HEFT's own
schedule ends at 80.

AsyncHow: everyday plans with the shortest time in which they can be done (Lin et al., ICML 2024; MIT). Nobody waits for
anybody but predecessors, so there is a GPU per step and the optimum is the longest path. Durations are whole seconds,
some of them ranges; a range's low and high end are two cases.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments.suites.case import Bracket, Case, Suite, alike, found, least_makespan, unlike
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


def heft_scenario() -> Scenario:
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


def heft_cases() -> Iterator[Case]:
    """Yield the one case."""
    yield Case(Suite.HEFT, "canonical graph", heft_scenario(), Bracket.optimum(OPTIMUM))


FILE = Path("asynchow") / "async_first_900.jsonl.gz"
SECOND_US = 1_000_000


def async_how_cases(folder: Path) -> Iterator[Case]:
    """Yield every plan at the low end of its durations and, where it is another, at the high end; in seconds."""
    with gzip.open(found(folder / FILE), "rt") as file:
        for row in map(json.loads, file):
            spans = [*row["durations_s"].values(), row["answer_s"]]
            ranged = any(low != high for low, high in spans)
            for end, word in ((0, " low"), (1, " high")) if ranged else ((0, ""),):
                answer = Bracket.optimum(round(row["answer_s"][end]))
                yield Case(Suite.ASYNC_HOW, row["id"] + word, _scenario(row, end), answer, SECOND_US)


def _scenario(row: dict[str, Any], end: int) -> Scenario:
    """Return a plan with the low (0) or high (1) end of its durations."""
    tasks = {
        name: {
            "runtime": f"{round(span[end])} s",
            "after": [source for source, target in row["edges"] if target == name and source != "START"],
        }
        for name, span in row["durations_s"].items()
    }
    return least_makespan(
        {
            "name": row["id"],
            "cluster": alike(len(tasks)),
            "workflows": {row["id"]: {"tasks": tasks}},
            "workload": {"jobs": [{"release": "0 s", "workflow": row["id"]}]},
        }
    )
