"""The states of the verifier's programme over start orders, and which of them need not be kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truenorth.models.instance import Ints
from truenorth.solvers.bounds.effort import Effort
from truenorth.solvers.bounds.order_tasks import loads_us

_MOST_COMPARED = 60
"""Of the states of the same tasks that come before it, a state is compared with so many."""


class OrderStates(NamedTuple):
    """What is known after the first starts of some start orders.

    Parameters
    ----------
    stage, due_us
        Per job: which of its tasks have started, and a time before which it cannot complete; 0 once all have.
        Shape [states, jobs].
    free_us, used
        Per GPU, sorted: when it can start the next task, and which models it has used, while that can still make
        anyone wait. Shape [states, GPUs].
    end_us, place
        Per open task: when it ends and on which GPU; 0 where its output is everywhere by now, or nobody needs it.
        Shape [states, open tasks].
    cost
        Of the jobs all of whose tasks have started.
    begun_us
        Sum of all starts.
    key
        Equal where the same tasks have started, and hardly ever else.
    parent
        The state of the step before.
    """

    stage: Ints
    due_us: Ints
    free_us: Ints
    used: Ints
    end_us: Ints
    place: Ints
    cost: Ints
    begun_us: Ints
    key: NDArray[np.uint64]
    parent: Ints

    @property
    def number(self) -> int:
        """How many there are."""
        return len(self.cost)

    @property
    def now_us(self) -> Ints:
        """No later task starts before this: starts are in order, and every GPU was free no sooner than the last."""
        return np.asarray(self.free_us[:, 0])

    def rows(self, which: Ints | NDArray[np.bool_] | slice) -> OrderStates:
        """Return some of the states."""
        return OrderStates._make(column[which] for column in self)


class OrderStep(NamedTuple):
    """The states after so many starts, and what their columns of open tasks are.

    Parameters
    ----------
    open
        The tasks that are open in any of the states.
    """

    open: Ints
    states: OrderStates

    @property
    def cells(self) -> int:
        """How many numbers it holds."""
        return sum(column.size for column in self.states)

    def where(self, which: Ints | NDArray[np.bool_] | slice) -> OrderStep:
        """Return some of the states."""
        return OrderStep(self.open, self.states.rows(which))


def join(steps: list[OrderStep]) -> OrderStep:
    """Return the states of several as one."""
    all_open = np.unique(np.concatenate([step.open for step in steps]))

    def widen(step: OrderStep, narrow: Ints) -> Ints:
        wide = np.zeros((step.states.number, len(all_open)), np.int64)
        wide[:, np.searchsorted(all_open, step.open)] = narrow
        return wide

    widened = [
        step.states._replace(end_us=widen(step, step.states.end_us), place=widen(step, step.states.place))
        for step in steps
    ]
    return OrderStep(all_open, OrderStates._make(map(np.concatenate, zip(*widened, strict=True))))


class Compared(NamedTuple):
    """What states are compared by.

    Parameters
    ----------
    reach_us
        Per task: the longest that its output takes to another GPU.
    load_us
        Of each model.
    wants
        Per stage: a mask of the models that its tasks need which have not started.
    effort
        What comparing may still take.
    """

    reach_us: Ints
    load_us: Ints
    wants: Ints
    effort: Effort


def as_early(by: Compared, ours: OrderStep, a: Ints, theirs: OrderStep, b: Ints) -> NDArray[np.bool_]:
    """Say for pairs of states whether whatever can follow the second can follow the first, no later.

    Everything that a later start waits for is compared, GPU by GPU in the order in which they are free; so jobs that
    are left cost no more after the first.

    Parameters
    ----------
    a, b
        States of `ours` and of `theirs`.
    """
    one, other = ours.states, theirs.states
    by.effort.spend(len(a) * one.free_us.shape[1])
    at = np.flatnonzero((one.free_us[a] <= other.free_us[b]).all(axis=1))
    at = at[(one.stage[a[at]] == other.stage[b[at]]).all(axis=1)]
    by.effort.spend(len(at) * one.due_us.shape[1])
    at = at[(one.due_us[a[at]] <= other.due_us[b[at]]).all(axis=1)]
    at = at[_outputs_no_later(by, ours, a[at], theirs, b[at])]
    at = at[_loads_no_later(by, one, a[at], other, b[at])]
    early = np.zeros(len(a), np.bool_)
    early[at] = True
    return early


def _outputs_no_later(by: Compared, ours: OrderStep, a: Ints, theirs: OrderStep, b: Ints) -> NDArray[np.bool_]:
    """Say whether every output that is under way in the first is wherever it is in the second, as soon."""
    early, now_us = np.ones(len(a), np.bool_), theirs.states.now_us[b]
    column = {task: index for index, task in enumerate(theirs.open.tolist())}
    for index, task in enumerate(ours.open.tolist()):
        end_us, same = ours.states.end_us[a, index], np.zeros(len(a), np.bool_)
        # In the second nobody finds it before it ends there, nor before `now`.
        theirs_us = now_us
        if task in column:
            other_us = theirs.states.end_us[b, column[task]]
            same = (ours.states.place[a, index] == theirs.states.place[b, column[task]]) & (end_us <= other_us)
            theirs_us = np.maximum(now_us, other_us)
        early &= (end_us == 0) | same | (end_us + by.reach_us[task] <= theirs_us)
    return early


def _loads_no_later(by: Compared, one: OrderStates, a: Ints, other: OrderStates, b: Ints) -> NDArray[np.bool_]:
    """Say whether each GPU has used no model beyond those of the second, unless all loads end before it is free."""
    beyond = one.used[a] & ~other.used[b]
    early, some = np.ones(len(a), np.bool_), np.flatnonzero(beyond.any(axis=1))
    if len(some):
        wanted = np.bitwise_or.reduce(by.wants[one.stage[a[some]]], axis=1)
        loaded = loads_us(by.load_us, one.used[a[some]] | wanted[:, None])
        early[some] = ((beyond[some] == 0) | (loaded <= other.free_us[b[some]])).all(axis=1)
    return early


def dominate(key: Ints | NDArray[np.uint64], order: Ints, as_early: Callable[[Ints, Ints], NDArray[np.bool_]]) -> Ints:
    """Return for every state the one to keep instead, itself if it is needed.

    A state gives way to one of the same key that makes it superfluous and comes before it in a fixed order; so whoever
    gives way leads to one that does not.

    Parameters
    ----------
    key
        Of each state; only states of equal keys are compared.
    order
        All states, those of equal keys one after the other.
    as_early
        Says for pairs of states whether whatever can follow the second can follow the first, at no higher cost.
    """
    instead, left = np.arange(len(order)), np.arange(len(order))
    for back in range(1, _MOST_COMPARED + 1):
        # Of the others, those with so many states of their key before them; one that gave way stands for its better.
        left = left[left >= back]
        left = left[key[order[left]] == key[order[left - back]]]
        if not len(left):
            break
        better = as_early(order[left - back], order[left])
        instead[order[left[better]]] = order[left[better] - back]
        left = left[~better]
    # Chains end: every one gives way to one before it in the order.
    while (instead != instead[instead]).any():
        instead = instead[instead]
    return instead
