"""Exchanges of stretches that take about as long: behind them either GPU is free about when it was.

A stretch is some tasks of a GPU in a row, from the start of the first to the start of the next one behind them.
"""

from __future__ import annotations

from truenorth.solvers.compiled import inlined, random_below
from truenorth.solvers.search.current_plan import (
    CurrentPlan,
    Neighbourhood,
    draw_distance,
    draw_other_gpu,
    keeps_order,
    may_run,
    take,
)

LONGEST = 12
"""A stretch that keeps its time has fewer tasks than this.

The three kinds of exchanges together: 1.4131 for 1.4351 after 6 s (`experiments/benchmarks/search.md`); how long
stretches are, and how far they may differ, was not measured by itself."""
LONGEST_ELSEWHERE, LONGEST_FOUND = 5, 8
"""A stretch that goes elsewhere has fewer tasks than the first number, that whose place it takes up to the second."""
TRIES = 3
"""Stretches that are looked at, of which the one that fits best is taken."""
TOLERANCE = 0.15
"""Share of its length by which a stretch may differ from the one whose place it takes at another time."""


@inlined
def propose_stretches(around: Neighbourhood, task: int) -> bool:
    """Exchange stretches of two GPUs, at the same time, whose ends lie close together.

    Notes
    -----
    Invariant: every task keeps its time, so no order between tasks of a workflow changes.
    Because: only GPUs are exchanged. Of `TRIES` ends the two that lie closest together are taken: what follows on
    either GPU then hardly moves.
    Cost: O(`TRIES` x tasks between the stretch's ends).
    If wrong: weaker, as with every move: what it leads to is judged by its cost.
    """
    plan, first, beyond = around.plan, around.first, around.beyond
    source, target = plan.gpu[task], draw_other_gpu(around, task)
    begin = plan.position[task]
    begin_there = _nearest_on(plan, begin, target, first, beyond)
    if source == target or begin_there == beyond:
        return False
    end, end_there, least = beyond, beyond, 0
    for _ in range(TRIES):
        place = begin
        for _ in range(draw_distance(around.random, LONGEST)):
            if place < beyond:
                place = _next_on(plan, place, source, beyond)
        if place < beyond:
            there = _nearest_on(plan, place, target, first, beyond)
            apart = _apart(plan, place, there)
            if there > begin_there and (end == beyond or apart < least):
                end, end_there, least = place, there, apart
    if end == beyond:
        return False
    to_target = _take_stretch(around, begin, end, source, target, 0)
    return _take_stretch(around, begin_there, end_there, target, source, 0) and to_target


@inlined
def propose_as_long(around: Neighbourhood, task: int) -> bool:
    """Exchange a stretch with one at another time that takes about as long, on any GPU."""
    plan, first, beyond = around.plan, around.first, around.beyond
    source, begin = plan.gpu[task], plan.position[task]
    end = begin
    for _ in range(draw_distance(around.random, LONGEST_ELSEWHERE)):
        if end < beyond:
            end = _next_on(plan, end, source, beyond)
    if end == beyond:
        return False
    takes = plan.time[plan.order[end]] - plan.time[task]
    for _ in range(TRIES):
        distance = draw_distance(around.random, beyond - first)
        there = begin + distance if random_below(around.random, 2) == 0 else begin - distance
        if there < first or there >= beyond:
            continue
        target = plan.gpu[plan.order[there]]
        end_there = _end_after(plan, there, target, takes, beyond)
        overlaps = target == source and there < end and begin < end_there
        if end_there == beyond or overlaps:
            continue
        if abs(plan.time[plan.order[end_there]] - plan.time[plan.order[there]] - takes) <= TOLERANCE * takes:
            later = plan.time[plan.order[there]] - plan.time[task]
            to_target = _take_stretch(around, begin, end, source, target, later)
            to_source = _take_stretch(around, there, end_there, target, source, -later)
            return to_target and to_source and _keep_order(around)
    return False


@inlined
def propose_rest(around: Neighbourhood, task: int) -> bool:
    """Exchange all that two GPUs run from a moment on at which both begin a task at about the same time."""
    plan, first, beyond = around.plan, around.first, around.beyond
    source, place = plan.gpu[task], plan.position[task]
    begin, begin_there, least = beyond, beyond, 0
    for _ in range(TRIES):
        if place < beyond:
            other = draw_other_gpu(around, plan.order[place])
            there = _nearest_on(plan, place, other, first, beyond)
            if other != source and there < beyond:
                apart = _apart(plan, place, there)
                if begin == beyond or apart < least:
                    begin, begin_there, least = place, there, apart
            place = _next_on(plan, place, source, beyond)
    if begin == beyond:
        return False
    target = plan.gpu[plan.order[begin_there]]
    to_target = _take_stretch(around, begin, beyond, source, target, 0)
    return _take_stretch(around, begin_there, beyond, target, source, 0) and to_target


@inlined
def _next_on(plan: CurrentPlan, place: int, gpu: int, beyond: int) -> int:
    """Return the position of a GPU's next task behind this one, `beyond` if there is none."""
    place += 1
    while place < beyond and plan.gpu[plan.order[place]] != gpu:
        place += 1
    return place


@inlined
def _nearest_on(plan: CurrentPlan, place: int, gpu: int, first: int, beyond: int) -> int:
    """Return the position of the task of a GPU that starts nearest to this one, `beyond` if the GPU has none."""
    after, before = _next_on(plan, place, gpu, beyond), place - 1
    while before >= first and plan.gpu[plan.order[before]] != gpu:
        before -= 1
    if before < first:
        return after
    if after == beyond or _apart(plan, place, before) < _apart(plan, place, after):
        return before
    return after


@inlined
def _apart(plan: CurrentPlan, place: int, other: int) -> int:
    """Return the time between the starts of two tasks."""
    return abs(plan.time[plan.order[place]] - plan.time[plan.order[other]])


@inlined
def _end_after(plan: CurrentPlan, begin: int, gpu: int, takes: int, beyond: int) -> int:
    """Return where a stretch that begins here ends if it shall take about so long, `beyond` if that is not known."""
    end, least, place = beyond, 0, begin
    for _ in range(LONGEST_FOUND):
        place = _next_on(plan, place, gpu, beyond)
        if place == beyond:
            break
        longer = plan.time[plan.order[place]] - plan.time[plan.order[begin]] - takes
        if end == beyond or abs(longer) < least:
            end, least = place, abs(longer)
        if longer > 0:
            break
    return end


@inlined
def _take_stretch(around: Neighbourhood, begin: int, end: int, gpu: int, target: int, later: int) -> bool:
    """Move the tasks of a GPU at positions [begin, end) to another GPU and time; say whether that GPU can run them."""
    plan, possible = around.plan, True
    for place in range(begin, end):
        task = plan.order[place]
        if plan.gpu[task] == gpu:
            possible = possible and may_run(around.tables, task, target)
            take(plan, task, target, plan.time[task] + later)
    return possible


@inlined
def _keep_order(around: Neighbourhood) -> bool:
    """Say whether all tasks of the move lie between their predecessors and successors."""
    kept = True
    for at in range(around.plan.how_many[0]):
        kept = kept and keeps_order(around.tables, around.plan, around.plan.moved[at])
    return kept
