"""A window cut into intervals of one length, and a scenario on so many servers of each group in each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import groupby

import numpy as np

from truenorth.models import Cluster, Instance, InstanceError
from truenorth.models.cluster import FOREVER, Availability, Interval
from truenorth.models.errors import QuestionError
from truenorth.models.scenario import Scenario
from truenorth.planner.answers.servers.sizes import Mix, Sizes

Schedule = tuple[Mix, ...]
"""Servers of each group, interval by interval."""

MOST_INTERVALS = 10_000
"""More intervals than these are too many to look at."""
US_PER_HOUR = 3_600_000_000


@dataclass(frozen=True, slots=True)
class Day:
    """The intervals of a window, up to the last one in which a job is released.

    Parameters
    ----------
    sizes
        The scenario at any size.
    by_us
        Length of an interval in microseconds. The last one has no end, so that what is left over can be done; it is
        paid like the others.
    """

    sizes: Sizes
    by_us: int

    def __post_init__(self) -> None:
        if self.count > MOST_INTERVALS:
            raise QuestionError(f"makes {self.count} intervals; allowed are {MOST_INTERVALS}", "by")

    @property
    def instance(self) -> Instance:
        """The scenario's own instance."""
        return self.sizes.scenario.instance

    @property
    def count(self) -> int:
        """How many intervals there are."""
        return int(self.instance.job_release_us[-1]) // self.by_us + 1

    @property
    def jobs(self) -> list[int]:
        """Jobs released in each interval."""
        counts = np.bincount(self.instance.job_release_us // self.by_us, minlength=self.count)
        return [int(jobs) for jobs in counts]

    @property
    def prices(self) -> tuple[Fraction, ...] | None:
        """Price of a server of each group for an hour; None if some group has none."""
        priced = [group.price_per_hour for group in self.sizes.scenario.document.cluster.server_groups]
        known = tuple(price for price in priced if price is not None)
        return known if len(known) == len(priced) else None

    def span(self, interval: int) -> Interval:
        """Return from when until when an interval lasts, in microseconds; the last one has no end."""
        begin_us = interval * self.by_us
        return begin_us, begin_us + self.by_us if interval + 1 < self.count else FOREVER

    def least_cost(self, gpus: int) -> Fraction:
        """Return what so many GPUs cost for an hour at least: servers of one group, the least price of several."""
        per_server, prices = self.sizes.gpus_per_server, self.sizes.prices
        if prices is None or len(prices) == 1:
            return Fraction(-(-gpus // per_server[0]))
        return gpus * min(price / each for price, each in zip(prices, per_server, strict=True))

    def constant(self, mix: Mix) -> Schedule:
        """Return the schedule of a fleet that stays."""
        return (mix,) * self.count

    def server_hours(self, schedule: Schedule) -> Fraction:
        """Return the hours of all servers."""
        return Fraction(sum(map(sum, schedule)) * self.by_us, US_PER_HOUR)

    def price(self, schedule: Schedule) -> Fraction | None:
        """Return what all servers cost; None without prices."""
        prices = self.prices
        if prices is None:
            return None
        each = (sum((p * n for p, n in zip(prices, mix, strict=True)), Fraction(0)) for mix in schedule)
        return sum(each, Fraction(0)) * Fraction(self.by_us, US_PER_HOUR)

    def cost(self, schedule: Schedule) -> Fraction:
        """Return the price of several groups, the server-hours of one: what is to be least."""
        price = None if len(self.sizes.counts) == 1 else self.price(schedule)
        return self.server_hours(schedule) if price is None else price

    def at(self, schedule: Schedule) -> Scenario:
        """Return the scenario on a schedule; a fleet that stays is the scenario at that size.

        Raises
        ------
        InstanceError
            If some task can run nowhere there, or a server is ordered for less time than it takes to start.
        """
        top = tuple(max(counts) for counts in zip(*schedule, strict=True))
        base = self.sizes.at(top)
        if schedule == self.constant(top):
            return base
        servers = [self._available(schedule, group, number) for group, n in enumerate(top) for number in range(n)]
        gpus = tuple(replace(gpu, available=servers[gpu.server]) for gpu in base.instance.cluster.gpus)
        instance = replace(base.instance, cluster=Cluster(gpus, base.instance.cluster.network))
        return replace(base, instance=instance)

    def _available(self, schedule: Schedule, group: int, number: int) -> Availability:
        """Return when the server of this number in its group is there: from its start-up on, while so many are paid."""
        start_up = self.sizes.scenario.document.cluster.server_groups[group].start_up
        there = [
            (begin + start_up if begin else 0, end)
            for begin, end in self._paid([mix[group] > number for mix in schedule])
        ]
        kept = [(begin, end) for begin, end in there if begin < end]
        if not kept:
            raise InstanceError("a server would go before it has started")
        return Availability(tuple(kept))

    def _paid(self, ordered: Sequence[bool]) -> list[Interval]:
        """Return from when until when a server is paid that is ordered for these intervals."""
        spans: list[Interval] = []
        first = 0
        for wanted, run in groupby(ordered):
            beyond = first + len(list(run))
            if wanted:
                spans.append((first * self.by_us, FOREVER if beyond == self.count else beyond * self.by_us))
            first = beyond
        return spans
