"""From the calls of sessions to jobs: a call waits for the one before it, and then for as long as it did in the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from truenorth.models.instance import Ints
from truenorth.models.scenario.quantities import MAX_TIME_US


@dataclass(frozen=True, slots=True, eq=False)
class Calls:
    """How requests make jobs, one after the other.

    Parameters
    ----------
    job, place
        The job that each request is of, in the order of their first calls, and which of its calls it is, from 0.
    before
        The call before it; -1 for the first of a job.
    delay_us
        From the end of that to its own arrival; 0 for the first of a job. Shape of all: [requests].
    """

    job: Ints
    place: Ints
    before: Ints
    delay_us: Ints

    def at(self, order: Ints) -> Calls:
        """Return the same calls in another order; which is before which stays as it was."""
        return Calls(self.job[order], self.place[order], self.before[order], self.delay_us[order])


def chain(
    session: Sequence[str],
    release_us: Sequence[int],
    end_us: Sequence[int],
    followed: Sequence[bool] | None = None,
    within_us: int = MAX_TIME_US,
) -> Calls:
    """Return the calls of sessions one after the other, given in the order in which they arrived.

    A call comes after the one of its session that had ended last before it arrived, unless another came after that
    already: calls that overlap are of jobs side by side. One without a session is a job by itself.

    Parameters
    ----------
    followed
        Which calls others may come after; None: all.
    within_us
        How long after the end of another a call may still come after it.

    >>> calls = chain(["a", "b", "a", "a"], [0, 1, 5, 6], [3, 9, 8, 7])
    >>> calls.job.tolist(), calls.place.tolist(), calls.delay_us.tolist()
    ([0, 1, 0, 2], [0, 0, 1, 0], [0, 0, 2, 0])
    """
    last: dict[str, list[int]] = {}
    job, place, before, delay_us = (np.zeros(len(session), np.int64) for _ in range(4))
    jobs = 0
    for call, (name, now) in enumerate(zip(session, release_us, strict=True)):
        ends = last.setdefault(name, []) if name else []
        ends[:] = [other for other in ends if end_us[other] + within_us >= now]
        ended = [other for other in ends if end_us[other] <= now]
        earlier = max(ended, key=lambda other: (end_us[other], -other), default=-1)
        before[call] = earlier
        if earlier < 0:
            job[call], jobs = jobs, jobs + 1
        else:
            ends.remove(earlier)
            job[call], place[call], delay_us[call] = job[earlier], place[earlier] + 1, now - end_us[earlier]
        if followed is None or followed[call]:
            ends.append(call)
    return Calls(job, place, before, delay_us)
