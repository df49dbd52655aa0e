"""Annealing of a long trace: a band of the order that is hot in front and cold behind moves along it with the clock.

Every task is thus annealed from hot to cold, whatever the length of the trace. A change is judged by its exact cost up
to some way behind the band; what comes later hardly feels it, and decoding it would take longer than the moves.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from solvers.search.annealer import Annealer, Moment, Parameters
from solvers.search.annealing_kernel import Window
from solvers.search.decoder import Decoder
from solvers.search.decoder_state import FAR, copy_of
from solvers.search.stretches import Stretch, Stretches

BAND = 50
"""Tasks of a band, per GPU."""

SEAM = 60
"""Tasks per GPU behind a seam between two stretches that are annealed again."""

HORIZON = 200
"""Tasks behind a band up to which it is judged, per GPU."""


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
            self._mark = Moment(lead, copy_of(self._origin), self._before.copy(), self._total, self._worst)
        self._origin.upcoming[:] = FAR
        window = Window(self._at, first, beyond, judged_to, self._total, self._worst)
        self.cost = self._evaluate(self._origin, self._before, window)
        self._settle(self._at)

    def _keep_best(self) -> None:
        """Do nothing: costs of different bands do not compare, and what has cooled is as good as its best."""
