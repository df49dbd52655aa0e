"""Benchmarks of dispatch rules and annealing; each prints one line per case.

python -m experiments.search compass --seconds 60            first 100 jobs of the shared arrivals at 2, 3, 4 jobs/s
python -m experiments.search compass --jobs 2000 --seconds 120
python -m experiments.search scale                           time per task of the first plan, 10^3 to 10^6 tasks
python -m experiments.search shops --seconds 60              makespan of mk01 to mk10 beside the best known values
python -m experiments.search pyjobshop --seconds 15          makespan of flexible job shops beside PyJobShop's
python -m experiments.search parallel --seconds 20           makespan on parallel machines beside the optima
python -m experiments.search unrelated --seconds 30          weighted completion time on unrelated machines
python -m experiments.search proved --seconds 5              fifty windows that CP-SAT proves
python -m experiments.search adverse --seconds 10            overload, and memory for one model
python -m experiments.search moves --seconds 10              each kind of move left out in turn
python -m experiments.search draws --seconds 20              eight windows, by seconds of one thread's processor time
python -m experiments.search workers --jobs 2000 --seconds 30    1, 2 and 8 threads at equal processor time, 4 jobs/s
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from pathlib import Path

from experiments import authors
from experiments.search import beside_pyjobshop, draws, planned, workers
from experiments.suites.data import KNOWN_OPTIMA
from models import Instance, Objective
from models.objective import reported_value
from solvers.result import Search
from solvers.search.annealer import Parameters
from solvers.search.annealing import improve
from solvers.search.dispatch import greedy
from solvers.search.neighbourhood import MOVES

RATES = (2, 3, 4)


def compass(rate: int, jobs: int) -> Instance:
    """Return the first jobs of the shared arrivals at a rate, the first released at 0."""
    return authors.instance(authors.recorded(rate, jobs))


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


BENCHMARKS: dict[str, Callable[[argparse.Namespace], None]] = {
    "compass": run_compass,
    "scale": run_scale,
    "shops": lambda options: planned.shops(options.seconds),
    "pyjobshop": lambda options: beside_pyjobshop.compare(
        options.data, options.instances, options.seconds, options.output
    ),
    "parallel": lambda options: planned.parallel(options.seconds),
    "unrelated": lambda options: planned.unrelated(options.seconds),
    "proved": lambda options: planned.proved(options.seconds),
    "adverse": lambda options: planned.adverse(options.seconds),
    "moves": run_moves,
    "draws": lambda options: draws.draws(options.jobs, options.seconds),
    "workers": lambda options: workers.workers(compass(4, options.jobs), options.seconds),
}


def main() -> None:
    """Run the benchmark that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m experiments.search")
    parser.add_argument("benchmark", choices=BENCHMARKS)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--data", type=Path, default=KNOWN_OPTIMA, help="pyjobshop: folder that holds fjsp")
    parser.add_argument(
        "--instances", nargs="*", default=[], help="pyjobshop: such as mk01 or edata/la16; default sixty"
    )
    parser.add_argument("-o", "--output", type=Path, default=Path("build/pyjobshop"), help="pyjobshop: kept results")
    options = parser.parse_args()
    BENCHMARKS[options.benchmark](options)


if __name__ == "__main__":
    main()
