"""The kernels of the dynamic programme over start orders: what can start next, and which states need be kept."""

from __future__ import annotations

from truenorth.models.instance import NONE, Ints
from truenorth.solvers.compiled import inlined, kernel
from truenorth.solvers.exact.start_orders_records import OrderTables, RelaxedStates, StateGrowth, States
from truenorth.solvers.exact.start_orders_tables import FAR, price_until

MOST_COMPARED = 100
"""Of the states of one key that are kept, a new one is compared with so many."""


@inlined
def _load_sum(load_us: Ints, models: int) -> int:
    """Return how long the loads of some models take, one after the other.

    Notes
    -----
    Invariant: no order of the loads has all these models there sooner, none of them being there at first.
    Because: one copy engine does one load at a time.
    Cost: O(models).
    If wrong: unsound if too long, weaker if too short.
    """
    total: int = 0
    model = 0
    while models:
        if models & 1:
            total += load_us[model]
        models >>= 1
        model += 1
    return total


@kernel
def _earliest(tables: OrderTables, states: States, at: int, task: int, gpu: int) -> int:
    """Return the earliest start of a task on a GPU, after all that have started.

    Notes
    -----
    Invariant: no plan that began like the state, and starts this task next, on this GPU, starts it sooner.
    Because: it waits for `now` (starts are in order), its GPU, its head, its inputs, and the loads of all models that
    the GPU has used; how loads evict one another is left out.
    Cost: O(inputs x outputs under way + models).
    If wrong: unsound if too late, weaker if too early.
    """
    start: int = max(states.now_us[at], states.free_us[at, gpu], tables.head_us[task])
    for entry in range(tables.input_first[task], tables.input_first[task + 1]):
        for k in range(states.sent.shape[1]):
            if states.sent[at, k] == tables.input_task[entry]:
                under_way = 0 if states.place[at, k] == gpu else tables.input_us[entry]
                start = max(start, states.ends_us[at, k] + under_way)
    if tables.needs[task]:
        # Whatever the order of the loads, all models used on a GPU so far have been loaded there once.
        start = max(start, _load_sum(tables.load_us, states.models[at, gpu] | tables.needs[task]))
    return start


@kernel
def _alike(tables: OrderTables, states: States, at: int, one: int, other: int) -> bool:
    """Say whether two GPUs are the same to every later task.

    Notes
    -----
    Invariant: if so, exchanging the two in all that follows gives a plan of the same cost.
    Because: a later task asks a GPU when it is free, which models it has used, and whether an output lies there.
    Cost: O(outputs under way).
    If wrong: unsound, for one of two different GPUs would never be tried.
    """
    if states.free_us[at, one] != states.free_us[at, other] or states.models[at, one] != states.models[at, other]:
        return False
    for k in range(states.sent.shape[1]):
        task = states.sent[at, k]
        if task >= 0 and tables.apart_us[task] and states.place[at, k] in (one, other):
            return False
    return True


@kernel
def _seen_before(tables: OrderTables, states: States, at: int, gpu: int) -> bool:
    """Say whether an earlier GPU is the same to every later task."""
    for other in range(gpu):  # noqa: SIM110 - no generator compiles
        if _alike(tables, states, at, gpu, other):
            return True
    return False


@kernel
def _list_ready(tables: OrderTables, states: States, at: int, ready: Ints) -> int:
    """Write the tasks that can start next, then NONE if there is room, and return their number.

    Notes
    -----
    Invariant: `ready` lists every task all of whose predecessors have started, and none that has started itself; of
    equal jobs that have not begun only those of the first.
    Because: `next_stage` says of each stage and task which stage follows, -1 where the task cannot start. Of orders
    that differ by names of equal jobs the one in which these begin in turn is left.
    Cost: O(tasks of unfinished jobs).
    If wrong: unsound if one is missing.
    """
    count = 0
    for job in range(len(tables.weight)):
        stage, before = states.stage[at, job], tables.job_before[job]
        if before != NONE and states.stage[at, before] == tables.first_stage[before]:
            # Equal and not begun: of the two the other one begins first.
            continue
        for task in range(tables.first_task[job], tables.first_task[job + 1]):
            if tables.next_stage[stage, task - tables.first_task[job]] >= 0:
                ready[count] = task
                count += 1
    if count < len(ready):
        ready[count] = NONE
    return count


@kernel
def expand(growth: StateGrowth, ahead: RelaxedStates, first: int, ready: Ints, start_us: Ints) -> tuple[int, int]:
    """Write what can start next after each state from the `first` on; return how many states came, and whose are next.

    Parameters
    ----------
    ready, start_us
        Room to work in. Shape [tasks], [tasks, GPUs].

    Notes
    -----
    Invariant: every state within the limit that a best order may go through next is written, once for GPUs that are
    the same to every later task.
    Because: each ready task is tried on each GPU that differs from those before it (`_seen_before`); left out is what
    leaves a GPU idle that could have run another task first (`_first_to_fit`), what lies above the limit (`_start`),
    and what no state of the relaxation is as early as (`_within_reach`).
    Cost: O(states x ready tasks x GPUs x what `_start` costs); a state whose successors may not fit waits.
    If wrong: unsound, for the best order might be left out.
    """
    tables, states, out, limit = growth.tables, growth.states, growth.out, growth.limit
    gpus, written = tables.gpus, 0
    for at in range(first, len(states.cost)):
        count = _list_ready(tables, states, at, ready)
        if written + count * gpus > len(out.cost):
            return written, at
        for index in range(count):
            for gpu in range(gpus):
                start_us[index, gpu] = _earliest(tables, states, at, ready[index], gpu)
        # In a pool GPUs are sorted by when they are free, and the first is the one to take.
        for gpu in range(1 if tables.pooled else gpus):
            if _seen_before(tables, states, at, gpu):
                continue
            fits, fits_next, fitting = _first_to_fit(tables, states, at, gpu, ready, start_us)
            for index in range(count):
                task, start = ready[index], start_us[index, gpu]
                # A task does not stand in its own way: then the second of those that fit counts.
                if tables.active and (fits_next if index == fitting else fits) <= start:
                    continue
                if not _start(growth, at, task, gpu, start, written):
                    continue
                if not ahead.known or _within_reach(tables, out, written, ahead, limit):
                    written += 1
    return written, len(states.cost)


@kernel
def _first_to_fit(
    tables: OrderTables, states: States, at: int, gpu: int, ready: Ints, start_us: Ints
) -> tuple[int, int, int]:
    """Return the first two ends of tasks that can run on a GPU now without harm to any other, and the first's index.

    A task that starts on the GPU no earlier than another one ends leaves it idle for the whole run of that one.

    Notes
    -----
    Invariant: some best order never starts a task on a GPU at or after the end that another ready task could have
    there.
    Because: let i be that other task, [s, e) its run here, and the next start at t >= e. Starts are in order, so i
    starts at t or later and ends at t + run or later. Moved to [s, e) it takes time that nobody uses, needs no load
    that others would wait for (the second `continue`), and ends at least its run sooner; as its outputs are under
    way for no longer than that run (the first `continue`), they are everywhere by the time they used to be made. So
    nobody is later, and the sum of starts is smaller: the exchange ends.
    Cost: O(ready tasks).
    If wrong: unsound, for the best order might be left out.
    """
    first, second, fitting = FAR, FAR, NONE
    for index in range(len(ready)):
        task = ready[index]
        if task == NONE:
            break
        # Its output may be under way for longer than it runs: moving it to another GPU could delay others.
        if tables.run_us[task] < tables.apart_us[task]:
            continue
        # It would load what others here may be waiting to load.
        if tables.needs[task] & ~states.models[at, gpu] and states.loads_us[at, gpu] > states.free_us[at, gpu]:
            continue
        end = start_us[index, gpu] + tables.run_us[task]
        if end < first:
            first, second, fitting = end, first, index
        elif end < second:
            second = end
    return first, second, fitting


@kernel
def _start(growth: StateGrowth, at: int, task: int, gpu: int, start: int, to: int) -> bool:
    """Write the state after one more start; return whether its bound lies within the limit.

    Notes
    -----
    Invariant: `out.models[to, g]` holds the models used on g so far if their loads can still make somebody wait
    there, and nothing if not: from then on what g has used is the same to every later start.
    Because: all models used on g and all that unfinished jobs still want are loaded within `loads_us`, one after
    the other from time 0, whatever their order. Once that is no later than g is free it stays so, since g is never
    free sooner and wishes only get fewer. A job's due time is the earliest completion that its started tasks, and
    `now` for the others, allow.
    Cost: O(jobs x tasks of a job + GPUs x models).
    If wrong: models forgotten too soon make starts too early, which is weaker; a bound, due time or `now` that is
    too high is unsound.
    """
    tables, states, out = growth.tables, growth.states, growth.out
    end, now = start + tables.run_us[task], FAR
    for g in range(tables.gpus):
        # Starts are in order: nobody starts before this one any more, wherever it is.
        out.free_us[to, g] = end if g == gpu else max(states.free_us[at, g], start)
        out.models[to, g], out.name[to, g] = states.models[at, g], states.name[at, g]
        now = min(now, out.free_us[to, g])
    out.models[to, gpu] |= tables.needs[task]
    total, wanted = _advance_jobs(growth, at, task, end, now, to)
    out.now_us[to] = now
    _keep_sent(growth, at, task, gpu, end, to)
    for g in range(tables.gpus):
        free = out.free_us[to, g]
        # What a GPU still has to sell, at the prices: Lagrange's bound subtracts all compute that is there.
        total -= tables.prefix[len(tables.rate)] - price_until(tables.prefix, tables.rate, tables.slot_us, free)
        out.loads_us[to, g] = _load_sum(tables.load_us, out.models[to, g] | wanted)
        # See Because: its loads delay nobody from here on.
        if out.loads_us[to, g] <= free:
            out.models[to, g] = 0
    for job in range(len(tables.weight)):
        total += _rest_of_job(tables, job, now, out, to)
    # What held before the start holds behind it; rounding of columns could lose some.
    out.bound[to] = max(states.bound[at], total)
    if out.bound[to] > growth.limit:
        return False
    _sort_gpus(out, to)
    out.begun_us[to] = states.begun_us[at] + start
    out.key[to] = states.key[at] ^ tables.key[task]
    out.parent[to], out.task[to], out.gpu[to] = at, task, states.name[at, gpu]
    return True


@kernel
def _advance_jobs(growth: StateGrowth, at: int, task: int, end: int, now: int, to: int) -> tuple[int, int]:
    """Write stages, earliest completions and the cost; return the cost, and a mask of the models still wanted.

    Notes
    -----
    Invariant: `due_us` of a job is a time before which it cannot complete; a job all of whose tasks have started has
    paid for it in `cost`, and is 0 from then on, so that states do not differ in what is settled.
    Because: a task that can start next starts no earlier than `now` and its own head, and the longest path follows it.
    Cost: O(jobs x tasks of a job).
    If wrong: unsound where a due time is too late, weaker where it is too early.
    """
    tables, states, out = growth.tables, growth.states, growth.out
    cost, wanted = states.cost[at], 0
    for job in range(len(tables.weight)):
        stage, due = states.stage[at, job], states.due_us[at, job]
        if tables.job[task] == job:
            stage = tables.next_stage[stage, task - tables.first_task[job]]
            # The longest path behind it is its tail.
            due = max(due, end + tables.tail_us[task])
            if tables.done[stage]:
                cost += tables.weight[job] * (due - tables.due_us[job])
                due = 0
        if not tables.done[stage]:
            wanted |= tables.wants[stage]
            for other in range(tables.first_task[job], tables.first_task[job + 1]):
                if tables.next_stage[stage, other - tables.first_task[job]] >= 0:
                    begin = max(now, tables.head_us[other])
                    due = max(due, begin + tables.run_us[other] + tables.tail_us[other])
        out.stage[to, job], out.due_us[to, job] = stage, due
    out.cost[to] = cost
    return cost, wanted


@kernel
def _keep_sent(growth: StateGrowth, at: int, task: int, gpu: int, end: int, to: int) -> None:
    """Write the tasks that others may have to wait for.

    Notes
    -----
    Invariant: a task is listed for as long as its output may make a later start wait: it has successors that have not
    all started, and its output is not yet everywhere by `now`.
    Because: no later task starts before `now`, and the longest way of an output is `apart_us`.
    Cost: O(outputs under way).
    If wrong: weaker. What is forgotten too soon lets its successors start too early.
    """
    tables, states, out = growth.tables, growth.states, growth.out
    now = out.now_us[to]
    count, room = 0, out.sent.shape[1]
    for k in range(room):
        out.sent[to, k] = NONE
    for k in range(room + 1):
        sent, place, ends = task, gpu, end
        if k < room:
            sent, place, ends = states.sent[at, k], states.place[at, k], states.ends_us[at, k]
        # By `now` it has arrived everywhere, and every later start finds it there.
        if sent < 0 or ends + tables.apart_us[sent] <= now:
            continue
        if tables.tail_us[sent] and not tables.done[out.stage[to, tables.job[sent]]]:
            out.sent[to, count], out.place[to, count], out.ends_us[to, count] = sent, place, ends
            count += 1


@kernel
def _rest_of_job(tables: OrderTables, job: int, now: int, out: States, to: int) -> int:
    """Return what a job costs at least for its completion and the runs that are left, 0 if all have started.

    Notes
    -----
    Invariant: the job costs at least this above its due time: its completion and, at the prices, the runs it has left.
    Because: `rest` is the least for a begin within a column, and columns round begins down; what is paid alone, added
    to the earliest completion known, is another bound: the larger counts.
    Cost: O(inputs of one task x outputs under way).
    If wrong: unsound if too high, slower if too low: then more states are kept.
    """
    stage = out.stage[to, job]
    if tables.done[stage]:
        return 0
    begin, due = now, out.due_us[to, job]
    if tables.only[stage] >= 0:
        task = tables.first_task[job] + tables.only[stage]
        begin = max(begin, tables.head_us[task])
        for entry in range(tables.input_first[task], tables.input_first[task + 1]):
            for k in range(out.sent.shape[1]):
                if out.sent[to, k] == tables.input_task[entry]:
                    begin = max(begin, out.ends_us[to, k])
        due = max(due, begin + tables.run_us[task] + tables.tail_us[task])
    column = min(tables.rest.shape[1] - 1, begin // tables.column_us)
    weight = tables.weight[job]
    least = max(tables.rest[stage, column], weight * due + tables.paid[stage, column])
    above: int = least - weight * tables.due_us[job]
    return above


@inlined
def _comes_before(states: States, at: int, one: int, other: int) -> bool:
    """Say whether a GPU is free before another, or at once with fewer models."""
    if states.free_us[at, one] != states.free_us[at, other]:
        return bool(states.free_us[at, one] < states.free_us[at, other])
    return bool(states.models[at, one] < states.models[at, other])


@inlined
def _swap(column: Ints, at: int, k: int) -> None:
    """Swap an entry with the one before it."""
    column[at, k], column[at, k - 1] = column[at, k - 1], column[at, k]


@kernel
def _sort_gpus(out: States, to: int) -> None:
    """Sort the GPUs by when they are free, then by their models: states that differ in names alone become equal.

    Notes
    -----
    Invariant: GPUs are sorted by when they are free, then by models; `name` and `place` follow, or plans could not be
    read back.
    Because: GPUs of one kind may be exchanged; an insertion sort suffices, for one start moves one GPU.
    Cost: O(GPUs + places that change x outputs under way).
    If wrong: slower where equal states look different; a `place` that does not follow is unsound.
    """
    for g in range(1, out.free_us.shape[1]):
        k = g
        while k and _comes_before(out, to, k, k - 1):
            _swap(out.free_us, to, k)
            _swap(out.models, to, k)
            _swap(out.loads_us, to, k)
            _swap(out.name, to, k)
            for sent in range(out.sent.shape[1]):
                if out.place[to, sent] == k:
                    out.place[to, sent] = k - 1
                elif out.place[to, sent] == k - 1:
                    out.place[to, sent] = k
            k -= 1


@kernel
def _as_early(tables: OrderTables, ours: States, a: int, theirs: States, b: int, apart_us: Ints, at_once: bool) -> bool:
    """Say whether whatever can follow state b can follow state a, no later.

    Notes
    -----
    Invariant: if so, every way to go on from b, taken from a, starts each task no later.
    Because: everything that a start waits for is compared: its GPU, loads there, the job's stage (so that two sets
    of tasks whose keys collide are told apart) and the arrival of outputs. GPUs are sorted by when they are free,
    so g-th is compared with g-th.
    Cost: O(GPUs + jobs + outputs under way squared).
    If wrong: unsound, for a state on the way to the best order might be left out.

    Parameters
    ----------
    apart_us
        Per task: how long its output is under way at most.
    at_once
        Take outputs to be everywhere as soon as they are made.
    """
    for g in range(tables.gpus):
        free = theirs.free_us[b, g]
        if ours.free_us[a, g] > free:
            return False
        # More models used delays loads, unless all loads end before the GPU is free anyway.
        if ours.models[a, g] & ~theirs.models[b, g] and ours.loads_us[a, g] > free:
            return False
    for job in range(len(tables.weight)):
        if ours.stage[a, job] != theirs.stage[b, job] or ours.due_us[a, job] > theirs.due_us[b, job]:
            return False
    for k in range(ours.sent.shape[1]):
        if ours.sent[a, k] < 0:
            continue
        theirs_us, there = theirs.now_us[b], False
        for m in range(theirs.sent.shape[1]):
            if theirs.sent[b, m] == ours.sent[a, k]:
                theirs_us = max(theirs_us, theirs.ends_us[b, m])
                # Made there later, it may be elsewhere before theirs is: then it counts as under way.
                there = theirs.place[b, m] == ours.place[a, k] and ours.ends_us[a, k] <= theirs.ends_us[b, m]
        under_way = 0 if there or at_once else apart_us[ours.sent[a, k]]
        if ours.ends_us[a, k] + under_way > theirs_us:
            return False
    return True


@kernel
def _within_reach(tables: OrderTables, states: States, at: int, ahead: RelaxedStates, limit: int) -> bool:
    """Raise a state's bound by what the states of a relaxation still cost; return whether it lies within the limit.

    The state's own order has, in the relaxation, a state that is as early; if none is within the limit, no plan is.
    What outputs under way cost counts only where they are surely no later in the relaxation.

    Notes
    -----
    Invariant: the bound that is written is one on every plan that begins like the state.
    Because: the relaxation of such a plan goes through a state with the same tasks that is as early in everything; one
    that is kept in its place costs no more. Of all that are as early the dearest counts, since each of them says so.
    Cost: O(log states + states of one key x what a comparison costs).
    If wrong: unsound.
    """
    guide, to_go, apart_us = ahead.states, ahead.to_go, ahead.apart_us
    key = states.key[at]
    # The relaxation's states are sorted by key: halving finds the first of this one.
    low, high = 0, len(guide.key)
    while low < high:
        middle = (low + high) // 2
        if guide.key[middle] < key:
            low = middle + 1
        else:
            high = middle
    found, most = False, 0
    while low < len(guide.key) and guide.key[low] == key:
        if (not found or to_go[low] > most) and _as_early(tables, guide, low, states, at, apart_us, True):
            found = True
            if to_go[low] > most and _as_early(tables, guide, low, states, at, apart_us, False):
                most = to_go[low]
        low += 1
    states.bound[at] = max(states.bound[at], states.cost[at] + most)
    return found and states.bound[at] <= limit


@kernel
def dominate(tables: OrderTables, states: States, order: Ints, instead: Ints) -> None:
    """Write for every state the one to keep instead, itself if it is needed.

    Notes
    -----
    Invariant: for every state a kept one of the same tasks costs no more and is as early in everything.
    Because: a state gives way only to one that does not give way itself, and that comes before it in `order`.
    Cost: O(states x `MOST_COMPARED` x what a comparison costs).
    If wrong: too few left out is slower, too many unsound.

    Parameters
    ----------
    order
        The states by key, then by cost, then by the sum of starts.
    """
    group = 0
    for y in range(len(order)):
        b = order[y]
        if states.key[b] != states.key[order[group]]:
            group = y
        compared = 0
        for x in range(group, y):
            a = order[x]
            if instead[a] != a:
                continue
            # To compare with fewer is slower later, never wrong.
            if compared == MOST_COMPARED:
                break
            compared += 1
            # A lower cost, or equal cost and earlier starts: no circle of states can each be left out for the next.
            dearer = states.cost[a] == states.cost[b] and states.begun_us[a] > states.begun_us[b]
            if not dearer and _as_early(tables, states, a, states, b, tables.apart_us, False):
                instead[b] = a
                break
