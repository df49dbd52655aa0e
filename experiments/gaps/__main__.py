"""``python -m experiments.gaps``: value, lower bound and gap of plans on the authors' workload, mean slowdown."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from experiments import authors
from models import Instance, Objective
from models.objective import reported_bound, reported_value
from planner.answers.plan import solve
from solvers.portfolio import SearchOptions

RECORDED = Path(__file__).parents[3] / "shared" / "data" / "compass"


def windows(rates: list[int], jobs: int, seeds: list[int]) -> Iterator[tuple[str, Instance]]:
    """Yield the recorded windows, shifted to 0, or Poisson draws if seeds are given or nothing was recorded."""
    for rate in rates:
        path = RECORDED / f"arrivals_{rate}_per_s.csv"
        if path.exists() and not seeds:
            yield f"{rate} jobs/s, recorded", authors.instance(authors.recorded(path, jobs, from_zero=True))
        for seed in seeds or ([] if path.exists() else [1]):
            yield f"{rate} jobs/s, seed {seed}", authors.instance(authors.poisson(rate, jobs, seed))


def main() -> None:
    """Print one row per window."""
    parser = argparse.ArgumentParser(prog="python -m experiments.gaps", description=__doc__)
    parser.add_argument("--rates", type=int, nargs="+", default=[1, 2, 3, 4], help="jobs per second")
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--seeds", type=int, nargs="*", default=[], help="Poisson draws in place of the recording")
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds for plan and bound together")
    arguments = parser.parse_args()
    objective = Objective.MEAN_SLOWDOWN
    print(f"{'window':24}{'tasks':>8}{'plan':>10}{'bound':>10}{'gap':>9}{'seconds':>9}")
    for name, instance in windows(arguments.rates, arguments.jobs, arguments.seeds):
        result = solve(instance, objective, SearchOptions(arguments.time_limit))
        if result.value is None or result.lower_bound is None or result.gap is None:
            raise SystemExit(f"{name}: {result.status}")
        value, bound = reported_value(objective, result.value), reported_bound(objective, result.lower_bound)
        print(f"{name:24}{instance.n_tasks:8}{value:10.5f}{bound:10.5f}{result.gap:9.2%}{result.runtime_s:9.1f}")


if __name__ == "__main__":
    main()
