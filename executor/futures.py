"""The future of a window, drawn anew: who knows nothing of it does the same until the change shows."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from itertools import zip_longest

import numpy as np

from truenorth.models import Instance, Timeline
from truenorth.models.cluster import MICROSECONDS_PER_SECOND

_MORE_JOBS = 3
"""A changed future may hold so many jobs more than the window does."""

Action = tuple[int, str]
"""When something was done, in microseconds, and what, in words."""


@dataclass(frozen=True, slots=True, eq=False)
class ChangedFuture:
    """A window whose last jobs are others.

    Parameters
    ----------
    instance
        The window with its changed future.
    before_us
        The first release that differs: what is done before it may not differ.
    """

    instance: Instance
    before_us: int


def change_future(instance: Instance, rng: random.Random) -> ChangedFuture:
    """Keep a window's first jobs; of those that the window holds let others follow, no earlier than the last kept.

    Cluster, models and catalogue stay: these a policy may know beforehand.
    """
    jobs = instance.jobs
    kept = rng.randint(1, len(jobs))
    begin_us, end_us = jobs[kept - 1].release_us, max(job.release_us for job in jobs)
    count = rng.randint(int(kept == len(jobs)), len(jobs) - kept + _MORE_JOBS)
    longest_us = end_us - begin_us + end_us // len(jobs) + 1
    releases = sorted(begin_us + rng.randint(0, longest_us) for _ in range(count))
    others = [replace(rng.choice(jobs), release_us=release_us) for release_us in releases]
    differing = [job.release_us for job in (*jobs[kept:], *others)]
    return ChangedFuture(replace(instance, jobs=(*jobs[:kept], *others)), min(differing))


def past(instance: Instance, timeline: Timeline, before_us: int) -> list[Action]:
    """Return all that was done before a time, in order, with the ends known by then."""
    done: list[Action] = []
    for task in np.flatnonzero(timeline.start_us < before_us).tolist():
        where = instance.cluster.gpus[timeline.gpu[task]].id
        who = f"job {instance.task_job[task]}, task {instance.task_name(task)} (number {task})"
        ends = _until(int(timeline.end_us[task]), before_us)
        done.append((int(timeline.start_us[task]), f"{who} runs on {where}{ends}"))
    for stay in timeline.residencies:
        if stay.load_start_us < before_us:
            where = instance.cluster.gpus[stay.gpu].id + ("" if stay.slot is None else f", slot {stay.slot}")
            loads, stays = _until(stay.ready_us, before_us), _until(stay.end_us, before_us)
            what = f"model {instance.models[stay.model].name} is loaded to {where}{loads}, and stays{stays}"
            done.append((stay.load_start_us, what))
    return sorted(done)


def _until(end_us: int | None, before_us: int) -> str:
    if end_us is None or end_us >= before_us:
        return ""
    return f" until {end_us / MICROSECONDS_PER_SECOND:.6f} s"


def first_difference(one: list[Action], other: list[Action]) -> tuple[Action | None, Action | None] | None:
    """Return what two pasts do otherwise first, None where one does nothing more; None if they are the same."""
    return next((pair for pair in zip_longest(one, other) if pair[0] != pair[1]), None)
