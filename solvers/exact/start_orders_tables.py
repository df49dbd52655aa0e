"""What the dynamic programme over start orders looks up: tasks, stages of jobs, and the least that their rests cost.

A job's *stage* is the set of its tasks that have started. At the prices of the Lagrangian the rest of a job costs at
least what its remaining tasks pay, each run where it is cheapest between what must come before it and what must still
follow, plus the job's completion. Jobs of one workflow and weight share these tables. Everything is a whole number.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import numpy as np

from truenorth.models.formulations.allowance import UNLIMITED, Allowance
from truenorth.models.formulations.equal_jobs import job_before
from truenorth.models.formulations.scale import ScaledObjective
from truenorth.models.formulations.windows import gap_matrix, horizon_us, time_windows
from truenorth.models.instance import NONE, Instance, Ints
from truenorth.models.objective import Objective, charges
from truenorth.solvers.bounds.lagrangian.improve import Priced
from truenorth.solvers.compiled import allocating_kernel, inlined
from truenorth.solvers.exact.start_orders_records import OrderTables

FAR = 1 << 58
"""Stands for the cost of what cannot be, and for a time that is never."""


@inlined
def price_until(prefix: Ints, rate: Ints, slot_us: int, instant: int) -> int:
    """Return the price from time 0 to an instant.

    Notes
    -----
    Invariant: the sum of `rate` over the microseconds of [0, instant), nothing behind the last slot.
    Because: `prefix` has whole slots, the rest is part of one.
    Cost: O(1).
    If wrong: unsound. Every bound of the programme is a sum of such prices.
    """
    slot = instant // slot_us
    price: int = prefix[min(slot, len(rate))]
    return price if slot >= len(rate) else price + rate[slot] * (instant - slot * slot_us)


@allocating_kernel
def price_runs(prefix: Ints, rate: Ints, slot_us: int, run_us: int, out: Ints) -> None:
    """Write the least price of a run that starts within each slot: it has its kinks where an end meets an edge.

    Notes
    -----
    Invariant: no run that begins within the slot pays less.
    Because: between two kinks the price is linear in the begin, so its least lies at a kink or at an end of the slot;
    kinks are where the end of the run meets an edge of a slot, at most one per slot of begins.
    Cost: O(slots).
    If wrong: unsound if too high, slower if too low.
    """
    for slot in range(len(out)):
        begin = slot * slot_us
        best = FAR
        for late_us in (0, slot_us - 1, -(begin + run_us) % slot_us):
            start = begin + late_us
            price = price_until(prefix, rate, slot_us, start + run_us) - price_until(prefix, rate, slot_us, start)
            best = min(best, price)
        out[slot] = best


@allocating_kernel
def least_rests(
    prices: Ints,
    run_us: Ints,
    tail_us: Ints,
    lead_us: Ints,
    loads_us: Ints,
    weight: int,
    column_us: int,
    rest: Ints,
    paid: Ints,
) -> None:
    """Write what tasks that are left pay at least for running, and that with what the job's completion costs.

    Each task starts where it is cheapest after the path that leads to it, and early enough for the path behind it.

    Notes
    -----
    Invariant: a rest that begins within a column pays no less than `paid` for running, and costs no less than `rest`.
    Because: each task pays its least alone, after the path that leads to it and its loads; with the completion, the
    least over all completions of what tasks pay that end early enough for the path behind them.
    Cost: O(columns squared x tasks) at worst, for completions are tried until their cost alone is more than the best.
    If wrong: unsound if too high, slower if too low.
    """
    columns, tasks = len(rest), len(run_us)
    for i in range(tasks):
        later = prices[i].copy()
        for x in range(columns - 2, -1, -1):
            # A task may wait: from some column on it pays the least of all behind it.
            later[x] = min(later[x], later[x + 1])
        for x in range(columns):
            # Rounded down twice: a begin inside a column counts as at its beginning, which only lowers the price.
            paid[x] += later[min(columns - 1, max((x * column_us + lead_us[i]) // column_us, loads_us[i] // column_us))]
    soonest, longest = 0, 0
    for i in range(tasks):
        soonest = max(soonest, loads_us[i] + run_us[i] + tail_us[i])
        longest = max(longest, lead_us[i] + run_us[i] + tail_us[i])
    for x in range(columns):
        soonest_us = max(soonest, x * column_us + longest)
        # Completing beyond the last column costs no less than this.
        best = weight * max(soonest_us, columns * column_us) + paid[x]
        nexts, least = np.empty(tasks, np.int64), np.empty(tasks, np.int64)
        for i in range(tasks):
            # `nexts` only grows with the completion, so that each column is looked at once.
            nexts[i] = max((x * column_us + lead_us[i]) // column_us, loads_us[i] // column_us)
            least[i] = FAR
        for column in range(soonest_us // column_us, columns):
            cost = weight * max(soonest_us, column * column_us)
            # Later completions cost no less, and nobody pays less than `paid`.
            if cost + paid[x] >= best:
                break
            for i in range(tasks):
                # The last column in which the task may still begin and all that follows it end in time, rounded up.
                last = min(columns - 1, ((column + 1) * column_us - 1 - run_us[i] - tail_us[i]) // column_us)
                while nexts[i] <= last:
                    least[i] = min(least[i], prices[i, nexts[i]])
                    nexts[i] += 1
                # Sums of FAR would overflow 64 bits.
                cost = min(FAR, cost + least[i])
            best = min(best, cost)
        rest[x] = best


@allocating_kernel
def start_first(price: Ints, run_us: int, loads_us: int, column_us: int, after: Ints, rest: Ints) -> None:
    """Raise `rest` where one task must start first; `after` is the rest after it, `run_us` how long that waits.

    Notes
    -----
    Invariant: as in `least_rests`, but that the one task that can start next starts before all others.
    Because: what follows begins no sooner than the first ends, where it waits for it; the least over all its begins
    counts.
    Cost: O(columns), from the back to the front.
    If wrong: unsound if too high, slower if too low.
    """
    best = FAR
    for x in range(len(rest) - 1, -1, -1):
        # The last column stands for all later times, also where a load takes longer.
        if x >= min(len(rest) - 1, loads_us // column_us):
            best = min(best, price[x] + after[min(len(rest) - 1, (x * column_us + run_us) // column_us)])
        rest[x] = max(rest[x], best)


MOST_STAGES = 300
"""Workflows that can stand in more ways than this are left alone."""

_MOST_COLUMNS = 20_000
"""Columns of a table, each some slots of the relaxation: what begins inside a column counts as if at its beginning."""
_ENTRY_BYTES = 32
"""What a stage takes per column: what its rest costs and pays, twice while the tables are joined."""
_SEED = 0


class ComputeRate(NamedTuple):
    """What a microsecond of compute costs on GPUs of one kind.

    Parameters
    ----------
    by_slot
        In units of 1 / `scale` of the objective. Shape [slots].
    slot_us
        Width of a slot.
    """

    by_slot: Ints
    slot_us: int
    scale: Fraction

    @classmethod
    def of(cls, priced: Priced) -> ComputeRate:
        """Return the price of compute of the Lagrangian."""
        relaxation = priced.relaxation
        return cls(priced.prices.compute[0].astype(np.int64), relaxation.slot_us, Fraction(relaxation.scale))


class _Rows(NamedTuple):
    """The rows of all stages so far; see `OrderTables`."""

    next_stage: list[list[int]]
    only: list[int]
    wants: list[int]
    rest: list[Ints]
    paid: list[Ints]


class _JobTasks(NamedTuple):
    """The tasks of a job, counted from its first: what comes right before each, and the columns of `OrderTables`.

    Parameters
    ----------
    loads_us
        How long the loads of its own models take: no task starts earlier.
    """

    weight: int
    before: list[frozenset[int]]
    run_us: Ints
    tail_us: Ints
    loads_us: Ints
    needs: list[int]


class _RunPrices:
    """The least price of a run that starts within each column, by run time."""

    def __init__(self, prefix: Ints, rate: Ints, slot_us: int, together: int, columns: int) -> None:
        self.prefix, self.rate, self.slot_us, self.together, self.columns = prefix, rate, slot_us, together, columns
        self._known: dict[int, Ints] = {}

    @property
    def column_us(self) -> int:
        """Width of a column."""
        return self.slot_us * self.together

    def of(self, run_us: int) -> Ints:
        """Return the prices. Shape [columns]."""
        if run_us not in self._known:
            by_slot = np.empty(self.columns * self.together, np.int64)
            price_runs(self.prefix, self.rate, self.slot_us, run_us, by_slot)
            self._known[run_us] = by_slot.reshape(self.columns, self.together).min(axis=1)
        return self._known[run_us]


def tabulate(
    instance: Instance, objective: Objective, bought_at: ComputeRate, allowance: Allowance = UNLIMITED
) -> OrderTables | None:
    """Return the tables; None if some workflow has too many stages, or the sum of all starts may outgrow 62 bits.

    Raises
    ------
    GivenUpError
        If memory or time are short.
    """
    (rate, slot_us, scale), tasks = bought_at, instance.n_tasks
    charged, horizon = charges(objective, instance), horizon_us(instance)
    # Sums of starts break ties between states: they must not overflow.
    if horizon * tasks >= 1 << 62:
        return None
    weight = np.array([int(weight * scale) for weight in charged.job_weights], np.int64)
    windows = time_windows(instance, ScaledObjective.of(objective, instance, horizon), None, horizon)
    # All GPUs are of one class here, so that class 0 stands for all.
    run_us = np.array([instance.run_time(task, 0) for task in range(tasks)], np.int64)
    needs = np.array([sum(1 << model for model in instance.task_needs(task)) for task in range(tasks)], np.int64)
    load_us, tail_us = _load_times(instance), _tails(instance, run_us)
    prefix = np.concatenate(([0], np.cumsum(rate) * slot_us)).astype(np.int64)
    # Behind the last price compute is free: room for the longest run and path that begin there.
    slots = len(rate) + int(run_us.max() + tail_us.max()) // slot_us + 2
    together = 1 + slots // _MOST_COLUMNS
    prices = _RunPrices(prefix, rate, slot_us, together, slots // together + 1)
    rows, largest = _Rows([], [], [], [], []), int(np.diff(instance.job_first_task).max())
    kinds: dict[tuple[int, int], int] = {}
    first_stage = []
    for job, workflow in enumerate(instance.job_workflow.tolist()):
        kind = workflow, int(weight[job])
        if kind not in kinds:
            of_job = _job(instance, job, kind[1], run_us, tail_us, needs, load_us)
            stages = stages_of(of_job.before)
            if stages is None:
                return None
            allowance.go_on()
            # Before they are made, for one workflow may have the tables of hundreds of stages.
            allowance.fit((len(rows.only) + len(stages)) * prices.columns, _ENTRY_BYTES)
            kinds[kind] = _add_rows(rows, of_job, stages, prices, largest)
        first_stage.append(kinds[kind])
    return OrderTables(
        False,
        True,
        instance.task_job,
        windows.earliest_start_us.min(axis=1),
        run_us,
        tail_us,
        *_inputs(instance),
        needs,
        load_us,
        instance.job_first_task,
        job_before(instance, objective),
        weight,
        charged.due_us.astype(np.int64),
        np.array(first_stage, np.int64),
        np.array(rows.next_stage, np.int64),
        np.array(rows.only, np.int64),
        np.array(rows.next_stage).max(axis=1) < 0,
        np.array(rows.wants, np.int64),
        np.array(rows.rest),
        np.array(rows.paid),
        rate,
        prefix,
        slot_us,
        prices.column_us,
        np.random.default_rng(_SEED).integers(1, 1 << 62, tasks).astype(np.uint64),
        instance.n_gpus,
    )


def _job(
    instance: Instance, job: int, weight: int, run_us: Ints, tail_us: Ints, needs: Ints, load_us: Ints
) -> _JobTasks:
    first, tasks = int(instance.job_first_task[job]), list(instance.tasks_of(job))
    before = [frozenset(source - first for source, _ in instance.task_inputs(task)) for task in tasks]
    models = range(len(load_us))
    loads = [sum(int(load_us[m]) for m in models if int(needs[task]) >> m & 1) for task in tasks]
    return _JobTasks(weight, before, run_us[tasks], tail_us[tasks], np.array(loads, np.int64), needs[tasks].tolist())


def stages_of(before: list[frozenset[int]]) -> list[frozenset[int]] | None:
    """Return the sets of tasks that can have started, the largest first; None if there are too many."""
    found = [frozenset[int]()]
    known = set(found)
    for started in found:
        for task, inputs in enumerate(before):
            grown = started | {task}
            if inputs <= started and grown not in known:
                known.add(grown)
                found.append(grown)
        if len(found) > MOST_STAGES:
            return None
    return sorted(found, key=len, reverse=True)


def _add_rows(rows: _Rows, job: _JobTasks, stages: list[frozenset[int]], prices: _RunPrices, largest: int) -> int:
    """Add the rows of a job's stages; return the row in which nothing has started."""
    row_of = {started: len(rows.only) + index for index, started in enumerate(stages)}
    for started in stages:
        left = [task for task in range(len(job.before)) if task not in started]
        ready = [task for task in left if job.before[task] <= started]
        following = [row_of[started | {task}] if task in ready else NONE for task in range(len(job.before))]
        rest, paid = np.zeros((2, prices.columns), np.int64)
        if left:
            by_task = np.array([prices.of(int(job.run_us[task])) for task in left])
            lead_us = _leads(job, left)
            own = job.run_us[left], job.tail_us[left], lead_us, job.loads_us[left]
            least_rests(by_task, *own, job.weight, prices.column_us, rest, paid)
        # Two that can start leave it open who is first; the last one has no rest behind it.
        if len(ready) == 1 and len(left) > 1:
            first = ready[0]
            waits = all(_follows(job.before, first, task) for task in left)
            # If some task need not wait for it, the rest may begin when it does.
            run_us = int(job.run_us[first]) if waits else 0
            price, loads_us = prices.of(int(job.run_us[first])), int(job.loads_us[first])
            start_first(price, run_us, loads_us, prices.column_us, rows.rest[row_of[started | {first}]], rest)
        rows.next_stage.append(following + [NONE] * (largest - len(following)))
        rows.only.append(ready[0] if len(ready) == 1 else NONE)
        rows.wants.append(int(np.bitwise_or.reduce([job.needs[task] for task in left] or [0])))
        rows.rest.append(rest)
        rows.paid.append(paid)
    return row_of[frozenset()]


def _leads(job: _JobTasks, left: list[int]) -> Ints:
    """Return the longest path of tasks that are left to each of them, its own run not counted."""
    lead: dict[int, int] = {}

    def of(task: int) -> int:
        if task not in lead:
            paths = (of(source) + int(job.run_us[source]) for source in job.before[task] if source in left)
            lead[task] = max(paths, default=0)
        return lead[task]

    return np.array([of(task) for task in left], np.int64)


def _follows(before: list[frozenset[int]], first: int, task: int) -> bool:
    """Say whether a task is another one, or must come after it."""
    return task == first or any(_follows(before, first, source) for source in before[task])


def _load_times(instance: Instance) -> Ints:
    """Return the load time of every model that is used and not on some GPU from the start, 0 of the others."""
    used = {model for row in instance.needs for model in row} - {resident.model for resident in instance.initial}
    return np.array([instance.load_time(m, 0) if m in used else 0 for m in range(len(instance.models))], np.int64)


def _tails(instance: Instance, run_us: Ints) -> Ints:
    """Return the longest path of run times after each task."""
    tails = np.zeros_like(run_us)
    for job, workflow in enumerate(instance.job_workflow.tolist()):
        for index in reversed(instance.workflows[workflow].topological):
            task = int(instance.job_first_task[job]) + index
            tails[task] = max((int(run_us[a] + tails[a]) for a, _ in instance.task_outputs(task)), default=0)
    return tails


def _inputs(instance: Instance) -> tuple[Ints, Ints, Ints, Ints]:
    """Return the predecessors of all tasks, the least time that each output is under way, and the longest by task."""
    first, tasks, under_way_us = [0], [], []
    apart_us = np.zeros(instance.n_tasks, np.int64)
    between = ~np.eye(instance.n_gpus, dtype=np.bool_)
    for task in range(instance.n_tasks):
        for source, edge in instance.task_inputs(task):
            least = int(gap_matrix(instance, edge)[between].min()) if instance.n_gpus > 1 else 0
            tasks.append(source)
            under_way_us.append(least)
            apart_us[source] = max(apart_us[source], least)
        first.append(len(tasks))
    return np.array(first, np.int64), np.array(tasks, np.int64), np.array(under_way_us, np.int64), apart_us
