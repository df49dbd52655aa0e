"""A window cut into intervals of one length, and a scenario on so many servers of each group in each of them.

Of intervals it is told what their own jobs attain, since a level that holds over all jobs may be missed in some; and
what an autoscaler as people run it orders, one interval late. That follows the rule of Kubernetes' horizontal
autoscaler: wanted are servers x busy share / target, rounded up, and of the latest recommendations the highest counts,
so that it adds at once and removes only after a cool-down. A task keeps its share of a GPU busy, a batch counts once.
An engine that serves requests is busy whenever it has one: there the requests count, as autoscalers of engines do it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import groupby
from math import ceil

import numpy as np

from truenorth.executor import PolicyError, PolicyFaultError, StoppedError
from truenorth.models import Instance, InstanceError, ServiceLevels, completion_us
from truenorth.models.cluster import FOREVER, Availability, Interval
from truenorth.models.errors import QuestionError
from truenorth.models.instance import Ints
from truenorth.models.metrics import computing_us, serving_us
from truenorth.models.scenario import Scenario
from truenorth.models.timeline import Timeline, TokenTimes
from truenorth.planner.answers.servers.sizes import Mix, Sizes
from truenorth.planner.answers.simulate import simulate

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

    def unpaid_hours(self, schedule: Schedule, ends_us: int) -> Fraction:
        """Return the hours of the last interval's servers from its end until all is done, which nothing else counts."""
        return Fraction(sum(schedule[-1]) * max(0, ends_us - self.count * self.by_us), US_PER_HOUR)

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
        # Answers for a fleet that stays are kept as such, and this is one.
        if schedule == self.constant(top):
            return base
        servers = [self._available(schedule, group, number) for group, n in enumerate(top) for number in range(n)]
        gpus = tuple(replace(gpu, available=servers[gpu.server]) for gpu in base.instance.cluster.gpus)
        instance = replace(base.instance, cluster=replace(base.instance.cluster, gpus=gpus))
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


@dataclass(frozen=True, slots=True)
class Attained:
    """The jobs that are released in one interval.

    Parameters
    ----------
    share
        The share of them within the limit, of several levels the least; for a mean, 1 or 0.
    met
        Whether they meet every level by themselves.
    """

    share: Fraction
    met: bool


def attained(
    instance: Instance,
    latency_us: Ints,
    levels: ServiceLevels,
    by_us: int,
    count: int,
    tokens: TokenTimes | None = None,
) -> tuple[Attained | None, ...]:
    """Return what the jobs of each of so many intervals attain; None for one in which no job that counts is released.

    Parameters
    ----------
    latency_us
        In microseconds. Shape [jobs].
    by_us
        Length of the intervals in microseconds.
    tokens
        When tokens came, where jobs have requests of streams.
    """
    borders = np.searchsorted(instance.job_release_us, by_us * np.arange(1, count))
    found = list[Attained | None]()
    for jobs in np.split(np.arange(len(instance.jobs)), borders):
        over = [level for level in levels if level.covers(instance)[jobs].any()]
        share = min((level.attainment(instance, latency_us, jobs, tokens) for level in over), default=None)
        met = all(level.met_by(instance, latency_us, jobs, tokens) for level in over)
        found.append(None if share is None else Attained(share, met))
    return tuple(found)


TARGET = 0.6
"""Busy share of its servers that it aims at; of engines, the share of their seats or KV that requests take up."""
COOL_DOWN = 2
"""Recommendations of so many intervals count."""
MOST_SIMULATED = 100
"""Each interval takes a simulation; a day of more is left alone."""


@dataclass(frozen=True, slots=True)
class Autoscaled:
    """What an autoscaler above a policy ordered, and whether that met the levels, over all jobs and by interval.

    The last job ends at `ends_us`.
    """

    policy: str
    schedule: Schedule
    met: bool
    attained: tuple[Attained | None, ...]
    ends_us: int


def autoscale(
    day: Day,
    policy: str,
    start: Mix,
    most: Mix,
    levels: ServiceLevels,
    seed: int,
    late: Callable[[], bool],
    noise: str | None = None,
) -> Autoscaled | None:
    """Return what an autoscaler orders, from a fleet up to the most there is.

    None for several groups, too many intervals, or out of time.

    What it orders for an interval depends on those before it alone, as the policy's actions do: so the window is
    simulated again with every order.
    """
    if len(start) > 1 or not 1 < day.count <= MOST_SIMULATED:
        return None
    counts, wanted = [start[0]], list[int]()
    try:
        for interval in range(day.count):
            # What it will order is not known yet: until then it keeps the last order, which nothing before depends on.
            ordered = tuple((count,) for count in (*counts, *[counts[-1]] * (day.count - len(counts))))
            ran = simulate(day.at(ordered), policy, seed=seed, noise=noise, stop=late)
            if interval + 1 < day.count:
                begin_us = interval * day.by_us
                gpus = _used_us(ran.instance, ran.timeline, begin_us, begin_us + day.by_us) / day.by_us
                wanted.append(min(most[0], max(1, ceil(gpus / day.sizes.gpus_per_server[0] / TARGET))))
                counts.append(max(wanted[-COOL_DOWN:]))
    except PolicyFaultError:
        raise
    except (InstanceError, PolicyError, StoppedError):
        return None
    latency = completion_us(ran.truth, ran.timeline) - ran.truth.job_release_us
    tokens = TokenTimes.of(ran.truth, ran.timeline)
    met = levels.met_by(ran.truth, latency, range(len(latency)), tokens)
    by_interval = attained(ran.truth, latency, levels, day.by_us, day.count, tokens)
    return Autoscaled(policy, ordered, met, by_interval, int(ran.timeline.end_us.max()))


def _used_us(instance: Instance, timeline: Timeline, begin_us: int, end_us: int) -> float:
    """Return the GPU time in [begin, end) that tasks keep busy, and requests take up, whether they run or wait.

    A request takes up one of the seats of a GPU, or its part of the KV there, whichever is the larger share of them.
    """
    busy_us, streams = computing_us(instance, timeline, begin_us, end_us), instance.streams
    if streams is None:
        return busy_us
    since_us = instance.job_release_us[instance.task_job].copy()
    source, target, edge = instance.edges()
    np.maximum.at(since_us, target, timeline.end_us[source] + instance.delay_us[edge])
    overlap_us = np.minimum(timeline.end_us, end_us) - np.maximum(since_us, begin_us)
    taken_us = 0.0
    for stream, row in enumerate(streams.speeds):
        for gpu_class, speed in enumerate(row):
            here = streams.template[instance.task_template] == stream
            here &= (instance.gpu_class[timeline.place] == gpu_class) & (overlap_us > 0)
            if speed is not None and here.any():
                part = streams.held[here] / streams.longest[stream, gpu_class]
                taken_us += float((overlap_us[here] * np.maximum(part, 1 / speed.seats)).sum())
    return busy_us - serving_us(instance, timeline, begin_us, end_us) + taken_us
