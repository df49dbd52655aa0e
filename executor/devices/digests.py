"""What stays of an output when its memory is given away: a hash of its bits, and whether it holds numbers."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor

_BYTES = 16


@dataclass(frozen=True, slots=True)
class Digest:
    """An output's digest.

    Parameters
    ----------
    bits
        Equal for outputs of the same bits, shape and type, so that not-a-number equals itself.
    finite
        Whether every entry is a finite number.
    numbers
        Whether none is not-a-number.
    """

    bits: str
    finite: bool
    numbers: bool


def digest(output: Tensor) -> Digest:
    """Return the digest of an output, which is copied to the host for that.

    >>> digest(torch.tensor([1.0, float("inf")])).finite, digest(torch.tensor([1.0, float("inf")])).numbers
    (False, True)
    """
    host = output.detach().contiguous().cpu()
    told = hashlib.blake2b(f"{host.dtype} {list(host.shape)}".encode(), digest_size=_BYTES)
    told.update(host.view(-1).view(torch.uint8).numpy().data)
    if not host.is_floating_point() and not host.is_complex():
        return Digest(told.hexdigest(), True, True)
    wide = host.float() if host.dtype.itemsize == 1 else host  # torch tests no numbers of eight bits
    finite = bool(wide.isfinite().all())
    return Digest(told.hexdigest(), finite, finite or not bool(wide.isnan().any()))
