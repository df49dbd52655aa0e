"""``python -m experiments gang_models``: what plans gain over policies where tasks on several GPUs need models."""

from __future__ import annotations

from functools import partial
from math import exp, log
from random import Random
from typing import Any

from experiments.bench import ask
from truenorth.executor import parse_policy, simulate
from truenorth.models.objective import timeline_value
from truenorth.models.scenario import scenario_from
from truenorth.solvers.result import Search
from truenorth.solvers.search import gang_loads

POLICIES = ("fifo", "easy", "sjf", "qssf", "srpt", "compass")
"""Who keeps the rules there; the search starts from the best."""


def drawn(seed: int) -> dict[str, Any]:
    """Return a scenario of 20 to 200 jobs on one or two servers, whose models take up to a GPU's memory."""
    rng = Random(seed)  # noqa: S311
    servers, gpus = rng.choice(((1, 4), (2, 4), (1, 8), (2, 8)))
    models = {name: {"weights": f"{rng.randint(5, 75)} GB"} for name in "abcdefgh"[: rng.randint(3, 8)]}
    kinds, least_s = {}, {}
    for name in map(str, range(rng.randint(4, 10))):
        alone_s, efficiency = rng.uniform(10, 100), rng.uniform(0.7, 1.0)
        sizes = rng.sample([size for size in (1, 2, 4, 8) if size <= gpus], rng.choice((1, 2)))
        modes = [{"gpus": size, "runtime": f"{alone_s * size**-efficiency:.3f} s"} for size in sorted(sizes)]
        kinds[name] = {"tasks": {"run": {"modes": modes, "models": [rng.choice(sorted(models))]}}}
        least_s[name] = min(sizes) ** (1 - efficiency) * alone_s
    names = [rng.choice(sorted(kinds)) for _ in range(rng.randint(20, 200))]
    span_s = sum(least_s[name] for name in names) / (servers * gpus) / rng.uniform(0.5, 1.3)
    releases = sorted(rng.uniform(0, span_s) for _ in names)
    gpu = {"kind": "H100", "memory": "80 GB", "load_bandwidth": "10 GB/s"}
    cluster = {"servers": servers, "gpus_per_server": gpus, "gpu": gpu, "network": {"bandwidth": "10 GB/s"}}
    jobs = [{"release": f"{at:.3f} s", "workflow": name} for at, name in zip(releases, names, strict=True)]
    return {
        "cluster": {**cluster, "places": "aligned"},
        "models": models,
        "workflows": kinds,
        "workload": {"jobs": jobs},
        "objective": rng.choice(("mean_slowdown", "mean_latency")),
    }


def gang_models(draws: int = 20, moves: int = 20_000) -> None:
    """Print a row per draw, and by how much plans of so many moves are better in the mean."""
    print("| draw | GPUs | models | jobs | objective | best policy | its value | plan | ratio |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    ratios = []
    for seed in range(draws):
        scenario = scenario_from(drawn(seed))
        instance, objective = scenario.instance, scenario.objective
        search, values = Search(instance, objective, 600.0), {}
        for policy in POLICIES:
            timeline = simulate(instance, parse_policy(policy))
            search.offer(timeline)
            values[policy] = timeline_value(objective, instance, timeline)
        best = min(values, key=lambda policy: values[policy])
        gang_loads.begin(search)
        gang_loads.improve(search, 0, 1, moves)
        if search.value is None:
            raise ValueError(f"draw {seed} has no plan")
        ratios.append(float(search.value / values[best]))
        unit = 1e6 if objective.unit == "s" else 1
        row = (seed, instance.n_gpus, len(instance.models), len(instance.jobs), objective, best)
        said = f"{float(values[best]) / unit:.3f} | {float(search.value) / unit:.3f} | {ratios[-1]:.3f}"
        print(f"| {' | '.join(map(str, row))} | {said} |", flush=True)
    mean = exp(sum(map(log, ratios)) / len(ratios))
    print(f"geometric mean of the ratios: {mean:.3f}, worst {max(ratios):.3f}")


main = partial(ask, gang_models)
