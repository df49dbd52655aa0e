"""``python -m experiments search BENCHMARK``: how good plans are how soon, by how many threads, beside others."""

from __future__ import annotations

import random
import resource
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from statistics import mean
from typing import Annotated, Any

from experiments import authors
from experiments.bench import ask, bench, plan_window
from experiments.benchmarks import beside_pyjobshop
from truenorth.models import Instance, Objective, timeline_value
from truenorth.models.objective import Status, reported_value
from truenorth.solvers.bounds.lagrangian.improve import improve as raise_bound
from truenorth.solvers.budget import Method
from truenorth.solvers.clock import Clock
from truenorth.solvers.result import Search
from truenorth.solvers.search import beam
from truenorth.solvers.search.annealing import improve, improvements
from truenorth.solvers.search.dispatch import greedy
from truenorth.solvers.search.teams import Exchange

SLOWDOWN = Objective.MEAN_SLOWDOWN
SEEDS, WORKERS = (0, 1), (1, 2, 8)
RECORDED_AT = (0, 200, 300, 500, 600)
"""First jobs of the windows of the recorded arrivals at 4 jobs/s."""
POISSON_SEEDS = (2, 3, 6)
_ENDLESS_S, _PRICES_S, _PROOF_S = 1e6, 8.0, 20.0
Seconds = Annotated[float, "per plan"]


def scale() -> None:
    """Time per task of the first plan, 10^3 to 10^6 tasks."""

    def dispatched(instance: Instance) -> dict[str, Any]:
        begin = time.perf_counter()
        greedy(instance, SLOWDOWN)
        took = time.perf_counter() - begin
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        return {"tasks": instance.n_tasks, "took": took, "each": took / instance.n_tasks * 1e6, "peak": peak}

    greedy(authors.instance(authors.poisson(4, 10, 0)), SLOWDOWN)  # loads the compiled kernels
    bench(
        (
            (f"{gpus} GPUs", authors.instance(authors.poisson(rate, round(tasks / 3.75), 1), gpus))
            for gpus, rate in ((5, 4.0), (500, 400.0))
            for tasks in (1_000, 10_000, 100_000, 1_000_000)
        ),
        dispatched,
        "{name}, {tasks} tasks: {took:.2f} s, {each:.1f} us per task, peak {peak:.2f} GB",
    )


def proved(seconds: Seconds = 60.0, instances: Annotated[int, "until so many are proved"] = 50) -> None:
    """Plans of small windows after a few seconds beside what CP-SAT proves in twenty.

    Windows of 8 to 18 jobs (30 to 70 tasks) of the authors' workload at 1 to 2 jobs/s on three GPUs.
    """
    rng = random.Random(0)  # noqa: S311
    above: list[float] = []

    def beside_proof(seed: int) -> dict[str, Any] | None:
        jobs, rate = rng.randint(8, 18), rng.choice((1.0, 1.5, 2.0))
        instance = authors.instance(authors.poisson(rate, jobs, seed), gpus=3)
        objective = rng.choice((SLOWDOWN, Objective.MEAN_LATENCY))
        best = plan_window(instance, objective, _PROOF_S, method=Method.CP_SAT)["result"]
        if best.status is not Status.OPTIMAL or best.value is None:
            return None
        quick = plan_window(instance, objective, seconds)["result"]
        if quick.value is None:
            raise SystemExit(f"seed {seed}: {quick.status}")
        above.append(float(quick.value / best.value) - 1)
        return {"tasks": instance.n_tasks, "above": above[-1]}

    def seeds() -> Iterator[tuple[str, int]]:
        for seed in range(10 * instances):
            if len(above) < instances:
                yield f"seed {seed}", seed

    bench(seeds(), beside_proof, "{name}: {tasks} tasks, {above:.3%} above")
    equal = sum(abs(share) <= 1e-6 for share in above)
    print(f"{len(above)} proved: {equal} equal, worst {max(above, default=0.0):.3%} above the optimum")


def draws(seconds: Seconds = 60.0, jobs: int = 100) -> None:
    """Eight windows at 4 jobs/s that no test holds, by seconds of one thread's processor time."""

    def windows() -> Iterator[tuple[str, Instance]]:
        for first in RECORDED_AT:
            yield f"recorded, from job {first}", authors.instance(authors.recorded(4, jobs, first))
        for seed in POISSON_SEEDS:
            yield f"drawn, seed {seed}", authors.instance(authors.poisson(4, jobs, seed))

    def annealed(window: Instance) -> dict[str, Any]:
        values = [_slowdown_by_thread_time(window, seconds, seed) for seed in SEEDS]
        return {"values": values, "said": ", ".join(f"{value:.4f}" for value in values)}

    rows = bench(windows(), annealed, "{name}: {said}")
    print(f"mean {mean(value for row in rows for value in row['values']):.4f}")


def _slowdown_by_thread_time(instance: Instance, seconds: float, seed: int) -> float:
    """Return the mean slowdown of the plan that annealing finds in so much time of this thread's processor."""
    begin, value = time.thread_time(), 0.0
    clock = lambda: (time.thread_time() - begin) / seconds  # noqa: E731
    for timeline in improvements(instance, SLOWDOWN, None, seed, None, clock):
        value = reported_value(SLOWDOWN, timeline_value(SLOWDOWN, instance, timeline))
    return value


def planned(instance: Instance, seconds: float, workers: int, seed: int) -> float:
    """Return the mean slowdown that so many threads reach in so much processor time together."""
    running = Search(instance, SLOWDOWN, _ENDLESS_S)
    exchange = Exchange(Clock(seconds, tell=time.process_time), workers)
    with ThreadPoolExecutor(workers) as pool:
        annealings = [
            pool.submit(improve, running, workers * seed + index, exchange=exchange) for index in range(workers)
        ]
        for annealing in annealings:
            annealing.result()
    if running.value is None:
        raise SystemExit("no plan")
    return reported_value(SLOWDOWN, running.value)


def beam_plans(instance: Instance, seconds: float) -> None:
    """Print the trail of plans by shared beams per number of threads, all guided by the same prices."""
    priced = raise_bound(Search(instance, SLOWDOWN, _PRICES_S))
    guide = None if priced is None else beam.guide_of(Search(instance, SLOWDOWN, 1.0), priced)
    if guide is None:
        raise SystemExit("no prices in time, or too many for a guide")
    for count in WORKERS:
        running = Search(instance, SLOWDOWN, Clock(seconds, tell=time.process_time))
        beam.improve(running, guide, seconds, threads=count)
        trail = running.result("beams", {}).incumbents
        told = [f"{reported_value(SLOWDOWN, at.value):.4f} at {at.seconds:.1f} s" for at in trail if at.value]
        print(f"beams, {count} workers: {', '.join(told)}", flush=True)


def workers(seconds: Seconds = 60.0, jobs: int = 100) -> None:
    """1, 2 and 8 threads at equal processor time, 4 jobs/s: by beams, and by annealing for every seed."""
    window = authors.instance(authors.recorded(4, jobs))
    beam_plans(window, seconds)
    for count in WORKERS:
        values = [planned(window, seconds, count, seed) for seed in SEEDS]
        print(f"annealing, {count} workers: {', '.join(f'{value:.4f}' for value in values)}", flush=True)


main = partial(
    ask,
    {question.__name__: question for question in (scale, proved, draws, workers)}
    | {"pyjobshop": beside_pyjobshop.compare},
)
