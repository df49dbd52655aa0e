"""What a search knows of workers elsewhere: calls go out to them, and what comes back in time is used."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

Item = TypeVar("Item")
Value = TypeVar("Value")


_RETURN_SHARE, _RETURN_S = 0.2, 6.0
"""So much of the time of a call, and no more than so many seconds, are left for its way there and back, a worker that
has to start first included."""


class Farm(Protocol):
    """Workers in other processes, on this machine or others."""

    @property
    def workers(self) -> int:
        """How many calls they can be at, at the same time."""
        ...

    def gather(
        self, call: Callable[[Item], Value | None], items: Sequence[Item], stop: threading.Event
    ) -> Iterator[tuple[int, Value]]:
        """Yield the position of an item and what the call returned for it, as soon as it is known.

        What a call that fails, or loses its worker, would have returned is left out. The end comes with the last call,
        or as soon as `stop` is set; calls still running are given up then.

        Parameters
        ----------
        call
            A function of a module, without side effects; it, the items and its values are sent between processes.
        """
        ...


@dataclass(frozen=True, slots=True)
class _Part:
    """Some of the workers of a farm, where something else keeps the others busy."""

    farm: Farm
    workers: int

    def gather(
        self, call: Callable[[Item], Value | None], items: Sequence[Item], stop: threading.Event
    ) -> Iterator[tuple[int, Value]]:
        """Yield what calls return, as `Farm.gather` does."""
        return self.farm.gather(call, items, stop)


def halve(farm: Farm | None) -> tuple[Farm | None, Farm | None]:
    """Return the workers of a farm as two farms; the second has the only one."""
    if farm is None or farm.workers == 1:
        return None, farm
    half = farm.workers // 2
    return _Part(farm, half), _Part(farm, farm.workers - half)


def time_of_call(left_s: float) -> float:
    """Return for how long a call may work that has to be back in time."""
    return left_s - min(_RETURN_SHARE * left_s, _RETURN_S)
