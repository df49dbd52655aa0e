"""LRU: what model gateways do (llama-swap, Ollama's scheduler, Triton's explicit model control with a cache on top)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from executor.execution import NOWHERE
from executor.policies.costs import UNREACHABLE, RunRows, least
from executor.policies.head_first import HeadFirst
from executor.policies.options import QueueOptions, duration, option
from executor.policies.view import Row
from executor.policy import Knows
from executor.site import Site


@dataclass(frozen=True, slots=True)
class LruOptions:
    """Readings of the rule.

    Parameters
    ----------
    period
        A gateway sees every GPU as it is, unless it is told of them only every so many microseconds.
    keep_alive
        A model that has idled for longer is evicted (``OLLAMA_KEEP_ALIVE``, llama-swap's ``ttl``); None: never.
    """

    period: int = option(0, duration)
    keep_alive: int | None = option(None, duration)


class Lru(HeadFirst):
    """A task goes where its models are, or else where the wait is least, and what was used longest ago makes room.

    It is placed when it is ready: on the GPU of least wait (loads not counted) among those that hold or are loading all
    its models, else on the GPU of least wait. A GPU's queue is strictly first in, first out: a head whose inputs are
    still under way blocks it. Victims are the models whose last run ended longest ago. Nothing is prefetched.
    """

    Options: ClassVar[type[object]] = LruOptions
    knows: ClassVar[Knows] = Knows.WAITS

    def __init__(self, options: LruOptions | None = None) -> None:
        readings = options or LruOptions()
        self._keep_alive_us = readings.keep_alive
        super().__init__(QueueOptions(period=readings.period, prefetch=0, evict="lru"))

    def begin(self, site: Site) -> None:
        """Tabulate where tasks can run."""
        super().begin(site)
        self._runs = RunRows(site)
        self._missing = np.zeros(site.n_gpus, np.int64)
        if self._keep_alive_us is not None:
            site.wake(self._keep_alive_us)  # initial residents may never be used

    def runnable(self, task: int, server: int) -> None:
        """Place a task, and queue it up at once."""
        site, view = self.site, self.view
        view.advance()
        template = site.template[task]
        waits = np.where(self._runs.row[template] < UNREACHABLE, view.waits(server), UNREACHABLE)
        favoured = view.gpus_of[site.job_ingress[site.job[task]]]
        gpu = least(self._where_held(waits, site.needs[template], server), favoured)
        if waits[gpu] == UNREACHABLE or self._missing[gpu]:
            gpu = least(waits, favoured)
        self.place_in_queue(task, gpu)

    def _where_held(self, waits: Row, needs: tuple[int, ...], server: int) -> Row:
        """Return the waits, UNREACHABLE where a model of the task is neither there nor being loaded."""
        self._missing[:] = 0
        self.view.add_load_costs(self._missing, needs, server, out=self._missing)
        return np.where(self._missing, UNREACHABLE, waits)

    def finished(self, task: int, gpu: int) -> None:
        """Remember when the models that it used will have idled for too long."""
        super().finished(task, gpu)
        if self._keep_alive_us is not None:
            self.site.wake(self.site.now + self._keep_alive_us)

    def act(self, gpus: Sequence[int]) -> None:
        """Evict what has idled for too long, then go on."""
        if self._keep_alive_us is not None:
            for gpu in gpus:
                self._expire(gpu, self.site.now - self._keep_alive_us)
        super().act(gpus)

    def _expire(self, gpu: int, before_us: int) -> None:
        """Evict the models whose last run ended at a time or earlier, unless a task here is to use them."""
        site, last_use_us = self.site, self.last_use_us[gpu]
        here = [self.in_turn[gpu], *self.queue[gpu]]
        wanted = {model for task in here if task != NOWHERE for model in site.needs[site.template[task]]}
        idle = {model for model in site.memory[gpu].ready if last_use_us.get(model, 0) <= before_us}
        for model in sorted(idle - wanted):
            if not site.state[gpu].uses(model):
                self.evict(model, gpu)
