"""Modules built once: their weights go to whoever holds the memory, their code is copied for every GPU."""

from __future__ import annotations

import copy
from collections.abc import Callable
from threading import Lock

import torch
from torch import Tensor, nn

from truenorth.executor.devices.weights import tensors_of
from truenorth.executor.runners.uses import seed_of
from truenorth.models import MLModel


class Prototypes:
    """Builds modules by model, and keeps of each only what is no weight.

    Parameters
    ----------
    build
        Makes the module of a model; it may draw random numbers.
    seed
        Of these numbers, beside the model's name: the same seed and name give the same weights.
    """

    def __init__(self, build: Callable[[MLModel], nn.Module], seed: int) -> None:
        self._build = build
        self._seed = seed
        self._without_weights: dict[str, nn.Module] = {}
        self._building = Lock()

    def weights(self, model: MLModel) -> dict[str, Tensor]:
        """Return every tensor of a model's module, by each of its qualified names, in host memory."""
        with self._building:
            return self._built(model)

    def module(self, model: MLModel) -> nn.Module:
        """Return a copy of a model's module whose weights are mere shapes, on the device `meta`."""
        with self._building:
            if model.name not in self._without_weights:
                self._built(model)
            return copy.deepcopy(self._without_weights[model.name])

    def _built(self, model: MLModel) -> dict[str, Tensor]:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed_of(f"{self._seed} {model.name}"))
            module = self._build(model).eval()
        weights = tensors_of(module)
        # A copy asks its memo first, so this one takes shapes for weights; those that are tied stay so.
        shapes: dict[int, object] = {id(tensor): _shape(tensor) for tensor in weights.values()}
        self._without_weights[model.name] = copy.deepcopy(module, shapes)
        return {name: tensor.detach() for name, tensor in weights.items()}


def _shape(tensor: Tensor) -> Tensor:
    empty = torch.empty_like(tensor, device="meta")
    return nn.Parameter(empty, requires_grad=False) if isinstance(tensor, nn.Parameter) else empty
