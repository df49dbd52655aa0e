"""First plans where tasks run in batches and side by side: the rules of `dispatch`, with batches filled greedily.

The waiting task of highest priority takes along those of its class that wait as well, in their order and up to a
limit; the batch goes to the GPU on which it would finish first, a load counting more than its time.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import islice, product

import numpy as np

from models.instance import NEVER, NONE, Ints
from solvers.compiled import allocating_kernel, inlined
from solvers.search.decoder import Decisions
from solvers.search.decoder_kernel import INFEASIBLE, arrival
from solvers.search.decoder_state import ABSENT, FAR, State, Work, copy_of
from solvers.search.decoder_tables import Tables
from solvers.search.dispatch import EFFORT, Rule, inputs_end, rules
from solvers.search.serving_decoder import ServingDecoder, spans_of
from solvers.search.serving_kernel import append_batch, first_fit, run_length
from solvers.search.serving_tables import Runs, Service
from solvers.search.static_models import Mask, static_models

LARGEST_BATCHES = (np.iinfo(np.int64).max, 1, 4, 2)
"""Most members that a rule puts into a batch, one after the other; the classes say what is possible."""


def greedy_batches(decoder: ServingDecoder, enough: Callable[[], bool] = lambda: False) -> list[Decisions]:
    """Return the decisions of every rule and size of batches that find a plan, best first. As `greedy_decisions`."""
    instance, permitted = decoder.instance, static_models(decoder.instance)
    if permitted is None:
        return []
    sizes = [size for size in LARGEST_BATCHES if size == LARGEST_BATCHES[0] or size < decoder.service.batch_us.shape[2]]
    found: list[tuple[float, int, Decisions]] = []
    pairs = instance.n_tasks * instance.n_gpus
    for most, rule in islice(product(sizes, list(rules(decoder.tables))), max(1, EFFORT // pairs)):
        decisions = _run(decoder, rule, permitted, most)
        cost = INFEASIBLE if decisions is None else decoder.cost(decisions)
        if decisions is not None and cost < INFEASIBLE:
            found.append((cost, len(found), decisions))
            if enough():
                break
    return [decisions for _, _, decisions in sorted(found, key=lambda entry: entry[:2])]


def _run(decoder: ServingDecoder, rule: Rule, permitted: Mask, most: int) -> Decisions | None:
    """Return the decisions of one rule, or None where a task finds no GPU any more."""
    tasks = decoder.instance.n_tasks
    nothing = np.full(tasks, ABSENT, np.int64)
    empty = Decisions(nothing, nothing)
    work, runs, state = decoder.work(empty), decoder.runs(empty), copy_of(decoder.origin)
    placed = dispatch_batches(
        decoder.tables,
        decoder.service,
        state,
        work,
        spans_of(work),
        runs,
        decoder.residencies,
        rule,
        permitted,
        most,
        0,
    )
    return Decisions(work.order, work.gpu, runs.joins) if placed == tasks else None


@allocating_kernel
def dispatch_batches(
    tables: Tables,
    service: Service,
    state: State,
    work: Work,
    spans: Work,
    runs: Runs,
    residencies: Ints,
    rule: Rule,
    permitted: Mask,
    most: int,
    stands: int,
) -> int:
    """Fill `work.order`, `work.gpu` and `runs.joins`; return how many tasks found a GPU.

    Parameters
    ----------
    most
        Largest batch that is made.
    stands
        The first so many tasks of the order stand: `work` and `state` say where and when they run.
    """
    tasks = work.order.shape[0]
    missing = np.zeros(tasks, np.int64)
    remaining = np.zeros(tables.due_us.shape[0], np.int64)
    opens = np.zeros(state.room.shape[0], np.int64)
    waiting = [(0, 0)]
    ready = [(0.0, 0)]
    waiting.pop()  # an empty list has no type to compile
    ready.pop()
    _begin_waiting(tables, work, missing, remaining, waiting, stands)
    for gpu in range(state.room.shape[0]):
        opens[gpu] = first_fit(tables, service, state, work, spans, runs, gpu, 0, service.smallest_share, FAR)
    placed, now = stands, 0
    while placed < tasks:
        if not ready:
            now = max(now, waiting[0][0])
        now = max(now, int(opens.min()))
        if now == FAR:
            break
        _get_ready(tables, rule, remaining, waiting, ready, now)
        value, leader = heapq.heappop(ready)
        if runs.placed[leader] == 1:
            continue  # another one took it along
        size = _take_along(tables, service, runs, ready, leader, most)
        gpu = _best_gpu(tables, service, state, work, spans, runs, rule, permitted, opens, size)
        if gpu == ABSENT and size > 1:  # restrictions may keep the members apart
            size = 1
            gpu = _best_gpu(tables, service, state, work, spans, runs, rule, permitted, opens, size)
        if gpu == ABSENT:
            break
        batch = service.batch[tables.task_template[leader]]
        if batch != NONE:
            size = min(size, service.largest[batch, tables.gpu_class[gpu]])
        _forget_future(tables, state, work, runs, gpu, placed, size)
        rows = state.records[0]
        if not append_batch(tables, service, state, work, spans, runs, residencies, gpu, ABSENT, size):
            # Loads of its models wait for others to end: this GPU takes nothing more, and its rows are free again.
            opens[gpu], state.records[0] = FAR, rows
            heapq.heappush(ready, (value, leader))
            continue
        opens[gpu] = first_fit(tables, service, state, work, spans, runs, gpu, 0, service.smallest_share, FAR)
        _close(service, opens, now)
        for at in range(size):
            task = runs.members[at]
            work.order[placed] = task
            runs.joins[task] = int(at > 0)
            placed += 1
            _let_follow(tables, work, missing, remaining, waiting, task)
    return placed


@inlined
def _close(service: Service, opens: Ints, now: int) -> None:
    """Take note of the GPUs that have gone."""
    for gpu in range(opens.shape[0]):
        if max(opens[gpu], now) >= service.goes_us[gpu]:
            opens[gpu] = FAR


@allocating_kernel
def _begin_waiting(
    tables: Tables, work: Work, missing: Ints, remaining: Ints, waiting: list[tuple[int, int]], stands: int
) -> None:
    """Count what each task waits for; those that wait for nothing begin to wait for their release."""
    # Marked so that their followers do not wait for them.
    for position in range(stands):
        missing[work.order[position]] = ABSENT
    for task in range(work.order.shape[0]):
        if missing[task] == ABSENT:
            continue
        template, job = tables.task_template[task], tables.task_job[task]
        for entry in range(tables.input_first[template], tables.input_first[template + 1]):
            missing[task] += int(missing[task + tables.input_offset[entry]] != ABSENT)
        remaining[job] += tables.fastest_us[template]
        if missing[task] == 0:
            released = max(int(tables.release_us[job]), int(inputs_end(tables, work, task)))
            heapq.heappush(waiting, (released, task))


@allocating_kernel
def _get_ready(
    tables: Tables,
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
        value = rule.by_work[job] * remaining[job] + rule.constant[job] + rule.by_tail * path
        heapq.heappush(ready, (value, task))


@allocating_kernel
def _let_follow(
    tables: Tables, work: Work, missing: Ints, remaining: Ints, waiting: list[tuple[int, int]], task: int
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
def _take_along(
    tables: Tables, service: Service, runs: Runs, ready: list[tuple[float, int]], leader: int, most: int
) -> int:
    """List the waiting tasks of least value of a task's class behind it; return how many there are."""
    runs.members[0] = leader
    batch = service.batch[tables.task_template[leader]]
    if batch == NONE:
        return 1
    most = min(most, service.largest[batch].max())
    size = 1
    values = np.empty(most)
    for value, task in ready:
        if runs.placed[task] == 1 or service.batch[tables.task_template[task]] != batch:
            continue
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
def _best_gpu(
    tables: Tables,
    service: Service,
    state: State,
    work: Work,
    spans: Work,
    runs: Runs,
    rule: Rule,
    permitted: Mask,
    opens: Ints,
    size: int,
) -> int:
    """Return the GPU with the earliest finish of the batch plus the price of its loads, ABSENT if none is permitted."""
    template = tables.task_template[runs.members[0]]
    batch = service.batch[template]
    best, best_value = ABSENT, np.inf
    for gpu in range(state.room.shape[0]):
        gpu_class = tables.gpu_class[gpu]
        possible, members = tables.run_us[template, gpu_class] != NEVER, size
        if batch != NONE:
            members = min(size, service.largest[batch, gpu_class])
        for at in range(size):
            possible = possible and tables.run_us[tables.task_template[runs.members[at]], gpu_class] != NEVER
        if not possible:
            continue
        runtime = run_length(tables, service, template, gpu, members)
        begin = 0
        for at in range(members):
            begin = max(begin, arrival(tables, work, runs.members[at], gpu))
        begin = first_fit(tables, service, state, work, spans, runs, gpu, begin, service.share[template], FAR)
        copied, price, room = state.copy_free[gpu], 0.0, state.room[gpu]
        for need in range(tables.need_first[template], tables.need_first[template + 1]):
            model = tables.need_model[need]
            possible = possible and permitted[gpu, model]
            if state.ready[gpu, model] != ABSENT:
                begin = max(begin, state.ready[gpu, model])
            elif possible:
                duration = tables.load_us[model, gpu_class]
                copied += duration
                begin = max(begin, copied)
                room -= tables.weight_bytes[model]
                price += rule.load_price * duration * (1.0 if room >= 0 else 2.0)
        # A batch that a small GPU cuts short leaves members behind: what counts is the time per member.
        value = begin + runtime * (size / members) + price
        possible = possible and opens[gpu] < FAR and begin + runtime <= service.goes_us[gpu]
        if possible and value < best_value:
            best, best_value = gpu, value
    return best


@inlined
def _forget_future(tables: Tables, state: State, work: Work, runs: Runs, gpu: int, placed: int, size: int) -> None:
    """Let models leave by least recent use, since the rule does not know the future."""
    for at in range(size):
        task = runs.members[at]
        use, template = tables.use_first[task], tables.task_template[task]
        for need in range(tables.need_first[template], tables.need_first[template + 1]):
            state.upcoming[gpu, tables.need_model[need]] = ABSENT
            work.next_use[use] = FAR - placed - 1
            use += 1
