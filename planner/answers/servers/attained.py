"""What the jobs of each interval come to by themselves: a level that holds over all jobs may be missed in some."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from truenorth.models import Instance, ServiceLevel, ServiceLevels
from truenorth.models.instance import Ints
from truenorth.models.objective import mean_ratio
from truenorth.planner.answers.servers.alone import is_beyond


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
    instance: Instance, latency_us: Ints, levels: ServiceLevels, by_us: int, count: int
) -> tuple[Attained | None, ...]:
    """Return what the jobs of each of so many intervals attain; None for one in which no job that counts is released.

    Parameters
    ----------
    latency_us
        In microseconds. Shape [jobs].
    by_us
        Length of the intervals in microseconds.
    """
    borders = np.searchsorted(instance.job_release_us, by_us * np.arange(1, count))
    intervals = np.split(np.arange(len(instance.jobs)), borders)
    by_level = [_of_level(instance, latency_us, level, intervals) for level in levels]
    return tuple(_together([found for found in row if found is not None]) for row in zip(*by_level, strict=True))


def _together(found: list[Attained]) -> Attained | None:
    if not found:
        return None
    return Attained(min(each.share for each in found), all(each.met for each in found))


def _of_level(
    instance: Instance, latency_us: Ints, level: ServiceLevel, intervals: list[Ints]
) -> list[Attained | None]:
    covered = level.covers(instance)
    return [_of_jobs(instance, latency_us, level, jobs[covered[jobs]].tolist()) for jobs in intervals]


def _of_jobs(instance: Instance, latency_us: Ints, level: ServiceLevel, jobs: list[int]) -> Attained | None:
    if not jobs:
        return None
    if level.share is None:
        flows: list[int] = latency_us[jobs].tolist()
        units = instance.job_ideal_us[jobs].tolist() if level.measure == "slowdown" else [1] * len(jobs)
        within = mean_ratio(flows, units) <= level.limit
        return Attained(Fraction(int(within)), within)
    late = sum(is_beyond(instance, level, latency_us, job) for job in jobs)
    share = 1 - Fraction(late, len(jobs))
    return Attained(share, share >= level.share)
