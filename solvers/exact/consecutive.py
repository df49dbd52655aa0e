"""One batch class on one GPU, solved: batches are runs of consecutive releases, so a dynamic programme finds the best.

Two tasks out of order exchange their places without loss where all count alike and are due in the order of their
releases. The state is how many tasks are done and when the GPU is free; of two states the one that is free no later at
no higher cost is as good as both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from truenorth.models import NONE, Instance, Objective, Placement, Timeline
from truenorth.models.features import NO_RULES, Feature, missing
from truenorth.models.objective import Charges, Term, charges
from truenorth.solvers.result import Search

METHOD = "consecutive batches"
"""Name of the optima that are proved here."""
SUPPORTS = NO_RULES | {Feature.BATCHES, Feature.MEMORY, Feature.SLOTS, Feature.SERIAL_LOADS}


class _Prefix(NamedTuple):
    """Some first tasks are done.

    Parameters
    ----------
    free_us
        When the next batch may start: the GPU is free and its first task released.
    cost
        What the tasks that are done cost.
    size, before
        The last batch, and the state that it was added to.
    """

    free_us: int
    cost: int
    size: int
    before: _Prefix | None


def applies(instance: Instance, objective: Objective) -> bool:
    """Say whether all there is to decide is which consecutive tasks of one class run together on one GPU."""
    one_class = len(instance.batches) == 1 and NONE not in instance.template_batch
    if instance.n_gpus > 1 or not one_class or missing(instance, SUPPORTS):
        return False
    charged = charges(objective, instance)
    alike = charged.term is not Term.LATE and len(set(charged.job_weights)) == 1
    return alike and bool((np.diff(charged.due_us) >= 0).all())


def improve(search: Search, time_limit_s: float) -> None:
    """Offer the optimum and its proof, unless there are too many states for this limit."""
    clock = search.clock.child(time_limit_s)
    best = _best_state(search.instance, charges(search.objective, search.instance), clock.is_set)
    if best is not None:
        search.offer(_timeline(search.instance, best))
        if search.value is not None:
            search.offer_bound(search.value, METHOD)


def _best_state(instance: Instance, charged: Charges, over: Callable[[], bool]) -> _Prefix | None:
    """Return the best state in which all tasks are done; None if time is over before."""
    releases, due = instance.job_release_us.tolist(), charged.due_us.tolist()
    run_us = [instance.batch_time(0, 0, size) for size in range(1, int(instance.batch_largest[0, 0]) + 1)]
    reached: list[list[_Prefix]] = [[_Prefix(releases[0], 0, 0, None)], *([] for _ in releases)]
    for done in range(len(releases)):
        if over():
            return None
        states, reached[done] = list(_undominated(reached[done])), []  # what later states need, they hold
        for size, run in enumerate(run_us[: len(releases) - done], 1):
            released, follower = releases[done + size - 1], min(done + size, len(releases) - 1)
            for state in states:
                end = max(state.free_us, released) + run
                terms = [max(0, end - at) for at in due[done : done + size]]
                cost = state.cost + sum(terms) if charged.is_sum else max(state.cost, *terms)
                reached[done + size].append(_Prefix(max(end, releases[follower]), cost, size, state))
    return min(reached[-1], key=lambda state: state.cost)


def _undominated(states: list[_Prefix]) -> Iterator[_Prefix]:
    """Yield the states that no other one equals or beats in both time and cost."""
    least = None
    for state in sorted(states, key=lambda state: state[:2]):
        if least is None or state.cost < least:
            least = state.cost
            yield state


def _timeline(instance: Instance, last: _Prefix) -> Timeline:
    """Return the plan that leads to a state."""
    path: list[_Prefix] = [last]
    while path[-1].before is not None:
        path.append(path[-1].before)
    placements, done = list[Placement](), 0
    for before, after in pairwise(reversed(path)):
        members = range(done, done + after.size)
        begin = max(before.free_us, int(instance.job_release_us[members[-1]]))
        end = begin + instance.batch_time(0, 0, after.size)
        placements += [Placement(task, 0, begin, end) for task in members]
        done += after.size
    return Timeline.build(instance.n_tasks, placements, ())
