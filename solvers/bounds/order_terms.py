"""What the verifier's programme over start orders looks up: tasks, how far jobs are, and the least that their rests cost.

Written from docs/certificate.md, with no code of the prover. Times count from `origin_us`, in columns some slots wide;
what begins inside a column counts as if at its beginning, so that everything is rounded towards proving less.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from truenorth.models.instance import NONE, Instance, Ints
from truenorth.solvers.bounds.alone import LoneJobs

MOST_STAGES = 300
"""Workflows of which more sets of tasks can have started are left alone."""
_MOST_MODELS = 60
_MOST_SLOTS, _MOST_COLUMNS, _MOST_DELAYS = 1_000_000, 4_000, 300


class Rate(NamedTuple):
    """What a microsecond of a GPU costs by slot, from the first slot on; nothing in all others."""

    price: Ints
    first_slot: int
    slot_us: int


@dataclass(frozen=True, slots=True)
class Tasks:
    """The tasks of a part, and what each must wait for.

    Parameters
    ----------
    job, place, run_us, head_us, tail_us
        Per task: its job and its place there, how long it runs, its earliest start, and the longest chain behind it.
    needs
        Per task: a mask of the models that it needs and that no GPU holds from the start.
    load_us
        Per bit of those masks.
    source, gap_us
        The predecessors of a task, NONE where there are no more, and how long what they send takes between two GPUs.
        Shape [tasks, most predecessors].
    reach_us
        Per task: the longest gap behind it.
    """

    job: Ints
    place: Ints
    run_us: Ints
    head_us: Ints
    tail_us: Ints
    needs: Ints
    load_us: Ints
    source: Ints
    gap_us: Ints
    reach_us: Ints

    @classmethod
    def of(cls, instance: Instance, alone: LoneJobs) -> Tasks:
        """Return the tasks of an instance whose GPUs are of one class."""
        jobs, templates = range(len(instance.jobs)), instance.task_template
        held = {there.model for there in instance.initial}
        bits = {m: bit for bit, m in enumerate(sorted({m for row in instance.needs for m in row} - held))}
        masks = np.array([sum(1 << bits[m] for m in row if m in bits) for row in instance.needs], np.int64)
        most = max(map(len, instance.inputs), default=0)
        source, gap_us = np.full((len(templates), most), NONE, np.int64), np.zeros((len(templates), most), np.int64)
        reach_us = np.zeros(len(templates), np.int64)
        for task in range(len(templates)):
            for at, (offset, edge) in enumerate(instance.inputs[templates[task]]):
                source[task, at], gap_us[task, at] = task + offset, _gap_us(instance, edge)
                reach_us[task + offset] = max(reach_us[task + offset], gap_us[task, at])
        return cls(
            instance.task_job,
            np.arange(len(templates)) - instance.job_first_task[instance.task_job],
            np.array(alone.fastest, np.int64)[templates],
            np.array([at for job in jobs for at in alone.times(job)[0]], np.int64),
            np.array(alone.tail, np.int64)[templates],
            masks[templates],
            np.array([int(instance.load_us[m, 0]) for m in bits], np.int64),
            source,
            gap_us,
            reach_us,
        )


def _gap_us(instance: Instance, edge: int) -> int:
    """Return the least time that an output takes between two different GPUs of the one class."""
    servers = instance.gpu_server.tolist()
    links = [1] if len(set(servers)) < len(servers) else []
    links += [0] if len(set(servers)) > 1 else []
    return min((int(instance.transfer_us[edge, 0, 0, link]) for link in links), default=0)


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


class RunPrices:
    """The least price of a run that starts within a column, by run time.

    Parameters
    ----------
    rate
        Prices of compute.
    origin_us, end_us
        Every run starts at the first of these or later; columns go on until the second.
    """

    def __init__(self, rate: Rate, origin_us: int, end_us: int) -> None:
        slot_us = self.slot_us = rate.slot_us
        first = min(rate.first_slot, origin_us // slot_us)
        slots = max(rate.first_slot + len(rate.price), end_us // slot_us + 1) - first
        if slots > _MOST_SLOTS:
            raise TooLargeError("too many slots")
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

    @property
    def total(self) -> int:
        """The price of a GPU for all time."""
        return int(self._until[-1])

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


class _Job(NamedTuple):
    """A job's tasks, by place: what comes right before each, run times, chains behind, own loads, and models."""

    weight: int
    before: list[frozenset[int]]
    run_us: list[int]
    tail_us: list[int]
    loaded_us: list[int]
    needs: list[int]


@dataclass(frozen=True, slots=True)
class OrderTerms:
    """A part in arrays.

    Parameters
    ----------
    gpus
        Their number.
    weight, due_us
        A job costs its weight for every microsecond of its completion beyond its due time. Shape [jobs].
    release_us, end_us
        Of each job: its release, and the earliest end of its last task. Shape [jobs].
    alone_from
        What the last jobs cost at least, each from its release on: all of them, all but the first, ... none.
        Shape [jobs + 1].
    key
        A random number per task: those of all tasks that have started make the key of a state.
    """

    gpus: int
    weight: Ints
    due_us: Ints
    release_us: Ints
    end_us: Ints
    tasks: Tasks
    prices: RunPrices
    stages: Stages
    alone_from: Ints
    key: NDArray[np.uint64]

    @classmethod
    def of(cls, instance: Instance, weights: list[int], due_us: list[int], rate: Rate) -> OrderTerms:
        """Return the terms of a part whose GPUs are of one class.

        Raises
        ------
        TooLargeError
            If something does not fit: numbers into 64 bits, models into a mask, or the tables into a few megabytes.
        """
        alone = LoneJobs(instance)
        tasks, jobs = Tasks.of(instance, alone), range(len(instance.jobs))
        end_us = [max(alone.times(job)[1]) for job in jobs]
        # No start order that never idles without need takes longer.
        longest_us = max(end_us) + int((tasks.run_us + tasks.gap_us.max(axis=1, initial=0)).sum() + tasks.load_us.sum())
        priced = instance.n_gpus * sum(rate.price.tolist()) * rate.slot_us
        far = (1 << 62) // (len(jobs) + len(tasks.job) + 2)
        if 2 * longest_us * (sum(weights) + 1) + priced > far or longest_us * len(tasks.job) > far:
            raise TooLargeError("prices or times are too large")
        release_us = instance.job_release_us
        prices = RunPrices(rate, int(release_us[0]), max(end_us))
        tables, first = _StageTables(instance, tasks, prices, far), list[int]()
        known: dict[tuple[int, int], int] = {}
        for job, (workflow, weight) in enumerate(zip(instance.job_workflow.tolist(), weights, strict=True)):
            if (workflow, weight) not in known:
                known[workflow, weight] = tables.add(job, weight)
            first.append(known[workflow, weight])
        stages = tables.stages(first)
        column = np.minimum((release_us - prices.origin_us) // prices.column_us, prices.columns - 1)
        weight, due = np.array(weights, np.int64), np.array(due_us, np.int64)
        least = np.maximum(
            stages.rest[first, column], weight * (np.array(end_us) - prices.origin_us) + stages.paid[first, column]
        )
        alone_costs = least - weight * (due - prices.origin_us)
        alone_from = np.concatenate((np.cumsum(alone_costs[::-1])[::-1], [0]))
        key = np.random.default_rng(0).integers(1, 1 << 62, len(tasks.job)).astype(np.uint64)
        return cls(
            instance.n_gpus, weight, due, release_us, np.array(end_us), tasks, prices, stages, alone_from, key
        )


class _Rows(NamedTuple):
    """The rows of all stages so far; see `Stages`."""

    after: list[list[int]]
    done: list[bool]
    holds: list[list[bool]]
    wants: list[int]
    rest: list[Ints]
    paid: list[Ints]


class _StageTables:
    """Tabulates the stages of one job after another."""

    def __init__(self, instance: Instance, tasks: Tasks, prices: RunPrices, far: int) -> None:
        self.instance, self.tasks, self.prices, self.far = instance, tasks, prices, far
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
            row = after + [NONE] * fill, not left, holds + [False] * fill, wants, rest, paid
            for column, value in zip(self.rows, row, strict=True):
                column.append(value)
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
            pay = np.concatenate((self._paying(work, place), np.zeros(last + _MOST_DELAYS + 1, np.int64)))
            paid += np.minimum.accumulate(pay[::-1])[::-1][first : first + count]
            least.append(sliding_window_view(pay[first:], last + 1 - first)[:count].min(axis=1))
            later.append(pay[last:])
        now, then, done_us = np.array(least), _stack(later), np.arange(count) * width + chain
        best = np.full(count, self.far)
        for delay in range(_MOST_DELAYS):
            completing = work.weight * (done_us + delay * width)
            # Later completions cost no less, and nobody pays less than `paid`.
            if (completing + paid >= best).all():
                return best, paid
            np.minimum(now, then[:, delay : delay + count], out=now)
            np.minimum(best, completing + now.sum(axis=0), out=best)
        return np.minimum(best, work.weight * (done_us + _MOST_DELAYS * width) + paid), paid

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
        return np.minimum(np.min(options, axis=0), self.far)


def _stack(rows: list[Ints]) -> Ints:
    """Return rows of different lengths as a table, cut to the shortest."""
    return np.array([row[: min(map(len, rows))] for row in rows])


def _stages(before: list[frozenset[int]]) -> list[frozenset[int]]:
    """Return the sets of tasks that can have started, the largest first."""
    found = [frozenset[int]()]
    known = set(found)
    for started in found:
        for task, inputs in enumerate(before):
            if inputs <= started and started | {task} not in known:
                known.add(started | {task})
                found.append(started | {task})
        if len(found) > MOST_STAGES:
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


def loads_us(load_us: Ints, models: Ints) -> Ints:
    """Return how long loading takes of the models in each mask, one after the other."""
    total = np.zeros(models.shape, np.int64)
    for bit, each in enumerate(load_us.tolist()):
        total += each * (models >> bit & 1)
    return total


class TooLargeError(Exception):
    """The programme would be too large for this part; the message says in what."""
