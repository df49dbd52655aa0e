"""Simulated annealing over the list decoder, for windows of any length.

Sweeps go through the order from front to back. Each step anneals a short window whose past stands: the state of the
cluster at its first task is carried along, so a move costs what the window holds and not what the trace holds. After
each step the plan is decoded to its end: the change is kept or taken back by its exact cost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from models.instance import Instance, Ints
from models.objective import Objective
from models.timeline import Timeline
from solvers.compiled import random_state, random_unit
from solvers.result import Search
from solvers.search.annealing_kernel import Scene, Window, advance, anneal_window, evaluate, settle
from solvers.search.decoder import Decisions, Decoder
from solvers.search.decoder_kernel import INFEASIBLE, cost_so_far
from solvers.search.decoder_state import FAR, State, copy_of, restore
from solvers.search.dispatch import greedy_decisions
from solvers.search.exchange import MEETINGS, Exchange
from solvers.search.neighbourhood import new_plan
from solvers.search.retiming import Retiming, new_retiming
from solvers.search.serving_annealing import ServingScene, anneal_serving, evaluate_serving, settle_serving
from solvers.search.serving_decoder import ServingDecoder, spans_of
from solvers.search.serving_dispatch import greedy_batches
from solvers.search.serving_kernel import decode_serving, look_ahead_serving

SLICE = 5_000_000
"""Most moves times tasks that may move between two looks at the clock: a tenth of a second where windows are wide."""

TASKS_PER_MOVE = 5
"""Most tasks of a trace per move of a window: to decode the plan to its end afterwards takes about as long."""


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
    chances: tuple[float, ...] = (0.08, 0.04, 0.4, 0.15, 0.07, 0.07, 0.02, 0.15)
    batch_chances: tuple[float, ...] = (0.25, 0.1, 0.1, 0.1, 0.3)


SERVING = Parameters(tasks_per_gpu=40, lead_per_gpu=8, tail_per_gpu=20)
"""Where tasks run together a GPU has more of them at a time, so windows hold more."""


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

    def __init__(self, decoder: Decoder, start: Decisions, seed: int, parameters: Parameters) -> None:
        self.decoder, self.parameters = decoder, parameters
        self.random = random_state(seed)
        self.moves = 0
        self.counts = np.zeros((len(self._chances(parameters)), 3), np.int64)
        self._cumulated = np.cumsum(np.array(self._chances(parameters)) / sum(self._chances(parameters)))
        self._cumulated[-1] = 1.0
        self._work = decoder.work(start)
        self._state, self._origin = copy_of(decoder.origin), copy_of(decoder.origin)
        self._tasks = len(start.order)
        self._plan = new_plan(start.order, start.gpu, np.argsort(start.order))
        self._work = self._work._replace(order=self._plan.order, gpu=self._plan.gpu)
        self._joins = self._begin_joins(start)
        self._retiming = self._begin_retiming()
        self._rewind()
        self.cost = self._cost()
        self._settle(0)
        self.best_cost, self.best = self.cost, start

    def sweep(self, temperature: Callable[[], float | None]) -> None:
        """Anneal every window once, front to back; `temperature` is asked before each, None ends the sweep."""
        size = min(self._tasks, self.parameters.tasks_per_gpu * self.decoder.instance.n_gpus)
        step = max(1, size // 2)
        self._rewind()
        # The windows of a sweep begin somewhere else each time, so that no seam stays where it is.
        first = -int(random_unit(self.random) * step) if size < self._tasks else 0
        while first < self._tasks:
            current = temperature()
            if current is None:
                return
            self._anneal_window(max(0, first), min(self._tasks, first + size), current)
            if first + size >= self._tasks:
                return
            first += step

    def take_over(self, decisions: Decisions) -> None:
        """Go on from another plan."""
        plan = self._plan
        plan.order[:], plan.gpu[:] = decisions.order, decisions.gpu
        plan.position[plan.order] = np.arange(self._tasks)
        if decisions.joins is not None:
            self._joins[:] = decisions.joins
        self.cost = self._cost()
        self._settle(0)

    def decisions(self) -> Decisions:
        """Return a copy of the current decisions."""
        return Decisions(self._plan.order.copy(), self._plan.gpu.copy(), self._joins.copy())

    @staticmethod
    def _chances(parameters: Parameters) -> tuple[float, ...]:
        """Return how often each kind of move is tried."""
        return parameters.chances

    def _rewind(self) -> None:
        """Go back to time 0."""
        restore(self._origin, self.decoder.origin)
        self._before = self.decoder.tables.ideal_us.copy()
        self._total, self._worst = cost_so_far(self.decoder.tables, self._before)
        self._at = 0

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
        settle(self._plan, self._work.start, first, self._tasks)

    def _part(self, position: int) -> int:
        """Return the last position up to this one at which the order may be cut."""
        return position

    def _anneal_window(self, first: int, beyond: int, temperature: float) -> None:
        """Anneal a window, then decode the whole plan; keep the change or take it back by its exact cost."""
        plan, gpus = self._plan, self.decoder.instance.n_gpus
        lead = max(self._at, self._part(max(0, first - self.parameters.lead_per_gpu * gpus)))
        last = min(self._tasks, beyond + self.parameters.tail_per_gpu * gpus)
        if lead > self._at:
            self._advance(lead)
        old_order, old_time = plan.order[lead:last].copy(), plan.time[plan.order[lead:last]].copy()
        old_gpu, old_joins = plan.gpu[old_order], self._joins[old_order]
        window = Window(lead, first, beyond, last, self._total, self._worst)
        width = beyond - first
        moves = max(1, min(max(self.parameters.moves * width, self._tasks // TASKS_PER_MOVE), SLICE // width))
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
        if cost < self.best_cost * (1 - 1e-12):
            self.best_cost, self.best = cost, self.decisions()


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


def starts(decoder: Decoder, timeline: Timeline | None, enough: Callable[[], bool]) -> list[Decisions]:
    """Return the decisions to start from, best first: those of the dispatch rules and of a known plan."""
    found = (
        greedy_batches(decoder, enough) if isinstance(decoder, ServingDecoder) else greedy_decisions(decoder, enough)
    )
    if timeline is not None:
        found.append(decoder.encode(timeline))
    return sorted(found, key=decoder.cost)


def improvements(
    instance: Instance,
    objective: Objective,
    start: Timeline | None,
    seed: int,
    iterations: int | None,
    progress: Callable[[], float],
    parameters: Parameters | None = None,
    exchange: Exchange | None = None,
) -> Iterator[Timeline]:
    """Yield ever better plans, the first from the best dispatch rule or the start.

    Parameters
    ----------
    start
        A plan to begin with, beside those of the dispatch rules; None if there is none.
    iterations
        Moves to try; None: until `progress` reaches 1. With it, equal seeds give equal plans.
    progress
        Share of the time that has passed; 1 or more ends the search, though not before its first plan.
    exchange
        Where it meets other annealings of the window, known by their seeds.
    """
    settings = parameters or (Parameters() if instance.one_at_a_time else SERVING)
    decoder = Decoder(instance, objective) if instance.one_at_a_time else ServingDecoder(instance, objective)
    begin = starts(decoder, start, lambda: progress() >= 1)
    if not begin or decoder.cost(begin[0]) == INFEASIBLE:
        return
    first = decoder.timeline(begin[0])
    if first is not None:
        yield first
    make = ServingAnnealer if isinstance(decoder, ServingDecoder) else Annealer
    annealer = make(decoder, begin[0], seed, settings)
    share = annealer.cost / len(instance.jobs)
    if exchange is not None:
        share = exchange.agree_on(share)

    def done() -> float:
        clock = progress()
        return clock if iterations is None or clock >= 1 else annealer.moves / iterations

    def temperature() -> float | None:
        passed = done()
        return None if passed >= 1 else share * settings.hot * (settings.cold / settings.hot) ** passed

    offered, last_offer, meetings = annealer.best_cost, time.monotonic(), 0
    while done() < 1:
        annealer.sweep(temperature)
        if exchange is not None and int(done() * MEETINGS) > meetings:
            meetings = int(done() * MEETINGS)
            better = exchange.meet(seed, annealer.cost, annealer.decisions())
            if better is not None:
                annealer.take_over(better)
        if annealer.best_cost < offered and (time.monotonic() - last_offer > 0.5 or done() >= 1):
            timeline = decoder.timeline(annealer.best)
            offered, last_offer = annealer.best_cost, time.monotonic()
            if timeline is not None:
                yield timeline


def improve(
    search: Search,
    seed: int = 0,
    iterations: int | None = None,
    time_limit_s: float | None = None,
    parameters: Parameters | None = None,
    exchange: Exchange | None = None,
) -> None:
    """Offer ever better plans to a search until its time, this limit, or the number of moves is used up.

    Parameters
    ----------
    search
        Takes the plans; its own plan is a start beside those of the dispatch rules.
    seed
        Of the random stream.
    iterations
        Moves to try; with it, and time enough, the result depends on the seed only.
    time_limit_s
        Seconds from now; None: what remains of the search.
    parameters
        How the annealing runs; None: as measured best.
    exchange
        Where it meets other annealings of the window; it cools by their clock then.
    """
    begin = time.monotonic()
    limit = search.remaining_s if time_limit_s is None else min(time_limit_s, search.remaining_s)

    def progress() -> float:
        if search.stop.is_set() or search.proved:
            return 1.0
        passed = (time.monotonic() - begin) / limit if limit > 0 else 1.0
        return passed if exchange is None else max(exchange.passed, 1.0 if passed >= 1 else 0.0)

    if search.timeline is not None and progress() >= 1:
        return
    for timeline in improvements(
        search.instance, search.objective, search.timeline, seed, iterations, progress, parameters, exchange
    ):
        search.offer(timeline)
