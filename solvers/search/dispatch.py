"""First plans of any size: dispatch rules, compiled, in time that grows with tasks x GPUs.

A clock runs over the window. Whenever a GPU is idle, the waiting task of highest priority goes to the GPU on which
it would finish first, a load counting more than its time. The order and the placement that come out are then
decoded with the knowledge of the whole window. Several rules are tried; which one wins depends on load and objective.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

import numpy as np

from models.instance import NEVER, Instance, Ints
from models.objective import Objective
from models.timeline import Timeline
from solvers.compiled import Floats, allocating_kernel, inlined
from solvers.search.decoder import Decisions, Decoder
from solvers.search.decoder_kernel import INFEASIBLE, append, arrival
from solvers.search.decoder_state import ABSENT, FAR, State, Work, copy_of
from solvers.search.decoder_tables import Tables
from solvers.search.static_models import Mask, static_models


class Rule(NamedTuple):
    """A dispatch rule: the task of least by_work x remaining work of its job + constant + by_tail x path goes first.

    Attributes
    ----------
    by_work, constant
        Per job; the work is in microseconds.
    by_tail
        Weight of the longest path from the task to the end of its job.
    load_price
        How many times its own duration a load counts when GPUs are compared; twice that if models must leave for it.
    """

    by_work: Floats
    constant: Floats
    by_tail: float
    load_price: float


LOAD_PRICES = (0.3, 1.0, 3.0)

EFFORT = 200_000_000
"""Comparisons of a task with a GPU after which no further rule is tried."""


def rules(tables: Tables) -> Iterator[Rule]:
    """Yield the rules that suit an objective.

    Sums: shortest remaining work over weight, like SRPT (for slowdowns: remaining work x P_j). Due times:
    earliest first. Makespan: longest path first. Maximum slowdown: the times at which some slowdown is reached.
    """
    none = np.zeros(len(tables.due_us))
    weight = np.where(tables.linear > 0, tables.linear, tables.linear[tables.linear > 0].min(initial=1.0) * 1e-6)
    by_due = tables.due_us.astype(np.float64)
    if tables.peak.any():
        orders = [(none, by_due, -1.0), *((none, by_due + reached / tables.peak, 0.0) for reached in (2.0, 4.0, 8.0))]
    else:
        orders = [(1 / weight, none, 0.0), (none, by_due, 0.0)]
    for order in orders:
        yield from (Rule(*order, price) for price in LOAD_PRICES)


def greedy_decisions(decoder: Decoder, enough: Callable[[], bool] = lambda: False) -> list[Decisions]:
    """Return the decisions of every rule that finds a plan, best first.

    Parameters
    ----------
    enough
        Asked after each rule that finds one whether to try no more.
    """
    permitted = static_models(decoder.instance)
    found: list[tuple[float, int, Decisions]] = []
    if permitted is not None:
        pairs = decoder.instance.n_tasks * decoder.instance.n_gpus
        for rule in islice(rules(decoder.tables), max(1, EFFORT // pairs)):
            decisions = _run(decoder, rule, permitted)
            cost = INFEASIBLE if decisions is None else decoder.cost(decisions)
            if decisions is not None and cost < INFEASIBLE:
                found.append((cost, len(found), decisions))
                if enough():
                    break
    return [decisions for _, _, decisions in sorted(found, key=lambda entry: entry[:2])]


def greedy(instance: Instance, objective: Objective) -> Timeline | None:
    """Return the plan of the best dispatch rule, or None if restrictions leave every rule without one."""
    decoder = Decoder(instance, objective)
    best = greedy_decisions(decoder)
    return decoder.timeline(best[0]) if best else None


def _run(decoder: Decoder, rule: Rule, permitted: Mask) -> Decisions | None:
    """Return the decisions of one rule, or None where a task finds no GPU any more."""
    tasks = decoder.instance.n_tasks
    empty = Decisions(np.full(tasks, ABSENT, np.int64), np.full(tasks, ABSENT, np.int64))
    work, state = decoder.work(empty), copy_of(decoder.origin)
    placed = dispatch(decoder.tables, state, work, decoder.residencies, rule, permitted, 0)
    return Decisions(work.order, work.gpu) if placed == tasks else None


@allocating_kernel
def dispatch(
    tables: Tables, state: State, work: Work, residencies: Ints, rule: Rule, permitted: Mask, stands: int
) -> int:
    """Fill `work.order` and `work.gpu`; return how many tasks found a GPU.

    Parameters
    ----------
    state
        The moment from which on tasks are dispatched; advanced in place.
    stands
        The first so many tasks of the order stand: `work` says where and when they run.
    """
    tasks = work.order.shape[0]
    missing = np.zeros(tasks, np.int64)
    remaining = np.zeros(tables.due_us.shape[0], np.int64)
    waiting = [(0, 0)]
    ready = [(0.0, 0)]
    waiting.pop()  # an empty list has no type to compile
    ready.pop()
    # Marked so that their followers do not wait for them.
    for position in range(stands):
        missing[work.order[position]] = ABSENT
    for task in range(tasks):
        if missing[task] == ABSENT:
            continue
        template, job = tables.task_template[task], tables.task_job[task]
        for entry in range(tables.input_first[template], tables.input_first[template + 1]):
            missing[task] += int(missing[task + tables.input_offset[entry]] != ABSENT)
        remaining[job] += tables.fastest_us[template]
        if missing[task] == 0:
            released = max(int(tables.release_us[job]), int(inputs_end(tables, work, task)))
            heapq.heappush(waiting, (released, task))
    placed, now = stands, 0
    while placed < tasks:
        # Nobody could start: time jumps to the next release or arrival.
        if not ready:
            now = max(now, waiting[0][0])
        now = max(now, int(state.compute_free.min()))
        while waiting and waiting[0][0] <= now:
            task = heapq.heappop(waiting)[1]
            job, template = tables.task_job[task], tables.task_template[task]
            path = tables.tail_us[template] + tables.fastest_us[template]
            # Ranked once, when it becomes ready: re-ranking at every start would cost n log n each.
            value = rule.by_work[job] * remaining[job] + rule.constant[job] + rule.by_tail * path
            heapq.heappush(ready, (value, task))
        task = heapq.heappop(ready)[1]
        gpu = _best_gpu(tables, state, work, rule, permitted, task)
        if gpu == ABSENT or not _append(tables, state, work, residencies, task, gpu, placed):
            break
        work.order[placed] = task
        placed += 1
        template, job = tables.task_template[task], tables.task_job[task]
        remaining[job] -= tables.fastest_us[template]
        for entry in range(tables.output_first[template], tables.output_first[template + 1]):
            follower = task + tables.output_offset[entry]
            missing[follower] -= 1
            if missing[follower] == 0:
                heapq.heappush(waiting, (int(inputs_end(tables, work, follower)), int(follower)))
    return placed


@inlined
def inputs_end(tables: Tables, work: Work, task: int) -> int:
    """Return when the last predecessor of a task ends."""
    template, latest = tables.task_template[task], 0
    for entry in range(tables.input_first[template], tables.input_first[template + 1]):
        latest = max(latest, work.end[task + tables.input_offset[entry]])
    return latest


@inlined
def _best_gpu(tables: Tables, state: State, work: Work, rule: Rule, permitted: Mask, task: int) -> int:
    """Return the GPU with the earliest finish plus the price of its loads, ABSENT if none is permitted."""
    template = tables.task_template[task]
    best, best_value = ABSENT, np.inf
    earliest = max(inputs_end(tables, work, task), tables.release_us[tables.task_job[task]])
    for gpu in range(state.room.shape[0]):
        runtime = tables.run_us[template, tables.gpu_class[gpu]]
        # Most GPUs are out of the question before transfers and loads are counted.
        if runtime == NEVER or max(earliest, state.compute_free[gpu]) + runtime >= best_value:
            continue
        begin = max(arrival(tables, work, task, gpu), state.compute_free[gpu])
        copied, price, room = state.copy_free[gpu], 0.0, state.room[gpu]
        possible = True
        for need in range(tables.need_first[template], tables.need_first[template + 1]):
            model = tables.need_model[need]
            possible = possible and permitted[gpu, model]
            if state.ready[gpu, model] != ABSENT:
                begin = max(begin, state.ready[gpu, model])
            elif possible:
                duration = tables.load_us[model, tables.gpu_class[gpu]]
                copied += duration
                begin = max(begin, copied)
                room -= tables.weight_bytes[model]
                # A load that needs room delays whatever the leaving model would have served: it counts twice.
                price += rule.load_price * duration * (1.0 if room >= 0 else 2.0)
        if possible and begin + runtime + price < best_value:
            best, best_value = gpu, begin + runtime + price
    return best


@inlined
def _append(tables: Tables, state: State, work: Work, residencies: Ints, task: int, gpu: int, placed: int) -> bool:
    """Place a task; the rule does not know the future, so models leave by least recent use."""
    use = tables.use_first[task]
    template = tables.task_template[task]
    for need in range(tables.need_first[template], tables.need_first[template + 1]):
        # The needs of this very task must not be evicted for one another.
        state.upcoming[gpu, tables.need_model[need]] = ABSENT
        # Ever smaller, so that furthest next use means least recent use.
        work.next_use[use] = FAR - placed - 1
        use += 1
    return append(tables, state, work, residencies, task, gpu, ABSENT)
