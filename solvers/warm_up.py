"""Compile kernels once, at installation, so that no run pays for it: ``python -m truenorth.solvers.warm_up [PART...]``.

The parts are ``search``, ``bound`` with the proofs that its prices guide, ``serving`` (batches, shares and memory of
tasks), ``queues`` (requests of streams) and ``gangs`` (runs on several GPUs); none named: all.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from fractions import Fraction
from multiprocessing import get_context

import numpy as np

from truenorth.models.cluster import GPU, MICROSECONDS_PER_SECOND, Cluster, Link, Network
from truenorth.models.instance import Instance
from truenorth.models.objective import Objective
from truenorth.models.streams import StreamClass, StreamSpeed, Tokens
from truenorth.models.timeline import ServedRequests, Timeline
from truenorth.models.workload import WHOLE, BatchClass, Edge, Job, MLModel, Task, Workflow
from truenorth.solvers.bounds import stream_prices
from truenorth.solvers.bounds.lagrangian.ascent import Steps, ascend
from truenorth.solvers.bounds.lagrangian.evaluation import Prices
from truenorth.solvers.bounds.lagrangian.improve import improve as raise_bound
from truenorth.solvers.bounds.lagrangian.improve import prepare
from truenorth.solvers.bounds.lagrangian.pooled import LEAST_ALIKE, Pool, PooledEvaluation
from truenorth.solvers.exact.start_orders import Programme
from truenorth.solvers.exact.start_orders_tables import ComputeRate, tabulate
from truenorth.solvers.first_use import mark_complete
from truenorth.solvers.result import Search
from truenorth.solvers.search import beam, beam_guide, gang_loads, gangs, queues
from truenorth.solvers.search.annealing import improve
from truenorth.solvers.search.decoder import Decoder

_IN_WINDOWS = 200
"""So many tasks of one GPU are annealed window by window."""


def warm_up(parts: Sequence[str] = ()) -> None:
    """Compile the kernels of these parts, or of all, so that no later run pays for it; the machine code stays on disk.

    The parts share next to no kernels, so that a process each shortens the wait.
    """
    named = parts or tuple(_COMPILE)
    with ProcessPoolExecutor(len(named), mp_context=get_context("spawn")) as pool:
        for compiled in [pool.submit(_COMPILE[part]) for part in named]:
            compiled.result()
    mark_complete(named)


def _compile_search() -> None:
    improve(_smallest(jobs=_IN_WINDOWS), iterations=1000)


def _compile_serving() -> None:
    improve(_smallest(share=WHOLE // 2), iterations=100)
    pair = Task.of_class("pair", BatchClass("pair", {"any": {1: 1, 2: 1}}, ("one",)))
    search = _search_of(Job(Workflow("pair", (pair,)), 0), 2)
    _plan_beams(search, beam_guide.tabulate(search.instance, search.objective, np.zeros((1, 1)), 1))


def _compile_bound() -> None:
    _climb_pooled(_smallest(jobs=LEAST_ALIKE))
    search = _smallest(tasks=2)
    priced = raise_bound(search)
    tables = None if priced is None else tabulate(search.instance, search.objective, ComputeRate.of(priced))
    if tables is not None:
        Programme(search, Fraction(1), search.clock.left_s).prove(tables, None)
    _plan_beams(search, None if priced is None else beam.guide_of(search, priced))


def _plan_beams(search: Search, guide: beam_guide.Guide | None) -> None:
    if guide is not None:
        beam.plan(Decoder(search.instance, search.objective, idle_first=True), guide, 1, 1, lambda: False)


def _climb_pooled(search: Search) -> None:
    """Evaluate prices that jobs share, which otherwise only short limits ask for."""
    prepared = prepare(search.instance, search.objective)
    pool = None if prepared is None else Pool.of(*prepared)
    if pool is not None:
        relaxation = pool.relax(1)
        ascend(
            relaxation, np.zeros(Prices.size(relaxation)), Steps(2), lambda: True, PooledEvaluation(pool, relaxation)
        )
        raise_bound(search, 1.0)


def _compile_queues() -> None:
    speed = StreamSpeed(Fraction(1), 1, 1, {1: 1})
    request = Task.of_stream("one", StreamClass("one", {"any": speed}))
    gpu = GPU("s0/g0", 0, "any", 1, Fraction(1))
    job = Job(Workflow("one", (request,)), 0, tokens={"one": Tokens(1, 1, 1)})
    search = Search(Instance(Cluster((gpu,), Network(Link(), Link())), (), (job,)), Objective.MEAN_LATENCY, 600.0)
    alone = np.zeros(1, np.int64)
    served = ServedRequests(alone + 10**6, alone, alone + 1)
    search.offer(Timeline(alone, alone, alone + 10**6, (), served=served))
    queues.improve(search, 0, iterations=1)
    stream_prices.prove(search.instance, search.objective)


def _compile_gangs() -> None:
    gpus = tuple(GPU(f"s0/g{place}", 0, "any", 1, Fraction(1)) for place in range(2))
    for orders, models in ((gangs, ()), (gang_loads, (MLModel("m", 1),))):
        needs = tuple(model.name for model in models)
        jobs = tuple(Job(Workflow(str(size), (Task("run", {"any": 1}, needs, gpus=size),)), 0) for size in (1, 2))
        window = Instance(Cluster(gpus, Network(Link(), Link())), models, jobs)
        search = Search(window, Objective.MEAN_LATENCY, 600.0)
        orders.begin(search)
        orders.improve(search, 0, 1, iterations=2)


_COMPILE = {
    "search": _compile_search,
    "bound": _compile_bound,
    "serving": _compile_serving,
    "queues": _compile_queues,
    "gangs": _compile_gangs,
}


def _smallest(share: int = WHOLE, jobs: int = 1, tasks: int = 1) -> Search:
    """Return a search for jobs that are chains of tasks; a load takes 1 us, as a run, in whose slots a bound counts."""
    chain = (
        Task(str(place), {"any": 1}, ("one",), (Edge(str(place - 1), 0),) if place else (), share=share)
        for place in range(tasks)
    )
    return _search_of(Job(Workflow("one", tuple(chain)), 0), jobs)


def _search_of(job: Job, jobs: int) -> Search:
    gpu = GPU("s0/g0", 0, "any", 1, Fraction(MICROSECONDS_PER_SECOND))
    instance = Instance(Cluster((gpu,), Network(Link(), Link())), (MLModel("one", 1),), (job,) * jobs)
    return Search(instance, Objective.MEAN_LATENCY, 600.0)


if __name__ == "__main__":
    warm_up(sys.argv[1:])
