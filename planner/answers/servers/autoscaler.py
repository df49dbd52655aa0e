"""An autoscaler as people run it: servers follow how busy they were, one interval late.

The rule of Kubernetes' horizontal autoscaler: wanted are servers x busy share / target, rounded up, and of the latest
recommendations the highest counts, so that it adds at once and removes only after a cool-down. A task keeps its share
of a GPU busy, and a batch counts once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

from truenorth.executor import PolicyError, StoppedError
from truenorth.models import InstanceError, ServiceLevels, completion_us
from truenorth.models.metrics import computing_us
from truenorth.models.token_times import TokenTimes
from truenorth.planner.answers.servers.attained import Attained, attained
from truenorth.planner.answers.servers.day import Day, Schedule
from truenorth.planner.answers.servers.sizes import Mix
from truenorth.planner.answers.simulate import simulate

TARGET = 0.6
"""Busy share of its servers that it aims at."""
COOL_DOWN = 2
"""Recommendations of so many intervals count."""
MOST_INTERVALS = 100
"""Each interval takes a simulation; a day of more is left alone."""


@dataclass(frozen=True, slots=True)
class Autoscaled:
    """What an autoscaler above a policy ordered, and whether that met the levels, over all jobs and by interval."""

    policy: str
    schedule: Schedule
    met: bool
    attained: tuple[Attained | None, ...]


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
    if len(start) > 1 or not 1 < day.count <= MOST_INTERVALS:
        return None
    counts, wanted = [start[0]], list[int]()
    try:
        for interval in range(day.count):
            ordered = tuple((count,) for count in (*counts, *[counts[-1]] * (day.count - len(counts))))
            ran = simulate(day.at(ordered), policy, seed=seed, noise=noise, stop=late)
            if interval + 1 < day.count:
                begin_us = interval * day.by_us
                working_us = computing_us(ran.instance, ran.timeline, begin_us, begin_us + day.by_us)
                engines = working_us / (day.by_us * day.sizes.gpus_per_server[0])
                wanted.append(min(most[0], max(1, ceil(engines / TARGET))))
                counts.append(max(wanted[-COOL_DOWN:]))
    except (InstanceError, PolicyError, StoppedError):
        return None
    latency = completion_us(ran.truth, ran.timeline) - ran.truth.job_release_us
    tokens = TokenTimes.of(ran.truth, ran.timeline)
    met = levels.met_by(ran.truth, latency, range(len(latency)), tokens)
    return Autoscaled(policy, ordered, met, attained(ran.truth, latency, levels, day.by_us, day.count, tokens))
