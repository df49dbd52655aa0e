"""Annealings of one window that help one another: two work on one plan, and all meet now and then.

Two annealings of one plan at the same time: one moves the tasks before a cut, the other those behind it.
An annealing gains by its length, and two of them that go separate ways are hardly worth more than one. So whoever leads
hands the plan over before a sweep and sweeps the early tasks while the other sweeps the late ones; the parts put
together are decoded and judged like a window of the annealing. The cut is drawn anew for every sweep.

All of them cool by one clock, so that a plan taken over is as hot as the plan that it replaces. At each meeting the
worse half takes over the plans of the better half ("go with the winners", Aldous and Vazirani, FOCS 1994).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import NamedTuple, TypeVar

import numpy as np

from truenorth.models.instance import Instance, Ints
from truenorth.models.objective import Objective
from truenorth.solvers.clock import Clock
from truenorth.solvers.compiled import random_unit
from truenorth.solvers.search.annealer import Annealer, Parameters, Temperature
from truenorth.solvers.search.bands import Stretches
from truenorth.solvers.search.decoder import Decisions

FEWEST_WINDOWS = 4
"""A plan of fewer windows than this is too short for two."""

EARLIEST_CUT, LATEST_CUT = 0.4, 0.6
"""Shares of the tasks between which a cut is drawn: both sides shall take about as long."""

MEETINGS = 24
"""How often annealings meet while they cool."""

_PATIENCE_S = 0.05
"""Seconds between two looks at the clock while one waits for the other."""

Item = TypeVar("Item")


class Handed(NamedTuple):
    """A plan to anneal from a position of its order on."""

    decisions: Decisions
    cut: int


class Returned(NamedTuple):
    """What became of it, and what it costs."""

    decisions: Decisions
    cost: float


class Team:
    """What passes between the two.

    Attributes
    ----------
    complete
        Whether somebody follows who leads.
    """

    def __init__(self) -> None:
        self.complete = False
        self._handed: SimpleQueue[Handed] = SimpleQueue()
        self._returned: SimpleQueue[Returned] = SimpleQueue()

    def sweep(self, annealer: Annealer, temperature: Temperature) -> None:
        """Sweep the plan of who leads once, alone or together."""
        if not self.complete:
            annealer.sweep(temperature)
            return
        begun, cost = annealer.decisions(), annealer.cost
        share = EARLIEST_CUT + (LATEST_CUT - EARLIEST_CUT) * random_unit(annealer.random)
        cut = int(share * len(begun.order))
        self._handed.put(Handed(begun, cut))
        annealer.sweep(temperature, (0, cut))
        other = _wait(self._returned, lambda: temperature() is None)
        if other is not None:
            _take_late_part(annealer, begun.order[:cut], other, other.cost - cost, temperature() or 0.0)

    def follow(self, annealer: Annealer, temperature: Temperature) -> None:
        """Sweep the late tasks of every plan that is handed over, until the time is up."""
        while (handed := _wait(self._handed, lambda: temperature() is None)) is not None:
            annealer.take_over(handed.decisions)
            annealer.sweep(temperature, (handed.cut, len(handed.decisions.order)))
            self._returned.put(Returned(annealer.decisions(), annealer.cost))


class Exchange:
    """Where the annealings of a window meet.

    Parameters
    ----------
    clock
        By which they cool.
    workers
        How many of them begin at once.
    """

    def __init__(self, clock: Clock, workers: int = 1) -> None:
        self.clock, self.workers = clock, workers
        self._lock = threading.Lock()
        self._plans: dict[int, tuple[float, Decisions]] = {}
        self._share: float | None = None
        self._stretches: Stretches | None = None
        self._teams: list[Team] = []

    def agree_on(self, share: float) -> float:
        """Return a job's share of the cost, by which temperatures are measured: what the first annealing said."""
        with self._lock:
            # Who comes first decides: whichever it is, all are equally hot.
            self._share = share if self._share is None else self._share
            return self._share

    def share_out(self, begin: Callable[[], Stretches | None]) -> Stretches | None:
        """Return the stretches of a long trace, made by the first annealing that asks; None if there is no plan."""
        with self._lock:
            self._stretches = begin() if self._stretches is None else self._stretches
            return self._stretches

    def join(self) -> tuple[Team, bool]:
        """Return a team of two, and whether to lead it: who comes first leads, who comes next follows."""
        with self._lock:
            # In twos: one has the early part of the plan, the other the late one.
            leads = not self._teams or self._teams[-1].complete
            if leads:
                self._teams.append(Team())
            else:
                self._teams[-1].complete = True
            return self._teams[-1], leads

    def meet(self, worker: int, cost: float, decisions: Decisions) -> Decisions | None:
        """Show a plan; return one to go on from in its place, None if it is among the better ones."""
        with self._lock:
            self._plans[worker] = cost, decisions
            # Equal costs are ranked by worker, so that the order does not hang on who came first.
            ranked = sorted(self._plans, key=lambda other: (self._plans[other][0], other))
            rank, better = ranked.index(worker), (len(ranked) + 1) // 2
            # The worse half goes on from the better half, rank by rank.
            return None if rank < better else self._plans[ranked[rank - better]][1]


def is_shared(instance: Instance, objective: Objective, parameters: Parameters) -> bool:
    """Say whether two annealings work on one plan.

    A maximum is decided by one place of the plan; batches must not be cut.
    """
    windows = instance.n_tasks / (parameters.tasks_per_gpu * instance.n_gpus)
    return instance.one_at_a_time and objective.is_sum and windows >= FEWEST_WINDOWS


def put_together(early_tasks: Ints, early: Decisions, late: Decisions) -> Decisions:
    """Return some tasks as one plan has them, before all others as another plan has them.

    Every predecessor of the early tasks must be one of them.
    """
    is_early = np.zeros(len(early.order), np.bool_)
    is_early[early_tasks] = True
    order = np.concatenate((early.order[is_early[early.order]], late.order[~is_early[late.order]]))
    return Decisions(order, np.where(is_early, early.gpu, late.gpu))


def _take_late_part(annealer: Annealer, early_tasks: Ints, other: Returned, gained: float, temperature: float) -> None:
    """Go on from the plan with the other's late part, if that is worth about what the other `gained` with it."""
    own, cost = annealer.decisions(), annealer.cost
    annealer.take_over(put_together(early_tasks, own, other.decisions))
    if annealer.cost - cost > max(0.0, gained) - temperature * np.log(random_unit(annealer.random)):
        annealer.take_over(own if cost <= other.cost else other.decisions)


def _wait(queue: SimpleQueue[Item], is_over: Callable[[], bool]) -> Item | None:
    """Return what comes next, None if the time is up before."""
    while True:
        over = is_over()
        try:
            # What was under way when the time ran out still arrives.
            return queue.get(timeout=_PATIENCE_S)
        except Empty:
            if over:
                return None
