"""Kill a sweep of 200 cells, or `servers` over replications, at random moments, let it complete, and compare.

Of the sweep it is measured, too, how well it uses the cores.
"""

from __future__ import annotations

import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from experiments.bench import ask
from truenorth.planner.answers.whatif import Counts, Sweep, sweep
from truenorth.planner.answers.whatif.cell import answer
from truenorth.planner.answers.whatif.grid import read_grid, read_sweep

SWEEP = Path(__file__).parent / "data" / "sweep.yaml"
SERVED = Path(__file__).parent / "data" / "served.yaml"
_REPLICATIONS = 40
TABLES = ("results.csv", "results.parquet")
_COMMAND = "import sys; from truenorth.planner.command.cli import main; sys.argv[1:] = {arguments!r}; main()"


def sweep_recovery(
    kills: int = 10,
    seed: Annotated[int, "of the moments"] = 0,
    workers: int = 2,
    servers: Annotated[bool, "kill servers --replications in place of a sweep"] = False,
) -> None:
    """Print what was measured; exit with 1 if a table differs."""
    asked = ["sweep", str(SWEEP)]
    if servers:
        asked = ["servers", str(SERVED), "--replications", str(_REPLICATIONS), "--policies", "srpt,jit"]
    asked += ["--workers", str(workers), "--json"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wall_s, cpu_s = undisturbed(folder / "undisturbed", asked)
        print(f"{asked[0]} with {workers} workers, start included: {wall_s:.1f} s, {cpu_s:.1f} CPU-s")
        if not servers:
            say_use(serial_cpu_s(), workers, wall_s, cpu_s)
        kept = killed(folder / "killed", asked, kills, wall_s, random.Random(seed))  # noqa: S311
        same = all(
            (folder / "undisturbed" / table).read_bytes() == (folder / "killed" / table).read_bytes()
            for table in TABLES
        )
    print(f"killed {len(kept)} times, with {', '.join(map(str, kept))} cells kept; then completed")
    print(f"tables: {'identical' if same else 'DIFFERENT'}")
    raise SystemExit(0 if same else 1)


def say_use(alone_s: float, workers: int, wall_s: float, cpu_s: float) -> None:
    """Print how much of the cores' time went into cells, which alone take so long."""
    print(f"one process, cells only: {alone_s:.1f} CPU-s")
    print(f"use of {workers} cores: {alone_s / workers / wall_s:.1%} of perfect (wall clock), ", end="")
    print(f"{alone_s / cpu_s:.1%} of CPU time went into cells")


def serial_cpu_s() -> float:
    """Return the CPU time of all cells in one process that has imported everything."""
    cells = read_grid(*read_sweep(SWEEP)).cells
    answer(cells[0].call)
    begun = time.process_time()
    for cell in cells:
        answer(cell.call)
    return time.process_time() - begun


def undisturbed(folder: Path, asked: list[str]) -> tuple[float, float]:
    """Run a command and return its wall-clock and CPU time, those of its workers included."""
    before = _children_cpu_s()
    begun = time.monotonic()
    process = launched(folder, asked)
    process.communicate()
    assert process.returncode == 0
    return time.monotonic() - begun, _children_cpu_s() - before


def _children_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def killed(folder: Path, asked: list[str], kills: int, wall_s: float, rng: random.Random) -> list[int]:
    """Kill a command at random moments, then let it complete; return how many cells each killed run left."""
    kept: list[int] = []
    while len(kept) < kills:
        process = launched(folder, asked)
        try:
            # About a second goes into the start, so that some runs are killed before their first cell.
            process.wait(rng.uniform(0.3, 1.5 + 1.2 * wall_s / kills))
        except subprocess.TimeoutExpired:
            process.kill()
        process.communicate()
        kept.append(len(list(folder.glob("cells/*.json"))))
        if process.returncode == 0:
            raise RuntimeError(f"the sweep was complete after {len(kept) - 1} kills; ask for fewer")
    out, _ = (process := launched(folder, asked)).communicate()
    assert process.returncode == 0
    assert json.loads(out)["known"] == kept[-1]
    return kept


def launched(folder: Path, asked: list[str]) -> subprocess.Popen[bytes]:
    """Start the command in a process of its own."""
    arguments = [*asked, "-o", str(folder)]
    return subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", _COMMAND.format(arguments=arguments)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )


def with_a_node_killed(file: Path, folder: Path, kill_after: int) -> Sweep:
    """Run a sweep on two Ray nodes of this machine and kill one of them once so many cells are finished."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
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


main = partial(ask, {"kill": sweep_recovery, "ray": ray_nodes})
