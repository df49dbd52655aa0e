"""The search for good prices from coarse slots to fine ones, offering every bound that it proves.

Where many jobs are alike they share prices at first (see `pooled`), then every job has its own.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from truenorth.models.features import SEVERAL_AT_A_TIME, Feature, missing
from truenorth.models.formulations.allowance import Allowance, GivenUpError
from truenorth.models.instance import Instance, Ints
from truenorth.models.objective import Objective
from truenorth.models.torn import priced_window, torn
from truenorth.solvers.bounds.critical_path import earliest, fastest_run_us, tails_us
from truenorth.solvers.bounds.lagrangian.ascent import Climb, Steps, ascend
from truenorth.solvers.bounds.lagrangian.evaluation import (
    Evaluation,
    Prices,
    carry_slots,
    exact_bound,
    no_prices,
    round_prices,
)
from truenorth.solvers.bounds.lagrangian.job_paths import Numbers
from truenorth.solvers.bounds.lagrangian.pooled import FirstPrices, Pool, PooledEvaluation
from truenorth.solvers.bounds.lagrangian.relaxation import Fixed, Relaxation, fixed_parts, job_costs, relax
from truenorth.solvers.clock import Clock
from truenorth.solvers.result import Search
from truenorth.solvers.rounding import round_up

METHOD = "lagrangian"
"""Name of the bounds that this search proves."""
SUPPORTS = SEVERAL_AT_A_TIME | {Feature.DELAYS, Feature.GANGS, Feature.MODES}

COARSEST_SHARE = 16
"""The first slots are the mean critical path over this; wider, up to all of it, if time is short."""

FINEST_POOLED_SHARE = 128
"""Prices are shared down to slots of the mean critical path over this."""

ALONE_S_PER_TASK = 0.04
"""With so much time every job has its own prices from the beginning: sharing them is sooner good, but no better."""

PLACED_S_PER_TASK = 0.01
"""With so much time every task has its own price for a place in a batch."""

POOLED = Steps(2000, 0.8, 0.002)
"""The most and longest steps from the prices of coarser slots where jobs share."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """How an ascent begins, and when its slots become finer.

    Parameters
    ----------
    cold, warm
        The most and longest steps from the first prices, and from those of coarser slots.
    per_halving, at_once
        Slots are halved again and again, so many times at most, while time allows so many steps for each halving: both
        are worth about as much.
    first_window
        Least delays considered at first, in mean critical paths; later windows follow from what jobs pay.
    """

    cold: Steps
    warm: Steps
    per_halving: int
    at_once: int
    first_window: int


PLAIN = Tuning(Steps(200, 0.4, 0.005), Steps(1000, 0.2, 0.002), 100, 60, 32)
BIDDING = Tuning(Steps(400, 0.4, 0.005), Steps(400, 0.2, 0.002), 200, 1, 8)
"""Where tasks bid for batches it takes more steps until bids are good, and wide windows leave too few of them.

One class on one GPU, two draws, 10 s: 1.4 % below the optimum as others begin, 0.24 % with 600 steps, 200 and 8. Bids
are best made good in every width of slots: 385 tasks, 45 s of CPU, 1.640 for 1.624 where widths are left out, and 1.612
in 3000 steps of one width.
"""

COLD_SHARE = 0.8
"""The first slots are as fine as these steps take no more of the time than this: few finer ones are worth less."""

TRIAL = Steps(5, 0.005, 0.005)
"""Steps that tell how long a step takes, and what prices are worth without those on models behind a cold start.

Where GPUs hold enough these are noise, and looking at them takes half of a step.
"""

HEADROOM_BITS = 11
"""Long steps take some prices to some hundred times the usual one; what does not fit into 64 bits proves nothing."""

LEAST_STEPS = 10
"""Finer slots are left alone if time allows fewer steps than this; even the prices of coarser ones gain in them."""

STEPS_SHARE = 0.9
"""Of the time that is left steps take so much: the rest is for the proof."""

PROOFS_KEPT = 4
"""Where jobs share prices a proof, job by job, takes far longer than a step, and twice as long in slots half as wide:
so many times what the last one took is kept for the next, for it and as much again for what follows."""

LEAST_GAIN = 3e-4
"""Slots are not made finer once that gains less than this share of the bound."""

STEP_S = 1e-9
"""Less than a step takes per delay of a task on a class, or of a priced precedence: longer steps are not tried."""

STEP_MOVES, RUNS_PER_MOVE = 30, 5000
"""A step takes about as long as so many moves of local search, and one more for every so many delays that it prices."""


@dataclass(frozen=True, slots=True)
class Priced:
    """A proved bound, in the units of `models.objective_value`, and the whole prices that prove it."""

    bound: Fraction
    relaxation: Relaxation
    prices: Prices


WINDOW_ROOM = 1.25
"""Later windows reach so many times as far as the delay that would cost a job as much as it pays."""


def improve(
    search: Search, time_limit_s: float | None = None, finest_us: int = 1, unit_us: int | None = None
) -> Priced | None:
    """Offer ever better bounds until the time is up; return the best with its prices.

    Parameters
    ----------
    search
        Bounds are offered to it; no plan is needed, and none is used.
    time_limit_s
        Seconds from now, beside the search's own limit.
    finest_us
        Slots are not made finer than this.
    unit_us
        Slots are parts of this; None: of the mean critical path.

    Returns
    -------
    Priced or None
        None for an objective that is a maximum over the jobs, for a window with what is not supported or whose torn
        twin gets the prices, if no job costs anything, or if memory or time are short even for slots as wide as a
        critical path.
    """
    if missing(search.instance, SUPPORTS) or priced_window(search.instance) is not search.instance:
        return None
    with search.giving_way(METHOD):
        return _climb(search, time_limit_s, finest_us, unit_us)
    return None


def _climb(search: Search, time_limit_s: float | None, finest_us: int, unit_us: int | None) -> Priced | None:
    """Offer ever better bounds, as `improve` does.

    Raises
    ------
    GivenUpError
        If memory or time are short.
    """
    limit_s = search.clock.left_s if time_limit_s is None else min(search.clock.left_s, time_limit_s)
    clock = search.clock.child(limit_s)
    prepared = prepare(search.instance, search.objective, limit_s >= PLACED_S_PER_TASK * search.instance.n_tasks)
    if prepared is None:
        return None
    fixed, first_prices = prepared
    unit_us = int(search.instance.job_critical_us.mean()) if unit_us is None else unit_us
    tuning = BIDDING if fixed.trees.places else PLAIN
    if fixed.trees.places:
        unit_us, odd_us = _even_unit(fixed, unit_us)
        finest_us = max(finest_us, odd_us)

    in_haste = clock.left_s < ALONE_S_PER_TASK * search.instance.n_tasks
    pool = Pool.of(fixed, first_prices) if in_haste else None
    begin: Begin | None = None
    with suppress(GivenUpError):  # alone, jobs look at their own windows, which may be shorter than the time of all
        begin = None if pool is None else _climb_pooled(search, fixed, pool, first_prices, finest_us, unit_us, clock)
    if begin is None:
        begin = _begin_alone(search, fixed, first_prices, tuning, finest_us, unit_us, clock)
    relaxation, start, steps, best = begin
    reached = 0.0
    while steps.count > 0:
        pace = _Pace(relaxation, clock)
        climb = ascend(relaxation, start, steps, pace.go_on)
        best = offer(search, relaxation, climb.best, best)
        before, reached = reached, climb.value / relaxation.scale
        if clock.is_set() or relaxation.slot_us <= finest_us or search.proved or reached <= before * (1 + LEAST_GAIN):
            break
        windows = _windows(fixed, relaxation, climb)
        try:
            halved = relax(fixed, max(finest_us, relaxation.slot_us // 2), windows)
            per_step = pace.step_s * _size(halved) / _size(relaxation)  # windows have changed, too
            finer_us, steps = _affordable(tuning.warm, tuning, halved.slot_us, per_step, clock.left_s, finest_us)
            finer = halved if finer_us == halved.slot_us else relax(fixed, finer_us, windows)
        except GivenUpError:
            break  # no room for finer slots
        start = refine(climb.best, relaxation, finer)
        relaxation = finer
    return best


def _even_unit(fixed: Fixed, unit_us: int) -> tuple[int, int]:
    """Return about this unit, and the finest slots, such that all are parts of each other and of the grid of all times.

    A bid that moved across the edges of slots would let others in for nothing. Halving odd widths once lost a quarter
    of the bound, and slots of 9 ms where all times are tens of milliseconds 4 %, those of 10 nothing.
    """
    grid_us = int(np.gcd.reduce(np.concatenate((fixed.earliest_us, fixed.trees.shapes.run_us))))
    odd_us = grid_us // (grid_us & -grid_us)
    return grid_us << max(0, (unit_us // grid_us).bit_length() - 1), odd_us


def prepare(instance: Instance, objective: Objective, placed: bool = True) -> tuple[Fixed, FirstPrices] | None:
    """Return what all slot widths share, and the first prices; None where `improve` finds no bound.

    Parameters
    ----------
    placed
        Whether tasks pay for batches one by one, in place of all alike.
    """
    costs = job_costs(instance, objective)
    if costs is None or not len(costs.jobs):
        return None
    first_prices = FirstPrices.of(torn(instance), objective)
    usual = float(sum(costs.weight) / len(costs.weight))
    above = int(first_prices.prices.max() / usual).bit_length() + 2
    return replace(fixed_parts(instance, costs, placed), headroom_bits=max(HEADROOM_BITS, above)), first_prices


class _Pace:
    """Tells an ascent whether to go on, and how long its steps take but for the first, which touches new memory."""

    def __init__(self, relaxation: Relaxation, clock: Clock) -> None:
        self._clock, self._moves = clock, _moves_per_step(relaxation)
        self._asked_s = [clock.elapsed_s]

    def go_on(self) -> bool:
        """Say whether there is time for another step; asked once a step."""
        self._clock.count(self._moves)
        self._asked_s.append(self._clock.elapsed_s)
        return not self._clock.is_set()

    @property
    def step_s(self) -> float:
        """Seconds of a step; a nanosecond where no time was seen to pass."""
        asked_s = self._asked_s[1:] if len(self._asked_s) > 2 else self._asked_s
        return max(1e-9, (asked_s[-1] - asked_s[0]) / max(1, len(asked_s) - 1))


Begin = tuple[Relaxation, Numbers, Steps, Priced | None]
"""Where jobs are looked at one by one from: with these prices, for so many steps; and the best bound until then."""


def _begin_alone(
    search: Search,
    fixed: Fixed,
    first_prices: FirstPrices,
    tuning: Tuning,
    finest_us: int,
    unit_us: int,
    clock: Clock,
) -> Begin:
    """Return the first prices in slots wide enough to leave time for finer ones."""

    def relax_first(slot_us: int) -> Relaxation:
        return relax(fixed, slot_us, _first_windows(fixed, first_prices, tuning.first_window, slot_us))

    relaxation, steps = _coarsest(search, unit_us, relax_first, Evaluation, tuning.cold, finest_us, clock)
    return relaxation, first_prices.in_slots(relaxation), steps, None


def _climb_pooled(
    search: Search,
    fixed: Fixed,
    pool: Pool,
    first_prices: FirstPrices,
    finest_us: int,
    unit_us: int,
    clock: Clock,
) -> Begin:
    """Climb with prices that jobs share, from coarse slots to fine ones, and prove after each what they are worth.

    Notes
    -----
    Invariant: at the top of the loop `flat` are prices of `pooled`; behind `offer`, `best` is the best bound
    proved, and `start` are the same prices in a relaxation in which every job has its own.
    Because: shared prices are worth the same handed back to the jobs, but for releases that were rounded to slots;
    so only the value job by job is ever offered as a bound.
    Cost: a step O((groups + models) x slots) and O(1) a job; a proof O(tasks x delays), once per width.
    If wrong: weaker or slower. Whatever prices come out, `offer` evaluates them exactly.
    """
    model_us: int | None = None  # prices on models end there

    def evaluate(relaxation: Relaxation) -> Evaluation:
        return PooledEvaluation(pool, relaxation, model_us)

    pooled, steps = _coarsest(search, unit_us, pool.relax, evaluate, PLAIN.cold, finest_us, clock)
    flat = first_prices.in_slots(pooled)
    best: Priced | None = None
    finest_us = max(finest_us, unit_us // FINEST_POOLED_SHARE)
    while True:
        pace = _Pace(pooled, clock)
        climb = ascend(pooled, flat, steps, pace.go_on, evaluate(pooled))
        if model_us is None:
            # Once, at the widest slots: prices on models behind a cold start cost half of a step, and are often 0.
            trial_pace = _Pace(pooled, clock)
            cold = ascend(pooled, climb.best, TRIAL, trial_pace.go_on, PooledEvaluation(pool, pooled, pool.cold_us))
            if cold.value >= climb.value * (1 - LEAST_GAIN):
                model_us, climb, pace = pool.cold_us, cold, trial_pace
        begun_s = clock.elapsed_s
        paid_us = pool.paid_us(pooled, climb.job_value)
        relaxation = relax(fixed, pooled.slot_us, _reaching(paid_us, pooled.slots * pooled.slot_us, pooled.slot_us))
        start = pool.to_jobs(climb.best, pooled, paid_us, relaxation)
        best = offer(search, relaxation, start, best)
        proof_s = clock.elapsed_s - begun_s
        if clock.is_set() or search.proved:
            return relaxation, start, replace(steps, count=0), best
        # In slots half as wide a step takes twice as long.
        climbing_s = clock.left_s - PROOFS_KEPT * proof_s
        finer_us, steps = _affordable(POOLED, PLAIN, pooled.slot_us // 2, 2 * pace.step_s, climbing_s, finest_us)
        finer = None if finer_us < finest_us or not steps.count else _relax_if_it_fits(pool, finer_us)
        if finer is None:  # from here on every job has prices of its own
            steps = _affordable(PLAIN.warm, PLAIN, pooled.slot_us, proof_s, clock.left_s, pooled.slot_us)[1]
            return relaxation, start, steps, best
        pace = _Pace(finer, clock)
        trial = ascend(finer, refine(climb.best, pooled, finer), TRIAL, pace.go_on, evaluate(finer))
        # A step was guessed to take twice as long; the trial has told.
        possible = int(STEPS_SHARE * (clock.left_s - PROOFS_KEPT * proof_s) / pace.step_s)
        pooled, flat, steps = finer, trial.best, replace(steps, count=max(1, min(possible, POOLED.count)))


def _relax_if_it_fits(pool: Pool, slot_us: int) -> Relaxation | None:
    """Return the relaxation of a pool for slots of a width; None if it does not fit into memory."""
    with suppress(GivenUpError):
        return pool.relax(slot_us)
    return None


def _coarsest(
    search: Search,
    unit_us: int,
    relax_first: Callable[[int], Relaxation],
    evaluate: Callable[[Relaxation], Evaluation],
    cold: Steps,
    finest_us: int,
    clock: Clock,
) -> tuple[Relaxation, Steps]:
    """Return the first relaxation, its slots wide enough to leave time for finer ones, and the steps to take in it.

    Raises
    ------
    GivenUpError
        If memory or time do not even allow one step in slots as wide as a critical path.
    """
    share = COARSEST_SHARE
    while True:
        widest, slot_us = share == 1, max(finest_us, 1, unit_us // share)
        share //= 2
        try:
            relaxation = relax_first(slot_us)
            # Of slots this wide one step is worth its time, of others many are to take no more than a share of it.
            step_s = STEP_S if widest else cold.count * STEP_S / COLD_SHARE
            Allowance(lambda: clock.left_s).fit(_runs(relaxation), 0, step_s)
        except GivenUpError:
            if widest:
                raise
            continue
        pace = _Pace(relaxation, clock)
        ascend(relaxation, no_prices(relaxation), Steps(3), pace.go_on, evaluate(relaxation))
        if cold.count * pace.step_s <= COLD_SHARE * clock.left_s or widest:
            affordable = max(1, min(cold.count, int(clock.left_s / pace.step_s)))
            return relaxation, replace(cold, count=affordable)


def _first_windows(fixed: Fixed, first_prices: FirstPrices, first_window: int, slot_us: int) -> Ints:
    """Return windows with room for the first prices; for step costs they end where the step is certain."""
    instance, jobs = fixed.instance, fixed.costs.jobs
    if fixed.costs.steps:
        deadline = fixed.costs.free_until_us - instance.job_release_us[jobs]
        return np.asarray(np.maximum(0, deadline) + slot_us, np.int64)
    waiting_us = (WINDOW_ROOM * first_prices.waiting_us[jobs]).astype(np.int64)
    return np.asarray(np.maximum(waiting_us, first_window * int(instance.job_critical_us.mean())), np.int64)


def _windows(fixed: Fixed, relaxation: Relaxation, climb: Climb) -> Ints:
    """Return windows that end where waiting alone costs a job more than it pays now; those of step costs stay.

    The end of a window is free of prices: a job would flee there from any price above the cost of the delay. A task
    beside the longest chain of its job can wait the longest, so windows reach as far as it can.
    """
    data, slot_us, instance = relaxation.data, relaxation.slot_us, fixed.instance
    if data.steps:
        return np.asarray((data.delays - 2) * slot_us, np.int64)
    begun_us = earliest(instance).start_us + (tails_us(instance) + fastest_run_us(instance))[instance.task_template]
    ended_us = np.minimum.reduceat(begun_us, instance.job_first_task[:-1])[fixed.costs.jobs]
    waits_us = climb.job_value / np.maximum(data.weight, 1) + data.free_until_us - ended_us
    return _reaching(np.maximum(waits_us, 0), relaxation.slots * slot_us, slot_us)


def _reaching(paid_us: Numbers, most_us: int, slot_us: int) -> Ints:
    """Return windows with room beyond the delays that would cost jobs as much as they pay."""
    return np.asarray(np.minimum(paid_us * WINDOW_ROOM, most_us), np.int64) + 20 * slot_us


def _affordable(
    usual: Steps, tuning: Tuning, slot_us: int, per_step_s: float, left_s: float, finest_us: int
) -> tuple[int, Steps]:
    """Return how fine slots should be, from these on, and how many steps to take in them; none if those are few.

    Parameters
    ----------
    per_step_s
        What a step takes in slots of `slot_us`.
    """
    possible, halvings = max(0, int(STEPS_SHARE * left_s / per_step_s)), 1
    while (
        halvings < tuning.at_once and slot_us // 2 >= finest_us and possible >= 2 * tuning.per_halving * (halvings + 1)
    ):
        slot_us, possible, halvings = slot_us // 2, possible // 2, halvings + 1
    # Few steps do not make up for the harm that long ones do at first.
    first = max(usual.last, usual.first * min(1.0, possible / (tuning.per_halving * halvings)))
    return slot_us, replace(usual, count=min(possible, usual.count) if possible >= LEAST_STEPS else 0, first=first)


def _size(relaxation: Relaxation) -> int:
    return int(relaxation.data.delays.sum()) + relaxation.slots * len(relaxation.uses)


def _moves_per_step(relaxation: Relaxation) -> int:
    """Return how many moves of local search take as long as a step."""
    return STEP_MOVES + _runs(relaxation) // RUNS_PER_MOVE


def _runs(relaxation: Relaxation) -> int:
    """Return the number of delays that a step prices, of all tasks on all classes and of all priced precedences."""
    shapes = relaxation.trees.shapes
    options = np.diff(shapes.option_first[shapes.node_first])
    return int((relaxation.data.delays * options[relaxation.data.shape]).sum() + relaxation.data.extra_first[-1])


def offer(search: Search, relaxation: Relaxation, flat: Numbers, best: Priced | None) -> Priced | None:
    """Round prices, prove their bound and offer it; return the better of it and `best`."""
    prices = round_prices(Prices.split(flat, relaxation), relaxation)
    search.clock.count(_moves_per_step(relaxation))
    bound = exact_bound(relaxation, prices)
    if bound is None or (best is not None and bound <= best.bound):
        return best
    bound = round_up(search.instance, search.objective, bound)
    search.offer_bound(bound, METHOD)
    return Priced(bound, relaxation, prices)


def refine(flat: Numbers, coarse: Relaxation, fine: Relaxation) -> Numbers:
    """Return prices for finer slots and other windows: every instant and every delay keeps its price."""
    old, rescale = Prices.split(flat, coarse), fine.scale / coarse.scale
    out = no_prices(fine)
    new = Prices.split(out, fine)
    carry_slots(old, new, coarse, fine)
    _carry_parts(old, coarse, new, fine)
    carry_falls(old, coarse, new, fine, range(len(fine.data.shape)), 0, rescale)
    return out


def _carry_parts(old: Prices, coarse: Relaxation, new: Prices, fine: Relaxation) -> None:
    """Write the parts of batches that tasks pay for other slots and windows: every delay keeps its part."""
    shapes = fine.trees.shapes
    jobs = zip(fine.data.shape.tolist(), fine.data.node_first.tolist(), strict=True)
    for job, (shape, base) in enumerate(jobs):
        was, now = int(coarse.data.delays[job]), int(fine.data.delays[job])
        delay = np.arange(now - 1) * fine.slot_us // coarse.slot_us
        kept = delay < was - 1
        for node in range(shapes.node_first[shape], shapes.node_first[shape + 1]):
            at = base + node - shapes.node_first[shape]
            for option in range(shapes.option_first[node + 1] - shapes.option_first[node]):
                if fine.places.first[at] >= 0:
                    a, b = coarse.places.first[at] + option * was, fine.places.first[at] + option * now
                    new.parts[b : b + now - 1][kept] = old.parts[a + delay[kept]]


def carry_falls(
    old: Prices, coarse: Relaxation, new: Prices, fine: Relaxation, jobs: range, first: int, rescale: float
) -> None:
    """Write the prices of the precedences of some jobs for other slots and windows: every delay keeps its price.

    Parameters
    ----------
    jobs, first
        The jobs in the fine relaxation, and which the first of them is in the coarse one.
    rescale
        What a price of the coarse relaxation is worth in units of the fine one.
    """
    ratio = rescale * (fine.slot_us / coarse.slot_us)
    per_job = np.diff(fine.trees.shapes.extra_first)[fine.data.shape]
    for job in jobs:
        before = first + job - jobs.start
        was, now = int(coarse.data.delays[before]), int(fine.data.delays[job])
        delay = np.arange(now - 1) * fine.slot_us // coarse.slot_us
        kept = delay < was - 1
        for arc in range(int(per_job[job])):
            a, b = int(coarse.data.extra_first[before]) + arc * was, int(fine.data.extra_first[job]) + arc * now
            new.extra[b : b + now - 1][kept] = old.extra[a + delay[kept]] * ratio
