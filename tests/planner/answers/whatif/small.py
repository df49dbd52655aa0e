"""A scenario and sweeps of it that run in milliseconds."""

from __future__ import annotations

from pathlib import Path

SCENARIO = """\
name: small
cluster:
  servers: 2
  gpu: {kind: A, memory: 10 B, load_bandwidth: 1 MB/s}
  network: {bandwidth: 1 MB/s, latency: 1 us}
models:
  m: {weights: 4 B}
  n.1: {weights: 8 B}
workflows:
  w:
    tasks:
      a: {models: [m], runtime: 3 us, output: 2 B}
      b: {runtime: 2 us, after: [a]}
  v:
    tasks:
      c: {models: [n.1], runtime: 5 us}
workload:
  poisson: {rate: 100000 /s, jobs: 12, seed: 1}
"""

SWEEP = """\
scenario: scenario.yaml
settings: {policy: compass}
grid:
  workload.poisson.rate: [100000 /s, 200000 /s]
  cluster.servers: [1, 2, 3]
"""


def written(folder: Path, sweep: str = SWEEP) -> Path:
    """Return the file of a sweep, beside that of the scenario."""
    (folder / "scenario.yaml").write_text(SCENARIO)
    path = folder / "sweep.yaml"
    path.write_text(sweep)
    return path


def tables(folder: Path) -> tuple[bytes, bytes]:
    """Return the final tables."""
    return (folder / "results.csv").read_bytes(), (folder / "results.parquet").read_bytes()
