"""Bookings of every GPU's compute and memory over the next windows of time, at prices that grow with what is booked."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, exp, inf, log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truenorth.executor.policies.view import CostRows, Row
from truenorth.models.cluster import FOREVER
from truenorth.models.instance import Ints

_US_PER_S = 1_000_000

Floats = NDArray[np.float64]


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


class PlaceRows(NamedTuple):
    """Where a run can be: places of one or several GPUs.

    Attributes
    ----------
    gpus, first
        The GPUs of all places, one place after the other, and where those of each begin.
    run_us
        How long the run takes at each.
    held
        Per GPU of each place: the part of its memory that the models of the run take there.
    """

    gpus: Ints
    first: Ints
    run_us: Ints
    held: Floats

    def held_at(self, position: int) -> Floats:
        """Return the parts of memory at one place."""
        end = self.first[position + 1] if position + 1 < len(self.first) else None
        return self.held[self.first[position] : end]


class PlaceTimes(NamedTuple):
    """Per place: when the run could begin there, and when it must have begun to end before a GPU goes."""

    earliest_us: Ints
    until_us: Ints


class PlaceOffer(NamedTuple):
    """The cheapest of the places: its position, when the run would start there, and the delay that this avoids.

    `booked` says whether it lies within the windows.
    """

    position: int
    start_us: int
    avoided_us: int
    booked: bool


class PlaceBookings:
    """The same for runs on several GPUs: a place costs what its GPUs cost together.

    All places are looked at together, window by window.
    """

    def __init__(self, n_gpus: int, windows: int, window_us: int) -> None:
        self._windows, self._window_us = windows, window_us
        # From the present window on; the last one stands for all beyond, where nothing is booked.
        self._width = 3 * windows
        self._booked = np.zeros((n_gpus, self._width + 1))
        self._held = np.zeros((n_gpus, self._width + 1))
        self._until = np.full((n_gpus, self._width + 1), self._width, np.int64)
        self._now_us = self._here = 0

    def advance(self, now_us: int) -> None:
        """Forget windows that have passed."""
        self._now_us = now_us
        passed = min(now_us // self._window_us - self._here, self._width)
        self._here = now_us // self._window_us
        if passed:
            for booked in (self._booked, self._held):
                booked[:, : self._width - passed] = booked[:, passed : self._width]
                booked[:, self._width - passed :] = 0.0
            self._look(slice(None))

    def _look(self, gpus: slice | list[int]) -> None:
        """Note, from each window on, the first of which something is booked."""
        taken = np.where(self._booked[gpus] > 0.0, np.arange(self._width + 1), self._width)
        self._until[gpus] = np.minimum.accumulate(taken[:, ::-1], axis=1)[:, ::-1]

    def cheapest(
        self, rows: PlaceRows, when: PlaceTimes, rate: float, prices: tuple[float, float], near: list[int]
    ) -> PlaceOffer | None:
        """Return the offer of least rate x finish + price; None where GPUs go too soon for any.

        Parameters
        ----------
        rate
            What a microsecond of delay costs.
        prices
            L and U.
        near
            How many windows are looked at before it is asked whether a later start could cost less.
        """
        earliest_us, until_us = when
        window_us, low = self._window_us, prices[0] * self._window_us / _US_PER_S
        growth = log(prices[1] / prices[0])
        parts = rows.run_us / window_us
        whole = np.minimum(np.ceil(parts).astype(np.int64) - 1, self._windows)
        rest = np.minimum(parts - whole, 1.0)
        size = np.diff(rows.first, append=len(rows.gpus))
        each_whole, each_rest = np.repeat(whole, size), np.repeat(rest, size)
        base = rate * rows.run_us + low * size * (whole + rest)
        holds = bool(rows.held.any())
        if holds:
            base += low * np.add.reduceat(rows.held, rows.first) * (whole + 1)
            # What memory costs above the least price, from the first window up to each.
            dearer = np.cumsum(low * (np.exp(growth * self._held) - 1.0), axis=1)
        cost, start_us, first_us = np.full(len(size), inf), earliest_us.copy(), np.full(len(size), -1)
        begin_us = int(earliest_us.min())
        for ahead in range(self._windows):
            window = begin_us // window_us + ahead
            at = min(window - self._here, self._width)
            last = np.minimum(at + each_whole, self._width)
            share = self._booked[rows.gpus, last]
            # All windows but the last must be free; of that one, what the run takes of it.
            has_room = (self._until[rows.gpus, at] >= last) & (share + each_rest <= 1.0)
            fits = np.logical_and.reduceat(has_room, rows.first) & (earliest_us // window_us <= window)
            if fits.any():
                # A short run follows what is booked in its window.
                within = np.where(whole == 0, np.maximum.reduceat(share, rows.first), 0.0)
                starts = np.maximum(earliest_us, (window * window_us + within * window_us).astype(np.int64))
                fits &= starts <= until_us
                extra = np.add.reduceat(each_rest * (low * (np.exp(growth * share) - 1.0)), rows.first)
                if holds:
                    before = dearer[rows.gpus, at - 1] if at else 0.0
                    extra += np.add.reduceat(rows.held * (dearer[rows.gpus, last] - before), rows.first)
                offered = np.where(fits, rate * starts + extra + base, inf)
                better = offered < cost
                cost[better], start_us[better] = offered[better], starts[better]
                unseen = fits & (first_us < 0)
                first_us[unseen] = starts[unseen]
            # Nothing that begins later could cost less.
            if ahead + 1 in near and cost.min() <= rate * (begin_us + ahead * window_us) + base.min():
                break
        reach_us = begin_us + ahead * window_us
        latest_us = int(np.minimum(np.where(first_us < 0, reach_us, first_us), reach_us).max())
        best = int(cost.argmin())
        booked = bool(cost[best] < inf)
        if not booked:  # behind the last window
            behind_us = np.maximum(earliest_us, self._now_us + self._windows * window_us)
            late = behind_us > until_us
            if late.all():
                return None
            best = int(np.where(late, FOREVER, earliest_us).argmin())
            start_us[best] = behind_us[best]
        return PlaceOffer(best, int(start_us[best]), max(0, latest_us - int(start_us[best])), booked)

    def book(self, gpus: tuple[int, ...], start_us: int, run_us: int, held: Floats) -> None:
        """Book a run at a place, and what its models hold; what lies far beyond the last window is not booked."""
        begin = start_us // self._window_us - self._here
        taken = np.clip(run_us / self._window_us - np.arange(max(0, self._width - begin)), 0.0, 1.0)
        row = self._booked[list(gpus), begin : self._width]
        self._booked[list(gpus), begin : self._width] = np.minimum(1.0, row + taken)
        if held.any():
            row = self._held[list(gpus), begin : self._width]
            self._held[list(gpus), begin : self._width] = np.minimum(1.0, row + held[:, None] * (taken > 0.0))
        self._look(list(gpus))
