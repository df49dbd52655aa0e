"""The records of the dynamic programme over start orders: its tables, and its states."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truenorth.models.instance import Ints

Flags = NDArray[np.bool_]
Keys = NDArray[np.uint64]


class OrderTables(NamedTuple):
    """An instance with one class of GPUs, in arrays.

    Parameters
    ----------
    pooled
        Whether GPUs are all the same, as they are if no transfer or load binds: a task takes the first that is free.
    active
        Whether states may be left out in which an idle GPU could have run another task first.
    job, head_us, run_us, tail_us
        Per task: its job, when it can start at the earliest, how long it runs, and the longest path after it.
    input_first, input_task, input_us
        Predecessors, and how long what they send is under way between two GPUs. Shape [tasks + 1], [inputs].
    apart_us
        Per task: the longest that its output is under way.
    needs
        Per task: a mask of the models it needs; none where loads are left out.
    load_us
        Per model; 0 for one that some GPU holds from the start.
    first_task
        Shape [jobs + 1].
    job_before
        Per job: the equal job whose first start comes before its own, NONE without one.
    weight, due_us
        A job costs its weight for every microsecond from its due time to its completion.
    first_stage
        Per job: the stage in which nothing of it has started.
    next_stage
        Stage after the start of a task, by its place in the job; NONE: it cannot start yet, or has started.
        Shape [stages, tasks of the largest workflow].
    only
        Per stage: the one task that can start next, NONE if there are several.
    done, wants
        Per stage: whether all tasks have started; the models that the others need.
    rest, paid
        The least that the rest of a job costs if it starts no earlier than a column's begin, counted from time 0, and
        the part of it that is paid for running. Shape [stages, columns].
    rate, prefix
        Price of compute per microsecond by slot, and from 0 to its beginning.
    slot_us, column_us
        Widths.
    key
        Per task: a random number; those of all tasks that have started are the key of a state.
    gpus
        Their number.
    """

    pooled: bool
    active: bool
    job: Ints
    head_us: Ints
    run_us: Ints
    tail_us: Ints
    input_first: Ints
    input_task: Ints
    input_us: Ints
    apart_us: Ints
    needs: Ints
    load_us: Ints
    first_task: Ints
    job_before: Ints
    weight: Ints
    due_us: Ints
    first_stage: Ints
    next_stage: Ints
    only: Ints
    done: Flags
    wants: Ints
    rest: Ints
    paid: Ints
    rate: Ints
    prefix: Ints
    slot_us: int
    column_us: int
    key: Keys
    gpus: int

    def in_pool(self) -> OrderTables:
        """Return the relaxation without transfers and loads, whose GPUs are all the same."""
        at_once, apart_us, needs = 0 * self.input_us, 0 * self.apart_us, 0 * self.needs
        return self._replace(pooled=True, active=False, input_us=at_once, apart_us=apart_us, needs=needs)

    def with_transfers(self) -> OrderTables:
        """Return the relaxation without loads beyond those that a task must wait for itself."""
        return self._replace(active=False, needs=0 * self.needs)


class States(NamedTuple):
    """What is known after the first starts of an order, of many such orders.

    Parameters
    ----------
    stage, due_us
        Per job: its stage, and when it completes at the earliest. Shape [states, jobs].
    free_us
        When each GPU can start the next task; GPUs are sorted by it. Shape [states, GPUs].
    models, loads_us
        Which models were used on a GPU, as a mask, and the least time by which it can have loaded these and all that
        are still wanted; no models where that binds nobody. Shape [states, GPUs].
    name
        Number of each GPU in the instance. Shape [states, GPUs].
    sent, place, ends_us
        Tasks that run, or whose outputs are under way; on which GPU, and until when. Shape [states, room].
    cost
        Of the jobs all of whose tasks have started.
    begun_us
        Sum of all starts.
    now_us
        No later task starts earlier.
    bound
        No plan that begins like this costs less.
    key
        Equal where the same tasks have started.
    parent, task, gpu
        How the state came about: a state of the step before, and what started where.
    """

    stage: Ints
    due_us: Ints
    free_us: Ints
    models: Ints
    loads_us: Ints
    name: Ints
    sent: Ints
    place: Ints
    ends_us: Ints
    cost: Ints
    begun_us: Ints
    now_us: Ints
    bound: Ints
    key: Keys
    parent: Ints
    task: Ints
    gpu: Ints

    def rows(self, which: Ints | slice) -> States:
        """Return some of the states."""
        return States._make(column[which] for column in self)


class StateGrowth(NamedTuple):
    """The states of a step, and those of the next that grow from them.

    Parameters
    ----------
    tables, states
        What is looked up, and the states that are grown from.
    out
        Room for what comes after them.
    limit
        States whose bound lies above it are left out.
    """

    tables: OrderTables
    states: States
    out: States
    limit: int


class RelaxedStates(NamedTuple):
    """What the states of a relaxation after as many starts still cost.

    Parameters
    ----------
    known
        Whether there is a relaxation; without one the others are empty.
    states, to_go
        Its states, sorted by key, and what each costs at least on top of its cost.
    apart_us
        Per task: how long its output is under way in it.
    """

    known: bool
    states: States
    to_go: Ints
    apart_us: Ints
