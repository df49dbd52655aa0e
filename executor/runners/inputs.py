"""What a task works on: the bytes that reached it, read as tokens or as a picture, and how much text a job brings."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from zlib import crc32

import torch
from torch import Tensor

from truenorth.executor.devices.runner import RunnerCall
from truenorth.executor.errors import DeviceError

DRAWN_BYTES = 131_072
"""How much a task without inputs draws for itself: as much as a small picture needs."""


def seed_of(text: str) -> int:
    """Return a seed that is the same in every process.

    >>> seed_of("opt")
    3298662876
    """
    return crc32(text.encode())


def received(call: RunnerCall) -> Tensor:
    """Return the bytes from all predecessors, one after the other; where there are none, drawn by job and task.

    Returns
    -------
    Tensor
        One-dimensional, uint8, not empty, on the device of the call.
    """
    if sum(len(data) for data in call.inputs.values()):
        return torch.cat(list(call.inputs.values()))
    generator = torch.Generator(call.device)
    generator.manual_seed(seed_of(f"{call.job}/{call.workflow}/{call.task}"))
    return torch.randint(0, 256, (DRAWN_BYTES,), dtype=torch.uint8, device=call.device, generator=generator)


def stretch(data: Tensor, size: int) -> Tensor:
    """Return the first bytes of something, repeated as often as it takes.

    >>> stretch(torch.tensor([1, 2, 3]), 5).tolist()
    [1, 2, 3, 1, 2]
    """
    return data.repeat(-(-size // len(data)))[:size]


def tokens(data: Sequence[Tensor], count: int, vocabulary: int, first: int = 0) -> Tensor:
    """Read the bytes of each task as tokens, two bytes each.

    Parameters
    ----------
    first
        The smallest token; those below have a special meaning.

    Returns
    -------
    Tensor
        Shape [tasks, count], at least `first` and below `vocabulary`.

    >>> tokens([torch.tensor([1, 0, 0, 7], dtype=torch.uint8)], 2, 200, first=10).tolist()
    [[76, 17]]
    """
    pairs = torch.stack([stretch(each, 2 * count).view(count, 2) for each in data]).long()
    return (pairs[..., 0] * 256 + pairs[..., 1]) % (vocabulary - first) + first


def pictures(data: Sequence[Tensor], side: int) -> Tensor:
    """Read the bytes of each task as a square picture of three colours.

    Returns
    -------
    Tensor
        Shape [tasks, 3, side, side], float32 from 0 to 1.

    >>> pictures([torch.tensor([0, 255], dtype=torch.uint8)], 2)[0, 0].tolist()
    [[0.0, 1.0], [0.0, 1.0]]
    """
    return torch.stack([stretch(each, 3 * side * side).view(3, side, side) for each in data]).float() / 255


def sounds(data: Sequence[Tensor], channels: int, length: int) -> Tensor:
    """Read the bytes of each task as a sound of so many channels.

    Returns
    -------
    Tensor
        Shape [tasks, channels, length], float32 from -1 to 1.

    >>> sounds([torch.tensor([0, 255], dtype=torch.uint8)], 1, 3).tolist()
    [[[-1.0, 1.0, -1.0]]]
    """
    return torch.stack([stretch(each, channels * length).view(channels, length) for each in data]).float() / 127.5 - 1


def rows(*parts: Tensor) -> list[Tensor]:
    """Return what tensors whose first dimension counts tasks hold for each: numbers of 32 bits, one after the other.

    Tokens stay exact, since there are fewer than 2^24 of them.

    >>> [row.tolist() for row in rows(torch.tensor([[1], [2]]), torch.tensor([0.5, 1.5]))]
    [[1.0, 0.5], [2.0, 1.5]]
    """
    return list(torch.cat([part.detach().float().reshape(len(part), -1) for part in parts], 1))


def as_bytes(output: Tensor) -> Tensor:
    """Return the bytes that a tensor of any kind consists of.

    >>> as_bytes(torch.tensor([1.0])).tolist()
    [0, 0, 128, 63]
    """
    return output.detach().contiguous().view(-1).view(torch.uint8)


_COLUMNS = (("prompt", "answer"), ("ContextTokens", "GeneratedTokens"))
"""Names of the two columns; the second pair is that of the Azure traces of language models."""


def read_lengths(path: str) -> list[tuple[int, int]]:
    """Return tokens to read and to write, a pair per row of a CSV file.

    Raises
    ------
    DeviceError
        If it cannot be read, or a row holds no such pair.
    """
    try:
        rows = list(csv.DictReader(Path(path).read_text().splitlines()))
    except (OSError, UnicodeDecodeError) as error:
        raise DeviceError(f"lengths {path}: cannot be read: {error}") from None
    names = next((pair for pair in _COLUMNS if rows and all(name in rows[0] for name in pair)), None)
    if names is None:
        allowed = " or ".join(",".join(pair) for pair in _COLUMNS)
        raise DeviceError(f"lengths {path}: has no rows under the columns {allowed}")
    found = []
    for line, row in enumerate(rows, 2):
        given = [(row[name] or "").strip() for name in names]
        if not all(text.isascii() and text.isdigit() and int(text) for text in given):
            raise DeviceError(f"lengths {path}:{line}: {','.join(given)}: allowed are whole numbers of at least 1")
        found.append((int(given[0]), int(given[1])))
    return found
