"""``python -m experiments.bounds BENCHMARK``: prints a table of figures."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterable, Iterator
from fractions import Fraction
from itertools import product
from typing import Annotated, Any

from experiments import authors
from experiments.batches.oracles import least_ends, one_class
from experiments.bench import ask, bench
from experiments.random_instances import random_instance, random_serving_instance
from truenorth.models import GPU, BatchClass, Cluster, Instance, Job, Link, Network, Objective, Task, Workflow
from truenorth.models.objective import reported_bound
from truenorth.solvers.bounds import closed_form
from truenorth.solvers.bounds.certificate import closed_form_document, lagrangian_document
from truenorth.solvers.bounds.granularity import round_up
from truenorth.solvers.bounds.lagrangian.improve import improve
from truenorth.solvers.bounds.verify import verify
from truenorth.solvers.exact import exhaustive
from truenorth.solvers.result import Search

Seconds = Annotated[float, "seconds per instance and objective"]
Rates = Annotated[tuple[int, ...], "jobs per second"]


def recorded(
    rates: Rates = (2, 3, 4),
    jobs: int = 100,
    time_limit: Seconds = 40.0,
    objective: Objective = Objective.MEAN_SLOWDOWN,
) -> None:
    """Report the bounds on the first jobs of the recorded arrivals, five GPUs, cold start."""
    windows = ((f"{rate}/s", authors.instance(authors.recorded(rate, jobs))) for rate in rates)
    _report(windows, objective, time_limit)


def poisson(
    rates: Rates = (2, 3, 4),
    jobs: int = 100,
    seeds: tuple[int, ...] = (1,),
    time_limit: Seconds = 40.0,
    objective: Objective = Objective.MEAN_SLOWDOWN,
) -> None:
    """Report the bounds on seeded arrivals of the authors' workload, five GPUs, cold start."""
    windows = (
        (f"{rate}/s seed {seed}", authors.instance(authors.poisson(rate, jobs, seed)))
        for rate, seed in product(rates, seeds)
    )
    _report(windows, objective, time_limit)


def unrelated(
    sizes: Annotated[tuple[str, ...], "machines x tasks"] = ("4x40", "10x100", "20x200"),
    seeds: tuple[int, ...] = (1,),
    time_limit: Seconds = 20.0,
) -> None:
    """Report the bounds on weighted completion time on unrelated machines (1 to 30 ms, weights 1 to 100)."""
    instances = ((f"{size} seed {seed}", machines_apart(size, seed)) for size, seed in product(sizes, seeds))
    _report(instances, Objective.WEIGHTED_LATENCY, time_limit)


def machines_apart(size: str, seed: int) -> Instance:
    """Return single tasks without models, all released at 0, with a run time of their own on every machine."""
    machines, tasks = map(int, size.split("x"))
    rng = random.Random(seed)  # noqa: S311
    kinds = [f"k{index}" for index in range(machines)]
    gpus = tuple(GPU(f"s{i}/g0", i, kind, 1, Fraction(1)) for i, kind in enumerate(kinds))
    jobs = []
    for index in range(tasks):
        run = {kind: 1_000 * rng.randint(1, 30) for kind in kinds}
        jobs.append(Job(Workflow(f"w{index}", (Task("t", run),)), 0, Fraction(rng.randint(1, 100))))
    return Instance(Cluster(gpus, Network(Link(), Link())), (), tuple(jobs))


def oracle(
    count: int = 100,
    serving: Annotated[bool, "with batches, shares and memory of tasks"] = False,
    time_limit: Seconds = 0.1,
) -> None:
    """Count bounds above the optimum, and certificates wrongly judged, over random tiny instances and objectives."""
    draw = random_serving_instance if serving else random_instance
    bounds = above = refused = accepted = 0
    for seed in range(count):
        rng = random.Random(seed)  # noqa: S311
        instance = draw(rng, 4 if serving else 5, restricted=rng.random() < 0.3)
        for objective in Objective:
            optimum = exhaustive.solve(instance, objective).value
            for _, document, bound in certificates(instance, objective, time_limit):
                bounds += 1
                above += optimum is not None and bound > optimum
                verdict = verify(instance, document)
                refused += not verdict.valid or verdict.lower_bound != bound
                more = {"lower_bound": document["lower_bound"] * (1 + 1e-12) + 1e-12}
                accepted += verify(instance, document | more).valid
    print(
        f"{bounds} bounds: {above} above the optimum, {refused} certificates refused, {accepted} higher claims accepted"
    )


def certificates(
    instance: Instance, objective: Objective, seconds: float
) -> Iterator[tuple[str, dict[str, Any], Fraction]]:
    """Yield every bound that has a certificate: its method, the certificate as a file would hold it, and its value."""
    for name, method in closed_form.METHODS.items():
        value = method(instance, objective)
        if value is not None:
            value = round_up(instance, objective, value)
            yield name, json.loads(json.dumps(closed_form_document(instance, objective, name, value))), value
    priced = improve(Search(instance, objective, seconds))
    if priced is not None:
        yield "lagrangian", json.loads(json.dumps(lagrangian_document(instance, objective, priced))), priced.bound


def batches(
    gaps_ms: Annotated[tuple[int, ...], "mean time between tasks"] = (20, 10, 7, 6, 5),
    seeds: tuple[int, ...] = (0, 1, 2),
    time_limit: Seconds = 8.0,
) -> None:
    """Compare with the optimum of one batch class on one GPU, mean latency, by how often tasks come."""

    def short_of_optimum(instance: Instance) -> dict[str, Any]:
        waited_us = least_ends(instance)[1] - int(instance.job_release_us.sum())
        least = Fraction(waited_us, len(instance.jobs))
        formula, method = closed_form.best(instance, Objective.MEAN_LATENCY)
        priced = improve(Search(instance, Objective.MEAN_LATENCY, time_limit), finest_us=500)
        short = None if priced is None else float(1 - priced.bound / least)
        return {"least": float(least) / 1e3, "short": short, "method": method, "formula": float(1 - formula / least)}

    bench(
        ((f"a task every {gap} ms, seed {seed}", every(gap * 1_000, seed)) for gap, seed in product(gaps_ms, seeds)),
        short_of_optimum,
        "{name}: optimum {least:.2f} ms; short of it: lagrangian {short:.1%}, {method} {formula:.1%}",
    )


def every(gap_us: int, seed: int) -> Instance:
    """Return 40 tasks with exponential times between them; a batch of b runs for 10 ms x (1 + b) / 2, b up to 8."""
    rng = random.Random(seed)  # noqa: S311
    at, releases = 0.0, []
    for _ in range(40):
        at += rng.expovariate(1 / gap_us)
        releases.append(int(at))
    return one_class(releases, BatchClass("c", {"*": {b: 5_000 * (1 + b) for b in (1, 2, 4, 8)}}))


def _report(instances: Iterable[tuple[str, Instance]], objective: Objective, seconds: float) -> None:
    """Print every bound on every instance, and how long it took to find; of the last one, what its certificate is."""
    row = "{name:14s} {method:15s} {bound:10.5f}  {seconds:6.2f} s{more}"
    for name, instance in instances:

        def closed(method: str, on: Instance = instance) -> dict[str, Any] | None:
            began = time.monotonic()
            value = closed_form.METHODS[method](on, objective)
            if value is None:
                return None
            bound = reported_bound(objective, value)
            return {"method": method, "bound": bound, "seconds": time.monotonic() - began, "more": ""}

        def lagrangian(search: Search) -> dict[str, Any] | None:
            priced = improve(search)
            if priced is None:
                return None
            seconds, document = search.elapsed_s, json.dumps(lagrangian_document(search.instance, objective, priced))
            began = time.monotonic()
            verdict = verify(search.instance, json.loads(document))
            said = "verified" if verdict.valid else verdict.reason
            return {
                "method": "lagrangian",
                "bound": reported_bound(objective, priced.bound),
                "seconds": seconds,
                "more": f"  slots of {priced.relaxation.slot_us} us, certificate {len(document) / 1e6:.1f} MB, "
                f"{said} in {time.monotonic() - began:.1f} s",
            }

        bench(((name, method) for method in closed_form.METHODS), closed, row)
        bench([(name, Search(instance, objective, seconds))], lagrangian, row)


if __name__ == "__main__":
    ask({question.__name__: question for question in (recorded, poisson, unrelated, oracle, batches)})
