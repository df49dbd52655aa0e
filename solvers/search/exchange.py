"""Annealings of one window that help one another: one that lags behind goes on from the plan of a better one.

All of them cool by one clock, so that a plan taken over is as hot as the plan that it replaces. At each meeting the
worse half takes over the plans of the better half ("go with the winners", Aldous and Vazirani, FOCS 1994).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from solvers.search.decoder import Decisions
from solvers.search.stretches import Stretches
from solvers.search.teams import Team

MEETINGS = 24
"""How often annealings meet while they cool."""


class Exchange:
    """Where the annealings of a window meet.

    Parameters
    ----------
    limit_s
        Seconds from now in which they cool.
    workers
        How many of them begin at once.
    """

    def __init__(self, limit_s: float, workers: int = 1) -> None:
        self.workers = workers
        self._begin, self._limit_s = time.monotonic(), limit_s
        self._lock = threading.Lock()
        self._plans: dict[int, tuple[float, Decisions]] = {}
        self._share: float | None = None
        self._stretches: Stretches | None = None
        self._teams: list[Team] = []

    @property
    def passed(self) -> float:
        """Share of the time that has passed."""
        return (time.monotonic() - self._begin) / self._limit_s if self._limit_s > 0 else 1.0

    def agree_on(self, share: float) -> float:
        """Return a job's share of the cost, by which temperatures are measured: what the first annealing said."""
        with self._lock:
            self._share = share if self._share is None else self._share
            return self._share

    def share_out(self, begin: Callable[[], Stretches | None]) -> Stretches | None:
        """Return the stretches of a long trace, made by the first annealing that asks; None if there is no plan."""
        with self._lock:
            self._stretches = begin() if self._stretches is None else self._stretches
            return self._stretches

    def join(self) -> tuple[Team, bool]:
        """Return a team of two, and whether to lead it: who comes first leads, who comes next follows."""
        with self._lock:
            leads = not self._teams or self._teams[-1].complete
            if leads:
                self._teams.append(Team())
            else:
                self._teams[-1].complete = True
            return self._teams[-1], leads

    def meet(self, worker: int, cost: float, decisions: Decisions) -> Decisions | None:
        """Show a plan; return one to go on from in its place, None if it is among the better ones."""
        with self._lock:
            self._plans[worker] = cost, decisions
            ranked = sorted(self._plans, key=lambda other: (self._plans[other][0], other))
            rank, better = ranked.index(worker), (len(ranked) + 1) // 2
            return None if rank < better else self._plans[ranked[rank - better]][1]
