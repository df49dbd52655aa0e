"""A line of those who wait, in short blocks, so that the next one whose run is short enough is found fast."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from typing import NamedTuple

_MOST = 512
"""Entries of a block before it is halved."""


class Waiting(NamedTuple):
    """A task in the line: those with the least key are asked first, equal ones by release, then by file order.

    Parameters
    ----------
    key, task
        Where it stands: by less urgency and what the policy goes by, the least first.
    run_us
        Its shortest run.
    """

    key: tuple[int, int]
    task: int
    run_us: int


class Line:
    """Who waits, in order."""

    def __init__(self) -> None:
        self._blocks: list[list[Waiting]] = []
        # Of each block: its last entry, by which the block of another is found, and the shortest run.
        self._last: list[Waiting] = []
        self._shortest: list[int] = []

    def add(self, entry: Waiting) -> None:
        """Let somebody wait."""
        if not self._blocks:
            self._blocks.append([])
            self._last.append(entry)
            self._shortest.append(entry.run_us)
        at = min(bisect_right(self._last, entry), len(self._blocks) - 1)
        block = self._blocks[at]
        insort(block, entry)
        self._last[at], self._shortest[at] = block[-1], min(self._shortest[at], entry.run_us)
        if len(block) > _MOST:
            half = len(block) // 2
            self._blocks[at : at + 1] = block[:half], block[half:]
            self._last.insert(at, block[half - 1])
            self._shortest[at : at + 1] = (min(each.run_us for each in part) for part in self._blocks[at : at + 2])

    def remove(self, entry: Waiting) -> None:
        """Let somebody wait no more."""
        at = bisect_left(self._last, entry)
        block = self._blocks[at]
        del block[bisect_left(block, entry)]
        if not block:
            del self._blocks[at], self._last[at], self._shortest[at]
            return
        self._last[at] = block[-1]
        if entry.run_us == self._shortest[at]:
            self._shortest[at] = min(each.run_us for each in block)

    def first(self) -> Waiting | None:
        """Return who stands first; None if nobody waits."""
        return self._blocks[0][0] if self._blocks else None

    def after(self, entry: Waiting, within_us: int | None = None) -> Waiting | None:
        """Return who stands first behind an entry, of those whose run is no longer than a limit, if there is one."""
        at = bisect_right(self._last, entry)
        begin = bisect_right(self._blocks[at], entry) if at < len(self._blocks) else 0
        for block, shortest in zip(self._blocks[at:], self._shortest[at:], strict=True):
            if within_us is None or shortest <= within_us:
                for position in range(begin, len(block)):
                    if within_us is None or block[position].run_us <= within_us:
                        return block[position]
            begin = 0
        return None
