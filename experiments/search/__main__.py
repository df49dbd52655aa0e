"""Benchmarks of dispatch rules and annealing; each prints one line per case.

python -m experiments.search compass --seconds 60            first 100 jobs of the shared arrivals at 2, 3, 4 jobs/s
python -m experiments.search compass --jobs 2000 --seconds 120
python -m experiments.search scale                           time per task of the first plan, 10^3 to 10^6 tasks
python -m experiments.search shops --seconds 60              makespan of mk01 to mk10 beside the best known values
python -m experiments.search unrelated --seconds 30          weighted completion time on unrelated machines
python -m experiments.search moves --seconds 10              each kind of move left out in turn
python -m experiments.search lns --seconds 60                large neighbourhoods after annealing, beside it alone
python -m experiments.search neighbourhoods --seconds 20     each kind of large neighbourhood left out in turn
"""

from __future__ import annotations

import argparse
import csv
import random
import resource
import time
from collections.abc import Callable
from fractions import Fraction

from experiments import authors
from experiments.exact.known import SHARED, flexible_job_shop, machines
from experiments.search import large_neighbourhoods
from models import Instance, Job, Objective, Task, Workflow
from models.objective import reported_value
from solvers.annealing import Parameters, improve
from solvers.dispatch import greedy
from solvers.neighbourhood import MOVES
from solvers.result import Search

RATES = (2, 3, 4)


def compass(rate: int, jobs: int) -> Instance:
    """Return the first jobs of the shared arrivals at a rate, the first released at 0."""
    path = SHARED.parent / "compass" / f"arrivals_{rate}_per_s.csv"
    return authors.instance(authors.recorded(path, jobs, from_zero=True))


def unrelated(gpus: int, jobs: int, seed: int) -> Instance:
    """Return jobs of one task with run times of 1 to 30 ms, uniform per machine, and weights of 1 to 100."""
    rng = random.Random(seed)  # noqa: S311
    kinds = [f"K{index}" for index in range(gpus)]
    return Instance(
        machines(kinds),
        (),
        tuple(
            Job(
                Workflow(f"w{job}", (Task("t", {kind: 1000 * rng.randint(1, 30) for kind in kinds}),)),
                0,
                Fraction(rng.randint(1, 100)),
            )
            for job in range(jobs)
        ),
    )


def search(instance: Instance, objective: Objective, seconds: float, parameters: Parameters | None = None) -> Search:
    """Return a search that annealing has worked on."""
    running = Search(instance, objective, seconds)
    improve(running, parameters=parameters)
    return running


def report(name: str, running: Search) -> float:
    """Print the first value, the last, and the time of each; return the last."""
    trail = running.result("annealing", {}).incumbents
    values = [reported_value(running.objective, moment.value) for moment in trail if moment.value is not None]
    print(
        f"{name}: {values[0]:.4f} after {trail[0].seconds:.2f} s, {values[-1]:.4f} after {trail[-1].seconds:.1f} s",
        flush=True,
    )
    return values[-1]


def run_compass(options: argparse.Namespace) -> None:
    """Mean slowdown of the authors' workload."""
    for rate in RATES:
        instance = compass(rate, options.jobs)
        report(f"{rate} jobs/s, {options.jobs} jobs", search(instance, Objective.MEAN_SLOWDOWN, options.seconds))


def run_scale(options: argparse.Namespace) -> None:
    """Time per task of the first plan."""
    greedy(authors.instance(authors.poisson(4, 10, 0)), Objective.MEAN_SLOWDOWN)  # loads the compiled kernels
    for gpus, rate in ((5, 4.0), (500, 400.0)):
        for tasks in (1_000, 10_000, 100_000, 1_000_000):
            instance = authors.instance(authors.poisson(rate, round(tasks / 3.75), 1), gpus)
            begin = time.perf_counter()
            greedy(instance, Objective.MEAN_SLOWDOWN)
            took = time.perf_counter() - begin
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
            print(
                f"{gpus} GPUs, {instance.n_tasks} tasks: {took:.2f} s, {took / instance.n_tasks * 1e6:.1f} us per task,"
                f" peak {peak:.2f} GB",
                flush=True,
            )


def run_shops(options: argparse.Namespace) -> None:
    """Makespan of Brandimarte's flexible job shops."""
    with (SHARED / "fjsp" / "scheduleopt_bks.csv").open(newline="") as file:
        rows = {row["instance"]: row for row in csv.DictReader(file)}
    for number in range(1, 11):
        name = f"mk{number:02d}"
        instance = flexible_job_shop(SHARED / "fjsp" / "brandimarte" / f"{name}.txt")
        running = search(instance, Objective.MAKESPAN, options.seconds)
        print(f"{name}: {running.value}, best known {rows[name]['upper_bound']}", flush=True)


def run_unrelated(options: argparse.Namespace) -> None:
    """Weighted completion time on unrelated machines; the best of the last tenth shows whether it still falls."""
    for gpus, jobs in ((4, 40), (10, 100), (20, 200)):
        report(f"{gpus} x {jobs}", search(unrelated(gpus, jobs, 1), Objective.WEIGHTED_LATENCY, options.seconds))


def run_moves(options: argparse.Namespace) -> None:
    """Mean slowdown with each kind of move left out."""
    base = Parameters()
    cases = {"all": base.chances} | {
        f"without {name}": tuple(0.0 if index == left_out else chance for index, chance in enumerate(base.chances))
        for left_out, name in enumerate(MOVES)
    }
    for name, chances in cases.items():
        for rate in RATES:
            running = search(compass(rate, 100), Objective.MEAN_SLOWDOWN, options.seconds, Parameters(chances=chances))
            report(f"{name}, {rate} jobs/s", running)


def run_lns(options: argparse.Namespace) -> None:
    """Mean slowdown of annealing alone, and with large neighbourhoods for the second half of the time."""
    for rate in RATES:
        instance = compass(rate, options.jobs)
        large_neighbourhoods.beside_annealing(f"{rate} jobs/s", instance, Objective.MEAN_SLOWDOWN, options.seconds)


def run_neighbourhoods(options: argparse.Namespace) -> None:
    """Mean slowdown with each kind of large neighbourhood left out."""
    for rate in RATES:
        instance = compass(rate, options.jobs)
        large_neighbourhoods.left_out(f"{rate} jobs/s", instance, Objective.MEAN_SLOWDOWN, options.seconds)


BENCHMARKS: dict[str, Callable[[argparse.Namespace], None]] = {
    "compass": run_compass,
    "scale": run_scale,
    "shops": run_shops,
    "unrelated": run_unrelated,
    "moves": run_moves,
    "lns": run_lns,
    "neighbourhoods": run_neighbourhoods,
}


def main() -> None:
    """Run the benchmark that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m experiments.search")
    parser.add_argument("benchmark", choices=BENCHMARKS)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--jobs", type=int, default=100)
    options = parser.parse_args()
    BENCHMARKS[options.benchmark](options)


if __name__ == "__main__":
    main()
