"""Where models lie in the memory of one GPU: slots have fixed addresses, by bytes a model gets one piece.

What fits by bytes need not fit in one piece. Then models that are here slide together, as few bytes as possible.

For a plan the addresses are chosen beforehand, so that models need not move while it is carried out. A residency holds
its piece from its load up to the load that evicts it. So, counted in loads of its GPU, lifetimes are known whatever the
clock says. Pieces are put down one by one at the lowest address that is free for a lifetime, in several orders; this is
dynamic storage allocation, and a plan that fits by bytes need not fit in pieces.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from truenorth.executor.devices.weights import ALIGNMENT, ENTIRE, Part, aligned
from truenorth.models import GPU, Instance, Residency, Timeline
from truenorth.models.tables import part_bytes
from truenorth.models.timeline import leave_at


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
    address, part
        Of every model that is here; which part of it, if it is split.
    """

    def __init__(self, gpu: GPU, weight_bytes: Sequence[int]) -> None:
        self._slots = gpu.slots
        self._weight_bytes = weight_bytes
        self.address: dict[int, int] = {}
        self.part: dict[int, Part] = {}
        if gpu.slots:
            self.size_bytes = sum(map(aligned, gpu.slots))
        else:
            self.size_bytes = aligned(gpu.memory_bytes) + ALIGNMENT * len(weight_bytes)

    def take(self, model: int, slot: int | None, wanted: int | None = None, part: Part = ENTIRE) -> list[Move]:
        """Give a model its address, which `address` then holds; return the moves that must come first, in order.

        Parameters
        ----------
        slot
            The slot, where there are slots.
        wanted
            The address that a plan has for it; taken if it is free.
        part
            Of the model.
        """
        self.part[model] = part
        if slot is not None:
            self.address[model] = sum(map(aligned, self._slots[:slot]))
            return []
        size, gaps = self._size(model), self._gaps()
        if wanted is not None and any(low <= wanted and wanted + size <= high for low, high in gaps):
            self.address[model] = wanted
            return []
        fitting = [(high - low, low) for low, high in gaps if high - low >= size]
        if fitting:
            self.address[model] = min(fitting)[1]
            return []
        return self._slide(model)

    def rounded(self, model: int, part: Part = ENTIRE) -> int:
        """Return the room that a model, or a part of it, takes."""
        return aligned(part_bytes(self._weight_bytes[model], part.of))

    def _size(self, model: int) -> int:
        return self.rounded(model, self.part[model])

    def free(self, model: int) -> None:
        """Take a model's address away."""
        del self.address[model]

    def _order(self) -> list[int]:
        return sorted(self.address, key=self.address.__getitem__)

    def _gaps(self) -> list[tuple[int, int]]:
        """Return the free pieces [low, high) between the models, empty ones included, from below."""
        order = self._order()
        lows = [0, *(self.address[model] + self._size(model) for model in order)]
        highs = [*(self.address[model] for model in order), self.size_bytes]
        return list(zip(lows, highs, strict=True))

    def _slide(self, model: int) -> list[Move]:
        """Join neighbouring gaps into one that is large enough by sliding the models between them down."""
        order, gaps = self._order(), self._gaps()
        free = [high - low for low, high in gaps]
        windows = [
            (sum(self._size(other) for other in order[first:last]), first, last)
            for first in range(len(gaps))
            for last in range(first + 1, len(gaps))
            if sum(free[first : last + 1]) >= self._size(model)
        ]
        _, first, last = min(windows)
        address, moves = gaps[first][0], []
        for other in order[first:last]:
            if self.address[other] != address:
                moves.append(Move(other, address, self.address[other]))
                self.address[other] = address
            address += self._size(other)
        self.address[model] = address
        return moves


_SHUFFLES = 200
"""Random orders that are tried after the sensible ones."""


@dataclass(frozen=True, slots=True)
class Packing:
    """Addresses of a plan's residencies.

    Parameters
    ----------
    initial
        Address by GPU and model.
    loads
        Address by GPU and number of the load on it, from 0.
    unpacked
        GPUs for whose plan no addresses were found: there, models move when they must.
    """

    initial: Mapping[tuple[int, int], int] = field(default_factory=dict)
    loads: Mapping[tuple[int, int], int] = field(default_factory=dict)
    unpacked: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class _Piece:
    """A residency: its size, its model, and the loads of its GPU between which it is there."""

    size: int
    model: int
    first: int
    last: int

    def meets(self, other: _Piece) -> bool:
        return self.first < other.last and other.first < self.last


def pack(instance: Instance, plan: Timeline) -> Packing:
    """Return addresses for a plan; GPUs with slots have theirs already."""
    initial: dict[tuple[int, int], int] = {}
    loads: dict[tuple[int, int], int] = {}
    unpacked = []
    for gpu, device in enumerate(instance.cluster.gpus):
        pieces = _pieces(instance, [each for each in plan.residencies if gpu in instance.places.gpus[each.gpu]])
        if device.slots or not pieces:
            continue
        room = AddressSpace(device, instance.weight_bytes.tolist()).size_bytes
        found = next((places for order in _orders(pieces) if (places := _put(order, room)) is not None), None)
        if found is None:
            unpacked.append(gpu)
            continue
        for piece, address in found.items():
            if piece.first < 0:
                initial[gpu, piece.model] = address
            else:
                loads[gpu, piece.first] = address
    return Packing(initial, loads, tuple(unpacked))


def _pieces(instance: Instance, residencies: Sequence[Residency]) -> list[_Piece]:
    """Return the residencies of a GPU with lifetimes counted in its loads; -1: from the start."""
    starts = sorted(residency.load_start_us for residency in residencies if not residency.initial)
    pieces, number = [], 0
    for residency in sorted(residencies, key=lambda r: (not r.initial, r.load_start_us, r.ready_us)):
        first = -1 if residency.initial else number
        number += not residency.initial
        last = leave_at(residency, starts)
        size = aligned(instance.held_bytes(residency.model, residency.gpu))
        pieces.append(_Piece(size, residency.model, first, max(last, first + 1)))
    return pieces


def _orders(pieces: list[_Piece]) -> Iterator[list[_Piece]]:
    """Yield orders in which to put pieces down: by time, largest first, longest first, and at random."""
    yield pieces
    yield sorted(pieces, key=lambda p: -p.size)
    yield sorted(pieces, key=lambda p: -p.size * (p.last - p.first))
    yield sorted(pieces, key=lambda p: p.first - p.last)
    source = random.Random(0)  # noqa: S311
    for _ in range(_SHUFFLES):
        yield sorted(pieces, key=lambda p: source.random() * p.size)


def _put(order: list[_Piece], room: int) -> dict[_Piece, int] | None:
    """Return the lowest free address of every piece in turn, or None if one reaches beyond the room."""
    places: dict[_Piece, int] = {}
    for piece in order:
        address = 0
        for low, high in sorted((places[other], places[other] + other.size) for other in places if piece.meets(other)):
            if address + piece.size <= low:
                break
            address = max(address, high)
        if address + piece.size > room:
            return None
        places[piece] = address
    return places
