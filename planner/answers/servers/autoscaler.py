"""An autoscaler as people run it: servers follow how busy they were, one interval late.

The rule of Kubernetes' horizontal autoscaler: wanted are servers x busy share / target, rounded up, and of the latest
recommendations the highest counts, so that it adds at once and removes only after a cool-down.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

import numpy as np

from executor import PolicyError, StoppedError
from models import InstanceError, ServiceLevels, Timeline
from planner.answers.servers.day import Day, Schedule
from planner.answers.servers.decide import meets
from planner.answers.servers.sizes import Mix
from planner.answers.simulate import simulate

TARGET = 0.6
"""Busy share of its servers that it aims at."""
COOL_DOWN = 2
"""Recommendations of so many intervals count."""
MOST_INTERVALS = 100
"""Each interval takes a simulation; a day of more is left alone."""


@dataclass(frozen=True, slots=True)
class Autoscaled:
    """What an autoscaler above a policy ordered, and whether that met the levels."""

    policy: str
    schedule: Schedule
    met: bool


def autoscale(
    day: Day,
    policy: str,
    start: Mix,
    levels: ServiceLevels,
    seed: int,
    late: Callable[[], bool],
    noise: str | None = None,
) -> Autoscaled | None:
    """Return what an autoscaler orders, from a fleet on; None for several groups, too many intervals, or out of time.

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
                busy = _busy_share(day, ran.timeline, interval, counts[-1])
                wanted.append(max(1, ceil(counts[-1] * busy / TARGET)))
                counts.append(max(wanted[-COOL_DOWN:]))
    except (InstanceError, PolicyError, StoppedError):
        return None
    return Autoscaled(policy, ordered, meets(ran.truth, ran.timeline, levels))


def _busy_share(day: Day, timeline: Timeline, interval: int, servers: int) -> float:
    """Return for which part of an interval the GPUs of so many servers ran something."""
    begin_us = interval * day.by_us
    ends = np.minimum(timeline.end_us, begin_us + day.by_us)
    ran_us = int(np.maximum(ends - np.maximum(timeline.start_us, begin_us), 0).sum())
    return ran_us / (servers * day.sizes.gpus_per_server[0] * day.by_us)
