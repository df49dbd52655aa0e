"""The verifier's own proof that every start order of a part costs at least so much: no solver, no compiled kernel.

Written from docs/certificate.md, with no code of the prover (`solvers.exact.start_orders`). A part lies in arrays:
tasks, weights, and what rests of jobs cost. Beginnings of start orders grow by one task after the other. A beginning is
dropped if the prices show that nothing below the claim can follow it, or if another one with the same tasks is as early
in everything and costs no more. First GPUs are a pool without gaps and loads, then gaps count, then loads: what is left
of one relaxation shows what can be dropped in the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truenorth.models.instance import NONE, Instance, Ints
from truenorth.solvers.bounds.alone import LoneJobs
from truenorth.solvers.bounds.effort import Effort, TooLargeError
from truenorth.solvers.bounds.order_rests import Rate, RunPrices, Stages, StageTables
from truenorth.solvers.bounds.order_states import Compared, OrderStates, OrderStep, as_early, dominate, join
from truenorth.solvers.bounds.order_tasks import OrderTasks, loads_us


@dataclass(frozen=True, slots=True)
class OrderTerms:
    """A part in arrays.

    Parameters
    ----------
    gpus
        Their number.
    weight, due_us
        A job costs its weight for every microsecond of its completion beyond its due time. Shape [jobs].
    release_us, end_us
        Of each job: its release, and the earliest end of its last task. Shape [jobs].
    alone_from
        What the last jobs cost at least, each from its release on: all of them, all but the first, ... none.
        Shape [jobs + 1].
    key
        A random number per task: those of all tasks that have started make the key of a state.
    """

    gpus: int
    weight: Ints
    due_us: Ints
    release_us: Ints
    end_us: Ints
    tasks: OrderTasks
    prices: RunPrices
    stages: Stages
    alone_from: Ints
    key: NDArray[np.uint64]

    @classmethod
    def of(
        cls, instance: Instance, alone: LoneJobs, weights: list[int], due_us: list[int], rate: Rate, effort: Effort
    ) -> OrderTerms:
        """Return the terms of a part whose GPUs are of one class.

        Raises
        ------
        TooLargeError
            If numbers do not fit into 64 bits, models into a mask, or tables into a few megabytes.
        """
        tasks, jobs = OrderTasks.of(instance, alone), range(len(instance.jobs))
        release_us, end_us = instance.job_release_us, np.array([max(alone.times(job)[1]) for job in jobs], np.int64)
        far, prices = largest_cost(instance), RunPrices(rate, int(release_us[0]), int(end_us.max()))
        longest_us = _longest_us(end_us, tasks, prices)
        if instance.n_gpus * prices.total + sum(weights) * longest_us > far:
            raise TooLargeError("costs are too large")
        if (prices.origin_us + longest_us) * len(tasks.job) > 1 << 62:
            raise TooLargeError("times are too large")
        tables, first, known = (
            StageTables(instance, tasks, prices, far, effort),
            list[int](),
            dict[tuple[int, int], int](),
        )
        for job, kind in enumerate(zip(instance.job_workflow.tolist(), weights, strict=True)):
            if kind not in known:
                known[kind] = tables.add(job, kind[1])
            first.append(known[kind])
        stages = tables.stages(first)
        weight, due = np.array(weights, np.int64), np.array(due_us, np.int64)
        column = prices.column(release_us)
        alone_costs = np.maximum(
            stages.rest[first, column], weight * (end_us - prices.origin_us) + stages.paid[first, column]
        )
        alone_costs -= weight * (due - prices.origin_us)
        alone_from = np.concatenate((np.cumsum(alone_costs[::-1])[::-1], [0]))
        key = np.random.default_rng(0).integers(1, 1 << 62, len(tasks.job)).astype(np.uint64)
        return cls(instance.n_gpus, weight, due, release_us, end_us, tasks, prices, stages, alone_from, key)


def largest_cost(instance: Instance) -> int:
    """Return a cost of which the programme may add up as many as there are jobs and tasks."""
    return (1 << 62) // (len(instance.jobs) + instance.n_tasks + 2)


def reach_us(instance: Instance, rate: Rate) -> int:
    """Return for how long at most a job of a part may wait or be tabulated: prices of slots like these decide."""
    alone = LoneJobs(instance)
    end_us = np.array([max(alone.times(job)[1]) for job in range(len(instance.jobs))], np.int64)
    prices = RunPrices(rate, int(instance.job_release_us[0]), int(end_us.max()))
    return _longest_us(end_us, OrderTasks.of(instance, alone), prices)


def _longest_us(end_us: Ints, tasks: OrderTasks, prices: RunPrices) -> int:
    # No start order that waits for nothing else takes longer, and no table reaches further.
    return int(end_us.max() - prices.origin_us) + tasks.most_us + prices.reach_us


_MOST_CELLS = 50_000_000
"""Of all states of a relaxation together."""
_AT_ONCE = 4_000
"""States that are continued at a time."""
_NEVER = 1 << 62


class OrderRelaxation(NamedTuple):
    """What start orders wait for beside heads, predecessors and GPUs.

    Parameters
    ----------
    gap_us, reach_us
        As those of the tasks, or 0.
    loads
        Whether tasks wait for the loads of all models that their GPU has used.
    pooled
        Whether GPUs are alike to every task: then the one that is free first is the one to take.
    """

    gap_us: Ints
    reach_us: Ints
    loads: bool
    pooled: bool


class ProgrammeGuide(NamedTuple):
    """What is left of a relaxation: per step its states, sorted by key, and what must still follow each at least."""

    steps: list[tuple[OrderStep, Ints]]
    compared: Compared


class _Link(NamedTuple):
    """Of all states that were grown in a step: which they came from, what they cost, and as which they were kept."""

    parent: Ints
    cost: Ints
    kept: Ints


def prove(terms: OrderTerms, least: int, effort: Effort) -> int:
    """Return what every start order costs at least, `least` at most.

    Raises
    ------
    TooLargeError
        If there are too many states.
    """
    tasks, guide, found = terms.tasks, None, 0
    gaps = tasks.gap_us, tasks.reach_us
    pool = OrderRelaxation(0 * gaps[0], 0 * gaps[1], loads=False, pooled=True)
    for relaxed in (
        pool,
        OrderRelaxation(*gaps, loads=False, pooled=False),
        OrderRelaxation(*gaps, loads=True, pooled=False),
    ):
        guide, found = OrderProgramme(terms, relaxed, least, guide, effort).run()
        if found == least:
            break
    return found


class OrderProgramme:
    """Grows the beginnings of start orders in one relaxation, as long as something below the limit can follow.

    Parameters
    ----------
    limit
        What costs so much is of no interest.
    guide
        A weaker relaxation, run with the same limit.
    """

    def __init__(
        self, terms: OrderTerms, relaxed: OrderRelaxation, limit: int, guide: ProgrammeGuide | None, effort: Effort
    ) -> None:
        self.terms, self.relaxed, self.limit, self.guide, self.effort = terms, relaxed, limit, guide, effort
        self.compared = Compared(relaxed.reach_us, terms.tasks.load_us, terms.stages.wants, effort)

    def run(self) -> tuple[ProgrammeGuide, int]:
        """Return what is left of the relaxation, and the least that an order costs in it, the limit at most."""
        step, steps, links, cells = self._origin(), list[OrderStep](), list[_Link](), 0
        for number in range(len(self.terms.tasks.job)):
            grown = self._grow(step, number)
            instead = self._give_way(grown)
            kept = np.flatnonzero(instead == np.arange(len(instead)))
            index = np.full(len(instead), NONE)
            index[kept] = np.arange(len(kept))
            links.append(_Link(grown.states.parent, grown.states.cost, index[instead]))
            step = OrderStep(grown.open, grown.states.rows(kept))
            steps.append(step)
            cells += step.cells
            if cells > _MOST_CELLS:
                raise TooLargeError("too many states")
        least = int(steps[-1].states.cost.min(initial=self.limit))
        return ProgrammeGuide(self._to_go(steps, links), self.compared), least

    def _give_way(self, step: OrderStep) -> Ints:
        """Return for every state one that is as early and costs no more, to be kept instead."""
        states = step.states
        order = np.lexsort((states.begun_us, states.cost, states.key))
        return dominate(states.key, order, lambda a, b: as_early(self.compared, step, a, step, b))

    def _to_go(self, steps: list[OrderStep], links: list[_Link]) -> list[tuple[OrderStep, Ints]]:
        """Return the states below the limit, sorted by key, and what must still follow each at least."""
        to_go, left = np.zeros(steps[-1].states.number, np.int64), list[tuple[OrderStep, Ints]]()
        for number in range(len(steps) - 1, -1, -1):
            states, link = steps[number].states, links[number]
            below = np.flatnonzero(states.cost + to_go < self.limit)
            below = below[np.argsort(states.key[below], kind="stable")]
            left.append((OrderStep(steps[number].open, states.rows(below)), to_go[below]))
            before = steps[number - 1].states.cost if number else np.zeros(1, np.int64)
            # What was dropped could not end below the limit; who gave way costs no less than who stayed.
            after = link.cost - before[link.parent] + to_go[link.kept]
            to_go = self.limit - before
            np.minimum.at(to_go, link.parent, after)
        return left[::-1]

    def _origin(self) -> OrderStep:
        """Return the state before any start."""
        terms = self.terms
        zeros = np.zeros((1, terms.gpus), np.int64)
        none = np.zeros((1, 0), np.int64)
        first = terms.stages.first[None, :]
        number = np.zeros(1, np.int64)
        states = OrderStates(
            first, terms.end_us[None, :], zeros, zeros, none, none, number, number, np.zeros(1, np.uint64), number
        )
        return OrderStep(np.zeros(0, np.int64), states)

    def _grow(self, step: OrderStep, number: int) -> OrderStep:
        """Return the states after one more start that something below the limit can follow."""
        grown, cells = [self._continue(OrderStep(step.open, step.states.rows(slice(0))), 0)], 0
        for first in range(0, step.states.number, _AT_ONCE):
            part = OrderStep(step.open, step.states.rows(slice(first, first + _AT_ONCE)))
            children = self._continue(part, first)
            children = OrderStep(children.open, children.states.rows(self.bound(children.states) < self.limit))
            if self.guide is not None:
                children = OrderStep(
                    children.open, children.states.rows(self._within_reach(children, number, self.guide))
                )
            grown.append(children)
            cells += children.cells
            # All of them lie in memory at once.
            if cells > _MOST_CELLS:
                raise TooLargeError("too many states")
        return join(grown)

    # What a state costs at least

    def bound(self, states: OrderStates, now_us: Ints | None = None) -> Ints:
        """Return what must be paid at least after each state, if nothing starts before some instants any more."""
        free_us = states.free_us if now_us is None else np.maximum(states.free_us, now_us[:, None])
        now_us = states.now_us if now_us is None else np.maximum(states.now_us, now_us)
        unsold = self.terms.gpus * self.terms.prices.total - self.terms.prices.until(free_us).sum(axis=1)
        return np.asarray(states.cost + self._rests(states, now_us) - unsold)

    def _rests(self, states: OrderStates, now_us: Ints) -> Ints:
        """Return what the jobs that are not done cost at least if nothing of them starts before `now`."""
        terms, stages, prices = self.terms, self.terms.stages, self.terms.prices
        done = np.asarray(stages.done[states.stage].all(axis=0))
        first = int(np.argmin(done)) if not done.all() else len(done)
        # Jobs that are released later have not begun, and are at their earliest.
        beyond = int(np.searchsorted(terms.release_us, now_us.max(initial=0), "right"))
        stage = states.stage[:, first:beyond]
        begin_us = np.maximum(now_us[:, None], terms.release_us[first:beyond])
        self.effort.spend(stage.size)
        column = prices.column(begin_us)
        weight, due_us = terms.weight[first:beyond], states.due_us[:, first:beyond] - prices.origin_us
        least = np.maximum(stages.rest[stage, column], weight * due_us + stages.paid[stage, column])
        least = np.where(stages.done[stage], 0, least - weight * (terms.due_us[first:beyond] - prices.origin_us))
        return np.asarray(least.sum(axis=1) + terms.alone_from[beyond])

    def _latest(self, states: OrderStates) -> Ints:
        """Return a time for each state after which nothing below the limit can start next."""
        release_us, latest_us = self.terms.release_us, np.full(states.number, _NEVER)
        first = int(np.searchsorted(release_us, states.now_us.min(initial=_NEVER), "right"))
        for job in range(first, len(release_us)):
            waits = np.flatnonzero((latest_us == _NEVER) & (states.now_us < release_us[job]))
            then_us = np.full(len(waits), release_us[job])
            over = self.bound(states.rows(waits), then_us) >= self.limit
            latest_us[waits[over]] = release_us[job] - 1
            if (latest_us < _NEVER).all():
                break
        return latest_us

    def _within_reach(self, step: OrderStep, number: int, guide: ProgrammeGuide) -> NDArray[np.bool_]:
        """Say which states something below the limit can follow, by what is left of the guide.

        Each state's own order has, in the relaxation, a state that is as early, or one that it gave way to: if none
        of the guide's is, nothing below the limit follows. GPUs need not be the same for that, so outputs count as if
        everywhere. What must follow one that surely is as early must follow the state, too.
        """
        (ahead, to_go), by = guide.steps[number], guide.compared
        anywhere, states = by._replace(reach_us=0 * by.reach_us), step.states
        low = np.searchsorted(ahead.states.key, states.key, "left")
        high = np.searchsorted(ahead.states.key, states.key, "right")
        found, most = np.zeros(states.number, np.bool_), np.zeros(states.number, np.int64)
        for offset in range(int((high - low).max(initial=0))):
            at = np.flatnonzero(low + offset < high)
            at = at[~found[at] | (to_go[low[at] + offset] > most[at])]
            at = at[as_early(anywhere, ahead, low[at] + offset, step, at)]
            found[at] = True
            at = at[as_early(by, ahead, low[at] + offset, step, at)]
            most[at] = np.maximum(most[at], to_go[low[at] + offset])
        return found & (states.cost + most < self.limit)

    # What can start next

    def _continue(self, step: OrderStep, base: int) -> OrderStep:
        """Return the states after one more start; the states that they come from are counted from a base."""
        terms, states, tasks = self.terms, step.states, self.terms.tasks
        latest_us = self._latest(states)
        at, task = self._ready(states, latest_us)
        start_us = self._starts(step, at, task)
        tried = (start_us <= latest_us[at, None]) & ~self._seen_before(states)[at, : start_us.shape[1]]
        index, gpu = np.nonzero(tried)
        at, task, start_us, rows = at[index], task[index], start_us[index, gpu], np.arange(len(index))
        end_us, job = start_us + tasks.run_us[task], tasks.job[task]

        stage, due_us = states.stage[at], states.due_us[at]
        stage[rows, job] = after = terms.stages.after[stage[rows, job], tasks.place[task]]
        due, done = np.maximum(due_us[rows, job], end_us + tasks.tail_us[task]), terms.stages.done[after]
        due_us[rows, job] = np.where(done, 0, due)
        cost = states.cost[at] + np.where(done, terms.weight[job] * (due - terms.due_us[job]), 0)

        # Starts are in order: no GPU is of use before this one.
        free_us, used = np.maximum(states.free_us[at], start_us[:, None]), states.used[at]
        free_us[rows, gpu] = end_us
        if self.relaxed.loads:
            used[rows, gpu] |= tasks.needs[task]
            used[self._loaded(stage, used) <= free_us] = 0
        open_tasks, open_us, place = self._open(step, at, task, gpu, end_us, stage, free_us.min(axis=1))
        order = np.argsort(used, axis=1, kind="stable")
        order = np.take_along_axis(order, np.argsort(np.take_along_axis(free_us, order, 1), axis=1, kind="stable"), 1)
        free_us, used = np.take_along_axis(free_us, order, 1), np.take_along_axis(used, order, 1)
        place = np.take_along_axis(np.argsort(order, axis=1), place, 1)
        begun_us, key = states.begun_us[at] + start_us, states.key[at] ^ terms.key[task]
        return OrderStep(
            open_tasks, OrderStates(stage, due_us, free_us, used, open_us, place, cost, begun_us, key, at + base)
        )

    def _ready(self, states: OrderStates, latest_us: Ints) -> tuple[Ints, Ints]:
        """Return the states and the tasks that can start next in them, as pairs."""
        tasks, after = self.terms.tasks, self.terms.stages.after
        # Later jobs are released too late.
        jobs = int(np.searchsorted(self.terms.release_us, latest_us.max(initial=NONE), "right"))
        some = np.arange(int(np.searchsorted(tasks.job, jobs)))
        can = after[states.stage[:, tasks.job[some]], tasks.place[some]] != NONE
        at, task = np.nonzero(can & (tasks.head_us[some] <= latest_us[:, None]))
        return at, task

    def _starts(self, step: OrderStep, at: Ints, task: Ints) -> Ints:
        """Return when each task can start on each GPU, or on the first of a pool. Shape [pairs, GPUs]."""
        states, tasks = step.states, self.terms.tasks
        gpus = np.arange(1 if self.relaxed.pooled else self.terms.gpus)
        start_us = np.maximum(states.free_us[at][:, gpus], tasks.head_us[task, None])
        column = np.full(len(tasks.job) + 1, NONE)
        column[step.open] = np.arange(len(step.open))
        for each in range(tasks.source.shape[1]):
            # The last entry of `column` stands for predecessors that there are not.
            under_way = column[tasks.source[task, each]]
            some = np.flatnonzero(under_way != NONE)
            here_us = states.end_us[at[some], under_way[some]]
            gap_us = np.where(here_us > 0, self.relaxed.gap_us[task[some], each], 0)
            elsewhere = states.place[at[some], under_way[some]][:, None] != gpus
            start_us[some] = np.maximum(start_us[some], here_us[:, None] + gap_us[:, None] * elsewhere)
        if self.relaxed.loads:
            some = np.flatnonzero(tasks.needs[task])
            start_us[some] = np.maximum(
                start_us[some], loads_us(tasks.load_us, states.used[at[some]] | tasks.needs[task[some], None])
            )
        return start_us

    def _seen_before(self, states: OrderStates) -> NDArray[np.bool_]:
        """Say which GPUs are to every later task as the one before them is. Shape [states, GPUs]."""
        seen = np.zeros(states.free_us.shape, np.bool_)
        if not self.relaxed.pooled:
            holds = (states.place[:, :, None] == np.arange(self.terms.gpus)) & (states.end_us > 0)[:, :, None]
            plain = ~holds.any(axis=1)
            same = (np.diff(states.free_us, axis=1) == 0) & (np.diff(states.used, axis=1) == 0)
            seen[:, 1:] = same & plain[:, 1:] & plain[:, :-1]
        return seen

    def _loaded(self, stage: Ints, used: Ints) -> Ints:
        """Return when each GPU can have loaded what it has used and all that is wanted yet. Shape [states, GPUs]."""
        wanted = np.bitwise_or.reduce(self.terms.stages.wants[stage], axis=1)
        return loads_us(self.terms.tasks.load_us, used | wanted[:, None])

    def _open(
        self, step: OrderStep, at: Ints, task: Ints, gpu: Ints, end_us: Ints, stage: Ints, now_us: Ints
    ) -> tuple[Ints, Ints, Ints]:
        """Return the tasks whose outputs are under way in some state, when they end, and where."""
        tasks, states, rows = self.terms.tasks, step.states, np.arange(len(at))
        all_open = np.union1d(step.open, task)
        open_us, place = np.zeros((2, len(at), len(all_open)), np.int64)
        known = np.searchsorted(all_open, step.open)
        open_us[:, known], place[:, known] = states.end_us[at], states.place[at]
        started = np.searchsorted(all_open, task)
        open_us[rows, started], place[rows, started] = end_us, gpu
        # Nobody needs them, or they are everywhere before anyone could.
        holds = self.terms.stages.holds[stage[:, tasks.job[all_open]], tasks.place[all_open]]
        gone = ~holds | (open_us + self.relaxed.reach_us[all_open] <= now_us[:, None])
        open_us[gone] = place[gone] = 0
        some = open_us.any(axis=0)
        return all_open[some], open_us[:, some], place[:, some]
