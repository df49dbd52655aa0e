"""``python -m experiments.faults``: inject faults into runs on cores, and print what was lost by policy."""

from __future__ import annotations

import resource
from typing import Annotated, Any

from experiments.bench import ask, bench
from experiments.faults.inject import forks, run_with_faults

POLICIES = ("plan", "jit", "compass", "srpt")


def faults(runs: Annotated[int, "over all policies"] = 1000, jobs: int = 10, gpus: int = 3) -> None:
    """Print a row per policy; exit with 1 if a job was lost that was not on a fault, or something came out wrong."""
    on = forks(jobs, gpus)

    def injected(place: int) -> dict[str, Any]:
        found = [run_with_faults(on, POLICIES[place], seed) for seed in range(place, runs, len(POLICIES))]
        names = ("faults", "lost", "undeserved", "wrong")
        return {name: sum(getattr(outcome, name) for outcome in found) for name in names} | {
            "runs": len(found),
            "jobs": len(found) * jobs,
            "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }

    rows = bench(
        ((policy, place) for place, policy in enumerate(POLICIES)),
        injected,
        "{name:<10}{runs:>6}{jobs:>8}{faults:>8}{lost:>6}{undeserved:>12}{wrong:>7}{peak:>9.0f}",
        f"{'policy':<10}{'runs':>6}{'jobs':>8}{'faults':>8}{'lost':>6}{'undeserved':>12}{'wrong':>7}{'peak MB':>9}",
    )
    raise SystemExit(1 if sum(row["undeserved"] + row["wrong"] for row in rows) else 0)


if __name__ == "__main__":
    ask(faults)
