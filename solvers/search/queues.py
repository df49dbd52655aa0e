"""Plans of requests: which GPU serves each, in what order, who is held back, and how many at once.

Simulated annealing over queues, from the best plan that is known. Every GPU loads what its queue needs first, one model
after the other, and evicts nothing; where the plan to start from does not fit that, GPUs swap models as their queues
ask for them. What compiled iterations do not have, `orders` searches instead.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from truenorth.models.features import CACHED, SERVING, Feature, Features, missing
from truenorth.models.instance import NEVER, NONE, Instance, Ints
from truenorth.models.objective import Objective
from truenorth.models.stream_tables import StreamTables
from truenorth.models.streams import StreamSpeed
from truenorth.models.timeline import Residency, ServedRequests, Timeline, file_order
from truenorth.solvers.compiled import random_state
from truenorth.solvers.incumbents import PlanOrigin
from truenorth.solvers.result import Search
from truenorth.solvers.search import orders
from truenorth.solvers.search.decoder_state import FAR
from truenorth.solvers.search.decoder_tables import tabulate
from truenorth.solvers.search.queues_kernel import (
    KEEPS,
    NOTED,
    NodeStates,
    QueuedPlan,
    Queues,
    QueueTrial,
    RequestTables,
    accept,
    anneal,
    open_gpu,
    run,
)
from truenorth.solvers.search.serving import Decisions, Window, serve

_HOT, _COLD = 0.1, 0.001
"""First and last temperature, as multiples of a job's average share of the cost."""
CHANCES = np.array([*np.cumsum([0.02, 0.2, 0.05, 0.58, 0.13]), np.inf, np.inf])
"""How often each kind of move is tried, or one before it: near, far, another GPU, an exchange, a hold, a limit, a part
of a turn that passes the next one; else a request joins another turn."""
_ON_ONE_GPU = np.array([*np.cumsum([0.35, 0.4, 0.0, 0.0, 0.2]), np.inf, np.inf])
"""The same where there is no other GPU."""
SWAPPING = np.cumsum([0.02, 0.2, 0.05, 0.2, 0.1, 0.01, 0.12])
_SWAPPING_ON_ONE = np.cumsum([0.1, 0.25, 0.0, 0.0, 0.1, 0.01, 0.2])
"""The same where models swap."""
_SLICE_S, _FIRST_MOVES = 0.1, 20
"""How long moves are tried between two looks at the clock; how many at first."""
_OFFER_EVERY_S = 1.0
_MOST_NUMBERS = 50_000_000
"""No table has more entries: 400 MB."""
_NOTED_NUMBERS = 10_000_000
"""Noted states have about so many entries."""
_LARGEST = 1 << 62


def improve(search: Search, seed: int, iterations: int | None) -> None:
    """Offer ever better plans until the time, or the number of moves, is used up; `search` has a plan to start from.

    Cost: a move runs what follows it on one or two GPUs again, or all where jobs go across GPUs.
    """
    lacking = ", ".join(missing(search.instance, SUPPORTS))
    if lacking:
        search.left_out["search"] = f"the plan that is known stands: search has no support for {lacking}"
        return
    annealing = None if search.timeline is None else _Annealing.of(search)
    if annealing is not None:
        annealing.offer(PlanOrigin.START)
        annealing.anneal(seed, iterations)
    elif (reason := orders.improve(search, seed, iterations)) is not None:
        search.left_out["search"] = f"the plan that is known stands: {reason}"


class _Annealing:
    """Queues under way, and the search that takes their plans."""

    def __init__(self, search: Search, queues: Queues) -> None:
        self._search, self._queues = search, queues
        several, swaps = search.instance.n_gpus > 1, queues.requests.swaps
        if swaps:
            self._chances = SWAPPING if several else _SWAPPING_ON_ONE
        else:
            self._chances = CHANCES if several else _ON_ONE_GPU
        self._least = float(queues.plan.total[0])

    @classmethod
    def of(cls, search: Search) -> _Annealing | None:
        """Return what starts from the plan of a search; None if it cannot be begun with."""
        # Where every GPU can keep what it loads, that is searched.
        for swaps in (False, True) if not search.instance.restrictions.no_swaps else (False,):
            queues = new_queues(search.instance, search.objective, swaps)
            if queues is None or search.timeline is None:
                return None
            if enqueue(queues, search.instance, search.timeline):
                return cls(search, queues)
        return None

    def offer(self, origin: PlanOrigin) -> None:
        """Offer the plan as it is."""
        self._least = float(self._queues.plan.total[0])
        self._search.offer(timeline_of(self._queues, self._search.instance), origin)

    def anneal(self, seed: int, iterations: int | None) -> None:
        """Try moves, ever cooler, and offer what is better now and then, and at the end."""
        search, random = self._search, random_state(seed)
        share = self._queues.plan.total[0] / len(search.instance.jobs)
        begun_s, allowed_s = search.clock.elapsed_s, search.clock.left_s
        done, moves, offered_s = 0, _FIRST_MOVES, begun_s
        while search.clock.left_s > 0 and not search.proved:
            if iterations is not None:
                moves = min(moves, iterations - done)
                if moves <= 0:
                    break
            passed = (search.clock.elapsed_s - begun_s) / allowed_s if iterations is None else done / iterations
            temperature = share * _HOT * (_COLD / _HOT) ** passed
            before_s = search.clock.elapsed_s
            anneal(self._queues, random, moves, max(temperature, 1e-300), self._chances)
            search.clock.count(moves)
            done += moves
            took_s = search.clock.elapsed_s - before_s
            if iterations is None:  # what is repeatable does not ask how long moves take
                moves = max(1, min(2 * moves, int(moves * _SLICE_S / max(took_s, 1e-6))))
            if self._queues.plan.total[0] < self._least and search.clock.elapsed_s - offered_s > _OFFER_EVERY_S:
                self.offer(PlanOrigin.SEARCH)
                offered_s = search.clock.elapsed_s
        if self._queues.plan.total[0] < self._least:
            self.offer(PlanOrigin.SEARCH)


SUPPORTS: Features = CACHED | {Feature.DELAYS}
"""What compiled iterations do not have is served by the rules, step by step."""
_COMPILED: Features = SERVING - {Feature.ENGINES, Feature.REPLICAS, Feature.ABSENCES, Feature.ADAPTERS} | {
    Feature.DELAYS
}
"""The compiled iterations have neither contexts nor mixed iterations, shared budgets or KV that grows."""


def new_queues(instance: Instance, objective: Objective, swaps: bool = False) -> Queues | None:
    """Return empty queues of an instance; None where its plans are not of this form, or numbers would not fit.

    Parameters
    ----------
    swaps
        Whether GPUs may swap whose models do not fit all at once.
    """
    streams = instance.streams
    if streams is None or missing(instance, _COMPILED) or instance.n_tasks * instance.n_gpus > _MOST_NUMBERS:
        return None
    tables = tabulate(instance, objective, idle_first=False)
    requests = _tabulate_requests(instance, streams, not objective.is_sum, swaps)
    if requests is None:
        return None
    seats, n_rows = requests.tau.shape[2] - 1, -(-instance.n_tasks // requests.every)
    return Queues(
        tables,
        requests,
        _new_plan(instance, requests, seats),
        _new_states(instance.n_gpus, seats, len(instance.models)),
        _new_trial(instance, n_rows if requests.apart else 1, NOTED + 4 * seats + len(instance.models)),
    )


def enqueue(queues: Queues, instance: Instance, timeline: Timeline) -> bool:
    """Queue requests up as a plan serves them; say whether that makes a plan in which every GPU keeps what it loads."""
    plan, requests = queues.plan, queues.requests
    if timeline.served is not None:
        plan.not_before[:] = timeline.served.not_before_us
        for gpu, most in timeline.served.limits.items():
            plan.limit[gpu] = most
    for task in file_order(instance, timeline).tolist():
        gpu = int(timeline.place[task])
        if not requests.able[task, instance.gpu_class[gpu]]:
            return False
        plan.gpu[task], plan.place[task] = gpu, plan.length[gpu]
        plan.queue[gpu, plan.length[gpu]] = task
        plan.length[gpu] += 1
        plan.users[gpu, requests.kind[task]] += 1
    return run_all(queues)


def run_all(queues: Queues) -> bool:
    """Run all queues from time 0; say whether everybody is served."""
    for gpu in range(len(queues.plan.length)):
        open_gpu(queues, gpu)
    queues.trial.since[:], queues.trial.until[:] = 0, queues.plan.length
    grown = run(queues, np.inf)
    if not np.isfinite(grown):
        return False
    accept(queues, grown)
    return True


def timeline_of(queues: Queues, instance: Instance) -> Timeline:
    """Return the plan of queues."""
    plan, requests = queues.plan, queues.requests
    streams = instance.streams
    if streams is None:
        raise ValueError("the instance has no requests of streams")
    of_stream = streams.template[instance.task_template] != NONE
    top = requests.seats[: len(streams.classes)].max(axis=0, initial=0)[instance.gpu_class]
    limits = {gpu: int(most) for gpu, most in enumerate(plan.limit) if most < top[gpu]}
    served = ServedRequests(
        np.where(of_stream, plan.first, NONE),
        np.where(of_stream, plan.not_before, 0),
        np.where(of_stream, streams.output, 0),
        limits,
    )
    residencies = [stay for gpu in range(instance.n_gpus) for stay in _residencies(queues, instance, gpu)]
    if plan.swaps.any():
        residencies += _swapped(queues, instance, streams, limits)
    return Timeline(plan.gpu.copy(), plan.start.copy(), plan.end.copy(), tuple(residencies), served=served)


def _swapped(queues: Queues, instance: Instance, streams: StreamTables, limits: Mapping[int, int]) -> list[Residency]:
    """Return what lies on the GPUs that swap: as they are served by the rules, step by step."""
    plan, n_gpus = queues.plan, instance.n_gpus
    queue = [plan.queue[gpu, :length].tolist() for gpu, length in enumerate(plan.length.tolist())]
    most = [limits.get(gpu, 0) for gpu in range(n_gpus)]
    decided = Decisions(queue, plan.not_before.tolist(), most, [False] * n_gpus)
    swapping = [gpu for gpu, how in enumerate(plan.swaps.tolist()) if how != KEEPS]
    served = serve(Window(instance, streams), decided, swapping, plan.gpu.tolist(), plan.end.tolist())
    if served is None:
        raise ValueError("compiled queues serve requests that the rules do not let join")
    return [stay for each in served for stay in each.stays]


def _residencies(queues: Queues, instance: Instance, gpu: int) -> list[Residency]:
    """Return what lies on a GPU that keeps it: what was there, then what its queue needs, one after the other."""
    requests, users = queues.requests, queues.plan.users[gpu] > 0
    if queues.plan.swaps[gpu] != KEEPS:
        return []
    found = [
        Residency(there.model, gpu, 0, 0, None, there.slot, initial=True)
        for there in instance.initial
        if there.gpu == gpu
    ]
    at = 0
    for model in requests.rank.tolist():
        if requests.initial[gpu, model] == 0 and requests.needs[users, model].any():
            ready = at + instance.load_time(model, gpu)
            found.append(Residency(model, gpu, at, ready))
            at = ready
    return found


def _tabulate_requests(instance: Instance, streams: StreamTables, peaked: bool, swaps: bool) -> RequestTables | None:
    """Return what requests take; None if numbers would not fit. A task that is no request has a kind of its own."""
    plain = np.flatnonzero(streams.template == NONE)
    kind_of_template = streams.template.copy()
    kind_of_template[plain] = len(streams.classes) + np.arange(len(plain))
    n_kinds, n_classes = len(streams.classes) + len(plain), len(instance.class_gpu)
    speeds = [speed for row in streams.speeds for speed in row if speed is not None]
    seats_most, all_tokens = max(speed.seats for speed in speeds), int(streams.uncached.sum()) + 1
    if any(_overflows(speed, all_tokens) for speed in speeds) or n_kinds * n_classes * seats_most > _MOST_NUMBERS:
        return None
    tau = np.zeros((n_kinds, n_classes, seats_most + 1), np.int64)
    figures = np.ones((5, n_kinds, n_classes), np.int64)
    for stream, row in enumerate(streams.speeds):
        for c, speed in enumerate(row):
            if speed is not None:
                tau[stream, c, : speed.seats + 1] = speed.tau
                rate = speed.prefill_rate
                chunk = min(speed.chunk, all_tokens)
                figures[:, stream, c] = speed.seats, chunk, rate.numerator, _per(speed), speed.kv_bytes
    for kind, template in enumerate(plain.tolist(), len(streams.classes)):
        tau[kind, :, 1] = np.maximum(instance.run_us[template], 0)
    task_kind = kind_of_template[instance.task_template]
    is_request = streams.template[instance.task_template] != NONE
    held = np.where(is_request, streams.held, instance.template_memory[instance.task_template])
    first_release = [[] for _ in instance.models]  # type: list[list[int]]
    needs = np.zeros((n_kinds, len(instance.models)), np.int64)
    for template, models in enumerate(instance.needs):
        needs[kind_of_template[template], list(models)] = 1
    for template in range(len(instance.needs)):
        releases = instance.job_release_us[instance.task_job[instance.task_template == template]]
        for model in instance.needs[template]:
            first_release[model].append(int(releases.min()))
    rank = sorted(range(len(instance.models)), key=lambda model: (min(first_release[model], default=FAR), model))
    initial = np.zeros((instance.n_gpus, len(instance.models)), np.int64)
    for there in instance.initial:
        initial[there.gpu, there.model] = 1
    tie_first = np.concatenate(([0], np.cumsum([len(row) for row in streams.together]))).astype(np.int64)
    # A delay may end when the GPU has long been empty: though that begins anew as it did, what follows may be another.
    apart = not instance.delay_us.any() and all(
        len(streams.together[first]) == len(workflow.tasks)
        for first, workflow in zip(instance.template_first.tolist(), instance.workflows, strict=False)
    )
    kv_row, kv_us = _kv_times(instance, streams)
    able = _able(instance, streams)
    return RequestTables(
        kind=task_kind,
        uncached=streams.uncached.copy(),
        output=np.where(is_request, streams.output, 1),
        held=held,
        able=able,
        tau=tau,
        seats=figures[0].copy(),
        chunk=figures[1].copy(),
        rate=figures[2].copy(),
        per=figures[3].copy(),
        token_bytes=figures[4].copy(),
        needs=needs,
        rank=np.array(rank, np.int64),
        initial=initial,
        tie_first=tie_first,
        tie_offset=np.array([offset for row in streams.together for offset in row], np.int64),
        kv_edge=streams.kv_edge.astype(np.int64),
        kv_row=kv_row,
        kv_us=kv_us,
        job_first=instance.job_first_task.copy(),
        every=max(1, -(-2 * instance.n_tasks * (NOTED + 4 * seats_most) // _NOTED_NUMBERS)),
        apart=apart,
        peaked=peaked,
        swaps=swaps,
        largest=np.where(able > 0, held[:, None] * figures[4][task_kind], 0).max(axis=0),
    )


def _per(speed: StreamSpeed) -> int:
    """Return the numerator of how long a token of a prompt takes."""
    return 10**6 * speed.prefill_rate.denominator


def _overflows(speed: StreamSpeed, tokens: int) -> bool:
    return min(speed.chunk, tokens) * _per(speed) + speed.prefill_rate.numerator > _LARGEST


def _able(instance: Instance, streams: StreamTables) -> Ints:
    """Return where each task may be; nothing is planned on GPUs with slots. Shape [tasks, classes]."""
    able: NDArray[np.bool_] = instance.run_us[instance.task_template] != NEVER
    able &= np.array([not gpu.slots for gpu in instance.class_gpu])[None, :]
    for template in np.flatnonzero(streams.template != NONE).tolist():
        tasks = np.flatnonzero(instance.task_template == template)
        able[tasks] &= streams.held[tasks][:, None] <= streams.longest[streams.template[template]][None, :]
    return able.astype(np.int64)


def _kv_times(instance: Instance, streams: StreamTables) -> tuple[Ints, Ints]:
    """Return the row of each task whose KV moves, and how long that takes: two servers, one server, the same GPU."""
    source, _, edge = instance.edges()
    moved = np.unique(source[streams.kv_edge[edge]]) if len(edge) else np.zeros(0, np.int64)
    row = np.full(instance.n_tasks, NONE, np.int64)
    row[moved] = np.arange(len(moved))
    gpus, network = instance.class_gpu, instance.cluster.network
    taken = np.zeros((max(1, len(moved)), len(gpus), len(gpus), 3), np.int64)
    for a, one in enumerate(gpus):
        kv_bytes = [row[a].kv_bytes if row[a] is not None else 0 for row in streams.speeds]  # type: ignore[union-attr]
        sizes = [
            int(streams.prompt[task]) * kv_bytes[int(streams.template[instance.task_template[task]])]
            for task in moved.tolist()
        ]
        for b, other in enumerate(gpus):
            for close in (0, 1):
                taken[: len(moved), a, b, close] = network.transfers_us(sizes, one, other, bool(close))
    return row, taken


def _new_plan(instance: Instance, requests: RequestTables, seats: int) -> QueuedPlan:
    n_tasks, n_gpus, n_jobs, n_kinds = instance.n_tasks, instance.n_gpus, len(instance.jobs), len(requests.needs)
    return QueuedPlan(
        queue=np.zeros((n_gpus, n_tasks), np.int64),
        length=np.zeros(n_gpus, np.int64),
        limit=np.full(n_gpus, seats, np.int64),
        gpu=np.zeros(n_tasks, np.int64),
        place=np.zeros(n_tasks, np.int64),
        not_before=np.zeros(n_tasks, np.int64),
        start=np.zeros(n_tasks, np.int64),
        first=np.full(n_tasks, NONE, np.int64),
        end=np.zeros(n_tasks, np.int64),
        alone=np.zeros(n_tasks, np.int64),
        cost=np.zeros(n_jobs),
        late=np.zeros(n_jobs),
        users=np.zeros((n_gpus, n_kinds), np.int64),
        room=np.zeros(n_gpus, np.int64),
        open_us=np.zeros((n_gpus, n_kinds), np.int64),
        swaps=np.zeros(n_gpus, np.int64),
        total=np.zeros(2),
    )


def _new_states(n_gpus: int, seats: int, n_models: int) -> NodeStates:
    def lists() -> Ints:
        return np.zeros((n_gpus, seats + 1), np.int64)

    def each() -> Ints:
        return np.zeros(n_gpus, np.int64)

    state = np.zeros((n_gpus, NOTED), np.int64)
    held = np.full((n_gpus, n_models), FAR, np.int64)
    return NodeStates(state, lists(), lists(), lists(), lists(), each(), each(), each(), each(), held)


def _new_trial(instance: Instance, n_rows: int, width: int) -> QueueTrial:
    n_tasks, n_jobs, n_gpus = instance.n_tasks, len(instance.jobs), instance.n_gpus
    largest = max(len(workflow.tasks) for workflow in instance.workflows)

    def zeros(*shape: int) -> Ints:
        return np.zeros(shape, np.int64)

    return QueueTrial(
        counter=zeros(5),
        stamp=zeros(n_tasks),
        touched=zeros(n_tasks),
        start=zeros(n_tasks),
        first=np.full(n_tasks, NONE, np.int64),
        end=zeros(n_tasks),
        alone=zeros(n_tasks),
        job_stamp=zeros(n_jobs),
        jobs=zeros(n_jobs),
        cost=np.zeros(n_jobs),
        late=np.zeros(n_jobs),
        since=np.full(n_gpus, FAR, np.int64),
        until=np.full(n_gpus, NONE, np.int64),
        grown=np.zeros(1),
        change=zeros(2 * largest + 2, 5),
        row=zeros(2, n_rows, width),
        row_side=zeros(n_rows),
        row_stamp=zeros(n_rows),
        rows=zeros(n_rows),
    )
