"""Random windows of two jobs that fork, on one GPU of each of two kinds: OR-Tools 9.15 is wrong on one in twenty."""

from __future__ import annotations

import random
from typing import Any

from models.scenario import Scenario, scenario_from


def fork(seed: int) -> Scenario:
    """Return a window of two jobs of a task and two successors each; every task has other run times on the two GPUs."""
    rng = random.Random(seed)  # noqa: S311
    models = {f"m{index}": {"weights": f"{rng.randint(2, 4)} GB"} for index in range(3)}

    def task(**more: object) -> dict[str, Any]:
        runtime = {kind: f"{rng.randint(100, 900)} ms" for kind in "AB"}
        return {"runtime": runtime, "models": [rng.choice(list(models))], "output": "40 MB", **more}

    workflows = {
        f"w{index}": {"tasks": {"t0": task(), "t1": task(after=["t0"]), "t2": task(after=["t0"])}} for index in range(2)
    }
    jobs = [{"release": f"{rng.randint(0, 1500)} ms", "workflow": name} for name in workflows]
    memory = {"memory": "7 GB", "load_bandwidth": "16 GB/s"}
    return scenario_from(
        {
            "cluster": {
                "groups": [{"count": 1, "gpu": {"kind": kind, **memory}} for kind in "AB"],
                "network": {"bandwidth": "5 GB/s", "latency": "1 ms"},
            },
            "models": models,
            "workflows": workflows,
            "workload": {"jobs": jobs},
            "objective": "mean_latency",
        }
    )
