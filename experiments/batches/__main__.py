"""``python -m experiments.batches``: plans of the authors' workload with and without batches, mean slowdown."""

from __future__ import annotations

import argparse
from pathlib import Path

from experiments import authors
from models import Instance, Objective, measure
from models.objective import reported_value
from planner.answers.plan import solve
from solvers.portfolio import SearchOptions

RECORDED = Path(__file__).parents[3] / "shared" / "data" / "compass" / "arrivals_4_per_s.csv"


def window(rate_per_s: int, jobs: int) -> Instance:
    """Return the first jobs that were recorded at 4 jobs/s, or of a Poisson draw, compressed in time to a rate."""
    arrivals = authors.recorded(RECORDED, jobs, from_zero=True) if RECORDED.exists() else authors.poisson(4, jobs, 1)
    return authors.instance([(release * 4 // rate_per_s, name) for release, name in arrivals])


def main() -> None:
    """Print one row per rate."""
    parser = argparse.ArgumentParser(prog="python -m experiments.batches", description=__doc__)
    parser.add_argument("--rates", type=int, nargs="+", default=[6, 8], help="jobs per second")
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds for plan and bound together")
    arguments = parser.parse_args()
    print(f"{'jobs/s':>6}{'tasks':>8}{'one by one':>12}{'batches':>10}{'mean size':>11}{'seconds':>9}")
    objective = Objective.MEAN_SLOWDOWN
    for rate in arguments.rates:
        plain = window(rate, arguments.jobs)
        batched = authors.batched(plain)
        single = solve(plain, objective, SearchOptions(arguments.time_limit))
        found = solve(batched, objective, SearchOptions(arguments.time_limit))
        if found.timeline is None or found.value is None or single.value is None:
            raise SystemExit(f"{rate} jobs/s: {found.status}")
        values = [reported_value(objective, value) for value in (single.value, found.value)]
        size = measure(batched, found.timeline).mean_batch_size
        print(f"{rate:6}{batched.n_tasks:8}{values[0]:12.4f}{values[1]:10.4f}{size:11.2f}{found.runtime_s:9.1f}")


if __name__ == "__main__":
    main()
