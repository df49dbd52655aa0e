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

from truenorth.models.instance import Ints
from truenorth.solvers.compiled import Floats, random_state, random_unit
from truenorth.solvers.search.annealing_kernel import Schedule, advance, anneal_window, evaluate, settle
from truenorth.solvers.search.current_plan import new_plan
from truenorth.solvers.search.decoder import Decisions, Decoder
from truenorth.solvers.search.decoder_kernel import INFEASIBLE, Cost, cost_so_far
from truenorth.solvers.search.decoder_state import ClusterState, Decoding, copy_of, restore
from truenorth.solvers.search.retiming import Scene, Window, new_retiming

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
        Beside them, where there are batch classes: those that `BATCH_MOVES` adds; not measured one by one.

    Notes
    -----
    What they were measured to be worth (`experiments/benchmarks/search.md`; four windows, 1.6 s, 1.623 as they are): 20
    tasks per GPU that move 1.655, 40 with 80 before and 40 behind 1.667, thrice the moves 1.651, `hot` 0.05 1.641,
    `cold` 0.002 1.667. Exchanges of GPUs at 0.05 of all moves in place of 0.15: 1.522 for 1.514 on another window.
    """

    tasks_per_gpu: int = 10
    lead_per_gpu: int = 40
    tail_per_gpu: int = 20
    moves: int = 10
    hot: float = 0.1
    cold: float = 0.004
    chances: tuple[float, ...] = (0.08, 0.04, 0.4, 0.15, 0.07, 0.07, 0.02, 0.1, 0.1, 0.15, 0.1)
    batch_chances: tuple[float, ...] = (0.25, 0.1, 0.1, 0.1, 0.3)

    def frequencies(self, serving: bool) -> tuple[float, ...]:
        """Return how often each kind of move is tried, with or without batches."""
        return (*self.chances, *self.batch_chances) if serving else self.chances


SERVING = Parameters(
    tasks_per_gpu=40, lead_per_gpu=8, chances=(0.08, 0.04, 0.4, 0.15, 0.07, 0.07, 0.02, 0.15, 0.0, 0.0, 0.0)
)
"""Where tasks run together a GPU has more of them at a time, so windows hold more; how long a stretch takes says little
there."""


class Waypoint(NamedTuple):
    """Where a walk along the order stands: position, state of the cluster, completions and cost of what lies before."""

    at: int
    state: ClusterState
    before: Ints
    cost: Cost


def cumulate(frequencies: tuple[float, ...]) -> Floats:
    """Return cumulated probabilities of moves that are tried so often, the last of them 1."""
    cumulated = np.cumsum(np.array(frequencies) / sum(frequencies))
    # Sums of floats may end just below 1: then a draw above it would be past the last kind.
    cumulated[-1] = 1.0
    return cumulated


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
        frequencies = parameters.frequencies(decoder.service is not None)
        self.counts, self._chances = np.zeros((len(frequencies), 3), np.int64), cumulate(frequencies)
        self._work = decoder.work(start)
        self._state, self._origin = copy_of(decoder.origin), copy_of(decoder.origin)
        self._tasks = len(start.order)
        begin, self._end = within or (0, self._tasks)
        self._judged = self._tasks  # most tasks that are decoded after a window
        self._plan = new_plan(start.order, start.gpu, np.argsort(start.order))
        self._work = self._work._replace(order=self._plan.order, gpu=self._plan.gpu)
        self._serving = decoder.serving(start)
        self._joins = np.zeros(self._tasks, np.int64) if self._serving is None else self._serving.runs.joins
        widest = parameters.lead_per_gpu + parameters.tasks_per_gpu + parameters.tail_per_gpu
        rows = 0 if self._serving is not None else min(self._tasks, widest * decoder.instance.n_gpus)
        self._retiming = new_retiming(decoder.tables, rows)
        completed = decoder.tables.ideal_us.copy()
        self._mark = Waypoint(0, decoder.origin, completed, cost_so_far(decoder.tables, completed))
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
        self._at, self._so_far = self._mark.at, self._mark.cost

    def _advance(self, to: int) -> None:
        """Move the carried state to a later position."""
        self._so_far = advance(self._scene(self._origin, self._before), self._serving, self._at, to, self._so_far)
        self._at = to

    def _cost(self) -> float:
        """Return the cost of the plan, decoded from the beginning."""
        tables = self.decoder.tables
        window = Window(0, 0, self._tasks, self._tasks, *cost_so_far(tables, tables.ideal_us))
        return self._evaluate(self.decoder.origin, tables.ideal_us.copy(), window)

    def _evaluate(self, origin: ClusterState, before: Ints, window: Window) -> float:
        """Return the cost of the plan up to the end of a window."""
        return evaluate(self._scene(origin, before), self._serving, window, INFEASIBLE)

    def _anneal(self, window: Window, temperature: float, moves: int) -> tuple[float, float, float]:
        """Try a number of moves in a window that begins with the carried state.

        Return the cost of the window before and after them, and that of the whole plan.
        """
        scene, schedule = (
            self._scene(self._origin, self._before),
            Schedule(temperature, moves, self._chances, self.random, self.counts),
        )
        before, after, cost = anneal_window(scene, self._serving, self._plan, window, schedule)
        return before, after, cost if self._serving is None else self._cost()

    def _scene(self, origin: ClusterState, before: Ints) -> Scene:
        on = Decoding(self.decoder.tables, self._state, self._work, self.decoder.residencies)
        return Scene(on, origin, before, self._retiming)

    def _settle(self, first: int) -> None:
        """Make the decoded start times from a position on those of the plan."""
        settle(self._plan, self._work.start, self._serving, first, self._end)

    def _keep_best(self) -> None:
        """Keep the current decisions if they are the best so far."""
        # By more than rounding, or sums in another order would count as progress.
        if self.cost < self.best_cost * (1 - 1e-12):
            self.best_cost, self.best = self.cost, self.decisions()

    def _part(self, position: int) -> int:
        """Return the last position up to this one at which the order may be cut: between two batches, if there are any.

        There the start changes.
        """
        order, time_us = self._plan.order, self._plan.time
        while self._serving is not None and 0 < position < self._tasks:
            if time_us[order[position - 1]] != time_us[order[position]]:
                break
            position -= 1
        return position

    def _anneal_window(self, first: int, beyond: int, temperature: float) -> None:
        """Anneal a window, then decode the plan to its end; keep the change or take it back by its exact cost."""
        plan, gpus = self._plan, self.decoder.instance.n_gpus
        # Never before the carried state, which cannot go back.
        lead = max(self._at, self._part(max(0, first - self.parameters.lead_per_gpu * gpus)))
        last = min(self._end, beyond + self.parameters.tail_per_gpu * gpus)
        if lead > self._at:
            self._advance(lead)
        # Costs of a window are exact only to its end: what stands behind may undo the gain, and then this comes back.
        old_order, old_time = plan.order[lead:last].copy(), plan.time[plan.order[lead:last]].copy()
        old_gpu, old_joins = plan.gpu[old_order], self._joins[old_order]
        window = Window(lead, first, beyond, last, *self._so_far)
        width = beyond - first
        # More where the decode behind it outlasts them; never more than a look at the clock can wait for.
        moves = max(1, min(max(self.parameters.moves * width, self._judged // TASKS_PER_MOVE), SLICE // width))
        before, after, cost = self._anneal(window, temperature, moves)
        self.moves += moves
        # Metropolis once more, on the whole plan: what the window's own moves paid already is allowed for.
        if cost - self.cost > max(0.0, after - before) - temperature * np.log(random_unit(self.random)):
            plan.order[lead:last] = old_order
            plan.position[old_order] = np.arange(lead, last)
            plan.gpu[old_order], plan.time[old_order] = old_gpu, old_time
            self._joins[old_order] = old_joins
            return
        self._settle(lead)
        self.cost = cost
        self._keep_best()
