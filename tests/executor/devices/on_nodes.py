"""What becomes of runs on nodes of a Ray cluster that is started here, as JSON: a line for everything that is tried.

In a process of its own: Ray leaves threads, and processes that hold on to a pipe.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ray.cluster_utils import Cluster

import truenorth as tn
from tests.executor.devices.faulty import In, be_killed, small
from tests.executor.devices.small import BYTES, Small, gpus, instance
from tests.instances import chain, task
from truenorth.executor import parse_policy, replay, simulate
from truenorth.executor.devices.crew import Crew
from truenorth.executor.devices.far_profile import measure_on
from truenorth.executor.devices.nodes import Nodes, find_nodes
from truenorth.executor.devices.on_ray import RaySource
from truenorth.executor.devices.run import LiveRun, LiveSettings, live_crew, run_on
from truenorth.executor.devices.runner import MakeRunner
from truenorth.executor.errors import DeviceError
from truenorth.executor.runners.factory import parse_runner
from truenorth.models import Instance, check
from truenorth.models.record import encode
from truenorth.planner.answers.pool.on_ray import connected

FORK = chain(
    task("a", 100, ["m0"]),
    task("b", 100, ["m1"], {"a": 64}),
    task("c", 100, ["m0"], {"a": 64}),
    task("d", 100, ["m1"], {"b": 64, "c": 64}),
)
JOBS = 4
LATE = 10
"""The event of a run at which something happens to a node."""
SCENARIO = """\
cluster:
  servers: 2
  gpu: {kind: core, memory: 3 MB, load_bandwidth: 2 GB/s}
  network: {bandwidth: 1 GB/s, latency: 200 us}
models: {large: {weights: 2 MB}, little: {weights: 1 MB}}
workflows:
  ask:
    tasks:
      draft: {models: [large], runtime: 2 ms, output: 2 KB}
      check: {models: [little], runtime: 1 ms, output: 1 KB, after: [draft]}
workload: {jobs: [{release: 0 s, workflow: ask}, {release: 0 s, workflow: ask}]}
"""


def planned(n_gpus: int) -> Instance:
    return instance([FORK] * JOBS, ["m0", "m1"], gpus(n_gpus, 3 * BYTES))


class Runs:
    """A crew that carries out, again and again, a plan by which jobs go from GPU to GPU."""

    def __init__(self, crew: Crew, made: Instance, settings: LiveSettings) -> None:
        self.crew, self._made, self._settings = crew, made, settings
        self._plan = simulate(made, parse_policy("hash"))

    def run(self, stop: Callable[[], bool] = lambda: False) -> LiveRun:
        plan, made = self._plan, self._made
        return run_on(self.crew, made, replay(made, plan), self._settings, plan=plan, stop=stop)

    def disturbed(self, happen: Callable[[RaySource], object]) -> LiveRun:
        """Have something happen on the way."""
        source, events = self.crew._source, iter(range(LATE + 1))
        assert isinstance(source, RaySource)

        def stop() -> bool:
            if next(events, None) == LATE:
                happen(source)
            return False

        return self.run(stop)


@contextmanager
def runs(n_gpus: int, nodes: Nodes | None, make: MakeRunner = Small, **settings: Any) -> Iterator[Runs]:
    made, chosen = planned(n_gpus), LiveSettings(keep_outputs=True, **settings)
    with live_crew(made, make, chosen, nodes) as crew:
        yield Runs(crew, made, chosen)


def told(run: LiveRun, alike: LiveRun) -> dict[str, Any]:
    """Return what a run shows, beside one on this machine."""
    failed = {failure.job for failure in run.records.failures}
    of = [task for task in run.digests if task // len(FORK.tasks) not in failed]
    return {
        "outputs": len(of),
        "same": all(alike.digests[task] == run.digests[task] for task in of),
        "kept": all(run.outputs[task].equal(alike.outputs[task]) for task in of),
        "gpus": run.timeline.place.tolist() == alike.timeline.place.tolist(),
        "broken": [] if failed else [str(each) for each in check(planned(len(run.devices)), run.timeline)],
        "transfers": len(run.records.transfers) == len(alike.records.transfers) > 0,
        "failed": sorted(failed),
        "why": sorted({failure.message for failure in run.records.failures}),
        "faults": [(fault.what, fault.gpu, fault.message) for fault in run.records.faults],
        "devices": list(run.devices),
        "clocks": [asdict(clock) for clock in run.clocks],
    }


def refused(do: Callable[[], object]) -> str:
    try:
        do()
    except DeviceError as error:
        return str(error)
    return ""


@contextmanager
def one_more(cluster: Cluster, folder: Path, files: Mapping[str, str]) -> Iterator[None]:
    """Add a node where Python finds some files before all others."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    path = os.pathsep.join([str(folder), os.environ["PYTHONPATH"]])
    node = cluster.add_node(num_cpus=1, env_vars={"PYTHONPATH": path})
    try:
        yield
    finally:
        cluster.remove_node(node)


def bad_nodes(cluster: Cluster, ray: Any, folder: Path) -> Iterator[tuple[str, Any]]:
    other = {"truenorth-9.9.dist-info/METADATA": "Metadata-Version: 2.1\nName: truenorth\nVersion: 9.9\n"}
    with one_more(cluster, folder / "other", other):
        yield "other version", refused(lambda: find_nodes(ray, "cpu"))
    yield "no card", refused(lambda: find_nodes(ray, "cuda"))


def bad_questions(nodes: Nodes, folder: Path) -> Iterator[tuple[str, Any]]:
    yield "too many", refused(lambda: runs(5, nodes).__enter__())
    asked: dict[str, Any] = dict.fromkeys(("keep", "watch", "stop"))
    yield "beside", refused(lambda: measure_on(nodes, [], [], Small, beside=2, **asked))
    sys.path.insert(0, str(folder))
    (folder / "only_here.py").write_text("import torch\ndef make(model): return torch.nn.Linear(1, 1)\n")
    yield "no runner", refused(lambda: runs(1, nodes, partial(parse_runner, "only_here:make")).__enter__())


def answers(address: str, folder: Path) -> Iterator[tuple[str, Any]]:
    (path := folder / "scenario.yaml").write_text(SCENARIO)
    yield "profile", encode(tn.profile(path, "cpu", rounds=1, ray=address).record())
    made, here = tn.trial(path, "srpt", repeats=2, ray=address), tn.replay(path, "srpt", virtual="serial")
    bits = [{task: digest.bits for task, digest in run.live.digests.items()} for run in (*made.runs["srpt"], here)]
    yield "two", encode(made.record) | {"same": [each == bits[-1] for each in bits], "outputs": len(bits[-1])}


def lose(cluster: Cluster, source: RaySource) -> None:
    """Take the last node away, and wait until that has been noticed."""
    (last,) = cluster.worker_nodes
    gone = [place for place in source.places if place.node.id == last.node_id]
    cluster.remove_node(last, False)
    while any(place.is_manned for place in gone):
        time.sleep(0.05)


def four(cluster: Cluster, ray: Any, nodes: Nodes, folder: Path) -> Iterator[tuple[str, Any]]:
    with runs(4, None, sharing="serial") as here:
        alike = here.run()
    (mark := folder / "killed").touch()
    with runs(4, nodes, partial(small, In(be_killed, job=1, task="b", once=mark))) as there:
        yield "four", told(there.run(), alike)
        mark.unlink()
        yield "killed", told(there.run(), alike)
        yield "outpost", told(there.disturbed(lambda source: ray.kill(source.places[1].actor)), alike)
        yield "after", told(there.run(), alike)
        yield "node", told(there.disturbed(partial(lose, cluster)), alike)


def tried(cluster: Cluster, folder: Path) -> Iterator[tuple[str, Any]]:
    with connected(cluster.address) as ray:
        yield from bad_nodes(cluster, ray, folder)
        nodes = find_nodes(ray, "cpu")
        yield from bad_questions(nodes, folder)
        yield from answers(cluster.address, folder)
        yield from four(cluster, ray, nodes, folder)


if __name__ == "__main__":
    # Whatever Ray would start besides takes longer than all that is tried.
    first = {"num_cpus": 2, "include_dashboard": False, "include_log_monitor": False, "no_monitor": True}
    out = sys.stdout
    started: Any = Cluster(initialize_head=True, head_node_args=first)
    try:
        started.add_node(num_cpus=2)
        with TemporaryDirectory() as name:
            for what, found in tried(started, Path(name)):
                print(json.dumps([what, found]), file=out, flush=True)
    finally:
        started.shutdown()
