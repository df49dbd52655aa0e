"""What several annealings of one window are worth: plans of equal processor time, whatever the number of threads."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

from models import Instance, Objective
from models.objective import reported_value
from solvers.result import Search
from solvers.search.annealing import improve
from solvers.search.exchange import Exchange

WORKERS = (1, 2, 8)
SEEDS = (0, 1)
_ENDLESS_S = 1e6


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


def workers(instance: Instance, seconds: float) -> None:
    """Print the mean slowdown per number of threads, for every seed."""
    for count in WORKERS:
        values = [planned(instance, seconds, count, seed) for seed in SEEDS]
        print(f"{count} workers: {', '.join(f'{value:.4f}' for value in values)}", flush=True)
