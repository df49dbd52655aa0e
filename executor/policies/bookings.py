"""Bookings of every GPU's compute and memory over the next windows of time, at prices that grow with what is booked."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Grid = NDArray[np.float64]

_US_PER_S = 1_000_000
_Index = Any


class Bookings:
    """Booked shares by GPU and window, and what one second costs there: L (U / L)^x where x is booked.

    Parameters
    ----------
    n_gpus
        Number of GPUs.
    windows
        How many windows ahead can be booked.
    window_us
        Length of a window.
    prices
        L and U, both positive.
    """

    def __init__(self, n_gpus: int, windows: int, window_us: int, prices: tuple[float, float]) -> None:
        self.windows, self.window_us = windows, window_us
        self._prices = prices
        self._first = 0
        shape = 2 * windows + windows // 2 + 2, n_gpus
        self._compute, self._memory = np.zeros(shape), np.zeros(shape)
        # Sums over the windows before each: taken ones, and prices of compute and memory.
        self._taken, self._cost, self._room = (np.zeros((shape[0] + 1, n_gpus)) for _ in range(3))
        self._price_all()

    def advance(self, now_us: int, prices: tuple[float, float]) -> None:
        """Forget windows that have passed, and take new prices over."""
        passed = now_us // self.window_us - self._first
        if passed > self.windows // 2:
            self._first += passed
            for grid in (self._compute, self._memory):
                kept = grid[passed:].copy()
                grid[:] = 0.0
                grid[: len(kept)] = kept
        if passed > self.windows // 2 or prices != self._prices:
            self._prices = prices
            self._price_all()

    def offers(
        self, earliest_us: NDArray[np.int64], run_us: NDArray[np.int64], memory: Grid, windows: int
    ) -> tuple[Grid, Grid]:
        """Return when a run could start, in microseconds, inf where windows are taken, and its price. Shape [w, gpus].

        Parameters
        ----------
        earliest_us, run_us, memory
            Per GPU: when it could begin, how long it runs, and which part of the memory it takes meanwhile.
        windows
            How many windows are looked at, from the first one in which some GPU could begin.
        """
        here = int(earliest_us.min()) // self.window_us - self._first
        here = min(here, len(self._compute) - windows)
        begin_us = np.arange(here + self._first, here + self._first + windows)[:, None] * self.window_us
        parts = run_us / self.window_us
        whole = np.minimum(np.ceil(parts).astype(np.int64) - 1, self.windows)
        rest = np.minimum(parts - whole, 1.0)
        first = slice(here, here + windows)
        last, beyond = self._last_windows(whole, here, windows)
        free = self._taken[last] == self._taken[first]
        free &= self._compute[last] + rest <= 1.0
        free &= begin_us + self.window_us > earliest_us
        cost = self._cost[last]
        price = cost - self._cost[first] + rest * (self._cost[beyond] - cost)
        if memory.any():
            price += memory * (self._room[beyond] - self._room[first])
        within = self._compute[first] * (self.window_us * (whole == 0))
        return np.where(free, np.maximum(begin_us + within, earliest_us), np.inf), price

    def _last_windows(self, whole: NDArray[np.int64], here: int, windows: int) -> tuple[_Index, _Index]:
        """Return where in the grids the last windows of the runs stand, and the ones after them."""
        if (whole == whole[0]).all():  # slices are several times as fast as index arrays
            first = min(here + int(whole[0]), len(self._compute) - windows)
            return slice(first, first + windows), slice(first + 1, first + windows + 1)
        columns = np.arange(len(whole))
        last = np.minimum(np.arange(here, here + windows)[:, None] + whole, len(self._compute) - 1)
        return (last, columns), (last + 1, columns)

    def book(self, gpu: int, start_us: float, run_us: int, memory: float) -> None:
        """Book a run as it was offered; what lies beyond the last window is not booked."""
        first = int(start_us) // self.window_us - self._first
        left = run_us / self.window_us
        for window in range(first, len(self._compute)):
            self._compute[window, gpu] = min(1.0, self._compute[window, gpu] + min(left, 1.0))
            self._memory[window, gpu] = min(1.0, self._memory[window, gpu] + memory)
            left -= 1.0
            if left <= 0.0:
                break
        self._add_up(gpu, first)

    def least_price(self, seconds: float) -> float:
        """Return what so much work costs at least."""
        return self._prices[0] * seconds

    def _price_all(self) -> None:
        """Add up over the windows what the offers are made of."""
        np.cumsum(self._price(self._compute), axis=0, out=self._cost[1:])
        np.cumsum(self._price(self._memory), axis=0, out=self._room[1:])
        np.cumsum(self._compute > 0.0, axis=0, out=self._taken[1:])

    def _add_up(self, gpu: int, first: int) -> None:
        """Add up anew from a window on."""
        for part, total in ((self._compute, self._cost), (self._memory, self._room)):
            total[first + 1 :, gpu] = total[first, gpu] + np.cumsum(self._price(part[first:, gpu]))
        self._taken[first + 1 :, gpu] = self._taken[first, gpu] + np.cumsum(self._compute[first:, gpu] > 0.0)

    def _price(self, booked: Grid) -> Grid:
        """Return the price of a whole window by what is booked of it."""
        low, high = self._prices
        priced: Grid = low * self.window_us / _US_PER_S * np.exp(np.log(high / low) * booked)
        return priced
