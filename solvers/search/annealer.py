"""A plan that simulated annealing improves, over the list decoder.

Sweeps go through the order from front to back. Each step anneals a short window whose past stands: the state of the
cluster at its first task is carried along, so a move costs what the window holds and not what the trace holds. After
each step the plan is decoded to its end: the change is kept or taken back by its exact cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from models.instance import Ints
from solvers.compiled import random_state, random_unit
from solvers.search.annealing_kernel import Scene, Window, advance, anneal_window, evaluate, settle
from solvers.search.current_plan import new_plan
from solvers.search.decoder import Decisions, Decoder
from solvers.search.decoder_kernel import INFEASIBLE, cost_so_far
from solvers.search.decoder_state import FAR, State, copy_of, restore
from solvers.search.retiming import Retiming, new_retiming
from solvers.search.serving_annealing import ServingScene, anneal_serving, evaluate_serving, settle_serving
from solvers.search.serving_decoder import ServingDecoder, spans_of
from solvers.search.serving_kernel import decode_serving, look_ahead_serving

SLICE = 5_000_000
"""Most moves times tasks that may move between two looks at the clock: a tenth of a second where windows are wide."""

TASKS_PER_MOVE = 5
"""Most tasks of a trace per move of a window: to decode the plan to its end afterwards takes about as long."""


Temperature = Callable[[], float | None]
"""Returns how hot it is now, None once the time is up."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """How the annealing runs.

    Parameters
    ----------
    tasks_per_gpu
        Tasks of a window that move, per GPU; half of it is the step to the next window.
    lead_per_gpu, tail_per_gpu
        Tasks before and after them that are timed again, per GPU.
    moves
        Moves per window and task in it; fewer where the window is so wide that they would outlast a slice.
    hot, cold
        First and last temperature, as multiples of a job's average share of the cost.
    chances
        Relative frequency of the kinds of moves, as `MOVES` lists them.
    batch_chances
        Beside them, where there are batch classes: those that `SERVING_MOVES` adds.
    """

    tasks_per_gpu: int = 10
    lead_per_gpu: int = 40
    tail_per_gpu: int = 20
    moves: int = 10
    hot: float = 0.1
    cold: float = 0.004
    chances: tuple[float, ...] = (0.08, 0.04, 0.4, 0.15, 0.07, 0.07, 0.02, 0.1, 0.1, 0.15, 0.1)
    batch_chances: tuple[float, ...] = (0.25, 0.1, 0.1, 0.1, 0.3)


SERVING = Parameters(
    tasks_per_gpu=40, lead_per_gpu=8, chances=(0.08, 0.04, 0.4, 0.15, 0.07, 0.07, 0.02, 0.15, 0.0, 0.0, 0.0)
)
"""Where tasks run together a GPU has more of them at a time, so windows hold more; how long a stretch takes says little
there."""


class Moment(NamedTuple):
    """Where a walk along the order stands: position, state of the cluster, completions and cost of what lies before."""

    at: int
    state: State
    before: Ints
    total: float
    worst: float


class Annealer:
    """A plan under improvement.

    Parameters
    ----------
    decoder
        The instance and its objective.
    start
        Decisions that decode to a plan.
    seed
        Of the random stream.
    parameters
        How the annealing runs.
    within
        First position of the order that may change and the first that may not again; None: all may.

    Attributes
    ----------
    cost, best_cost, best
        Cost of the current plan and of the best one so far, and the decisions of the latter.
    moves
        Moves tried so far.
    counts
        Per kind of move: proposed, accepted, improving. Shape [kinds, 3].

    Where tasks run in batches, `ServingAnnealer` is the one to take.
    """

    def __init__(
        self,
        decoder: Decoder,
        start: Decisions,
        seed: int,
        parameters: Parameters,
        within: tuple[int, int] | None = None,
    ) -> None:
        self.decoder, self.parameters = decoder, parameters
        self.random = random_state(seed)
        self.moves = 0
        self.counts = np.zeros((len(self._chances(parameters)), 3), np.int64)
        self._cumulated = np.cumsum(np.array(self._chances(parameters)) / sum(self._chances(parameters)))
        self._cumulated[-1] = 1.0
        self._work = decoder.work(start)
        self._state, self._origin = copy_of(decoder.origin), copy_of(decoder.origin)
        self._tasks = len(start.order)
        begin, self._end = within or (0, self._tasks)
        self._judged = self._tasks  # most tasks that are decoded after a window
        self._plan = new_plan(start.order, start.gpu, np.argsort(start.order))
        self._work = self._work._replace(order=self._plan.order, gpu=self._plan.gpu)
        self._joins = self._begin_joins(start)
        self._retiming = self._begin_retiming()
        completed = decoder.tables.ideal_us.copy()
        self._mark = Moment(0, decoder.origin, completed, *cost_so_far(decoder.tables, completed))
        self._rewind()
        self.cost = self._cost()
        self._settle(begin)
        self.best_cost, self.best = self.cost, start

    def sweep(self, temperature: Temperature, part: tuple[int, int] | None = None) -> None:
        """Anneal every window once, front to back; `temperature` is asked before each, None ends the sweep.

        Parameters
        ----------
        part
            Positions [first, beyond) of the order, whose windows alone are annealed; None: all.
        """
        self._rewind()
        for first, beyond in self._windows(*(part or (0, self._tasks))):
            current = temperature()
            if current is None:
                return
            self._anneal_window(first, beyond, current)

    def take_over(self, decisions: Decisions) -> None:
        """Go on from another plan."""
        plan = self._plan
        plan.order[:], plan.gpu[:] = decisions.order, decisions.gpu
        plan.position[plan.order] = np.arange(self._tasks)
        if decisions.joins is not None:
            self._joins[:] = decisions.joins
        self.cost = self._cost()
        self._settle(0)
        self._keep_best()

    def decisions(self) -> Decisions:
        """Return a copy of the current decisions."""
        return Decisions(self._plan.order.copy(), self._plan.gpu.copy(), self._joins.copy())

    @staticmethod
    def _chances(parameters: Parameters) -> tuple[float, ...]:
        """Return how often each kind of move is tried."""
        return parameters.chances

    def _windows(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the windows of a sweep over the positions [begin, end)."""
        size = min(end - begin, self.parameters.tasks_per_gpu * self.decoder.instance.n_gpus)
        step = max(1, size // 2)
        # The windows of a sweep begin somewhere else each time, so that no seam stays where it is.
        first = begin - int(random_unit(self.random) * step) if size < end - begin else begin
        while first < end:
            yield max(begin, first), min(end, first + size)
            if first + size >= end:
                return
            first += step

    def _rewind(self) -> None:
        """Go back to where sweeps begin."""
        restore(self._origin, self._mark.state)
        self._before = self._mark.before.copy()
        self._at, self._total, self._worst = self._mark.at, self._mark.total, self._mark.worst

    def _begin_joins(self, start: Decisions) -> Ints:
        """Return the array that says which tasks join a batch."""
        return np.zeros(len(start.order), np.int64)

    def _begin_retiming(self) -> Retiming:
        """Return working memory for the tasks of a window."""
        widest = self.parameters.lead_per_gpu + self.parameters.tasks_per_gpu + self.parameters.tail_per_gpu
        return new_retiming(self.decoder.tables, min(self._tasks, widest * self.decoder.instance.n_gpus))

    def _advance(self, to: int) -> None:
        """Move the carried state to a later position."""
        scene = self._scene(self._origin, self._before)
        self._total, self._worst = advance(scene, self._at, to, self._total, self._worst)
        self._at = to

    def _cost(self) -> float:
        """Return the cost of the plan, decoded from the beginning."""
        tables = self.decoder.tables
        window = Window(0, 0, self._tasks, self._tasks, *cost_so_far(tables, tables.ideal_us))
        return self._evaluate(self.decoder.origin, tables.ideal_us.copy(), window)

    def _evaluate(self, origin: State, before: Ints, window: Window) -> float:
        """Return the cost of the plan up to the end of a window."""
        return evaluate(self._scene(origin, before), window, INFEASIBLE)

    def _anneal(self, window: Window, temperature: float, moves: int) -> tuple[float, float, float]:
        """Try a number of moves in a window that begins with the carried state.

        Return the cost of the window before and after them, and that of the whole plan.
        """
        scene = self._scene(self._origin, self._before)
        return anneal_window(scene, self._plan, window, temperature, moves, self._cumulated, self.random, self.counts)

    def _scene(self, origin: State, before: Ints) -> Scene:
        return Scene(
            self.decoder.tables, origin, before, self._state, self._work, self.decoder.residencies, self._retiming
        )

    def _settle(self, first: int) -> None:
        """Make the decoded start times from a position on those of the plan."""
        settle(self._plan, self._work.start, first, self._end)

    def _keep_best(self) -> None:
        """Keep the current decisions if they are the best so far."""
        if self.cost < self.best_cost * (1 - 1e-12):
            self.best_cost, self.best = self.cost, self.decisions()

    def _part(self, position: int) -> int:
        """Return the last position up to this one at which the order may be cut."""
        return position

    def _anneal_window(self, first: int, beyond: int, temperature: float) -> None:
        """Anneal a window, then decode the plan to its end; keep the change or take it back by its exact cost."""
        plan, gpus = self._plan, self.decoder.instance.n_gpus
        lead = max(self._at, self._part(max(0, first - self.parameters.lead_per_gpu * gpus)))
        last = min(self._end, beyond + self.parameters.tail_per_gpu * gpus)
        if lead > self._at:
            self._advance(lead)
        old_order, old_time = plan.order[lead:last].copy(), plan.time[plan.order[lead:last]].copy()
        old_gpu, old_joins = plan.gpu[old_order], self._joins[old_order]
        window = Window(lead, first, beyond, last, self._total, self._worst)
        width = beyond - first
        moves = max(1, min(max(self.parameters.moves * width, self._judged // TASKS_PER_MOVE), SLICE // width))
        before, after, cost = self._anneal(window, temperature, moves)
        self.moves += moves
        if cost - self.cost > max(0.0, after - before) - temperature * np.log(random_unit(self.random)):
            plan.order[lead:last] = old_order
            plan.position[old_order] = np.arange(lead, last)
            plan.gpu[old_order], plan.time[old_order] = old_gpu, old_time
            self._joins[old_order] = old_joins
            return
        self._settle(lead)
        self.cost = cost
        self._keep_best()


class ServingAnnealer(Annealer):
    """The same where tasks run in batches, take shares of a GPU or hold memory."""

    decoder: ServingDecoder

    @staticmethod
    def _chances(parameters: Parameters) -> tuple[float, ...]:
        return *parameters.chances, *parameters.batch_chances

    def _begin_retiming(self) -> Retiming:
        return new_retiming(self.decoder.tables, 0)

    def _begin_joins(self, start: Decisions) -> Ints:
        self._runs, self._spans = self.decoder.runs(start), spans_of(self._work)
        return self._runs.joins

    def _advance(self, to: int) -> None:
        """Move the carried state to a later position."""
        self._origin.upcoming[:] = FAR
        self._look_ahead(self._at, self._tasks)
        jobs = self.decoder.tables.task_job[self._plan.order[self._at : to]]
        self._work.completed[jobs] = self._before[jobs]
        self._total, self._worst = self._decode(to)
        self._before[jobs] = self._work.completed[jobs]
        self._at = to

    def _look_ahead(self, first: int, last: int) -> None:
        look_ahead_serving(self.decoder.tables, self._origin, self._work, self._runs, first, last)

    def _decode(self, to: int) -> tuple[float, float]:
        return decode_serving(
            self.decoder.tables,
            self.decoder.service,
            self._origin,
            self._work,
            self._spans,
            self._runs,
            self.decoder.residencies,
            self._at,
            to,
            self._total,
            self._worst,
            INFEASIBLE,
        )

    def _evaluate(self, origin: State, before: Ints, window: Window) -> float:
        return evaluate_serving(self._serving_scene(origin, before), window, INFEASIBLE)

    def _anneal(self, window: Window, temperature: float, moves: int) -> tuple[float, float, float]:
        self._origin.upcoming[:] = FAR
        self._look_ahead(window.last, self._tasks)
        before = self._evaluate(self._origin, self._before, window)
        scene = self._serving_scene(self._origin, self._before)
        after = anneal_serving(
            scene, self._plan, window, before, temperature, moves, self._cumulated, self.random, self.counts
        )
        return before, after, self._cost()

    def _settle(self, first: int) -> None:
        settle_serving(self._serving_scene(self._origin, self._before), self._plan, first, self._tasks)

    def _serving_scene(self, origin: State, before: Ints) -> ServingScene:
        return ServingScene(
            self.decoder.tables,
            self.decoder.service,
            origin,
            before,
            self._state,
            self._work,
            self._spans,
            self._runs,
            self.decoder.residencies,
        )

    def _part(self, position: int) -> int:
        """Return the last position up to this one that lies between two batches: there the start changes."""
        order, time_us = self._plan.order, self._plan.time
        while 0 < position < self._tasks and time_us[order[position - 1]] == time_us[order[position]]:
            position -= 1
        return position
