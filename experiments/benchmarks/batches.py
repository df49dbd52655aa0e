"""``python -m experiments batches BENCHMARK``: plans and bounds where tasks run in batches or side by side."""

from __future__ import annotations

import random
import resource
import time
from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any

from experiments import authors
from experiments.bench import Figures, ask, bench, plan_window
from truenorth.models import BatchClass, Instance, Job, Objective, Task, Workflow, measure
from truenorth.models.objective import reported_bound
from truenorth.solvers import portfolio
from truenorth.solvers.budget import Budget

OBJECTIVE = Objective.MEAN_SLOWDOWN
Rates = Annotated[tuple[int, ...], "jobs per second"]
Jobs = Annotated[int, "the first recorded ones, or a draw if there are fewer"]


def plan(rates: Rates = (6, 8), jobs: Jobs = 100, time_limit: float = 60.0) -> None:
    """Plan and bound the authors' workload, and say how both came about."""

    def found(window: Instance) -> dict[str, Any]:
        figures = plan_window(window, OBJECTIVE, time_limit)
        result = figures["result"]
        if result.timeline is None:
            raise SystemExit(f"no plan: {result.status}")
        first_s = next(moment.seconds for moment in result.incumbents if moment.value is not None)
        memory_gb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        return figures | {"size": measure(window, result.timeline).mean_batch_size, "first": first_s, "gb": memory_gb}

    bench(
        windows(rates, jobs),
        found,
        "{name}, {tasks} tasks: plan {value:.4f}, bound {bound:.4f}, gap {gap:.1%}\n"
        "  mean batch {size:.2f}, first plan after {first:.1f} s, {seconds:.1f} s, {cpu_s:.1f} s of CPU\n"
        "  at most {gb:.2f} GB",
    )


def bound(rates: Rates = (6, 8), jobs: Jobs = 100, time_limit: float = 60.0) -> None:
    """Bound the authors' workload, alone."""

    def found(window: Instance) -> dict[str, Any]:
        cpu_s = time.process_time()
        priced = portfolio.bound(window, OBJECTIVE, Budget(time_limit)).priced
        value = None if priced is None else reported_bound(OBJECTIVE, priced.bound)
        return {"bound": value, "cpu_s": time.process_time() - cpu_s}

    bench(windows(rates, jobs), found, "{name}: bound alone {bound:.4f}, {cpu_s:.1f} s of CPU")


def one(draws: int = 100, time_limit: float = 10.0) -> None:
    """Say how far certified bounds of one class on one GPU, 40 tasks at 11/s, lie below the programme's optimum."""

    def missed(window: Instance) -> dict[str, Any]:
        proved = portfolio.bound(window, Objective.MEAN_LATENCY, Budget(time_limit))
        value, priced = proved.found.value, proved.priced
        if value is None or priced is None:
            raise SystemExit("no optimum or no certificate")
        return {"short": float(1 - priced.bound / value)}

    _summarize("short", bench(_draws(draws, 40, 11, 1, (_TEN,)), missed, "{name}: {short:.2%} below the optimum"))


def two(draws: int = 20, time_limit: float = 30.0) -> None:
    """Plan two classes on two GPUs, 60 tasks at 25/s, and print the gaps."""

    def found(window: Instance) -> dict[str, Any]:
        return plan_window(window, Objective.MEAN_LATENCY, time_limit)

    row = "{name}: plan {value:.4f} s, bound {bound:.4f} s, gap {gap:.2%}"
    _summarize("gap", bench(_draws(draws, 60, 25, 2, (_TEN, _TWENTY)), found, row))


def _summarize(figure: str, rows: list[Figures]) -> None:
    values = [row[figure] for row in rows]
    print(f"{figure}: {sum(values) / len(values):.2%} in the mean, {max(values):.2%} at worst")


_TEN = BatchClass("ten", {"*": {size: 50_000 + 50_000 * size for size in range(1, 9)}})
_TWENTY = BatchClass("twenty", {"*": {size: 140_000 + 60_000 * size for size in range(1, 5)}})


def _draws(
    draws: int, tasks: int, rate: float, gpus: int, classes: tuple[BatchClass, ...]
) -> Iterator[tuple[str, Instance]]:
    """Yield Poisson draws of one task per job, three of four of the first class, all times in hundredths of seconds."""
    flows = [Workflow(batch.name, (Task.of_class("t", batch),)) for batch in classes]
    for seed in range(draws):
        yield f"draw {seed}", Instance(authors.cluster(gpus), (), tuple(_jobs(seed, tasks, rate, flows)))


def _jobs(seed: int, count: int, rate: float, flows: list[Workflow]) -> Iterator[Job]:
    """Yield Poisson arrivals, each of one of these workflows, the first three times as often as the second."""
    rng, at_s = random.Random(seed), 0.0  # noqa: S311 - no secret
    for _ in range(count):
        at_s += rng.expovariate(rate)
        yield Job(rng.choices(flows, [3, 1][: len(flows)])[0], 10_000 * round(100 * at_s))


def windows(rates: tuple[int, ...], jobs: int) -> Iterator[tuple[str, Instance]]:
    """Yield the first jobs that were recorded at 4 jobs/s, compressed to each rate, in classes.

    Where fewer were recorded, or the file is missing, a Poisson draw takes their place.
    """
    arrivals = authors.recorded(4, jobs) if jobs <= authors.recorded_count(4) else authors.poisson(4, jobs, 1)
    for rate in rates:
        plain = authors.instance([(release * 4 // rate, name) for release, name in arrivals])
        yield f"{rate} jobs/s", authors.batched(plain)


main = partial(ask, {"plan": plan, "bound": bound, "one": one, "two": two})
