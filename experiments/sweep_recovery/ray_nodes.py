"""Kill one of two Ray nodes in the middle of a sweep and see that nothing is lost."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

from experiments.bench import ask
from experiments.sweep_recovery.__main__ import SWEEP, TABLES
from truenorth.planner.answers.whatif import Counts, Sweep, sweep

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"


def with_a_node_killed(file: Path, folder: Path, kill_after: int) -> Sweep:
    """Run a sweep on two Ray nodes of this machine and kill one of them once so many cells are finished."""
    from ray.cluster_utils import Cluster

    cluster: Any = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    doomed = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    killed = False

    def watch(counts: Counts) -> None:
        nonlocal killed
        if counts.finished >= kill_after and not killed:
            killed = True
            cluster.remove_node(doomed, allow_graceful=False)

    try:
        return sweep(file, folder, ray=cluster.address, watch=watch)
    finally:
        cluster.shutdown()


def ray_nodes(file: Annotated[Path, "the sweep"] = SWEEP) -> None:
    """Compare the tables of a sweep on two nodes, one of them killed, with those of an undisturbed local one."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        local = sweep(file, folder / "local")
        begun = time.monotonic()
        made = with_a_node_killed(file, folder / "ray", local.counts.cells // 4)
        took = time.monotonic() - begun
        same = all((folder / "local" / table).read_bytes() == (folder / "ray" / table).read_bytes() for table in TABLES)
    print(
        f"{made.counts.cells} cells on two Ray nodes, one killed after a quarter: {made.counts.failed} failed, ", end=""
    )
    print(f"tables {'identical' if same else 'DIFFERENT'}, {took:.1f} s")
    raise SystemExit(0 if same else 1)


if __name__ == "__main__":
    ask(ray_nodes)
