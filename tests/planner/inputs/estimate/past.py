"""Small histories to estimate from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from truenorth.planner.inputs.estimate.tasks import History, TaskColumns, Tasks

COLUMNS = TaskColumns(("model", "steps"), ("text",), ("size",))


def past(rows: Sequence[Mapping[str, object]], names: Sequence[str] = COLUMNS.all) -> History:
    """Return past tasks in the order of the rows; each is known to the next. A row has its run time as ``s``."""
    runtimes = np.array([round(float(str(row["s"])) * 1e6) for row in rows], np.int64)
    return History.of(Tasks.of(rows, names), runtimes, timed=False)


def lognormal(n: int, seed: int, spread: float = 0.3) -> list[dict[str, object]]:
    """Return tasks whose log run time is known: 1 + size / 2, and normal around it; models do not matter."""
    draws = np.random.default_rng(seed)
    sizes, noise = draws.uniform(0, 4, n), draws.normal(0, spread, n)
    models = draws.choice(["opt", "nli", "vit"], n)
    return [
        {"model": model, "steps": 1, "size": round(float(size), 3), "s": float(np.exp(1 + size / 2 + off))}
        for model, size, off in zip(models, sizes, noise, strict=True)
    ]
