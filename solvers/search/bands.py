"""Annealing of a long trace: a band of the order that is hot in front and cold behind moves along it with the clock.

Every task is thus annealed from hot to cold, whatever the length of the trace. A change is judged by its exact cost up
to some way behind the band; what comes later hardly feels it, and decoding it would take longer than the moves.

Several annealings work on one trace at the same time, each on a stretch of its own: a range of positions in the order.
Whoever anneals it permutes its tasks among these positions and gives them other GPUs; all others keep theirs. So the
parts put together are an order again at any time, whoever is how far.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from truenorth.models.instance import Ints
from truenorth.solvers.search.annealer import Annealer, Parameters, Waypoint
from truenorth.solvers.search.decoder import Decisions, Decoder
from truenorth.solvers.search.decoder_state import FAR, copy_of
from truenorth.solvers.search.retiming import Window

BAND = 50
"""Tasks of a band, per GPU."""

SEAM = 60
"""Tasks per GPU behind a seam between two stretches that are annealed again."""

HORIZON = 200
"""Tasks behind a band up to which it is judged, per GPU."""


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
        # No stretch is shorter than its seams are worth.
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
            # What has been touched stays with whoever touched it.
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
            # Somebody may have taken the rear half meanwhile.
            end = min(beyond, stretch.beyond)
            stretch.settled, stretch.touched = settled, max(stretch.touched, end)
            return end

    def goes_to(self, stretch: Stretch) -> int:
        """Return where the way of a stretch will end: behind its seam, if there is one."""
        return stretch.beyond + (self._seam if stretch.follower is not None else 0)

    def cross(self, stretch: Stretch) -> Decisions | None:
        """Let a stretch go on behind its seam, if whoever began there is done with that part; return the plan now."""
        with self._lock:
            # Who began behind the seam still changes what would be annealed again.
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


class BandAnnealer(Annealer):
    """A stretch of a plan under improvement, one band at a time; the rest of the plan stands.

    Parameters
    ----------
    decoder, seed, parameters
        As for every annealing.
    stretches
        Whose plan it is.
    stretch
        Which positions of the order may change. What lies before them is decoded once.
    """

    def __init__(
        self, decoder: Decoder, stretches: Stretches, stretch: Stretch, seed: int, parameters: Parameters
    ) -> None:
        # Nothing may be sorted again before it is reserved.
        super().__init__(decoder, stretch.plan, seed, parameters, (stretch.first, stretch.first))
        # Tasks of other stretches have times too: neighbours in a workflow ask for them.
        self._plan.time[:] = self._work.start
        self._stretches, self._stretch = stretches, stretch
        self._whole, self._whole_work = self._plan, self._work
        gpus = decoder.instance.n_gpus
        self._width, self._band, self._horizon = parameters.tasks_per_gpu * gpus, BAND * gpus, HORIZON * gpus
        self._tail = parameters.tail_per_gpu * gpus
        self._judged = self._band + self._horizon
        # It enters from outside with one window inside, so that the first tasks are hot first, too.
        self._back = float(stretch.first - self._band + self._width)

    def sweep_band(self, temperature: Callable[[float], float | None]) -> None:
        """Anneal the windows of the band once and hand over what became of them.

        Parameters
        ----------
        temperature
            Asked before each window how hot it is at this share of its way from hot to cold; None ends the sweep.
        """
        stretch, back = self._stretch, int(self._back)
        if back + self._band + self._tail >= stretch.beyond:
            self._cross_seam()
        first = max(stretch.first, min(back, stretch.beyond - self._width))
        beyond = min(stretch.beyond, max(back + self._band, first + self._width))
        self._begin_at(first, beyond)
        for low, high in self._windows(first, min(beyond, self._end)):
            # 0 at the front of the band, where it is hot, 1 at its back.
            behind_front = 1.0 - ((low + high) / 2 - self._back) / self._band
            current = temperature(min(1.0, max(0.0, behind_front)))
            if current is None:
                break
            self._anneal_window(low, high, current)
        order = self._plan.order[self._mark.at : self._end]
        self._stretches.merge(self._mark.at, order, self._plan.gpu[order])

    def move_on(self, by: float) -> None:
        """Move the band on by a share of what is left of its way, so that every task gets its part of the time."""
        back, end = self._back, self._stretches.goes_to(self._stretch)
        first, front = max(back, self._stretch.first), min(back + self._band, end)
        # A position is worked on for as long as the band lies over it: summed over those that are still to come.
        left = ((front - back) ** 2 - (first - back) ** 2) / 2 + self._band * (end - front)
        self._back = min(back + by * left / max(1.0, front - first), float(end))

    def _cross_seam(self) -> None:
        """Go on behind the seam from what became of the stretch there, if it may be changed already."""
        seam = self._stretch.beyond
        now = self._stretches.cross(self._stretch)
        if now is not None:
            whole = self._whole
            whole.order[seam:], whole.gpu[now.order[seam:]] = now.order[seam:], now.gpu[now.order[seam:]]
            whole.position[whole.order[seam:]] = np.arange(seam, self._tasks)

    def _begin_at(self, first: int, beyond: int) -> None:
        """Make a band what is annealed, judged up to the horizon behind it."""
        judged_to = min(self._tasks, beyond + self._horizon)
        lead = max(self._stretch.first, first - self.parameters.lead_per_gpu * self.decoder.instance.n_gpus)
        # The kernels take the end of the order for the end of the trace.
        order = self._whole.order[:judged_to]
        self._plan, self._work = self._whole._replace(order=order), self._whole_work._replace(order=order)
        behind = min(judged_to, beyond + self._tail)
        self._end = self._stretches.reserve(self._stretch, max(lead, self._mark.at), behind)
        self._rewind()
        if lead > self._at:
            self._advance(lead)
            self._mark = Waypoint(lead, copy_of(self._origin), self._before.copy(), self._so_far)
        self._origin.upcoming[:] = FAR
        window = Window(self._at, first, beyond, judged_to, *self._so_far)
        self.cost = self._evaluate(self._origin, self._before, window)
        self._settle(self._at)

    def _keep_best(self) -> None:
        """Do nothing: costs of different bands do not compare, and what has cooled is as good as its best."""
