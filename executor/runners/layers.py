"""Two layers that several GPUs compute together (Megatron-LM): columns of the first and rows of the second on each.

So nothing has to be told between the layers, and what the second one puts out is added up.
"""

from __future__ import annotations

from torch import Tensor

from truenorth.executor.devices.team import Team


def columns(weight: Tensor, rank: int, size: int) -> Tensor:
    """Return the columns that one of several GPUs has of the first layer. Shape [inputs, outputs]."""
    return weight.tensor_split(size, dim=1)[rank].contiguous()


def rows(weight: Tensor, rank: int, size: int) -> Tensor:
    """Return the rows that one of several GPUs has of the second layer. Shape [inputs, outputs]."""
    return weight.tensor_split(size, dim=0)[rank].contiguous()


def through_both(data: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Return this GPU's part of what both layers make of some data; added up over all it is all."""
    return (data @ first).relu_() @ second


def parallel(data: Tensor, first: Tensor, second: Tensor, team: Team) -> Tensor:
    """Return what both layers make of some data, of which each GPU of a team has its columns and its rows."""
    return team.add_up(through_both(data, first, second))
