"""``python -m experiments.servers``: known minima, the authors' workload, and the fluid bound at scale."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

from experiments import authors
from experiments.scenarios.azure_arrivals import arrivals
from experiments.servers import mixes
from experiments.suites import parallel_machines
from experiments.suites.data import KNOWN_OPTIMA, best_known, found
from experiments.suites.triplets import CAPACITY, triplets
from models import Cluster, Instance, Job, MLModel, ServiceLevel, ServiceLevels
from models.record import encode
from models.scenario import Scenario, load_scenario, scenario_from
from models.units import parse_time
from planner import servers
from planner.answers.questions import schedule
from planner.answers.servers.goal import Tolerance
from solvers.bounds import fluid

AZURE = Path(__file__).parents[1] / "scenarios" / "azure.yaml"
CONVERSATIONS = KNOWN_OPTIMA.parent / "azure_llm_2023" / "AzureLLMInferenceTrace_conv.csv.gz"
LOAD, WORK_S = 0.8, 0.996
"""Share of the GPUs' time that a large instance takes, and the mean work of a job."""
AUTHORS = Path(__file__).parents[1] / "scenarios" / "compass_edge.yaml"


def _data_of(base: Scenario) -> dict[str, Any]:
    """Return what a scenario file says."""
    return dict(base.source.root.data()) if base.source.root is not None else {}  # type: ignore[call-overload]


def authors_scenario(rate: int, jobs: int) -> Scenario:
    """Return the first recorded jobs of the authors' workload, shifted to 0."""
    base = load_scenario(AUTHORS)
    arrivals = authors.recorded(rate, jobs)
    data = _data_of(base)
    data["workload"] = {"jobs": [{"release": f"{at} us", "workflow": name} for at, name in arrivals]}
    return scenario_from({**data, "name": f"authors, {rate} jobs/s, {jobs} jobs"})


def large(jobs: int, gpus: int) -> Instance:
    """Return a day's worth of the authors' jobs on many GPUs, at four fifths of their capacity."""
    rate = LOAD * gpus / WORK_S
    arrivals = authors.poisson(rate, jobs, seed=1)
    known = authors.workflows()
    made = tuple(Job(known[name], release) for release, name in arrivals)
    models = tuple(MLModel(name, size * authors.KB) for name, size in authors.MODELS.items())
    on: Cluster = authors.cluster(gpus)
    return Instance(on, models, made)


def run_triplets(arguments: argparse.Namespace) -> None:
    """Print the proved minimum for triplets."""
    level = ServiceLevels.parse("no late jobs")
    for items in (30, 60):
        for seed in range(1, arguments.seeds + 1):
            scenario = parallel_machines.scenario(f"triplets {items}", triplets(items, seed), 1, CAPACITY)
            answer = servers(scenario, level, policies=(), time_limit_s=arguments.time_limit)
            line = f"{items} items, seed {seed}: {answer.servers} servers of {items // 3}, proved {answer.proved}"
            print(f"{line}, {answer.runtime_s:.1f} s", flush=True)


def run_pcmax(arguments: argparse.Namespace) -> None:
    """Print both sides of the decision at every known optimum."""
    level = ServiceLevels.parse("no late jobs")
    folder = KNOWN_OPTIMA / "pcmax"
    closed = {name: known for name, known in best_known(folder / "optima.csv").items() if known.lower == known.upper}
    for name, known in closed.items():
        sizes, count = parallel_machines.read(folder / name)
        for deadline, wanted in ((known.upper, "met"), (known.upper - 1, "refuted")):
            scenario = parallel_machines.scenario(name, sizes, count, deadline)
            answer = servers(scenario, level, policies=(), most=count, time_limit_s=arguments.time_limit)
            met = answer.servers is not None and answer.servers <= count
            refuted = answer.least is None
            said = "met" if met else "refuted" if refuted else "open"
            line = f"{name}: {count} machines, deadline {deadline}: {said} (expected {wanted})"
            print(f"{line}, {answer.runtime_s:.1f} s", flush=True)


def run_authors(arguments: argparse.Namespace) -> None:
    """Print the interval and the policies for the authors' workload."""
    level = ServiceLevels.parse(arguments.slo)
    for rate in arguments.rates:
        answer = servers(authors_scenario(rate, arguments.jobs), level, time_limit_s=arguments.time_limit)
        reached = {row.policy: None if row.mix is None else sum(row.mix) for row in answer.policies}
        print(f"{rate} jobs/s: {answer.lower_bound} to {answer.servers} servers, {answer.runtime_s:.0f} s, {reached}")
        print(f"   {answer.refutation.forces if answer.refutation else ''}", flush=True)


def run_fluid(arguments: argparse.Namespace) -> None:
    """Print how long the fluid bound takes on a large instance."""
    instance = large(arguments.jobs_at_scale, arguments.gpus)
    tolerance = Tolerance(ServiceLevel.parse(arguments.slo), 1, Fraction(99, 100))
    begun = time.process_time(), time.monotonic()
    due, late = tolerance.due_us(instance), tolerance.most_late(instance)
    least, demand = fluid.least_gpus(instance, due, late)
    spent = f"{time.process_time() - begun[0]:.2f} s of CPU, {time.monotonic() - begun[1]:.2f} s"
    size = f"{len(instance.jobs)} jobs, {instance.n_tasks} tasks, {instance.n_gpus} GPUs"
    print(f"{size}: at least {least} GPUs, {spent}")
    if demand is not None:
        print(f"   window {demand.begin_us / 1e6:.6g} s to {demand.end_us / 1e6:.6g} s, {demand.resource}")


def run_large(arguments: argparse.Namespace) -> None:
    """Print the interval for many jobs on many GPUs, by the fluid bound and plans of a dispatch rule."""
    base = load_scenario(AUTHORS)
    data = _data_of(base)
    mix = dict.fromkeys(base.document.workflows, 1)
    rate, cluster = f"{LOAD * arguments.gpus / WORK_S:g} /s", {**data["cluster"], "servers": arguments.gpus}
    arrivals = {"poisson": {"rate": rate, "jobs": arguments.jobs_at_scale, "seed": 1, "mix": mix}}
    begun = time.monotonic()
    scenario = scenario_from({**data, "cluster": cluster, "workload": arrivals, "slo": arguments.slo})
    print(f"{arguments.jobs_at_scale} jobs read in {time.monotonic() - begun:.1f} s", flush=True)

    def tell(words: str) -> None:
        print(f"   {time.monotonic() - begun:6.1f} s: {words}", flush=True)

    answer = servers(scenario, policies=(), time_limit_s=arguments.time_limit, watch=tell)
    print(f"{answer.lower_bound} to {answer.servers} servers, {answer.runtime_s:.1f} s")
    print(f"   {answer.refutation.forces if answer.refutation else ''}")


def run_mixes(arguments: argparse.Namespace) -> None:
    """Print how often the cheapest of all mixes was found, and whether a floor lay above it."""
    equal = 0
    for seed in range(arguments.first, arguments.draws):
        try:
            one = mixes.check(seed, arguments.spare, arguments.time_limit)
        except mixes.UnprovedError as error:
            print(f"draw {seed}: {error}", flush=True)
            continue
        equal += one.agrees
        said = f"{one.found}, proved {one.proved}, by brute force {one.cheapest}, {one.false_floors} false floors"
        print(f"draw {seed}: {one.level}: of {one.mixes} mixes {said}, {one.runtime_s:.1f} s", flush=True)
    print(f"equal: {equal} of {arguments.draws - arguments.first}")


def azure_hour() -> Scenario:
    """Return an hour of the Azure conversation trace as the authors' workflows, on servers that take time to start."""
    base = load_scenario(AZURE)
    data = _data_of(base)
    cluster = data["cluster"]
    group = {"count": 12, "gpu": cluster["gpu"], "price_per_hour": 0.5, "start_up": "30 s"}
    jobs = [{"release": f"{at} ms", "workflow": name} for at, name in arrivals(found(CONVERSATIONS), 60)]
    changed = {"cluster": {"groups": [group], "network": cluster["network"]}, "workload": {"jobs": jobs}}
    return scenario_from({**data, **changed, "name": "azure, one hour"})


def run_day(arguments: argparse.Namespace) -> None:
    """Print the cheapest schedule over an hour of the Azure trace, by ten minutes."""
    level = ServiceLevels.parse(arguments.day_slo)
    answer = schedule(azure_hour(), level, by_us=parse_time(arguments.by), time_limit_s=arguments.time_limit)
    fixed, told = answer.fixed, answer.record
    print(f"{fixed.lower_bound} to {fixed.servers} servers that stay; {answer.runtime_s:.0f} s")
    for row in told.intervals:
        counts = {name: count.servers for name, count in row.policies.items()}
        said = f"at least {row.minimum.lower_bound}, found {row.minimum.servers}, {counts}"
        print(f"   from {row.from_s:g} s: {row.jobs} jobs, {said}")
    print(f"   {encode(told.schedule)}", flush=True)


BENCHMARKS: dict[str, Callable[[argparse.Namespace], None]] = {
    "triplets": run_triplets,
    "pcmax": run_pcmax,
    "authors": run_authors,
    "fluid": run_fluid,
    "large": run_large,
    "mixes": run_mixes,
    "day": run_day,
}


def main() -> None:
    """Run one benchmark."""
    parser = argparse.ArgumentParser(prog="python -m experiments.servers", description=__doc__)
    parser.add_argument("benchmark", choices=list(BENCHMARKS))
    parser.add_argument("--time-limit", type=float, default=300.0, help="seconds per answer")
    parser.add_argument("--spare", type=int, default=0, help="servers that may be gone of a mix")
    parser.add_argument("--draws", type=int, default=20, help="random mixes")
    parser.add_argument("--first", type=int, default=0, help="of the draws")
    parser.add_argument("--seeds", type=int, default=3, help="triplets per size")
    parser.add_argument("--rates", type=int, nargs="+", default=[2, 3, 4], help="jobs per second")
    parser.add_argument("--jobs", type=int, default=300, help="jobs of the authors' workload")
    parser.add_argument("--slo", default="p99 slowdown <= 2")
    parser.add_argument("--day-slo", default="p95 slowdown <= 3")
    parser.add_argument("--by", default="10 min", help="interval of the schedule")
    parser.add_argument("--jobs-at-scale", type=int, default=1_000_000)
    parser.add_argument("--gpus", type=int, default=10_000)
    arguments = parser.parse_args()
    BENCHMARKS[arguments.benchmark](arguments)


if __name__ == "__main__":
    main()
