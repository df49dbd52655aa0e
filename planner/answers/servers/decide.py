"""One size, one question: refute that it meets the level, or find a plan that does."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from truenorth.models import Instance, Objective, ServiceLevels, Timeline, completion_us
from truenorth.models.scenario import Scenario
from truenorth.models.timeline import TokenTimes
from truenorth.planner.answers.plan import solve, starts_for
from truenorth.planner.answers.servers.forces import Alone, in_words, prices_in_words, search_in_words, too_long_alone
from truenorth.planner.answers.servers.goal import Goal, goals
from truenorth.planner.answers.servers.record import Figures
from truenorth.planner.answers.servers.sizes import Mix
from truenorth.solvers.bounds import closed_form
from truenorth.solvers.bounds.certificate import closed_form_document, lagrangian_document
from truenorth.solvers.bounds.lagrangian.improve import METHOD as LAGRANGIAN
from truenorth.solvers.bounds.stream_floor import Cut
from truenorth.solvers.budget import Budget
from truenorth.solvers.clock import Clock
from truenorth.solvers.exact import arc_flow
from truenorth.solvers.incumbents import Progress
from truenorth.solvers.result import Result, Search
from truenorth.solvers.rounding import round_up
from truenorth.solvers.side_by_side import anneal, raise_bound
from truenorth.solvers.trust import SOLVER_OF

Reached = tuple[Fraction | None, ...]
"""The figure of a timeline that each level limits, in microseconds, as a ratio or a share; None if it covers no job."""
LONGEST_PATH = "critical_path"
"""The bound that holds whatever the number of servers."""
_TARDINESS_SHARE, _TARDINESS_S_PER_TASK = 0.5, 0.1
"""Share of an attempt's time that goes to plans of low tardiness, which leads local search where late jobs, being
counted, do not, and seconds that are enough for it; the rest goes to the late jobs themselves."""
_LEAST_DOUBT_S = 2.0
"""A second opinion on what a solver refutes may take so long, or as long as the first took."""
_TURNS = 3
"""Searches for low tardiness that follow each other, the latest jobs of the last one given up."""


@dataclass(frozen=True, slots=True)
class SizeRefutation:
    """The proof that a size does not meet the level, nor any smaller one.

    Parameters
    ----------
    mix
        Servers of each group.
    method
        The bound that proves it.
    goal, bound
        What every plan within the level would reach, and why none does: the bound exceeds `goal.most`. None where
        some task can run nowhere.
    certificate
        To compute the bound again with ``truenorth verify`` on the goal's instance; None if that takes a solver.
    forces
        What makes it impossible, in one sentence.
    however_many
        Whether it holds for any number of servers of these groups, not for those of `mix` alone.
    alone
        Who takes too long even alone, where that is why; None for other reasons.
    cut
        What a floor asks of every size, where that is why: it can be computed again at this one.
    """

    mix: Mix
    method: str
    goal: Goal | None
    bound: Fraction | None
    certificate: dict[str, Any] | None
    forces: str
    however_many: bool = False
    alone: Alone | None = None
    cut: Cut | None = None

    @property
    def recomputable(self) -> bool:
        """Whether ``truenorth verify`` can compute it again."""
        return self.certificate is not None or self.cut is not None


def meets(instance: Instance, timeline: Timeline, levels: ServiceLevels) -> bool:
    """Say whether all jobs of a timeline meet the levels together."""
    latency = completion_us(instance, timeline) - instance.job_release_us
    return levels.met_by(instance, latency, range(len(instance.jobs)), TokenTimes.of(instance, timeline))


def reached_by(instance: Instance, timeline: Timeline, levels: ServiceLevels) -> Reached:
    """Return the figure of a timeline that each level limits, over all its jobs."""
    latency, tokens = completion_us(instance, timeline) - instance.job_release_us, TokenTimes.of(instance, timeline)
    return tuple(level.reached(instance, latency, tokens) for level in levels)


def figures(levels: ServiceLevels, values: Reached | None) -> Figures:
    """Return the figures that the levels limit in seconds, as ratios or as shares: of one level its own."""
    if values is None:
        return None
    found = [None if value is None else level.reported(value) for level, value in zip(levels, values, strict=True)]
    return found[0] if len(found) == 1 else found


def share_of_limit(levels: ServiceLevels, reached: Reached) -> float | None:
    """Return the greatest share of its limit that any figure takes up; of jobs on time, the share asked by that had."""
    shares = [
        (level.share or Fraction(1)) / max(value, Fraction(1, 10**9))
        if level.measure == "lateness"
        else value / level.limit
        for level, value in zip(levels, reached, strict=True)
        if value is not None
    ]
    return float(max(shares)) if shares else None


def refuted_by_formula(
    scenario: Scenario,
    mix: Mix,
    levels: ServiceLevels,
    methods: Sequence[str] = tuple(closed_form.METHODS),
    left_s: Callable[[], float] = lambda: math.inf,
) -> SizeRefutation | None:
    """Refute a size by a bound that needs no search, or return None; none is begun that may take more than is left."""
    for goal in goals(scenario.instance, levels):
        relaxed = goal.relaxed
        for name in methods:
            # None can be interrupted, so that its time is known before it is begun.
            if not closed_form.is_worth_a_try(relaxed, goal.objective, name, left_s()):
                continue
            value = closed_form.METHODS[name](relaxed, goal.objective)
            bound = None if value is None else round_up(goal.instance, goal.objective, value)
            if bound is not None and bound > goal.most:
                document = closed_form_document(goal.instance, goal.objective, name, bound)
                # A longest path knows no queues: whoever breaks the level by it breaks it on any number of servers.
                alone = too_long_alone(scenario.instance, levels) if name == LONGEST_PATH else None
                forces = in_words(goal, name, bound) if alone is None else alone.in_words()
                return SizeRefutation(mix, name, goal, bound, document, forces, alone=alone)
    return None


def refuted_however_many(beyond: Scenario, mix: Mix, levels: ServiceLevels) -> SizeRefutation | None:
    """Refute every number of servers at once, or return None.

    Parameters
    ----------
    beyond, mix
        A size with more servers of every group than the scenario names anywhere: a longest path is there as short as
        anywhere, since it takes loads and run times from the best GPU and knows no queues.
    """
    found = refuted_by_formula(beyond, mix, levels, (LONGEST_PATH,))
    return None if found is None else replace(found, however_many=True)


@dataclass(frozen=True, slots=True)
class SizeAttempt:
    """What an attempt at a size came to: a plan within the level, a refutation, or neither.

    Parameters
    ----------
    closest
        Of neither, the plan that came closest, from which a further attempt may go on.
    """

    timeline: Timeline | None
    refutation: SizeRefutation | None
    closest: Timeline | None = None


@dataclass(slots=True)
class _SizeTried:
    """A size that is attempted: plans known, the one that came closest, and what is left of the time for everything."""

    instance: Instance
    mix: Mix
    levels: ServiceLevels
    left_s: Callable[[], float]
    known: list[Timeline]
    closest: Timeline | None

    def is_met_by(self, timeline: Timeline | None) -> bool:
        """Say whether a plan meets the levels."""
        return timeline is not None and meets(self.instance, timeline, self.levels)


def attempt(
    scenario: Scenario,
    mix: Mix,
    levels: ServiceLevels,
    budget: Budget,
    left_s: Callable[[], float],
    *,
    starts: Sequence[Timeline] = (),
    closest: Timeline | None = None,
) -> SizeAttempt:
    """Search for a plan that meets the level, and for the proof that there is none, until one of them is found.

    Parameters
    ----------
    budget
        Of this attempt.
    left_s
        What is left for everything: a proof that was found may take it to become one that can be computed again.
    closest
        The plan of an earlier attempt that came closest.
    """
    asked = goals(scenario.instance, levels)
    if asked[0].suffices and _is_packing(asked[0]):
        return _packed(asked[0], mix, budget)
    # Policies first: where what they do meets the level no search is needed, and elsewhere searches start from it.
    known = list(starts or starts_for(scenario.instance, budget.seed)(lambda: budget.left_s))
    at = _SizeTried(scenario.instance, mix, levels, left_s, known, closest)
    for timeline in known:
        if at.is_met_by(timeline):
            return SizeAttempt(timeline, None)
    # Tardiness has other bounds than late jobs, but the same plans: it refutes, and leads no search of its own.
    leading = [goal for goal in asked if goal.objective is not Objective.WEIGHTED_TARDINESS]
    leading = asked[:1] if asked[0].suffices else leading
    for position, goal in enumerate(leading):
        made = _led(at, goal, budget.share(1 / (len(leading) - position)))
        if made.timeline is not None or made.refutation is not None:
            return made
        at.closest = made.closest or at.closest
    return SizeAttempt(None, None, at.closest)


def _led(at: _SizeTried, goal: Goal, budget: Budget) -> SizeAttempt:
    """Search towards one goal; plans found on the way are added to those known."""
    if goal.objective is Objective.LATE_JOBS and not goal.instance.gangs:
        at_most_s = min(_TARDINESS_SHARE * budget.time_limit_s, _TARDINESS_S_PER_TASK * at.instance.n_tasks)
        hurried = _hurry(at, goal, replace(budget, time_limit_s=at_most_s))
        if at.is_met_by(hurried):
            return SizeAttempt(hurried, None)
        at.known += [] if hurried is None else [hurried]
    until = Clock(math.inf, budget.stop)
    led = replace(budget.share(1), watch=_watch(goal, until), stop=until)
    result = solve(goal.instance, goal.objective, led, starts=at.known or None)
    if at.is_met_by(result.timeline):
        return SizeAttempt(result.timeline, None)
    at.known += [] if result.timeline is None else [result.timeline]
    if not result.infeasible and (result.lower_bound or 0) <= goal.most:
        return SizeAttempt(None, None, result.timeline)
    method = result.denied_by or result.bound_method or "search"
    # A bound of ours can be computed again; of a solver's word a second solver is asked.
    if method not in SOLVER_OF or result.confirmed_by is not None:
        return SizeAttempt(None, _searched(goal, at.mix, result, method, at.left_s(), budget.stop))
    from truenorth.solvers.confirming import ask_others

    again = Clock(max(0.1, min(at.left_s(), max(_LEAST_DOUBT_S, result.runtime_s))), budget.stop)
    most = None if result.infeasible else goal.most
    opinion = ask_others(method, goal.instance, goal.objective, most, budget, again)
    if at.is_met_by(opinion.timeline):
        return SizeAttempt(opinion.timeline, None)
    if opinion.confirmed_by is None:  # one solver's word refutes nothing
        return SizeAttempt(None, None, opinion.timeline or result.timeline)
    said = search_in_words(goal, f"{method} and {opinion.confirmed_by}")
    return SizeAttempt(None, SizeRefutation(at.mix, method, goal, result.lower_bound, None, said))


def _hurry(at: _SizeTried, goal: Goal, budget: Budget) -> Timeline | None:
    """Return a plan of low tardiness, by local search with several seeds, or the first that meets the levels.

    At first all jobs count, then all but the latest of the plan found, as many as may be late: what is given up makes
    room for the others. A plan that came close earlier has had its turn with all of them.
    """
    until, hurried, turns = Clock(math.inf, budget.stop), at.closest, _TURNS if goal.most else 1

    def watch(progress: Progress) -> None:
        if at.is_met_by(search.timeline):
            until.set()

    for turn in range(turns):
        window = goal.instance if hurried is None else goal.without_latest(hurried)
        limited = replace(budget, time_limit_s=budget.time_limit_s / turns, seed=budget.seed + turn)
        search = Search(window, Objective.WEIGHTED_TARDINESS, until.child(limited.time_limit_s), watch)
        for timeline in at.known if hurried is None else [hurried]:
            search.offer(timeline)
        anneal(search, limited)
        hurried = search.timeline or hurried
        if hurried is None or until.is_set():
            break
    return hurried


def _watch(goal: Goal, until: threading.Event) -> Callable[[Progress], None]:
    """Return what ends a search once its value or its bound answers the goal.

    A value does not where a plan may reach the goal and be beyond some level: there the search goes on to its best.
    """

    def watch(progress: Progress) -> None:
        met = goal.suffices and progress.value is not None and progress.value <= goal.most
        if met or (progress.bound is not None and progress.bound > goal.most):
            until.set()

    return watch


def _searched(
    goal: Goal, mix: Mix, result: Result, method: str, left_s: float, stop: threading.Event
) -> SizeRefutation:
    """Return the refutation that a search has proved; a Lagrangian bound is climbed again, for its prices."""
    if result.bound_method == LAGRANGIAN and left_s > 0:
        until = Clock(min(left_s, 2 * result.runtime_s), stop)
        again = Search(goal.priced, goal.objective, until, _watch(goal, until))
        priced = raise_bound(again)
        if priced is not None and priced.bound > goal.most:
            document = lagrangian_document(goal.instance, goal.objective, priced)
            words = prices_in_words(goal, priced)
            return SizeRefutation(mix, LAGRANGIAN, goal, priced.bound, document, words)
    return SizeRefutation(mix, method, goal, result.lower_bound, None, search_in_words(goal, method))


def _is_packing(goal: Goal) -> bool:
    """Say whether a plan without late jobs is a packing into bins, one for each GPU, as large as the deadline.

    So it is where tasks without models are all released at 0 and due together.
    """
    deadlines = {job.deadline_us for job in goal.instance.jobs}
    one_deadline = goal.most == 0 and len(deadlines) == 1 and None not in deadlines
    return one_deadline and arc_flow.applies(goal.instance, Objective.MAKESPAN)


def _packed(goal: Goal, mix: Mix, budget: Budget) -> SizeAttempt:
    """Decide by bin packing; that takes a solver to repeat."""
    instance, due = goal.instance, goal.instance.jobs[0].deadline_us or 0
    sizes = [instance.run_time(task, 0) for task in range(instance.n_tasks)]
    decided, packed = arc_flow.pack(
        sizes, instance.n_gpus, due, budget.time_limit_s, budget.workers, budget.seed, budget.stop.is_set
    )
    if packed is not None or not decided:
        return SizeAttempt(None if packed is None else arc_flow.timeline(instance, packed), None)
    from truenorth.solvers.confirming import ask_others

    again = Clock(max(0.1, min(budget.time_limit_s, _LEAST_DOUBT_S)), budget.stop)
    opinion = ask_others(arc_flow.METHOD, instance, Objective.MAKESPAN, Fraction(due), budget, again)
    if opinion.timeline is not None:
        return SizeAttempt(opinion.timeline, None)
    others = ", confirmed by nobody," if opinion.confirmed_by is None else f" and {opinion.confirmed_by}"
    said = search_in_words(goal, arc_flow.METHOD + others)
    return SizeAttempt(None, SizeRefutation(mix, arc_flow.METHOD, goal, None, None, said))
