"""Does a policy know of the future what it may not? The future is changed, and its past must stay as it was."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import ClassVar

from executor import PolicyError
from executor.futures import Action, change_future, first_difference, past
from models.cluster import MICROSECONDS_PER_SECOND
from models.errors import QuestionError
from models.scenario import Scenario
from planner.answers.simulate import is_file, simulate


@dataclass(frozen=True, slots=True)
class ActionDone:
    """An action, and when it was taken."""

    at_s: float
    action: str


@dataclass(frozen=True, slots=True)
class PastDifference:
    """Where a past depends on the future: in which draw, what is the same before when, and what is done otherwise."""

    draw: int
    same_jobs_before_s: float
    as_it_was: ActionDone | None
    changed: ActionDone | None


def _done(action: Action | None) -> ActionDone | None:
    return None if action is None else ActionDone(action[0] / MICROSECONDS_PER_SECOND, action[1])


@dataclass(frozen=True, slots=True)
class FutureChanged:
    """What changed futures say of a policy.

    Parameters
    ----------
    draws
        Futures that were drawn.
    compared
        Those in which the policy could serve the window.
    difference
        The first past that differs; None if none does.
    """

    ENCODED: ClassVar = ("policy", "draws", "compared", "passed", "difference")

    scenario: Scenario
    policy: str
    draws: int
    compared: int
    difference: PastDifference | None

    @property
    def passed(self) -> bool:
        """Whether there were pasts to compare, and none differs."""
        return self.compared > 0 and self.difference is None


def try_changed_futures(scenario: Scenario, policy: str, draws: int, *, seed: int = 0) -> FutureChanged:
    """Simulate a policy on the window and on windows whose last jobs are others, up to the first past that differs.

    Parameters
    ----------
    policy
        As `planner.answers.simulate` takes it, but for files.
    draws
        Changed futures to try.
    seed
        Of the draws, and of the simulations.

    Raises
    ------
    QuestionError
        If the policy is a file.
    PolicyError
        If the policy cannot serve the window as it stands.
    """
    if is_file(policy):
        raise QuestionError(f"{policy!r} is the plan of one window; allowed are policies", "policy")
    first, rng, compared = simulate(scenario, policy, seed=seed), random.Random(seed), 0  # noqa: S311
    for draw in range(draws):
        future = change_future(scenario.instance, rng)
        try:
            second = simulate(replace(scenario, instance=future.instance), policy, seed=seed)
        except PolicyError:  # pins that do not fit, say
            continue
        compared += 1
        pasts = [past(ran.instance, ran.timeline, future.before_us) for ran in (first, second)]
        differing = first_difference(*pasts)
        if differing is not None:
            before_s = future.before_us / MICROSECONDS_PER_SECOND
            found = PastDifference(draw, before_s, *map(_done, differing))
            return FutureChanged(scenario, policy, draw + 1, compared, found)
    return FutureChanged(scenario, policy, draws, compared, None)
