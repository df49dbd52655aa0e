"""Queues of requests become starts, first tokens and ends; a move runs again only what it can change.

Every GPU has a queue: its next request joins as soon as it may, and nobody passes it (rules S1 to S4). A GPU is run in
strides of equal iterations. Where no job has tasks on two GPUs, a GPU is run alone, from a state that was noted before
the first change, until it is empty where it was empty before: what follows is as it was.

A task that is no request is one of a class of its own: one seat, no prompt, one step as long as its run.

A GPU that swaps loads what the next of its queue lacks as soon as there is room, in place of idle models: those that
its queue needs latest.
"""

from __future__ import annotations

from math import log
from typing import NamedTuple

import numpy as np

from truenorth.models.instance import NONE, Ints
from truenorth.solvers.compiled import Floats, RandomState, inlined, kernel, random_below, random_unit
from truenorth.solvers.search.decoder_state import FAR
from truenorth.solvers.search.decoder_tables import InstanceTables

NOTED = 11
"""Numbers of a noted state before its lists."""
BOUNDARY, ITERATION, BUDGET, DECODES, FRESH, PROMPTS, SERVED, USED, KIND, ROOM, COPIED = range(NOTED)
NOW, TOUCHED, JOBS, ROWS, CHANGES = range(5)
PLACE, HOLD, LIMIT, PASSED = range(4)
"""What a change was: a place in a queue, a hold, a limit, a part of a queue that has passed the one behind it."""
KEEPS, SWAPS, LOOKS_AHEAD = range(3)
"""Whether a GPU keeps what it loads, or swaps; and then, whether what gives way depends on what comes in the queue."""
_ASKED = NONE
"""Stands for the end of the next stride of a GPU that is to be settled first."""
_NEAR, _SEARCHED = 8, 4
"""Places that a near move goes at most; how often a partner is drawn before a move is given up."""


class RequestTables(NamedTuple):
    """What requests take, beside `InstanceTables`.

    Attributes
    ----------
    kind, uncached, output, held
        Per task: its class, tokens to work off, tokens to come, and what it holds, in tokens.
    able
        1 where a task may be. Shape [tasks, GPU classes].
    tau
        Step times. Shape [kinds, GPU classes, most seats + 1].
    seats, chunk, rate, per, token_bytes
        Of a kind on a GPU class: a prompt's tokens take ceil(tokens x per / rate) us. Shape [kinds, GPU classes].
    needs
        1 where a kind needs a model. Shape [kinds, models].
    rank
        The models in the order in which they are loaded.
    initial
        1 where a model is ready at time 0. Shape [GPUs, models].
    tie_first, tie_offset
        Of each template the offsets of all that go where it goes.
    kv_edge, kv_row, kv_us
        1 for an edge along which KV moves; row of a task whose KV does; how long that takes, as `transfer_us` says it,
        without the delay.
    job_first
        First task of each job, and the number of tasks at the end.
    every
        A state is noted before each task whose number is divisible by this.
    apart
        Whether no job has tasks on two GPUs, and no task waits for more than its GPU.
    peaked
        Whether the worst job counts.
    swaps
        Whether a GPU may load and evict where not all that its queue needs fits beside the longest request.
    largest
        Most bytes of KV that a request holds. Shape [GPU classes].
    """

    kind: Ints
    uncached: Ints
    output: Ints
    held: Ints
    able: Ints
    tau: Ints
    seats: Ints
    chunk: Ints
    rate: Ints
    per: Ints
    token_bytes: Ints
    needs: Ints
    rank: Ints
    initial: Ints
    tie_first: Ints
    tie_offset: Ints
    kv_edge: Ints
    kv_row: Ints
    kv_us: Ints
    job_first: Ints
    every: int
    apart: bool
    peaked: bool
    swaps: bool
    largest: Ints


class QueuedPlan(NamedTuple):
    """Decisions, and what follows from them.

    Attributes
    ----------
    queue, length
        Tasks of each GPU in their order, and how many. Shapes [GPUs, tasks] and [GPUs].
    limit
        Per GPU: most requests at once.
    gpu, place, not_before
        Per task: its GPU, its place in that queue, before when it does not join.
    start, first, end, alone
        Per task; `alone` is 1 where it joined an empty GPU.
    cost, late
        Per job: what it costs, and what of it counts if it is the worst.
    users
        Tasks of a kind on a GPU. Shape [GPUs, kinds].
    room, open_us
        Bytes that models leave on a GPU, below 0 if they do not fit; when those of a kind are ready there.
    swaps
        Per GPU: one of KEEPS to LOOKS_AHEAD; if it swaps, `room` and `open_us` are those of an empty GPU.
    total
        Cost of the plan, and the worst of it.
    """

    queue: Ints
    length: Ints
    limit: Ints
    gpu: Ints
    place: Ints
    not_before: Ints
    start: Ints
    first: Ints
    end: Ints
    alone: Ints
    cost: Floats
    late: Floats
    users: Ints
    room: Ints
    open_us: Ints
    swaps: Ints
    total: Floats


class NodeStates(NamedTuple):
    """GPUs at a boundary each, with the stride that is to come.

    Attributes
    ----------
    state
        Numbers BOUNDARY to COPIED, the last two of which are bytes that models leave, and when the copy engine is free.
        Shape [GPUs, NOTED].
    decodes
        A heap of iteration x tasks + task: after which iteration whose last token comes. Shape [GPUs, seats].
    fresh, prompt, rest
        Who joined as a decode at this boundary; prompts under way in their order, and tokens left of each.
    position
        Per GPU: who is next in its queue.
    strides, length_us, ends_us
        The stride to come: iterations, length of each, its end; FAR if none.
    held
        When each model is ready on a GPU that swaps; FAR if it is not there. Shape [GPUs, models].
    """

    state: Ints
    decodes: Ints
    fresh: Ints
    prompt: Ints
    rest: Ints
    position: Ints
    strides: Ints
    length_us: Ints
    ends_us: Ints
    held: Ints


class QueueTrial(NamedTuple):
    """What a move changes, until it is accepted.

    Attributes
    ----------
    counter
        Numbers NOW to CHANGES: which trial it is, and how many entries the lists have.
    stamp, touched, start, first, end, alone
        Per task: in which trial it was run last; a list of those of this one; what came of it.
    job_stamp, jobs, cost, late
        The same for jobs.
    since, until
        Per GPU: first and last changed place of its queue; FAR and NONE if none is.
    grown
        By how much jobs of one task that have ended cost more than before.
    change
        What was changed: one of PLACE to PASSED, and what it was before. Shape [changes, 5].
    row, row_side, row_stamp, rows
        Noted states on two sides, one of which is that of the plan.
    """

    counter: Ints
    stamp: Ints
    touched: Ints
    start: Ints
    first: Ints
    end: Ints
    alone: Ints
    job_stamp: Ints
    jobs: Ints
    cost: Floats
    late: Floats
    since: Ints
    until: Ints
    grown: Floats
    change: Ints
    row: Ints
    row_side: Ints
    row_stamp: Ints
    rows: Ints


class Queues(NamedTuple):
    """All that the kernels work on."""

    tables: InstanceTables
    requests: RequestTables
    plan: QueuedPlan
    nodes: NodeStates
    trial: QueueTrial


# A GPU and its iterations


@inlined
def _push(nodes: NodeStates, gpu: int, key: int) -> None:
    at = nodes.state[gpu, DECODES]
    nodes.state[gpu, DECODES] += 1
    while at > 0:
        above = (at - 1) >> 1
        # Written out: a heap of a fixed row compiles to a few instructions, and allocates nothing.
        if nodes.decodes[gpu, above] <= key:
            break
        nodes.decodes[gpu, at] = nodes.decodes[gpu, above]
        at = above
    nodes.decodes[gpu, at] = key


@inlined
def _pop(nodes: NodeStates, gpu: int) -> int:
    least = int(nodes.decodes[gpu, 0])
    nodes.state[gpu, DECODES] -= 1
    count = nodes.state[gpu, DECODES]
    key = nodes.decodes[gpu, count]
    at, below = 0, 1
    while below < count:
        # The smaller of the two below moves up, until the last key fits.
        if below + 1 < count and nodes.decodes[gpu, below + 1] < nodes.decodes[gpu, below]:
            below += 1
        if nodes.decodes[gpu, below] >= key:
            break
        nodes.decodes[gpu, at] = nodes.decodes[gpu, below]
        at, below = below, 2 * below + 1
    nodes.decodes[gpu, at] = key
    return least


@inlined
def _end_of(on: Queues, task: int) -> int:
    """Return when a task ends in this trial, FAR if it has not been run yet."""
    plan, trial = on.plan, on.trial
    if trial.stamp[task] == trial.counter[NOW]:
        return int(trial.end[task])
    gpu = plan.gpu[task]
    return FAR if trial.since[gpu] < FAR and plan.place[task] >= on.nodes.position[gpu] else int(plan.end[task])


@inlined
def _arrival(on: Queues, task: int, gpu: int) -> int:
    """Return when a task may join a GPU at the earliest; FAR as long as an input has no end."""
    tables, plan = on.tables, on.plan
    template, job = tables.task_template[task], tables.task_job[task]
    ready = max(plan.not_before[task], plan.open_us[gpu, on.requests.kind[task]])
    brought = tables.release_us[job]
    if tables.job_ingress[job] != NONE and tables.job_ingress[job] != tables.gpu_server[gpu]:
        brought += tables.input_us[template]
    ready = max(ready, brought)
    for entry in range(tables.input_first[template], tables.input_first[template + 1]):
        source = task + tables.input_offset[entry]
        ended = _end_of(on, source)
        # Asked again when that request has ended: no arrival can be told before.
        if ended >= FAR:
            return int(FAR)
        other = plan.gpu[source]
        close = int(tables.gpu_server[other] == tables.gpu_server[gpu]) + int(other == gpu)
        here, there = tables.gpu_class[gpu], tables.gpu_class[other]
        edge = tables.input_edge[entry]
        if on.requests.kv_edge[edge] == 1:
            ended += on.requests.kv_us[on.requests.kv_row[source], there, here, close]
            ended += tables.transfer_us[edge, 0, 0, 2]  # the delay alone
        else:
            ended += tables.transfer_us[edge, there, here, close]
        ready = max(ready, ended)
    return int(ready)


@inlined
def _touch(on: Queues, task: int) -> None:
    trial = on.trial
    trial.stamp[task] = trial.counter[NOW]
    trial.touched[trial.counter[TOUCHED]] = task
    trial.counter[TOUCHED] += 1
    # Until it is known: who waits for it must not take the old end for the new one.
    trial.end[task] = FAR


@inlined
def _join(on: Queues, gpu: int, task: int, alone: int) -> None:
    requests, nodes, trial = on.requests, on.nodes, on.trial
    kind, c = requests.kind[task], on.tables.gpu_class[gpu]
    _touch(on, task)
    trial.start[task] = nodes.state[gpu, BOUNDARY]
    trial.alone[task] = alone
    nodes.state[gpu, SERVED] += 1
    nodes.state[gpu, USED] += requests.held[task] * requests.token_bytes[kind, c]
    uncached = requests.uncached[task]
    if uncached > 0:
        nodes.prompt[gpu, nodes.state[gpu, PROMPTS]] = task
        nodes.rest[gpu, nodes.state[gpu, PROMPTS]] = uncached
        nodes.state[gpu, PROMPTS] += 1
        # Prompts share the chunk of an iteration in the order in which they joined.
        nodes.state[gpu, BUDGET] -= min(uncached, nodes.state[gpu, BUDGET])
    else:
        nodes.fresh[gpu, nodes.state[gpu, FRESH]] = task
        nodes.state[gpu, FRESH] += 1
        # Iteration and task in one number, so that the heap gives who ends first, the lowest of equals.
        _push(nodes, gpu, (nodes.state[gpu, ITERATION] + requests.output[task]) * len(trial.stamp) + task)


@inlined
def _fits(on: Queues, gpu: int, task: int) -> bool:
    """Say whether a seat and memory are free for a task of the kind that is served."""
    requests, state = on.requests, on.nodes.state
    kind, c = requests.kind[task], on.tables.gpu_class[gpu]
    if state[gpu, SERVED] >= min(requests.seats[kind, c], on.plan.limit[gpu]):
        return False
    return bool(state[gpu, USED] + requests.held[task] * requests.token_bytes[kind, c] <= state[gpu, ROOM])


# Models of a GPU that swaps


@inlined
def _next_use(on: Queues, gpu: int, model: int) -> int:
    """Return the place in a queue, from its next on, of the first task that needs a model; FAR if none does."""
    for at in range(on.nodes.position[gpu], on.plan.length[gpu]):
        if on.requests.needs[on.requests.kind[on.plan.queue[gpu, at]], model] == 1:
            return at
    return int(FAR)


@inlined
def _idles(on: Queues, gpu: int, model: int, kind: int) -> bool:
    """Say whether a model is there, and neither what is served nor a task of a kind needs it."""
    state, needs = on.nodes.state, on.requests.needs
    if on.nodes.held[gpu, model] >= FAR or needs[kind, model] == 1:
        return False
    return bool(state[gpu, SERVED] == 0 or needs[state[gpu, KIND], model] == 0)


@inlined
def _free(on: Queues, gpu: int, lacking: int, kind: int) -> bool:
    """Have idle models leave until no bytes are lacking, none if that would not do; say whether none are lacking."""
    weights, held, idle = on.tables.weight_bytes, on.nodes.held, 0
    if lacking <= 0:
        return True
    for model in range(len(weights)):
        if _idles(on, gpu, model, kind):
            idle += weights[model]
    if idle < lacking:
        return False
    left = lacking
    while left > 0:
        latest, leaves = -1, 0
        for model in range(len(weights)):
            if _idles(on, gpu, model, kind):
                # Where it is the only one its next use is not asked for: what was noted before depends on nothing else.
                use = _next_use(on, gpu, model) if on.plan.swaps[gpu] == LOOKS_AHEAD else 0
                if use >= latest:
                    latest, leaves = use, model
        held[gpu, leaves] = FAR
        on.nodes.state[gpu, ROOM] += weights[leaves]
        left -= weights[leaves]
    return True


@inlined
def _load_for(on: Queues, gpu: int, task: int) -> int:
    """Load what a task lacks that is next in its queue, as far as there is room; return when all is ready, or FAR."""
    requests, state, held = on.requests, on.nodes.state, on.nodes.held
    kind, c, ready = requests.kind[task], on.tables.gpu_class[gpu], 0
    for model in range(held.shape[1]):
        if requests.needs[kind, model] == 0:
            continue
        if held[gpu, model] >= FAR:
            # Loads that stop computing wait until nobody is served.
            if not on.tables.overlap_loads and state[gpu, SERVED] > 0:
                return int(FAR)
            lacking = on.tables.weight_bytes[model] + state[gpu, USED] - state[gpu, ROOM]
            if not _free(on, gpu, lacking, kind):
                return int(FAR)
            # Room may be given before the copy engine is free: nobody joins before this task.
            state[gpu, COPIED] = max(state[gpu, COPIED], state[gpu, BOUNDARY]) + on.tables.load_us[model, c]
            state[gpu, ROOM] -= on.tables.weight_bytes[model]
            held[gpu, model] = state[gpu, COPIED]
        ready = max(ready, held[gpu, model])
    return int(ready)


@inlined
def _set_stride(on: Queues, gpu: int) -> None:
    """Say how far iterations are alike, and cut that where the next of the queue may join before."""
    requests, plan, nodes = on.requests, on.plan, on.nodes
    kind, c = nodes.state[gpu, KIND], on.tables.gpu_class[gpu]
    length_us = requests.tau[kind, c, nodes.state[gpu, DECODES]]
    # As long as nothing ends, joins or comes to the end of a prompt, iterations take equally long.
    most = FAR
    # The first iteration of who joined gives its first token, which has to be noted.
    if nodes.state[gpu, FRESH] > 0:
        most = 1
    elif nodes.state[gpu, DECODES] > 0:
        most = nodes.decodes[gpu, 0] // len(on.trial.stamp) - nodes.state[gpu, ITERATION]
    prompts, chunk = nodes.state[gpu, PROMPTS], requests.chunk[kind, c]
    if prompts > 0:
        taken = chunk - nodes.state[gpu, BUDGET]
        length_us += (taken * requests.per[kind, c] + requests.rate[kind, c] - 1) // requests.rate[kind, c]
        # A lone prompt takes full chunks until its last; several share them in another way each time.
        most = min(most, max(1, nodes.rest[gpu, 0] // chunk) if prompts == 1 else 1)
    elif nodes.position[gpu] < plan.length[gpu]:
        task = plan.queue[gpu, nodes.position[gpu]]
        if requests.kind[task] == kind and _fits(on, gpu, task):
            ready = _arrival(on, task, gpu)
            # Rounded up: nobody joins before the boundary at or after its arrival.
            if ready < FAR:
                most = min(most, (ready - nodes.state[gpu, BOUNDARY] + length_us - 1) // length_us)
    nodes.strides[gpu] = most
    nodes.length_us[gpu] = length_us
    nodes.ends_us[gpu] = nodes.state[gpu, BOUNDARY] + most * length_us


@inlined
def _makes_room(on: Queues, gpu: int, task: int) -> bool:
    """Have idle models leave for the KV of a task that is next, has arrived and has a seat; say whether it fits now."""
    requests, state = on.requests, on.nodes.state
    kind, c = requests.kind[task], on.tables.gpu_class[gpu]
    if state[gpu, SERVED] >= min(requests.seats[kind, c], on.plan.limit[gpu]):
        return False
    if _arrival(on, task, gpu) > state[gpu, BOUNDARY]:
        return False
    lacking = state[gpu, USED] + requests.held[task] * requests.token_bytes[kind, c] - state[gpu, ROOM]
    return _free(on, gpu, lacking, kind)


@inlined
def _settle(on: Queues, gpu: int) -> bool:
    """Let everybody join who may at this boundary, and say how far it goes from there; False if somebody never fits."""
    requests, plan, nodes, state = on.requests, on.plan, on.nodes, on.nodes.state
    c = on.tables.gpu_class[gpu]
    while nodes.position[gpu] < plan.length[gpu]:
        task = plan.queue[gpu, nodes.position[gpu]]
        kind = requests.kind[task]
        empty = state[gpu, SERVED] == 0
        swaps, loaded = plan.swaps[gpu] != KEEPS, 0
        if swaps:
            loaded = _load_for(on, gpu, task)
        if not empty and (kind != state[gpu, KIND] or state[gpu, BUDGET] < 1):
            break
        if not empty and not _fits(on, gpu, task) and not (swaps and _makes_room(on, gpu, task)):
            break
        ready = max(_arrival(on, task, gpu), loaded)
        if not empty and ready > state[gpu, BOUNDARY]:
            break
        if empty:
            if ready >= FAR:
                break
            begin = max(state[gpu, BOUNDARY], ready)
            # From here on all is as in the plan: the rest of the queue need not be run again.
            unchanged = requests.apart and not swaps and nodes.position[gpu] > on.trial.until[gpu]
            if unchanged and plan.alone[task] == 1 and plan.start[task] == begin:
                nodes.position[gpu] = plan.length[gpu]
                break
            state[gpu, BOUNDARY], state[gpu, ITERATION], state[gpu, USED] = begin, 0, 0
            state[gpu, BUDGET], state[gpu, KIND] = requests.chunk[kind, c], kind
            # It does not fit an empty GPU, so it never will.
            if not _fits(on, gpu, task) and not (swaps and _makes_room(on, gpu, task)):
                return False
        _join(on, gpu, task, int(empty))
        nodes.position[gpu] += 1
        _note(on, gpu)
    if state[gpu, SERVED] > 0:
        _set_stride(on, gpu)
    else:
        nodes.ends_us[gpu] = FAR
    return True


@inlined
def _advance(on: Queues, gpu: int) -> None:
    """Take the stride of a GPU; those whose last token comes are ended."""
    requests, nodes, state, trial = on.requests, on.nodes, on.nodes.state, on.trial
    chunk, n_tasks = requests.chunk[state[gpu, KIND], on.tables.gpu_class[gpu]], len(trial.stamp)
    state[gpu, BOUNDARY] = now = nodes.ends_us[gpu]
    state[gpu, ITERATION] += nodes.strides[gpu]
    # They came without a prompt, so that their first iteration gives their first token.
    for at in range(state[gpu, FRESH]):
        trial.first[nodes.fresh[gpu, at]] = now
    state[gpu, FRESH] = 0
    while state[gpu, DECODES] > 0 and nodes.decodes[gpu, 0] // n_tasks == state[gpu, ITERATION]:
        _leave(on, gpu, _pop(nodes, gpu) % n_tasks, now)
    left, done, prompts = nodes.strides[gpu] * chunk, 0, state[gpu, PROMPTS]
    while done < prompts and left > 0:
        if nodes.rest[gpu, done] > left:
            nodes.rest[gpu, done] -= left
            break
        left -= nodes.rest[gpu, done]
        task = nodes.prompt[gpu, done]
        trial.first[task] = now
        if requests.output[task] == 1:
            _leave(on, gpu, task, now)
        else:
            _push(nodes, gpu, (state[gpu, ITERATION] + requests.output[task] - 1) * n_tasks + task)
        done += 1
    for at in range(done, prompts):
        nodes.prompt[gpu, at - done] = nodes.prompt[gpu, at]
        nodes.rest[gpu, at - done] = nodes.rest[gpu, at]
    state[gpu, PROMPTS] = prompts - done
    # A new iteration has a whole chunk, less what the prompt under way takes of it.
    state[gpu, BUDGET] = chunk
    if state[gpu, PROMPTS] > 0:
        state[gpu, BUDGET] -= min(chunk, nodes.rest[gpu, 0])


@inlined
def _leave(on: Queues, gpu: int, task: int, now: int) -> None:
    requests, state, job = on.requests, on.nodes.state, on.tables.task_job[task]
    on.trial.end[task] = now
    if requests.job_first[job + 1] - requests.job_first[job] == 1:
        on.trial.grown[0] += _cost(on.tables, job, now) - on.plan.cost[job]
    state[gpu, SERVED] -= 1
    state[gpu, USED] -= requests.held[task] * requests.token_bytes[requests.kind[task], on.tables.gpu_class[gpu]]


# Noted states


@inlined
def _note(on: Queues, gpu: int) -> None:
    """Note the state before the next of the queue, if that is one of those that have a row."""
    plan, nodes, trial = on.plan, on.nodes, on.trial
    if not on.requests.apart or nodes.position[gpu] >= plan.length[gpu]:
        return
    task = plan.queue[gpu, nodes.position[gpu]]
    if task % on.requests.every != 0:
        return
    row = task // on.requests.every
    side = 1 - trial.row_side[row]
    if trial.row_stamp[row] != trial.counter[NOW]:
        trial.row_stamp[row] = trial.counter[NOW]
        trial.rows[trial.counter[ROWS]] = row
        trial.counter[ROWS] += 1
    at = 0
    for index in range(NOTED):
        trial.row[side, row, at] = nodes.state[gpu, index]
        at += 1
    for index in range(nodes.state[gpu, DECODES]):
        trial.row[side, row, at] = nodes.decodes[gpu, index]
        at += 1
    for index in range(nodes.state[gpu, FRESH]):
        trial.row[side, row, at] = nodes.fresh[gpu, index]
        at += 1
    for index in range(nodes.state[gpu, PROMPTS]):
        trial.row[side, row, at] = nodes.prompt[gpu, index]
        trial.row[side, row, at + 1] = nodes.rest[gpu, index]
        at += 2
    if plan.swaps[gpu] != KEEPS:
        for model in range(nodes.held.shape[1]):
            trial.row[side, row, at] = nodes.held[gpu, model]
            at += 1


@inlined
def _go_back(on: Queues, gpu: int) -> None:
    """Set a GPU to the last state that was noted before its first change, or to time 0."""
    requests, plan, nodes, trial = on.requests, on.plan, on.nodes, on.trial
    position = 0
    if requests.apart and trial.since[gpu] > 0:
        position = min(trial.since[gpu], plan.length[gpu]) - 1
        while position > 0 and plan.queue[gpu, position] % requests.every != 0:
            position -= 1
    nodes.position[gpu] = max(position, 0)
    nodes.ends_us[gpu] = FAR
    if position <= 0:
        for index in range(NOTED):
            nodes.state[gpu, index] = 0
        nodes.state[gpu, ROOM] = plan.room[gpu]
        _begin_with(on, gpu)
        return
    row = plan.queue[gpu, position] // requests.every
    side, at = trial.row_side[row], NOTED
    for index in range(NOTED):
        nodes.state[gpu, index] = trial.row[side, row, index]
    for index in range(nodes.state[gpu, DECODES]):
        nodes.decodes[gpu, index] = trial.row[side, row, at]
        _keep(on, nodes.decodes[gpu, index] % len(trial.stamp))
        at += 1
    for index in range(nodes.state[gpu, FRESH]):
        nodes.fresh[gpu, index] = trial.row[side, row, at]
        at += 1
    for index in range(nodes.state[gpu, PROMPTS]):
        nodes.prompt[gpu, index] = trial.row[side, row, at]
        nodes.rest[gpu, index] = trial.row[side, row, at + 1]
        _keep(on, nodes.prompt[gpu, index])
        at += 2
    if plan.swaps[gpu] != KEEPS:
        for model in range(nodes.held.shape[1]):
            nodes.held[gpu, model] = trial.row[side, row, at]
            at += 1


@inlined
def _begin_with(on: Queues, gpu: int) -> None:
    """Have on a GPU that swaps the models of time 0 that its queue needs."""
    requests, held = on.requests, on.nodes.held
    if on.plan.swaps[gpu] == KEEPS:
        return
    for model in range(held.shape[1]):
        held[gpu, model] = FAR
        if requests.initial[gpu, model] == 0:
            continue
        for kind in range(requests.needs.shape[0]):
            if requests.needs[kind, model] == 1 and on.plan.users[gpu, kind] > 0:
                held[gpu, model] = 0
        if held[gpu, model] == 0:
            on.nodes.state[gpu, ROOM] -= on.tables.weight_bytes[model]


@inlined
def _keep(on: Queues, task: int) -> None:
    """Go on with a task that has joined before."""
    _touch(on, task)
    on.trial.start[task] = on.plan.start[task]
    on.trial.first[task] = on.plan.first[task]
    on.trial.alone[task] = on.plan.alone[task]


# A trial


@kernel
def run(on: Queues, hopeless: float) -> float:
    """Run again what has changed; return by how much the cost then grows, infinitely if some task never ends.

    Parameters
    ----------
    hopeless
        Growth of the jobs that have ended so far from which on a trial is given up, as if it were infinite.

    Notes
    -----
    Invariant: what was not run again starts, and ends, as it would if all were run again.
    Because: a GPU is run from a state that depends on unchanged places alone; it is left where it is empty before a
    task at the instant at which it was empty before that task, nobody behind having changed place. Where jobs have
    tasks on several GPUs all of them are run, by time, so that no input comes later than it is asked for.
    Cost: O(log seats) for each stride of what is run, and as many GPUs as there are for each where jobs go across.
    If wrong: the checker refuses a plan, for every plan that is offered was run from its beginning.
    """
    if not _begin(on):
        return np.inf
    while True:
        gpu = _next(on)
        if on.nodes.ends_us[gpu] >= FAR:
            break
        if on.nodes.ends_us[gpu] != _ASKED:
            served = on.nodes.state[gpu, SERVED]
            _advance(on, gpu)
            if on.trial.grown[0] > hopeless:
                return np.inf
            if not on.requests.apart and on.nodes.state[gpu, SERVED] < served:
                _ask_others(on)
        if not _settle(on, gpu):
            return np.inf
    for gpu in range(len(on.plan.length)):
        if on.trial.since[gpu] < FAR and on.nodes.position[gpu] < on.plan.length[gpu]:
            return np.inf  # some wait for each other
    return _growth(on)


@inlined
def _begin(on: Queues) -> bool:
    """Begin a trial: every GPU that has changed goes back; False if one of them cannot hold its models."""
    plan, trial = on.plan, on.trial
    trial.counter[NOW] += 1
    trial.grown[0] = 0.0
    trial.counter[TOUCHED] = trial.counter[JOBS] = trial.counter[ROWS] = 0
    for gpu in range(len(plan.length)):
        if not on.requests.apart:
            trial.since[gpu], trial.until[gpu] = 0, plan.length[gpu]
        on.nodes.ends_us[gpu] = FAR
        if trial.since[gpu] < FAR:
            if plan.length[gpu] > 0 and plan.room[gpu] < 0:
                return False
            _go_back(on, gpu)
            on.nodes.ends_us[gpu] = _ASKED
    return True


@inlined
def _next(on: Queues) -> int:
    """Return the GPU whose stride ends first; one that is to be settled comes before."""
    soonest = 0
    for gpu in range(len(on.nodes.ends_us)):
        if on.nodes.ends_us[gpu] < on.nodes.ends_us[soonest]:
            soonest = gpu
    return soonest


@inlined
def _ask_others(on: Queues) -> None:
    """Have every GPU settled whose next may have waited for an end: it may join, or have a stride stop for it."""
    for gpu in range(len(on.plan.length)):
        if on.nodes.position[gpu] < on.plan.length[gpu]:
            on.nodes.ends_us[gpu] = _ASKED


@inlined
def _growth(on: Queues) -> float:
    """Return by how much what was run costs more than before, job by job."""
    tables, plan, trial = on.tables, on.plan, on.trial
    grown = 0.0
    for index in range(trial.counter[TOUCHED]):
        job = tables.task_job[trial.touched[index]]
        if trial.job_stamp[job] == trial.counter[NOW]:
            continue
        trial.job_stamp[job] = trial.counter[NOW]
        trial.jobs[trial.counter[JOBS]] = job
        trial.counter[JOBS] += 1
        ended = 0
        for task in range(on.requests.job_first[job], on.requests.job_first[job + 1]):
            ended = max(ended, _end_of(on, task))
        trial.cost[job] = _cost(tables, job, ended)
        trial.late[job] = tables.peak[job] * max(0, ended - tables.due_us[job])
        grown += trial.cost[job] - plan.cost[job]
    return grown + _worst(on) - plan.total[1] if on.requests.peaked else grown


@inlined
def _cost(tables: InstanceTables, job: int, end: int) -> float:
    """Return what a job costs that ends then, the worst one aside."""
    beyond = max(0, end - tables.due_us[job])
    return float(tables.linear[job] * beyond + tables.step[job] * min(beyond, 1))


@inlined
def _worst(on: Queues) -> float:
    plan, trial = on.plan, on.trial
    worst = 0.0
    for job in range(len(plan.late)):
        worst = max(worst, trial.late[job] if trial.job_stamp[job] == trial.counter[NOW] else plan.late[job])
    return worst


@kernel
def accept(on: Queues, grown: float) -> None:
    """Make what was run the plan."""
    plan, trial = on.plan, on.trial
    for index in range(trial.counter[TOUCHED]):
        task = trial.touched[index]
        plan.start[task], plan.first[task] = trial.start[task], trial.first[task]
        plan.end[task], plan.alone[task] = trial.end[task], trial.alone[task]
    if on.requests.peaked:
        plan.total[1] = _worst(on)
    plan.total[0] += grown
    for index in range(trial.counter[JOBS]):
        job = trial.jobs[index]
        plan.cost[job], plan.late[job] = trial.cost[job], trial.late[job]
    for index in range(trial.counter[ROWS]):
        trial.row_side[trial.rows[index]] = 1 - trial.row_side[trial.rows[index]]
    _forget_changes(on)


@inlined
def _forget_changes(on: Queues) -> None:
    on.trial.counter[CHANGES] = 0
    for gpu in range(len(on.trial.since)):
        on.trial.since[gpu], on.trial.until[gpu] = FAR, NONE


# Changes


@kernel
def open_gpu(on: Queues, gpu: int) -> None:
    """Say what memory models leave on a GPU, and when those of each kind are ready: all are loaded first."""
    tables, requests, plan = on.tables, on.requests, on.plan
    c, ready_us, used, models = tables.gpu_class[gpu], 0, 0, 0
    n_kinds = requests.needs.shape[0]
    for kind in range(n_kinds):
        plan.open_us[gpu, kind] = 0
    for index in range(len(requests.rank)):
        model = requests.rank[index]
        needed = False
        for kind in range(n_kinds):
            needed = needed or (requests.needs[kind, model] == 1 and plan.users[gpu, kind] > 0)
        models += int(needed)
        if requests.initial[gpu, model] == 1:
            used += tables.weight_bytes[model]
        elif needed:
            used += tables.weight_bytes[model]
            ready_us += tables.load_us[model, c]
            for kind in range(n_kinds):
                if requests.needs[kind, model] == 1:
                    plan.open_us[gpu, kind] = ready_us
    if not tables.overlap_loads:
        for kind in range(n_kinds):
            plan.open_us[gpu, kind] = ready_us
    plan.room[gpu] = tables.memory_bytes[gpu] - used
    plan.swaps[gpu] = KEEPS
    if requests.swaps and plan.room[gpu] < requests.largest[c]:
        plan.swaps[gpu] = SWAPS if models <= 2 else LOOKS_AHEAD
        plan.room[gpu] = tables.memory_bytes[gpu]
        for kind in range(n_kinds):
            plan.open_us[gpu, kind] = 0


@inlined
def _changed(on: Queues, gpu: int, first: int, last: int) -> None:
    trial = on.trial
    since = 0 if on.plan.swaps[gpu] == LOOKS_AHEAD else first
    trial.since[gpu], trial.until[gpu] = min(trial.since[gpu], since), max(trial.until[gpu], last)


@inlined
def _count_user(on: Queues, gpu: int, kind: int, more: int) -> None:
    """Count tasks of a kind; the first and the last one change which models a GPU holds."""
    users = on.plan.users
    before = users[gpu, kind]
    users[gpu, kind] += more
    if (before == 0) != (users[gpu, kind] == 0):
        open_gpu(on, gpu)
        _changed(on, gpu, 0, on.plan.length[gpu])


@inlined
def _move(on: Queues, task: int, gpu: int, place: int) -> None:
    """Take a task from its place, and put it at another one, counted without it."""
    plan, kind = on.plan, on.requests.kind[task]
    source = plan.gpu[task]
    _changed(on, source, plan.place[task], plan.place[task])
    for at in range(plan.place[task], plan.length[source] - 1):
        moved = plan.queue[source, at + 1]
        plan.queue[source, at], plan.place[moved] = moved, at
    plan.length[source] -= 1
    put = min(place, plan.length[gpu])
    for at in range(plan.length[gpu], put, -1):
        moved = plan.queue[gpu, at - 1]
        plan.queue[gpu, at], plan.place[moved] = moved, at
    plan.queue[gpu, put], plan.place[task], plan.gpu[task] = task, put, gpu
    plan.length[gpu] += 1
    _changed(on, gpu, put, max(put, on.trial.until[gpu] + 1))
    if source != gpu:
        _count_user(on, source, kind, -1)
        _count_user(on, gpu, kind, 1)


@inlined
def _remember(on: Queues, what: int, of: int, was: int, where: int) -> None:
    trial = on.trial
    at = trial.counter[CHANGES]
    trial.change[at, 0], trial.change[at, 1] = what, of
    trial.change[at, 2], trial.change[at, 3] = was, where
    trial.counter[CHANGES] += 1


@inlined
def _turn_round(on: Queues, gpu: int, first: int, beyond: int) -> None:
    """Put a part of a queue into the opposite order."""
    plan, low, high = on.plan, first, beyond - 1
    while low < high:
        plan.queue[gpu, low], plan.queue[gpu, high] = plan.queue[gpu, high], plan.queue[gpu, low]
        low, high = low + 1, high - 1
    for at in range(first, beyond):
        plan.place[plan.queue[gpu, at]] = at


@inlined
def _rotate(on: Queues, gpu: int, first: int, cut: int, beyond: int) -> None:
    """Have the part of a queue before a place pass the one behind it."""
    _turn_round(on, gpu, first, cut)
    _turn_round(on, gpu, cut, beyond)
    _turn_round(on, gpu, first, beyond)
    _changed(on, gpu, first, beyond - 1)


@inlined
def _pass(on: Queues, gpu: int, first: int, cut: int, beyond: int) -> None:
    """Have a part of a queue pass the one behind it, and remember that."""
    at = on.trial.counter[CHANGES]
    _remember(on, PASSED, gpu, first, first + beyond - cut)
    on.trial.change[at, 4] = beyond
    _rotate(on, gpu, first, cut, beyond)


@inlined
def _relocate(on: Queues, task: int, gpu: int, place: int) -> None:
    _remember(on, PLACE, task, on.plan.gpu[task], on.plan.place[task])
    _move(on, task, gpu, place)


@inlined
def _undo(on: Queues) -> None:
    """Take all changes back, the last one first."""
    plan, trial = on.plan, on.trial
    for index in range(trial.counter[CHANGES] - 1, -1, -1):
        what, of = trial.change[index, 0], trial.change[index, 1]
        if what == PLACE:
            _move(on, of, trial.change[index, 2], trial.change[index, 3])
        elif what == PASSED:
            _rotate(on, of, trial.change[index, 2], trial.change[index, 3], trial.change[index, 4])
        elif what == HOLD:
            plan.not_before[of] = trial.change[index, 2]
        else:
            plan.limit[of] = trial.change[index, 2]
    _forget_changes(on)


@inlined
def _place_at(on: Queues, gpu: int, now: int) -> int:
    """Return the first place of a queue whose task starts at a time or later."""
    plan = on.plan
    low, high = 0, plan.length[gpu]
    while low < high:
        middle = (low + high) >> 1
        if plan.start[plan.queue[gpu, middle]] < now:
            low = middle + 1
        else:
            high = middle
    return low


@inlined
def _begin_of(on: Queues, gpu: int, place: int) -> int:
    """Return the first place of a turn: of the tasks of one class behind each other, that at a place among them."""
    plan, kind, at = on.plan, on.requests.kind, place
    while at > 0 and kind[plan.queue[gpu, at - 1]] == kind[plan.queue[gpu, place]]:
        at -= 1
    return at


@inlined
def _beyond(on: Queues, gpu: int, place: int) -> int:
    """Return the place behind a turn, of which a place is given."""
    plan, kind, at = on.plan, on.requests.kind, place + 1
    while at < plan.length[gpu] and kind[plan.queue[gpu, at]] == kind[plan.queue[gpu, place]]:
        at += 1
    return at


@inlined
def _near_own(on: Queues, gpu: int, kind: int, place: int) -> int:
    """Return the place of a queue nearest to one that is in a turn of a kind; that place itself if there is none."""
    plan = on.plan
    for by in range(plan.length[gpu] + 1):
        if place - by > 0 and on.requests.kind[plan.queue[gpu, place - by - 1]] == kind:
            return place - by
        if place + by < plan.length[gpu] and on.requests.kind[plan.queue[gpu, place + by]] == kind:
            return place + by
    return place


@inlined
def _go_to(on: Queues, task: int, gpu: int, around: int) -> bool:
    """Move a task, and all that is tied to it, to another GPU, each where its own start falls; False if one cannot."""
    tables, requests, plan = on.tables, on.requests, on.plan
    template = tables.task_template[task]
    first, beyond = requests.tie_first[template], requests.tie_first[template + 1]
    if on.trial.counter[CHANGES] + beyond - first > len(on.trial.change):
        return False
    for entry in range(first, beyond):
        if requests.able[task + requests.tie_offset[entry], tables.gpu_class[gpu]] == 0:
            return False
    for entry in range(first, beyond):
        tied = task + requests.tie_offset[entry]
        place = max(0, _place_at(on, gpu, plan.start[tied]) + around)
        if plan.swaps[gpu] != KEEPS:
            place = _near_own(on, gpu, requests.kind[tied], min(place, plan.length[gpu]))
        _relocate(on, tied, gpu, place)
    return True


@inlined
def _draw_around(random: RandomState, reach: int) -> int:
    return random_below(random, 2 * reach + 1) - reach


@inlined
def _shift(on: Queues, random: RandomState, task: int, reach: int) -> bool:
    """Move a task to the front or the back of its queue, so many places at most; where models swap, of its turn."""
    plan, gpu = on.plan, on.plan.gpu[task]
    first, last = 0, plan.length[gpu] - 1
    if plan.swaps[gpu] != KEEPS:
        first, last = _begin_of(on, gpu, plan.place[task]), _beyond(on, gpu, plan.place[task]) - 1
    put = min(max(plan.place[task] + _draw_around(random, reach), first), last)
    if put == plan.place[task]:
        return False
    _relocate(on, task, gpu, put)
    return True


@inlined
def _exchange(on: Queues, random: RandomState, task: int) -> bool:
    """Exchange a task and one of about the same time on another GPU."""
    plan, gpu = on.plan, on.plan.gpu[task]
    for _ in range(_SEARCHED):
        other = random_below(random, len(plan.length))
        if other != gpu and plan.length[other] > 0:
            at = _place_at(on, other, plan.start[task]) + _draw_around(random, _NEAR)
            partner = plan.queue[other, min(max(at, 0), plan.length[other] - 1)]
            return _go_to(on, task, other, 0) and _go_to(on, partner, gpu, 0)
    return False


@inlined
def _hold(on: Queues, random: RandomState, task: int) -> bool:
    """Hold a task until another one of its GPU ends; or one that is held no more."""
    plan, gpu, until = on.plan, on.plan.gpu[task], 0
    if plan.not_before[task] == 0:
        until = plan.end[plan.queue[gpu, max(0, plan.place[task] - 1 - random_below(random, 2 * _NEAR))]]
        if until <= plan.start[task]:
            return False
    _remember(on, HOLD, task, plan.not_before[task], 0)
    plan.not_before[task] = until
    _changed(on, gpu, plan.place[task], plan.place[task])
    return True


@inlined
def _set_limit(on: Queues, random: RandomState, task: int) -> bool:
    """Let the GPU of a task serve a few requests more, or fewer, at once."""
    plan, gpu = on.plan, on.plan.gpu[task]
    seats = on.requests.seats[on.requests.kind[task], on.tables.gpu_class[gpu]]
    limit = min(max(min(plan.limit[gpu], seats) + _draw_around(random, _NEAR), 1), seats)
    if limit == plan.limit[gpu]:
        return False
    _remember(on, LIMIT, gpu, plan.limit[gpu], 0)
    plan.limit[gpu] = limit
    _changed(on, gpu, 0, plan.length[gpu])
    return True


@inlined
def _pass_turn(on: Queues, random: RandomState, task: int) -> bool:
    """Have the end of a turn from a task on, or all of it, pass the next turn; or its beginning the one before."""
    plan, gpu, place = on.plan, on.plan.gpu[task], on.plan.place[task]
    begin, beyond, whole = _begin_of(on, gpu, place), _beyond(on, gpu, place), random_below(random, 4) == 0
    if random_below(random, 2) == 0:
        if beyond == plan.length[gpu]:
            return False
        after = _beyond(on, gpu, beyond)
        if random_below(random, 4) == 0:
            after -= random_below(random, after - beyond)
        _pass(on, gpu, begin if whole else place, beyond, after)
    else:
        if begin == 0:
            return False
        before = _begin_of(on, gpu, begin - 1)
        if random_below(random, 4) == 0:
            before += random_below(random, begin - before)
        _pass(on, gpu, before, begin, beyond if whole else place + 1)
    return True


@inlined
def _join_turn(on: Queues, random: RandomState, task: int) -> bool:
    """Have a task join the next turn of its class, or the one before, anywhere in it."""
    plan, kind, gpu = on.plan, on.requests.kind, on.plan.gpu[task]
    at, own = plan.place[task], kind[task]
    if random_below(random, 2) == 0:
        at = _beyond(on, gpu, at)
        while at < plan.length[gpu] and kind[plan.queue[gpu, at]] != own:
            at += 1
        if at == plan.length[gpu]:
            return False
        # Counted without it, places behind it are one less.
        _relocate(on, task, gpu, at - 1 + random_below(random, _beyond(on, gpu, at) - at + 1))
    else:
        at = _begin_of(on, gpu, at) - 1
        while at >= 0 and kind[plan.queue[gpu, at]] != own:
            at -= 1
        if at < 0:
            return False
        begin = _begin_of(on, gpu, at)
        _relocate(on, task, gpu, begin + random_below(random, at - begin + 2))
    return True


@inlined
def _propose(on: Queues, random: RandomState, chances: Floats) -> bool:
    """Change something at random; False if what was drawn is no change."""
    plan, task = on.plan, random_below(random, len(on.plan.start))
    drawn = random_unit(random)
    if drawn < chances[0]:
        return _shift(on, random, task, _NEAR)
    if drawn < chances[1]:  # anywhere, nearer places more often
        return _shift(on, random, task, max(1, int(plan.length[plan.gpu[task]] * random_unit(random) ** 3)))
    if drawn < chances[2]:
        other = random_below(random, len(plan.length))
        return other != plan.gpu[task] and _go_to(on, task, other, _draw_around(random, _NEAR))
    if drawn < chances[3]:
        return _exchange(on, random, task)
    if drawn < chances[4]:
        return _hold(on, random, task)
    if drawn < chances[5]:
        return _set_limit(on, random, task)
    return _pass_turn(on, random, task) if drawn < chances[6] else _join_turn(on, random, task)


@inlined
def _at_stake(on: Queues) -> float:
    """Return what those cost whose places change: so much may be gained in the end, others' gains aside."""
    cost = 0.0
    for index in range(on.trial.counter[CHANGES]):
        if on.trial.change[index, 0] in (LIMIT, PASSED):
            return np.inf
        cost += on.plan.cost[on.tables.task_job[on.trial.change[index, 1]]]
    return cost


@kernel
def anneal(on: Queues, random: RandomState, moves: int, temperature: float, chances: Floats) -> int:
    """Try moves, keep those that cost less, or little more as temperature allows; return how many were kept."""
    kept = 0
    for _ in range(moves):
        if not _propose(on, random, chances):
            _undo(on)
            continue
        allowed = -temperature * log(random_unit(random))
        grown = run(on, allowed + _at_stake(on))
        if grown <= allowed:
            accept(on, grown)
            kept += 1
        else:
            _undo(on)
    return kept
