"""Instances for tests: parts to build them by hand, and the random ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from tests.random_instances import MB as MB
from tests.random_instances import random_instance as random_instance
from tests.random_instances import random_serving_instance as random_serving_instance
from tests.random_instances import with_delays as with_delays
from truenorth.models import (
    GPU,
    Cluster,
    Edge,
    Instance,
    Job,
    Link,
    MLModel,
    Network,
    Task,
    Workflow,
)


def gpu(index: int = 0, server: int | None = None, **changes: object) -> GPU:
    """Return a GPU of 10 bytes that loads one byte per microsecond; servers hold one GPU each unless said otherwise."""
    where = index if server is None else server
    fields: dict[str, object] = {
        "id": f"s{where}/g{index if server is not None else 0}",
        "server": where,
        "kind": "A",
        "memory_bytes": 10,
        "load_bandwidth": Fraction(MB),
    }
    return GPU(**(fields | changes))  # type: ignore[arg-type]


def network(
    latency_us: int = 1, bandwidth: int | None = MB, within: Link | None = None, staged: bool = False
) -> Network:
    """Return a network of 1 us latency and one byte per microsecond."""
    between = Link(latency_us, None if bandwidth is None else Fraction(bandwidth))
    return Network(between, within or between, staged)


def cluster(count: int = 1, net: Network | None = None, **changes: object) -> Cluster:
    """Return `count` equal servers of one GPU."""
    return Cluster(tuple(gpu(index, None, **changes) for index in range(count)), net or network())


def task(
    name: str,
    runtime_us: int | Mapping[str, int],
    models: Sequence[str] = (),
    after: Mapping[str, int] | None = None,
    input_bytes: int = 0,
) -> Task:
    """Return a task; `after` maps predecessors to the bytes of the edge."""
    runtimes = {"*": runtime_us} if isinstance(runtime_us, int) else dict(runtime_us)
    edges = tuple(Edge(source, size) for source, size in (after or {}).items())
    return Task(name, runtimes, tuple(models), edges, input_bytes=input_bytes)


def chain(*tasks: Task, name: str = "w") -> Workflow:
    """Return a workflow of these tasks."""
    return Workflow(name, tasks)


def instance(
    jobs: Sequence[Job],
    models: Mapping[str, int] | None = None,
    on: Cluster | None = None,
    **options: object,
) -> Instance:
    """Return an instance; `models` maps names to bytes. Its catalogue are the workflows of its jobs unless given."""
    options.setdefault("catalogue", tuple({id(job.workflow): job.workflow for job in jobs}.values()))
    listed = tuple(MLModel(name, size) for name, size in (models or {}).items())
    return Instance(on or cluster(), listed, tuple(jobs), **options)  # type: ignore[arg-type]
