"""Where models lie in the memory of one GPU: slots have fixed addresses, by bytes a model gets one piece.

What fits by bytes need not fit in one piece. Then models that are here slide together, as few bytes as possible.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from executor.devices.weights import ALIGNMENT, aligned
from models import GPU


@dataclass(frozen=True, slots=True)
class Move:
    """A model that makes way: its new address, and the old one above it."""

    model: int
    address: int
    before: int


class AddressSpace:
    """The addresses of one GPU's memory.

    Parameters
    ----------
    gpu
        By bytes or with slots.
    weight_bytes
        Size of every model.

    Attributes
    ----------
    size_bytes
        What must be allocated: the memory, and what rounding every model's size up can cost.
    address
        Of every model that is here.
    """

    def __init__(self, gpu: GPU, weight_bytes: Sequence[int]) -> None:
        self._slots = gpu.slots
        self._size = [aligned(size) for size in weight_bytes]
        self.address: dict[int, int] = {}
        if gpu.slots:
            self.size_bytes = sum(map(aligned, gpu.slots))
        else:
            self.size_bytes = aligned(gpu.memory_bytes) + ALIGNMENT * len(weight_bytes)

    def take(self, model: int, slot: int | None, wanted: int | None = None) -> list[Move]:
        """Give a model its address, which `address` then holds; return the moves that must come first, in order.

        Parameters
        ----------
        slot
            The slot, where there are slots.
        wanted
            The address that a plan has for it; taken if it is free.
        """
        if slot is not None:
            self.address[model] = sum(map(aligned, self._slots[:slot]))
            return []
        size, gaps = self._size[model], self._gaps()
        if wanted is not None and any(low <= wanted and wanted + size <= high for low, high in gaps):
            self.address[model] = wanted
            return []
        fitting = [(high - low, low) for low, high in gaps if high - low >= size]
        if fitting:
            self.address[model] = min(fitting)[1]
            return []
        return self._slide(model)

    def rounded(self, model: int) -> int:
        """Return the room that a model takes."""
        return self._size[model]

    def free(self, model: int) -> None:
        """Take a model's address away."""
        del self.address[model]

    def _order(self) -> list[int]:
        return sorted(self.address, key=self.address.__getitem__)

    def _gaps(self) -> list[tuple[int, int]]:
        """Return the free pieces [low, high) between the models, empty ones included, from below."""
        order = self._order()
        lows = [0, *(self.address[model] + self._size[model] for model in order)]
        highs = [*(self.address[model] for model in order), self.size_bytes]
        return list(zip(lows, highs, strict=True))

    def _slide(self, model: int) -> list[Move]:
        """Join neighbouring gaps into one that is large enough by sliding the models between them down."""
        order, gaps = self._order(), self._gaps()
        free = [high - low for low, high in gaps]
        windows = [
            (sum(self._size[other] for other in order[first:last]), first, last)
            for first in range(len(gaps))
            for last in range(first + 1, len(gaps))
            if sum(free[first : last + 1]) >= self._size[model]
        ]
        _, first, last = min(windows)
        address, moves = gaps[first][0], []
        for other in order[first:last]:
            if self.address[other] != address:
                moves.append(Move(other, address, self.address[other]))
                self.address[other] = address
            address += self._size[other]
        self.address[model] = address
        return moves
