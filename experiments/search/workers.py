"""What several threads on one window are worth: plans of equal processor time, whatever the number of threads."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

from truenorth.models import Instance, Objective
from truenorth.models.objective import reported_value
from truenorth.solvers.bounds.lagrangian.improve import improve as raise_bound
from truenorth.solvers.result import Search
from truenorth.solvers.search import beam
from truenorth.solvers.search.annealing import improve
from truenorth.solvers.search.teams import Exchange

WORKERS = (1, 2, 8)
SEEDS = (0, 1)
_ENDLESS_S, _PRICES_S = 1e6, 8.0


class ByProcessor(Exchange):
    """A meeting place whose clock is the processor time of all its annealings together."""

    def __init__(self, seconds: float, workers: int) -> None:
        super().__init__(seconds, workers)
        self._begun, self._seconds = time.process_time(), seconds

    @property
    def passed(self) -> float:
        """Share of the processor time that has passed."""
        return (time.process_time() - self._begun) / self._seconds


def planned(instance: Instance, seconds: float, workers: int, seed: int) -> float:
    """Return the mean slowdown that so many threads reach in so much processor time together."""
    running, exchange = Search(instance, Objective.MEAN_SLOWDOWN, _ENDLESS_S), ByProcessor(seconds, workers)
    with ThreadPoolExecutor(workers) as pool:
        annealings = [
            pool.submit(improve, running, workers * seed + index, exchange=exchange) for index in range(workers)
        ]
        for annealing in annealings:
            annealing.result()
    if running.value is None:
        raise SystemExit("no plan")
    return reported_value(Objective.MEAN_SLOWDOWN, running.value)


class TimedByProcessor(Search):
    """A search whose clock is the processor time of this process."""

    def __init__(self, instance: Instance, seconds: float) -> None:
        self._processor_s = time.process_time()
        super().__init__(instance, Objective.MEAN_SLOWDOWN, seconds)

    @property
    def elapsed_s(self) -> float:
        """Seconds of processor time since the start."""
        return time.process_time() - self._processor_s


def beam_plans(instance: Instance, seconds: float) -> None:
    """Print the trail of plans by shared beams per number of threads, all guided by the same prices."""
    priced = raise_bound(Search(instance, Objective.MEAN_SLOWDOWN, _PRICES_S))
    guide = None if priced is None else beam.guide_of(Search(instance, Objective.MEAN_SLOWDOWN, 1.0), priced)
    if guide is None:
        raise SystemExit("no prices in time, or too many for a guide")
    for count in WORKERS:
        running = TimedByProcessor(instance, seconds)
        beam.improve(running, guide, seconds, threads=count)
        trail = running.result("beams", {}).incumbents
        told = [
            f"{reported_value(Objective.MEAN_SLOWDOWN, at.value):.4f} at {at.seconds:.1f} s" for at in trail if at.value
        ]
        print(f"beams, {count} workers: {', '.join(told)}", flush=True)


def workers(instance: Instance, seconds: float) -> None:
    """Print the mean slowdown per number of threads, by beams and by annealing, for every seed of these."""
    beam_plans(instance, seconds)
    for count in WORKERS:
        values = [planned(instance, seconds, count, seed) for seed in SEEDS]
        print(f"annealing, {count} workers: {', '.join(f'{value:.4f}' for value in values)}", flush=True)
