"""Turns: a node serves one model's requests for a while, then drains and swaps, in place of a swap per request.

First come first served has a node change its models for every other request where two models share it (rule S1 lets the
head wait until the node is empty, and all behind it). Here requests of the model that has its turn pass those of others
until none of it waits or runs, or until it has been served for so long and another waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from truenorth.executor.execution import NOWHERE
from truenorth.executor.policies.gateways import LeastTokens, TokenOptions
from truenorth.executor.policies.options import duration, option
from truenorth.executor.site import Site
from truenorth.models import NONE


@dataclass(frozen=True, slots=True)
class TurnOptions(TokenOptions):
    """Readings of turns.

    Parameters
    ----------
    hold
        From the first join of a turn on, how long the class keeps it while others wait, in microseconds.
    """

    hold: int = option(4_000_000, duration)


class Turns(LeastTokens):
    """Requests go as `least_tokens` sends them; each node serves the classes that wait there in turns (rule E7).

    At least one request joins per turn. Of the others that class is next whose head has waited longest.
    """

    Options: ClassVar[type[object]] = TurnOptions

    def __init__(self, options: TurnOptions | None = None) -> None:
        readings = options or TurnOptions()
        super().__init__(readings)
        self._hold_us = readings.hold

    def begin(self, site: Site) -> None:
        """Have no class its turn anywhere yet."""
        super().begin(site)
        self._has_turn = [NONE] * site.n_gpus
        self._since_us = [0] * site.n_gpus
        self._woken_us = [0] * site.n_gpus

    def act(self, gpus: Sequence[int]) -> None:
        """Let nobody join any more where another class waits and the turn has lasted long enough."""
        for gpu in gpus:
            task, turn = self.in_turn[gpu], self._has_turn[gpu]
            may_end = task != NOWHERE and turn != NONE and self._stream_of(task) == turn and self._has_lasted(gpu)
            if may_end and self._first(gpu, own=False) is not None:
                self.put_back(gpu)
        super().act(gpus)

    def next_in_turn(self, gpu: int) -> int | None:
        """Return the place of the next request of the class that has its turn, or of the class that is next."""
        own, other = self._first(gpu, own=True), self._first(gpu, own=False)
        chosen = other if other is not None and self._ends(gpu, own) else own
        return None if chosen is None or self.site.inputs_missing[self.queue[gpu][chosen]] else chosen

    def started(self, task: int, gpu: int) -> None:
        """Begin a turn where a request of another class joins."""
        stream = self._stream_of(task)
        if stream != self._has_turn[gpu]:
            self._has_turn[gpu], self._since_us[gpu] = stream, self.site.now
        super().started(task, gpu)

    def _ends(self, gpu: int, own: int | None) -> bool:
        """Say whether a turn ends now that another class waits; `own` is the place of the next of its own, if any."""
        turn, state = self._has_turn[gpu], self.site.state[gpu]
        if turn == NONE or self._has_lasted(gpu):
            return True
        if self._woken_us[gpu] <= self.site.now:
            self._woken_us[gpu] = self._since_us[gpu] + self._hold_us
            self.site.wake(self._woken_us[gpu])
        return own is None and (state.serving is None or state.serves != turn)

    def _has_lasted(self, gpu: int) -> bool:
        return self.site.now >= self._since_us[gpu] + self._hold_us

    def _first(self, gpu: int, own: bool) -> int | None:
        """Return the place of the first that waits of the class that has its turn, or of the others.

        Nobody passes one that is more urgent (rule E8).
        """
        queue = self.queue[gpu]
        for at, task in enumerate(queue):
            if self.urgency(task) < self.urgency(queue[0]):
                return None
            if (self._stream_of(task) == self._has_turn[gpu]) is own:
                return at
        return None

    def _stream_of(self, task: int) -> int:
        return self.site.stream[self.site.template[task]]
