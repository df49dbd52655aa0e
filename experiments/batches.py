"""``python -m experiments.batches BENCHMARK``: plans and bounds where tasks run in batches or side by side."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from typing import Annotated, Any

from experiments import authors
from experiments.bench import ask, bench, plan_window
from truenorth.executor import POLICIES, parse_policy, simulate
from truenorth.models import Instance, Objective, measure, timeline_value
from truenorth.models.objective import reported_bound, reported_value
from truenorth.planner.answers.policies.receding_horizon import RecedingHorizon
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


def policies(
    policies: Annotated[tuple[str, ...], "such as compass:batch=greedy"], rates: Rates = (6, 8), jobs: Jobs = 100
) -> None:
    """Say what policies reach on it; `receding` is told the objective by its option."""
    known = {**POLICIES, "receding": RecedingHorizon}
    for name, window in windows(rates, jobs):

        def reached(policy: str, on: Instance = window) -> dict[str, Any]:
            value = timeline_value(OBJECTIVE, on, simulate(on, parse_policy(policy, known)))
            return {"value": reported_value(OBJECTIVE, value)}

        bench(((policy, policy) for policy in policies), reached, name + ": {name} {value:.4f}")


def windows(rates: tuple[int, ...], jobs: int) -> Iterator[tuple[str, Instance]]:
    """Yield the first jobs that were recorded at 4 jobs/s, compressed to each rate, in classes.

    Where fewer were recorded, or the file is missing, a Poisson draw takes their place.
    """
    arrivals = authors.recorded(4, jobs) if jobs <= authors.recorded_count(4) else authors.poisson(4, jobs, 1)
    for rate in rates:
        plain = authors.instance([(release * 4 // rate, name) for release, name in arrivals])
        yield f"{rate} jobs/s", authors.batched(plain)


if __name__ == "__main__":
    ask({"plan": plan, "bound": bound, "policies": policies})
