"""Chains of equal tasks: as plain a workload as shows how late they start."""

from __future__ import annotations

from fractions import Fraction

from models import GPU, Cluster, Edge, Instance, Job, Link, MLModel, Network, Task, Workflow

CHAIN = 3
"""Tasks per job."""
_BYTES = 1024


def chains(gpus: int, jobs: int, run_us: int, load: float) -> Instance:
    """Return chains of equal tasks that need one of three models each, keeping GPUs busy for a share `load`."""
    names = [f"t{place}" for place in range(CHAIN)]
    tasks = tuple(
        Task(name, {"*": run_us}, (f"m{place}",), (Edge(names[place - 1], 64),) if place else ())
        for place, name in enumerate(names)
    )
    workflow = Workflow("chain", tasks)
    every_us = round(CHAIN * run_us / gpus / load)
    link = Link(100, Fraction(10**9))
    cluster = Cluster(
        tuple(GPU(f"s{g}/g0", g, "core", CHAIN * _BYTES, Fraction(10**8)) for g in range(gpus)), Network(link, link)
    )
    models = tuple(MLModel(f"m{place}", _BYTES) for place in range(CHAIN))
    return Instance(cluster, models, tuple(Job(workflow, every_us * job) for job in range(jobs)), catalogue=(workflow,))
