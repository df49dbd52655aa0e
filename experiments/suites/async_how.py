"""AsyncHow: everyday plans with the shortest time in which they can be done (Lin et al., ICML 2024; MIT).

Nobody waits for anybody but predecessors, so there is a GPU per step and the optimum is the longest path. Durations
are whole seconds, some of them ranges; a range's low and high end are two cases.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments.suites.case import Case, Known, Suite, alike, found, least_makespan
from truenorth.models.scenario import Scenario

FILE = Path("asynchow") / "async_first_900.jsonl.gz"
SECOND_US = 1_000_000


def cases(folder: Path) -> Iterator[Case]:
    """Yield every plan at the low end of its durations and, where it is another, at the high end; in seconds."""
    with gzip.open(found(folder / FILE), "rt") as file:
        for row in map(json.loads, file):
            spans = [*row["durations_s"].values(), row["answer_s"]]
            ranged = any(low != high for low, high in spans)
            for end, word in ((0, " low"), (1, " high")) if ranged else ((0, ""),):
                answer = Known.optimum(round(row["answer_s"][end]))
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
