"""``python -m experiments.search BENCHMARK``: dispatch rules, annealing, and plans of instances with known values."""

from __future__ import annotations

import random
import resource
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Annotated, Any

from experiments import authors, beside_pyjobshop
from experiments.bench import ask, bench, plan_window
from experiments.bounds import machines_apart
from experiments.suites import flexible_job_shop, parallel_machines
from experiments.suites.case import KNOWN_OPTIMA, Case
from truenorth.models import Instance, Objective, timeline_value
from truenorth.models.objective import Status, reported_value
from truenorth.solvers.bounds.lagrangian.improve import improve as raise_bound
from truenorth.solvers.budget import Method
from truenorth.solvers.result import Search
from truenorth.solvers.search import beam
from truenorth.solvers.search.annealer import Parameters
from truenorth.solvers.search.annealing import improve, improvements
from truenorth.solvers.search.dispatch import greedy
from truenorth.solvers.search.neighbourhood import MOVES
from truenorth.solvers.search.teams import Exchange

WORKERS = (1, 2, 8)
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


SLOWDOWN = Objective.MEAN_SLOWDOWN
RATES = (2, 3, 4)
SEEDS = (0, 1)
RECORDED_AT = (0, 200, 300, 500, 600)
"""First jobs of the windows of the recorded arrivals at 4 jobs/s."""
POISSON_SEEDS = (2, 3, 6)
SHOPS = frozenset(f"mk{number:02d}" for number in range(1, 11))
_PROOF_S = 20.0
_PLAN = "{name}: {status}, plan {value:.8g}, bound {bound:.8g}, gap {gap:.2%}, {seconds:.1f} s{known}"
_TRAIL = "{name}: {first:.4f} after {first_s:.2f} s, {last:.4f} after {last_s:.1f} s"
Seconds = Annotated[float, "per plan"]


def compass(seconds: Seconds = 60.0, jobs: int = 100) -> None:
    """Mean slowdown that annealing reaches on the first recorded jobs, at 2, 3 and 4 jobs/s."""
    windows = ((f"{rate} jobs/s, {jobs} jobs", recorded(rate, jobs)) for rate in RATES)
    bench(windows, lambda window: _annealed(window, seconds), _TRAIL)


def recorded(rate: int, jobs: int) -> Instance:
    """Return the first jobs of the recorded arrivals at a rate, the first released at 0."""
    return authors.instance(authors.recorded(rate, jobs))


def _annealed(window: Instance, seconds: float, parameters: Parameters | None = None) -> dict[str, Any]:
    """Return the first value, the last, and the time of each."""
    search = Search(window, SLOWDOWN, seconds)
    improve(search, parameters=parameters)
    trail = search.result("annealing", {}).incumbents
    values = [reported_value(SLOWDOWN, moment.value) for moment in trail if moment.value is not None]
    return {"first": values[0], "first_s": trail[0].seconds, "last": values[-1], "last_s": trail[-1].seconds}


def moves(seconds: Seconds = 60.0) -> None:
    """Mean slowdown with each kind of move left out in turn."""
    base = Parameters()
    cases = {"all": base.chances} | {
        f"without {name}": tuple(0.0 if index == left_out else chance for index, chance in enumerate(base.chances))
        for left_out, name in enumerate(MOVES)
    }
    bench(
        ((f"{name}, {rate} jobs/s", (rate, chances)) for name, chances in cases.items() for rate in RATES),
        lambda asked: _annealed(recorded(asked[0], 100), seconds, Parameters(chances=asked[1])),
        _TRAIL,
    )


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


def shops(seconds: Seconds = 60.0) -> None:
    """Makespan of mk01 to mk10 beside the best known values (a time unit is a microsecond)."""
    _beside_known((case for case in flexible_job_shop.cases(KNOWN_OPTIMA) if case.name in SHOPS), seconds)


def parallel(seconds: Seconds = 60.0) -> None:
    """Makespan on parallel machines beside the computed optima."""
    _beside_known(parallel_machines.cases(KNOWN_OPTIMA), seconds)


def _beside_known(cases: Iterable[Case], seconds: float) -> None:
    def planned(case: Case) -> dict[str, Any]:
        known = "" if case.known is None else f", known {case.known.lower} to {case.known.upper} us"
        return _planned(case.scenario.instance, Objective.MAKESPAN, seconds) | {"known": known}

    bench(((case.name, case) for case in cases), planned, _PLAN)


def _planned(instance: Instance, objective: Objective, seconds: float) -> dict[str, Any]:
    found = plan_window(instance, objective, seconds)
    if found["gap"] is None:
        raise SystemExit(f"no plan, or no bound: {found['status']}")
    return found | {"known": ""}


def unrelated(seconds: Seconds = 60.0) -> None:
    """Weighted completion time on unrelated machines."""
    bench(
        ((size.replace("x", " x "), machines_apart(size, 1)) for size in ("4x40", "6x60", "10x100", "20x200")),
        lambda instance: _planned(instance, Objective.WEIGHTED_LATENCY, seconds),
        _PLAN,
    )


def adverse(seconds: Seconds = 60.0) -> None:
    """Mean slowdown where there is more work than the GPUs can do, and where memory holds one model only."""
    overload = authors.instance(authors.poisson(6, 100, 1))
    largest = int(overload.weight_bytes.max())
    gpus = tuple(replace(gpu, memory_bytes=largest) for gpu in overload.cluster.gpus)
    starved = replace(authors.instance(authors.poisson(2, 100, 1)), cluster=replace(overload.cluster, gpus=gpus))
    windows = {"6 jobs/s, 100 jobs": overload, "2 jobs/s, memory for one model": starved}
    bench(windows.items(), lambda window: _planned(window, SLOWDOWN, seconds), _PLAN)


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


def share_window(seconds: Seconds = 60.0, jobs: int = 100) -> None:
    """1, 2 and 8 threads at equal processor time, 4 jobs/s."""
    workers(recorded(4, jobs), seconds)


def pyjobshop(
    seconds: Seconds = 60.0,
    data: Annotated[Path, "folder that holds fjsp"] = KNOWN_OPTIMA,
    instances: Annotated[tuple[str, ...], "such as mk01 or edata/la16; default sixty"] = (),
    output: Annotated[Path, "kept results"] = Path("build/pyjobshop"),
) -> None:
    """Makespan of flexible job shops beside PyJobShop's."""
    beside_pyjobshop.compare(data, instances, seconds, output)


if __name__ == "__main__":
    questions = (compass, scale, shops, pyjobshop, parallel, unrelated, proved, adverse, moves, draws)
    ask({question.__name__: question for question in questions} | {"workers": share_window})
