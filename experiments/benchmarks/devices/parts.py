"""What the study runs: the four workflows of the Compass paper, on as many GPUs as there are, and who computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor, nn

from truenorth.executor.devices.crew import Sharing
from truenorth.executor.devices.runner import Runner, RunnerCall
from truenorth.models import MLModel

_SCENARIOS = Path(__file__).parents[2] / "scenarios"
_SYNTHETIC_SHARE = 0.25
"""Of the authors' weights: so that drawing and pinning them does not take longer than the runs."""


@dataclass(frozen=True, slots=True)
class Part:
    """One scenario and who computes it.

    Parameters
    ----------
    name
        Of the part.
    runner
        As `executor.runners.factory.parse_runner` reads it.
    document
        A scenario file's content.
    large_bytes
        From this size on, loads count for the share of the peak.
    sharing, beside
        How planned GPUs share a device, and beside how many others its profile is taken.
    """

    name: str
    runner: str
    document: dict[str, Any]
    large_bytes: int
    sharing: Sharing | None = None
    beside: int = 0


def parts(device: str, jobs: int) -> list[Part]:
    """Return the parts for a kind of device; on ``cpu`` small ones, which only show that everything works."""
    if device == "cpu":
        small = _document("paper_small.yaml", 1, "80 MB", "4 /s", jobs)
        shared = _document("paper_small.yaml", 2, "80 MB", "4 /s", jobs)
        return [
            *(Part(name, name, small, 5_000_000) for name in ("synthetic", "transformers")),
            Part("two on a card", "synthetic", shared, 5_000_000, "serial", 1),
        ]
    gpus = torch.cuda.device_count()
    drawn, shared = (
        _quarter(gpus * on_each, memory, gpus, jobs) for on_each, memory in ((1, "3.5 GB"), (2, "1.75 GB"))
    )
    real = _document("compass_edge.yaml", gpus, "8 GB", f"{0.8 * gpus} /s", jobs * gpus)
    return [
        Part("synthetic", "synthetic", drawn, 500_000_000),
        Part("transformers", "transformers:size=full", real, 500_000_000),
        Part("two on a card", "synthetic", shared, 500_000_000, "parallel", 1),
    ]


def _quarter(planned: int, memory: str, cards: int, jobs: int) -> dict[str, Any]:
    """Return the authors' window on so many planned GPUs, with a share of their weights."""
    document = _document("compass_edge.yaml", planned, memory, f"{0.8 * cards} /s", jobs * cards)
    for model in document["models"].values():
        gigabytes = float(model["weights"].removesuffix(" GB"))
        model["weights"] = f"{gigabytes * _SYNTHETIC_SHARE} GB"
    return document


def _document(file: str, gpus: int, memory: str, rate: str, jobs: int) -> dict[str, Any]:
    """Return a scenario of this folder's on one server, with another memory and other arrivals."""
    document: dict[str, Any] = yaml.safe_load((_SCENARIOS / file).read_text())
    gpu = document["cluster"]["gpu"] | {"memory": memory}
    document["cluster"] |= {"servers": 1, "gpus_per_server": gpus, "gpu": gpu}
    document["workload"] = {"poisson": {"rate": rate, "jobs": jobs, "seed": 1}}
    document["objective"] = "mean_latency"
    return document


class Remembered:
    """A runner that keeps the weights of another."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._weights: dict[str, Mapping[str, Tensor]] = {}

    def weights(self, model: MLModel) -> Mapping[str, Tensor]:
        """Return a model's weights."""
        if model.name not in self._weights:
            self._weights[model.name] = self._runner.weights(model)
        return self._weights[model.name]

    def module(self, model: MLModel) -> nn.Module:
        """Return a module of a model, without weights of its own."""
        return self._runner.module(model)

    def run(self, call: RunnerCall) -> Tensor:
        """Compute a task."""
        return self._runner.run(call)

    def run_batch(self, calls: Sequence[RunnerCall]) -> Sequence[Tensor]:
        """Compute the tasks of a batch together."""
        return self._runner.run_batch(calls)
