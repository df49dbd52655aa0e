"""Modules that a user could have written, for the tests."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Sum(nn.Module):
    """Adds the bytes up and scales the total by one drawn number."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.rand(1))

    def forward(self, data: Tensor) -> Tensor:
        return data.sum() * self.scale


def make(name: str) -> nn.Module:
    return nn.Sequential(Sum()) if name == "nested" else Sum()


def nothing(name: str) -> object:
    return name
