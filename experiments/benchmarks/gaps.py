"""``python -m experiments gaps``: how far plans are provably from the optimum where clusters are loaded.

The windows are of the authors' workload, or the peak hour of a diffusion service.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from statistics import mean
from typing import Annotated, Any

from experiments import authors
from experiments.bench import ask, bench, plan_window
from truenorth.models import Instance, Objective
from truenorth.planner.inputs.importers.format import Override
from truenorth.planner.inputs.importers.trace import import_trace

GENTD26 = [
    authors.ARRIVALS.parent / "gentd26" / name
    for name in ("lora_request_trace.csv.gz", "pipeline_update_latency_anon.csv.gz")
]
"""Requests of a diffusion service, and the log of its loads."""
_PEAK_HOUR = ("2024-12-06T00:00", "2024-12-06T01:00")


def gaps(
    rates: Annotated[tuple[int, ...], "jobs per second"] = (1, 2, 3, 4),
    jobs: int = 100,
    first: Annotated[tuple[int, ...], "first jobs of the recorded windows, from 0"] = (0,),
    seeds: Annotated[tuple[int, ...], "Poisson draws in place of the recording"] = (),
    gentd26: Annotated[tuple[int, ...], "GenTD26's peak hour on so many GPUs in place of these"] = (),
    time_limit: Annotated[float, "seconds for plan and bound together"] = 60.0,
    slower: Annotated[int, "of the five GPUs so many take twice as long"] = 0,
) -> None:
    """Print one row per window, then the mean gap."""

    def plan(window: Instance) -> dict[str, Any]:
        on = authors.with_slower(window, slower) if slower else window
        found = plan_window(on, Objective.MEAN_SLOWDOWN, time_limit)
        if found["gap"] is None:
            raise SystemExit(f"no plan, or no bound: {found['status']}")
        return found

    rows = bench(
        peak_hours(gentd26) if gentd26 else windows(rates, jobs, first, seeds),
        plan,
        "{name:34}{tasks:7}{value:10.5f}{bound:10.5f}{gap:9.2%}{seconds:9.1f}",
        f"{'window':34}{'tasks':>7}{'plan':>10}{'bound':>10}{'gap':>9}{'seconds':>9}",
    )
    print(f"mean gap{mean(row['gap'] for row in rows):62.2%}")


def windows(
    rates: tuple[int, ...], jobs: int, firsts: tuple[int, ...], seeds: tuple[int, ...]
) -> Iterator[tuple[str, Instance]]:
    """Yield recorded windows, shifted to 0, by name; Poisson draws if seeds are given or too few jobs were recorded."""
    for rate in rates:
        if seeds or (firsts == (0,) and jobs > authors.recorded_count(rate)):
            for seed in seeds or (1,):
                yield f"{rate} jobs/s, seed {seed}", authors.instance(authors.poisson(rate, jobs, seed))
        else:
            for first in firsts:
                arrivals = authors.recorded(rate, jobs, first)
                yield f"{rate} jobs/s, recorded, from job {first}", authors.instance(arrivals)


def peak_hours(gpus: tuple[int, ...]) -> Iterator[tuple[str, Instance]]:
    """Yield the peak hour of a diffusion service on so many GPUs, by name."""
    for count in gpus:
        made = import_trace("gentd26", GENTD26, window=_PEAK_HOUR, override=Override(servers=count).apply)
        yield f"GenTD26's peak hour, {count} GPUs", made.scenario.instance


main = partial(ask, gaps)
