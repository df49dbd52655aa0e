"""Work as a clock: what is limited by counted work is the same on every machine, whatever else it does."""

from __future__ import annotations

MOVE_S = 1e-5
"""A move of local search is so many seconds of this clock, about what it takes."""


class WorkClock:
    """Tells the time by the moves of local search, or as much other work, that were done."""

    def __init__(self) -> None:
        self._moves = 0

    def __call__(self) -> float:
        """Return the seconds since the beginning."""
        return self._moves * MOVE_S

    def count(self, moves: int) -> None:
        """Let so much time pass."""
        self._moves += moves
