"""How fast a count advances: a robust pace over a recent window, and how much it varied."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

WINDOW = 400
"""Most recent advances that count."""
BLOCKS = 10
"""Parts of equal progress that the window is cut into."""
LEAST_BLOCKS = 5
"""Fewer say nothing about variation."""


@dataclass(frozen=True, slots=True)
class Remaining:
    """Time until the end.

    Parameters
    ----------
    low_us, high_us
        As long as it takes at the pace of the fast and of the slow tenth of the recent window; None
        if the log shows too few advances. They describe the window: nothing is calibrated.
    expected_us
        At the window's median pace; without a window, at the rate, or for the time, that the log states.
    """

    low_us: int | None
    expected_us: int
    high_us: int | None


class Pace:
    """Advances of one count by one clock, in a window of bounded size."""

    def __init__(self) -> None:
        self._advances: deque[tuple[float, int]] = deque(maxlen=WINDOW)
        self._last: tuple[float, int] | None = None

    def note(self, done: float, at_us: int) -> None:
        """Take note of a count and the clock's time."""
        if self._last is None or done < self._last[0] or at_us < self._last[1]:
            self._last = done, at_us
            return
        before, then_us = self._last
        if done > before and at_us > then_us:
            self._advances.append((done - before, at_us - then_us))
            self._last = done, at_us

    def restart(self) -> None:
        """Forget where the count stood, but not how fast it was."""
        self._last = None

    def us_per_unit(self) -> tuple[float | None, float, float | None] | None:
        """Return microseconds per unit: fast tenth, median, slow tenth; None if the count never advanced."""
        paces = self._block_paces()
        if not paces:
            return None
        if len(paces) < LEAST_BLOCKS:
            return None, float(np.median(paces)), None
        fast, median, slow = np.quantile(paces, [0.1, 0.5, 0.9])
        return float(fast), float(median), float(slow)

    def _block_paces(self) -> list[float]:
        """Return the pace of each part of the window; a part ends with the advance that completes it."""
        share = sum(units for units, _ in self._advances) / BLOCKS
        paces: list[float] = []
        units, took_us = 0.0, 0
        for advance, us in self._advances:
            units, took_us = units + advance, took_us + us
            if units >= share * (1 - 1e-9):
                paces.append(took_us / units)
                units, took_us = 0.0, 0
        return paces
