"""A small scenario file for tests, and ways to change one thing in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from truenorth.models.scenario import InputError, Scenario, load_scenario

SMALL = """\
name: small
cluster:
  servers: 2
  gpu: {kind: T4, memory: 14 GB, load_bandwidth: 10 GB/s}
  network: {bandwidth: 10 GB/s, latency: 2 us}
models:
  opt: {weights: 6 GB}
  nli: {weights: 2 GB}
workflows:
  qa:
    tasks:
      opt: {models: [opt], runtime: 560 ms, output: 2 KB}
      nli: {models: [nli], runtime: {T4: 27 ms}, after: [opt]}
workload:
  jobs:
    - {release: 5 ms, workflow: qa, deadline: 2 s, weight: 2.5, ingress: s1}
    - {release: 0 ms, workflow: qa}
objective: mean_latency
"""
JOBS = SMALL[SMALL.index("  jobs:") : SMALL.index("objective")]
GPU = "kind: T4, memory: 14 GB"


def changed(old: str, new: str) -> str:
    """Return the small scenario with one text replaced; the text must be there."""
    assert SMALL.count(old) >= 1
    return SMALL.replace(old, new, 1)


def loaded(folder: Path, text: str, name: str = "scenario.yaml") -> Scenario:
    """Return the scenario of this text."""
    path = folder / name
    path.write_text(text)
    return load_scenario(path)


def refused(folder: Path, text: str, name: str = "scenario.yaml") -> str:
    """Return the message with which this text is refused, without its folder."""
    with pytest.raises(InputError) as caught:
        loaded(folder, text, name)
    return str(caught.value).replace(f"{folder}/", "")
