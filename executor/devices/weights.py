"""Weights in host memory, contiguous per model, and the views that make bytes on a device a module's parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from truenorth.executor.devices.runner import Runner, TeamRunner
from truenorth.executor.errors import DeviceError
from truenorth.models import MLModel
from truenorth.models.tables import part_bytes

ALIGNMENT = 256
"""Every tensor begins at a multiple of so many bytes, as CUDA's own allocator has it."""


class Part(NamedTuple):
    """Which part of a model's weights a GPU has: its number, and over how many GPUs they are split (rule G2)."""

    rank: int
    of: int


ENTIRE = Part(0, 1)


def aligned(size_bytes: int) -> int:
    """Return the smallest multiple of the alignment at or above a size.

    >>> aligned(1), aligned(256)
    (256, 256)
    """
    return -(-size_bytes // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True, slots=True)
class _WeightPlace:
    """Where a tensor lies in the bytes of its model, and how to read it."""

    offset: int
    shape: torch.Size
    dtype: torch.dtype


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """Return every tensor that a module computes with, by each of its qualified names.

    These are its parameters, its buffers, and tensors that are plain attributes, which `torch` would leave where they
    are.
    """
    plain = {
        f"{path}.{name}" if path else name: value
        for path, owner in module.named_modules(remove_duplicate=False)
        for name, value in vars(owner).items()
        if isinstance(value, Tensor)
    }
    parameters = dict(module.named_parameters(remove_duplicate=False))
    return parameters | dict(module.named_buffers(remove_duplicate=False)) | plain


def packed_bytes(weights: Mapping[str, Tensor]) -> int:
    """Return how many bytes a model's weights take; tied tensors count once."""
    return max([1, *(place.offset + weights[name].nbytes for name, place in _packed(weights).items())])


def _packed(weights: Mapping[str, Tensor]) -> dict[str, _WeightPlace]:
    """Put tensors one after the other; those that are one and the same tensor share a place."""
    places: dict[str, _WeightPlace] = {}
    known: dict[tuple[int, torch.Size, torch.dtype], int] = {}
    free = 0
    for name, tensor in weights.items():
        identity = (tensor.data_ptr(), tensor.shape, tensor.dtype)
        if tensor.nbytes == 0 or identity not in known:
            known[identity] = free
            free += aligned(tensor.nbytes)
        places[name] = _WeightPlace(known[identity], tensor.shape, tensor.dtype)
    return places


class HostWeights:
    """The weights of every model in host memory, from where loads copy them.

    Parameters
    ----------
    models
        The instance's models.
    runner
        Knows their weights.
    memory
        Returns so many bytes of host memory.
    split
        Over how many GPUs models are split, besides being whole: pairs of a model and a number.

    Attributes
    ----------
    flat
        Per model: its weight bytes, contiguous, padded up to what the scenario says.

    Raises
    ------
    DeviceError
        If the weights of a model take more bytes than the scenario says.
    """

    def __init__(
        self,
        models: Sequence[MLModel],
        runner: Runner,
        memory: Callable[[int], Tensor],
        split: Sequence[tuple[int, int]] = (),
    ) -> None:
        self.flat: list[Tensor] = []
        self._parts: dict[tuple[int, Part], Tensor] = {}
        self._places: dict[tuple[int, Part], dict[str, _WeightPlace]] = {}
        for number, model in enumerate(models):
            weights = runner.weights(model)
            size = packed_bytes(weights)
            if size > model.weight_bytes:
                raise DeviceError(
                    f"model {model.name}: its weights take {size} bytes, the scenario says {model.weight_bytes}; "
                    f"write 'weights: {size} B', or larger (the rest is padding)"
                )
            self._keep(number, ENTIRE, weights, memory(model.weight_bytes))
            self.flat.append(self._parts[number, ENTIRE])
        for number, of in split:
            self._split(number, models[number], of, runner, memory)

    def _split(self, number: int, model: MLModel, of: int, runner: Runner, memory: Callable[[int], Tensor]) -> None:
        assert isinstance(runner, TeamRunner)  # noqa: S101  # who makes it has seen to that
        for rank, weights in enumerate(runner.parts(model, of)):
            most = part_bytes(model.weight_bytes, of)
            if packed_bytes(weights) > most:
                problem = f"a part of its weights on {of} GPUs takes {packed_bytes(weights)} bytes"
                raise DeviceError(f"model {model.name}: {problem}; allowed are {most}")
            self._keep(number, Part(rank, of), weights, memory(most))

    def _keep(self, model: int, part: Part, weights: Mapping[str, Tensor], flat: Tensor) -> None:
        self._parts[model, part], self._places[model, part] = flat, _packed(weights)
        for name, view in self.views(model, flat, part).items():
            view.copy_(weights[name])

    def part(self, model: int, part: Part) -> Tensor:
        """Return the weight bytes of a part of a model, contiguous."""
        return self._parts[model, part]

    def names(self, model: int, part: Part = ENTIRE) -> Sequence[str]:
        """Return the names of a model's tensors."""
        return list(self._places[model, part])

    def views(self, model: int, flat: Tensor, part: Part = ENTIRE) -> dict[str, Tensor]:
        """Return a model's tensors by name as views of bytes that begin with its weights, or those of a part."""
        return {name: _view(flat, place) for name, place in self._places[model, part].items()}


def host_sizes(models: Sequence[MLModel], split: Sequence[tuple[int, int]]) -> list[int]:
    """Return the sizes of all memory that `HostWeights` asks for, in that order."""
    parts = ((part_bytes(models[model].weight_bytes, of), of) for model, of in split)
    return [*(model.weight_bytes for model in models), *(size for size, of in parts for _ in range(of))]


def _view(flat: Tensor, place: _WeightPlace) -> Tensor:
    size = place.shape.numel() * place.dtype.itemsize
    return flat[place.offset : place.offset + size].view(place.dtype).view(place.shape)


class Binding:
    """Points the parameters, buffers and plain tensors of a module at views; the look-ups are made once.

    Parameters
    ----------
    model
        For messages.
    module
        Its own weights are never used.
    names
        Of the model's tensors.

    Raises
    ------
    DeviceError
        If the module has a tensor without a weight, or the other way round.
    """

    def __init__(self, model: MLModel, module: nn.Module, names: Sequence[str]) -> None:
        self.module = module
        self._parameters = dict(module.named_parameters(remove_duplicate=False))
        needed = tensors_of(module).keys()
        if needed != set(names):
            wrong = ", ".join(sorted(needed ^ set(names))[:3])
            raise DeviceError(f"model {model.name}: the runner's module and its weights do not agree on {wrong}")
        # The registers themselves: assigning attributes would check every one of them again at every load.
        self._register = {name: self._register_of(name) for name in names}

    def weights(self, views: Mapping[str, Tensor]) -> dict[str, nn.Parameter | Tensor]:
        """Return views as what the module holds: parameters where it has parameters."""
        return {
            name: nn.Parameter(view, requires_grad=False) if name in self._parameters else view
            for name, view in views.items()
        }

    def point_at(self, weights: Mapping[str, nn.Parameter | Tensor]) -> None:
        """Make the module read these weights, made by `weights`."""
        for name, (register, attribute) in self._register.items():
            register[attribute] = weights[name]

    def _register_of(self, name: str) -> tuple[dict[str, Any], str]:
        """Return where a submodule keeps a tensor, and under which name."""
        path, _, attribute = name.rpartition(".")
        owner = self.module.get_submodule(path)
        if name in self._parameters:
            return owner._parameters, attribute
        return (owner._buffers if attribute in owner._buffers else vars(owner)), attribute
