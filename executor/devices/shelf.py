"""Where outputs lie: shared memory without a name, a piece per process of a GPU, which outlives that process.

Whoever owns a piece appends to it; everybody reads there, and the head frees what nobody needs any more. A piece is so
large that it is never full, and takes memory only where something lies. Before all outputs stands what must be known of
an owner that ends without a word: how far it had come, and the order that each of its lanes has begun last.
"""

from __future__ import annotations

import ctypes
import hashlib
import mmap
import os
import struct
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from truenorth.executor.devices.records import Digest
from truenorth.executor.errors import DeviceError

PIECE_BYTES = 1 << 42
_DIGEST_BYTES = 16
_FIRST = 1 << 16
"""Where outputs begin, behind the next free byte and the orders that lanes have begun."""
_BEGUN = 1 << 9
"""Where the notes of the first lanes end; others are not taken to other machines."""
_NUMBER = struct.Struct("q")
_HEAD = 32
"""Numbers before an output: its bytes, the place of its kind of number in `_DTYPES`, its dimensions and their sizes."""
_HEAD_BYTES = 8 * _HEAD
_KINDS = {value for value in vars(torch).values() if isinstance(value, torch.dtype)}
_DTYPES = {dtype: place for place, dtype in enumerate(sorted(_KINDS, key=str))}


class Ref(NamedTuple):
    """Where an output lies: whose piece, from which byte on, and how many bytes it takes there."""

    piece: int
    offset: int
    size_bytes: int


def make_piece() -> int:
    """Return the descriptor of a piece of shared memory that nothing takes any room of yet."""
    piece = os.memfd_create("outputs")
    os.ftruncate(piece, PIECE_BYTES)
    return piece


class Shelf:
    """All pieces, of which one may be written to.

    Parameters
    ----------
    pieces
        Their descriptors; they are closed.
    """

    def __init__(self, pieces: list[int]) -> None:
        self._maps = [mmap.mmap(piece, PIECE_BYTES) for piece in pieces]
        self._bytes = [torch.frombuffer(each, dtype=torch.uint8) for each in self._maps]
        for piece in pieces:
            os.close(piece)
        self._own = 0

    def own(self, piece: int) -> None:
        """Append to a piece from now on, behind what whoever owned it before has put there; no lane has begun."""
        self._own = piece
        self._maps[piece][_NUMBER.size : _FIRST] = bytes(_FIRST - _NUMBER.size)

    def note_begun(self, lane: int, number: int) -> None:
        """Take note, for whoever outlives this process, of the order that a lane begins."""
        _NUMBER.pack_into(self._maps[self._own], _NUMBER.size * (lane + 1), number)

    def begun(self, piece: int, lane: int) -> int:
        """Return the number of the order that a lane has begun last; 0 if it has begun none."""
        number: int = _NUMBER.unpack_from(self._maps[piece], _NUMBER.size * (lane + 1))[0]
        return number

    def put(self, output: Tensor) -> Ref:
        """Append an output."""
        ref = self.reserve(output)
        self.write(ref.offset, output)
        return ref

    def reserve(self, output: Tensor) -> Ref:
        """Return where an output is to lie, behind all others."""
        return self._reserve(_HEAD_BYTES + output.nbytes)

    def _reserve(self, needed: int) -> Ref:
        pages = -(-needed // mmap.PAGESIZE)  # only whole pages can be freed
        size_bytes = pages * mmap.PAGESIZE
        room = self._maps[self._own]
        offset = max(_FIRST, *_NUMBER.unpack_from(room))
        if offset + size_bytes > PIECE_BYTES:  # what lies at the beginning was freed long ago
            offset = _FIRST
        _NUMBER.pack_into(room, 0, offset + size_bytes)
        return Ref(self._own, offset, size_bytes)

    def write(self, offset: int, output: Tensor) -> None:
        """Put an output where it is to lie."""
        flat = output.contiguous().view(-1).view(torch.uint8).cpu()
        head = len(flat), _DTYPES[output.dtype], output.dim(), *output.shape
        struct.pack_into(f"{len(head)}q", self._maps[self._own], offset, *head)
        # Past torch, whose calls take longer: the next run waits for this.
        ctypes.memmove(self._bytes[self._own].data_ptr() + offset + _HEAD_BYTES, flat.data_ptr(), len(flat))

    def bytes_at(self, piece: int, offset: int) -> Tensor:
        """Return the bytes of an output, as they lie there.

        Raises
        ------
        DeviceError
            If nothing lies there.
        """
        begin = offset + _HEAD_BYTES
        return self._bytes[piece][begin : begin + self._size(piece, offset)]

    def _size(self, piece: int, offset: int) -> int:
        head = struct.unpack_from("3q", self._maps[piece], offset)
        if not any(head):
            raise DeviceError("its input was lost with the process that had put it out")
        return int(head[0])

    def read(self, ref: Ref) -> Tensor:
        """Return an output as it lies there."""
        room = self._bytes[ref.piece]
        size, dtype, dimensions, *shape = struct.unpack_from(f"{_HEAD}q", self._maps[ref.piece], ref.offset)
        flat = room[ref.offset + _HEAD_BYTES : ref.offset + _HEAD_BYTES + size]
        return flat.view(list(_DTYPES)[dtype]).view(shape[:dimensions])

    def free(self, ref: Ref) -> None:
        """Give the memory of an output back."""
        self._maps[ref.piece].madvise(mmap.MADV_REMOVE, ref.offset, ref.size_bytes)

    # -- between machines -----------------------------------------------------------------------------------------

    def begin_at(self, piece: int, offset: int) -> None:
        """Let a piece that nothing has been put on begin elsewhere, where nothing lay in one that was lost."""
        _NUMBER.pack_into(self._maps[piece], 0, offset)

    def lift(self, piece: int, offset: int) -> NDArray[np.uint8]:
        """Return an output with what must be known of it, for another shelf.

        Raises
        ------
        DeviceError
            If nothing lies there.
        """
        return np.frombuffer(self._maps[piece], np.uint8, _HEAD_BYTES + self._size(piece, offset), offset)

    def lay(self, lifted: NDArray[np.uint8], ref: Ref | None = None) -> Ref:
        """Put what was lifted elsewhere where it lay there, or behind all others; return where."""
        ref = ref or self._reserve(len(lifted))
        self._maps[ref.piece][ref.offset : ref.offset + len(lifted)] = lifted.data
        return ref

    def all_begun(self, piece: int) -> bytes:
        """Return what `note_begun` has noted, for another shelf."""
        return self._maps[piece][_NUMBER.size : _BEGUN]

    def note_all_begun(self, piece: int, begun: bytes) -> None:
        """Take over what was noted elsewhere; nothing: no lane has begun."""
        self._maps[piece][_NUMBER.size : _BEGUN] = begun.ljust(_BEGUN - _NUMBER.size, b"\0")

    def close(self) -> None:
        """Give all memory back."""
        self._bytes.clear()
        self._maps.clear()


def share_memory(size_bytes: int) -> Tensor:
    """Return memory that processes which are forked from this one share with it."""
    return torch.frombuffer(mmap.mmap(-1, max(1, size_bytes)), dtype=torch.uint8)[:size_bytes]


def digest(output: Tensor) -> Digest:
    """Return the digest of an output, which is copied to the host for that.

    >>> digest(torch.tensor([1.0, float("inf")])).finite, digest(torch.tensor([1.0, float("inf")])).numbers
    (False, True)
    """
    host = output.detach().contiguous().cpu()
    told = hashlib.blake2b(f"{host.dtype} {list(host.shape)}".encode(), digest_size=_DIGEST_BYTES)
    told.update(host.view(-1).view(torch.uint8).numpy().data)
    if not host.is_floating_point() and not host.is_complex():
        return Digest(told.hexdigest(), True, True)
    wide = host.float() if host.dtype.itemsize == 1 else host  # torch tests no numbers of eight bits
    finite = bool(wide.isfinite().all())
    return Digest(told.hexdigest(), finite, finite or not bool(wide.isnan().any()))
