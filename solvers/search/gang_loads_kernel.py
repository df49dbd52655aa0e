"""An order of runs on several GPUs that need models becomes a plan, run by run, behind all that its GPUs have to do.

A run goes where it ends first, or where it was told to. What it lacks there is loaded one model after the other, as
soon as the copy engines of that place are free and there is room, at the earliest while the last run before it
computes. To make room those models leave that nothing uses any more and that the order asks for last.

On a GPU nothing changes before the start of its last run. So it is known when that run starts and ends, what it holds,
and which models are there, each until the end of the run that used it last.
"""

from __future__ import annotations

from math import log
from typing import NamedTuple

from truenorth.models.instance import Ints
from truenorth.solvers.compiled import Floats, RandomState, inlined, kernel, random_below, random_unit

_FAR = 1 << 60
_NEAR = 16
"""Half of the moves go so many places at most, the others anywhere."""


class LoadTables(NamedTuple):
    """What runs take.

    Attributes
    ----------
    job, release, template
        Per task. Shape [tasks].
    option_from, option_place, option_run, option_split
        Of a template: its first entry in the places where it can run; there run time, and 1 if its models are split
        over them. Shape [templates + 1]; [options].
    need_from, need, memory
        Of a template: its first entry in the models that it needs; what it holds. Shape [templates + 1]; [needs];
        [templates].
    member_from, member
        Of a place: its first entry in the GPUs. Shape [places + 1]; [members].
    load, part
        How long a model loads at a place, and what each of its GPUs holds then. Shape [models, places].
    room, gpu_class, gpu_server
        Of each GPU. Shape [GPUs].
    source_from, source, source_edge
        Per task: its first entry in the tasks that it waits for, and in the edges from them. Shape [tasks + 1]; [arcs].
    transfer, delay
        Of an edge: how long its output takes by classes of GPUs, and 1 for the same server; what passes before.
        Shape [edges, classes, classes, 2]; [edges].
    ingress, input
        Per task: the server where its input bytes lie, -1 for all; how long they take to others. Shape [tasks].
    initial_model, initial_gpu
        What is there at time 0. Shape [initial].
    weight, due
        Per job: what a microsecond beyond its due time costs. Shape [jobs].
    late, is_sum
        1 if only lateness counts, if costs add up. Shape [1] each.
    """

    job: Ints
    release: Ints
    template: Ints
    option_from: Ints
    option_place: Ints
    option_run: Ints
    option_split: Ints
    need_from: Ints
    need: Ints
    memory: Ints
    member_from: Ints
    member: Ints
    load: Ints
    part: Ints
    room: Ints
    gpu_class: Ints
    gpu_server: Ints
    source_from: Ints
    source: Ints
    source_edge: Ints
    transfer: Ints
    delay: Ints
    ingress: Ints
    input: Ints
    initial_model: Ints
    initial_gpu: Ints
    weight: Floats
    due: Ints
    late: Ints
    is_sum: Ints


class LoadPlan(NamedTuple):
    """An order and its plan.

    Attributes
    ----------
    order, told
        The tasks; per task the option that it has to take, -1 for the one where it ends first. Shape [tasks].
    start, end, option
        Per task. The end is -1 as long as it has no place. Shape [tasks].
    begun, free, held, copied, used, leaving
        Per GPU: start and end of its last run, and what that holds; when its last load is over; what the models hold
        that are there; what those hold until the end of the last run that have left by then. Shape [GPUs].
    copying, taken
        The last three for a run that looks for a place. Shape [GPUs].
    here, gone
        The stay of each model on each GPU, -1 without one; when the last one before it left. Shape [GPUs, models].
    model, place, loads, ready, until
        Of each stay: since when it loads (-1: it was there), and the end of the run that used it last. Shape [stays].
    stays
        How many there are. Shape [1].
    loading
        When a run that looks for a place begins its loads. Shape [loads of a run].
    wanted
        1 for the models that it needs. Shape [models].
    asked, later
        Where in the order a model is needed next; after a task that needs it. Shape [models]; [tasks, needs].
    done
        Per job: its completion. Shape [jobs].
    cost
        Of the plan. Shape [1].
    """

    order: Ints
    told: Ints
    start: Ints
    end: Ints
    option: Ints
    begun: Ints
    free: Ints
    held: Ints
    copied: Ints
    used: Ints
    leaving: Ints
    copying: Ints
    taken: Ints
    here: Ints
    gone: Ints
    model: Ints
    place: Ints
    loads: Ints
    ready: Ints
    until: Ints
    stays: Ints
    loading: Ints
    wanted: Ints
    asked: Ints
    later: Ints
    done: Ints
    cost: Floats


@kernel
def _travels(tables: LoadTables, edge: int, one: int, other: int) -> int:
    """Return how long an output takes between two places: 0 if they share a GPU, else the least between two GPUs."""
    least = _FAR
    for at in range(tables.member_from[one], tables.member_from[one + 1]):
        here = tables.member[at]
        for to in range(tables.member_from[other], tables.member_from[other + 1]):
            there = tables.member[to]
            if here == there:
                return 0
            near = 1 if tables.gpu_server[here] == tables.gpu_server[there] else 0
            least = min(least, tables.transfer[edge, tables.gpu_class[here], tables.gpu_class[there], near])
    return int(least)


@kernel
def _arrival(tables: LoadTables, plan: LoadPlan, task: int, place: int) -> int:
    """Return when a run is released and its inputs are at a place."""
    latest = tables.release[task]
    if tables.ingress[task] >= 0:
        far = True
        for at in range(tables.member_from[place], tables.member_from[place + 1]):
            far = far and tables.gpu_server[tables.member[at]] != tables.ingress[task]
        if far:
            latest += tables.input[task]
    for at in range(tables.source_from[task], tables.source_from[task + 1]):
        other, edge = tables.source[at], tables.source_edge[at]
        travels = _travels(tables, edge, tables.option_place[plan.option[other]], place)
        latest = max(latest, plan.end[other] + tables.delay[edge] + travels)
    return int(latest)


@inlined
def _keeps(tables: LoadTables, plan: LoadPlan, gpu: int, model: int, place: int, split: int) -> bool:
    """Say whether a model is on a GPU as a run at a place needs it."""
    stay = plan.here[gpu, model]
    return bool(stay >= 0 and plan.wanted[model] == 1 and plan.place[stay] == (place if split else gpu))


@inlined
def _load_from(tables: LoadTables, plan: LoadPlan, model: int, where: int, place: int, split: int) -> int:
    """Return when a model can begin to load where a run at a place needs it.

    Whatever nothing uses any more can leave from the start of the last run on; what that run uses, from its end on.
    """
    start = 0
    for at in range(tables.member_from[where], tables.member_from[where + 1]):
        gpu = tables.member[at]
        start = max(start, plan.copying[gpu], plan.begun[gpu])
        # In another form it leaves first, or is leaving.
        start = max(start, plan.gone[gpu, model])
        if plan.here[gpu, model] >= 0:
            start = max(start, plan.until[plan.here[gpu, model]])
        stays = plan.taken[gpu] + plan.held[gpu] + plan.leaving[gpu]
        for other in range(len(plan.asked)):
            stay = plan.here[gpu, other]
            if stay >= 0 and (plan.until[stay] == plan.free[gpu] or _keeps(tables, plan, gpu, other, place, split)):
                stays += tables.part[other, plan.place[stay]]
        if stays + tables.part[model, where] > tables.room[gpu]:
            start = max(start, plan.free[gpu])
    return int(start)


@kernel
def _start_at(tables: LoadTables, plan: LoadPlan, task: int, option: int) -> int:
    """Return when a run can start at a place; note when its loads begin, in the order in which they do."""
    place, split, template, count = tables.option_place[option], tables.option_split[option], tables.template[task], 0
    start = _arrival(tables, plan, task, place)
    first, beyond = tables.member_from[place], tables.member_from[place + 1]
    for at in range(first, beyond):
        gpu = tables.member[at]
        start = max(start, plan.free[gpu])
        plan.copying[gpu], plan.taken[gpu] = plan.copied[gpu], 0
    for need in range(tables.need_from[template], tables.need_from[template + 1]):
        model = tables.need[need]
        for at in range(first, first + 1 if split else beyond):
            gpu = tables.member[at]
            if _keeps(tables, plan, gpu, model, place, split):
                start = max(start, plan.ready[plan.here[gpu, model]])
                continue
            where = place if split else gpu
            begin = _load_from(tables, plan, model, where, place, split)
            plan.loading[count] = begin
            count += 1
            ready = begin + tables.load[model, where]
            start = max(start, ready)
            for to in range(tables.member_from[where], tables.member_from[where + 1]):
                plan.copying[tables.member[to]] = ready
                plan.taken[tables.member[to]] += tables.part[model, where]
    return int(start)


@kernel
def _evict(tables: LoadTables, plan: LoadPlan, stay: int) -> None:
    """Have a model leave all GPUs of its place when its last run has ended."""
    model, place = plan.model[stay], plan.place[stay]
    for at in range(tables.member_from[place], tables.member_from[place + 1]):
        gpu = tables.member[at]
        plan.here[gpu, model], plan.gone[gpu, model] = -1, plan.until[stay]
        plan.used[gpu] -= tables.part[model, place]
        if plan.until[stay] == plan.free[gpu]:
            plan.leaving[gpu] += tables.part[model, place]


@kernel
def _make_room(tables: LoadTables, plan: LoadPlan, gpu: int, size: int, time: int, place: int, split: int) -> None:
    """Have models leave a GPU that a run at a place does not need, those needed last first, until so much is free."""
    while True:
        used = plan.used[gpu]
        if time < plan.free[gpu]:
            used += plan.leaving[gpu] + plan.held[gpu]
        if used + size <= tables.room[gpu]:
            return
        found = -1
        for model in range(len(plan.asked)):
            stay = plan.here[gpu, model]
            able = stay >= 0 and plan.until[stay] <= time and not _keeps(tables, plan, gpu, model, place, split)
            if able and (found < 0 or plan.asked[model] > plan.asked[found]):
                found = model
        if found < 0:
            return
        _evict(tables, plan, plan.here[gpu, found])


@kernel
def _new_stay(tables: LoadTables, plan: LoadPlan, model: int, place: int, loads: int, ready: int) -> None:
    """Have a model at a place from a load on, which begins at -1 if it was there."""
    stay = plan.stays[0]
    plan.stays[0] = stay + 1
    plan.model[stay], plan.place[stay], plan.loads[stay], plan.ready[stay] = model, place, loads, ready
    # Nothing has used it yet; what loads is needed by the run that is being put somewhere, and does not leave.
    plan.until[stay] = ready
    for at in range(tables.member_from[place], tables.member_from[place + 1]):
        gpu = tables.member[at]
        plan.here[gpu, model] = stay
        plan.used[gpu] += tables.part[model, place]
        plan.copied[gpu] = max(plan.copied[gpu], ready)


@kernel
def _put(tables: LoadTables, plan: LoadPlan, task: int, option: int) -> None:
    """Load what a run lacks at a place, and have it run there."""
    start, count = _start_at(tables, plan, task, option), 0
    end, place = start + tables.option_run[option], tables.option_place[option]
    split, template = tables.option_split[option], tables.template[task]
    first, beyond, memory = tables.member_from[place], tables.member_from[place + 1], tables.memory[template]
    for need in range(tables.need_from[template], tables.need_from[template + 1]):
        model = tables.need[need]
        for at in range(first, first + 1 if split else beyond):
            if _keeps(tables, plan, tables.member[at], model, place, split):
                continue
            where, begin = place if split else tables.member[at], plan.loading[count]
            count += 1
            for to in range(tables.member_from[where], tables.member_from[where + 1]):
                if plan.here[tables.member[to], model] >= 0:
                    _evict(tables, plan, plan.here[tables.member[to], model])
            for to in range(tables.member_from[where], tables.member_from[where + 1]):
                _make_room(tables, plan, tables.member[to], tables.part[model, where], begin, place, split)
            _new_stay(tables, plan, model, where, begin, begin + tables.load[model, where])
    for at in range(first, beyond):
        _make_room(tables, plan, tables.member[at], memory, start, place, split)
    for at in range(first, beyond):
        gpu = tables.member[at]
        plan.begun[gpu], plan.free[gpu], plan.held[gpu], plan.leaving[gpu] = start, end, memory, 0
        for need in range(tables.need_from[template], tables.need_from[template + 1]):
            plan.until[plan.here[gpu, tables.need[need]]] = end
    plan.start[task], plan.end[task], plan.option[task] = start, end, option


@kernel
def _place(tables: LoadTables, plan: LoadPlan, task: int) -> None:
    """Put a run where it was told to go, or where it ends first."""
    template, found, least = tables.template[task], plan.told[task], _FAR
    for need in range(tables.need_from[template], tables.need_from[template + 1]):
        plan.wanted[tables.need[need]] = 1
    if found < 0:
        for option in range(tables.option_from[template], tables.option_from[template + 1]):
            end = _start_at(tables, plan, task, option) + tables.option_run[option]
            if end < least:
                found, least = option, end
    _put(tables, plan, task, found)
    for need in range(tables.need_from[template], tables.need_from[template + 1]):
        model = tables.need[need]
        plan.wanted[model] = 0
        plan.asked[model] = plan.later[task, need - tables.need_from[template]]


@kernel
def _before(tables: LoadTables, plan: LoadPlan, task: int) -> int:
    """Return what has to have a place before a run and has none; the run itself if it waits for nothing more."""
    at = tables.source_from[task]
    while at < tables.source_from[task + 1]:
        if plan.end[tables.source[at]] < 0:
            task = tables.source[at]
            at = tables.source_from[task]
        else:
            at += 1
    return int(task)


@kernel
def _begin(tables: LoadTables, plan: LoadPlan) -> None:
    """Have nothing planned, the models there that are at time 0, and noted when the order asks for each."""
    plan.begun.fill(0)
    plan.free.fill(0)
    plan.held.fill(0)
    plan.copied.fill(0)
    plan.used.fill(0)
    plan.leaving.fill(0)
    plan.done.fill(0)
    plan.stays[0] = 0
    plan.here.fill(-1)
    plan.gone.fill(0)
    plan.end.fill(-1)
    plan.asked.fill(_FAR)
    for back in range(len(plan.order)):
        position = len(plan.order) - 1 - back
        task = plan.order[position]
        template = tables.template[task]
        for need in range(tables.need_from[template], tables.need_from[template + 1]):
            model = tables.need[need]
            plan.later[task, need - tables.need_from[template]] = plan.asked[model]
            plan.asked[model] = position
    for number in range(len(tables.initial_model)):
        _new_stay(tables, plan, tables.initial_model[number], tables.initial_gpu[number], -1, 0)


@kernel
def decode(tables: LoadTables, plan: LoadPlan) -> float:
    """Plan the runs in their order; return what the plan costs.

    Notes
    -----
    Invariant: the plan keeps every rule.
    Because: see `_load_from`; a run starts when its GPUs, models and inputs are there, and all else that is there can
        leave by then.
    Cost: tasks x places x models that each needs x GPUs x models.
    If wrong: loud; the checker sees every plan.
    """
    _begin(tables, plan)
    for task in plan.order:
        while plan.end[task] < 0:
            following = _before(tables, plan, task)
            _place(tables, plan, following)
            job = tables.job[following]
            plan.done[job] = max(plan.done[job], plan.end[following])
    total = 0.0
    for job in range(len(plan.done)):
        beyond = max(0, plan.done[job] - tables.due[job])
        cost = tables.weight[job] * ((1.0 if beyond > 0 else 0.0) if tables.late[0] else float(beyond))
        total = total + cost if tables.is_sum[0] else max(total, cost)
    return float(total)


@inlined
def _shift(order: Ints, source: int, target: int) -> None:
    """Take a task out of the order, and put it in at another place."""
    task = order[source]
    if source < target:
        for at in range(source, target):
            order[at] = order[at + 1]
    else:
        for at in range(source, target, -1):
            order[at] = order[at - 1]
    order[target] = task


@kernel
def anneal(
    tables: LoadTables,
    plan: LoadPlan,
    best: Ints,
    best_told: Ints,
    random: RandomState,
    moves: int,
    temperature: float,
) -> float:
    """Try moves; keep the best order and places in `best` and `best_told`; `plan.cost` is that of the order.

    Returns
    -------
    float
        What the best costs.
    """
    n, least = len(plan.order), plan.cost[0]
    for _ in range(moves):
        task, before, source, target = -1, 0, 0, 0
        if random_below(random, 2) == 0:
            task = random_below(random, n)
            template, before = tables.template[task], plan.told[task]
            count = tables.option_from[template + 1] - tables.option_from[template]
            # Half of these go where they end first again.
            free = before >= 0 and random_below(random, 2) == 0
            plan.told[task] = -1 if free else tables.option_from[template] + random_below(random, count)
            if plan.told[task] == before:
                continue
        else:
            source = random_below(random, n)
            if random_below(random, 2) == 0:
                target = min(n - 1, max(0, source + random_below(random, 2 * _NEAR + 1) - _NEAR))
            else:
                target = random_below(random, n)
            if source == target:
                continue
            _shift(plan.order, source, target)
        cost = decode(tables, plan)
        if cost <= plan.cost[0] - temperature * log(random_unit(random)):
            plan.cost[0] = cost
            if cost < least:
                least = cost
                for at in range(n):
                    best[at], best_told[at] = plan.order[at], plan.told[at]
        elif task >= 0:
            plan.told[task] = before
        else:
            _shift(plan.order, target, source)
    return float(least)
