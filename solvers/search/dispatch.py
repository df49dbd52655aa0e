"""First plans of any size: dispatch rules, compiled, in time that grows with tasks x GPUs.

A clock runs over the window. Whenever a GPU is idle, the waiting task of highest priority goes to the GPU on which
it would finish first, a load counting more than its time. With batches it takes along those of its class that wait as
well, in their order and up to a limit. The order and the placement that come out are then decoded with the knowledge of
the whole window. Several rules are tried; which one wins depends on load and objective.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from itertools import islice, product
from typing import NamedTuple

import numpy as np

from truenorth.models.instance import NEVER, NONE, Instance, Ints
from truenorth.models.objective import Objective
from truenorth.models.timeline import Timeline
from truenorth.solvers.compiled import Floats, allocating_kernel, inlined
from truenorth.solvers.search.batches import first_fit, run_length
from truenorth.solvers.search.decoder import Decisions, Decoder
from truenorth.solvers.search.decoder_kernel import INFEASIBLE, append, arrival
from truenorth.solvers.search.decoder_state import FAR, DecodedTasks, Decoding, Serving, copy_of
from truenorth.solvers.search.decoder_tables import InstanceTables, Service
from truenorth.solvers.search.static_models import Mask, static_models


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
    permitted
        Which models may be on which GPUs. Shape [gpus, models].
    """

    by_work: Floats
    constant: Floats
    by_tail: float
    load_price: float
    permitted: Mask


LOAD_PRICES = (0.3, 1.0, 3.0)
"""What a load counts for, rule by rule: which is best depends on how scarce memory is."""

LARGEST_BATCHES = (np.iinfo(np.int64).max, 1, 4, 2)
"""Most members that a rule puts into a batch, one after the other; the classes say what is possible."""

EFFORT = 200_000_000
"""Comparisons of a task with a GPU after which no further rule is tried."""


def rules(tables: InstanceTables, permitted: Mask) -> Iterator[Rule]:
    """Yield the rules that suit an objective.

    Sums: shortest remaining work over weight, like SRPT (for slowdowns: remaining work x P_j). Due times:
    earliest first. Makespan: longest path first. Maximum slowdown: the times at which some slowdown is reached.
    """
    none = np.zeros(len(tables.due_us))
    # Jobs that cost nothing go last, but in a finite order.
    weight = np.where(tables.linear > 0, tables.linear, tables.linear[tables.linear > 0].min(initial=1.0) * 1e-6)
    by_due = tables.due_us.astype(np.float64)
    if tables.peak.any():
        # A maximum: the longest path first, or as if all jobs reached the same slowdown.
        orders = [(none, by_due, -1.0), *((none, by_due + reached / tables.peak, 0.0) for reached in (2.0, 4.0, 8.0))]
    else:
        orders = [(1 / weight, none, 0.0), (none, by_due, 0.0)]
    for order in orders:
        yield from (Rule(*order, price, permitted) for price in LOAD_PRICES)


def greedy_decisions(decoder: Decoder, enough: Callable[[], bool] = lambda: False) -> list[Decisions]:
    """Return the decisions of every rule, and every size of batches, that find a plan, best first.

    Parameters
    ----------
    enough
        Asked after each rule that finds one whether to try no more.
    """
    permitted = static_models(decoder.instance)
    if permitted is None:
        return []
    found: list[tuple[float, int, Decisions]] = []
    tries = product(_sizes(decoder.service), rules(decoder.tables, permitted))
    pairs = decoder.instance.n_tasks * decoder.instance.n_gpus
    # At least one rule, however large the window: without any there is no plan.
    for most, rule in islice(tries, max(1, EFFORT // pairs)):
        decisions = _run(decoder, rule, most)
        cost = INFEASIBLE if decisions is None else decoder.cost(decisions)
        if decisions is not None and cost < INFEASIBLE:
            # The number breaks ties, for decisions have no order.
            found.append((cost, len(found), decisions))
            if enough():
                break
    return [decisions for _, _, decisions in sorted(found, key=lambda entry: entry[:2])]


def greedy(instance: Instance, objective: Objective) -> Timeline | None:
    """Return the plan of the best dispatch rule, or None if restrictions leave every rule without one."""
    decoder = Decoder(instance, objective)
    best = greedy_decisions(decoder)
    return decoder.timeline(best[0]) if best else None


def _sizes(service: Service | None) -> list[int]:
    """Return the sizes of batches that are worth a try."""
    if service is None:
        return [1]
    return [size for size in LARGEST_BATCHES if size == LARGEST_BATCHES[0] or size < service.batch_us.shape[2]]


def _run(decoder: Decoder, rule: Rule, most: int) -> Decisions | None:
    """Return the decisions of one rule, or None where a task finds no GPU any more."""
    tasks = decoder.instance.n_tasks
    empty = Decisions(np.full(tasks, NONE, np.int64), np.full(tasks, NONE, np.int64))
    on = Decoding(decoder.tables, copy_of(decoder.origin), decoder.work(empty), decoder.residencies)
    serving = decoder.serving(empty)
    if dispatch(on, serving, rule, most, 0) < tasks:
        return None
    return Decisions(on.work.order, on.work.gpu, None if serving is None else serving.runs.joins)


@allocating_kernel
def dispatch(on: Decoding, serving: Serving | None, rule: Rule, most: int, stands: int) -> int:
    """Fill `work.order` and `work.gpu`, and who joins a batch; return how many tasks found a GPU.

    Parameters
    ----------
    on
        Its state is the moment from which on tasks are dispatched; advanced in place.
    most
        Largest batch that is made.
    stands
        The first so many tasks of the order stand: `on` says where and when they run.

    Notes
    -----
    Invariant: `now` never falls; a task is `ready` once its inputs are made by `now`, and `opens` says of each GPU
    when it takes something anew, FAR if never again.
    Because: tasks wait in a heap by when their last input is made; one that is placed lets its successors wait.
    Cost: O(tasks x (GPUs x models + log tasks)), with batches times those that wait.
    If wrong: weaker. What comes out is an order and a placement, which are decoded anew.
    """
    tables, state, work = on.tables, on.state, on.work
    tasks = work.order.shape[0]
    missing = np.zeros(tasks, np.int64)
    remaining = np.zeros(tables.due_us.shape[0], np.int64)
    waiting = [(0, 0)]
    ready = [(0.0, 0)]
    waiting.pop()  # an empty list has no type to compile
    ready.pop()
    _begin_waiting(tables, work, missing, remaining, waiting, stands)
    opens = _begin_open(on, serving)
    placed, now = stands, 0
    while placed < tasks:
        # Nobody could start: time jumps to the next release or arrival.
        if not ready:
            now = max(now, waiting[0][0])
        # Nothing starts before some GPU takes something.
        now = max(now, int(opens.min()))
        # All GPUs have gone, or take nothing more.
        if now == FAR:
            break
        _get_ready(tables, rule, remaining, waiting, ready, now)
        value, leader = heapq.heappop(ready)
        if serving is not None and serving.runs.placed[leader] == 1:
            continue  # another one took it along
        gpu, size = _choose_gpu(on, serving, rule, opens, leader, _take_along(serving, ready, leader, most))
        if gpu == NONE:
            break
        _forget_future(on, serving, leader, gpu, placed, size)
        rows = state.records[0]
        if not append(on, serving, leader, gpu, NONE, size):
            if serving is None:
                break
            # Loads of its models wait for others to end: this GPU takes nothing more, and its rows are free again.
            opens[gpu], state.records[0] = FAR, rows
            heapq.heappush(ready, (value, leader))
            continue
        if serving is not None:
            opens[gpu] = first_fit(on, serving, gpu, 0, serving.service.smallest_share, FAR)
            _close(serving.service, opens, now)
        for at in range(size):
            task = leader if serving is None else serving.runs.members[at]
            work.order[placed] = task
            if serving is not None:
                serving.runs.joins[task] = int(at > 0)
            placed += 1
            _let_follow(tables, work, missing, remaining, waiting, task)
    return placed


@allocating_kernel
def _begin_open(on: Decoding, serving: Serving | None) -> Ints:
    """Return when each GPU takes something anew: one at a time, when it is free, be it now or in the course of time."""
    if serving is None:
        return on.state.compute_free
    opens = np.zeros(on.state.room.shape[0], np.int64)
    for gpu in range(len(opens)):
        opens[gpu] = first_fit(on, serving, gpu, 0, serving.service.smallest_share, FAR)
    return opens


@inlined
def _close(service: Service, opens: Ints, now: int) -> None:
    """Take note of the GPUs that have gone."""
    for gpu in range(opens.shape[0]):
        if max(opens[gpu], now) >= service.goes_us[gpu]:
            opens[gpu] = FAR


@allocating_kernel
def _begin_waiting(
    tables: InstanceTables,
    work: DecodedTasks,
    missing: Ints,
    remaining: Ints,
    waiting: list[tuple[int, int]],
    stands: int,
) -> None:
    """Count what each task waits for; those that wait for nothing begin to wait for their release."""
    # Marked so that their followers do not wait for them.
    for position in range(stands):
        missing[work.order[position]] = NONE
    for task in range(work.order.shape[0]):
        if missing[task] == NONE:
            continue
        template, job = tables.task_template[task], tables.task_job[task]
        for entry in range(tables.input_first[template], tables.input_first[template + 1]):
            missing[task] += int(missing[task + tables.input_offset[entry]] != NONE)
        # At their fastest: where they will run is not known yet.
        remaining[job] += tables.fastest_us[template]
        if missing[task] == 0:
            released = max(int(tables.release_us[job]), int(inputs_end(tables, work, task)))
            heapq.heappush(waiting, (released, task))


@allocating_kernel
def _get_ready(
    tables: InstanceTables,
    rule: Rule,
    remaining: Ints,
    waiting: list[tuple[int, int]],
    ready: list[tuple[float, int]],
    now: int,
) -> None:
    """Move the tasks whose inputs are made by now to those that are ready, with their priority."""
    while waiting and waiting[0][0] <= now:
        task = heapq.heappop(waiting)[1]
        job, template = tables.task_job[task], tables.task_template[task]
        path = tables.tail_us[template] + tables.fastest_us[template]
        # Ranked once, when it becomes ready: re-ranking at every start would cost n log n each.
        value = rule.by_work[job] * remaining[job] + rule.constant[job] + rule.by_tail * path
        heapq.heappush(ready, (value, task))


@allocating_kernel
def _let_follow(
    tables: InstanceTables,
    work: DecodedTasks,
    missing: Ints,
    remaining: Ints,
    waiting: list[tuple[int, int]],
    task: int,
) -> None:
    """Take a task that is placed off its job's work; its last successors begin to wait."""
    template = tables.task_template[task]
    remaining[tables.task_job[task]] -= tables.fastest_us[template]
    for entry in range(tables.output_first[template], tables.output_first[template + 1]):
        follower = task + tables.output_offset[entry]
        missing[follower] -= 1
        if missing[follower] == 0:
            heapq.heappush(waiting, (int(inputs_end(tables, work, follower)), int(follower)))


@allocating_kernel
def _take_along(serving: Serving | None, ready: list[tuple[float, int]], leader: int, most: int) -> int:
    """List the waiting tasks of least value of a task's class behind it; return how many there are."""
    if serving is None:
        return 1
    service, runs = serving.service, serving.runs
    runs.members[0] = leader
    batch = service.task_batch[leader]
    if batch == NONE:
        return 1
    # The largest on any class; the GPU that is chosen may allow fewer.
    most = min(most, service.largest[batch].max())
    size = 1
    values = np.empty(most)
    for value, task in ready:
        if runs.placed[task] == 1 or service.task_batch[task] != batch:
            continue
        # Insertion into the few best so far, sorted by value; the last one falls out where all places are taken.
        at = size if size < most else most
        while at > 1 and values[at - 1] > value:
            if at < most:
                values[at], runs.members[at] = values[at - 1], runs.members[at - 1]
            at -= 1
        if at < most:
            values[at], runs.members[at] = value, task
            size = min(size + 1, most)
    return size


@inlined
def inputs_end(tables: InstanceTables, work: DecodedTasks, task: int) -> int:
    """Return when the last predecessor of a task has ended, and the delay behind it."""
    template, latest = tables.task_template[task], 0
    for entry in range(tables.input_first[template], tables.input_first[template + 1]):
        delay = tables.transfer_us[tables.input_edge[entry], 0, 0, 2]
        latest = max(latest, work.end[task + tables.input_offset[entry]] + delay)
    return latest


@inlined
def _members_on(on: Decoding, serving: Serving, gpu: int, size: int) -> int:
    """Return how many of the listed tasks run as a batch on a GPU, 0 if one of them cannot run there at all."""
    tables, service, members = on.tables, serving.service, size
    batch = service.task_batch[serving.runs.members[0]]
    if batch != NONE:
        members = min(size, service.largest[batch, tables.gpu_class[gpu]])
    for at in range(size):
        if tables.run_us[tables.task_template[serving.runs.members[at]], tables.gpu_class[gpu]] == NEVER:
            return 0
    return members


@inlined
def _choose_gpu(
    on: Decoding, serving: Serving | None, rule: Rule, opens: Ints, task: int, size: int
) -> tuple[int, int]:
    """Return the GPU that the listed tasks go to, NONE if there is none, and how many of them."""
    gpu = _best_gpu(on, serving, rule, opens, task, size)
    if serving is not None:
        if gpu == NONE and size > 1:  # restrictions may keep the members apart
            size = 1
            gpu = _best_gpu(on, serving, rule, opens, task, size)
        batch = serving.service.task_batch[task]
        if gpu != NONE and batch != NONE:
            size = min(size, serving.service.largest[batch, on.tables.gpu_class[gpu]])
    return gpu, size


@inlined
def _best_gpu(on: Decoding, serving: Serving | None, rule: Rule, opens: Ints, task: int, size: int) -> int:
    """Return the GPU with the earliest finish plus the price of its loads, NONE if none is permitted."""
    tables, state, work = on.tables, on.state, on.work
    template = tables.task_template[task]
    best, best_value = NONE, np.inf
    earliest = max(inputs_end(tables, work, task), tables.release_us[tables.task_job[task]])
    for gpu in range(state.room.shape[0]):
        runtime, members = tables.run_us[template, tables.gpu_class[gpu]], size
        if serving is None:
            # Most GPUs are out of the question before transfers and loads are counted.
            if runtime == NEVER or max(earliest, state.compute_free[gpu]) + runtime >= best_value:
                continue
            begin = max(arrival(tables, work, task, gpu), state.compute_free[gpu])
        else:
            members = _members_on(on, serving, gpu, size)
            if members == 0:
                continue
            runtime = run_length(tables, serving, template, gpu, members)
            begin = 0
            for at in range(members):
                begin = max(begin, arrival(tables, work, serving.runs.members[at], gpu))
            begin = first_fit(on, serving, gpu, begin, serving.service.share[template], FAR)
        begin, price, possible = _price_loads(on, rule, template, gpu, begin)
        # A batch that a small GPU cuts short leaves members behind: what counts is the time per member.
        value = begin + runtime * (size / members) + price
        if serving is not None:
            possible = possible and opens[gpu] < FAR and begin + runtime <= serving.service.goes_us[gpu]
        if possible and value < best_value:
            best, best_value = gpu, value
    return best


@inlined
def _price_loads(on: Decoding, rule: Rule, template: int, gpu: int, begin: int) -> tuple[int, float, bool]:
    """Return when a task may begin once its models are loaded, what the loads count for, and whether all may be."""
    tables, state = on.tables, on.state
    copied, price, room, possible = state.copy_free[gpu], 0.0, state.room[gpu], True
    for need in range(tables.need_first[template], tables.need_first[template + 1]):
        model = tables.need_model[need]
        possible = possible and rule.permitted[gpu, model]
        if state.ready[gpu, model] != NONE:
            begin = max(begin, state.ready[gpu, model])
        elif possible:
            duration = tables.load_us[model, tables.gpu_class[gpu]]
            copied += duration
            begin = max(begin, copied)
            room -= tables.weight_bytes[model]
            # A load that needs room delays whatever the leaving model would have served: it counts twice.
            price += rule.load_price * duration * (1.0 if room >= 0 else 2.0)
    return begin, price, possible


@inlined
def _forget_future(on: Decoding, serving: Serving | None, leader: int, gpu: int, placed: int, size: int) -> None:
    """Let models leave by least recent use, since the rule does not know the future."""
    tables = on.tables
    for at in range(size):
        task = leader if serving is None else serving.runs.members[at]
        use, template = tables.use_first[task], tables.task_template[task]
        for need in range(tables.need_first[template], tables.need_first[template + 1]):
            # The needs of this very task must not be evicted for one another.
            on.state.upcoming[gpu, tables.need_model[need]] = NONE
            # Ever smaller, so that furthest next use means least recent use.
            on.work.next_use[use] = FAR - placed - 1
            use += 1
