"""Bookings of every GPU's compute and memory over the next windows of time, at prices that grow with what is booked."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, exp, inf, log

import numpy as np

from truenorth.executor.policies.view import CostRows, Row

_US_PER_S = 1_000_000


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

    Attributes
    ----------
    parts
        Per run time: the whole windows that a run takes before its last one, and its part of that.
    low
        The least price of a window.
    tail_us
        Per GPU: nothing is booked from here on.
    """

    def __init__(self, n_gpus: int, windows: int, window_us: int, prices: tuple[float, float]) -> None:
        self.windows, self.window_us = windows, window_us
        self._compute: list[dict[int, float]] = [{} for _ in range(n_gpus)]
        self._memory: list[dict[int, float]] = [{} for _ in range(n_gpus)]
        self._first = self._here = 0
        self.parts: CostRows[tuple[int, float]] = CostRows(self._parts_of)
        self._fit_us: dict[int, Row] = {}
        self.tail_us: Row = np.zeros(n_gpus, np.int64)
        self._set_prices(prices)

    def advance(self, now_us: int, prices: tuple[float, float]) -> None:
        """Forget windows that have passed, and take new prices over."""
        if prices != self._prices:
            self._set_prices(prices)
        here = self._here = now_us // self.window_us
        if here - self._first > self.windows // 2:
            self._first = here
            for grid in (self._compute, self._memory):
                for gpu, booked in enumerate(grid):
                    grid[gpu] = {window: share for window, share in booked.items() if window >= here}

    def _parts_of(self, run_us: int) -> tuple[int, float]:
        parts = run_us / self.window_us
        whole = min(ceil(parts) - 1, self.windows)
        return whole, min(parts - whole, 1.0)

    def fit_us(self, whole: int) -> Row:
        """Return, per GPU, a time before which no run that takes so many whole windows before its last can begin."""
        if whole not in self._fit_us:
            self._fit_us[whole] = np.zeros(len(self._compute), np.int64)
            self._fit_us = dict(sorted(self._fit_us.items()))
        return self._fit_us[whole]

    def windows_paid(self, run_us: int, memory: float) -> float:
        """Return how many windows a run pays for where nothing is booked, at `low` each."""
        whole, rest = self.parts[run_us]
        return whole + rest + memory * (whole + 1)

    def offer(
        self, gpu: int, earliest_us: int, run_us: int, memory: float, end_us: int, rate: float
    ) -> tuple[float, int] | None:
        """Return the cheapest start of a run: rate x start + surcharge, and the start; None if windows are taken.

        Parameters
        ----------
        earliest_us, run_us, memory
            When it could begin, how long it runs, and which part of the memory it takes meanwhile.
        end_us
            Starts lie in windows that begin before.
        rate
            What a microsecond of delay costs; prices above the least one, of what is booked, are the surcharge.
        """
        if earliest_us >= self.tail_us.item(gpu):
            return (rate * earliest_us, earliest_us) if earliest_us < end_us else None
        rest, best = self.parts[run_us][1], None
        for begin_us, first, last in self._starts(gpu, earliest_us, run_us, end_us):
            if best is not None and rate * begin_us >= best[0]:
                break
            extra = rest * self._surcharge(self._compute[gpu].get(last, 0.0))
            if memory:
                extra += memory * self._memory_surcharge(gpu, first, last + 1)
            if best is None or rate * begin_us + extra < best[0]:
                best = rate * begin_us + extra, begin_us
            if not extra:
                break  # nothing later costs less
        return best

    def first_start(self, gpu: int, earliest_us: int, run_us: int, end_us: int) -> int:
        """Return the first start of a run in a window that begins before a time; else that time."""
        for begin_us, _, _ in self._starts(gpu, earliest_us, run_us, end_us):
            return begin_us
        return end_us

    def _starts(self, gpu: int, earliest_us: int, run_us: int, end_us: int) -> Iterator[tuple[int, int, int]]:
        """Yield the possible starts of a run, one per window, with its first and last window."""
        whole, rest = self.parts[run_us]
        booked, window = self._compute[gpu], earliest_us // self.window_us
        while window * self.window_us < end_us:
            last = taken = window + whole
            while taken > window and taken - 1 not in booked:
                taken -= 1
            if taken > window:
                window = taken  # no start before the last taken window leaves it out
                continue
            share = booked.get(last, 0.0)
            if share + rest <= 1.0:
                within = share if not whole else 0.0  # it follows what has begun in the same window
                yield max(earliest_us, self._begin_in(window, within)), window, last
            window += 1

    def book(self, gpu: int, start_us: int, run_us: int, memory: float) -> None:
        """Book a run as it was offered; what lies far beyond the last window is not booked."""
        compute, held = self._compute[gpu], self._memory[gpu]
        left = run_us / self.window_us
        first = start_us // self.window_us
        for window in range(first, min(first + ceil(left), self._first + 3 * self.windows)):
            compute[window] = min(1.0, compute.get(window, 0.0) + min(left, 1.0))
            if memory:
                held[window] = min(1.0, held.get(window, 0.0) + memory)
            left -= 1.0
        self.look(gpu)
        self.tail_us[gpu] = max(self.tail_us.item(gpu), (first + ceil(run_us / self.window_us)) * self.window_us)

    def look(self, gpu: int) -> None:
        """See anew where runs fit first on a GPU, from the present window on."""
        booked, start = self._compute[gpu], self._here
        taken = iter(sorted([window for window in booked if window >= start]))
        following = next(taken, inf)
        for whole, row in self._fit_us.items():
            if whole:
                while following - start < whole:
                    start, following = int(following) + 1, next(taken, inf)
                row[gpu] = start * self.window_us
            else:
                window = start
                while booked.get(window, 0.0) >= 1.0:
                    window += 1
                row[gpu] = self._begin_in(window, booked.get(window, 0.0))

    def _begin_in(self, window: int, share: float) -> int:
        """Return when a run can begin in a window of which a share is booked."""
        return int(window * self.window_us + share * self.window_us)

    def _set_prices(self, prices: tuple[float, float]) -> None:
        self._prices = prices
        self.low = prices[0] * self.window_us / _US_PER_S
        self._growth = log(prices[1] / prices[0])

    def _surcharge(self, booked: float) -> float:
        """Return what a whole window costs above the least price."""
        return self.low * (exp(self._growth * booked) - 1.0) if booked else 0.0

    def _memory_surcharge(self, gpu: int, first: int, end: int) -> float:
        held = self._memory[gpu]
        return sum(self._surcharge(held[window]) for window in range(first, end) if window in held)
