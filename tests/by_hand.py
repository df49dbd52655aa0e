"""A scenario small enough to solve by hand.

Two GPUs load one byte per microsecond; model m has 4 bytes. A job runs a (needs m, 3 us) and then b (2 us): P = 5.
Job 0 is released at 0: whatever the plan, m is ready at 4 at the earliest, so it ends at 9 and its slowdown is 9/5.
Job 1 is released at 4: a plan has loaded m on the other GPU by then, so it ends at 9 and its slowdown is 1.
The optimum is (9/5 + 1) / 2 = 1.4.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import truenorth as tn
from truenorth.models.scenario import Scenario, load_scenario
from truenorth.planner.answers.compare import Comparison

TEXT = """\
name: by-hand
cluster:
  servers: 2
  gpu: {kind: A, memory: 10 B, load_bandwidth: 1 MB/s}
  network: {bandwidth: 1 MB/s, latency: 1 us}
models:
  m: {weights: 4 B}
workflows:
  w:
    tasks:
      a: {models: [m], runtime: 3 us, output: 2 B}
      b: {runtime: 2 us, after: [a]}
workload:
  jobs: [{release: 0 us, workflow: w}, {release: 4 us, workflow: w}]
objective: mean_slowdown
slo: p99 slowdown <= 2
"""


@pytest.fixture(scope="session")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """Return the comparison of the plan, 1.4, with JIT."""
    path = tmp_path_factory.mktemp("scenario") / "by hand.yaml"
    path.write_text(TEXT)
    return tn.compare(load_scenario(path), ["jit"], time_limit=20)


@pytest.fixture(scope="session")
def folder(comparison: Comparison, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return its folder."""
    path = tmp_path_factory.mktemp("comparison")
    tn.save(comparison, path)
    return path


@pytest.fixture
def scenario_file(tmp_path: Path) -> Path:
    """Return the file of the scenario."""
    path = tmp_path / "by_hand.yaml"
    path.write_text(TEXT)
    return path


@pytest.fixture
def scenario(scenario_file: Path) -> Scenario:
    """Return the scenario."""
    return load_scenario(scenario_file)
