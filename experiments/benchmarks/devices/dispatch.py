"""``python -m experiments dispatch``: run chains on GPUs that only wait, and print how late their tasks start."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from fractions import Fraction
from functools import partial
from itertools import product
from statistics import quantiles
from typing import Annotated, Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

from experiments.bench import ask, bench
from truenorth.executor import Policy, parse_policy, replay, simulate
from truenorth.executor.devices.nodes import Nodes, find_nodes
from truenorth.executor.devices.physical import Physical
from truenorth.executor.devices.run import LiveSettings, run_live
from truenorth.executor.devices.runner import RunnerCall
from truenorth.models import GPU, Cluster, Edge, Instance, Job, Link, MLModel, Network, Task, Workflow
from truenorth.models.objective import Objective, timeline_value
from truenorth.planner.answers.pool.on_ray import connected

CHAIN = 3
"""Tasks per job."""
_BYTES = 1024
_US_PER_S = 1_000_000


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


class Waiting:
    """Stands for a GPU that computes by itself: a run occupies Python for a share of its time and waits for the rest.

    Parameters
    ----------
    launch
        The share, as code that launches kernels one by one occupies it.
    """

    def __init__(self, launch: float) -> None:
        self._launch = launch

    def weights(self, model: MLModel) -> Mapping[str, Tensor]:
        """Return zeros."""
        return {"weight": torch.zeros(8, 8), "bias": torch.zeros(8)}

    def module(self, model: MLModel) -> nn.Module:
        """Return a layer without weights."""
        return nn.Linear(8, 8, device="meta").eval()

    def run(self, call: RunnerCall) -> Tensor:
        """Occupy Python, then wait."""
        until_ns = time.perf_counter_ns() + round(call.run_us * self._launch * 1000)
        while time.perf_counter_ns() < until_ns:
            pass
        time.sleep(call.run_us * (1 - self._launch) / _US_PER_S)
        return torch.zeros(16)

    def run_batch(self, calls: Sequence[RunnerCall]) -> Sequence[Tensor]:
        """Run one after the other."""
        return [self.run(call) for call in calls]


@contextmanager
def started_nodes(count: int) -> Iterator[Nodes]:
    """Start a Ray cluster here, of so many nodes with a core each."""
    from ray.cluster_utils import Cluster as RayCluster

    first = {"num_cpus": 1, "include_dashboard": False, "include_log_monitor": False, "no_monitor": True}
    started: Any = RayCluster(initialize_head=True, head_node_args=first)
    try:
        for _ in range(count - 1):
            started.add_node(num_cpus=1)
        with connected(started.address) as ray:
            yield find_nodes(ray, "cpu")
    finally:
        started.shutdown()


def lateness(instance: Instance, policy: str, launch: float, nodes: Nodes | None) -> tuple[list[int], float]:
    """Return, for every task, how long after it could it started, and by how much mean latency is off its prediction.

    Parameters
    ----------
    policy
        ``plan``: what SRPT makes of it, replayed.
    nodes
        Where GPUs are; None: here.
    """
    plan = simulate(instance, parse_policy("srpt")) if policy == "plan" else None
    chosen: Callable[[], Policy] = parse_policy(policy) if plan is None else replay(instance, plan)
    cores = [Physical(torch.device("cpu"), f"virtual GPU {gpu}") for gpu in range(instance.n_gpus)]
    with patch("truenorth.executor.devices.run.physical_devices", lambda kind: cores):
        live = run_live(instance, chosen, partial(Waiting, launch), LiveSettings(), plan=plan, nodes=nodes)
    if live.records.failures:
        raise SystemExit(f"a task failed: {live.records.failures[0].message}")
    both = (timeline_value(Objective.MEAN_LATENCY, instance, of) for of in (live.timeline, simulate(instance, chosen)))
    return [run.dispatch_us for run in live.records.runs], float(next(both) / next(both)) - 1


def dispatch(
    gpus: tuple[int, ...] = (1, 2, 4, 8),
    policies: tuple[str, ...] = ("plan", "compass", "srpt"),
    jobs: Annotated[int, "per GPU"] = 60,
    run_us: int = 5000,
    load: Annotated[float, "how busy the GPUs are"] = 0.8,
    launch: Annotated[tuple[float, ...], "share of a run that holds Python"] = (0.0, 0.1),
    nodes: Annotated[bool, "then on as many nodes of a Ray cluster that is started here, too"] = False,
) -> None:
    """Print a row per policy and number of GPUs."""

    def measure(asked: tuple[float, str, int, bool]) -> dict[str, Any]:
        share, policy, count, far = asked
        with started_nodes(count) if far else nullcontext() as there:
            late, off = lateness(chains(count, jobs * count, run_us, load), policy, share, there)
        cuts = quantiles(late, n=20, method="inclusive")
        at_once = sum(us <= 50 for us in late) / len(late)
        said = {"where": "nodes" if far else "here", "tasks": len(late), "median": cuts[9], "p95": cuts[18]}
        return said | {"asked": asked, "at_once": at_once, "off": off}

    bench(
        (("", asked) for asked in product(launch, policies, gpus, (False, True) if nodes else (False,))),
        measure,
        "{asked[0]:6.0%}{asked[1]:>10}{asked[2]:6}{where:>7}{tasks:7}{median:11.0f}{p95:9.0f}{at_once:9.0%}{off:+9.1%}",
        "launch    policy  GPUs  where  tasks  median us   p95 us  at once      off",
    )


main = partial(ask, dispatch)
