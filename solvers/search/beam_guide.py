"""What the rests of jobs cost at the prices of the Lagrangian: how a beam search tells promising beginnings of plans.

A job's *stage* is the set of its tasks that have started. At prices of compute per slot its rest costs what its
completion costs and its remaining runs pay, each where and when it is cheapest and in time: the tasks that can start
next share a time from which on they can, and one until which they must end so that what follows can begin. Tasks that
run beside them and end later move the latter, in steps. Where outputs are awaited by a part of what follows alone this
is no bound, but a guide needs to be none. Jobs of one workflow, weight and due time share these tables.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from truenorth.models.instance import Instance, Ints
from truenorth.models.objective import Objective, charges
from truenorth.models.tables import NEVER
from truenorth.solvers.compiled import Floats, allocating_kernel, inlined, kernel
from truenorth.solvers.exact.start_orders_tables import stages_of

MOST_TASKS = 60
"""Workflows of more tasks than this are left alone: sets of tasks are masks."""

_MOST_ENTRIES, _MOST_ENDS = 40_000_000, 1e9
"""Costs in all tables together; and ends that are tried for them, up to each due time from every column before it."""
_COLUMNS, _LEAST_COLUMNS, _STEPS = 32, 4, 16
"""The mean critical path has so many columns, fewer over a long horizon; how much later others end is told in steps of
two."""


class ComputePrices(NamedTuple):
    """ComputePrices of compute.

    Attributes
    ----------
    rate, prefix
        Per class of GPUs: per microsecond by slot, in units of the objective, and from 0 to the beginning of each.
        Shapes [classes, slots], [classes, slots + 1].
    slot_us, column_us
        Width of a slot, and of a column of the tables.
    """

    rate: Floats
    prefix: Floats
    slot_us: int
    column_us: int


class Guide(NamedTuple):
    """The tables of an instance.

    Attributes
    ----------
    by_release, release_us, due_us, first_task
        The jobs in order of release; per job: its release, until when it costs nothing, and its first task.
    kind, first_stage
        Per job: jobs of a kind are alike but for release and due time, which differ by as much; the stage in which
        nothing has started.
    later
        What jobs that are not released yet cost, by the number of those that are. Shape [jobs + 1].
    following
        Per stage: that after the start of a task, -1 if it cannot start. Shape [stages, tasks of the largest workflow].
    awaited, beside
        Per stage: masks of the started tasks whose outputs the next tasks need, and of those that they do not.
    longest_us, weight
        Per stage: the longest of the runs that can start next, each on its fastest GPU, 0 if none is left; the cost of
        a microsecond beyond the due time.
    line, lines
        Per stage: the first of its lines of costs, and their number.
    cost
        By the time from which on the next tasks can start. Shape [lines, columns].
    prices, step_us
        Of compute; by how much later tasks beside the next ones end from line to line.
    """

    by_release: Ints
    release_us: Ints
    due_us: Ints
    first_task: Ints
    kind: Ints
    first_stage: Ints
    later: Floats
    following: Ints
    awaited: Ints
    beside: Ints
    longest_us: Ints
    weight: Floats
    line: Ints
    lines: Ints
    cost: Floats
    prices: ComputePrices
    step_us: int


class _Kind(NamedTuple):
    """What jobs have in common that share their tables: the due time is 0 if they cost as much whenever they end."""

    workflow: int
    weight: float
    due_us: int


class _Stage(NamedTuple):
    """A stage of the jobs of a kind; see `Guide`."""

    following: list[int]
    awaited: int
    beside: int
    longest_us: int
    weight: float
    cost: Floats


def tabulate(instance: Instance, objective: Objective, rate: Floats, slot_us: int) -> Guide | None:
    """Return the tables at some prices of compute; None if they would be too large.

    Parameters
    ----------
    rate
        ComputePrices per microsecond, in units of the objective. Shape [classes, slots].
    """
    critical_us = int(instance.job_critical_us.mean())
    # Behind the last slot compute costs nothing: a few critical paths there are enough for every rest.
    horizon_us = rate.shape[1] * slot_us + 8 * int(instance.job_critical_us.max())
    kind_of = _kinds(instance, objective, horizon_us)
    # Reversed, so that the first job of each kind stands for it: the tables begin with its release.
    first_job = {kind: job for job, kind in reversed(list(enumerate(kind_of)))}
    found: dict[int, list[frozenset[int]]] = {}
    for kind, job in first_job.items():
        if kind.workflow not in found:
            before = _inputs(instance, job)
            sets = stages_of(before) if len(before) <= MOST_TASKS else None
            if sets is None:
                return None
            found[kind.workflow] = sets
    of_kind = {kind: _STEPS * len(found[kind.workflow]) for kind in first_job}
    slack_us = {kind: max(0, kind.due_us - int(instance.job_release_us[job])) for kind, job in first_job.items()}
    # Up to a due time completions cost nothing, so that all are tried: half a square per line.
    ends = sum(lines * slack_us[kind] ** 2 / 2 for kind, lines in of_kind.items())
    # Columns get so wide that both limits are kept.
    least_us = horizon_us * sum(of_kind.values()) // _MOST_ENTRIES, int((ends / _MOST_ENDS) ** 0.5)
    column_us = max(1, critical_us // _COLUMNS, *least_us)
    # So coarse a table cannot tell a good beginning from a bad one.
    if column_us * _LEAST_COLUMNS > max(critical_us, _LEAST_COLUMNS):
        return None
    prices = ComputePrices(rate, np.pad(np.cumsum(rate, axis=1) * slot_us, ((0, 0), (1, 0))), slot_us, column_us)
    # `found` has the largest sets first, so that what follows a stage is always there before it.
    stages, first_stage = list[_Stage](), {}
    for kind, job in first_job.items():
        run_us = instance.run_us[instance.task_template[instance.tasks_of(job)]]
        release_us = int(instance.job_release_us[job])
        columns = release_us // column_us, horizon_us // column_us + 2
        _add_stages(stages, found[kind.workflow], _inputs(instance, job), run_us, kind, prices, columns)
        # The empty set comes last.
        first_stage[kind] = len(stages) - 1
    return _join(instance, stages, kind_of, np.array([first_stage[kind] for kind in kind_of], np.int64), prices)


def _kinds(instance: Instance, objective: Objective, horizon_us: int) -> list[_Kind]:
    """Return the kind of each job; one that is due after the horizon costs nothing."""
    charged = charges(objective, instance)
    # Due before it can end: late whenever it ends, so that the due time only shifts the cost.
    due_us = np.where(charged.due_us <= instance.job_release_us + instance.job_critical_us, 0, charged.due_us)
    listed = zip(instance.job_workflow.tolist(), charged.job_weights, due_us.tolist(), strict=True)
    return [
        _Kind(flow, float(weight), due) if due < horizon_us and weight else _Kind(flow, 0.0, 0)
        for flow, weight, due in listed
    ]


def _inputs(instance: Instance, job: int) -> list[frozenset[int]]:
    """Return the predecessors of each task of a job, counted from its first."""
    first = int(instance.job_first_task[job])
    return [frozenset(source - first for source, _ in instance.task_inputs(task)) for task in instance.tasks_of(job)]


def _add_stages(
    stages: list[_Stage],
    found: list[frozenset[int]],
    before: list[frozenset[int]],
    run_us: Ints,
    kind: _Kind,
    prices: ComputePrices,
    columns: tuple[int, int],
) -> None:
    """Add the stages of a kind of jobs, the largest sets of tasks first.

    Parameters
    ----------
    run_us
        Of its tasks, NEVER where one cannot run. Shape [tasks, classes].
    columns
        The first that is needed, and their number.
    """
    beyond_us = np.maximum(prices.column_us * np.arange(columns[1]) - kind.due_us, 0)
    # What cannot run on a class has a run time below every true one.
    fastest_us = np.where(run_us == NEVER, run_us.max(), run_us).min(axis=1)
    number = {started: len(stages) + index for index, started in enumerate(found)}
    for started in found:
        left = [task for task in range(len(before)) if task not in started]
        ready = [task for task in left if before[task] <= started]
        following = [number[started | {task}] if task in ready else -1 for task in range(len(before))]
        awaited = frozenset[int]().union(*(before[task] for task in ready))
        # Those whose outputs nobody waits for any more matter neither here nor there.
        beside = {task for task in started - awaited if any(task in before[other] for other in left)}
        cost = np.zeros((_STEPS if beside else 1, columns[1]))
        if left and kind.weight:  # what costs nothing can wait until compute does not, either
            # All that can start next is taken to have started: the line in which nothing beside it is late.
            next_cost = stages[number[started | frozenset(ready)]].cost[0]
            price_stage(prices, next_cost, run_us[ready], kind.weight, kind.due_us, columns[0], cost)
        else:
            cost[0] = kind.weight * beyond_us
        longest_us = max((int(fastest_us[task]) for task in ready), default=0)
        stages.append(_Stage(following, _mask(awaited), _mask(beside), longest_us, kind.weight, cost))


def _mask(tasks: set[int] | frozenset[int]) -> int:
    return sum(1 << task for task in tasks)


def _join(
    instance: Instance, stages: list[_Stage], kinds: list[_Kind], first_stage: Ints, prices: ComputePrices
) -> Guide:
    """Return the tables of all stages, and what jobs cost from their releases on."""
    by_release = np.argsort(instance.job_release_us, kind="stable")
    cost, lines = np.concatenate([stage.cost for stage in stages]), np.array([len(stage.cost) for stage in stages])
    line, most = np.cumsum(lines) - lines, max(len(stage.following) for stage in stages)
    weight = np.array([stage.weight for stage in stages])
    due_us, number = np.array([kind.due_us for kind in kinds], np.int64), dict[_Kind, int]()
    slack_us = np.where(due_us > 0, due_us - instance.job_release_us, 0).tolist()
    # Kinds differ by due time; jobs are alike when they have as much time left at their release.
    alike = [kind._replace(due_us=slack) for kind, slack in zip(kinds, slack_us, strict=True)]
    released = [
        cost_from(cost, int(line[stage]), float(weight[stage]), prices.column_us, int(instance.job_release_us[job]))
        for job, stage in enumerate(first_stage.tolist())
    ]
    return Guide(
        by_release=by_release,
        release_us=instance.job_release_us,
        due_us=due_us,
        first_task=instance.job_first_task,
        kind=np.array([number.setdefault(kind, len(number)) for kind in alike], np.int64),
        first_stage=first_stage,
        # Summed from the back: what is not released yet, by the number of those that are.
        later=np.concatenate((np.cumsum(np.array(released)[by_release][::-1])[::-1], [0.0])),
        following=np.array([stage.following + [-1] * (most - len(stage.following)) for stage in stages], np.int64),
        awaited=np.array([stage.awaited for stage in stages], np.int64),
        beside=np.array([stage.beside for stage in stages], np.int64),
        longest_us=np.array([stage.longest_us for stage in stages], np.int64),
        weight=weight,
        line=line,
        lines=lines,
        cost=cost,
        prices=prices,
        step_us=2 * prices.column_us,
    )


@inlined
def price_until(prices: ComputePrices, gpu_class: int, instant: int) -> float:
    """Return the price of compute on a GPU of some class from time 0 to an instant.

    Notes
    -----
    Invariant: the sum of `rate` over [0, instant), nothing behind the last slot.
    Because: `prefix` has whole slots, the rest is part of one.
    Cost: O(1).
    If wrong: weaker. The guide would prefer other states.
    """
    slot, slots = instant // prices.slot_us, prices.rate.shape[1]
    if slot >= slots:
        return float(prices.prefix[gpu_class, slots])
    return float(prices.prefix[gpu_class, slot] + prices.rate[gpu_class, slot] * (instant - slot * prices.slot_us))


@kernel
def cost_from(cost: Floats, line: int, weight: float, column_us: int, begin: int) -> float:
    """Return what tasks that can start from some time on cost by a line: between its columns, or behind them."""
    column, last = begin // column_us, cost.shape[1] - 1
    if column >= last:
        return float(cost[line, last] + weight * (begin - last * column_us))
    part = (begin - column * column_us) / column_us
    return float(cost[line, column] * (1 - part) + cost[line, column + 1] * part)


@allocating_kernel
def price_stage(
    prices: ComputePrices, next_cost: Floats, run_us: Ints, weight: float, due_us: int, first: int, out: Floats
) -> None:
    """Write the least that runs pay, and what follows them costs, by the column from which on they can start.

    Parameters
    ----------
    run_us
        Of the tasks that can start next, NEVER where one cannot run. Shape [tasks, classes].
    next_cost
        What follows costs, by the column from which on it can start.
    weight, due_us
        The cost of a microsecond beyond the due time, and that.
    first
        Columns before this one are left alone.
    out
        One line per step by which what follows is held up by others. Shape [lines, columns].

    Notes
    -----
    Invariant: a line is the least, over when what follows can begin, of what that costs and the next tasks pay.
    Because: the later what follows begins, the more begins each next task has to choose from: its least is carried
    along.
    Cost: O(columns squared x tasks x classes) at worst; completions are tried until they alone cost more than the best.
    If wrong: weaker, as with every guide.
    """
    columns, tasks, classes, column_us = len(next_cost), len(run_us), run_us.shape[1], prices.column_us
    paid, fastest = np.empty((tasks, classes, columns)), np.empty(tasks, np.int64)
    for i in range(tasks):
        fastest[i] = run_us[i].max()
        for k in range(classes):
            if run_us[i, k] != NEVER:
                fastest[i] = min(fastest[i], run_us[i, k])
                for c in range(first, columns):
                    begin = c * column_us
                    paid[i, k, c] = price_until(prices, k, begin + run_us[i, k]) - price_until(prices, k, begin)
    following = next_cost.reshape((1, columns))
    nexts, least, longest = np.empty((tasks, classes), np.int64), np.empty(tasks), fastest.max()
    for step in range(out.shape[0]):
        for c in range(first, columns):
            end = c * column_us + longest + 2 * step * column_us
            best = np.inf
            for i in range(tasks):
                nexts[i], least[i] = c, np.inf
            # ComputePrices are at least 0: once the completion alone costs more, waiting longer does not pay.
            while weight * max(0, end - due_us) < best:
                total = cost_from(following, 0, weight, column_us, end)
                for i in range(tasks):
                    for k in range(classes):
                        while (
                            run_us[i, k] != NEVER
                            and nexts[i, k] < columns
                            and nexts[i, k] * column_us + run_us[i, k] <= end
                        ):
                            least[i] = min(least[i], paid[i, k, nexts[i, k]])
                            nexts[i, k] += 1
                    total += least[i]
                best = min(best, total)
                end += column_us
            out[step, c] = best
