"""``python -m experiments prefix_caches LOG``: hit shares of prefix caches per node by router, and what they cost.

The log is Mooncake's conversation trace (`experiments/benchmarks/prefix_caches.md`), which lies outside the tree.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from time import process_time

from experiments.bench import ask
from truenorth.executor import parse_policy, simulate
from truenorth.models import measure
from truenorth.models.metrics import CacheMetrics
from truenorth.models.scenario import Scenario, scenario_from
from truenorth.planner.inputs.importers.catalogued import Catalogued
from truenorth.planner.inputs.importers.streamed import Cache
from truenorth.planner.inputs.importers.trace import import_trace

ROUTERS = (
    "round_robin", "least_requests", "least_tokens", "least_work", "least_delay", "prefix_affinity",
    "prefix_affinity:precise=on",
)  # fmt: skip
CATALOGUE = Path(__file__).parent / "data" / "nodes.yaml"
NODES, MEMORIES = 7, ("78 GB", "1000 GB")


def nodes(log: Path, cache: Cache, memory: str) -> Scenario:
    """Return the requests of a log on nodes of the catalogue's first kind, with so much memory each."""
    data = import_trace("tokens", [log], catalogue=Catalogued.load(CATALOGUE), cache=cache).scenario.source.data()
    first = data["cluster"]["groups"][0]
    data["cluster"]["groups"] = [first | {"count": NODES, "gpu": first["gpu"] | {"memory": memory}}]
    return scenario_from(data)


def prefix_caches(log: Path) -> None:
    """Print a row per memory and router."""
    print(
        "| memory of a node | router | prompt tokens cached | p95 latency | p95 first token | CPU s | without caches |"
    )
    for memory in MEMORIES:
        plain, cached = (nodes(log, cache, memory).instance for cache in ("none", "node"))
        for router in ROUTERS:
            taken = []
            for instance in (plain, cached):
                begun = process_time()
                timeline = simulate(instance, parse_policy(router))
                taken.append(process_time() - begun)
            found = measure(cached, timeline)
            if isinstance(found, CacheMetrics):
                times = f"{found.p95_latency_s:.1f} s | {found.p95_first_token_s:.2f} s"
                print(f"| {memory} | {router} | {found.hit_share:.1%} | {times} | {taken[1]:.1f} | {taken[0]:.1f} |")


main = partial(ask, prefix_caches)
