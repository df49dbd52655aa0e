"""``python -m experiments swaps``: what plans gain over turns where several language models share nodes.

Draws like `streams/two_models` of the issue: 40 GB of weights each, of which a node holds one.
"""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any

from experiments.bench import ask
from truenorth.executor import parse_policy, simulate
from truenorth.models.objective import timeline_value
from truenorth.models.scenario import scenario_from
from truenorth.solvers.result import Search
from truenorth.solvers.search import queues

SERVED = {
    "prefill": "8000 /s", "chunk": 2048, "concurrency": 64, "kv_per_token": "131072 B",
    "step": {1: "12.5 ms", 8: "14 ms", 32: "25 ms", 64: "40 ms"},
}  # fmt: skip

POLICIES = ("turns", "least_tokens")
"""What the search starts from: the better one."""


def drawn(seed: int) -> dict[str, Any]:
    """Return a scenario of 150 to 400 requests for two or three models on one or two nodes, fewer than models."""
    rng = Random(seed)  # noqa: S311
    models, nodes = rng.choice(((2, 1), (3, 1), (3, 2)))
    names = ("alpha", "beta", "gamma")[:models]
    rate, at, jobs = nodes * rng.uniform(0.6, 1.4), 0.0, []
    for _ in range(rng.randint(150, 400)):
        at += rng.expovariate(rate)
        tokens = [rng.choice((200, 800, 2000)), 0, rng.choice((50, 150, 300))]
        tokens[1] = tokens[0]
        jobs.append({"release": f"{at:.6f} s", "workflow": rng.choice(names), "tokens": {"request": tokens}})
    gpu = {"kind": "H100", "memory": "78 GB", "load_bandwidth": "50 GB/s"}
    return {
        "cluster": {"groups": [{"count": nodes, "gpu": gpu}], "network": {"bandwidth": "10 GB/s"}},
        "models": {name: {"weights": "40 GB"} for name in names},
        "streams": {name: {"models": [name], **SERVED} for name in names},
        "workflows": {name: {"tasks": {"request": {"stream": name}}} for name in names},
        "workload": {"jobs": jobs},
        "objective": rng.choice(("mean_slowdown", "mean_latency")),
    }


def swaps(draws: int = 20, moves: int = 60_000) -> None:
    """Print a row per draw, and by how much plans of so many moves are better in the mean."""
    print("| draw | models | nodes | requests | objective | turns | plan | better by |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    gains = []
    for seed in range(draws):
        scenario = scenario_from(drawn(seed))
        instance, objective = scenario.instance, scenario.objective
        search = Search(instance, objective, 600.0)
        for policy in POLICIES:
            search.offer(simulate(instance, parse_policy(policy)))
        turns = timeline_value(objective, instance, simulate(instance, parse_policy("turns")))
        queues.improve(search, 0, moves)
        if search.value is None:
            raise ValueError(f"draw {seed} has no plan")
        gains.append(1 - float(search.value / turns))
        unit = 1e6 if objective.unit == "s" else 1
        row = (seed, len(instance.models), instance.n_gpus, len(instance.jobs), objective)
        values = f"{float(turns) / unit:.3f} | {float(search.value) / unit:.3f} | {gains[-1]:.1%}"
        print(f"| {' | '.join(map(str, row))} | {values} |", flush=True)
    print(f"mean: {sum(gains) / len(gains):.1%} better, least {min(gains):.1%}")


main = partial(ask, swaps)
