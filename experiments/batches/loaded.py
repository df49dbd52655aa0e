"""The authors' workload beyond what GPUs serve one by one: plan and bound beside policies."""

from __future__ import annotations

import resource
import time
from collections.abc import Sequence

from executor import POLICIES, parse_policy, simulate
from experiments import authors
from models import Instance, Objective, measure, timeline_value
from models.objective import reported_bound, reported_value
from planner.answers.plan import solve
from planner.answers.policies.receding_horizon import RecedingHorizon
from solvers import portfolio
from solvers.budget import Budget

OBJECTIVE = Objective.MEAN_SLOWDOWN


def window(rate_per_s: int, jobs: int) -> Instance:
    """Return the first jobs that were recorded at 4 jobs/s, compressed to a rate, in classes.

    Where fewer were recorded, or the file is missing, a Poisson draw takes their place.
    """
    arrivals = authors.recorded(4, jobs) if jobs <= authors.recorded_count(4) else authors.poisson(4, jobs, 1)
    return authors.batched(authors.instance([(release * 4 // rate_per_s, name) for release, name in arrivals]))


def print_plan(rate_per_s: int, jobs: int, time_limit_s: float) -> None:
    """Print how a window's plan and bound came about, with the time that the process got of the processors."""
    built, cpu_s = window(rate_per_s, jobs), time.process_time()
    found = solve(built, OBJECTIVE, Budget(time_limit_s))
    cpu_s = time.process_time() - cpu_s
    if found.timeline is None or found.value is None or found.gap is None:
        raise SystemExit(f"{rate_per_s} jobs/s: {found.status}")
    first_s = next(moment.seconds for moment in found.incumbents if moment.value is not None)
    value, bound = reported_value(OBJECTIVE, found.value), reported_bound(OBJECTIVE, found.lower_bound or found.value)
    size, memory_gb = measure(built, found.timeline).mean_batch_size, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"{rate_per_s} jobs/s, {built.n_tasks} tasks: plan {value:.4f}, bound {bound:.4f}, gap {found.gap:.1%}")
    print(f"  mean batch {size:.2f}, first plan after {first_s:.1f} s, {found.runtime_s:.1f} s, {cpu_s:.1f} s of CPU")
    print(f"  at most {memory_gb / 1e6:.2f} GB", flush=True)


def print_bound(rate_per_s: int, jobs: int, time_limit_s: float) -> None:
    """Print the bound alone."""
    built, cpu_s = window(rate_per_s, jobs), time.process_time()
    priced = portfolio.bound(built, OBJECTIVE, Budget(time_limit_s)).priced
    bound = "none" if priced is None else f"{reported_bound(OBJECTIVE, priced.bound):.4f}"
    print(f"{rate_per_s} jobs/s: bound alone {bound}, {time.process_time() - cpu_s:.1f} s of CPU", flush=True)


def print_policies(rate_per_s: int, jobs: int, policies: Sequence[str]) -> None:
    """Print what policies reach on a window; `receding` is told the objective by its option."""
    built, known = window(rate_per_s, jobs), {**POLICIES, "receding": RecedingHorizon}
    for policy in policies:
        value = timeline_value(OBJECTIVE, built, simulate(built, parse_policy(policy, known)))
        print(f"{rate_per_s} jobs/s: {policy} {reported_value(OBJECTIVE, value):.4f}", flush=True)
