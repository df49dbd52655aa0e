"""Plans of windows that no test holds: values after seconds of one thread's processor time, over draws and seeds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from statistics import mean

from experiments import authors
from models import Instance, Objective, timeline_value
from models.objective import reported_value
from solvers.search.annealer import Parameters
from solvers.search.annealing import improvements

SEEDS = (0, 1)
RECORDED_AT = (0, 200, 300, 500, 600)
"""First jobs of the windows of the recorded arrivals at 4 jobs/s."""
POISSON_SEEDS = (2, 3, 6)


def windows(jobs: int) -> Iterator[tuple[str, Instance]]:
    """Yield windows at 4 jobs/s by name, some easy, some with scarce memory."""
    for first in RECORDED_AT:
        yield f"recorded, from job {first}", authors.instance(authors.recorded(4, jobs, first))
    for seed in POISSON_SEEDS:
        yield f"drawn, seed {seed}", authors.instance(authors.poisson(4, jobs, seed))


def planned(instance: Instance, seconds: float, seed: int, parameters: Parameters | None = None) -> float:
    """Return the mean slowdown of the plan that annealing finds in so much time of this thread's processor."""
    begin, value = time.thread_time(), 0.0
    for timeline in improvements(
        instance,
        Objective.MEAN_SLOWDOWN,
        None,
        seed,
        None,
        lambda: (time.thread_time() - begin) / seconds,
        parameters,
    ):
        exact = timeline_value(Objective.MEAN_SLOWDOWN, instance, timeline)
        value = float(reported_value(Objective.MEAN_SLOWDOWN, exact))
    return value


def draws(jobs: int, seconds: float, parameters: Parameters | None = None) -> None:
    """Print the mean slowdown per window and seed, and the mean over all."""
    found = []
    for name, instance in windows(jobs):
        values = [planned(instance, seconds, seed, parameters) for seed in SEEDS]
        print(f"{name}: {', '.join(f'{value:.4f}' for value in values)}", flush=True)
        found += values
    print(f"mean {mean(found):.4f}")
