"""How much time is left: one kind of clock for questions, searches and their steps, by the wall or by counted work."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from math import inf

MOVE_S = 1e-5
"""A move of local search is so many seconds of a clock of work, about what it takes."""


class Clock(threading.Event):
    """An event that is set once its time is over, by its own limit or that of the clock it is a part of.

    Setting it ends it early. A clock of counted work stands still unless something is done, and is the same on every
    machine.

    Parameters
    ----------
    limit_s
        Seconds from now.
    stop
        Ends it as well, once it is set.
    tell
        Says how late it is, in seconds.
    """

    def __init__(
        self,
        limit_s: float,
        stop: threading.Event | None = None,
        tell: Callable[[], float] = lambda: time.monotonic(),
    ) -> None:
        super().__init__()
        self.limit_s = limit_s
        self._stop, self._tell, self._begun_s = stop, tell, tell()
        self._whole: Clock | None = None
        self._work: _Work | None = None
        self._is_done: Callable[[], bool] | None = None

    @classmethod
    def of_work(cls, moves: int, stop: threading.Event | None = None) -> Clock:
        """Return a clock that is over after so many moves of local search, or as much other work."""
        work = _Work()
        clock = cls(moves * MOVE_S, stop, work)
        clock._work = work
        return clock

    def child(self, limit_s: float = inf, is_done: Callable[[], bool] | None = None) -> Clock:
        """Return a part of this clock's time, from now on.

        Parameters
        ----------
        limit_s
            Its seconds; it has no more than this clock, however many it is given.
        is_done
            Ends it as well, once it returns true.
        """
        part = Clock(limit_s, tell=self._tell)
        part._whole, part._work, part._is_done = self, self._work, is_done
        return part

    @property
    def elapsed_s(self) -> float:
        """Seconds since the beginning."""
        return self._tell() - self._begun_s

    @property
    def left_s(self) -> float:
        """Seconds until the end; 0 once it has come."""
        if self._is_ended or (self._is_done is not None and self._is_done()):
            return 0.0
        own_s = max(0.0, self.limit_s - self.elapsed_s)
        return own_s if self._whole is None else min(own_s, self._whole.left_s)

    @property
    def passed(self) -> float:
        """Share of its time that has passed; 1 once it was stopped."""
        left_s = self.left_s
        return 1.0 if left_s <= 0 else max(0.0, 1 - left_s / self.limit_s)

    @property
    def is_stopped(self) -> bool:
        """Whether it was ended early from outside, in whole or in part."""
        return self._is_ended or (self._whole is not None and self._whole.is_stopped)

    @property
    def _is_ended(self) -> bool:
        return super().is_set() or (self._stop is not None and self._stop.is_set())

    def is_set(self) -> bool:
        """Say whether it is over."""
        return self.left_s <= 0

    def count(self, moves: int) -> None:
        """Say that as much was done as so many moves of local search are: time passes if work is what limits it."""
        if self._work is not None:
            self._work.moves += moves


class _Work:
    """Tells the time by the moves of local search, or as much other work, that were done."""

    moves = 0

    def __call__(self) -> float:
        return self.moves * MOVE_S
