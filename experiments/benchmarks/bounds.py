"""``python -m experiments bounds BENCHMARK``: how high lower bounds are, how soon, and whether they can be verified."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated, Any

from experiments import authors
from experiments.bench import ask, bench
from truenorth import bound
from truenorth.models import GPU, BatchClass, Cluster, Instance, Job, Link, Network, Objective, Task, Workflow
from truenorth.models.objective import reported_bound
from truenorth.models.scenario import Scenario, load_scenario
from truenorth.solvers.bounds import closed_form
from truenorth.solvers.bounds.certificate import lagrangian_document
from truenorth.solvers.bounds.lagrangian.improve import improve
from truenorth.solvers.bounds.verify import verify
from truenorth.solvers.result import Search

INSTANCES = Path(__file__).parents[1] / "library" / "instances"

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


def one_class(releases_us: Sequence[int], batch: BatchClass) -> Instance:
    """Return jobs of one task each, all of one class, on one GPU."""
    workflow = Workflow("w", (Task.of_class("t", batch),))
    gpus = (GPU("s0/g0", 0, "A", 1, Fraction(1)),)
    return Instance(Cluster(gpus, Network(Link(), Link())), (), tuple(Job(workflow, at) for at in releases_us))


def least_ends(instance: Instance) -> tuple[int, int]:
    """Return the least makespan and the least sum of completions of one class on one GPU.

    Batches are runs of consecutive releases; the state is how many tasks are done, and when the GPU is free.
    """
    releases = instance.job_release_us.tolist()
    times = [instance.batch_time(0, 0, size) for size in range(1, int(instance.batch_largest[0, 0]) + 1)]
    known: list[dict[int, int]] = [{0: 0}, *({} for _ in releases)]
    for done, by_end in enumerate(known):
        for free, total in by_end.items():
            for size, run_us in enumerate(times[: len(releases) - done], 1):
                end = max(free, releases[done + size - 1]) + run_us
                later = known[done + size]
                later[end] = min(later.get(end, total + size * end), total + size * end)
    return min(known[-1]), min(known[-1].values())


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


def certified(
    names: Annotated[tuple[str, ...], "instances of the library; recorded: 100 jobs at 2/s"] = (
        "authors-1-20", "authors-2-20", "authors-2-50", "authors-2-100", "authors-3-20", "authors-4-20",
        "authors-28gb-40", "recorded",
    ),
    time_limit: Seconds = 60.0,
) -> None:  # fmt: skip
    """Bound windows part by part, and verify what is written: seconds are of the processor, all threads together."""

    def again(scenario: Scenario) -> dict[str, Any]:
        made = bound(scenario, time_limit=time_limit)
        document = json.loads(json.dumps(made.certificate))
        began = time.process_time()
        verdict = verify(scenario.instance, document)
        higher = "" if made.uncertified is None else f"; uncertified {float(made.uncertified[0]):.6f}"
        return {
            "value": float(made.found.value or 0),
            "bound": float(made.exact),
            "proof_s": made.cpu_s,
            "verify_s": time.process_time() - began,
            "how": f"{made.method}{higher}; {verdict.how or verdict.reason}",
        }

    windows = ((name, _scenario(name)) for name in names)
    bench(windows, again, "{name:16s} {value:10.6f} {bound:10.6f} {proof_s:7.1f} s {verify_s:6.1f} s  {how}")


def _scenario(name: str) -> Scenario:
    if name == "recorded":
        return replace(load_scenario(authors.SCENARIO), instance=authors.instance(authors.recorded(2, 100)))
    return load_scenario(INSTANCES / f"{name}.json")


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
            seconds, document = (
                search.clock.elapsed_s,
                json.dumps(lagrangian_document(search.instance, objective, priced)),
            )
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


main = partial(ask, {question.__name__: question for question in (recorded, poisson, unrelated, batches, certified)})
