"""An order of runs on several GPUs that need models becomes a plan, run by run, behind all that its GPUs have to do.

A run goes where it ends first. What a GPU lacks for it loads one after the other, from the
start of its last run on if all has room beside what that run uses, else from its end on. To make room those models
leave that nothing uses any more and that the order asks for last.

So nothing changes on a GPU between the start of its last run and the loads for the next one, and all that is known of
it is when that run starts and ends, what it holds, and which models are there, each with the end of its last use.
"""

from __future__ import annotations

from typing import NamedTuple

from truenorth.models.instance import Ints
from truenorth.solvers.compiled import Floats, inlined, kernel
from truenorth.solvers.search.gangs_kernel import FAR, TaskTables, before, cost_of


class LoadTables(NamedTuple):
    """What runs take at each of their places.

    Attributes
    ----------
    tasks
        What they wait for, and what they cost.
    template
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
    initial_model, initial_gpu
        What is there at time 0. Shape [initial].
    """

    tasks: TaskTables
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
    initial_model: Ints
    initial_gpu: Ints


class LoadPlan(NamedTuple):
    """An order and its plan.

    Attributes
    ----------
    order, mode
        The tasks; per task nothing, since none has a choice. Shape [tasks].
    start, end, option
        Per task. The end is -1 as long as it has no place. Shape [tasks].
    begun, free, held, loading
        Per GPU: start and end of its last run, and what that holds; when loads for the next one begin. Shape [GPUs].
    here
        The stay of each model on each GPU, -1 without one. Shape [GPUs, models].
    model, place, loads, until
        Of each stay: since when it loads (-1: it was there), and the end of the run that used it last. Shape [stays].
    stays
        How many there are. Shape [1].
    wanted
        1 for the models that the run needs that looks for a place. Shape [models].
    asked, later
        Where in the order a model is needed next; after a task that needs it. Shape [models]; [tasks, needs].
    done
        Per job: its completion. Shape [jobs].
    cost
        Of the plan. Shape [1].
    """

    order: Ints
    mode: Ints
    start: Ints
    end: Ints
    option: Ints
    begun: Ints
    free: Ints
    held: Ints
    loading: Ints
    here: Ints
    model: Ints
    place: Ints
    loads: Ints
    until: Ints
    stays: Ints
    wanted: Ints
    asked: Ints
    later: Ints
    done: Ints
    cost: Floats


@kernel
def _travels(tables: LoadTables, edge: int, other: int, place: int) -> int:
    """Return how long an output takes from a place to another: 0 if they share a GPU, else the least over pairs."""
    least = FAR
    for at in range(tables.member_from[place], tables.member_from[place + 1]):
        here = tables.member[at]
        for to in range(tables.member_from[other], tables.member_from[other + 1]):
            there = tables.member[to]
            if here == there:
                return 0
            near = 1 if tables.gpu_server[here] == tables.gpu_server[there] else 0
            least = min(least, tables.tasks.transfer[edge, tables.gpu_class[there], tables.gpu_class[here], near])
    return int(least)


@kernel
def _arrival(tables: LoadTables, plan: LoadPlan, task: int, place: int) -> int:
    """Return when a run is released and its inputs are at a place."""
    tasks = tables.tasks
    latest, far = tasks.release[task], tasks.ingress[task] >= 0
    for at in range(tables.member_from[place], tables.member_from[place + 1]):
        far = far and tables.gpu_server[tables.member[at]] != tasks.ingress[task]
    if far:
        latest += tasks.input[task]
    for at in range(tasks.source_from[task], tasks.source_from[task + 1]):
        other, edge = tasks.source[at], tasks.source_edge[at]
        travels = _travels(tables, edge, tables.option_place[plan.option[other]], place)
        latest = max(latest, plan.end[other] + tasks.delay[edge] + travels)
    return int(latest)


@inlined
def _keeps(plan: LoadPlan, gpu: int, model: int, where: int) -> bool:
    """Say whether a model is on a GPU that a run needs there, in the same form."""
    stay = plan.here[gpu, model]
    return bool(stay >= 0 and plan.wanted[model] == 1 and plan.place[stay] == where)


@kernel
def _loads_from(tables: LoadTables, plan: LoadPlan, gpu: int, where: int) -> int:
    """Return when a GPU can begin to load what a run lacks there."""
    begin, held = plan.begun[gpu], plan.held[gpu]
    for model in range(len(plan.wanted)):
        stay, keeps = plan.here[gpu, model], _keeps(plan, gpu, model, where)
        if plan.wanted[model] == 1 and not keeps:
            held += tables.part[model, where]
            if stay >= 0:
                # In another form it leaves first.
                begin = max(begin, plan.until[stay])
        if stay >= 0 and (keeps or plan.until[stay] == plan.free[gpu]):
            held += tables.part[model, plan.place[stay]]
    return int(begin if held <= tables.room[gpu] else plan.free[gpu])


@kernel
def _start_at(tables: LoadTables, plan: LoadPlan, task: int, option: int) -> int:
    """Return when a run can start at a place; note when each of its GPUs begins to load what it lacks."""
    place, split, template = tables.option_place[option], tables.option_split[option], tables.template[task]
    start, latest = _arrival(tables, plan, task, place), 0
    first, beyond = tables.member_from[place], tables.member_from[place + 1]
    for at in range(first, beyond):
        gpu = tables.member[at]
        where = place if split else gpu
        plan.loading[gpu] = _loads_from(tables, plan, gpu, where)
        latest = max(latest, plan.loading[gpu])
        start = max(start, plan.free[gpu])
    for at in range(first, beyond):
        gpu = tables.member[at]
        where = place if split else gpu
        if split:
            plan.loading[gpu] = latest
        ready = plan.loading[gpu]
        for need in range(tables.need_from[template], tables.need_from[template + 1]):
            if not _keeps(plan, gpu, tables.need[need], where):
                ready += tables.load[tables.need[need], where]
        start = max(start, ready)
    return int(start)


@kernel
def _evict(tables: LoadTables, plan: LoadPlan, stay: int) -> None:
    """Have a model leave all GPUs of its place when its last run has ended."""
    place = plan.place[stay]
    for at in range(tables.member_from[place], tables.member_from[place + 1]):
        gpu = tables.member[at]
        plan.here[gpu, plan.model[stay]] = -1
        # Its room is free, for loads, from then on.
        plan.begun[gpu] = max(plan.begun[gpu], plan.until[stay])


@kernel
def _make_room(tables: LoadTables, plan: LoadPlan, gpu: int, size: int, time: int, where: int) -> None:
    """Have models leave a GPU that a run there does not need, those needed last first, until so much is free."""
    used = size
    for model in range(len(plan.asked)):
        if plan.here[gpu, model] >= 0:
            used += tables.part[model, plan.place[plan.here[gpu, model]]]
    while used > tables.room[gpu]:
        found = -1
        for model in range(len(plan.asked)):
            stay = plan.here[gpu, model]
            able = stay >= 0 and plan.until[stay] <= time and not _keeps(plan, gpu, model, where)
            if able and (found < 0 or plan.asked[model] > plan.asked[found]):
                found = model
        used -= tables.part[found, plan.place[plan.here[gpu, found]]]
        _evict(tables, plan, plan.here[gpu, found])


@kernel
def _new_stay(tables: LoadTables, plan: LoadPlan, model: int, place: int, loads: int) -> None:
    """Have a model at a place from a load on, which begins at -1 if it was there."""
    stay = plan.stays[0]
    plan.stays[0] = stay + 1
    plan.model[stay], plan.place[stay], plan.loads[stay], plan.until[stay] = model, place, loads, 0
    for at in range(tables.member_from[place], tables.member_from[place + 1]):
        plan.here[tables.member[at], model] = stay


@kernel
def _put(tables: LoadTables, plan: LoadPlan, task: int, option: int) -> None:
    """Load what a run lacks at a place, and have it run there."""
    start, place, split = (
        _start_at(tables, plan, task, option),
        tables.option_place[option],
        tables.option_split[option],
    )
    template, end = tables.template[task], start + tables.option_run[option]
    first, beyond, memory = tables.member_from[place], tables.member_from[place + 1], tables.memory[template]
    for at in range(first, beyond):
        gpu = tables.member[at]
        where, loading = place if split else gpu, plan.loading[gpu]
        lacking = plan.held[gpu] if loading < plan.free[gpu] else 0
        for need in range(tables.need_from[template], tables.need_from[template + 1]):
            model = tables.need[need]
            if not _keeps(plan, gpu, model, where):
                lacking += tables.part[model, where]
                if plan.here[gpu, model] >= 0:
                    _evict(tables, plan, plan.here[gpu, model])
        _make_room(tables, plan, gpu, lacking, loading, where)
    for at in range(first, first + 1 if split else beyond):
        gpu = tables.member[at]
        where, loading = place if split else gpu, plan.loading[gpu]
        for need in range(tables.need_from[template], tables.need_from[template + 1]):
            model = tables.need[need]
            if not _keeps(plan, gpu, model, where):
                _new_stay(tables, plan, model, where, loading)
                loading += tables.load[model, where]
    for at in range(first, beyond):
        gpu = tables.member[at]
        _make_room(tables, plan, gpu, memory, start, place if split else gpu)
        plan.begun[gpu], plan.free[gpu], plan.held[gpu] = start, end, memory
        for need in range(tables.need_from[template], tables.need_from[template + 1]):
            plan.until[plan.here[gpu, tables.need[need]]] = end
    plan.start[task], plan.end[task], plan.option[task] = start, end, option


@kernel
def _place(tables: LoadTables, plan: LoadPlan, task: int) -> None:
    """Put a run where it ends first."""
    template, found, least = tables.template[task], -1, FAR
    first, beyond = tables.need_from[template], tables.need_from[template + 1]
    for need in range(first, beyond):
        plan.wanted[tables.need[need]] = 1
    for option in range(tables.option_from[template], tables.option_from[template + 1]):
        end = _start_at(tables, plan, task, option) + tables.option_run[option]
        if end < least:
            found, least = option, end
    _put(tables, plan, task, found)
    for need in range(first, beyond):
        plan.wanted[tables.need[need]] = 0
        plan.asked[tables.need[need]] = plan.later[task, need - first]


@kernel
def _begin(tables: LoadTables, plan: LoadPlan) -> None:
    """Have nothing planned, the models there that are at time 0, and noted when the order asks for each."""
    plan.begun.fill(0)
    plan.free.fill(0)
    plan.held.fill(0)
    plan.done.fill(0)
    plan.here.fill(-1)
    plan.end.fill(-1)
    plan.asked.fill(FAR)
    plan.stays[0] = 0
    for back in range(len(plan.order)):
        position = len(plan.order) - 1 - back
        task = plan.order[position]
        first = tables.need_from[tables.template[task]]
        for need in range(first, tables.need_from[tables.template[task] + 1]):
            plan.later[task, need - first] = plan.asked[tables.need[need]]
            plan.asked[tables.need[need]] = position
    for number in range(len(tables.initial_model)):
        _new_stay(tables, plan, tables.initial_model[number], tables.initial_gpu[number], -1)


@kernel
def decode(tables: LoadTables, plan: LoadPlan) -> float:
    """Plan the runs in their order; return what the plan costs.

    Notes
    -----
    Invariant: the plan keeps every rule.
    Because: loads begin when the last run of their GPUs has begun, or later, and all that it uses has room beside them;
        the run starts when its GPUs, models and inputs are there, and all that it does not need can leave by then.
    Cost: tasks x places x GPUs of each x models.
    If wrong: loud; the checker sees every plan.
    """
    _begin(tables, plan)
    for task in plan.order:
        while plan.end[task] < 0:
            following = before(tables.tasks, plan.end, task)
            _place(tables, plan, following)
            job = tables.tasks.job[following]
            plan.done[job] = max(plan.done[job], plan.end[following])
    return cost_of(tables.tasks, plan.done)
