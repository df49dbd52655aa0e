"""``python -m experiments.gaps``: value, lower bound and gap of plans, mean slowdown.

The windows are of the authors' workload, or the peak hour of a diffusion service.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from statistics import mean

from experiments import authors
from experiments.gentd26_2026_11_21.__main__ import PEAK_HOUR, imported
from models import Instance, Objective
from models.objective import reported_bound, reported_value
from planner.answers.plan import solve
from solvers.budget import Budget

OBJECTIVE = Objective.MEAN_SLOWDOWN


def windows(
    rates: Sequence[int], jobs: int, firsts: Sequence[int], seeds: Sequence[int]
) -> Iterator[tuple[str, Instance]]:
    """Yield recorded windows, shifted to 0, by name; Poisson draws if seeds are given or too few jobs were recorded."""
    for rate in rates:
        if seeds or (list(firsts) == [0] and jobs > authors.recorded_count(rate)):
            for seed in seeds or [1]:
                yield f"{rate} jobs/s, seed {seed}", authors.instance(authors.poisson(rate, jobs, seed))
        else:
            for first in firsts:
                arrivals = authors.recorded(rate, jobs, first)
                yield f"{rate} jobs/s, recorded, from job {first}", authors.instance(arrivals)


def peak_hours(gpus: Sequence[int]) -> Iterator[tuple[str, Instance]]:
    """Yield the peak hour of a diffusion service on so many GPUs, by name."""
    for count in gpus:
        yield f"GenTD26's peak hour, {count} GPUs", imported(*PEAK_HOUR, count).scenario.instance


def main() -> None:
    """Print one row per window, then the mean gap."""
    parser = argparse.ArgumentParser(prog="python -m experiments.gaps", description=__doc__)
    parser.add_argument("--rates", type=int, nargs="+", default=[1, 2, 3, 4], help="jobs per second")
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--first", type=int, nargs="+", default=[0], help="first jobs of the recorded windows, from 0")
    parser.add_argument("--seeds", type=int, nargs="+", default=[], help="Poisson draws in place of the recording")
    parser.add_argument("--gentd26", type=int, nargs="+", metavar="GPUS", help="GenTD26's peak hour in place of these")
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds for plan and bound together")
    parser.add_argument("--slower", type=int, default=0, help="of the five GPUs so many take twice as long")
    given = parser.parse_args()
    chosen = peak_hours(given.gentd26) if given.gentd26 else windows(given.rates, given.jobs, given.first, given.seeds)
    print(f"{'window':34}{'tasks':>7}{'plan':>10}{'bound':>10}{'gap':>9}{'seconds':>9}")
    gaps = []
    for name, plain in chosen:
        instance = authors.with_slower(plain, given.slower) if given.slower else plain
        result = solve(instance, OBJECTIVE, Budget(given.time_limit))
        if result.value is None or result.lower_bound is None or result.gap is None:
            raise SystemExit(f"{name}: {result.status}")
        value, bound = reported_value(OBJECTIVE, result.value), reported_bound(OBJECTIVE, result.lower_bound)
        figures = f"{instance.n_tasks:7}{value:10.5f}{bound:10.5f}{result.gap:9.2%}{result.runtime_s:9.1f}"
        print(f"{name:34}{figures}", flush=True)
        gaps.append(result.gap)
    print(f"mean gap{mean(gaps):62.2%}")


if __name__ == "__main__":
    main()
