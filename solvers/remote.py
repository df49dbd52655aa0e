"""Plans that workers in other processes look for, by beams or annealing, beside the threads of this one."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from truenorth.models.instance import Instance
from truenorth.models.objective import Objective
from truenorth.models.timeline import Timeline
from truenorth.solvers.bounds.lagrangian.improve import Priced
from truenorth.solvers.budget import Budget
from truenorth.solvers.clock import Clock
from truenorth.solvers.farm import Farm, time_of_call
from truenorth.solvers.result import Search
from truenorth.solvers.search import annealing, beam
from truenorth.solvers.search.beam_guide import tabulate

_ROUNDS = ((0.5, 1.0), (0.3, 0.4), (0.2, 0.2))
"""Workers cool three times, each time from the best plan of all: in which share of the time, and from which share of
the usual first temperature."""


@dataclass(frozen=True, slots=True)
class PriceRows:
    """Prices of compute in units of the objective per microsecond, by class of GPUs and slot; how wide a slot is."""

    rate: NDArray[np.float64]
    slot_us: int

    @classmethod
    def of(cls, priced: Priced) -> PriceRows:
        """Return the prices that a bound found."""
        return cls(priced.prices.compute / priced.relaxation.scale, priced.relaxation.slot_us)


@dataclass(frozen=True, slots=True)
class Looking:
    """What is asked of whoever looks for a better plan: plain data, so that it can be sent to another process.

    Parameters
    ----------
    start
        The plan to begin with, if there is one.
    prices
        What guides beams; None: plans are annealed.
    hot
        First temperature of annealing, as a share of the usual one.
    """

    instance: Instance
    objective: Objective
    start: Timeline | None
    prices: PriceRows | None
    hot: float
    seed: int
    limit_s: float


def look(asked: Looking) -> Timeline | None:
    """Return a better plan than the one to begin with, or None."""
    search = Search(asked.instance, asked.objective, asked.limit_s)
    if asked.start is not None:
        search.offer(asked.start)
    before, prices = search.value, asked.prices
    guide = None if prices is None else tabulate(asked.instance, asked.objective, prices.rate, prices.slot_us)
    if guide is not None:
        beam.improve(search, guide, search.clock.left_s, asked.seed)
    if search.clock.left_s > 0 and not search.proved:
        usual = annealing.usual(asked.instance)
        annealing.improve(search, asked.seed, parameters=replace(usual, hot=max(usual.cold, asked.hot * usual.hot)))
    return None if search.value == before else search.timeline


@contextmanager
def search_remotely(
    search: Search, farm: Farm | None, budget: Budget, limit_s: float, prices: PriceRows | None = None
) -> Iterator[None]:
    """Have workers look for plans while the block runs, and offer what they find.

    Parameters
    ----------
    farm
        The workers; None: there are none.
    budget
        How this process searches: workers have other seeds.
    limit_s
        Seconds from now.
    prices
        What guides beams; None: plans are annealed.
    """
    if farm is None:
        yield
        return
    clock = search.clock.child(limit_s, lambda: search.proved)
    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(_look_on, search, farm, budget.seed + budget.workers, clock, prices)
        try:
            yield
        finally:
            clock.set()
        looking.result()


def _look_on(search: Search, farm: Farm, seed: int, clock: Clock, prices: PriceRows | None) -> None:
    """Give workers plans to improve until the time is up."""
    plans, whole_s = search.on_twin(), clock.left_s
    for share, hot in ((1.0, _ROUNDS[-1][1]),) if prices is not None else _ROUNDS:
        limit_s = time_of_call(min(share * whole_s, clock.left_s))
        if limit_s <= 0:
            return
        asked = [
            Looking(plans.instance, plans.objective, plans.timeline, prices, hot, seed + index, limit_s)
            for index in range(farm.workers)
        ]
        seed += len(asked)
        for _, timeline in farm.gather(look, asked, clock):
            plans.offer(timeline)
