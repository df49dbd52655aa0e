"""``python -m experiments.bounds BENCHMARK``: prints a table of figures."""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from experiments import authors
from experiments.bounds import batches
from experiments.random_instances import random_instance, random_serving_instance
from models import GPU, Cluster, Instance, Job, Link, Network, Objective, Task, Workflow
from models.objective import reported_bound
from solvers.bounds import closed_form
from solvers.bounds.certificate import closed_form_document, lagrangian_document
from solvers.bounds.granularity import round_up
from solvers.bounds.lagrangian.improve import Priced, improve
from solvers.bounds.verify import verify
from solvers.exact import exhaustive
from solvers.result import Search

WINDOW_US = 6_000_000
"""Latest delay that the linear programme knows."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one benchmark."""
    parser = argparse.ArgumentParser(prog="python -m experiments.bounds", description=__doc__)
    commands = parser.add_subparsers(required=True)
    for name, run, seconds in (
        ("recorded", run_recorded, 40.0),
        ("poisson", run_poisson, 40.0),
        ("unrelated", run_unrelated, 20.0),
        ("lp", run_linear_programme, 60.0),
        ("oracle", run_oracle, 0.1),
        ("batches", run_batches, 8.0),
    ):
        command = commands.add_parser(name, help=(run.__doc__ or "").splitlines()[0])
        command.add_argument("--time-limit", type=float, default=seconds, help="seconds per instance and objective")
        command.add_argument("--objective", type=Objective, default=Objective.MEAN_SLOWDOWN)
        if name in ("recorded", "poisson"):
            command.add_argument("--rates", type=int, nargs="*", default=[2, 3, 4], help="jobs per second")
            command.add_argument("--jobs", type=int, default=100)
        if name in ("poisson", "unrelated"):
            command.add_argument("--seeds", type=int, nargs="*", default=[1])
        if name == "unrelated":
            command.add_argument("--sizes", nargs="*", default=["4x40", "10x100", "20x200"], help="machines x tasks")
        if name == "lp":
            command.add_argument("--rate", type=int, default=4, help="jobs per second")
            command.add_argument("--jobs", type=int, default=40)
            command.add_argument("--slot-ms", type=int, nargs="*", default=[50])
        if name == "oracle":
            command.add_argument("--count", type=int, default=100)
            command.add_argument("--serving", action="store_true", help="with batches, shares and memory of tasks")
        if name == "batches":
            command.add_argument(
                "--gaps-ms", type=int, nargs="*", default=[20, 10, 7, 6, 5], help="mean time between tasks"
            )
            command.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
        command.set_defaults(run=run)
    chosen = parser.parse_args(arguments)
    benchmark: Callable[[argparse.Namespace], None] = chosen.run
    benchmark(chosen)


def run_recorded(options: argparse.Namespace) -> None:
    """Report the bounds on the first jobs of the recorded arrivals, five GPUs, cold start."""
    for rate in options.rates:
        _report(f"{rate}/s", authors.instance(authors.recorded(rate, options.jobs)), options)


def run_poisson(options: argparse.Namespace) -> None:
    """Report the bounds on seeded arrivals of the authors' workload, five GPUs, cold start."""
    for rate in options.rates:
        for seed in options.seeds:
            _report(f"{rate}/s seed {seed}", authors.instance(authors.poisson(rate, options.jobs, seed)), options)


def run_unrelated(options: argparse.Namespace) -> None:
    """Report the bounds on weighted completion time on unrelated machines (1 to 30 ms, weights 1 to 100)."""
    options.objective = Objective.WEIGHTED_LATENCY
    for size in options.sizes:
        for seed in options.seeds:
            machines, tasks = (int(part) for part in size.split("x"))
            _report(f"{size} seed {seed}", unrelated(machines, tasks, seed), options)


def unrelated(machines: int, tasks: int, seed: int) -> Instance:
    """Return single tasks without models, all released at 0, with a run time of their own on every machine."""
    rng = random.Random(seed)  # noqa: S311
    kinds = [f"k{index}" for index in range(machines)]
    gpus = tuple(GPU(f"s{i}/g0", i, kind, 1, Fraction(1)) for i, kind in enumerate(kinds))
    jobs = []
    for index in range(tasks):
        run = {kind: 1_000 * rng.randint(1, 30) for kind in kinds}
        jobs.append(Job(Workflow(f"w{index}", (Task("t", run),)), 0, Fraction(rng.randint(1, 100))))
    return Instance(Cluster(gpus, Network(Link(), Link())), (), tuple(jobs))


def run_linear_programme(options: argparse.Namespace) -> None:
    """Compare with the linear programme at equal slots: how high, and how soon as high as HiGHS."""
    from experiments.bounds.linear_programme import solve

    instance = authors.instance(authors.recorded(options.rate, options.jobs))
    for slot_ms in options.slot_ms:
        value, seconds = solve(instance, options.objective, slot_ms * 1_000, WINDOW_US)
        search = Search(instance, options.objective, options.time_limit)
        priced = improve(search, finest_us=slot_ms * 1_000)
        reached = next((p.seconds for p in search.result("", {}).incumbents if p.bound and p.bound >= value), None)
        best = None if priced is None else float(priced.bound)
        print(
            f"{options.jobs} jobs, slots of {slot_ms} ms: HiGHS {value:.5f} in {seconds:.2f} s, Lagrangian {best:.5f} "
            f"in {search.elapsed_s:.2f} s; as high as HiGHS after {reached} s",
            flush=True,
        )


def run_oracle(options: argparse.Namespace) -> None:
    """Count bounds above the optimum, and certificates wrongly judged, over random tiny instances and objectives."""
    draw = random_serving_instance if options.serving else random_instance
    bounds = above = refused = accepted = 0
    for seed in range(options.count):
        rng = random.Random(seed)  # noqa: S311
        instance = draw(rng, 4 if options.serving else 5, restricted=rng.random() < 0.3)
        for objective in Objective:
            optimum = exhaustive.solve(instance, objective).value
            for document, bound in _certificates(instance, objective, options.time_limit):
                bounds += 1
                above += optimum is not None and bound > optimum
                verdict = verify(instance, document)
                refused += not verdict.valid or verdict.lower_bound != bound
                more = {"lower_bound": document["lower_bound"] * (1 + 1e-12) + 1e-12}
                accepted += verify(instance, document | more).valid
    print(
        f"{bounds} bounds: {above} above the optimum, {refused} certificates refused, {accepted} higher claims accepted"
    )


def run_batches(options: argparse.Namespace) -> None:
    """Compare with the optimum of one batch class on one GPU, mean latency, by how often tasks come."""
    for gap_ms in options.gaps_ms:
        for seed in options.seeds:
            instance = batches.draw(gap_ms * 1_000, seed)
            least = Fraction(batches.least_ends(instance)[1] - int(instance.job_release_us.sum()), batches.TASKS)
            search = Search(instance, Objective.MEAN_LATENCY, options.time_limit)
            formula, method = closed_form.best(instance, Objective.MEAN_LATENCY)
            priced = improve(search, finest_us=500)
            short = None if priced is None else float(1 - priced.bound / least)
            print(
                f"a task every {gap_ms} ms, seed {seed}: optimum {float(least) / 1e3:.2f} ms; short of it: "
                f"lagrangian {short:.1%}, {method} {float(1 - formula / least):.1%}",
                flush=True,
            )


def _certificates(instance: Instance, objective: Objective, seconds: float) -> list[tuple[dict[str, Any], Fraction]]:
    found = []
    for name, method in closed_form.METHODS.items():
        value = method(instance, objective)
        if value is not None:
            value = round_up(instance, objective, value)
            found.append((closed_form_document(instance, objective, name, value), value))
    priced = improve(Search(instance, objective, seconds))
    if priced is not None:
        found.append((lagrangian_document(instance, objective, priced), priced.bound))
    return [(json.loads(json.dumps(document)), bound) for document, bound in found]


def _report(name: str, instance: Instance, options: argparse.Namespace) -> None:
    """Print every bound on an instance, and how long it took to find and to verify."""
    objective = options.objective
    for method, function in closed_form.METHODS.items():
        began = time.monotonic()
        value = function(instance, objective)
        if value is not None:
            seconds = time.monotonic() - began
            print(f"{name:14s} {method:15s} {reported_bound(objective, value):10.5f}  {seconds:6.2f} s", flush=True)
    search = Search(instance, objective, options.time_limit)
    priced = improve(search)
    if priced is not None:
        _report_priced(name, instance, search, priced)


def _report_priced(name: str, instance: Instance, search: Search, priced: Priced) -> None:
    document = json.dumps(lagrangian_document(instance, search.objective, priced))
    began, seconds = time.monotonic(), search.elapsed_s
    verdict = verify(instance, json.loads(document))
    print(
        f"{name:14s} {'lagrangian':15s} {reported_bound(search.objective, priced.bound):10.5f}  {seconds:6.2f} s  "
        f"slots of {priced.relaxation.slot_us} us, certificate {len(document) / 1e6:.1f} MB, "
        f"{'verified' if verdict.valid else verdict.reason} in {time.monotonic() - began:.1f} s",
        flush=True,
    )


if __name__ == "__main__":
    main()
