"""What the jobs of each interval come to by themselves: a level that holds over all jobs may be missed in some."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from truenorth.models import Instance, ServiceLevels
from truenorth.models.instance import Ints
from truenorth.models.token_times import TokenTimes


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
