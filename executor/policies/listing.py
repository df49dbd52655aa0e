"""What a list schedule knows of places: where a task would run and when, and what is listed for a GPU so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class InputSource(NamedTuple):
    """Where and when an input of a task is made, and the edge along which it comes."""

    gpu: int
    end_us: int
    edge: int


class ListedPlace(NamedTuple):
    """Where a task is listed: when its inputs are there, when it starts and ends, and what its evictions count."""

    gpu: int
    inputs_us: int
    start_us: int
    end_us: int
    price_us: float


class ListedBatch(NamedTuple):
    """A batch that is listed."""

    start_us: int
    end_us: int
    size: int


@dataclass(slots=True)
class ListedLane:
    """What a GPU is bound to do and what is listed for it so far.

    Attributes
    ----------
    free_us, copy_us
        When its compute and its copy engine are free.
    ready_us
        Per model that is there or listed to be loaded: when it is ready.
    room_bytes
        What nothing holds.
    loads
        Whether it may begin a load now; a bound task that lacks a model has its own worker load that.
    kept
        Models that what is listed needs.
    gap_us
        Until when a GPU that is idle has nothing listed; None if it is not, or something starts now.
    batches
        Per batch class: the last batch that is listed.
    """

    free_us: int
    copy_us: int
    ready_us: dict[int, int]
    room_bytes: int
    loads: bool
    kept: set[int]
    gap_us: int | None = None
    batches: dict[int, ListedBatch] = field(default_factory=dict)
