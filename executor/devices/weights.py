"""Weights in host memory, contiguous per model, and the views that make bytes on a device a module's parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from executor.devices.physical import Physical
from executor.errors import DeviceError
from executor.runners.runner import Runner
from models import MLModel

ALIGNMENT = 256
"""Every tensor begins at a multiple of so many bytes, as CUDA's own allocator has it."""


def aligned(size_bytes: int) -> int:
    """Return the smallest multiple of the alignment at or above a size.

    >>> aligned(1), aligned(256)
    (256, 256)
    """
    return -(-size_bytes // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a tensor lies in the bytes of its model, and how to read it."""

    offset: int
    shape: torch.Size
    dtype: torch.dtype


def packed_bytes(weights: Mapping[str, Tensor]) -> int:
    """Return how many bytes a model's weights take; tied tensors count once."""
    return max([1, *(place.offset + weights[name].nbytes for name, place in _packed(weights).items())])


def _packed(weights: Mapping[str, Tensor]) -> dict[str, _Place]:
    """Put tensors one after the other; those that are one and the same tensor share a place."""
    places: dict[str, _Place] = {}
    known: dict[tuple[int, torch.Size, torch.dtype], int] = {}
    free = 0
    for name, tensor in weights.items():
        identity = (tensor.data_ptr(), tensor.shape, tensor.dtype)
        if tensor.nbytes == 0 or identity not in known:
            known[identity] = free
            free += aligned(tensor.nbytes)
        places[name] = _Place(known[identity], tensor.shape, tensor.dtype)
    return places


class HostWeights:
    """The weights of every model in host memory, from where loads copy them.

    Parameters
    ----------
    models
        The instance's models.
    runner
        Knows their weights.
    physical
        Decides whether the memory is pinned.

    Attributes
    ----------
    flat
        Per model: its weight bytes, contiguous, padded up to what the scenario says.

    Raises
    ------
    DeviceError
        If the weights of a model take more bytes than the scenario says.
    """

    def __init__(self, models: Sequence[MLModel], runner: Runner, physical: Physical) -> None:
        self.flat: list[Tensor] = []
        self._places: list[dict[str, _Place]] = []
        for model in models:
            weights = runner.weights(model)
            size = packed_bytes(weights)
            if size > model.weight_bytes:
                raise DeviceError(
                    f"model {model.name}: its weights take {size} bytes, the scenario says {model.weight_bytes}; "
                    f"write 'weights: {size} B', or larger (the rest is padding)"
                )
            flat, places = physical.host_memory(model.weight_bytes), _packed(weights)
            self.flat.append(flat)
            self._places.append(places)
            for name, view in self.views(len(self.flat) - 1, flat).items():
                view.copy_(weights[name])

    def views(self, model: int, flat: Tensor) -> dict[str, Tensor]:
        """Return a model's tensors by name as views of its bytes, wherever these lie."""
        return {name: _view(flat, place) for name, place in self._places[model].items()}


def _view(flat: Tensor, place: _Place) -> Tensor:
    size = place.shape.numel() * place.dtype.itemsize
    return flat[place.offset : place.offset + size].view(place.dtype).view(place.shape)


class Binding:
    """Points the parameters and buffers of a module at views; the look-ups are made once.

    Raises
    ------
    DeviceError
        If the module has a parameter or buffer without a weight, or the other way round.
    """

    def __init__(self, model: MLModel, module: nn.Module, names: Mapping[str, object]) -> None:
        self.module = module
        parameters = dict(module.named_parameters(remove_duplicate=False))
        buffers = dict(module.named_buffers(remove_duplicate=False))
        missing, unknown = (parameters.keys() | buffers.keys()) - names.keys(), names.keys() - parameters - buffers
        if missing or unknown:
            wrong = ", ".join(sorted([*missing, *unknown])[:3])
            raise DeviceError(f"model {model.name}: weights and module do not agree on {wrong}")
        self._owners = [
            (name, module.get_submodule(name.rpartition(".")[0]), name.rpartition(".")[2], name in parameters)
            for name in names
        ]

    def point_at(self, views: Mapping[str, Tensor]) -> None:
        """Make the module read its weights from these views."""
        for name, owner, attribute, is_parameter in self._owners:
            if is_parameter:
                owner._parameters[attribute] = nn.Parameter(views[name], requires_grad=False)
            else:
                owner._buffers[attribute] = views[name]
