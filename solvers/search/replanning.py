"""Plan anew from a moment on: what has started stands, everything else may change.

The list decoder begins where the cluster is: engines are busy until their runs and loads end, models are where they
are, tasks that have started keep place and time. What it costs depends on the work in hand, not on the past.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from truenorth.models.instance import NEVER, NONE, Instance, Ints
from truenorth.models.objective import Objective
from truenorth.models.timeline import Placement, Residency, Timeline, batch_leaders
from truenorth.solvers.compiled import RandomState
from truenorth.solvers.search.annealer import Parameters, cumulate
from truenorth.solvers.search.annealing_kernel import Schedule, anneal, anneal_window, evaluate, settle
from truenorth.solvers.search.current_plan import CurrentPlan, new_plan
from truenorth.solvers.search.decoder import Decisions, Decoder
from truenorth.solvers.search.decoder_kernel import INFEASIBLE, cost_so_far, look_ahead
from truenorth.solvers.search.decoder_state import (
    END,
    FAR,
    GPU,
    INITIAL,
    LOAD_START,
    MODEL,
    READY,
    SLOT,
    ClusterState,
    DecodedTasks,
    Decoding,
    Runs,
    Serving,
    copy_of,
    initial_state,
)
from truenorth.solvers.search.decoder_tables import InstanceTables
from truenorth.solvers.search.dispatch import LARGEST_BATCHES, dispatch, rules
from truenorth.solvers.search.retiming import Scene, Window, new_retiming
from truenorth.solvers.search.static_models import Mask

ROUNDS = 8
"""Temperatures between the first and the last one."""


@dataclass(frozen=True, slots=True)
class Stay:
    """A model that is on a GPU, or on its way: since or from when it is ready, and when its latest use ends."""

    gpu: int
    model: int
    slot: int | None
    ready_us: int
    last_use_us: int


@dataclass(frozen=True, slots=True)
class Moment:
    """What stands when a plan is made anew.

    Parameters
    ----------
    compute_free_us, copy_free_us
        Per GPU: from when on its engines may be used; never in the past.
    stays
        The models on the GPUs.
    standing
        The tasks that have started, with their ends, expected ones if they still run.
    now_us
        The moment.
    """

    compute_free_us: Sequence[int]
    copy_free_us: Sequence[int]
    stays: Sequence[Stay]
    standing: Sequence[Placement]
    now_us: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """A plan under consideration, with the starts it decodes to."""

    cost: float
    decisions: Decisions
    start_us: Ints


class Replanner:
    """The tasks in hand, tabulated from a moment on.

    Parameters
    ----------
    instance
        The jobs that are known and not finished, without initial residencies. Limits on replicas and swaps are not
        supported.
    objective
        Of the known jobs.
    moment
        What stands. Batches that run stand, and nobody joins them. With overlap off and shares, a plan may have a run
        begin while a load that is under way still blocks the GPU; who carries it out lets the run wait.
    """

    def __init__(self, instance: Instance, objective: Objective, moment: Moment) -> None:
        self._instance, self._decoder = instance, Decoder(instance, objective)
        self._tables = self._decoder.tables
        self._origin, self._residencies = _state_at(instance, self._tables, moment)
        self._stands = len(moment.standing)
        nothing = Decisions(np.full(instance.n_tasks, NONE, np.int64), np.full(instance.n_tasks, NONE, np.int64))
        self._work, self._serving = self._decoder.work(nothing), self._decoder.serving(nothing)
        # In order of start: the decoder's list begins with what stands.
        for position, run in enumerate(sorted(moment.standing, key=lambda run: (run.start_us, run.end_us))):
            self._work.order[position] = run.task
            self._work.gpu[run.task] = run.gpu
            self._work.start[run.task], self._work.end[run.task] = run.start_us, run.end_us
        self._before = self._completed(moment)
        self._state = copy_of(self._origin)
        self._retiming = new_retiming(self._tables, instance.n_tasks)
        self._permitted: Mask = np.ascontiguousarray((instance.load_us != NEVER)[:, instance.gpu_class].T)
        if self._serving is not None:
            # Beside what runs there may be compute to spare: that engines are busy keeps no start out of the past.
            release_us = np.maximum(self._tables.release_us, moment.now_us)
            release_us.setflags(write=False)  # as in the instance: kernels are compiled for the one or the other
            self._tables = self._tables._replace(release_us=release_us)
            self._let_stand(self._serving, moment)

    def _let_stand(self, serving: Serving, moment: Moment) -> None:
        """Note the batches that run as the decoder would have left them."""
        work, runs, state = self._work, serving.runs, self._origin
        stands = Timeline.build(self._instance.n_tasks, moment.standing, ())
        leaders = batch_leaders(self._instance, stands)
        for run in sorted(moment.standing, key=lambda run: (run.start_us, run.task)):
            runs.placed[run.task] = 1
            # Members are their leader's; what has ended holds nothing any more.
            if leaders[run.task] != run.task or run.end_us <= moment.now_us:
                continue
            members = int((leaders[[other.task for other in moment.standing]] == run.task).sum())
            before = state.last_task[run.gpu]
            held = members * int(serving.service.memory[self._tables.task_template[run.task]])
            runs.held[run.task] = runs.level[run.task] = held
            runs.until[run.task] = run.end_us
            if before != NONE:  # it runs still, so what it holds is held beside
                runs.level[run.task] += runs.level[before]
                runs.until[run.task] = max(run.end_us, runs.until[before])
            work.previous[run.task] = before
            state.last_task[run.gpu] = run.task

    def _completed(self, moment: Moment) -> Ints:
        """Return the earliest completions that the standing tasks allow."""
        # No job ends sooner than alone, nor before what it has started.
        completed, tables = self._tables.ideal_us.copy(), self._tables
        for run in moment.standing:
            job, tail = tables.task_job[run.task], tables.tail_us[tables.task_template[run.task]]
            completed[job] = max(completed[job], run.end_us + tail)
        return completed

    def plan(
        self, previous: Mapping[int, tuple[int, int]], moves: int, random: RandomState, parameters: Parameters
    ) -> Timeline:
        """Return a plan of the tasks in hand.

        Dispatch rules make plans from scratch. Beside them stands the previous plan, with the tasks that are new to
        it inserted at the times that the best rule gives them. The best of these is annealed.

        Parameters
        ----------
        previous
            GPU and planned start of tasks, from the plan before.
        moves
            Moves to try; the result depends on this number and the random stream only.

        Returns
        -------
        Timeline
            The standing tasks as they are and the others as planned; residencies that stand are marked initial,
            those that the plan adds are loaded at their `load_start_us`.
        """
        best = min(self._dispatched(), key=lambda candidate: candidate.cost)
        if previous:
            kept = self._inserted(previous, best)
            # At equal cost the plan before stays: who carries it out changes less.
            best = kept if kept.cost <= best.cost else best
        # One task alone is left to the rules.
        if len(best.decisions.order) - self._stands > 1:
            best = self._annealed(best, moves, random, parameters)
        return self._timeline(best.decisions)

    def _dispatched(self) -> Iterator[Candidate]:
        """Yield the plans of the dispatch rules."""
        # Two sizes of batches at most: every rule with every size dispatches all tasks once more.
        sizes = LARGEST_BATCHES[:1] if self._serving is None else LARGEST_BATCHES[:2]
        for most, rule in product(sizes, rules(self._tables, self._permitted)):
            on = Decoding(self._tables, copy_of(self._origin), self._fresh_work(), self._residencies)
            serving = self._fresh_serving(None)
            # A rule may come to a stop where nothing fits any more.
            if dispatch(on, serving, rule, most, self._stands) == len(on.work.order):
                joins = None if serving is None else serving.runs.joins
                yield self._judged(Decisions(on.work.order, on.work.gpu, joins))

    def _fresh_work(self) -> DecodedTasks:
        return DecodedTasks(*(array.copy() for array in self._work))

    def _fresh_serving(self, joins: Ints | None) -> Serving | None:
        """Return working arrays for the batches of some decisions to join, which they share."""
        if self._serving is None:
            return None
        runs = Runs(*(array.copy() for array in self._serving.runs))
        return Serving(self._serving.service, runs if joins is None else runs._replace(joins=joins))

    def _judged(self, decisions: Decisions) -> Candidate:
        """Decode some decisions into the working arrays."""
        window, serving = self._whole(len(decisions.order)), self._fresh_serving(decisions.joins)
        cost = evaluate(self._scene(decisions.order, decisions.gpu), serving, window, INFEASIBLE)
        return Candidate(cost, decisions, self._work.start.copy())

    def _scene(self, order: Ints, gpu: Ints) -> Scene:
        # A decode before left its own next uses there.
        self._origin.upcoming[:] = FAR
        work = self._work._replace(order=order, gpu=gpu)
        on = Decoding(self._tables, self._state, work, self._residencies)
        return Scene(on, self._origin, self._before, self._retiming)

    def _whole(self, tasks: int) -> Window:
        return Window(self._stands, self._stands, tasks, tasks, *cost_so_far(self._tables, self._before))

    def _inserted(self, previous: Mapping[int, tuple[int, int]], dispatched: Candidate) -> Candidate:
        """Return the previous plan with the new tasks where a dispatch rule has them."""
        gpu, time = dispatched.decisions.gpu.copy(), dispatched.start_us.copy()
        for task, (planned_gpu, planned_start_us) in previous.items():
            gpu[task], time[task] = planned_gpu, planned_start_us
        return self._judged(self._in_order(dispatched.decisions.order, gpu, time))

    def _in_order(self, order: Ints, gpu: Ints, time: Ints) -> Decisions:
        """Return the decisions by which tasks start in the order of these times, behind those that stand."""
        movable = order[self._stands :]
        if self._serving is None:
            by_time = movable[np.argsort(time[movable], kind="stable")]
            return Decisions(np.concatenate((order[: self._stands], by_time)), gpu)
        leaders = batch_leaders(self._instance, Timeline(gpu.copy(), time.copy(), time.copy(), ()))
        by_time = movable[np.lexsort((movable, leaders[movable], time[movable]))]
        joins = (leaders != np.arange(len(leaders))).astype(np.int64)
        return Decisions(np.concatenate((order[: self._stands], by_time)), gpu, joins)

    def _annealed(self, start: Candidate, moves: int, random: RandomState, parameters: Parameters) -> Candidate:
        """Anneal the tasks that are next, the others following as they are; return the best plan found."""
        tasks, gpus = len(start.decisions.order), len(self._origin.compute_free)
        plan = new_plan(start.decisions.order, start.decisions.gpu, start.start_us)
        joins = None if start.decisions.joins is None else start.decisions.joins.copy()
        chances = cumulate(parameters.frequencies(self._serving is not None))
        counts = np.zeros((len(chances), 3), np.int64)
        beyond = min(tasks, self._stands + parameters.tasks_per_gpu * gpus)
        last = min(tasks, beyond + parameters.tail_per_gpu * gpus)
        window = self._whole(tasks)._replace(beyond=beyond, last=last)
        share, best = start.cost / len(self._before), start
        for step in range(ROUNDS):
            # Geometric, as in every annealing, but by rounds: moves are counted, not timed.
            temperature = share * parameters.hot * (parameters.cold / parameters.hot) ** (step / (ROUNDS - 1))
            schedule = Schedule(temperature, moves // ROUNDS, chances, random, counts)
            self._anneal(plan, joins, window, schedule)
            found = self._judged(Decisions(plan.order, plan.gpu, joins))
            if found.cost < best.cost:
                # Copies: annealing goes on in these very arrays.
                kept = Decisions(plan.order.copy(), plan.gpu.copy(), None if joins is None else joins.copy())
                best = Candidate(found.cost, kept, found.start_us)
        return best

    def _anneal(self, plan: CurrentPlan, joins: Ints | None, window: Window, schedule: Schedule) -> None:
        """Try a number of moves at a temperature."""
        scene, serving = self._scene(plan.order, plan.gpu), self._fresh_serving(joins)
        if serving is None:
            anneal_window(scene, None, plan, window, schedule)
            return
        look_ahead(self._tables, self._origin, scene.on.work, serving, window.last, len(plan.order))
        cost = evaluate(scene, serving, window, INFEASIBLE)
        # The dispatch rules know no times of batches that were decoded: moves are drawn from what was just decoded.
        settle(plan, scene.on.work.start, serving, window.lead, window.last)
        anneal(scene, serving, plan, window, schedule, cost)

    def _timeline(self, decisions: Decisions) -> Timeline:
        stays = self._origin.records[0]
        # A decode before may have ended them.
        self._residencies[:stays, END] = NONE
        work = self._work
        self._judged(decisions)
        rows = self._residencies[: self._state.records[0]]
        residencies = tuple(
            Residency(
                model=row[MODEL],
                gpu=row[GPU],
                load_start_us=row[LOAD_START],
                ready_us=row[READY],
                end_us=None if row[END] == NONE else row[END],
                slot=None if row[SLOT] == NONE else row[SLOT],
                initial=bool(row[INITIAL]),
            )
            for row in rows.tolist()
        )
        return Timeline(decisions.gpu.copy(), work.start.copy(), work.end.copy(), residencies)


def _state_at(instance: Instance, tables: InstanceTables, moment: Moment) -> tuple[ClusterState, Ints]:
    """Return the state at a moment, and a table of residencies that begins with those that stand."""
    state, _ = initial_state(instance, tables)
    state.compute_free[:] = moment.compute_free_us
    state.copy_free[:] = moment.copy_free_us
    residencies = np.empty((int(tables.use_first[-1]) + len(moment.stays), 7), np.int64)
    for row, stay in enumerate(moment.stays):
        slot = NONE if stay.slot is None else stay.slot
        # Marked initial, as if there from 0: its load is no business of this plan.
        residencies[row] = (stay.model, stay.gpu, slot, 0, stay.ready_us, NONE, 1)
        where = stay.gpu, stay.model
        state.ready[where], state.last_use[where] = stay.ready_us, stay.last_use_us
        state.record[where], state.slot[where] = row, slot
        state.room[stay.gpu] -= tables.weight_bytes[stay.model]
        if stay.slot is not None:
            state.slot_model[stay.gpu, stay.slot] = stay.model
    state.records[0] = len(moment.stays)
    return state, residencies
