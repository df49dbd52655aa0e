"""Runners that compute on several GPUs, exactly or in floating point; plain classes, for they are sent to processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from truenorth.executor.devices.runner import RunnerCall
from truenorth.executor.runners.layers import columns, parallel, rows, through_both
from truenorth.models import MLModel


def _ignore(call: RunnerCall) -> None:
    pass


class Summed:
    """Every model is its bytes; a task puts out the sum of all that it gets and of its models, and its job."""

    def __init__(self, before: Callable[[RunnerCall], object] = _ignore) -> None:
        self.before = before

    def weights(self, model: MLModel) -> Mapping[str, Tensor]:
        return {"bytes": (torch.arange(model.weight_bytes) * 7 + len(model.name)).to(torch.uint8)}

    def module(self, model: MLModel) -> nn.Module:
        return _holding("bytes", torch.empty(model.weight_bytes, dtype=torch.uint8, device="meta"))

    def parts(self, model: MLModel, of: int) -> Sequence[Mapping[str, Tensor]]:
        whole, size = self.weights(model)["bytes"], -(-model.weight_bytes // of)
        whole = torch.cat([whole, whole.new_zeros(of * size - len(whole))])
        return [{"bytes": part} for part in torch.split(whole, size)]

    def part(self, model: MLModel, of: int) -> nn.Module:
        return _holding("bytes", torch.empty(-(-model.weight_bytes // of), dtype=torch.uint8, device="meta"))

    def run_batch(self, calls: Sequence[RunnerCall]) -> Sequence[Tensor]:
        return [self.run(call) for call in calls]

    def run(self, call: RunnerCall) -> Tensor:
        self.before(call)
        of_models = torch.zeros(1, dtype=torch.int64)
        for module in call.modules.values():
            of_models += module.get_buffer("bytes").sum()
        if call.team is not None and call.split:
            of_models = call.team.add_up(of_models)
        elif call.team is not None:
            call.team.add_up(torch.zeros(1))
        for given in call.inputs.values():
            of_models = of_models + given.sum()
        return of_models + call.job


WIDTH, INNER = 16, 12
LAYERS_BYTES = 4 * 2 * WIDTH * INNER


class Layered(Summed):
    """Every model is two layers, through which what a task gets goes; on several GPUs each has columns and rows."""

    def weights(self, model: MLModel) -> Mapping[str, Tensor]:
        source = torch.Generator().manual_seed(len(model.name))
        return {
            "first": torch.randn(WIDTH, INNER, generator=source),
            "second": torch.randn(INNER, WIDTH, generator=source),
        }

    def module(self, model: MLModel) -> nn.Module:
        return self.part(model, 1)

    def parts(self, model: MLModel, of: int) -> Sequence[Mapping[str, Tensor]]:
        first, second = self.weights(model).values()
        return [{"first": columns(first, rank, of), "second": rows(second, rank, of)} for rank in range(of)]

    def part(self, model: MLModel, of: int) -> nn.Module:
        module = _holding("first", torch.empty(WIDTH, INNER // of, device="meta"))
        module.register_buffer("second", torch.empty(INNER // of, WIDTH, device="meta"))
        return module

    def run(self, call: RunnerCall) -> Tensor:
        self.before(call)
        data = torch.linspace(-1, 1 + call.job, WIDTH).view(1, WIDTH)
        for module in call.modules.values():
            layers = module.get_buffer("first"), module.get_buffer("second")
            if call.team is not None and call.split:
                data = parallel(data, *layers, call.team)
            else:
                data = through_both(data, *layers)
        return data


def _holding(name: str, tensor: Tensor) -> nn.Module:
    module = nn.Module()
    module.register_buffer(name, tensor)
    return module.eval()
