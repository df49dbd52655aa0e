"""A runner whose weights are drawn once, however often they are asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor, nn

from executor.runners.runner import Runner, RunnerCall
from models import MLModel


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
