"""Refutations, for the verifier: no plan stays below a value, for then every job would have to end by a due date.

A maximum stays below a value if every job ends by some instant, and so few jobs are late only if all others are on
time. Whatever stands in the certificate, the due dates are computed here, and all start orders are looked for again:
where the search finds none that meets them all, no plan does.

The search is written from docs/certificate.md. Beginnings of start orders grow by one task after the other. One is
dropped if a task that is left cannot end in time, if those that are due by an instant take more than the GPUs have
until then, or if another one with the same tasks is as early in everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache
from itertools import accumulate
from math import ceil
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truenorth.models import Instance, Objective
from truenorth.models.features import ONE_AT_A_TIME, missing
from truenorth.models.instance import NEVER, NONE, Ints
from truenorth.solvers.bounds.alone import LoneJobs
from truenorth.solvers.bounds.certified import RefusedError, as_list, get, whole
from truenorth.solvers.bounds.effort import Effort, TooLargeError
from truenorth.solvers.bounds.order_states import dominate
from truenorth.solvers.bounds.recomputed import least_value
from truenorth.solvers.bounds.refuted_terms import DueWindows, Energies

_MOST_CELLS = 30_000_000
"""So many numbers lie in memory at once."""
_PAIRS_AT_ONCE = 4_000_000
"""Pairs of tasks in the states that are continued at a time."""

_NEVER_US = 1 << 53

Flags = NDArray[np.bool_]


class Beginnings(NamedTuple):
    """What is known after the first starts of some start orders.

    Parameters
    ----------
    started
        Which tasks have started. Shape [states, tasks].
    free_us, busy_us, held
        Per GPU, sorted within its class: when it can start the next task, how long it has loaded at least (and run,
        if it does not do both at once), and which models it holds that somebody still needs. Shape [states, GPUs].
    end_us, place
        Per task: when it ends and on which GPU, 0 where it has not started, or its output is everywhere by now, or
        nobody needs it. Shape [states, tasks].
    """

    started: Flags
    free_us: Ints
    busy_us: Ints
    held: Ints
    end_us: Ints
    place: Ints

    @property
    def number(self) -> int:
        """How many there are."""
        return len(self.started)

    def rows(self, which: Ints | Flags | slice) -> Beginnings:
        """Return some of them."""
        return Beginnings._make(column[which] for column in self)


class Refutation:
    """Grows beginnings of start orders as long as all tasks can still end in time."""

    def __init__(self, windows: DueWindows, energies: Energies, effort: Effort) -> None:
        self.windows, self.energies, self.effort = windows, energies, effort
        tasks = windows.tasks
        self._before, self._reach_us = np.zeros((tasks, tasks), np.float32), np.zeros(tasks, np.int64)
        for task, at in zip(*np.nonzero(windows.source != NONE), strict=True):
            before = windows.source[task, at]
            self._before[before, task] = 1
            self._reach_us[before] = max(self._reach_us[before], windows.gap_us[task, at].max())
        self._can = windows.run_us != NEVER
        self._key = np.random.default_rng(0).integers(1, 1 << 62, tasks)
        self._kept = cache(self._kept_at)
        self._wants = np.bitwise_or.reduce(windows.needs, axis=1)
        self._surely = np.bitwise_and.reduce(np.where(self._can, windows.needs, -1), axis=1)
        classes = range(windows.needs.shape[1])
        self._load_us = np.array([windows.loads_us(windows.needs[:, c], c) for c in classes]).max(axis=0)

    def holds(self) -> bool:
        """Say whether no start order ends all tasks in time.

        Raises
        ------
        TooLargeError
            If that takes too much.
        """
        if self._overfull():
            return True
        gpus, tasks = len(self.windows.gpu_class), self.windows.tasks
        at_once = 1 + _PAIRS_AT_ONCE // tasks**2
        none = np.zeros((1, gpus), np.int64), np.zeros((1, tasks), np.int64)
        states = Beginnings(np.zeros((1, tasks), np.bool_), none[0], none[0], none[0], none[1], none[1])
        states = states.rows(self._alive(states))
        for number in range(tasks):
            if not states.number:
                return True
            grown, cells = list[Beginnings](), 0
            for first in range(0, states.number, at_once):
                grown.append(self._grow(states.rows(slice(first, first + at_once)), number))
                cells += sum(column.size for column in grown[-1])
                if cells > _MOST_CELLS:
                    raise TooLargeError("too many states")
            states = Beginnings._make(map(np.concatenate, zip(*grown, strict=True)))
            states = states.rows(self._needed(states))
        return not states.number

    # What can start next

    def _grow(self, states: Beginnings, number: int) -> Beginnings:
        """Return the states after one more start, as far as all tasks can still end in time."""
        windows, gpu_class = self.windows, self.windows.gpu_class
        if windows.in_order:
            at, task = np.arange(states.number), np.full(states.number, number)
        else:
            left = ~states.started
            at, task = np.nonzero(left & (left @ self._before == 0))
        needs, run_us = windows.needs[task][:, gpu_class], windows.run_us[task][:, gpu_class]
        start_us, load_us = self._starts(states, at, task, needs)
        possible = (run_us != NEVER) & (start_us + run_us <= windows.last_us[task, None])
        # What cannot end in time now cannot do so later.
        lost = np.zeros(states.number, np.bool_)
        lost[at[~possible.any(axis=1)]] = True
        index, gpu = np.nonzero(possible & ~lost[at, None] & ~self._as_the_one_before(states)[at])
        held, index, gpu = self._hold(states, at, index, gpu, needs)
        if len(index) * windows.tasks > _MOST_CELLS:
            raise TooLargeError("too many states")
        at, task, start_us, run_us, load_us = (
            at[index], task[index], start_us[index, gpu], run_us[index, gpu], load_us[index, gpu]
        )  # fmt: skip
        return self._after(states.rows(at), task, gpu, start_us, run_us, load_us, held)

    def _starts(self, states: Beginnings, at: Ints, task: Ints, needs: Ints) -> tuple[Ints, Ints]:
        """Return when tasks can start on each GPU, and how long it loads for that. Shape [pairs, GPUs]."""
        windows, gpu_class = self.windows, self.windows.gpu_class
        self.effort.spend(len(at) * len(gpu_class) * (1 + windows.source.shape[1]))
        start_us = np.maximum(states.free_us[at], windows.head_us[task, None])
        for each in range(windows.source.shape[1]):
            some = np.flatnonzero(windows.source[task, each] != NONE)
            before = windows.source[task[some], each]
            end_us, place = states.end_us[at[some], before][:, None], states.place[at[some], before][:, None]
            gap_us = windows.gap_us[task[some, None], each, gpu_class[place], gpu_class]
            arrives_us = end_us + np.where((place == np.arange(len(gpu_class))) | (end_us == 0), 0, gap_us)
            start_us[some] = np.maximum(start_us[some], arrives_us)
        loads, load_us = needs & ~states.held[at], np.zeros(needs.shape, np.int64)
        if loads.any():
            for gpu, c in enumerate(gpu_class.tolist()):
                load_us[:, gpu] = windows.loads_us(loads[:, gpu], c)
        return np.maximum(start_us, states.busy_us[at] + load_us), load_us

    def _as_the_one_before(self, states: Beginnings) -> Flags:
        """Say which GPUs are to every later task as the one before them is. Shape [states, GPUs]."""
        gpus = np.arange(len(self.windows.gpu_class))
        plain = ~((states.place[:, :, None] == gpus) & (states.end_us > 0)[:, :, None]).any(axis=1)
        same = np.zeros(states.free_us.shape, np.bool_)
        same[:, 1:] = plain[:, 1:] & plain[:, :-1] & (np.diff(self.windows.gpu_class) == 0)
        for column in (states.free_us, states.busy_us, states.held):
            same[:, 1:] &= column[:, 1:] == column[:, :-1]
        return same

    def _hold(self, states: Beginnings, at: Ints, index: Ints, gpu: Ints, needs: Ints) -> tuple[Ints, Ints, Ints]:
        """Return what GPUs hold while starts run, in every way that keeps most, and which starts and GPUs those are."""
        held, needed = states.held[at[index], gpu], needs[index, gpu]
        if not (held | needed).any():
            return held, index, gpu
        wanted = np.bitwise_or.reduce(np.where(states.started, 0, self._wants), axis=1)[at[index]]
        asked = zip((held & wanted).tolist(), needed.tolist(), self.windows.gpu_class[gpu].tolist(), strict=True)
        ways = [self._kept(hold, need, c) for hold, need, c in asked]
        count = np.array(list(map(len, ways)), np.int64)
        self.effort.spend(int(count.sum()))
        kept = np.array([each for way in ways for each in way], np.int64)
        return kept, np.repeat(index, count), np.repeat(gpu, count)

    def _kept_at(self, held: int, needed: int, c: int) -> list[int]:
        """Return what a GPU of a class may hold while a task runs that needs something."""
        ways = self.windows.kept(held, needed, c)
        self.effort.spend(len(ways))
        return [kept | needed for kept in ways]

    def _after(
        self, states: Beginnings, task: Ints, gpu: Ints, start_us: Ints, run_us: Ints, load_us: Ints, held: Ints
    ) -> Beginnings:
        """Return states, one per row, after a task has started."""
        windows, rows = self.windows, np.arange(len(task))
        states.started[rows, task] = True
        if not windows.in_order:
            # Starts are in order: no GPU is of use before this one.
            np.maximum(states.free_us, start_us[:, None], out=states.free_us)
        states.free_us[rows, gpu] = states.end_us[rows, task] = start_us + run_us
        states.place[rows, task] = gpu
        states.busy_us[rows, gpu] += load_us + (0 if windows.overlap else run_us)
        states.held[rows, gpu] = held
        wanted = np.bitwise_or.reduce(np.where(states.started, 0, self._wants), axis=1)
        np.bitwise_and(states.held, wanted[:, None], out=states.held)
        if windows.overlap:
            # All loads that may yet be needed end before the GPU is free: nobody waits for one.
            yet_us = np.where(states.started, 0, self._load_us).sum(axis=1)
            idle = states.busy_us + yet_us[:, None] <= states.free_us
            states.busy_us[idle] = states.held[idle] = 0
        # Nobody needs them, or they are everywhere before anyone could.
        everywhere = states.end_us + self._reach_us <= states.free_us.min(axis=1)[:, None]
        gone = everywhere | (~states.started @ self._before.T == 0)
        states.end_us[gone] = states.place[gone] = 0
        states = states.rows(self._alive(states))
        classes = np.broadcast_to(windows.gpu_class, states.held.shape)
        order = np.lexsort((states.held, states.busy_us, states.free_us, classes))
        where = np.argsort(order, axis=1)
        free_us, busy_us, held = (np.take_along_axis(each, order, 1) for each in states[1:4])
        place = np.where(states.end_us > 0, np.take_along_axis(where, states.place, 1), 0)
        return Beginnings(states.started, free_us, busy_us, held, states.end_us, place)

    # What cannot end in time

    def _alive(self, states: Beginnings) -> Flags:
        """Say after which states all tasks may still end in time, as far as this shows."""
        windows, energies, left = self.windows, self.energies, ~states.started
        self.effort.spend(states.started.size * len(energies.weight) * (1 + len(energies.until_us) // 16))
        earliest_us = self._earliest(states)
        alive = np.asarray((~left | (earliest_us + windows.fastest_us <= windows.last_us)).all(axis=1))
        # Per class: when a task may start on it at all.
        first_us = np.array([np.where(left & can, earliest_us, _NEVER_US).min(axis=1) for can in self._can.T])
        from_us = np.maximum(states.free_us, first_us[windows.gpu_class].T)
        for weight, energy in zip(energies.weight, energies.energy, strict=True):
            taken = np.where(left, energy, 0).astype(np.float64) @ energies.due.T.astype(np.float64)
            there = np.zeros(taken.shape, np.int64)
            for gpu, c in enumerate(windows.gpu_class.tolist()):
                there += weight[c] * np.maximum(0, energies.due_us[:, c] - from_us[:, gpu, None])
            alive &= (taken <= there).all(axis=1)
        return alive if windows.overlap else alive & self._loads_fit(states)

    def _loads_fit(self, states: Beginnings) -> Flags:
        """Say where runs and loads that must follow leave no GPU busy beyond the last due date; they do not overlap."""
        windows, left = self.windows, ~states.started
        missing = np.bitwise_or.reduce(np.where(left, self._surely, 0), axis=1)
        missing &= ~np.bitwise_or.reduce(states.held, axis=1)
        # A model's least: one may load fastest here, another one there.
        loads_us = np.zeros(states.number, np.int64)
        for model, least_us in enumerate(windows.load_us.min(axis=1).tolist()):
            loads_us += least_us * (missing >> model & 1)
        taken = np.where(left, windows.fastest_us, 0).sum(axis=1) + loads_us
        last_us = windows.last_us.max()
        return np.asarray(taken <= np.maximum(0, last_us - states.busy_us).sum(axis=1))

    def _earliest(self, states: Beginnings) -> Ints:
        """Return when each task that is left may start at the earliest. Shape [states, tasks]."""
        windows, gpus = self.windows, range(len(self.windows.gpu_class))
        earliest_us = np.broadcast_to(windows.head_us, states.started.shape).copy()
        for able in np.unique(self._can, axis=0):
            here = [gpu for gpu in gpus if able[windows.gpu_class[gpu]]]
            tasks = (self._can == able).all(axis=1)
            earliest_us[:, tasks] = np.maximum(earliest_us[:, tasks], states.free_us[:, here].min(axis=1)[:, None])
        for task in windows.topological:
            for before in windows.source[task]:
                if before != NONE:
                    end_us = np.where(
                        states.started[:, before],
                        states.end_us[:, before],
                        earliest_us[:, before] + windows.fastest_us[before],
                    )
                    earliest_us[:, task] = np.maximum(earliest_us[:, task], end_us)
        return earliest_us

    def _overfull(self) -> bool:
        """Say whether some tasks that come no sooner than an instant and are due by another take more than there is."""
        windows, energies = self.windows, self.energies
        for begin_us in np.unique(windows.head_us):
            inside = energies.due & (windows.head_us >= begin_us)
            self.effort.spend(inside.size * len(energies.weight))
            from_us = np.where(inside[:, :, None] & self._can, windows.head_us[:, None], _NEVER_US).min(axis=1)
            until_us = np.where(inside[:, :, None] & self._can, windows.last_us[:, None], 0).max(axis=1)
            there = np.maximum(0, until_us - from_us)[:, windows.gpu_class] @ energies.weight[:, windows.gpu_class].T
            if (inside.astype(np.int64) @ energies.energy.T > there).any():
                return True
        return False

    # What another one makes superfluous

    def _needed(self, states: Beginnings) -> Ints:
        """Return the states that no other one is as early as, that comes before it in a fixed order."""
        key = (states.started * self._key).sum(axis=1)
        order = np.lexsort((states.busy_us.sum(axis=1), states.free_us.sum(axis=1), key))
        instead = dominate(key, order, lambda a, b: self._as_early(states, a, b))
        return np.flatnonzero(instead == np.arange(states.number))

    def _as_early(self, states: Beginnings, a: Ints, b: Ints) -> Flags:
        """Say for pairs of states whether whatever can follow the second can follow the first, no later."""
        self.effort.spend(len(a) * states.free_us.shape[1])
        early = np.asarray((states.free_us[a] <= states.free_us[b]).all(axis=1))
        at = np.flatnonzero(early)
        self.effort.spend(len(at) * states.end_us.shape[1])
        a, b = a[at], b[at]
        here = (states.started[a] == states.started[b]).all(axis=1)
        here &= (states.busy_us[a] <= states.busy_us[b]).all(axis=1)
        here &= (states.held[b] & ~states.held[a] == 0).all(axis=1)
        now_us = states.free_us[b].min(axis=1)[:, None]
        same = (states.place[a] == states.place[b]) & (states.end_us[a] <= states.end_us[b])
        sent = states.end_us[a] + self._reach_us <= np.maximum(now_us, states.end_us[b])
        here &= ((states.end_us[a] == 0) | same | sent).all(axis=1)
        early[at] = here
        return early


REFUTATION = "refutation"
"""Name of the method."""
MOST_EFFORT = 2_000_000_000
"""What all start orders of a certificate may take together."""
_EFFORT_OF_A_CASE = 500_000
SUPPORTS = ONE_AT_A_TIME
OBJECTIVES = (Objective.MAKESPAN, Objective.MAX_SLOWDOWN, Objective.LATE_JOBS)
_LARGEST, _LARGEST_WEIGHT, _MOST_ROWS = 1 << 60, 1 << 20, 64

Again = Callable[[Instance, Objective, str, object], Fraction]


def applies(instance: Instance, objective: Objective) -> bool:
    """Say whether refutations are for a window."""
    return objective in OBJECTIVES and not missing(instance, SUPPORTS)


def refuted_value(instance: Instance, objective: Objective, proof: object, again: Again) -> tuple[Fraction, str]:
    """Return what a certificate proves, and how: by its refutation, or else in the other way that it names.

    Parameters
    ----------
    again
        Returns what any other method proves of a window.
    """
    if not applies(instance, objective):
        raise RefusedError(
            f"{REFUTATION} is for maxima and late jobs, of tasks that run one at a time on GPUs that stay"
        )
    parameters, prices = get(proof, "parameters"), get(proof, "prices")
    scale = whole(get(parameters, "scale"), 1, _LARGEST, "scale")
    least = Fraction(whole(get(parameters, "least"), 1, _LARGEST, "least"), scale)
    weights = _read_weights(instance, get(prices, "weights"))
    try:
        if refute(instance, objective, least, weights, Effort(MOST_EFFORT)):
            return least_value(instance, objective, least), REFUTATION
        reason = "a start order is in time"
    except TooLargeError as error:
        reason = str(error)
    otherwise = proof.get("otherwise") if isinstance(proof, dict) else None
    if otherwise is None:
        return Fraction(0), f"nothing ({REFUTATION}: {reason})"
    method = get(otherwise, "method")
    return again(instance, objective, method, otherwise), f"{method} ({REFUTATION}: {reason})"


def _read_weights(instance: Instance, listed: object) -> list[list[int]]:
    rows = as_list(listed, None, "weights")
    if len(rows) > _MOST_ROWS:
        raise RefusedError(f"weights must be a list of at most {_MOST_ROWS}")
    classes = len(instance.class_gpu)
    return [[whole(w, 0, _LARGEST_WEIGHT, "weights") for w in as_list(row, classes, "weights")] for row in rows]


def refute(instance: Instance, objective: Objective, least: Fraction, weights: list[list[int]], effort: Effort) -> bool:
    """Say whether it is proved that no plan stays below a value.

    Parameters
    ----------
    least
        In the units of `objective_value`.
    weights
        Rows of a weight per GPU class by which time on them is counted, beside all alike.

    Raises
    ------
    TooLargeError
        If that takes too much.
    """
    alone, alike = LoneJobs(instance), [1] * len(instance.class_gpu)
    for due_us in due_dates(instance, objective, least, alone, effort):
        if not due_us:
            return False
        effort.spend(_EFFORT_OF_A_CASE)
        windows = DueWindows.of(instance, alone, due_us)
        if not Refutation(windows, Energies.of(windows, [alike, *weights]), effort).holds():
            return False
    return True


def due_dates(
    instance: Instance, objective: Objective, least: Fraction, alone: LoneJobs, effort: Effort
) -> Iterator[dict[int, int]]:
    """Yield when jobs must have ended, one of which every plan below a value keeps."""
    jobs = list(enumerate(instance.jobs))
    if objective is Objective.LATE_JOBS:
        due = {job: owner.release_us + owner.deadline_us for job, owner in jobs if owner.deadline_us is not None}
        on_time = [job for job, at in due.items() if max(alone.times(job)[1]) <= at]
        hopeless = sum((instance.jobs[job].weight for job in due.keys() - set(on_time)), Fraction(0))
        # Beside those that are late even alone others may be, as long as all weigh less.
        for late in _most_late({job: instance.jobs[job].weight for job in on_time}, least - hopeless, effort):
            yield {job: due[job] for job in on_time if job not in late}
    elif objective is Objective.MAKESPAN:
        yield dict.fromkeys(range(len(jobs)), ceil(least) - 1)
    else:
        yield {job: owner.release_us + ceil(least * owner.ideal_us) - 1 for job, owner in jobs}


def _most_late(weight: dict[int, Fraction], below: Fraction, effort: Effort) -> Iterator[set[int]]:
    """Yield the sets of jobs that weigh less than that together, but for those that lie in a larger one of them."""
    order = sorted(weight, key=lambda job: -weight[job])
    rest = [*accumulate((weight[job] for job in reversed(order)), initial=Fraction(0))][::-1]
    # Which jobs are in, how many were looked at, what is left for the others, and the least that was left out.
    open_sets = [(frozenset[int](), 0, below, below)] if below > 0 else []
    while open_sets:
        late, at, left, left_out = open_sets.pop()
        effort.spend(1)
        # Even with all that follow there is room for one that was left out.
        if rest[at] + left_out < left:
            continue
        if at == len(order):
            yield set(late)
            continue
        own = weight[order[at]]
        if own > 0:  # without weight it may be late, whatever else is
            open_sets.append((late, at + 1, left, own))
        if own < left:
            open_sets.append((late | {order[at]}, at + 1, left - own, left_out))
