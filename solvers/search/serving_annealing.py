"""The inner loop of simulated annealing where tasks run in batches and side by side: as in `annealing_kernel`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from models.instance import Ints
from solvers.compiled import Floats, RandomState, kernel, random_unit
from solvers.search.annealing_kernel import Window
from solvers.search.current_plan import Plan, accept, apply, undo
from solvers.search.decoder_state import State, Work, restore
from solvers.search.decoder_tables import Tables
from solvers.search.serving_kernel import decode_serving, look_ahead_serving
from solvers.search.serving_moves import propose_serving, sort_members, undo_joins
from solvers.search.serving_tables import Runs, Service


class ServingScene(NamedTuple):
    """What the judging of a window reads, and its working memory: `Scene` with batches.

    Attributes
    ----------
    tables, service
        The instance and its objective.
    origin
        The moment before the window's lead, with the next uses from its `last` on.
    before
        `completed` of every job without the tasks of the window.
    state, work, spans, runs, residencies
        Working memory; `work` shares order and gpu with the plan.
    """

    tables: Tables
    service: Service
    origin: State
    before: Ints
    state: State
    work: Work
    spans: Work
    runs: Runs
    residencies: Ints


@kernel
def anneal_serving(
    scene: ServingScene,
    plan: Plan,
    window: Window,
    cost: float,
    temperature: float,
    moves: int,
    chances: Floats,
    random: RandomState,
    counts: Ints,
) -> float:
    """Try a number of moves at a temperature; return the cost of the window that they lead to. As `anneal`."""
    for _ in range(moves):
        draw, kind = random_unit(random), 0
        while chances[kind] < draw:
            kind += 1
        counts[kind, 0] += 1
        if not propose_serving(
            scene.tables, scene.service, plan, scene.runs, random, kind, window.first, window.beyond
        ):
            undo_joins(scene.runs)
            continue
        apply(plan, window.first, window.beyond)
        limit = cost - temperature * np.log(random_unit(random))
        found = evaluate_serving(scene, window, limit)
        if found > limit:
            undo(plan)
            undo_joins(scene.runs)
            continue
        counts[kind, 1] += 1
        counts[kind, 2] += int(found < cost)
        settle_serving(scene, plan, window.lead, window.last)
        cost = found
    return cost


@kernel
def settle_serving(scene: ServingScene, plan: Plan, first: int, last: int) -> None:
    """Make the decoded start times of a stretch those of the plan, and sort it by them, batches by arrivals."""
    accept(plan, scene.work.start, first, last)
    sort_members(scene.tables, scene.service, plan, scene.runs, first, last)


@kernel
def evaluate_serving(scene: ServingScene, window: Window, limit: float) -> float:
    """Return the cost of the plan up to the end of a window, or something above `limit` if it is above."""
    first, last = window.lead, window.last
    for place in range(first, last):
        job = scene.tables.task_job[scene.work.order[place]]
        scene.work.completed[job] = scene.before[job]
    restore(scene.state, scene.origin)
    look_ahead_serving(scene.tables, scene.state, scene.work, scene.runs, first, last)
    total, worst = decode_serving(
        scene.tables,
        scene.service,
        scene.state,
        scene.work,
        scene.spans,
        scene.runs,
        scene.residencies,
        first,
        last,
        window.total,
        window.worst,
        limit,
    )
    return total + worst
