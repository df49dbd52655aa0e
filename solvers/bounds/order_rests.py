"""The least that the rests of jobs cost at prices of compute, for the verifier's programme over start orders.

Times count from `origin_us`, in columns some slots wide; what begins inside a column counts as if at its beginning, so
that everything is rounded towards proving less.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from truenorth.models.instance import NONE, Instance, Ints
from truenorth.solvers.bounds.effort import Effort, TooLargeError
from truenorth.solvers.bounds.order_tasks import OrderTasks, loads_us

MOST_DELAYS = 300
"""Completions that are later by more columns count as if so late, and whatever runs pay least."""
_MOST_STAGES = 300
"""Workflows that can stand in more ways are left alone."""
_MOST_SLOTS, _MOST_COLUMNS = 200_000, 4_000


class Rate(NamedTuple):
    """What a microsecond of a GPU costs by slot, from the first slot on; nothing in all others."""

    price: Ints
    first_slot: int
    slot_us: int


class RunPrices:
    """The least price of a run that starts within a column, by run time.

    Parameters
    ----------
    rate
        Prices of compute.
    origin_us, end_us
        Every run starts at the first of these or later; columns go on until the second.

    Attributes
    ----------
    total
        The price of a GPU for all time.
    """

    def __init__(self, rate: Rate, origin_us: int, end_us: int) -> None:
        slot_us = self.slot_us = rate.slot_us
        first = min(rate.first_slot, origin_us // slot_us)
        slots = max(rate.first_slot + len(rate.price), end_us // slot_us + 1) - first
        if slots > _MOST_SLOTS:
            raise TooLargeError("too many slots")
        # The price of a GPU for all time, before anything is added up in 64 bits.
        self.total = sum(rate.price.tolist()) * slot_us
        if self.total > 1 << 60:
            raise TooLargeError("prices are too large")
        self.origin_us, self._rate = first * slot_us, np.zeros(slots + 1, np.int64)
        before = rate.first_slot - first
        self._rate[before : before + len(rate.price)] = rate.price
        self._until = np.concatenate(([0], np.cumsum(self._rate[:-1]) * slot_us))
        self._together = -(-slots // _MOST_COLUMNS)
        self.columns = -(-slots // self._together)
        self.column_us = self._together * slot_us
        self._known: dict[int, Ints] = {}

    def until(self, instant_us: Ints) -> Ints:
        """Return the price from the origin to each instant."""
        since = instant_us - self.origin_us
        slot = np.minimum(since // self.slot_us, len(self._rate) - 1)
        return np.asarray(self._until[slot] + self._rate[slot] * (since - slot * self.slot_us))

    def column(self, begin_us: Ints) -> Ints:
        """Return the column of each instant; the last one stands for all later ones."""
        return np.asarray(np.minimum((begin_us - self.origin_us) // self.column_us, self.columns - 1))

    @property
    def reach_us(self) -> int:
        """How far after the origin rests of jobs are tabulated."""
        return (self.columns + MOST_DELAYS) * self.column_us

    def of(self, run_us: int) -> Ints:
        """Return the least price of such a run by the column of its start. Shape [columns]."""
        if run_us not in self._known:
            slot_us, count = self.slot_us, self.columns * self._together
            begin = self.origin_us + np.arange(count) * slot_us
            # Linear in the start between these: the edges of the slot, and where the end enters another one.
            starts = (begin, begin + slot_us - 1, begin + -(begin + run_us) % slot_us)
            least = np.min([self.until(at + run_us) - self.until(at) for at in starts], axis=0)
            self._known[run_us] = least.reshape(self.columns, self._together).min(axis=1)
        return self._known[run_us]


@dataclass(frozen=True, slots=True)
class Stages:
    """How far jobs can be: a stage is the set of a job's tasks that have started.

    Parameters
    ----------
    first
        Per job: the stage in which nothing has started.
    after
        Per stage and place in the job: the stage after the start of that task, NONE where it cannot start.
    done
        Per stage: whether all tasks have started.
    holds
        Per stage and place: whether the task has started, and some task that needs its output has not.
    wants
        Per stage: a mask of the models of the tasks that have not started.
    rest, paid
        What the tasks that are left and the job's completion cost at least, all of them starting in a column or later,
        and what these tasks pay alone. Completions count from `origin_us`. Shape [stages, columns].
    """

    first: Ints
    after: Ints
    done: NDArray[np.bool_]
    holds: NDArray[np.bool_]
    wants: Ints
    rest: Ints
    paid: Ints


class _Job(NamedTuple):
    """A job's tasks, by place: what comes right before each, run times, chains behind, own loads, and models."""

    weight: int
    before: list[frozenset[int]]
    run_us: list[int]
    tail_us: list[int]
    loaded_us: list[int]
    needs: list[int]


class _Rows(NamedTuple):
    """The rows of all stages so far; see `Stages`."""

    after: list[list[int]]
    done: list[bool]
    holds: list[list[bool]]
    wants: list[int]
    rest: list[Ints]
    paid: list[Ints]


class StageTables:
    """Tabulates the stages of one job after another.

    Parameters
    ----------
    far
        Stands for the cost of what cannot be.
    """

    def __init__(self, instance: Instance, tasks: OrderTasks, prices: RunPrices, far: int, effort: Effort) -> None:
        self.instance, self.tasks, self.prices, self.far, self.effort = instance, tasks, prices, far, effort
        self.width = int(np.diff(instance.job_first_task).max())
        self.rows = _Rows([], [], [], [], [], [])

    def add(self, job: int, weight: int) -> int:
        """Add the stages of a job; return the one in which nothing has started."""
        work, base = self._job(job, weight), len(self.rows.after)
        places, fill = range(len(work.run_us)), self.width - len(work.run_us)
        stages = _stages(work.before)
        number = {started: base + index for index, started in enumerate(stages)}
        for started in stages:
            left = [place for place in places if place not in started]
            after = [number[started | {p}] if p in left and work.before[p] <= started else NONE for p in places]
            holds = [p in started and any(p in work.before[other] for other in left) for p in places]
            rest, paid = self._rest(work, left)
            if len(left) > 1:
                rest = np.maximum(rest, self._first_start(work, left, after))
            wants = int(np.bitwise_or.reduce([work.needs[place] for place in left] or [0]))
            self.rows.after.append(after + [NONE] * fill)
            self.rows.done.append(not left)
            self.rows.holds.append(holds + [False] * fill)
            self.rows.wants.append(wants)
            self.rows.rest.append(rest)
            self.rows.paid.append(paid)
        return number[frozenset()]

    def stages(self, first: list[int]) -> Stages:
        """Return the tables of all stages; each job begins in one of them."""
        rows = self.rows
        return Stages(
            np.array(first, np.int64),
            np.array(rows.after, np.int64),
            np.array(rows.done, np.bool_),
            np.array(rows.holds, np.bool_),
            np.array(rows.wants, np.int64),
            np.array(rows.rest, np.int64),
            np.array(rows.paid, np.int64),
        )

    def _job(self, job: int, weight: int) -> _Job:
        first, own, tasks = int(self.instance.job_first_task[job]), list(self.instance.tasks_of(job)), self.tasks
        before = [frozenset(source - first for source in tasks.source[t].tolist() if source != NONE) for t in own]
        needs = tasks.needs[own].tolist()
        loaded = loads_us(tasks.load_us, tasks.needs[own]).tolist()
        return _Job(weight, before, tasks.run_us[own].tolist(), tasks.tail_us[own].tolist(), loaded, needs)

    def _paying(self, work: _Job, place: int) -> Ints:
        """Return what a task pays by the column of its start; nobody starts before its own models can be there."""
        paying = self.prices.of(work.run_us[place]).copy()
        paying[: max(0, work.loaded_us[place] - self.prices.origin_us) // self.prices.column_us] = self.far
        return paying

    def _rest(self, work: _Job, left: list[int]) -> tuple[Ints, Ints]:
        """Return the least cost of tasks that start where each is cheapest, and early enough for the completion.

        All start at or after the begin x of a column. For completions in [x + E + d c, x + E + (d + 1) c), with E the
        longest chain left and c the width of a column, a task after a chain L, with r its run time and a tail T behind,
        starts between x + L and x + E + (d + 1) c - 1 - T - r: the same columns, counted from x, for every x.
        """
        count, width = self.prices.columns, self.prices.column_us
        if not left:
            return np.zeros(count, np.int64), np.zeros(count, np.int64)
        lead = _leads(work, left)
        chain = max(lead[place] + work.run_us[place] + work.tail_us[place] for place in left)
        paid, least, later = np.zeros(count, np.int64), [], []
        for place in left:
            first = lead[place] // width
            last = (chain + width - 1 - work.tail_us[place] - work.run_us[place]) // width
            # Behind the last column nothing costs anything.
            pay = np.concatenate((self._paying(work, place), np.zeros(last + MOST_DELAYS + 1, np.int64)))
            paid += np.minimum.accumulate(pay[::-1])[::-1][first : first + count]
            self.effort.spend(count * (last + 1 - first))
            least.append(sliding_window_view(pay[first:], last + 1 - first)[:count].min(axis=1))
            later.append(pay[last:])
        now, then, done_us = np.array(least), np.array(later), np.arange(count) * width + chain
        best = np.full(count, self.far)
        for delay in range(MOST_DELAYS):
            completing = work.weight * (done_us + delay * width)
            # Later completions cost no less, and nobody pays less than `paid`.
            if (completing + paid >= best).all():
                return best, paid
            self.effort.spend(now.size)
            np.minimum(now, then[:, delay : delay + count], out=now)
            np.minimum(best, completing + now.sum(axis=0), out=best)
        return np.minimum(best, work.weight * (done_us + MOST_DELAYS * width) + paid), paid

    def _first_start(self, work: _Job, left: list[int], after: list[int]) -> Ints:
        """Return the least cost over which task starts first, and in which column: no other starts before it."""
        count, options = self.prices.columns, []
        for place in (place for place in left if after[place] != NONE):
            # Where all others must wait for it they wait until its end.
            waits = all(other == place or _follows(work.before, place, other) for other in left)
            index = np.arange(count) + (work.run_us[place] // self.prices.column_us if waits else 0)
            later = self.rows.rest[after[place]]
            cost = self._paying(work, place) + later[np.minimum(index, count - 1)]
            # The last column stands for all later ones, in which starting is free.
            cost[-1] = later[-1]
            options.append(np.minimum.accumulate(cost[::-1])[::-1])
        return np.asarray(np.minimum(np.min(options, axis=0), self.far))


def _stages(before: list[frozenset[int]]) -> list[frozenset[int]]:
    """Return the sets of tasks that can have started, the largest first."""
    found = [frozenset[int]()]
    known = set(found)
    for started in found:
        for task, inputs in enumerate(before):
            if inputs <= started and started | {task} not in known:
                known.add(started | {task})
                found.append(started | {task})
        if len(found) > _MOST_STAGES:
            raise TooLargeError("a workflow can stand in too many ways")
    return sorted(found, key=len, reverse=True)


def _leads(work: _Job, left: list[int]) -> dict[int, int]:
    """Return the longest chain of tasks that are left before each of them."""
    lead: dict[int, int] = {}
    # A task has a longer chain behind it than any that follows it: run times are 1 us or more.
    for place in sorted(left, key=lambda place: -work.tail_us[place]):
        lead[place] = max((lead[p] + work.run_us[p] for p in work.before[place] if p in lead), default=0)
    return lead


def _follows(before: list[frozenset[int]], first: int, place: int) -> bool:
    """Say whether a task must come after another one."""
    return any(source == first or _follows(before, first, source) for source in before[place])
