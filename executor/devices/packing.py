"""Addresses for a plan by bytes: chosen beforehand, so that models need not move while the plan is carried out.

A residency holds its piece of memory from its load up to the load that evicts it. So, counted in loads of its GPU,
lifetimes are known whatever the clock says. Pieces are put down one by one at the lowest address that is free for a
lifetime, in several orders; this is dynamic storage allocation, and a plan that fits by bytes need not fit in pieces.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from executor.devices.addresses import AddressSpace
from executor.devices.weights import aligned
from models import Instance, Residency, Timeline
from models.timeline import leave_at

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
        pieces = _pieces(instance, [residency for residency in plan.residencies if residency.gpu == gpu])
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
        size = aligned(int(instance.weight_bytes[residency.model]))
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
