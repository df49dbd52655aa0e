"""Plans for windows too long to search: one dispatch rule, compiled, at sizes ever further from the lower bound."""

from __future__ import annotations

import time
from collections.abc import Generator
from fractions import Fraction

from truenorth.models import InstanceError, Objective
from truenorth.models.scenario import Scenario
from truenorth.planner.answers.servers.decide import meets
from truenorth.planner.answers.servers.goal import goals
from truenorth.planner.answers.servers.hunt import Hunt
from truenorth.planner.answers.servers.sizes import Mix
from truenorth.solvers.result import Search
from truenorth.solvers.search.dispatch import EFFORT, greedy

_FACTORS = (Fraction(11, 10), Fraction(5, 4), Fraction(3, 2), Fraction(2), Fraction(3))
"""Sizes at so many times the least price are tried one after the other until one is enough; then halves below."""
_S_PER_TASK, _S_PER_COMPARISON = 1e-5, 1.5e-8
"""What a plan may take: its tables, goal and checks by the task, its rules by the task compared with a GPU."""
_MOST_RULES = 6


def dispatch(hunt: Hunt, share: float) -> None:
    """Offer plans of one dispatch rule at some sizes, in a share of the time left.

    A plan cannot be interrupted: none is begun that may take longer than there is time, by its tasks and GPUs or by
    what the one before it took, half as long again.
    """
    ask, last_s = hunt.question, 0.0
    reserve_s = (1 - share) * ask.left_s
    sizes = _sizes(hunt)
    met: bool | None = None
    while True:
        try:
            mix = sizes.send(met) if met is not None else next(sizes)
        except StopIteration:
            return
        met = True
        for left in ask.left_of(mix):
            if ask.left_s - max(_longest_s(hunt, left), 1.5 * last_s) <= reserve_s:
                return
            ask.budget.watch(f"dispatch rule on {sum(left)} servers")
            begun = time.monotonic()
            met = _offered(hunt, left)
            last_s = time.monotonic() - begun
            if not met:
                break


def _longest_s(hunt: Hunt, mix: Mix) -> float:
    """Return how many seconds a plan at a size may take."""
    sizes = hunt.question.sizes
    tasks = sizes.scenario.instance.n_tasks
    pairs = tasks * sum(count * each for count, each in zip(mix, sizes.gpus_per_server, strict=True))
    return _S_PER_TASK * tasks + _S_PER_COMPARISON * max(pairs, min(_MOST_RULES * pairs, EFFORT))


def _sizes(hunt: Hunt) -> Generator[Mix, bool, None]:
    """Yield sizes by price until one is said to be enough, then the middle of those between it and what was not."""
    ask, sizes = hunt.question, hunt.open
    prices = [ask.cost(mix) for mix in sizes]
    below, enough = 0, len(sizes)
    for factor in _FACTORS:
        if below == len(sizes):
            return
        position = next((p for p in range(below, len(sizes)) if prices[p] >= factor * prices[0]), len(sizes) - 1)
        met = yield sizes[position]
        if met:
            enough = position
            break
        below = position + 1
    while below < enough < len(sizes):
        middle = (below + enough) // 2
        met = yield sizes[middle]
        below, enough = (below, middle) if met else (middle + 1, enough)


def _offered(hunt: Hunt, mix: Mix) -> bool:
    """Offer the plan of the rule at a size; say whether it is within the levels."""
    ask = hunt.question
    try:
        scenario: Scenario = ask.scenario(mix)
    except InstanceError:
        return False
    if not scenario.instance.one_at_a_time:
        return False
    goal = goals(scenario.instance, ask.levels)[0]
    # Late jobs, being counted, tell a rule less than how late they are.
    objective = Objective.WEIGHTED_TARDINESS if goal.objective is Objective.LATE_JOBS else goal.objective
    timeline = greedy(goal.instance, objective)
    if timeline is None or not meets(scenario.instance, timeline, ask.levels):
        return False
    Search(goal.instance, objective, 1.0).offer(timeline)  # which raises if it breaks a rule
    hunt.offer(mix, timeline)
    return True
