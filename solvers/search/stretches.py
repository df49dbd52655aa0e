"""The plan of a long trace that several annealings work on at the same time, each on a stretch of its own.

A stretch is a range of positions in the order. Whoever anneals it permutes its tasks among these positions and gives
them other GPUs; all others keep theirs. So the parts put together are an order again at any time, whoever is how far.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from itertools import pairwise

from models.instance import Ints
from solvers.search.decoder import Decisions


@dataclass(slots=True, eq=False)
class Stretch:
    """Positions of the order that one annealing may change.

    Parameters
    ----------
    plan
        The whole plan when the stretch was handed out.
    first, beyond
        The positions [first, beyond); the end comes nearer when somebody takes the rear half over.
    settled, touched
        Before the first nothing is changed any more, from the second on nothing is changed yet.
    follower
        The stretch behind it, as long as the seam between them stands.
    """

    plan: Decisions
    first: int
    beyond: int
    settled: int
    touched: int
    follower: Stretch | None = None


class Stretches:
    """Hands out the stretches of a plan and puts together what becomes of them.

    Parameters
    ----------
    start
        The plan, its order sorted by start.
    cost
        What it costs.
    workers
        How many will ask for a stretch at once: they get equal ones. Others take the rear half of the longest.
    seam
        Tasks behind a seam that are annealed again from before it, once both sides are done: nobody knew there what
        the other side would leave behind. A stretch is at least three times as long.
    """

    def __init__(self, start: Decisions, cost: float, workers: int, seam: int) -> None:
        self.cost, self._least = cost, math.inf
        self._order, self._gpu, self._shortest = start.order.copy(), start.gpu.copy(), 3 * seam
        self._seam = seam
        self._lock = threading.Lock()
        tasks = len(self._order)
        parts = max(1, min(workers, tasks // self._shortest))
        seams = [tasks * part // parts for part in range(parts + 1)]
        plan = self._now()
        self._stretches = [Stretch(plan, first, beyond, first, first) for first, beyond in pairwise(seams)]
        for stretch, follower in pairwise(self._stretches):
            stretch.follower = follower
        self._free = list(self._stretches)

    def take(self) -> Stretch | None:
        """Return a stretch that nobody else has; None if what is left is too short to be shared."""
        with self._lock:
            if self._free:
                return self._free.pop(0)
            longest = max(self._stretches, key=lambda held: held.beyond - held.touched)
            middle = (longest.touched + longest.beyond) // 2
            if longest.beyond - middle < self._shortest:
                return None
            rear = Stretch(self._now(), middle, longest.beyond, middle, middle, longest.follower)
            longest.beyond, longest.follower = middle, rear
            self._stretches.append(rear)
            return rear

    def reserve(self, stretch: Stretch, settled: int, beyond: int) -> int:
        """Return up to which position a stretch may be changed now, this one at most, nothing before `settled`."""
        with self._lock:
            end = min(beyond, stretch.beyond)
            stretch.settled, stretch.touched = settled, max(stretch.touched, end)
            return end

    def goes_to(self, stretch: Stretch) -> int:
        """Return where the way of a stretch will end: behind its seam, if there is one."""
        return stretch.beyond + (self._seam if stretch.follower is not None else 0)

    def cross(self, stretch: Stretch) -> Decisions | None:
        """Let a stretch go on behind its seam, if whoever began there is done with that part; return the plan now."""
        with self._lock:
            if stretch.follower is None or stretch.follower.settled < stretch.beyond + self._seam:
                return None
            stretch.beyond, stretch.follower = stretch.beyond + self._seam, None
            return self._now()

    def merge(self, first: int, order: Ints, gpus: Ints) -> None:
        """Take over what became of some positions: the tasks there in their new order, and the GPU of each."""
        with self._lock:
            self._order[first : first + len(order)] = order
            self._gpu[order] = gpus

    def beats(self, cost: float) -> bool:
        """Say whether a cost is below all that were told before."""
        with self._lock:
            better = cost < self._least
            self._least = min(cost, self._least)
            return better

    def decisions(self) -> Decisions:
        """Return the whole plan as it is now."""
        with self._lock:
            return self._now()

    def _now(self) -> Decisions:
        return Decisions(self._order.copy(), self._gpu.copy())
