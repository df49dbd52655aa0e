"""Plan anew from a moment on where tasks run in batches, take shares of a GPU or hold memory beside the models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np

from models.instance import Instance, Ints
from models.objective import Objective
from models.timeline import Timeline, batch_leaders
from solvers.search.annealer import Parameters
from solvers.search.annealing_kernel import Window
from solvers.search.current_plan import Plan
from solvers.search.decoder import Decisions
from solvers.search.decoder_kernel import INFEASIBLE
from solvers.search.decoder_state import ABSENT, FAR, copy_of
from solvers.search.dispatch import rules
from solvers.search.replanning import Candidate, Moment, Replanner, Schedule
from solvers.search.serving_annealing import ServingScene, anneal_serving, evaluate_serving, settle_serving
from solvers.search.serving_decoder import ServingDecoder, spans_of
from solvers.search.serving_dispatch import LARGEST_BATCHES, dispatch_batches
from solvers.search.serving_kernel import look_ahead_serving
from solvers.search.serving_tables import Runs


class ServingReplanner(Replanner):
    """The same where GPUs serve several tasks at a time: batches that run stand, and nobody joins them.

    With overlap off and shares, a plan may have a run begin while a load that is under way still blocks the GPU; who
    carries it out lets the run wait.
    """

    _decoder: ServingDecoder

    def __init__(self, instance: Instance, objective: Objective, moment: Moment) -> None:
        super().__init__(instance, objective, moment)
        self._instance, self._service = instance, self._decoder.service
        # Beside what runs there may be compute to spare: that engines are busy does not keep starts out of the past.
        release_us = np.maximum(self._tables.release_us, moment.now_us)
        release_us.setflags(write=False)  # as in the instance: kernels are compiled for the one or the other
        self._tables = self._tables._replace(release_us=release_us)
        nothing = np.full(instance.n_tasks, ABSENT, np.int64)
        self._spans, self._runs = spans_of(self._work), self._decoder.runs(Decisions(nothing, nothing))
        self._let_stand(moment)

    def _make_decoder(self, instance: Instance, objective: Objective) -> ServingDecoder:
        return ServingDecoder(instance, objective)

    def _let_stand(self, moment: Moment) -> None:
        """Note the batches that run as the decoder would have left them."""
        work, runs, spans, state = self._work, self._runs, self._spans, self._origin
        stands = Timeline.build(self._instance.n_tasks, moment.standing, ())
        leaders = batch_leaders(self._instance, stands)
        for run in sorted(moment.standing, key=lambda run: (run.start_us, run.task)):
            runs.placed[run.task] = 1
            if leaders[run.task] != run.task or run.end_us <= moment.now_us:
                continue
            members = int((leaders[[other.task for other in moment.standing]] == run.task).sum())
            before = state.last_task[run.gpu]
            held = members * int(self._service.memory[self._tables.task_template[run.task]])
            runs.held[run.task] = runs.level[run.task] = held
            spans.end[run.task] = run.end_us
            if before != ABSENT:  # it runs still, so what it holds is held beside
                runs.level[run.task] += runs.level[before]
                spans.end[run.task] = max(run.end_us, spans.end[before])
            work.previous[run.task] = before
            state.last_task[run.gpu] = run.task

    def _dispatched(self) -> Iterator[Candidate]:
        for most, rule in product(LARGEST_BATCHES[:2], list(rules(self._tables))):
            work, runs = self._fresh_work(), self._runs_of(np.zeros(self._instance.n_tasks, np.int64))
            spans = work._replace(end=self._spans.end.copy())
            placed = dispatch_batches(
                self._tables,
                self._service,
                copy_of(self._origin),
                work,
                spans,
                runs,
                self._residencies,
                rule,
                self._permitted,
                most,
                self._stands,
            )
            if placed == len(work.order):
                yield self._judged(Decisions(work.order, work.gpu, runs.joins))

    def _runs_of(self, joins: Ints) -> Runs:
        """Return working arrays for the batches of some decisions to join, which they share."""
        return Runs(*(array.copy() for array in self._runs))._replace(joins=joins)

    def _decode(self, decisions: Decisions, window: Window) -> float:
        scene = self._serving_scene(decisions.order, decisions.gpu, decisions.joins)
        return evaluate_serving(scene, window, INFEASIBLE)

    def _serving_scene(self, order: Ints, gpu: Ints, joins: Ints | None) -> ServingScene:
        self._origin.upcoming[:] = FAR
        work = self._work._replace(order=order, gpu=gpu)
        spans = work._replace(end=self._spans.end)
        runs = self._runs_of(np.zeros(len(order), np.int64) if joins is None else joins)
        return ServingScene(
            self._tables,
            self._service,
            self._origin,
            self._before,
            self._state,
            work,
            spans,
            runs,
            self._residencies,
        )

    def _in_order(self, order: Ints, gpu: Ints, time: Ints) -> Decisions:
        movable = order[self._stands :]
        leaders = batch_leaders(self._instance, Timeline(gpu.copy(), time.copy(), time.copy(), ()))
        by_time = movable[np.lexsort((movable, leaders[movable], time[movable]))]
        joins = (leaders != np.arange(len(leaders))).astype(np.int64)
        return Decisions(np.concatenate((order[: self._stands], by_time)), gpu, joins)

    def _frequencies(self, parameters: Parameters) -> Sequence[float]:
        return *parameters.chances, *parameters.batch_chances

    def _anneal(self, plan: Plan, joins: Ints | None, window: Window, schedule: Schedule) -> None:
        scene = self._serving_scene(plan.order, plan.gpu, joins)
        look_ahead_serving(self._tables, self._origin, scene.work, scene.runs, window.last, len(plan.order))
        cost = evaluate_serving(scene, window, INFEASIBLE)
        settle_serving(scene, plan, window.lead, window.last)
        anneal_serving(scene, plan, window, cost, *schedule)
