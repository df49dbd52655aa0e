"""An order of runs on several GPUs, each in a mode, becomes a plan, run by run; a move changes either and plans anew.

Each run goes where it ends first, beside those that come before it in the order: an earlier gap that is wide enough is
taken. So every plan that no run alone can leave earlier comes from some order. What is free of a server is a row of
instants, each with what is taken from then on: a number of GPUs where runs take any of them, else a set of GPUs. A row
begins with what is away as if it were taken; a server that goes for good is free from FAR on, where nothing fits.

What a run waits for is put before it, wherever it stands in the order, and inputs take as long as from another GPU of a
server unless two runs cannot but share one.

Cost: a plan takes runs x servers x instants.
"""

from __future__ import annotations

from typing import NamedTuple

from truenorth.models.instance import Ints
from truenorth.solvers.compiled import Floats, kernel

FAR = 1 << 60


class TaskTables(NamedTuple):
    """What any order of tasks knows of them.

    Attributes
    ----------
    job, release
        Per task. Shape [tasks].
    mode_from, mode_to
        Per task: its modes, between which an order chooses. Shape [tasks].
    choosers
        Tasks of several modes.
    source_from, source, source_edge
        Per task: its first entry in the tasks that it waits for, and in the edges from them. Shape [tasks + 1]; [arcs].
    transfer, delay
        Of an edge: how long its output takes by classes of GPUs, and 1 for the same server; what passes before.
        Shape [edges, classes, classes, 2]; [edges].
    ingress, input
        Per task: the server where its input bytes lie, -1 for all; how long they take to others. Shape [tasks].
    weight, due
        Per job: what a microsecond beyond its due time costs. Shape [jobs].
    late, is_sum
        1 if only lateness counts, if costs add up. Shape [1] each.
    """

    job: Ints
    release: Ints
    mode_from: Ints
    mode_to: Ints
    choosers: Ints
    source_from: Ints
    source: Ints
    source_edge: Ints
    transfer: Ints
    delay: Ints
    ingress: Ints
    input: Ints
    weight: Floats
    due: Ints
    late: Ints
    is_sum: Ints


class GangTables(NamedTuple):
    """What runs take, in each of their modes: numbers of GPUs.

    Attributes
    ----------
    tasks
        What they wait for, and what they cost.
    size
        GPUs of a mode. Shape [modes].
    run
        Run time in one server, -1 where it cannot be. Shape [modes, servers].
    wide_run, wide
        Run time across servers, and which sort of groups of servers it takes; -1 for a run in one. Shape [modes].
    group_from, group_servers
        Of each sort of groups: its first entry in `group_first`, and how many servers one has. Shape [sorts (+ 1)].
    group_first
        First server of each group.
    held, server_class
        GPUs of each server, and their class. Shape [servers].
    fed
        Per task: whether something has to arrive before it starts. Shape [tasks].
    any_gpus
        1 if runs take any GPUs of a server. Shape [1].
    """

    tasks: TaskTables
    size: Ints
    run: Ints
    wide_run: Ints
    wide: Ints
    group_from: Ints
    group_servers: Ints
    group_first: Ints
    held: Ints
    server_class: Ints
    fed: Ints
    any_gpus: Ints


class Away(NamedTuple):
    """Which servers are away when; apart from the tables, which are copied with every call.

    Attributes
    ----------
    instant, used, length
        The rows of servers on which nothing runs. Shape [servers, instants]; [servers].
    left_out
        What a run without a place costs, so that any plan with all runs costs less. Shape [1].
    """

    instant: Ints
    used: Ints
    length: Ints
    left_out: Floats


class GangPlan(NamedTuple):
    """An order and its plan.

    Attributes
    ----------
    order
        The tasks. Shape [tasks].
    mode
        Per task: that in which it runs. Shape [tasks].
    start, end, server, taken
        Per task: when (FAR: never) and where, for a run across servers the first of them; the bits of the GPUs that it
        takes there. The end is -1 as long as it has not been tried.
    instant, used, length
        Per server: from when on what is taken. Shape [servers, instants]; [servers].
    free_from
        Per server and number of GPUs: before this so many are free at no time. Shape [servers, GPUs + 1].
    done
        Per job: its completion. Shape [jobs].
    cost
        Of the plan. Shape [1].
    """

    order: Ints
    mode: Ints
    start: Ints
    end: Ints
    server: Ints
    taken: Ints
    instant: Ints
    used: Ints
    length: Ints
    free_from: Ints
    done: Ints
    cost: Floats


@kernel
def _segment(plan: GangPlan, server: int, time: int) -> int:
    """Return the last instant of a server at or before a time."""
    low, high = 0, plan.length[server] - 1
    while low < high:
        middle = (low + high + 1) >> 1
        if plan.instant[server, middle] <= time:
            low = middle
        else:
            high = middle - 1
    return low


@kernel
def _block(used: int, size: int, held: int) -> int:
    """Return the lowest aligned GPUs that are free, as bits; 0 without any."""
    block = (1 << size) - 1
    for first in range(0, held - size + 1, size):
        if (used >> first) & block == 0:
            return block << first
    return 0


@kernel
def _earliest(
    tables: GangTables, plan: GangPlan, server: int, size: int, release: int, run: int, latest: int
) -> tuple[int, int]:
    """Return when a server first has GPUs for so long, and which (any: how many); FAR if that is after `latest`."""
    held, any_gpus, open_us = tables.held[server], tables.any_gpus[0], plan.free_from[server, size]
    at = _segment(plan, server, max(release, open_us))
    if release <= open_us:
        # What is taken stays so while runs are added: whoever comes next need not look there again.
        while plan.used[server, at] + size > held if any_gpus else _block(plan.used[server, at], size, held) == 0:
            at += 1
        plan.free_from[server, size] = max(open_us, plan.instant[server, at])
    while True:
        start = max(release, plan.instant[server, at])
        if start > latest:
            return FAR, 0
        until, taken, here, blocked = start + run, 0, at, False
        while here < plan.length[server] and plan.instant[server, here] < until:
            if any_gpus:
                blocked = plan.used[server, here] + size > held
            else:
                taken |= plan.used[server, here]
                blocked = _block(taken, size, held) == 0
            if blocked:
                break
            here += 1
        if not blocked:
            return start, size if any_gpus else _block(taken, size, held)
        # With any GPUs nothing can begin before the end of what was in the way.
        at = here + 1 if any_gpus else at + 1


@kernel
def _occupy(plan: GangPlan, server: int, start: int, end: int, taken: int) -> None:
    """Take GPUs of a server from a time to another."""
    for time in (start, end):
        at = _segment(plan, server, time)
        if plan.instant[server, at] != time:
            length = plan.length[server]
            for later in range(length, at + 1, -1):
                plan.instant[server, later] = plan.instant[server, later - 1]
                plan.used[server, later] = plan.used[server, later - 1]
            plan.instant[server, at + 1] = time
            plan.used[server, at + 1] = plan.used[server, at]
            plan.length[server] = length + 1
    # Sets of GPUs that are free do not overlap what is taken, so that adding joins them.
    for at in range(_segment(plan, server, start), _segment(plan, server, end)):
        plan.used[server, at] += taken


@kernel
def _arrival(tables: GangTables, plan: GangPlan, task: int, first: int, count: int) -> int:
    """Return when a run is released and its inputs are there, at a server, or at a group of so many from it on."""
    tasks = tables.tasks
    latest = tasks.release[task]
    if not first <= tasks.ingress[task] < first + count and tasks.ingress[task] >= 0:
        latest += tasks.input[task]
    for at in range(tasks.source_from[task], tasks.source_from[task + 1]):
        other, edge, near = tasks.source[at], tasks.source_edge[at], 0
        here, wide = plan.server[other], tables.wide[plan.mode[other]]
        last = here + (1 if wide < 0 else tables.group_servers[wide])
        if here < first + count and first < last:
            # Who takes whole servers, or with the other more GPUs than there are, shares one: nothing travels.
            near = 1
            together = tables.size[plan.mode[other]] + tables.size[plan.mode[task]]
            shared = wide >= 0 or count > 1 or together > tables.held[first]
        else:
            shared = False
        travels = 0 if shared else tasks.transfer[edge, tables.server_class[here], tables.server_class[first], near]
        latest = max(latest, plan.end[other] + tasks.delay[edge] + travels)
    return int(latest)


@kernel
def _place(tables: GangTables, plan: GangPlan, task: int) -> int:
    """Put a run where it ends first, of equal servers on the fullest; return its end, FAR if it has no place."""
    best, best_server, best_taken, best_used = FAR, 0, 0, -1
    mode, release, fed = plan.mode[task], tables.tasks.release[task], tables.fed[task]
    size = tables.size[mode]
    for server in range(len(tables.held)):
        run = tables.run[mode, server]
        if run < 0:
            continue
        if fed:
            release = _arrival(tables, plan, task, server, 1)
        start, taken = _earliest(tables, plan, server, size, release, run, best - run)
        if start < FAR:
            used = plan.used[server, _segment(plan, server, start)]
            if start + run < best or used > best_used:
                best, best_server, best_taken, best_used = start + run, server, taken, used
                plan.start[task] = start
    plan.server[task], plan.taken[task] = best_server, best_taken
    if best == FAR:
        plan.start[task] = FAR
        return best
    _occupy(plan, best_server, plan.start[task], best, best_taken)
    return best


@kernel
def _place_wide(tables: GangTables, plan: GangPlan, task: int) -> int:
    """Put a run across servers where it ends first; return its end, FAR if it has no place."""
    sort, run = tables.wide[plan.mode[task]], tables.wide_run[plan.mode[task]]
    count = tables.group_servers[sort]
    best, best_first = FAR, 0
    for group in range(tables.group_from[sort], tables.group_from[sort + 1]):
        first, start, later = tables.group_first[group], tables.tasks.release[task], True
        if tables.fed[task]:
            start = _arrival(tables, plan, task, first, count)
        # Later and later, until all servers of the group are free from then on.
        while later and start < best:
            later = False
            for server in range(first, first + count):
                free = _all_free(plan, server, start, run)
                if free > start:
                    start, later = free, True
                    break
        if start < best:
            best, best_first = start, first
    plan.start[task], plan.server[task], plan.taken[task] = best, best_first, 0
    if best == FAR:
        return best
    for server in range(best_first, best_first + count):
        held = tables.held[server]
        _occupy(plan, server, best, best + run, held if tables.any_gpus[0] else (1 << held) - 1)
    return int(best + run)


@kernel
def _all_free(plan: GangPlan, server: int, start: int, run: int) -> int:
    """Return when a server is first free for so long, from a time on; FAR if it goes before."""
    at = _segment(plan, server, start)
    while True:
        begin, here = max(start, plan.instant[server, at]), at
        while here < plan.length[server] and plan.instant[server, here] < begin + run and plan.used[server, here] == 0:
            here += 1
        if here == plan.length[server] or plan.instant[server, here] >= begin + run:
            return int(begin)
        at = here + 1


@kernel
def before(tasks: TaskTables, end: Ints, task: int) -> int:
    """Return what has to have a place before a run and has none (its end is -1); the run itself if nothing has."""
    at = tasks.source_from[task]
    while at < tasks.source_from[task + 1]:
        if end[tasks.source[at]] < 0:
            task = tasks.source[at]
            at = tasks.source_from[task]
        else:
            at += 1
    return int(task)


@kernel
def cost_of(tasks: TaskTables, done: Ints) -> float:
    """Return what jobs cost that are done by then."""
    total = 0.0
    for job in range(len(done)):
        beyond = max(0, done[job] - tasks.due[job])
        cost = tasks.weight[job] * ((1.0 if beyond > 0 else 0.0) if tasks.late[0] else float(beyond))
        total = total + cost if tasks.is_sum[0] else max(total, cost)
    return float(total)


@kernel
def decode(tables: GangTables, away: Away, plan: GangPlan) -> float:
    """Plan the runs in their order; return what the plan costs."""
    plan.free_from.fill(0)
    for server in range(len(tables.held)):
        plan.length[server] = away.length[server]
        for at in range(plan.length[server]):
            plan.instant[server, at], plan.used[server, at] = away.instant[server, at], away.used[server, at]
    left_out = 0
    for job in range(len(plan.done)):
        plan.done[job] = 0
    for task in range(len(plan.end)):
        plan.end[task] = -1
    for task in plan.order:
        while plan.end[task] < 0:
            following = before(tables.tasks, plan.end, task)
            inside = tables.wide[plan.mode[following]] < 0
            end = _place(tables, plan, following) if inside else _place_wide(tables, plan, following)
            plan.end[following] = end
            if end == FAR:
                left_out += 1
            else:
                job = tables.tasks.job[following]
                plan.done[job] = max(plan.done[job], end)
    return float(cost_of(tables.tasks, plan.done) + left_out * away.left_out[0])
